/* Offers as hardware: what the planner computes with, taken from what a seller says. */
#ifndef PLANNER_HARDWARE_H
#define PLANNER_HARDWARE_H

#include "planner/rates.h"

struct offer;

/* A settled offer (offer_settle) rented nodes times. RC_INVALID with the offer's problem when it
 * cannot be planned. */
enum rc hardware_from_offer(
    struct hardware *out, const struct offer *o, int64_t nodes, struct err *e);
/* "amd-epyc-9654" of "AMD EPYC 9654 96-Core Processor": lower case, without trade marks, clock and
 * count of cores. */
char *hardware_cpu(const char *model, char buf[RATES_NAME]);
/* Nodes of the offer that may work together: its fabric's limit and what is available; 1 without a
 * known fabric. */
int64_t hardware_max_nodes(const struct offer *o);
/* The same for everything the planner computes, whatever the number of nodes. */
bool hardware_same(const struct hardware *a, const struct hardware *b);
/* Equal for the same hardware. */
uint64_t hardware_hash(const struct hardware *hw);
/* "8 x h100-sxm", "4 CPU ranks". */
char *hardware_text(const struct hardware *hw, char buf[64]);

#endif
