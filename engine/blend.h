/* Which of several sources a sample comes from: the one furthest behind its share.
 *
 * A function of the position alone. With whole weights the choices repeat: after as many samples as
 * the weights' sum every source has had exactly its weight, so one period is kept as a table. */
#ifndef ENGINE_BLEND_H
#define ENGINE_BLEND_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { BLEND_MAX_PERIOD = 1 << 20, BLEND_MAX_SOURCES = 255 };

struct blend {
    uint8_t *source; /* of each position of a period */
    uint32_t *turn;  /* how often that source came before it in the period */
    uint32_t *share; /* of each source, in a period */
    uint32_t period;
};

/* n weights, all more than 0. Whole numbers, or those with up to 5 decimals, are kept exactly where
 * their sum allows it; others to a millionth of the whole. RC_INVALID for one below that. */
enum rc blend_make(struct blend *b, const double *weights, size_t n, struct err *e);
void blend_release(struct blend *b);

/* The source of a position, and which of that source's samples it is, from 0. */
void blend_pick(const struct blend *b, int64_t position, size_t *source, int64_t *sample);

#endif
