#include "engine/blend.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* --- whole weights --- */

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The weights times `scale` as whole numbers; false when they are none or too many. */
static bool take_whole(uint32_t *share, const double *weights, size_t n, double scale)
{
    double sum = 0;
    uint32_t common = 0;
    for (size_t i = 0; i < n; i++) {
        double x = weights[i] * scale, whole = round(x);
        sum += whole;
        if (whole < 1 || fabs(x - whole) > 1e-9 * whole || sum > BLEND_MAX_PERIOD)
            return false;
        share[i] = (uint32_t)whole;
        common = gcd(share[i], common);
    }
    for (size_t i = 0; i < n; i++)
        share[i] /= common;
    return true;
}

/* Shares of BLEND_MAX_PERIOD; what rounding down leaves goes to the largest remainders. */
static enum rc take_rounded(uint32_t *share, const double *weights, size_t n, struct err *e)
{
    double sum = 0, rest[BLEND_MAX_SOURCES];
    uint32_t left = BLEND_MAX_PERIOD;
    for (size_t i = 0; i < n; i++)
        sum += weights[i];
    for (size_t i = 0; i < n; i++) {
        double exact = weights[i] / sum * BLEND_MAX_PERIOD;
        share[i] = (uint32_t)exact;
        rest[i] = exact - share[i];
        left -= share[i];
    }
    while (left-- > 0) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (rest[i] > rest[best])
                best = i;
        share[best]++;
        rest[best] = -1;
    }
    for (size_t i = 0; i < n; i++)
        if (share[i] == 0)
            return err_set(e, RC_INVALID,
                "weight %g of data source %zu is less than a millionth of all", weights[i], i + 1);
    return RC_OK;
}

/* --- one period --- */

static void fill(struct blend *b, size_t n)
{
    int64_t behind[BLEND_MAX_SOURCES] = {0}; /* in units of 1/period samples */
    uint32_t turns[BLEND_MAX_SOURCES] = {0};
    for (uint32_t k = 0; k < b->period; k++) {
        size_t best = 0;
        for (size_t i = 0; i < n; i++) {
            behind[i] += b->share[i];
            if (behind[i] > behind[best])
                best = i;
        }
        behind[best] -= b->period;
        b->source[k] = (uint8_t)best;
        b->turn[k] = turns[best]++;
    }
}

enum rc blend_make(struct blend *b, const double *weights, size_t n, struct err *e)
{
    *b = (struct blend){.share = base_calloc(n, sizeof(*b->share))};
    bool is_whole = false;
    for (double scale = 1; scale < 1e6 && !is_whole; scale *= 10)
        is_whole = take_whole(b->share, weights, n, scale);
    enum rc rc = is_whole ? RC_OK : take_rounded(b->share, weights, n, e);
    if (rc) {
        blend_release(b);
        return rc;
    }
    for (size_t i = 0; i < n; i++)
        b->period += b->share[i];
    b->source = base_calloc(b->period, sizeof(*b->source));
    b->turn = base_calloc(b->period, sizeof(*b->turn));
    fill(b, n);
    return RC_OK;
}

void blend_release(struct blend *b)
{
    free(b->source);
    free(b->turn);
    free(b->share);
    *b = (struct blend){0};
}

void blend_pick(const struct blend *b, int64_t position, size_t *source, int64_t *sample)
{
    int64_t period = position / b->period, k = position % b->period;
    *source = b->source[k];
    *sample = period * b->share[*source] + b->turn[k];
}
