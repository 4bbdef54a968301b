/* The same job, if something were otherwise: a slower network, dearer GPUs, less memory.
 *
 * A change names a quantity, of all offers or of one GPU, and what becomes of it; what_if_help
 * lists the quantities. Changes of offers (price, memory, network, interruptions) are made in a
 * copy of the offers; changes of rates (mfu, link, host-link) multiply what calibration says;
 * failures multiply the rate at which nodes are taken to fail. Then everything is planned anew. */
#ifndef PLANNER_WHAT_IF_H
#define PLANNER_WHAT_IF_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "planner/search.h"

struct json;
struct str;

enum { WHAT_IF_CHANGES = 16, WHAT_IF_TEXT = 240, WHAT_IF_GPUS = 32 };

enum what_if_how {
    WHAT_IF_TIMES, /* 0.5x, +10%, -20% */
    WHAT_IF_PLUS,  /* +4GiB, -0.30 */
    WHAT_IF_SET    /* 80GiB, 2.49 */
};

struct what_if_change {
    int quantity; /* index into the table that what_if_help prints */
    enum what_if_how how;
    double value;                  /* a factor, or base units of the quantity */
    char gpu[64];                  /* id or family, "cpu"; "" all */
    const char *ids[WHAT_IF_GPUS]; /* the models that this is */
    size_t n_ids;                  /* 0: all */
};

/* What is changed at once. Value type; refers to the tables of GPUs alone. */
struct what_if {
    char text[WHAT_IF_TEXT]; /* as written, with single spaces */
    struct what_if_change changes[WHAT_IF_CHANGES];
    size_t n;
};

/* From "network=0.5x price.h100-sxm=+10%", separated by spaces or commas. RC_USAGE with the
 * sentence that says what is wrong. */
enum rc what_if_parse(struct what_if *out, const char *text, struct err *e);

/* What is found then. */
struct what_if_outcome {
    size_t offers_changed; /* that any of the changes makes different */
    bool has_plan;
    struct plan plan; /* the first; its offer is an index into the offers as they were */
    bool flips;       /* something else is rented: another offer, another number of nodes, or there
                         is a plan where there was none, or none where there was one */
    bool is_other_strategy; /* on the same nodes */
    bool has_kept;          /* the offer of the first plan as stated still has a plan */
    struct plan kept;       /* its best one, when it is not the first */
    char why_none[SEARCH_TEXT];
};

/* in: the job as stated; stated: its first plan, NULL when it has none. RC_USAGE when a change
 * makes no sense for an offer; else as search_run. */
enum rc what_if_plan(struct what_if_outcome *out, const struct what_if *w,
    const struct search_input *in, const struct plan *stated, struct err *e);

/* A few lines of at most 80 columns, and an object; stated as above. */
void what_if_describe(struct str *out, const struct what_if *w, const struct what_if_outcome *x,
    const struct plan *stated, const struct search_input *in);
struct json *what_if_json(const struct what_if *w, const struct what_if_outcome *x,
    const struct plan *stated, const struct search_input *in);

/* The quantities and how they may be changed, for `berth help what-if`. */
void what_if_help(struct str *out);

#endif
