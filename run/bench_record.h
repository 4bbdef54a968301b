/* bench/1: what a machine needed for the operations of a plan, and for parts of a step by
 * themselves, one JSON document (docs/bench.md).
 *
 *   program      version of the engine
 *   kernels      instruction set of its arithmetic
 *   ranks, threads (of each rank)
 *   schedule     hash of the list that was run; null: none was, and there are no ranks, steps and
 *                operations
 *   external_bytes  most that a rank used outside its slabs, null unknown
 *   step_seconds    every step that counts, in order
 *   operations      by place in the schedule's list: median seconds, and the median share of them
 *                   during which other lanes of the rank were at work; null where none ran
 *   collectives     where they were asked for: {kind, path, ranks, bytes (of the whole vector),
 *                   seconds (of the slowest rank, median)} of each kind and size, by each path that
 *                   there is between ranks of this machine */
#ifndef RUN_BENCH_RECORD_H
#define RUN_BENCH_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "planner/schedule.h"

struct json;

enum bench_path { BENCH_SHARED_MEMORY, BENCH_TCP, BENCH_PATHS };
/* "shared_memory", "tcp" */
const char *bench_path_name(enum bench_path p);

struct bench_collective {
    enum op_kind kind;
    enum bench_path path;
    int64_t ranks, bytes;
    double seconds;
};

enum bench_what { BENCH_PRODUCT, BENCH_MEMORY, BENCH_OPTIMIZER, BENCH_DISK, BENCH_WHATS };
/* "product", "memory", "optimizer", "disk" */
const char *bench_what_name(enum bench_what w);

/* One part, timed while at_once copies of it ran, each with so many threads. */
struct bench_part {
    enum bench_what what;
    char form[8];    /* product: "fp32", "bf16", "fp8"; memory: "triad"; optimizer, of its moments:
                        "fp32", "8bit", "fp8"; disk: "mixed", half read and half written */
    int64_t size[3]; /* product: m, n, k of C(m,n) = A(m,k) B(n,k)^T; memory, disk: bytes moved;
                        optimizer: parameters; else 0 */
    int64_t threads, at_once;
    double seconds; /* median */
};

enum {
    BENCH_MAX_COLLECTIVES = 1024,
    BENCH_MAX_PARTS = 4096,
    BENCH_MAX_STEPS = 1000,
    BENCH_MAX_OPS = 1 << 20,
    BENCH_MAX_BYTES = 64 << 20
};

/* Release with bench_release. */
struct bench {
    char program[64], kernels[16];
    bool has_steps; /* of a plan */
    int64_t ranks, threads;
    struct hash128 schedule;
    double external_bytes; /* NaN unknown */
    double *step_s;
    size_t n_steps;
    double *op_s, *op_shared; /* n_ops each; NaN where none ran */
    size_t n_ops;
    struct bench_collective *collectives;
    size_t n_collectives;
    struct bench_part *parts;
    size_t n_parts;
};

void bench_release(struct bench *b);
/* Caller frees. */
struct json *bench_to_json(const struct bench *b);
/* Strict: the document may come from anywhere. */
enum rc bench_from_json(struct bench *out, const struct json *v, struct err *e);
/* Median of the steps, seconds. */
double bench_step_s(const struct bench *b);
/* Sorts x; NaN when there is nothing. */
double bench_median(double *x, size_t n);

#endif
