/* Hyper-parameters of the optimizer: the `training` object of a job, checked and with defaults. */
#ifndef PLANNER_TRAINING_H
#define PLANNER_TRAINING_H

#include <stdint.h>

#include "base/err.h"
#include "planner/strategy.h"

struct json;

/* WSD: warm-up, stable, decay (arXiv 2404.06395): the rate stays at lr and falls, in a line, in the
 * last decay_steps. */
enum lr_schedule { LR_COSINE, LR_LINEAR, LR_WSD, LR_CONSTANT };
/* What is done about a step whose loss or norm is finite and far off the steps before it. */
enum spike_action { SPIKE_WARN, SPIKE_SKIP };
/* What ends a row of max_skipped steps without an update. */
enum divergence_action { DIVERGENCE_STOP, DIVERGENCE_ROLL_BACK };

/* Defaults and meaning: training_field_at. */
struct training {
    double lr;            /* peak */
    double min_lr;        /* at the last step */
    int64_t warmup_steps; /* linear from 0 */
    int64_t decay_steps;  /* of WSD, at the end */
    enum lr_schedule schedule;
    enum optimizer optimizer;
    double beta1, beta2, eps; /* AdamW's */
    double momentum;          /* SGD's */
    double weight_decay;      /* of AdamW apart from the gradient, of SGD added to it */
    double clip_norm;         /* 0: no clipping */
    int64_t seed;             /* initial values and data order */
    double spike_sigma; /* deviations above the mean from which a step is a spike; 0: none is */
    enum spike_action spike;
    int64_t max_skipped; /* in a row, 1 or more */
    enum divergence_action divergence;
};

/* One field of the object, as `berth help job` shows it. */
struct training_field {
    const char *name;
    const char *form;
    const char *fallback; /* what holds when it is left out */
    const char *help;
};
/* The i-th, NULL name at the end. */
const struct training_field *training_field_at(int i);

/* v may be NULL or an object; unknown fields are refused, the nearest known one is named. steps: of
 * the whole run. */
enum rc training_from_json(
    struct training *out, const struct json *v, int64_t steps, struct err *e);

/* Of such an object that was checked; NULL: the default. */
enum optimizer training_optimizer(const struct json *v);

/* Learning rate of a step, from 1; steps of the whole run. */
double training_lr(const struct training *t, int64_t step, int64_t steps);

#endif
