#include "planner/training.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"

static const char *const SCHEDULE_NAMES[] = {"cosine", "linear", "constant"};

/* A field: where it goes and what it may be. */
struct field {
    struct training_field doc;
    const char *elsewhere; /* what other programs call it */
    enum { NUMBER, WHOLE, SCHEDULE } kind;
    size_t offset;
    double min, max; /* of a number */
};

#define AT(member) offsetof(struct training, member)
/* Beta below 1 and eps above 0: else the first update of a weight without gradient is 0 / 0. */
static const struct field FIELDS[] = {
    {{"lr", "number", "3e-4", "learning rate after the warm-up, its highest"}, "learning_rate",
        NUMBER, AT(lr), 0, 10},
    {{"min_lr", "number", "lr / 10", "learning rate of the last step"}, "lr_min", NUMBER,
        AT(min_lr), 0, 10},
    {{"warmup_steps", "whole number", "steps / 50", "steps in which the rate rises from 0"},
        "warmup", WHOLE, AT(warmup_steps), 0, 0},
    {{"schedule", "cosine, linear or constant", "cosine", "how the rate goes from lr to min_lr"},
        "lr_scheduler", SCHEDULE, AT(schedule), 0, 0},
    {{"beta1", "number", "0.9", "AdamW: decay of the mean of gradients"}, "adam_beta1", NUMBER,
        AT(beta1), 0, 0.999999},
    {{"beta2", "number", "0.95", "AdamW: decay of the mean of their squares"}, "adam_beta2", NUMBER,
        AT(beta2), 0, 0.999999},
    {{"eps", "number", "1e-8", "AdamW: added to the root of that mean"}, "adam_epsilon", NUMBER,
        AT(eps), 1e-30, 1},
    {{"weight_decay", "number", "0.1", "AdamW: decay of matrices, times the learning rate"},
        "decay", NUMBER, AT(weight_decay), 0, 10},
    {{"clip_norm", "number", "1", "gradients are scaled down to this norm; 0: they are not"},
        "max_grad_norm", NUMBER, AT(clip_norm), 0, 1e9},
    {{"seed", "whole number", "1", "of the initial values and the order of the data"},
        "random_seed", WHOLE, AT(seed), 0, 0},
    {{NULL, NULL, NULL, NULL}, NULL, NUMBER, 0, 0, 0},
};

const struct training_field *training_field_at(int i)
{
    return &FIELDS[i].doc;
}

static enum rc read_number(void *member, const struct field *f, const struct json *v, struct err *e)
{
    double x = json_as_num(v, NAN);
    if (!(x >= f->min && x <= f->max))
        return err_set(e, RC_INVALID, "training field '%s' must be a number from %g to %g",
            f->doc.name, f->min, f->max);
    *(double *)member = x;
    return RC_OK;
}

static enum rc read_whole(void *member, const struct field *f, const struct json *v, struct err *e)
{
    int64_t x = json_as_int(v, -1);
    if (x < 0)
        return err_set(
            e, RC_INVALID, "training field '%s' must be a whole number, 0 or more", f->doc.name);
    *(int64_t *)member = x;
    return RC_OK;
}

static enum rc read_schedule(
    void *member, const struct field *f, const struct json *v, struct err *e)
{
    for (int i = 0; i < (int)BASE_COUNT(SCHEDULE_NAMES); i++)
        if (strcmp(json_as_str(v, ""), SCHEDULE_NAMES[i]) == 0) {
            *(enum lr_schedule *)member = (enum lr_schedule)i;
            return RC_OK;
        }
    return err_set(e, RC_INVALID, "training field '%s' must be %s", f->doc.name, f->doc.form);
}

static const struct field *find_field(const char *name)
{
    for (const struct field *f = FIELDS; f->doc.name; f++)
        if (strcmp(f->doc.name, name) == 0)
            return f;
    return NULL;
}

static enum rc unknown_field(const char *name, struct err *e)
{
    const struct field *best = NULL;
    int distance = (int)strlen(name) / 3 + 2;
    for (const struct field *f = FIELDS; f->doc.name; f++) {
        int d = str_distance(name, f->doc.name), d2 = str_distance(name, f->elsewhere);
        d = d2 < d ? d2 : d;
        if (d < distance) {
            distance = d;
            best = f;
        }
    }
    if (best)
        return err_set(
            e, RC_INVALID, "training has no field '%s'; did you mean '%s'?", name, best->doc.name);
    return err_set(e, RC_INVALID, "training has no field '%s' (berth help job lists them)", name);
}

static enum rc read_field(struct training *t, const char *name, const struct json *v, struct err *e)
{
    const struct field *f = find_field(name);
    if (!f)
        return unknown_field(name, e);
    void *member = (char *)t + f->offset;
    if (f->kind == NUMBER)
        return read_number(member, f, v, e);
    return f->kind == WHOLE ? read_whole(member, f, v, e) : read_schedule(member, f, v, e);
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
    if (!rc && out->min_lr > out->lr)
        rc = err_set(e, RC_INVALID, "training field 'min_lr' is %g, more than lr, which is %g",
            out->min_lr, out->lr);
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
