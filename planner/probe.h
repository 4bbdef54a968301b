/* Constants of this hardware from runs on it: what `berth probe` does.
 *
 * Each operation of a run was timed (run/bench_record.h); those that ran beside nothing else of
 * their rank say how fast products, attention, elementwise work and collectives are here:
 *
 *   products      efficiency, half_k of machine_matmul_s and what threads of a rank lose, least
 *                 squares over log seconds; the loss of products that were timed by themselves with
 *                 several numbers of threads, where there are any, and of precisions that no run
 *                 had how they compare there
 *   attention     forward and backward efficiency, the mean of logarithms
 *   elementwise   share of the memory's rate by kind of operation, likewise
 *   collectives   bus bandwidth and seconds of a hop, least squares over relative errors: inside a
 *                 node of those of the runs and of those that were timed by themselves in shared
 *                 memory, between nodes of those over TCP on loopback, which says what a connection
 *                 of this processor can carry at most, and the least that a hop can take
 *   step          how much longer than its simulation it takes: a share, by which all of the above
 *                 is slower
 *
 * each operation weighing as much as it takes of its step. Pure. */
#ifndef PLANNER_PROBE_H
#define PLANNER_PROBE_H

#include <stddef.h>

#include "planner/rates.h"
#include "planner/schedule.h"

struct json;

/* One schedule as it ran; all runs of a fit are of one kind of hardware. */
struct probe_run {
    const struct schedule *schedule;
    struct hardware hw;
    const double *op_s;      /* seconds by place in the list; NaN: not seen */
    const double *op_shared; /* share of them beside other lanes, 0 to 1 */
    double step_s;           /* median of the steps */
    double external_bytes;   /* most of a rank, NaN unknown */
};

/* One that was timed by itself, of ranks of one node. */
struct probe_collective {
    enum collective kind;
    bool is_tcp; /* else in shared memory */
    int64_t ranks;
    double bytes, seconds;
};

enum probe_what { PROBE_PRODUCT, PROBE_MEMORY, PROBE_OPTIMIZER, PROBE_DISK };

/* Timed by itself, at_once copies at a time with so many threads each (run/bench_record.h). */
struct probe_part {
    enum probe_what what;
    enum precision precision; /* of a product */
    int64_t size[3];          /* m, n, k; bytes; parameters of AdamW in fp32; bytes */
    int64_t threads, at_once;
    double seconds;
};

struct probe_input {
    const struct probe_run *runs;
    size_t n;
    const struct probe_collective *collectives;
    size_t n_collectives;
    const struct probe_part *parts;
    size_t n_parts;
    const struct rates *base; /* what is not measured stays as it is here */
    const char *stack, *source, *date;
};

/* A calibration/1 document with one entry, to lay over base; caller frees. RC_INVALID when the runs
 * differ in hardware, or time nothing. */
enum rc probe_fit(struct json **out, const struct probe_input *in, struct err *e);

#endif
