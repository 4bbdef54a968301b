/* The search for plans in a worker: as `berth plan` does it, on the offers the screen shows. */
#ifndef TUI_PLAN_SEARCH_H
#define TUI_PLAN_SEARCH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tui/worker.h"

struct json;
struct offers;
struct plan_list;

/* --- offers that a search may still be reading when newer ones arrive --- */

struct shared_offers;
/* Takes list. */
struct shared_offers *shared_offers_new(struct offers *list);
struct shared_offers *shared_offers_ref(struct shared_offers *s);
/* NULL is allowed. */
void shared_offers_unref(struct shared_offers *s);
const struct offers *shared_offers_list(const struct shared_offers *s);

/* --- searching --- */

enum { PLAN_SEARCH_TOP = 20, PLAN_SEARCH_ERROR = 400 };

struct plan_request {
    int kind;
    uint64_t serial;
    struct json *job; /* object of a job file */
    struct shared_offers *offers;
    char *calibration; /* file with constants over the built-in ones, or NULL */
};
void plan_request_free(void *request);

/* Plans with all that is needed to write one of them to a file. Shared, immutable. */
struct plan_found;
struct plan_found *plan_found_ref(struct plan_found *f);
void plan_found_unref(struct plan_found *f);
/* Borrowed, valid as long as f. */
const struct plan_list *plan_found_list(const struct plan_found *f);

struct plan_answer {
    uint64_t serial;
    struct plan_found *found; /* NULL when error says why; also without a plan that fits */
    char error[PLAN_SEARCH_ERROR];
    double seconds;
};
void plan_answer_free(void *answer);

/* A worker_fn over plan_request; posts struct plan_answer, nothing when it was cancelled. */
void plan_search(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context);

/* --- writing --- */

struct plan_write {
    int kind;
    struct plan_found *found;
    size_t index; /* of the plan */
    char *path;
};
void plan_write_free(void *request);

struct plan_written {
    size_t index;
    char path[256];
    char error[PLAN_SEARCH_ERROR]; /* "" when it is there */
};

/* A worker_fn over plan_write; posts struct plan_written (free()). */
void plan_write_run(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context);

#endif
