#include "tui/run_series.h"

#include <math.h>

#include "base/alloc.h"
#include "run/record.h"

void run_series_init(struct run_series *s)
{
    memset(s, 0, sizeof(*s));
}

void run_series_release(struct run_series *s)
{
    free(s->step);
    for (int v = 0; v < RUN_VALUES; v++) {
        free(s->value[v]);
        free(s->low[v]);
        free(s->high[v]);
    }
    run_series_init(s);
}

void run_series_reset(struct run_series *s)
{
    s->n = 0;
    s->wall_s = 0;
}

static void grow(struct run_series *s)
{
    if (s->n < s->cap)
        return;
    s->cap = s->cap ? 2 * s->cap : 256;
    s->step = base_realloc(s->step, s->cap * sizeof(double));
    for (int v = 0; v < RUN_VALUES; v++) {
        s->value[v] = base_realloc(s->value[v], s->cap * sizeof(double));
        s->low[v] = base_realloc(s->low[v], s->cap * sizeof(double));
        s->high[v] = base_realloc(s->high[v], s->cap * sizeof(double));
    }
}

static double mean_of(double a, double b)
{
    return isnan(a) ? b : isnan(b) ? a : (a + b) / 2;
}

/* Make one point out of each pair; fmin and fmax pass over NaN. */
static void halve(struct run_series *s)
{
    for (size_t i = 0; i < s->n / 2; i++) {
        s->step[i] = s->step[2 * i + 1];
        for (int v = 0; v < RUN_VALUES; v++) {
            s->value[v][i] = mean_of(s->value[v][2 * i], s->value[v][2 * i + 1]);
            s->low[v][i] = fmin(s->low[v][2 * i], s->low[v][2 * i + 1]);
            s->high[v][i] = fmax(s->high[v][2 * i], s->high[v][2 * i + 1]);
        }
    }
    s->n /= 2;
}

static double known(double x)
{
    return isfinite(x) && x >= 0 ? x : NAN;
}

void run_series_add(struct run_series *s, const struct record_metrics *m)
{
    double values[RUN_VALUES] = {
        [RUN_LOSS] = isfinite(m->loss) ? m->loss : NAN,
        [RUN_SPEED] = known(m->tokens_per_second),
        [RUN_MEMORY] = known((double)m->memory_bytes),
        [RUN_RATE] = known(m->lr),
        [RUN_GRAD_NORM] = known(m->grad_norm),
        [RUN_STEP_S] = known(m->step_seconds),
    };
    while (s->n > 0 && s->step[s->n - 1] >= (double)m->step)
        s->n--;
    if (s->n == RUN_SERIES_MAX)
        halve(s);
    grow(s);
    s->step[s->n] = (double)m->step;
    for (int v = 0; v < RUN_VALUES; v++)
        s->value[v][s->n] = s->low[v][s->n] = s->high[v][s->n] = values[v];
    s->n++;
    if (isfinite(m->wall_s) && m->wall_s > 0)
        s->wall_s = m->wall_s;
}

double run_series_mean(const struct run_series *s, enum run_value v, size_t n)
{
    double sum = 0;
    size_t found = 0;
    for (size_t i = s->n; i-- > 0 && found < n;) {
        if (isnan(s->value[v][i]))
            continue;
        sum += s->value[v][i];
        found++;
    }
    return found ? sum / (double)found : NAN;
}

double run_series_last(const struct run_series *s, enum run_value v)
{
    return run_series_mean(s, v, 1);
}
