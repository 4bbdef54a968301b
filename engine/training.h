/* Hyper-parameters of the optimizer: the `training` object of a job, checked and with defaults. */
#ifndef ENGINE_TRAINING_H
#define ENGINE_TRAINING_H

#include <stdint.h>

#include "base/err.h"

struct json;

enum lr_schedule { LR_COSINE, LR_LINEAR, LR_CONSTANT };

struct training {
    double lr;            /* peak, 3e-4 */
    double min_lr;        /* at the last step; a tenth of lr */
    int64_t warmup_steps; /* linear from 0; a fiftieth of the steps */
    enum lr_schedule schedule;
    double beta1, beta2, eps, weight_decay; /* 0.9, 0.95, 1e-8, 0.1 */
    double clip_norm;                       /* 1.0; 0: no clipping */
    uint64_t seed;                          /* initial values and data order; 1 */
};

/* v may be NULL or an object; unknown fields are refused. steps: of the whole run. */
enum rc training_from_json(
    struct training *out, const struct json *v, int64_t steps, struct err *e);

/* Learning rate of a step, from 1; steps of the whole run. */
double training_lr(const struct training *t, int64_t step, int64_t steps);

#endif
