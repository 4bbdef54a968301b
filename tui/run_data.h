/* Runs as they lie in the user's folder of runs, read in a worker: the list of all, and one that is
 * followed while the launcher's client writes it. Snapshots are immutable once posted. */
#ifndef TUI_RUN_DATA_H
#define TUI_RUN_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/money.h"
#include "run/names.h"
#include "run/record.h"
#include "tui/worker.h"

struct run_info;

enum { RUN_MODEL = 64, RUN_SENTENCE = 640 };

/* One line of the list, and the head of the run view. */
struct run_row {
    char id[RUN_ID_TEXT];
    enum run_state state;
    char model[RUN_MODEL];
    int64_t attempt, hosts, ranks;
    int64_t step, steps;                   /* step: newest metrics record, 0 before the first */
    double loss;                           /* of it, NaN: unknown */
    double created_s, launched_s, ended_s; /* wall clock, 0: not yet */
    struct run_money money;
    double predicted_step_s, predicted_tokens_per_s, predicted_bytes; /* NaN: unknown */
    int64_t checkpoint_step; /* newest good one, -1: none known */
    double validation_loss;  /* of the last validation */
    int64_t validation_step; /* 0: none yet */
    bool survives_host_loss;
    char sentence[RUN_SENTENCE]; /* why it failed, was cancelled or cannot be read; "" */
};

struct run_rows {
    struct run_row *row;
    size_t n;
    char error[RUN_SENTENCE];
};
void run_rows_free(void *rows);

/* What followed from one look at the files of a run. */
struct run_news {
    uint64_t serial;
    bool is_first; /* of this following */
    bool has_row;
    struct run_row row;
    bool starts_over; /* metrics holds all there is, not what was added */
    struct record_metrics *metrics;
    size_t n_metrics;
    char *log; /* lines that were added, "" when none */
};
void run_news_free(void *news);

/* A worker_fn: reads all runs once and posts struct run_rows as a message of kind. */
struct run_list_request {
    int kind;
};
void run_list_read(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context);

/* A worker_fn: follows one run until it is cancelled, looking once a second, and posts struct
 * run_news of kind when there are any. */
struct run_follow_request {
    int kind;
    uint64_t serial;
    char id[RUN_ID_TEXT];
};
void run_follow(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context);

/* Dollars a run has cost at a moment. NaN: unknown. */
double run_cost_usd(const struct run_row *r, double now_s);
/* Of all its nodes. NaN: unknown. */
double run_usd_per_hour(const struct run_row *r);

#endif
