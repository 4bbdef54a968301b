/* Collectives between ranks on this machine, by kind, size and path, timed. */
#ifndef ENGINE_BENCH_COLLECTIVES_H
#define ENGINE_BENCH_COLLECTIVES_H

#include "base/err.h"
#include "run/bench_record.h"

/* Forks so many ranks, which exchange over shared memory where they can share it, and over TCP on
 * loopback; appends to out->collectives. */
enum rc bench_collectives(struct bench *out, int ranks, struct err *e);

#endif
