/* The answer of `berth plan --json` (plan-list/1) as the screens show it. Immutable once made. */
#ifndef TUI_PLAN_DATA_H
#define TUI_PLAN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json;

enum { PLAN_PARTS = 24, PLAN_TEXT = 48, PLAN_SENTENCE = 400 };

/* A named amount: bytes of a memory part, seconds of a lane, dollars of a line. */
struct plan_part {
    char name[48];
    double value;   /* NaN: unknown */
    double exposed; /* lanes only: seconds nothing else was busy; NaN: unknown */
};

struct plan_parts {
    int n;
    struct plan_part part[PLAN_PARTS];
};

struct plan_range {
    double low, mid, high; /* NaN: unknown */
};

struct plan_row {
    int64_t rank;
    char provider[PLAN_TEXT], region[PLAN_TEXT], offer_id[128], gpu[PLAN_TEXT];
    char market[32];
    int64_t nodes, gpus;
    char strategy[32], recompute[32], offload[32], precision[32];
    int64_t shard_degree, micro_batch, grad_accum;
    bool is_launchable;
    double peak_bytes, capacity_bytes, fit_probability;
    struct plan_parts memory;
    struct plan_range step_s;
    double tokens_per_second_per_gpu, mfu, overlap;
    struct plan_parts lanes;
    struct plan_range hours, cost_usd;
    struct plan_parts cost_lines; /* mid */
    char why[PLAN_SENTENCE], limits[PLAN_SENTENCE], not_launchable[PLAN_SENTENCE];
    /* gigabit/s of a node, between nodes; NaN: on one node, or not known */
    double offered_gbps, required_gbps;
    char outside[2 * PLAN_TEXT]; /* "sequence, ranks": beyond the runs behind the constants */
    size_t priors;               /* constants that nobody has measured on this hardware */
};

struct plan_rejected {
    char what[2 * PLAN_TEXT];
    char why[PLAN_SENTENCE];
    char short_by[PLAN_TEXT];
    char nearest_change[PLAN_SENTENCE];
};

struct plan_list {
    struct plan_row *row;
    size_t n;
    struct plan_rejected *rejected;
    size_t n_rejected;
    struct plan_parts searched; /* offers, hardware, space, ... */
};

/* Never fails: what is missing or of another type is unknown. Caller frees with plan_list_free. */
struct plan_list *plan_list_from_json(const struct json *doc);
void plan_list_free(void *list);

#endif
