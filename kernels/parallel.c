#include "kernels/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/alloc.h"

/* Waiting spins this often before it sleeps: some tens of microseconds, longer than the gap between
 * two kernels of a step, shorter than what a neighbour on the same core would miss. */
enum { SPINS = 1000 };
/* What kernels keep on the stack, and plenty. */
enum { STACK_BYTES = 4 << 20 };

struct worker {
    struct pool *pool;
    pthread_t thread;
    int index;
};

/* The fields of a job are written before `generation` is raised and read after it was seen raised;
 * `left` counts the workers that have not finished it. */
struct pool {
    int threads;
    pool_fn *fn;
    void *arg;
    int64_t items;
    bool is_ending;
    atomic_uint generation;
    atomic_int left;
    int sleepers; /* under lock */
    pthread_mutex_t lock;
    pthread_cond_t start, done;
    struct worker worker[]; /* threads - 1 */
};

static void relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("yield");
#endif
}

static void run_share(struct pool *p, int index)
{
    int64_t first = p->items * index / p->threads;
    int64_t last = p->items * (index + 1) / p->threads;
    if (last > first)
        p->fn(p->arg, first, last);
}

/* Wait until the generation is no longer `seen`; returns it. */
static unsigned await_job(struct pool *p, unsigned seen)
{
    for (int i = 0; i < SPINS; i++) {
        unsigned now = atomic_load_explicit(&p->generation, memory_order_acquire);
        if (now != seen)
            return now;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    p->sleepers++;
    while (atomic_load(&p->generation) == seen)
        pthread_cond_wait(&p->start, &p->lock);
    p->sleepers--;
    pthread_mutex_unlock(&p->lock);
    return atomic_load(&p->generation);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    unsigned seen = 0;
    for (;;) {
        seen = await_job(p, seen);
        if (p->is_ending)
            return NULL;
        run_share(p, w->index);
        if (atomic_fetch_sub(&p->left, 1) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
}

static void publish(struct pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->generation, 1);
    if (p->sleepers)
        pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->lock);
}

static void await_done(struct pool *p)
{
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(&p->left, memory_order_acquire) == 0)
            return;
        relax();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->left) > 0)
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* End the first `started` workers and release everything. */
static void dismiss(struct pool *p, int started)
{
    p->is_ending = true;
    publish(p);
    for (int i = 0; i < started; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->start);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

static int start(struct worker *w)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int failed = pthread_create(&w->thread, &attr, work, w);
    pthread_attr_destroy(&attr);
    return failed;
}

struct pool *pool_new(int threads)
{
    if (threads < 1)
        threads = 1;
    if (threads > POOL_MAX_THREADS)
        threads = POOL_MAX_THREADS;
    struct pool *p = base_calloc(1, sizeof(*p) + (size_t)(threads - 1) * sizeof(p->worker[0]));
    p->threads = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 0; i < threads - 1; i++) {
        struct worker *w = &p->worker[i];
        w->pool = p;
        w->index = i + 1;
        if (start(w)) {
            dismiss(p, i);
            return NULL;
        }
    }
    return p;
}

void pool_free(struct pool *p)
{
    if (p)
        dismiss(p, p->threads - 1);
}

int pool_threads(const struct pool *p)
{
    return p ? p->threads : 1;
}

void pool_run(struct pool *p, int64_t n, pool_fn *fn, void *arg)
{
    if (n <= 0)
        return;
    if (!p || p->threads == 1 || n == 1) {
        fn(arg, 0, n);
        return;
    }
    p->fn = fn;
    p->arg = arg;
    p->items = n;
    atomic_store(&p->left, p->threads - 1);
    publish(p);
    run_share(p, 0);
    await_done(p);
}
