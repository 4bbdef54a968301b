#include "engine/guard.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

/* --- what is a spike --- */

static double limit_of(const double *x, int32_t n, double sigma)
{
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < n; i++)
        sum += x[i];
    double mean = sum / n;
    for (int32_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return mean + sigma * fmax(sqrt(squares / n), 0.01 * fabs(mean));
}

struct guard_limits guard_limits(const struct guard *g, double sigma)
{
    if (!(sigma > 0) || g->n < GUARD_LEAST)
        return (struct guard_limits){INFINITY, INFINITY};
    return (struct guard_limits){
        limit_of(g->loss, g->n, sigma), limit_of(g->grad_norm, g->n, sigma)};
}

/* --- what has happened --- */

static void accept(struct guard *g, double loss, double grad_norm)
{
    g->loss[g->next] = loss;
    g->grad_norm[g->next] = grad_norm;
    g->next = (g->next + 1) % GUARD_WINDOW;
    g->n += g->n < GUARD_WINDOW;
}

void guard_note(struct guard *g, double loss, double grad_norm, bool is_skipped)
{
    g->was_skipped[g->next_skipped] = is_skipped;
    g->next_skipped = (g->next_skipped + 1) % GUARD_WINDOW;
    g->skipped_in_row = is_skipped ? g->skipped_in_row + 1 : 0;
    if (!is_skipped)
        accept(g, loss, grad_norm);
}

bool guard_has_diverged(const struct guard *g, int64_t max_skipped)
{
    int64_t skipped = 0;
    for (int32_t i = 0; i < GUARD_WINDOW; i++)
        skipped += g->was_skipped[i];
    return g->skipped_in_row >= max_skipped || skipped / 4 >= max_skipped;
}

void guard_forgive(struct guard *g)
{
    memset(g->was_skipped, 0, sizeof(g->was_skipped));
    g->skipped_in_row = 0;
}

/* --- as a document: rings are written from their oldest entry on --- */

static struct json *accepted_to_json(const struct guard *g, const double *x)
{
    struct json *v = json_arr();
    int32_t oldest = g->n < GUARD_WINDOW ? 0 : g->next;
    for (int32_t i = 0; i < g->n; i++)
        json_push_num(v, x[(oldest + i) % GUARD_WINDOW]);
    return v;
}

struct json *guard_to_json(const struct guard *g)
{
    struct json *v = json_obj(), *ages = json_arr();
    for (int32_t i = 0; i < GUARD_WINDOW; i++)
        if (g->was_skipped[(g->next_skipped + i) % GUARD_WINDOW])
            json_push_int(ages, GUARD_WINDOW - i);
    json_add(v, "loss", accepted_to_json(g, g->loss));
    json_add(v, "grad_norm", accepted_to_json(g, g->grad_norm));
    json_add(v, "skipped_steps_ago", ages);
    json_add_int(v, "skipped_in_row", g->skipped_in_row);
    return v;
}

static enum rc read_accepted(double *x, const struct json *v, struct err *e)
{
    for (size_t i = 0; i < json_len(v); i++) {
        x[i] = json_as_num(json_at(v, i), NAN);
        if (!isfinite(x[i]))
            return err_set(e, RC_INVALID, "a loss or norm of the guard is not a number");
    }
    return RC_OK;
}

static enum rc read_skipped(struct guard *g, const struct json *v, struct err *e)
{
    for (size_t i = 0; i < json_len(v); i++) {
        int64_t ago = json_as_int(json_at(v, i), 0);
        if (ago < 1 || ago > GUARD_WINDOW)
            return err_set(e, RC_INVALID, "the guard's skipped steps are out of its window");
        g->was_skipped[GUARD_WINDOW - ago] = true;
    }
    return RC_OK;
}

enum rc guard_from_json(struct guard *out, const struct json *v, struct err *e)
{
    *out = (struct guard){0};
    const struct json *loss = json_get(v, "loss"), *norm = json_get(v, "grad_norm");
    size_t n = json_len(loss);
    if (n > GUARD_WINDOW || json_len(norm) != n)
        return err_set(e, RC_INVALID, "the guard's losses and norms do not belong together");
    struct guard g = {.n = (int32_t)n, .next = (int32_t)(n % GUARD_WINDOW)};
    enum rc rc = read_accepted(g.loss, loss, e);
    if (!rc)
        rc = read_accepted(g.grad_norm, norm, e);
    if (!rc)
        rc = read_skipped(&g, json_get(v, "skipped_steps_ago"), e);
    g.skipped_in_row = json_int(v, "skipped_in_row", 0);
    if (!rc && (g.skipped_in_row < 0 || g.skipped_in_row > GUARD_WINDOW))
        rc = err_set(e, RC_INVALID, "the guard has %lld skipped steps in a row",
            (long long)g.skipped_in_row);
    if (!rc)
        *out = g;
    return rc;
}
