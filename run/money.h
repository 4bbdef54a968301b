/* What a run costs. One rule for the coordinator, the commands and the screens: nodes cost money
 * from a moment on until the run ends, whoever is attached, and what earlier attempts of the run
 * cost is part of it. */
#ifndef RUN_MONEY_H
#define RUN_MONEY_H

#include <stdint.h>

#include "base/err.h"

struct json;

struct run_money {
    int64_t micro_usd_per_hour; /* all nodes together; 0: free, -1: unknown */
    double since_wall_s;        /* counts from here, seconds since 1970; 0: not yet */
    int64_t spent_micro_usd;    /* before that moment */
};

/* Cost of the whole run until a moment, rounded down; -1: the price is unknown. */
int64_t run_money_cost(const struct run_money *m, double until_wall_s);

/* A further attempt begins now at another price. Between the attempts the nodes are taken to cost
 * what they did. rented_since_wall_s > 0: these nodes are rented since then, and the earlier ones
 * were until the earlier attempt's end (ended_wall_s, 0: not known), at the latest until then. A
 * price that was unknown before is taken to have been the new one. */
void run_money_go_on(struct run_money *m, int64_t micro_usd_per_hour, double ended_wall_s,
    double rented_since_wall_s, double now_wall_s);

/* As members micro_usd_per_hour, money_since_wall_s and spent_micro_usd of an object. */
void run_money_put(struct json *o, const struct run_money *m);
enum rc run_money_read(struct run_money *out, const struct json *o, struct err *e);

#endif
