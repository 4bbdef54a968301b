#include "engine/init.h"

#include <math.h>
#include <string.h>

#include "engine/checkpoint_files.h"
#include "engine/executor.h"
#include "engine/random.h"
#include "engine/weights.h"

static bool writes_residual(enum tensor_role r)
{
    return r == T_O_W || r == T_DOWN_W;
}

static bool is_norm_weight(enum tensor_role r)
{
    return r == T_NORM1_W || r == T_NORM2_W || r == T_FINAL_NORM_W || r == T_Q_NORM_W ||
           r == T_K_NORM_W;
}

static float value(const struct model *m, const struct tensor *t, uint64_t key, int64_t element)
{
    if (t->is_vector)
        return is_norm_weight(t->role) ? 1.0F : 0.0F;
    double scale = writes_residual(t->role) ? 0.02 / sqrt(2.0 * (double)m->layers) : 0.02;
    return (float)(scale * random_normal(key, (uint64_t)element));
}

/* What a rank holds of a tensor: elements first .. first + count of it; count <= 0: nothing. */
struct share {
    int64_t first, count;
    float *data;
};

static struct share share_of(const struct state_view *v, const struct tensor *t)
{
    int64_t first = t->offset > v->first ? t->offset : v->first;
    int64_t end = t->offset + t->rows * t->cols;
    end = end < v->first + v->count ? end : v->first + v->count;
    return (struct share){first - t->offset, end - first, v->data + (first - v->first)};
}

/* Gives a rank's share of a tensor its first values. */
typedef enum rc fill_tensor_fn(
    void *arg, int unit, const struct tensor *t, struct share own, struct err *e);

struct start {
    struct executor *x;
    fill_tensor_fn *fill;
    void *arg;
};

static enum rc fill_master(const struct start *s, int unit, struct state_view v, struct err *e)
{
    const struct unit_layout *u = &executor_schedule(s->x)->unit[unit];
    enum rc rc = RC_OK;
    for (int i = 0; i < u->n && !rc; i++) {
        struct share own = share_of(&v, &u->tensor[i]);
        if (own.count > 0)
            rc = s->fill(s->arg, unit, &u->tensor[i], own, e);
    }
    return rc;
}

static enum rc init_unit(const struct start *s, int unit, struct err *e)
{
    enum rc rc = RC_OK;
    for (int kind = 0; kind < STATE_KINDS && !rc; kind++) {
        if (!state_exists(executor_schedule(s->x), (enum state_kind)kind))
            continue;
        rc = executor_fetch_state(s->x, unit, (enum state_kind)kind, e);
        if (rc)
            break;
        struct state_view v = executor_state(s->x, unit, (enum state_kind)kind);
        memset(v.data, 0, (size_t)v.count * sizeof(float));
        if (kind == STATE_MASTER)
            rc = fill_master(s, unit, v, e);
        if (!rc)
            rc = executor_store_state(s->x, unit, (enum state_kind)kind, e);
    }
    return rc;
}

static enum rc init_units(const struct start *s, struct err *e)
{
    enum rc rc = RC_OK;
    for (int u = 0; u < executor_schedule(s->x)->n_units && !rc; u++)
        rc = init_unit(s, u, e);
    return rc;
}

/* --- by counters --- */

struct seeded {
    const struct model *model;
    uint64_t seed;
};

static enum rc fill_seeded(
    void *arg, int unit, const struct tensor *t, struct share own, struct err *e)
{
    const struct seeded *s = arg;
    uint64_t key = random_key(s->seed, (uint64_t)unit * T_ROLE_COUNT + (uint64_t)t->role);
    for (int64_t j = 0; j < own.count; j++)
        own.data[j] = value(s->model, t, key, own.first + j);
    return RC_OK;
}

enum rc init_state(struct executor *x, uint64_t seed, struct err *e)
{
    struct seeded by = {&executor_schedule(x)->model, seed};
    enum rc rc = init_units(&(struct start){x, fill_seeded, &by}, e);
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
        rc = init_units(&(struct start){x, fill_from_weights, w}, e);
    weights_close(w);
    if (rc)
        err_in(e, "weights");
    rc = checkpoint_agree(x, "reading the weights", rc, e);
    return rc ? rc : executor_publish(x, e);
}
