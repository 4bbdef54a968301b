/* What sizes the runs behind constants had: a prediction outside of them is an extrapolation, and
 * says in what. Fits and probes write the ranges of their runs beside the constants (ranges of an
 * entry in calibration/1). */
#ifndef PLANNER_RANGE_H
#define PLANNER_RANGE_H

#include <stdbool.h>

#include "base/err.h"

struct json;
struct model;
struct strategy;
struct str;

/* Tokens of a micro batch are those of a rank. */
#define RANGE_MAP(X)                                                                               \
    X(RANGE_PARAMETERS, "parameters", "parameters")                                                \
    X(RANGE_WIDTH, "width", "width")                                                               \
    X(RANGE_SEQ, "sequence", "sequence")                                                           \
    X(RANGE_MICRO_TOKENS, "micro_batch_tokens", "tokens of a micro batch")                         \
    X(RANGE_RANKS, "ranks", "ranks")                                                               \
    X(RANGE_NODES, "nodes", "nodes")

enum range_kind {
#define X(name, word, text) name,
    RANGE_MAP(X)
#undef X
        RANGE_COUNT
};

/* Value types. */
struct sizes {
    double of[RANGE_COUNT];
};
struct ranges {
    struct sizes low, high; /* high.of[0] is 0: of no run */
};

struct sizes sizes_of(const struct model *m, double params, const struct strategy *s);
/* Extend the ranges to a run. */
void ranges_add(struct ranges *r, const struct sizes *run);
bool ranges_are_known(const struct ranges *r);
/* A bit for each size that is outside; 0 when nothing is known. */
unsigned ranges_outside(const struct ranges *r, const struct sizes *x);
/* By how much seconds spread more than inside, of the logarithm: it grows with the doublings
 * between a size and the nearest run. Found by fits that left out runs above a size, which then
 * predicted them (docs/measurements.md). */
double ranges_log_sd(const struct ranges *r, const struct sizes *x, unsigned outside);
const char *range_word(enum range_kind k);

/* {parameters:[low, high], …}. Caller frees. */
struct json *ranges_json(const struct ranges *r);
/* An absent object is no range; RC_INVALID when one is not two rising numbers. */
enum rc ranges_from_json(struct ranges *out, const struct json *v, struct err *e);
/* "sequence 131072 (512 to 65536), ranks 4096 (8 to 512)". */
void ranges_describe(
    struct str *out, const struct ranges *r, const struct sizes *x, unsigned outside);
/* [{quantity, value, low, high}]. Caller frees. */
struct json *ranges_outside_json(const struct ranges *r, const struct sizes *x, unsigned outside);

#endif
