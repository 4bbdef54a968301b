/* Watches the numbers of a run: what is a spike, and when a run diverges.
 *
 * Losses and gradient norms of a step are sums over all ranks, so that every rank's guard says the
 * same. It is part of a checkpoint: a run that was resumed decides as one that was not. Value type.
 */
#ifndef ENGINE_GUARD_H
#define ENGINE_GUARD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct json;
struct training;

enum {
    GUARD_WINDOW = 128, /* steps that are looked back on */
    GUARD_LEAST = 32    /* accepted steps before anything is called a spike */
};

struct guard {
    double loss[GUARD_WINDOW], grad_norm[GUARD_WINDOW]; /* of accepted steps, the oldest at next */
    int32_t n, next;
    bool was_skipped[GUARD_WINDOW]; /* of all steps, a ring likewise */
    int32_t next_skipped;
    int64_t skipped_in_row;
};

/* Above these a step is a spike; INFINITY: nothing is. */
struct guard_limits {
    double loss, grad_norm;
};

/* Mean plus sigma deviations of the window; a deviation counts as a hundredth of the mean at least,
 * so that a run on a plateau is left alone. sigma 0: no limits. */
struct guard_limits guard_limits(const struct guard *g, double sigma);

/* A step is over; only an accepted one counts in the means. */
void guard_note(struct guard *g, double loss, double grad_norm, bool is_skipped);

/* max_skipped steps in a row had no update, or four times as many in the window. */
bool guard_has_diverged(const struct guard *g, int64_t max_skipped);
/* After a roll-back: the skipped steps are forgotten, what was accepted stays. */
void guard_forgive(struct guard *g);

/* The caller frees it. */
struct json *guard_to_json(const struct guard *g);
/* v may be NULL: an empty guard. */
enum rc guard_from_json(struct guard *out, const struct json *v, struct err *e);

#endif
