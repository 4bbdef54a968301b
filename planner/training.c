#include "planner/training.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"

/* By number of their enumerations. */
static const char *const SCHEDULE_WORDS[] = {"cosine", "linear", "wsd", "constant", NULL};
static const char *const OPTIMIZER_WORDS[] = {"adamw", "sgd", NULL};
static const char *const SPIKE_WORDS[] = {"warn", "skip", NULL};
static const char *const DIVERGENCE_WORDS[] = {"stop", "rollback", NULL};

/* A field: where it goes and what it may be. */
struct field {
    struct training_field doc;
    const char *elsewhere; /* what other programs call it */
    enum { NUMBER, WHOLE, WORD } kind;
    size_t offset;
    double min, max;          /* of a number; the least of a whole one */
    const char *const *words; /* of an enumeration */
};

#define AT(member) offsetof(struct training, member)
/* Beta below 1 and eps above 0: else the first update of a weight without gradient is 0 / 0. */
static const struct field FIELDS[] = {
    {{"lr", "number", "3e-4", "learning rate after the warm-up, its highest"}, "learning_rate",
        NUMBER, AT(lr), 0, 10, NULL},
    {{"min_lr", "number", "lr / 10", "learning rate of the last step"}, "lr_min", NUMBER,
        AT(min_lr), 0, 10, NULL},
    {{"warmup_steps", "whole number", "steps / 50", "steps in which the rate rises from 0"},
        "warmup", WHOLE, AT(warmup_steps), 0, 0, NULL},
    {{"schedule", "cosine, linear, wsd or constant", "cosine",
         "how the rate goes from lr to min_lr; wsd: it falls in the last decay_steps"},
        "lr_scheduler", WORD, AT(schedule), 0, 0, SCHEDULE_WORDS},
    {{"decay_steps", "whole number", "steps / 10",
         "of schedule wsd: steps in which the rate falls"},
        "lr_decay_steps", WHOLE, AT(decay_steps), 0, 0, NULL},
    {{"optimizer", "adamw or sgd", "adamw",
         "how weights are updated; sgd: with momentum, as PyTorch's, and half the states"},
        "optim", WORD, AT(optimizer), 0, 0, OPTIMIZER_WORDS},
    {{"beta1", "number", "0.9", "AdamW: decay of the mean of gradients"}, "adam_beta1", NUMBER,
        AT(beta1), 0, 0.999999, NULL},
    {{"beta2", "number", "0.95", "AdamW: decay of the mean of their squares"}, "adam_beta2", NUMBER,
        AT(beta2), 0, 0.999999, NULL},
    {{"eps", "number", "1e-8", "AdamW: added to the root of that mean"}, "adam_epsilon", NUMBER,
        AT(eps), 1e-30, 1, NULL},
    {{"momentum", "number", "0.9", "SGD: what is left of the last update in the next"},
        "sgd_momentum", NUMBER, AT(momentum), 0, 0.999999, NULL},
    {{"weight_decay", "number", "0.1",
         "of matrices; AdamW: times the learning rate; SGD: added to the gradient after clipping, "
         "there 0 by default"},
        "decay", NUMBER, AT(weight_decay), 0, 10, NULL},
    {{"clip_norm", "number", "1", "gradients are scaled down to this norm; 0: they are not"},
        "max_grad_norm", NUMBER, AT(clip_norm), 0, 1e9, NULL},
    {{"seed", "whole number", "1", "of the initial values and the order of the data"},
        "random_seed", WHOLE, AT(seed), 0, 0, NULL},
    {{"spike_sigma", "number", "8",
         "a step whose loss or norm is so many standard deviations above the last 128 is a spike; "
         "0: none is"},
        "spike_threshold", NUMBER, AT(spike_sigma), 0, 1e6, NULL},
    {{"spike", "warn or skip", "warn", "a spike is only noted, or its update is left out"},
        "spike_action", WORD, AT(spike), 0, 0, SPIKE_WORDS},
    {{"max_skipped", "whole number", "3",
         "so many steps in a row without an update (a spike, or a gradient that is not finite) are "
         "a divergence"},
        "nan_tolerance", WHOLE, AT(max_skipped), 1, 0, NULL},
    {{"divergence", "stop or rollback", "stop",
         "the run ends, or goes on from the newest checkpoint with the data after the divergence"},
        "on_nan", WORD, AT(divergence), 0, 0, DIVERGENCE_WORDS},
    {{NULL, NULL, NULL, NULL}, NULL, NUMBER, 0, 0, 0, NULL},
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
    if (x < (int64_t)f->min)
        return err_set(e, RC_INVALID, "training field '%s' must be a whole number, %g or more",
            f->doc.name, f->min);
    *(int64_t *)member = x;
    return RC_OK;
}

