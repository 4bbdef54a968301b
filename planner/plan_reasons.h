/* Why a plan was chosen, kept in its file: what came second and by how much, and what was rejected,
 * how much it misses and the cheapest change that would do. */
#ifndef PLANNER_PLAN_REASONS_H
#define PLANNER_PLAN_REASONS_H

#include <stddef.h>

struct job;
struct json;
struct offers;
struct search;
struct str;

enum { PLAN_REASONS_REJECTED = 64 }; /* entries of a file at most */

/* Add runner_up, rejected and rejected_more to a plan/1 document: of the plan of the search with
 * the given index. The runner-up of the first plan is the second, of others the first; null when
 * the list has no other. */
void plan_reasons_add(struct json *doc, const struct search *s, size_t index, const struct job *j,
    const struct offers *offers);
/* Rejections of a search, at most max of them. Caller frees. */
struct json *rejected_json(const struct search *s, size_t max);

/* Lines of at most 80 columns for what a document holds of it; nothing for one without. */
void plan_reasons_describe(struct str *out, const struct json *doc);

#endif
