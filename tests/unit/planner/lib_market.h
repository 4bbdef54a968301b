/* Jobs and offers for tests of what is said around a search. */
#ifndef TESTS_PLANNER_LIB_MARKET_H
#define TESTS_PLANNER_LIB_MARKET_H

#include "inventory/offer.h"
#include "planner/search.h"

/* Priced on demand, with InfiniBand of 400 gigabit/s a node when there is more than one node. */
struct offer market_offer(
    const char *id, const char *gpu, int64_t gpus, int64_t nodes, int64_t price_micro);
void market_add(struct offers *l, struct offer o);
/* A copy of the list in which the i-th offer is another. */
struct offers *market_with(const struct offers *l, size_t i, struct offer o);
struct job market_job(const char *model, int64_t tokens, int64_t seq, int64_t sequences);
/* At most n plans; fails the test when it fails. */
struct search *market_plans(
    const struct job *j, const struct offers *l, const struct rates *rates, size_t n);

#endif
