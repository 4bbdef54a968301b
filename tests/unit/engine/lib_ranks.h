/* Ranks as threads of one process, connected over loopback: what engine tests run on. */
#ifndef TESTS_LIB_RANKS_H
#define TESTS_LIB_RANKS_H

#include "engine/executor.h"
#include "planner/schedule.h"

struct rank {
    int rank, ranks;
    struct schedule *schedule;
    struct comm *comm;
    struct executor *x;
    void *arg;
};

/* Small, in fp32: sequences of 24, one a micro batch. */
struct strategy ranks_strategy(enum strategy_kind kind, int64_t ranks, int64_t accum);
/* The same in shard groups of two. */
struct strategy ranks_hsdp(int64_t ranks, int64_t accum);

/* Run fn on s->ranks threads, each with an executor of the schedule; fails the test on errors of
 * set-up. threads: of the compute lane. */
struct rank_options {
    const char *model; /* preset, or NULL: use config */
    const struct model *config;
    struct strategy strategy;
    int threads;
    const struct kernels *kernels; /* NULL: the best */
    bool is_poisoning;
    FILE *trace;                  /* of rank 0 */
    const char *const *disk_dirs; /* default /tmp */
    int n_disk_dirs;
    double deadline_s;
    int ranks_per_host; /* hosts that share memory inside; 0: all on one */
};
void ranks_run(const struct rank_options *o, void (*fn)(struct rank *r), void *arg);

/* fail_msg from any rank's thread, with the sentence. */
void ranks_check(enum rc rc, const struct err *e);

/* Of all bits of masters and moments over the ranks of a shard group, however they are split.
 * Collective. */
uint64_t ranks_state_hash(struct rank *r);
/* The rank's part of a unit's state as fp32, *view.data of view.count elements, which the caller
 * frees. */
struct state_view ranks_state(struct rank *r, int unit, enum state_kind kind);
/* A unit's state whole, put together from the parts of all ranks; called by all of them. Caller
 * frees. */
float *ranks_whole(struct rank *r, int unit, enum state_kind kind);

/* Deterministic batch that depends on the global sample position alone: all sharings of a global
 * batch see the same tokens. */
struct batch {
    const struct rank *r;
    int64_t step;
};
enum rc batch_fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e);

/* n steps of AdamW with fixed constants; losses may be NULL. Starts at step first (from 1). */
void ranks_train(struct rank *r, int64_t first, int64_t n, double *losses);
/* For ranks_run; arg is a struct comm_volume *: what rank 0 sends in a step. */
void ranks_count_bytes(struct rank *r);
/* One of them, which may fail. */
enum rc ranks_try_step(struct rank *r, int64_t step, struct err *e);

#endif
