/* Training data: a file of tokens, cut into samples, in an order that depends on the seed alone.
 *
 * Sample k of the file is tokens [k seq, k seq + seq], targets shifted by one. At global position c
 * (samples consumed so far) epoch c / samples takes sample permutation(seed, epoch)(c mod samples),
 * so any world size, strategy and resume sees the same tokens in the same steps. */
#ifndef ENGINE_DATA_H
#define ENGINE_DATA_H

#include <stdint.h>

#include "base/err.h"

struct data;

struct data_options {
    const char *path;
    const char *kind; /* word of a data_kind; NULL: "auto" */
    int64_t seq, vocab;
    uint64_t seed;
};

/* Map the file and check its form. See planner/data_kind.h. Close with data_close. */
enum rc data_open(struct data **out, const struct data_options *o, struct err *e);
void data_close(struct data *d);

int64_t data_samples(const struct data *d);
/* Tokens and targets (seq each) of the sample at a global position. A token outside the vocabulary
 * is an error naming its place in the file. */
enum rc data_sample(
    const struct data *d, int64_t position, int32_t *tokens, int32_t *targets, struct err *e);

#endif