/* Enumerations are all of one size. */
static enum rc read_word(void *member, const struct field *f, const struct json *v, struct err *e)
{
    for (int i = 0; f->words[i]; i++)
        if (strcmp(json_as_str(v, ""), f->words[i]) == 0) {
            memcpy(member, &i, sizeof i);
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
    return f->kind == WHOLE ? read_whole(member, f, v, e) : read_word(member, f, v, e);
}

/* What the other optimizer has would do nothing. */
static enum rc check_optimizer(const struct training *t, const struct json *v, struct err *e)
{
    static const struct {
        const char *name;
        enum optimizer of;
    } owned[] = {{"beta1", OPTIMIZER_ADAMW}, {"beta2", OPTIMIZER_ADAMW}, {"eps", OPTIMIZER_ADAMW},
        {"momentum", OPTIMIZER_SGD}};
    for (size_t i = 0; i < BASE_COUNT(owned); i++)
        if (owned[i].of != t->optimizer && json_get(v, owned[i].name))
            return err_set(e, RC_INVALID,
                "training field '%s' is of optimizer %s, and 'optimizer' is %s", owned[i].name,
                OPTIMIZER_WORDS[owned[i].of], OPTIMIZER_WORDS[t->optimizer]);
    return RC_OK;
}

enum optimizer training_optimizer(const struct json *v)
{
    const char *word = json_str(v, "optimizer", OPTIMIZER_WORDS[0]);
    return strcmp(word, OPTIMIZER_WORDS[OPTIMIZER_SGD]) == 0 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
}

enum rc training_from_json(struct training *out, const struct json *v, int64_t steps, struct err *e)
{
    *out = (struct training){.lr = 3e-4,
        .min_lr = -1,
        .warmup_steps = steps / 50,
        .decay_steps = steps / 10,
        .schedule = LR_COSINE,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .momentum = 0.9,
        .weight_decay = -1,
        .clip_norm = 1.0,
        .seed = 1,
        .spike_sigma = 8,
        .max_skipped = 3};
    void *cursor = NULL;
    const char *name;
    const struct json *value;
    enum rc rc = RC_OK;
    while (!rc && json_next(v, &cursor, &name, &value))
        rc = read_field(out, name, value, e);
    if (!rc)
        rc = check_optimizer(out, v, e);
    if (out->weight_decay < 0)
        out->weight_decay = out->optimizer == OPTIMIZER_SGD ? 0 : 0.1;
    if (!rc && out->min_lr > out->lr)
        rc = err_set(e, RC_INVALID, "training field 'min_lr' is %g, more than lr, which is %g",
            out->min_lr, out->lr);
    if (out->min_lr < 0)
        out->min_lr = out->lr / 10;
    return rc;
}

/* Share of the way from lr to min_lr that is behind, from 0 to 1. */
static double decay_done(const struct training *t, int64_t step, int64_t steps)
{
    int64_t first = t->warmup_steps;
    if (t->schedule == LR_WSD && steps - t->decay_steps > first)
        first = steps - t->decay_steps;
    if (t->schedule == LR_CONSTANT || step <= first || steps <= first)
        return 0;
    double done = (double)(step - first) / (double)(steps - first);
    return done < 1 ? done : 1;
}

double training_lr(const struct training *t, int64_t step, int64_t steps)
{
    if (step <= t->warmup_steps)
        return t->lr * (double)step / (double)t->warmup_steps;
    double done = decay_done(t, step, steps);
    double left =
        t->schedule == LR_COSINE ? 0.5 * (1 + cos(3.14159265358979323846 * done)) : 1 - done;
    return t->min_lr + (t->lr - t->min_lr) * left;
}
