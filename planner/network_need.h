/* How fast the wires of a plan must be, beside how fast they are.
 *
 * A step is bound by the network when it takes over NETWORK_BOUND longer than it would if bytes
 * crossed the wires in no time; what the first byte takes (hops, small payloads) stays. The rate
 * required is the least at which it is not, found by simulating the plan's whole schedule at other
 * rates. Two kinds of wires are asked about, each with the other as it is: those between nodes, and
 * the links of GPUs inside one. */
#ifndef PLANNER_NETWORK_NEED_H
#define PLANNER_NETWORK_NEED_H

#include <stdbool.h>

#include "base/err.h"
#include "planner/rates.h"

struct json;
struct model;
struct str;

#define NETWORK_BOUND 0.05

/* Value type. Rates are one way, as sellers and data sheets state them. */
struct network_need {
    bool exists;                 /* bytes cross such wires, and their rate is known */
    double offered_bytes_per_s;  /* between nodes: of a node, all NICs; inside: of a GPU */
    double required_bytes_per_s; /* 0: any rate will do */
    double slowdown;             /* of a step at the offered rate, over wires that take no time */
    bool is_bound;               /* slowdown is over NETWORK_BOUND */
};
struct network_needs {
    struct network_need between, inside;
};

/* Of a strategy on hardware. RC_INVALID when it cannot be planned. */
enum rc network_needs_make(struct network_needs *out, const struct model *m,
    const struct strategy *s, const struct hardware *hw, const char *stack,
    const struct rates *rates, struct err *e);

/* Lines of at most 80 columns: what is needed between nodes, and inside them where it binds. */
void network_needs_describe(struct str *out, const struct network_needs *n);
/* {definition, between_nodes, inside_nodes}; null where there are no such wires. Caller frees. */
struct json *network_needs_json(const struct network_needs *n);

#endif
