/* plan/1: a decision on paper. What is to be run (job, strategy, hash of the schedule), where (the
 * offer with its time), and what was predicted, with every constant and its source. The engine and
 * the launcher read it back; reading is strict, since the file may come from anywhere. */
#ifndef PLANNER_PLAN_FILE_H
#define PLANNER_PLAN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "inventory/offer.h"
#include "planner/job.h"
#include "planner/launchable.h"
#include "planner/strategy.h"

struct json;
struct plan;
struct rates;

enum { PLAN_FILE_MAX_BYTES = 16 << 20 };

/* What the rest of the program takes from a plan. Release with plan_file_release. */
struct plan_file {
    char program[64]; /* version that wrote it */
    struct job job;   /* finished */
    struct offer offer;
    int64_t nodes;
    struct strategy strategy;
    int64_t steps; /* optimizer steps of the whole job */
    struct hash128 schedule_hash;
    bool is_launchable; /* by this build, whatever the file says */
    char not_launchable[LAUNCHABLE_TEXT];
    /* predictions, per rank; costs are 0 for free and -1 for unknown */
    int64_t peak_bytes, host_ram_bytes;
    int64_t host_slab_bytes;
    int64_t disk_bytes, disk_written_bytes; /* states of a node, and what a step writes of them */
    int64_t external_bytes; /* outside the slabs, beside peak_bytes; 0: the file does not say */
    int64_t snapshot_bytes; /* of host_ram_bytes, of a node: what checkpoints are written from */
    double step_s, step_low_s, step_high_s, tokens_per_s_per_rank, mfu;
    double run_s;
    int64_t cost_micro_usd, cost_high_micro_usd;
    struct json *prediction; /* estimate/1 sections, hours and cost as predicted */
    struct json *constants;  /* by name: value, source, date, rows, residual, prior */
    struct json *break_even; /* prices at which others would have been chosen; NULL: not asked */
    struct json *reasons;    /* runner_up, rejected, rejected_more; NULL: the file does not say */
};

/* Document of a plan. version: of the program; generated_at: RFC 3339, NULL for reproducible ones.
 * Caller frees. */
struct json *plan_file_make(const struct plan *p, const struct job *j, const struct offer *o,
    const struct rates *rates, const char *version, const char *generated_at);

void plan_file_release(struct plan_file *p);
/* Everything present, in range and consistent: model, strategy, ranks against the offer. Does not
 * expand the schedule: plan_file_check_hash does. */
enum rc plan_file_from_json(struct plan_file *out, const struct json *v, struct err *e);
enum rc plan_file_read(struct plan_file *out, const char *path, struct err *e);
/* Expand the schedule and compare: RC_INVALID when this program would run something else. */
enum rc plan_file_check_hash(const struct plan_file *p, struct err *e);
/* Predict once more and compare: does the file hold the figures and constants that this program
 * finds for its job, offer and strategy? A figure edited in the file, or constants of another
 * version, make it false. RC_INVALID when nothing can be predicted. */
enum rc plan_file_check_figures(
    bool *agree, const struct plan_file *p, const struct rates *rates, struct err *e);

#endif
