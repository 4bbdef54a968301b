/* Jobs, offers and rates for tests of a search and of what is said around it. */
#ifndef TESTS_PLANNER_LIB_MARKET_H
#define TESTS_PLANNER_LIB_MARKET_H

#include "inventory/offer.h"
#include "planner/search.h"

/* There between set-up and teardown of a group. market_setup: without what is fitted, so that a new
 * fit does not change what is tested. */
extern struct rates *market_rates;
int market_setup(void **state);
int market_setup_fitted(void **state);
int market_teardown(void **state);

/* Priced on demand, with InfiniBand of 400 gigabit/s a node when there is more than one node. */
struct offer market_offer(
    const char *id, const char *gpu, int64_t gpus, int64_t nodes, int64_t price_micro);
void market_add(struct offers *l, struct offer o);
/* A copy of the list in which the i-th offer is another. */
struct offers *market_with(const struct offers *l, size_t i, struct offer o);
struct job market_job(const char *model, int64_t tokens, int64_t seq, int64_t sequences);
/* At most n plans; fails the test when it fails. */
struct search *market_plans(const struct job *j, const struct offers *l, size_t n);
bool market_same_strategy(const struct strategy *a, const struct strategy *b);

/* Small deterministic generator, below n: a failure can be repeated from its seed. */
extern uint32_t market_seed;
int64_t market_pick(int64_t n);

#endif
