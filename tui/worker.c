#include "tui/worker.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/alloc.h"

struct worker {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    worker_fn *work;
    void (*release_request)(void *);
    struct mailbox *mb;
    void *context;
    void *waiting; /* newest request, not begun */
    bool is_ending;
    atomic_bool is_cancelled;
};

static void release(const struct worker *w, void *request)
{
    if (!request)
        return;
    if (w->release_request)
        w->release_request(request);
    else
        free(request);
}

static void *serve(void *argument)
{
    struct worker *w = argument;
    for (;;) {
        pthread_mutex_lock(&w->lock);
        while (!w->waiting && !w->is_ending)
            pthread_cond_wait(&w->wake, &w->lock);
        void *request = w->waiting;
        bool is_ending = w->is_ending;
        w->waiting = NULL;
        if (!is_ending)
            atomic_store(&w->is_cancelled, false);
        pthread_mutex_unlock(&w->lock);
        if (!is_ending)
            w->work(request, &w->is_cancelled, w->mb, w->context);
        release(w, request);
        if (is_ending)
            return NULL;
    }
}

bool worker_thread(void *(*run)(void *), void *argument, unsigned long *thread)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_t made;
    bool is_made = pthread_create(&made, NULL, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (is_made)
        *thread = made;
    return is_made;
}

struct worker *worker_new(
    worker_fn *work, void (*release_request)(void *), struct mailbox *mb, void *context)
{
    struct worker *w = base_calloc(1, sizeof(*w));
    w->work = work;
    w->release_request = release_request;
    w->mb = mb;
    w->context = context;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    if (!worker_thread(serve, w, &w->thread)) {
        free(w);
        return NULL;
    }
    return w;
}

/* Replace what waits; is_ending ends the thread afterwards. */
static void change(struct worker *w, void *request, bool is_ending)
{
    pthread_mutex_lock(&w->lock);
    void *old = w->waiting;
    w->waiting = request;
    w->is_ending = is_ending;
    atomic_store(&w->is_cancelled, true);
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    release(w, old);
}

void worker_request(struct worker *w, void *request)
{
    change(w, request, false);
}

void worker_cancel(struct worker *w)
{
    change(w, NULL, false);
}

bool worker_free(struct worker *w, double wait_s)
{
    if (!w)
        return true;
    change(w, NULL, true);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    long ns = until.tv_nsec + (long)(wait_s * 1e9);
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    if (pthread_timedjoin_np(w->thread, NULL, &until) != 0) {
        pthread_detach(w->thread);
        return false;
    }
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return true;
}
