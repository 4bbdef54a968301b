/* Instance shapes that providers rent out, with dated list prices: facts/shapes.csv. */
#ifndef INVENTORY_SHAPE_H
#define INVENTORY_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inventory/offer.h"

/* Value type; texts live as long as the program; OFFER_UNKNOWN where not known. */
struct shape {
    const char *provider, *instance, *gpu;
    int64_t gpus;
    const char *nvlink;
    double inter_gbps;
    enum offer_fabric fabric;
    int64_t max_nodes; /* published limit of nodes on one fabric */
    int64_t vcpus, ram_bytes, nvme_bytes;
    int64_t usd_micro_per_hour, spot_usd_micro_per_hour;
    const char *price_date; /* "2026-08-21", "2026-08", "2026" or "" */
    const char *arch;
    bool is_guess; /* confidence "low": assumed, not read */
    const char *source;
};

/* Replace or add the shapes of a file with the columns of facts/shapes.csv, of which provider and
 * instance must be there. RC_INVALID names line and column. At most once, before any use. */
enum rc shape_load_user(const char *path, struct err *e);

size_t shape_count(void);
const struct shape *shape_at(size_t i);
/* NULL when the table has no such instance. */
const struct shape *shape_find(const char *provider, const char *instance);

#endif
