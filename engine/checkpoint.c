/* One rank's checkpoints: the thread that writes beside training, and what is asked of it. */
#include "engine/checkpoint.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/checkpoint_files.h"
#include "engine/checkpoint_image.h"
#include "engine/comm.h"
#include "engine/durable_file.h"
#include "engine/file_transfer.h"
#include "planner/checkpoint_room.h"

/* Ranks wait for each other's disks: one that is slower than this counts as stuck. */
static const double slowest_disk_bytes_per_s = 20e6;
/* And how long a thread may stay in the kernel when the run ends. */
enum { JOIN_PATIENCE_S = 20 };

_Static_assert((int)CHECKPOINT_TRANSFER_BYTES == (int)TRANSFER_CHUNK, "as is planned");

enum writer_state { WRITER_IDLE, WRITER_BUSY, WRITER_DONE };

struct checkpoint {
    struct checkpoint_options o;
    struct checkpoint_job job;
    double patience_s; /* a save takes no longer */
    bool has_thread;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    enum writer_state state;
    bool is_closing;
    enum rc rc; /* of the save that is done */
    struct err err;
    double start_s, end_s;
    double stall_s; /* the executor's thread waited, without its updates */
};

/* --- the writer --- */

static void run_job(struct checkpoint *c)
{
    struct err e = ERR_INIT;
    enum rc rc = checkpoint_write(&c->job, &e);
    pthread_mutex_lock(&c->mutex);
    c->rc = rc;
    c->err = e;
    c->end_s = c->job.durable_s;
    c->state = WRITER_DONE;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

static void *writer_main(void *arg)
{
    struct checkpoint *c = arg;
    for (;;) {
        pthread_mutex_lock(&c->mutex);
        while (c->state != WRITER_BUSY && !c->is_closing)
            pthread_cond_wait(&c->changed, &c->mutex);
        bool is_over = c->state != WRITER_BUSY;
        pthread_mutex_unlock(&c->mutex);
        if (is_over)
            return NULL;
        run_job(c);
    }
}

/* --- life cycle --- */

/* Bytes that the busiest host reads or writes for one checkpoint. */
static double host_bytes(const struct checkpoint *c)
{
    const struct schedule *s = executor_schedule(c->job.x);
    double elems = 0, most = 0;
    for (int u = 0; u < s->n_units; u++)
        elems += (double)s->unit[u].elems;
    for (int h = 0; h < checkpoint_hosts(c->job.x, &c->o); h++) {
        double ranks = checkpoint_ranks_on(c->job.x, &c->o, h);
        most = ranks > most ? ranks : most;
    }
    double share = most < (double)s->parts ? most / (double)s->parts : 1;
    return elems * (double)strategy_saved_bytes(&s->strategy) * share * (c->o.has_partner ? 2 : 1);
}

/* Condition variables measure by the wall clock, which may be set, unless told otherwise. */
static void init_waiting(struct checkpoint *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&c->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&c->mutex, NULL);
}

static enum rc start_writer(struct checkpoint *c, struct err *e)
{
    c->has_thread = pthread_create(&c->thread, NULL, writer_main, c) == 0;
    if (!c->has_thread)
        return err_set(e, RC_LIMIT, "cannot start the thread that writes checkpoints");
    if (c->job.image)
        executor_on_update(c->job.x, image_before_update, c->job.image);
    return RC_OK;
}

enum rc checkpoint_open(
    struct checkpoint **out, struct executor *x, const struct checkpoint_options *o, struct err *e)
{
    struct checkpoint *c = base_calloc(1, sizeof(*c));
    double ignored;
    c->o = *o;
    c->o.is_async = o->is_async && !executor_disk(x, &ignored);
    c->job.x = x;
    c->job.o = &c->o;
    init_waiting(c);
    c->patience_s = 10 * o->collective_s + host_bytes(c) / slowest_disk_bytes_per_s;
    comm_set_deadline(executor_comm(x), CHANNEL_CHECKPOINT, c->patience_s);
    c->job.buffer = aligned_alloc(DURABLE_ALIGN, TRANSFER_CHUNK);
    enum rc rc = c->job.buffer ? RC_OK : err_set(e, RC_LIMIT, "no memory for checkpoints");
    if (!rc && executor_writes_part(x))
        rc = image_new(&c->job.image, x, c->o.is_async, e);
    if (!rc && c->o.is_async)
        rc = start_writer(c, e);
    *out = rc ? NULL : c;
    if (rc)
        checkpoint_close(c);
    return rc;
}

