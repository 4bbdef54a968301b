/* Training data: files of tokens, cut into samples, in an order that depends on the seed alone.
 *
 * Sample k of a file is tokens [k seq, k seq + seq], targets shifted by one. A file's samples are
 * taken by a keyed permutation, another one in each epoch; of several files the one furthest behind
 * its weight is next (engine/blend.h). So what a global position (samples consumed so far) gets
 * depends on the seed and the position alone: any world size, strategy and resume sees the same
 * tokens in the same steps.
 *
 * A mask says which tokens are targets; the others are read and not learnt: targets of -1. It comes
 * with the file (kind berth) or lies beside it, one entry a token: bytes, 0 for no target and 1 for
 * one, or int32 labels, -100 for no target and the token itself for one. With documents apart the
 * first token of a document is no target either: what stands before it does not tell it. Where
 * documents are packed, and kept apart, positions count from the first token of each, or of the
 * sequence. */
#ifndef ENGINE_DATA_H
#define ENGINE_DATA_H

#include <stdint.h>

#include "base/err.h"
#include "engine/micro_data.h"
#include "planner/data_source.h"

struct data;

enum { DATA_IGNORED_LABEL = -100 };

struct data_options {
    const struct data_source *sources; /* copied */
    size_t n;
    int64_t seq, vocab;
    uint64_t seed;
    const char *text_dir; /* where texts are kept as tokens; for sources of kind text */
    int threads;          /* that make them so */
};

/* Map the files and check their form. Close with data_close. */
enum rc data_open(struct data **out, const struct data_options *o, struct err *e);
void data_close(struct data *d);

/* Of all files together, each once. */
int64_t data_samples(const struct data *d);
/* The sample at a global position: seq tokens, a target of -1 where the mask says so. A token
 * outside the vocabulary is an error naming its place in the file. */
enum rc data_sample(
    const struct data *d, int64_t position, const struct micro_data *out, struct err *e);
/* How many targets of that sample count. */
int64_t data_targets(const struct data *d, int64_t position);

/* The same on every rank that reads the same files: of sizes, masks, order, and of some tokens. */
uint64_t data_fingerprint(const struct data *d);

#endif
