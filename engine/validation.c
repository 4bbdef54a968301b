#include "engine/validation.h"

#include <string.h>

#include "engine/data.h"
#include "engine/rank_setup.h"
#include "planner/schedule.h"

static int64_t round_up_ratio(int64_t a, int64_t b)
{
    return (a - 1) / b + 1;
}

enum rc validation_open(struct validation *v, const struct rank_setup *s, struct err *e)
{
    const struct run_evaluation *spec = &s->spec.evaluation;
    const struct strategy *st = &s->schedule->strategy;
    *v = (struct validation){.setup = s};
    if (spec->data.n == 0)
        return RC_OK;
    if (!st->evaluates)
        return err_set(e, RC_INVALID,
            "the run is to validate on '%s', but its plan has no validation; plan again with "
            "eval_data",
            spec->data.v[0].path);
    enum rc rc = rank_setup_open_data(s, &spec->data, 0, &v->data, e);
    if (rc)
        return err_in(e, "validation");
    int64_t wanted = round_up_ratio(spec->tokens, st->seq), there = data_samples(v->data);
    v->samples = wanted < there ? wanted : there;
    v->micro_steps = round_up_ratio(v->samples, st->ranks * st->micro_batch);
    return RC_OK;
}

void validation_close(struct validation *v)
{
    data_close(v->data);
    v->data = NULL;
}

bool validation_is_due(const struct validation *v, int64_t step)
{
    const struct run_spec *spec = &v->setup->spec;
    return v->data && (step == spec->steps || step % spec->evaluation.every_steps == 0);
}

static void fill_ignored(const struct micro_data *row, int64_t seq)
{
    memset(row->tokens, 0, (size_t)seq * sizeof(*row->tokens));
    memset(row->targets, 0xff, (size_t)seq * sizeof(*row->targets));
    if (row->positions)
        memset(row->positions, 0, (size_t)seq * sizeof(*row->positions));
}

static enum rc fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    const struct validation *v = arg;
    const struct strategy *s = &v->setup->schedule->strategy;
    int64_t first = (micro * s->ranks + v->setup->rank) * s->micro_batch;
    enum rc rc = RC_OK;
    for (int64_t i = 0; i < s->micro_batch && !rc; i++) {
        struct micro_data row = micro_data_from(out, i * s->seq);
        if (first + i < v->samples)
            rc = data_sample(v->data, first + i, &row, e);
        else
            fill_ignored(&row, s->seq);
    }
    return rc;
}

enum rc validation_run(struct validation *v, struct evaluation *out, struct err *e)
{
    enum rc rc = executor_evaluate(v->setup->x, v->micro_steps, fill, v, out, e);
    return rc ? err_in(e, "validation") : RC_OK;
}
