/* At what price another GPU would be the first choice.
 *
 * The plan of a search is set against the best plan of every other kind of node, that is of every
 * other GPU or market, and the price is found at which that plan would be exactly as good by the
 * job's objective: below it, it wins. A lower price may make another number of nodes the best, so
 * the offer is planned again at each price tried until it no longer changes. For a job that wants
 * the shortest time no price decides; the price of equal cost is found then. */
#ifndef PLANNER_BREAK_EVEN_H
#define PLANNER_BREAK_EVEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/search.h"

struct json;
struct str;

/* Kinds of nodes without any plan that are looked at; those with one all are. */
enum { BREAK_EVEN_MOST_WITHOUT = 16 };

/* Value type. Prices are micro-dollars of a node-hour, -1 unknown. */
struct break_even {
    size_t offer;            /* of the best plan; of kinds without a plan, the first */
    int rank;                /* of that plan in the list, from 1; 0: it is not listed */
    int64_t nodes;           /* that it would take at the price found; 0: no plan */
    int64_t price_usd_micro; /* now */
    int64_t tie_usd_micro;   /* below it, it wins; -1: at no price */
    double gpus_per_node;
    bool decides;                /* the objective looks at money */
    char why_never[SEARCH_TEXT]; /* at no price: why */
};

/* Against the plan of the search with the given index, in the order of the list. When all plans
 * listed are of one kind, the best of the others is found by one more search; when the list is not
 * full, kinds without a plan are there with the reason. None when the plan has no price. On success
 * free(*out). RC_CANCELLED as search_run. */
enum rc break_even_find(struct break_even **out, size_t *n, const struct search_input *in,
    const struct search *s, size_t against, struct err *e);

/* A few lines of at most 80 columns for each, at most max of them. */
void break_even_describe(struct str *out, const struct json *list, size_t max);
/* An array of objects. Caller frees. */
struct json *break_even_json(const struct break_even *all, size_t n, const struct search_input *in);
/* Both: found and put into *out, which is NULL when there is nothing to say. */
enum rc break_even_find_json(struct json **out, const struct search_input *in,
    const struct search *s, size_t against, struct err *e);

#endif
