/* The CPU as a device: one thread per lane that has work, one slab per memory. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/comm.h"
#include "engine/device.h"
#include "engine/ops_cpu.h"
#include "engine/poison.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

struct slab {
    void *base;
    size_t bytes;
    bool is_shared; /* the communicator's, who unmaps it */
};

struct lane_thread {
    struct cpu *cpu;
    enum lane lane;
    pthread_t thread;
    bool is_started;
    struct pool *pool;
    struct task *queue;   /* of the section being run; written before n_submitted grows */
    struct task_log *log; /* of the tasks run so far */
    int32_t cap;
    atomic_int n_submitted, n_done;
    atomic_int last_done; /* list index of the newest finished task, -1 */
};

struct cpu {
    const struct op_context *context;
    struct device_options o;
    struct slab slab[MEMORY_COUNT];
    bool is_poisoned; /* the slabs, apart from the arguments of the running task */
    struct lane_thread lane[LANE_COUNT];
    pthread_mutex_t mutex; /* guards err, and sleeping on changed */
    pthread_cond_t changed;
    atomic_int sleepers;
    atomic_bool is_failed, is_closing;
    atomic_int n_finished; /* operations since the last sync */
    struct err err;
};

static struct cpu *cpu_of(struct device *d)
{
    return (struct cpu *)(void *)d;
}

/* --- waiting --- */

typedef bool condition_fn(const void *arg);

static void announce(struct cpu *c)
{
    if (atomic_load(&c->sleepers) == 0)
        return;
    pthread_mutex_lock(&c->mutex);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
}

/* Spin a little, then sleep until announce; the condition is checked under the mutex last. */
static void wait_until(struct cpu *c, condition_fn *is_true, const void *arg)
{
    for (int i = 0; i < 200; i++)
        if (is_true(arg))
            return;
    pthread_mutex_lock(&c->mutex);
    atomic_fetch_add(&c->sleepers, 1);
    while (!is_true(arg))
        pthread_cond_wait(&c->changed, &c->mutex);
    atomic_fetch_sub(&c->sleepers, 1);
    pthread_mutex_unlock(&c->mutex);
}

struct dependency {
    const struct cpu *c;
    const struct op *op;
};

static bool dependencies_done(const void *arg)
{
    const struct dependency *d = arg;
    if (atomic_load(&d->c->is_failed))
        return true;
    for (int l = 0; l < LANE_COUNT; l++)
        if (d->op->waits[l] > atomic_load(&d->c->lane[l].last_done))
            return false;
    return true;
}

static bool has_work_or_closes(const void *arg)
{
    const struct lane_thread *t = arg;
    return atomic_load(&t->n_submitted) > atomic_load(&t->n_done) ||
           atomic_load(&t->cpu->is_closing);
}

static bool lane_is_idle(const void *arg)
{
    const struct lane_thread *t = arg;
    return atomic_load(&t->n_done) == atomic_load(&t->n_submitted);
}

/* --- a lane --- */

static void fail(struct cpu *c, const struct err *e)
{
    pthread_mutex_lock(&c->mutex);
    if (!atomic_load(&c->is_failed)) {
        c->err = *e;
        atomic_store(&c->is_failed, true);
    }
    pthread_mutex_unlock(&c->mutex);
    /* collectives on other lanes would wait for peers that will never come */
    if (c->context->comm)
        comm_abort(c->context->comm);
    announce(c);
}

static void run_task(struct lane_thread *t, const struct task *task, struct task_log *log)
{
    struct cpu *c = t->cpu;
    struct dependency d = {c, task->op};
    wait_until(c, dependencies_done, &d);
    if (!atomic_load(&c->is_failed)) {
        struct err e = ERR_INIT;
        log->start_s = clock_now_s();
        enum rc rc =
            task->is_idle ? RC_OK : ops_cpu_run(c->context, task->op, task->arg, t->pool, &e);
        log->end_s = clock_now_s();
        log->index = task->index;
        log->kind = task->op->kind;
        log->lane = (uint8_t)t->lane;
        log->order = atomic_fetch_add(&c->n_finished, 1);
        if (rc)
            fail(c, &e);
    }
    atomic_store(&t->last_done, task->index);
}

