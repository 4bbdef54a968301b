/* A thread that answers the newest request and forgets the older ones. */
#ifndef TUI_WORKER_H
#define TUI_WORKER_H

#include <stdatomic.h>
#include <stdbool.h>

struct mailbox;
struct worker;

/* What a worker does; called in its thread. Works on request and posts results into mb. Should
 * return early once *is_cancelled becomes true: a newer request waits, or the program ends. The
 * request stays the worker's. */
typedef void worker_fn(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context);

/* context: keeps, until worker_free. release_request: NULL means free(). */
struct worker *worker_new(
    worker_fn *work, void (*release_request)(void *), struct mailbox *mb, void *context);
/* UI thread, never blocks. Takes request; cancels the one in work and drops the one waiting. */
void worker_request(struct worker *w, void *request);
/* Cancel and drop, with nothing new. */
void worker_cancel(struct worker *w);
/* Cancel and wait at most wait_s. False when the thread hangs in its source: it is left behind,
 * together with what it uses, and mb must not be freed. NULL is allowed. */
bool worker_free(struct worker *w, double wait_s);

/* Start a thread that takes no signals, so that curses' own handlers stay with the UI thread. */
bool worker_thread(void *(*run)(void *), void *argument, unsigned long *thread);

#endif
