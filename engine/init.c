#include "engine/init.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/checkpoint_files.h"
#include "engine/executor.h"
#include "engine/random.h"
#include "engine/weights.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"

static bool writes_residual(enum tensor_role r)
{
    return r == T_O_W || r == T_DOWN_W;
}

static bool is_norm_weight(enum tensor_role r)
{
    return r == T_NORM1_W || r == T_NORM2_W || r == T_FINAL_NORM_W || r == T_Q_NORM_W ||
           r == T_K_NORM_W;
}

static double deviation(const struct model *m, const struct tensor *t)
{
    return writes_residual(t->role) ? 0.02 / sqrt(2.0 * (double)m->layers) : 0.02;
}

/* Elements first .. first + count of a tensor. */
struct share {
    int64_t first, count;
    float *data;
};

/* Gives them their first values. */
typedef enum rc fill_tensor_fn(
    void *arg, int unit, const struct tensor *t, struct share own, struct err *e);

struct start {
    struct executor *x;
    fill_tensor_fn *fill; /* of masters */
    void *arg;
    float *values; /* STATE_RANGE */
};

static enum rc fill_range(const struct start *s, int unit, enum state_kind kind,
    const struct tensor *t, struct state_range r, struct err *e)
{
    struct share own = {r.first - t->offset, r.count, s->values};
    enum rc rc = RC_OK;
    if (kind == STATE_MASTER)
        rc = s->fill(s->arg, unit, t, own, e);
    else
        memset(s->values, 0, (size_t)r.count * sizeof(float));
    if (!rc)
        executor_write_state(s->x, unit, kind, r, s->values);
    return rc;
}

/* What a rank holds of a tensor. */
static enum rc fill_tensor(
    const struct start *s, int unit, enum state_kind kind, const struct tensor *t, struct err *e)
{
    struct state_view v = executor_state(s->x, unit, kind);
    int64_t at = t->offset > v.first ? t->offset : v.first;
    int64_t end = t->offset + t->rows * t->cols;
    end = end < v.first + v.count ? end : v.first + v.count;
    enum rc rc = RC_OK;
    for (int64_t next; at < end && !rc; at = next) {
        next = executor_range_end(at, end);
        rc = fill_range(s, unit, kind, t, (struct state_range){at, next - at}, e);
    }
    return rc;
}

/* Gaps between tensors are zero from the start, as slabs are. */
static enum rc init_unit(const struct start *s, int unit, struct err *e)
{
    const struct schedule *schedule = executor_schedule(s->x);
    const struct unit_layout *u = &schedule->unit[unit];
    enum rc rc = RC_OK;
    for (int k = 0; k < STATE_KINDS && !rc; k++) {
        enum state_kind kind = (enum state_kind)k;
        if (!state_exists(schedule, kind))
            continue;
        rc = executor_begin_state(s->x, unit, kind, e);
        for (int i = 0; i < u->n && !rc; i++)
            rc = fill_tensor(s, unit, kind, &u->tensor[i], e);
        if (!rc)
            rc = executor_store_state(s->x, unit, kind, e);
    }
    return rc;
}

static enum rc init_units(struct start s, struct err *e)
{
    enum rc rc = RC_OK;
    s.values = base_alloc(STATE_RANGE * sizeof(*s.values));
    for (int u = 0; u < executor_schedule(s.x)->n_units && !rc; u++)
        rc = init_unit(&s, u, e);
    free(s.values);
    return rc;
}

/* --- by counters --- */

struct seeded {
    const struct model *model;
    uint64_t seed;
    struct pool *pool;
};

static enum rc fill_seeded(
    void *arg, int unit, const struct tensor *t, struct share own, struct err *e)
{
    const struct seeded *s = arg;
    uint64_t key = random_key(s->seed, (uint64_t)unit * T_ROLE_COUNT + (uint64_t)t->role);
    struct k_normal a = {own.data, own.count, key, (uint64_t)own.first, deviation(s->model, t)};
    if (!t->is_vector)
        kernels_best()->normal(s->pool, &a);
    for (int64_t j = 0; t->is_vector && j < own.count; j++)
        own.data[j] = is_norm_weight(t->role) ? 1.0F : 0.0F;
    return RC_OK;
}

enum rc init_state(struct executor *x, uint64_t seed, struct err *e)
{
    struct pool *pool = pool_new(executor_threads(x)); /* without one the caller does it all */
    struct seeded by = {&executor_schedule(x)->model, seed, pool};
    enum rc rc = init_units((struct start){x, fill_seeded, &by, NULL}, e);
    pool_free(pool);
    return rc ? rc : executor_publish(x, e);
}

/* --- from weights --- */

static enum rc fill_from_weights(
    void *arg, int unit, const struct tensor *t, struct share own, struct err *e)
{
    return weights_read(arg, unit, t->role, own.first, own.count, own.data, e);
}

enum rc init_from_weights(struct executor *x, const char *path, struct err *e)
{
    struct weights *w = NULL;
    enum rc rc = weights_open(&w, path, &executor_schedule(x)->model, e);
    if (!rc)
        rc = init_units((struct start){x, fill_from_weights, w, NULL}, e);
    weights_close(w);
    if (rc)
        err_in(e, "weights");
    rc = checkpoint_agree(x, "reading the weights", rc, e);
    return rc ? rc : executor_publish(x, e);
}
