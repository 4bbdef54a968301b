/* A few threads that split one job at a time between them.
 *
 * pool_run gives every worker one contiguous share of the items and returns when all are done. The
 * caller is worker 0. Nothing is allocated after pool_new. One thread at a time may call pool_run
 * on a pool; a function run by a pool must not call pool_run on the same pool. */
#ifndef KERNELS_PARALLEL_H
#define KERNELS_PARALLEL_H

#include <stdint.h>

struct pool;

enum { POOL_MAX_THREADS = 256 };

/* Items first .. last-1 are this worker's share; last > first. */
typedef void pool_fn(void *arg, int64_t first, int64_t last);

/* threads counts the caller: n - 1 threads are started. 1 or less gives a pool that only calls.
 * NULL when a thread cannot be started. Free with pool_free. */
struct pool *pool_new(int threads);
void pool_free(struct pool *p); /* p may be NULL */

/* Threads including the caller; 1 for NULL. */
int pool_threads(const struct pool *p);

/* Run fn over items 0 .. n-1 and wait. p may be NULL: the caller does everything. Which items share
 * a worker depends on the number of threads, so fn must give each item the same result wherever it
 * runs. */
void pool_run(struct pool *p, int64_t n, pool_fn *fn, void *arg);

#endif
