/* Hyper-parameters of the optimizer: the `training` object of a job, checked and with defaults. */
#ifndef PLANNER_TRAINING_H
#define PLANNER_TRAINING_H

#include <stdint.h>

#include "base/err.h"

struct json;

enum lr_schedule { LR_COSINE, LR_LINEAR, LR_CONSTANT };

/* Defaults and meaning: training_field_at. */
struct training {
    double lr;            /* peak */
    double min_lr;        /* at the last step */
    int64_t warmup_steps; /* linear from 0 */
    enum lr_schedule schedule;
    double beta1, beta2, eps, weight_decay;
    double clip_norm; /* 0: no clipping */
    int64_t seed;     /* initial values and data order */
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

/* Learning rate of a step, from 1; steps of the whole run. */
double training_lr(const struct training *t, int64_t step, int64_t steps);

#endif
