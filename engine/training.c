#include "engine/training.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"

static const char *const SCHEDULE_NAMES[] = {"cosine", "linear", "constant"};

/* A number of the object: where it goes and what it may be. */
struct field {
    const char *name;
    size_t offset;
    double min, max;
};

#define FIELD(name, min, max)                                                                      \
    {                                                                                              \
#name, offsetof(struct training, name), min, max                                           \
    }
static const struct field FIELDS[] = {FIELD(lr, 0, 10), FIELD(min_lr, 0, 10), FIELD(beta1, 0, 1),
    FIELD(beta2, 0, 1), FIELD(eps, 0, 1), FIELD(weight_decay, 0, 10), FIELD(clip_norm, 0, 1e9)};

static enum rc read_number(
    struct training *t, const char *name, const struct json *v, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(FIELDS); i++) {
        const struct field *f = &FIELDS[i];
        if (strcmp(f->name, name) != 0)
            continue;
        double x = json_as_num(v, NAN);
        if (!(x >= f->min && x <= f->max))
            return err_set(e, RC_INVALID, "training field '%s' must be a number from %g to %g",
                name, f->min, f->max);
        *(double *)(void *)((char *)t + f->offset) = x;
        return RC_OK;
    }
    return err_set(e, RC_INVALID, "training field '%s' is unknown", name);
}

static enum rc read_field(struct training *t, const char *name, const struct json *v, struct err *e)
{
    if (strcmp(name, "schedule") == 0) {
        for (int i = 0; i < (int)BASE_COUNT(SCHEDULE_NAMES); i++)
            if (strcmp(json_as_str(v, ""), SCHEDULE_NAMES[i]) == 0) {
                t->schedule = (enum lr_schedule)i;
                return RC_OK;
            }
        return err_set(
            e, RC_INVALID, "training field 'schedule' must be cosine, linear or constant");
    }
    bool is_warmup = strcmp(name, "warmup_steps") == 0;
    if (!is_warmup && strcmp(name, "seed") != 0)
        return read_number(t, name, v, e);
    int64_t x = json_as_int(v, -1);
    if (x < 0)
        return err_set(
            e, RC_INVALID, "training field '%s' must be a whole number, 0 or more", name);
    if (is_warmup)
        t->warmup_steps = x;
    else
        t->seed = (uint64_t)x;
    return RC_OK;
}

enum rc training_from_json(struct training *out, const struct json *v, int64_t steps, struct err *e)
{
    *out = (struct training){.lr = 3e-4,
        .min_lr = -1,
        .warmup_steps = steps / 50,
        .schedule = LR_COSINE,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = 0.1,
        .clip_norm = 1.0,
        .seed = 1};
    void *cursor = NULL;
    const char *name;
    const struct json *value;
    enum rc rc = RC_OK;
    while (!rc && json_next(v, &cursor, &name, &value))
        rc = read_field(out, name, value, e);
    if (out->min_lr < 0)
        out->min_lr = out->lr / 10;
    return rc;
}

double training_lr(const struct training *t, int64_t step, int64_t steps)
{
    if (step <= t->warmup_steps)
        return t->lr * (double)step / (double)t->warmup_steps;
    if (t->schedule == LR_CONSTANT || steps <= t->warmup_steps)
        return t->lr;
    double done = (double)(step - t->warmup_steps) / (double)(steps - t->warmup_steps);
    done = done < 1 ? done : 1;
    double left =
        t->schedule == LR_COSINE ? 0.5 * (1 + cos(3.14159265358979323846 * done)) : 1 - done;
    return t->min_lr + (t->lr - t->min_lr) * left;
}