static void *lane_main(void *arg)
{
    struct lane_thread *t = arg;
    for (;;) {
        wait_until(t->cpu, has_work_or_closes, t);
        int i = atomic_load(&t->n_done);
        if (i >= atomic_load(&t->n_submitted)) {
            /* closing, or the counters were seen in the middle of a reset */
            if (atomic_load(&t->cpu->is_closing))
                return NULL;
            continue;
        }
        run_task(t, &t->queue[i], &t->log[i]);
        atomic_fetch_add(&t->n_done, 1);
        announce(t->cpu);
    }
}

static enum rc start_lane(struct cpu *c, enum lane lane, struct err *e)
{
    struct lane_thread *t = &c->lane[lane];
    bool is_wide = lane == LANE_COMPUTE || lane == LANE_HOST;
    t->cpu = c;
    t->lane = lane;
    t->pool = is_wide ? pool_new(c->o.threads) : NULL;
    if (is_wide && !t->pool)
        return err_set(e, RC_LIMIT, "cannot start %d threads; see ulimit -u", c->o.threads);
    atomic_store(&t->last_done, -1);
    if (pthread_create(&t->thread, NULL, lane_main, t) != 0)
        return err_set(
            e, RC_LIMIT, "cannot start the thread of lane '%s'; see ulimit -u", lane_name(lane));
    t->is_started = true;
    return RC_OK;
}

/* Tasks a lane can hold: the largest section's share of it. */
static void size_lanes(struct cpu *c)
{
    const struct schedule *s = c->context->schedule;
    for (int k = 0; k < s->n_sections; k++) {
        int32_t n[LANE_COUNT] = {0};
        for (int32_t i = 0; i < s->section[k].n_ops; i++)
            n[s->ops[s->section[k].first_op + i].lane]++;
        for (int l = 0; l < LANE_COUNT; l++)
            c->lane[l].cap = n[l] > c->lane[l].cap ? n[l] : c->lane[l].cap;
    }
    for (int l = 0; l < LANE_COUNT; l++) {
        c->lane[l].queue = base_calloc((size_t)c->lane[l].cap, sizeof(struct task));
        c->lane[l].log = base_calloc((size_t)c->lane[l].cap, sizeof(struct task_log));
    }
}

/* --- the table --- */

static void cpu_close(struct device *d)
{
    struct cpu *c = cpu_of(d);
    if (!c)
        return;
    atomic_store(&c->is_closing, true);
    pthread_mutex_lock(&c->mutex);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    for (int l = 0; l < LANE_COUNT; l++) {
        struct lane_thread *t = &c->lane[l];
        if (t->is_started)
            pthread_join(t->thread, NULL);
        pool_free(t->pool);
        free(t->queue);
        free(t->log);
    }
    for (int m = 0; m < MEMORY_COUNT; m++)
        if (c->slab[m].base && !c->slab[m].is_shared)
            munmap(c->slab[m].base, c->slab[m].bytes);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c);
}

static enum rc cpu_open(struct device **out, const struct device_options *o,
    const struct op_context *context, struct err *e)
{
    struct cpu *c = base_calloc(1, sizeof(*c));
    c->context = context;
    c->o = *o;
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    size_lanes(c);
    enum rc rc = RC_OK;
    for (int l = 0; l < LANE_COUNT && !rc; l++)
        if (c->lane[l].cap > 0)
            rc = start_lane(c, (enum lane)l, e);
    if (rc) {
        cpu_close((struct device *)(void *)c);
        return rc;
    }
    *out = (struct device *)(void *)c;
    return RC_OK;
}

