/* Seconds of the distinct operations of schedules on a machine.
 *
 * Blocks repeat, so a list of thousands of operations has a few dozen that differ in what decides
 * their seconds. A table of them is made once and priced on each machine; operations are then
 * indexes into the prices. */
#ifndef PLANNER_PRICE_H
#define PLANNER_PRICE_H

#include <stdint.h>

#include "base/index.h"
#include "planner/rates.h"
#include "planner/schedule.h"

/* What an operation's seconds count as in a report. */
#define WORK_MAP(X)                                                                                \
    X(WORK_PRODUCTS, "matrix_products")                                                            \
    X(WORK_ATTENTION, "attention")                                                                 \
    X(WORK_ELEMENTWISE, "elementwise")                                                             \
    X(WORK_OPTIMIZER, "optimizer")                                                                 \
    X(WORK_COLLECTIVES, "collectives")                                                             \
    X(WORK_COPIES, "copies")                                                                       \
    X(WORK_DISK, "disk")

enum work {
#define X(name, word) name,
    WORK_MAP(X)
#undef X
        WORK_COUNT
};

enum work op_work(enum op_kind kind);
const char *work_name(enum work w);

/* What an update on the host takes of AdamW's time: of the 28 bytes that one moves of a parameter
 * (gradient, master value and two moments read; all but the gradient, and the parameter, written) a
 * moment is 8. In 8 bits it is arithmetic that decides. */
double price_host_share(const struct strategy *s);

/* Of a product: the embedding and the head keep 16 bits where blocks use fewer. */
enum precision price_precision(const struct schedule *s, const struct op *op);

/* Seconds of one operation running alone. */
double simulate_op_s(const struct schedule *s, const struct machine *m, const struct op *op);

/* --- tables --- */

/* What decides an operation's seconds, and 0 where nothing does: keys compare by their bytes. */
struct price_key {
    uint32_t form, variant, work;
    uint32_t group; /* tensor, context, expert; else 0, since ranks and nodes say it */
    int64_t dim[3];
    double amount; /* flops or bytes */
};

struct prices {
    struct price_key *keys;
    int32_t n, cap;
    struct index index;
};

/* Index of an operation's entry, added when it is not there. Start from a zeroed table and release
 * with prices_release. */
int32_t prices_add(struct prices *p, const struct schedule *s, const struct op *op);
void prices_release(struct prices *p);
/* seconds: room for p->n. */
void prices_fill(double *seconds, const struct prices *p, const struct machine *m);

#endif