static bool join_writer(struct checkpoint *c)
{
    if (!c->has_thread)
        return true;
    atomic_store(&c->job.is_given_up, true);
    pthread_mutex_lock(&c->mutex);
    c->is_closing = true;
    if (c->state == WRITER_BUSY) /* it may be waiting for peers that wait for nobody any more */
        comm_abort(executor_comm(c->job.x));
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += JOIN_PATIENCE_S;
    return pthread_timedjoin_np(c->thread, NULL, &until) == 0;
}

bool checkpoint_close(struct checkpoint *c)
{
    if (!c)
        return true;
    if (!join_writer(c))
        return false;
    executor_on_update(c->job.x, NULL, NULL);
    image_free(c->job.image);
    free(c->job.buffer);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c);
    return true;
}

int64_t checkpoint_memory_bytes(const struct checkpoint *c)
{
    return TRANSFER_CHUNK + (c->job.image ? image_memory_bytes(c->job.image) : 0);
}

/* --- saving --- */

bool checkpoint_is_saving(struct checkpoint *c)
{
    pthread_mutex_lock(&c->mutex);
    bool is_busy = c->state == WRITER_BUSY;
    pthread_mutex_unlock(&c->mutex);
    return is_busy;
}

/* Until a save that runs has ended. What may take longer than the disk is given is stuck. */
static enum rc wait_for_writer(struct checkpoint *c, struct err *e)
{
    double start = clock_now_s();
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)c->patience_s + 1;
    int status = 0;
    pthread_mutex_lock(&c->mutex);
    while (c->state == WRITER_BUSY && status == 0)
        status = pthread_cond_timedwait(&c->changed, &c->mutex, &until);
    bool is_busy = c->state == WRITER_BUSY;
    c->stall_s += clock_now_s() - start;
    pthread_mutex_unlock(&c->mutex);
    if (!is_busy)
        return RC_OK;
    return err_set(e, RC_IO, "checkpoint of step %lld: the disk is stuck, nothing for %.0f s",
        (long long)c->job.info.step, c->patience_s);
}

enum rc checkpoint_start(struct checkpoint *c, const struct checkpoint_info *info, struct err *e)
{
    double start = clock_now_s();
    enum rc rc = wait_for_writer(c, e);
    if (!rc)
        rc = executor_flush(c->job.x, e);
    if (rc)
        return rc;
    if (c->state == WRITER_DONE && c->rc) {
        *e = c->err;
        return c->rc;
    }
    c->job.info = *info;
    c->start_s = start;
    if (c->job.image)
        image_begin(c->job.image);
    pthread_mutex_lock(&c->mutex);
    c->stall_s = clock_now_s() - start;
    c->state = WRITER_BUSY;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    if (!c->has_thread) {
        run_job(c);
        c->stall_s = clock_now_s() - start;
    }
    return RC_OK;
}

enum rc checkpoint_end(
    struct checkpoint *c, bool is_waiting, struct checkpoint_report *out, struct err *e)
{
    *out = (struct checkpoint_report){.step = -1};
    enum rc rc = is_waiting ? wait_for_writer(c, e) : RC_OK;
    if (rc)
        return rc;
    pthread_mutex_lock(&c->mutex);
    bool is_done = c->state == WRITER_DONE;
    rc = is_done ? c->rc : RC_OK;
    if (rc)
        *e = c->err;
    if (is_done && !rc) {
        double seconds = c->end_s - c->start_s, stall = c->stall_s;
        if (c->job.image)
            stall += image_waited_s(c->job.image);
        /* waking up takes a moment that is no part of the save */
        *out = (struct checkpoint_report){
            c->job.info.step, c->job.bytes, seconds, stall < seconds ? stall : seconds};
        c->state = WRITER_IDLE;
    }
    pthread_mutex_unlock(&c->mutex);
    return rc;
}

enum rc checkpoint_blame(struct checkpoint *c, struct err *e)
{
    pthread_mutex_lock(&c->mutex);
    bool is_cause = c->state == WRITER_DONE && c->rc && c->rc != RC_INTERRUPTED;
    if (is_cause && e->code == RC_INTERRUPTED)
        *e = c->err;
    pthread_mutex_unlock(&c->mutex);
    return e->code;
}

enum rc checkpoint_load(struct checkpoint *c, int64_t step, struct checkpoint_info *info,
    struct err *passed_over, struct err *e)
{
    enum rc rc = wait_for_writer(c, e);
    return rc ? rc : checkpoint_read(&c->job, step, info, passed_over, e);
}
