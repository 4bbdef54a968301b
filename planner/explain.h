/* A plan in words: what it rests on, with the numbers that went in and where they come from. Text
 * is at most 80 columns wide, without colour; callers make it safe before showing it. */
#ifndef PLANNER_EXPLAIN_H
#define PLANNER_EXPLAIN_H

#include "planner/search.h"

struct json;
struct offers;
struct plan_file;
struct str;
struct terms;

/* "zero3/16 mb 4 x 8, full recompute, optimizer offloaded": a strategy in one line. */
char *explain_strategy(const struct strategy *s, char buf[SEARCH_TEXT]);
/* The words of a text, in lines of at most 80 columns that begin with an indent. */
void explain_wrapped(struct str *out, int indent, const char *text);
/* The chosen plan of a search in a few lines: how fast, how full, what it costs and why. */
void explain_winner(struct str *out, const struct search *s, const struct offers *offers);
/* What was rejected, at most max lines, and how much was searched. */
void explain_rejected(struct str *out, const struct search *s, size_t max);
/* What is found beside what a plan file says; NULL: not said. */
struct plan_findings {
    const struct alternative *alternatives; /* ALTERNATIVES of them */
    const struct network_needs *network;
    const struct terms *memory, *host, *work; /* what the figures are made of */
};
/* Everything about a plan file: inputs, memory by name, a step by lane and what the network must
 * carry for it, what came second, what other ways of sharding would do on the same nodes, what was
 * rejected, bill, constants. */
void explain_plan_file(
    struct str *out, const struct plan_file *p, const struct plan_findings *found);
/* Do the sizes lie within those of the runs behind the constants? A line or two, none where no runs
 * are known. */
void explain_evidence(struct str *out, int indent, const struct estimate *x);
/* What a token passes through of a model with experts; nothing for others. */
void explain_experts(struct str *out, const struct model *m);
/* What is trained of a model, where not all of it is. */
void explain_adapter(struct str *out, const struct model *m);
/* The same alternatives as an array of JSON objects. */
struct json *explain_alternatives_json(const struct alternative all[ALTERNATIVES]);
/* Memory and a step of one estimate, as `berth estimate` prints them. */
void explain_estimate(struct str *out, const struct estimate *x, const struct model *m,
    const struct strategy *s, const struct machine *mc);

#endif
