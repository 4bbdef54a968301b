/* What a run writes down while it goes: one metrics record per step (metrics.jsonl), one state
 * record per node (state.json, schema "state/1"). NaN and -1 mean unknown and print as null. */
#ifndef RUN_RECORD_H
#define RUN_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/schedule.h"

struct json;

/* Collectives that are told apart, by the words of their operations. */
enum { COLLECTIVE_TIMES = 5 };
struct collective_time {
    double seconds, exposed_s; /* of them, while nothing was computed */
};
/* Index of one of these kinds; -1 of others. */
int record_collective(enum op_kind kind);

/* One line of metrics.jsonl:
 * {"step","wall_s","loss","lr","grad_norm","step_seconds","busy_seconds":{LANE:s},
 *  "exposed_seconds":{LANE:s},"collectives":{KIND:{"seconds","exposed_seconds"}},
 *  "overlap","optimizer_seconds","tokens","tokens_per_second","mfu","memory_bytes",
 *  "is_skipped","is_spike"} */
struct record_metrics {
    int64_t step;     /* 1 for the first optimizer step */
    double wall_s;    /* seconds since 1970 when the step ended */
    double loss;      /* mean over the targets of the step, nats; NaN where all were masked */
    double lr;        /* learning rate used */
    double grad_norm; /* global, before clipping */
    double step_seconds;
    double busy_s[LANE_COUNT];    /* the lane had an operation running */
    double exposed_s[LANE_COUNT]; /* of it, while the compute lane had none */
    struct collective_time collective[COLLECTIVE_TIMES]; /* NaN: there was none of the kind */
    double overlap;           /* share of the gathers and reductions that something hid */
    double optimizer_s;       /* norms and updates, also beside other work */
    int64_t tokens;           /* trained so far, all ranks */
    double tokens_per_second; /* all ranks */
    double mfu;               /* 0..1, see the plan's flops_definition */
    bool is_skipped;          /* no update: the gradient was not finite, a spike, or no target */
    bool is_spike;            /* loss or norm were finite and far above those before */
    int64_t memory_bytes;     /* of rank 0: slabs and what lies outside them (external) */
};

enum { RECORD_METRICS_TEXT = 2048 };

void record_metrics_init(struct record_metrics *m);
/* The record as one line with its '\n'; a rank's message to its agent with {"event":"step"} in
 * front of it. Returns its bytes. Allocates nothing. */
size_t record_metrics_line(
    char text[RECORD_METRICS_TEXT], const struct record_metrics *m, bool is_event);
/* The same as a value; the caller frees it. */
struct json *record_metrics_to_json(const struct record_metrics *m);
/* step is required; everything else may be missing. Hostile input gives an error, never a trap. */
enum rc record_metrics_from_json(struct record_metrics *out, const struct json *v, struct err *e);

/* Where a run stands; the words are part of the `status` contract. */
#define RUN_STATE_MAP(X)                                                                           \
    X(RUN_PLANNED, "planned")                                                                      \
    X(RUN_STAGING, "staging")                                                                      \
    X(RUN_RUNNING, "running")                                                                      \
    X(RUN_FINISHED, "finished")                                                                    \
    X(RUN_FAILED, "failed")                                                                        \
    X(RUN_CANCELLED, "cancelled")                                                                  \
    X(RUN_UNKNOWN, "unknown")

enum run_state {
#define X(name, word) name,
    RUN_STATE_MAP(X)
#undef X
};

const char *run_state_name(enum run_state s);
/* RUN_UNKNOWN for any other word. */
enum run_state run_state_parse(const char *word);
/* Finished, failed or cancelled: written once, never left. */
bool run_state_is_final(enum run_state s);

/* Why a run failed: the first cause, as opposed to what followed from it. */
struct record_failure {
    int64_t rank; /* -1: no rank (a host, the coordinator) */
    char host[128];
    char code[32];       /* "exited", "killed", "timeout", "host-lost", "data", ... */
    char message[512];   /* one sentence, safe to show */
    bool is_consequence; /* of another rank's failure */
};

struct json *record_failure_to_json(const struct record_failure *f);
/* Missing members become -1, "" and false; v may be NULL. Foreign text is made safe. */
void record_failure_from_json(struct record_failure *out, const struct json *v);

#endif
