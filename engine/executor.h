/* Executes a schedule on a device: one slab per memory, one pointer per buffer, sections in order.
 *
 * All calls from one thread. Everything is allocated by executor_open; a step allocates nothing. */
#ifndef ENGINE_EXECUTOR_H
#define ENGINE_EXECUTOR_H

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "engine/device.h"
#include "engine/micro_data.h"
#include "planner/schedule.h"
#include "run/record.h"

struct comm;
struct executor;
struct kernels;

/* What the device reports of one section that ran: n operations, lane after lane, in the order in
 * which each lane ran them. micro: how many micro steps of the step were finished before. */
typedef void observe_fn(
    void *arg, const struct section *sec, int64_t micro, const struct task_log *log, int32_t n);

struct executor_options {
    const struct device_ops *device;
    struct device_options device_options;
    const struct kernels *kernels;
    struct comm *comm;            /* kept until executor_close */
    const char *const *disk_dirs; /* folders for what the plan keeps on disk; kept likewise */
    int n_disk_dirs;
    observe_fn *observe; /* called after each section, or NULL */
    void *observe_arg;   /* kept likewise */
};

/* An observe_fn that writes one JSON line per operation; arg is a FILE *. */
void executor_write_trace(
    void *file, const struct section *sec, int64_t micro, const struct task_log *log, int32_t n);

/* Constants of one optimizer step. */
struct step_params {
    int64_t step;                                         /* of this update, from 1 */
    uint64_t seed;                                        /* of what is rounded at random */
    double lr, beta1, beta2, eps, momentum, weight_decay; /* as the optimizer has them */
    double clip_norm;                                     /* 0: no clipping */
    double max_loss, max_grad_norm; /* above them there is no update; 0: no limit */
    double local_targets;           /* target tokens of this rank in all micro steps of the step */
    bool wants_stop, wants_save;    /* this rank was told so; the results say whether any was */
};

/* Fill in what one micro step reads. */
typedef enum rc fill_fn(void *arg, int64_t micro, const struct micro_data *out, struct err *e);

struct step_result {
    double loss;      /* mean over all target tokens of all ranks, nats */
    double targets;   /* all ranks */
    double grad_norm; /* before clipping */
    bool is_skipped;  /* the norm was not finite, or above a limit, or there were no targets: no
                         update was made */
    bool is_stop, is_save; /* some rank wants it; the same on all ranks */
    double step_s;
    double busy_s[LANE_COUNT];
    double exposed_s[LANE_COUNT]; /* busy while the compute lane was not; compute: 0 */
    struct collective_time collective[COLLECTIVE_TIMES];
    double optimizer_s; /* norms and updates, wherever they ran */
};

/* schedule must be made (laid out and linked) and outlive the executor. */
enum rc executor_open(struct executor **out, const struct schedule *s,
    const struct executor_options *o, struct err *e);
void executor_close(struct executor *x);

/* Where the host updates states, it does so in the next step, beside its forward pass; results are
 * the same. */
enum rc executor_step(struct executor *x, const struct step_params *p, fill_fn *fill, void *arg,
    struct step_result *out, struct err *e);
/* Make the update of the last step if it is still to be made: before states are read. On all ranks
 * alike. */
enum rc executor_flush(struct executor *x, struct err *e);

/* Loss of held-out text, forward only; the schedule's strategy evaluates. */
struct evaluation {
    double loss;    /* mean over all target tokens of all ranks, nats */
    double targets; /* all ranks */
    double seconds;
};
/* micro_steps: the same on all ranks. An update that is still to be made is made first. */
enum rc executor_evaluate(struct executor *x, int64_t micro_steps, fill_fn *fill, void *arg,
    struct evaluation *out, struct err *e);

/* Every section once on whatever the slab holds, computing one block of those that are alike,
 * without an update: connections and code are warm afterwards, state is unchanged. */
enum rc executor_warm_up(struct executor *x, struct err *e);

/* --- state between steps, after executor_flush --- */

enum state_kind { STATE_MASTER, STATE_M, STATE_V, STATE_KINDS, STATE_GRADIENT = STATE_KINDS };
/* SGD has no second moment. */
bool state_exists(const struct schedule *s, enum state_kind kind);

/* The part of a unit's state this rank answers for: elements first .. first + count of the unit.
 * Parts of the ranks of a shard group tile the unit and replicas hold the same, or parts of all
 * ranks tile it (schedule_part_of). fp32; data is NULL where they are kept in another form. The
 * gradient is that of the last step, before clipping. */
struct state_view {
    float *data;
    int64_t first, count;
};
struct state_view executor_state(struct executor *x, int unit, enum state_kind kind);
/* fn is called before each update of a unit's state, from the lane that makes it; NULL: none. */
void executor_on_update(struct executor *x, update_fn *fn, void *arg);
/* Where states lie on disk, executor_state points to where they are in memory after this, until
 * another is fetched or a step is made; what is changed there must be stored. Does nothing for
 * others, and for one that is there already. */
enum rc executor_fetch_state(struct executor *x, int unit, enum state_kind kind, struct err *e);
enum rc executor_store_state(struct executor *x, int unit, enum state_kind kind, struct err *e);

/* Elements of a unit, of the rank's part. Ranges that are written begin where a tensor, the part or
 * another range does, and end likewise; executor_range_end says where one that begins at first and
 * has up to STATE_RANGE elements may. */
struct state_range {
    int64_t first, count;
};
enum { STATE_RANGE = 1 << 18 };
int64_t executor_range_end(int64_t first, int64_t end);
/* Copy a range out in fp32, whatever form it is kept in. But for states on disk from any thread,
 * also during a step, until the unit is updated. */
enum rc executor_read_state(struct executor *x, int unit, enum state_kind kind,
    struct state_range r, float *out, struct err *e);
/* A state is about to be written, all of it: fetched where it is on disk, to be stored after. */
enum rc executor_begin_state(struct executor *x, int unit, enum state_kind kind, struct err *e);
/* And in; one on disk is fetched before and stored after. */
void executor_write_state(
    struct executor *x, int unit, enum state_kind kind, struct state_range r, const float *in);
/* After the master values changed: bring parameters up to date on this rank and its group. An
 * update that was still to be made is given up. */
enum rc executor_publish(struct executor *x, struct err *e);

/* The disk that states are kept on, and how fast it was when the executor was opened; NULL: none.
 */
struct disk;
struct disk *executor_disk(const struct executor *x, double *bytes_per_s);

/* Bytes of this process outside the slabs and outside files, with what it shares for collectives
 * beside its slab: what the plan calls external. -1 unknown. */
int64_t executor_external_bytes(const struct executor *x);

/* Address of a buffer in its slab. Valid until executor_close. */
void *executor_buffer(struct executor *x, int32_t buffer);
const struct schedule *executor_schedule(const struct executor *x);
/* Of the compute lane. */
int executor_threads(const struct executor *x);
struct comm *executor_comm(const struct executor *x);
/* Does this rank write its part to checkpoints? Not when another with the same part does. */
bool executor_writes_part(const struct executor *x);

#endif
