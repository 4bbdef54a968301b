#include "engine/init.h"

#include <math.h>
#include <string.h>

#include "engine/executor.h"
#include "engine/random.h"

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

static void init_master(struct executor *x, int unit, uint64_t seed)
{
    const struct schedule *s = executor_schedule(x);
    struct state_view v = executor_state(x, unit, STATE_MASTER);
    memset(v.data, 0, (size_t)v.count * sizeof(float));
    for (int i = 0; i < s->unit[unit].n; i++) {
        const struct tensor *t = &s->unit[unit].tensor[i];
        uint64_t key = random_key(seed, (uint64_t)unit * T_ROLE_COUNT + (uint64_t)t->role);
        int64_t first = t->offset > v.first ? t->offset : v.first;
        int64_t end = t->offset + t->rows * t->cols;
        end = end < v.first + v.count ? end : v.first + v.count;
        for (int64_t at = first; at < end; at++)
            v.data[at - v.first] = value(&s->model, t, key, at - t->offset);
    }
}

static enum rc init_unit(struct executor *x, int unit, uint64_t seed, struct err *e)
{
    enum rc rc = RC_OK;
    for (int kind = 0; kind < STATE_KINDS && !rc; kind++) {
        rc = executor_fetch_state(x, unit, (enum state_kind)kind, e);
        struct state_view v = executor_state(x, unit, (enum state_kind)kind);
        if (rc)
            break;
        if (kind == STATE_MASTER)
            init_master(x, unit, seed);
        else
            memset(v.data, 0, (size_t)v.count * sizeof(float));
        rc = executor_store_state(x, unit, (enum state_kind)kind, e);
    }
    return rc;
}

enum rc init_state(struct executor *x, uint64_t seed, struct err *e)
{
    enum rc rc = RC_OK;
    for (int u = 0; u < executor_schedule(x)->n_units && !rc; u++)
        rc = init_unit(x, u, seed, e);
    return rc ? rc : executor_publish(x, e);
}