static enum rc cpu_slab(
    struct device *d, enum memory memory, int64_t bytes, void **base, struct err *e)
{
    struct cpu *c = cpu_of(d);
    if (memory == MEMORY_DEVICE && c->o.slab_cap_bytes > 0 && bytes > c->o.slab_cap_bytes)
        return err_set(e, RC_LIMIT,
            "the plan needs %lld bytes of device memory and %lld are allowed: %lld too few",
            (long long)bytes, (long long)c->o.slab_cap_bytes,
            (long long)(bytes - c->o.slab_cap_bytes));
    enum rc rc = RC_OK;
    *base = NULL;
    /* collectives work on device memory */
    if (memory == MEMORY_DEVICE && c->context->comm)
        rc = comm_map_slab(c->context->comm, (size_t)bytes, base, e);
    if (rc || *base || bytes == 0) {
        c->slab[memory] = (struct slab){*base, (size_t)bytes, true};
        return rc;
    }
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return err_sys(e, RC_LIMIT, "cannot map %lld bytes of memory", (long long)bytes);
    /* 4 KiB pages cost 13 us each to touch first; huge ones 50 times less for the same bytes */
    madvise(p, (size_t)bytes, MADV_HUGEPAGE);
    c->slab[memory] = (struct slab){p, (size_t)bytes, false};
    *base = p;
    return RC_OK;
}

static void poison_slabs(struct cpu *c, bool is_on)
{
    for (int m = 0; m < MEMORY_COUNT; m++) {
        if (is_on)
            POISON(c->slab[m].base, c->slab[m].bytes);
        else
            UNPOISON(c->slab[m].base, c->slab[m].bytes);
    }
    c->is_poisoned = is_on;
}

/* Addresses on disk are touched by nobody: they are never poisoned. */
static void open_arguments(const struct cpu *c, const struct task *task, bool is_open)
{
    const struct buffer *buffers = c->context->schedule->buffers;
    for (int i = 0; i < task->op->n_args; i++) {
        const struct ref *r = &task->op->arg[i];
        if (buffers[r->buffer].memory == MEMORY_DISK)
            continue;
        if (is_open)
            UNPOISON(task->arg[i], (size_t)r->bytes);
        else
            POISON(task->arg[i], (size_t)r->bytes);
    }
}

/* List order is a valid serial order, so the task can run here and now, alone with its arguments.
 */
static void run_poisoned(struct lane_thread *t, const struct task *task, struct task_log *log)
{
    if (!t->cpu->is_poisoned)
        poison_slabs(t->cpu, true);
    open_arguments(t->cpu, task, true);
    run_task(t, task, log);
    open_arguments(t->cpu, task, false);
}

static void cpu_submit(struct device *d, const struct task *task)
{
    struct lane_thread *t = &cpu_of(d)->lane[task->op->lane];
    int i = atomic_load(&t->n_submitted);
    t->queue[i] = *task;
    if (t->cpu->o.is_poisoning) {
        run_poisoned(t, task, &t->log[i]);
        /* done first: the lane's own thread must never see work */
        atomic_fetch_add(&t->n_done, 1);
        atomic_fetch_add(&t->n_submitted, 1);
        return;
    }
    atomic_fetch_add(&t->n_submitted, 1);
    announce(t->cpu);
}

static enum rc cpu_sync(struct device *d, struct task_log *log, int32_t *n_log, struct err *e)
{
    struct cpu *c = cpu_of(d);
    poison_slabs(c, false);
    *n_log = 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        struct lane_thread *t = &c->lane[l];
        if (!t->is_started)
            continue;
        wait_until(c, lane_is_idle, t);
        int n = atomic_load(&t->n_done);
        if (n)
            memcpy(log + *n_log, t->log, (size_t)n * sizeof(*log));
        *n_log += n;
    }
    for (int l = 0; l < LANE_COUNT; l++) {
        atomic_store(&c->lane[l].last_done, -1);
        atomic_store(&c->lane[l].n_submitted, 0);
        atomic_store(&c->lane[l].n_done, 0);
    }
    atomic_store(&c->n_finished, 0);
    if (!atomic_load(&c->is_failed))
        return RC_OK;
    if (e)
        *e = c->err;
    return c->err.code;
}

const struct device_ops device_cpu = {"cpu", cpu_open, cpu_slab, cpu_submit, cpu_sync, cpu_close};
