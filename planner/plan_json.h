/* The planner's answers as JSON: estimate/1 and plan-list/1, without schema and time. */
#ifndef PLANNER_PLAN_JSON_H
#define PLANNER_PLAN_JSON_H

struct job;
struct json;
struct machine;
struct offers;
struct plan;
struct rates;
struct search;
struct strategy;

/* Everything predicted of a plan: the sections of estimate/1, hours and cost_usd. Caller frees. */
struct json *plan_prediction_json(const struct plan *p, const struct rates *rates);
/* Names and numbers of a strategy as plan-list/1 spells them. */
void plan_json_add_strategy(struct json *v, const struct strategy *s);

/* Add plans, pareto, rejected, searched and the job to doc. seconds: of the search, negative for
 * null. */
void plan_list_fill(struct json *doc, const struct search *s, const struct job *j,
    const struct offers *offers, const struct rates *rates, double seconds);

#endif
