/* The metrics of a run over its steps, in bounded memory. When it is full, neighbours are merged;
 * of the loss the smallest and the largest value survive, so that a spike stays visible. */
#ifndef TUI_RUN_SERIES_H
#define TUI_RUN_SERIES_H

#include <stddef.h>

struct record_metrics;

enum { RUN_SERIES_MAX = 16384 };

enum run_value { RUN_LOSS, RUN_SPEED, RUN_MEMORY, RUN_RATE, RUN_GRAD_NORM, RUN_STEP_S, RUN_VALUES };

struct run_series {
    size_t n, cap;
    double *step;              /* ascending */
    double *value[RUN_VALUES]; /* NaN: unknown */
    double *low[RUN_VALUES], *high[RUN_VALUES];
    double wall_s; /* of the newest record; 0 without one */
};

void run_series_init(struct run_series *s);
void run_series_release(struct run_series *s);
void run_series_reset(struct run_series *s);
/* A step that is not above the last one means that the run went back to a checkpoint: what came
 * after it is dropped first. */
void run_series_add(struct run_series *s, const struct record_metrics *m);
/* Newest known value, NaN without one. */
double run_series_last(const struct run_series *s, enum run_value v);
/* Mean of the newest n known values, NaN without one. */
double run_series_mean(const struct run_series *s, enum run_value v, size_t n);

#endif
