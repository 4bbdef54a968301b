/* Parts of a step by themselves, timed: products, memory, the optimizer, the disk.
 *
 * For each number of threads, 1, 2, 4 ... and all, so many copies run at once that all are at work,
 * as the ranks of a node would be: what a rank of several threads loses is then what it loses
 * against as many ranks of one. Numbers of threads take turns, so that a slow minute meets all. */
#ifndef ENGINE_BENCH_PARTS_H
#define ENGINE_BENCH_PARTS_H

#include "base/err.h"
#include "run/bench_record.h"

struct schedule;

/* What to time, as a set. */
enum { BENCH_DO_PRODUCTS = 1, BENCH_DO_MEMORY = 2, BENCH_DO_OPTIMIZER = 4 };

/* Appends to out->parts. products: shapes of the schedule, largest first, with fewer rows where one
 * would take long; NULL: some of usual sizes. */
enum rc bench_parts(
    struct bench *out, unsigned what, int threads, const struct schedule *products, struct err *e);

/* A scratch file striped over n folders, read and written at once, as an optimizer on disk is. */
enum rc bench_disk(struct bench *out, const char *const *folders, int n, struct err *e);

#endif
