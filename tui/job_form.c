#include "tui/job_form.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "planner/model.h"
#include "planner/profile.h"
#include "tui/argv.h"

enum kind { KIND_MODEL, KIND_COUNT, KIND_USD, KIND_SECONDS, KIND_TEXT, KIND_CHOICE };

static const struct {
    const char *label, *option, *name, *initial, *hint;
    enum kind kind;
    bool is_needed;
    const char *choices; /* separated by '|' */
} fields[JOB_FIELDS] = {
    [JOB_MODEL] = {"model", "--model", "model", "llama-3.1-8b",
        "a preset, or the path of a config.json", KIND_MODEL, true, NULL},
    [JOB_TOKENS] = {"tokens", "--tokens", "tokens", "10B", "to train on, such as 10B", KIND_COUNT,
        true, NULL},
    [JOB_SEQ] = {"sequence", "--seq", "seq", "", "tokens of one sequence; empty: the model's usual",
        KIND_COUNT, false, NULL},
    [JOB_BATCH] = {"batch", "--global-batch-tokens", "global_batch_tokens", "",
        "tokens of an optimizer step, such as 4M", KIND_COUNT, false, NULL},
    [JOB_PRECISION] = {"precision", "--precision", "precision", "bf16",
        "bf16 keeps fp32 master weights", KIND_CHOICE, true, "bf16|fp32|fp8"},
    [JOB_OBJECTIVE] = {"objective", "--objective", "objective", "cost",
        "what the best plan is best at", KIND_CHOICE, true, "cost|time|balanced"},
    [JOB_BUDGET] = {"budget", "--budget-usd", "budget_usd", "", "dollars at most; empty: no limit",
        KIND_USD, false, NULL},
    [JOB_DEADLINE] = {"deadline", "--deadline", "deadline", "", "such as 7d or 36h; empty: none",
        KIND_SECONDS, false, NULL},
    [JOB_MAX_GPUS] = {"GPUs at most", "--max-gpus", "max_gpus", "", "empty: no limit", KIND_COUNT,
        false, NULL},
    [JOB_GPU] = {"GPU", "--gpu", "gpus", "", "only these, such as h100 or h100,a100; empty: any",
        KIND_TEXT, false, NULL},
    [JOB_PROVIDER] = {"provider", "--provider", "providers", "", "only these; empty: any",
        KIND_TEXT, false, NULL},
    [JOB_REGION] = {"region", "--region", "regions", "", "only these; empty: any", KIND_TEXT, false,
        NULL},
    [JOB_SPOT] = {"spot", "--spot", "spot", "no", "offers that can be taken away", KIND_CHOICE,
        true, "no|allow|only"},
    [JOB_ENGINE] = {"engine", "--engine", "engine", "berth",
        "berth is the bundled one; others are predicted, not launched", KIND_CHOICE, true,
        ENGINE_CHOICES},
};

void job_form_init(struct job_form *f)
{
    memset(f, 0, sizeof(*f));
    for (int i = 0; i < JOB_FIELDS; i++)
        line_edit_set(&f->field[i], fields[i].initial);
    job_form_check(f);
}

const char *job_field_label(enum job_field_id id)
{
    return fields[id].label;
}

const char *job_field_hint(enum job_field_id id)
{
    return fields[id].hint;
}

bool job_field_is_choice(enum job_field_id id)
{
    return fields[id].kind == KIND_CHOICE;
}

/* --- choices --- */

static size_t choice_length(const char *choices)
{
    return strcspn(choices, "|");
}

static int choice_count(const char *choices)
{
    int n = 1;
    for (; *choices; choices++)
        n += *choices == '|';
    return n;
}

static const char *choice_at(const char *choices, int i)
{
    for (; i > 0; i--)
        choices += choice_length(choices) + 1;
    return choices;
}

static int choice_index(const char *choices, const char *text)
{
    int n = choice_count(choices);
    for (int i = 0; i < n; i++) {
        const char *c = choice_at(choices, i);
        if (strlen(text) == choice_length(c) && strncmp(c, text, choice_length(c)) == 0)
            return i;
    }
    return -1;
}

void job_form_turn(struct job_form *f, enum job_field_id id, int step)
{
    const char *choices = fields[id].choices;
    if (!choices)
        return;
    int n = choice_count(choices), at = choice_index(choices, f->field[id].text);
    const char *c = choice_at(choices, (at + step + n) % n);
    char text[32];
    snprintf(text, sizeof(text), "%.*s", (int)choice_length(c), c);
    line_edit_set(&f->field[id], text);
    job_form_check(f);
}

/* --- checks --- */

static bool is_path(const char *text)
{
    return strchr(text, '/') || str_ends(text, ".json");
}

const char *job_form_model_match(const struct job_form *f, int i)
{
    const char *name;
    for (int at = 0; (name = model_preset_name(at)); at++) {
        if (strcasestr(name, f->field[JOB_MODEL].text) && i-- == 0)
            return name;
    }
    return NULL;
}

static enum rc check_model(const char *text, struct err *e)
{
    struct model model;
    if (is_path(text)) /* files are not read here: the search will say what is wrong with it */
        return RC_OK;
    return model_find(&model, text, e);
}

static enum rc check_positive(int64_t value, struct err *e)
{
    return value > 0 ? RC_OK : err_set(e, RC_USAGE, "must be more than 0");
}

static enum rc check_value(enum kind kind, const char *text, struct err *e)
{
    int64_t n = 0;
    double s = 0;
    enum rc rc = RC_OK;
    switch (kind) {
    case KIND_MODEL:
        return check_model(text, e);
    case KIND_COUNT:
        rc = units_parse_count(text, &n, e);
        return rc ? rc : check_positive(n, e);
    case KIND_USD:
        rc = units_parse_usd(text, &n, e);
        return rc ? rc : check_positive(n, e);
    case KIND_SECONDS:
        rc = units_parse_seconds(text, &s, e);
        return rc ? rc : check_positive(s > 0, e);
    case KIND_TEXT:
    case KIND_CHOICE:
        break;
    }
    return RC_OK;
}

static void check_field(struct job_form *f, int i)
{
    struct err e = ERR_INIT;
    const char *text = f->field[i].text;
    f->error[i][0] = '\0';
    if (!*text && fields[i].is_needed)
        str_copy(f->error[i], JOB_MESSAGE, "needed");
    else if (*text && check_value(fields[i].kind, text, &e))
        str_copy(f->error[i], JOB_MESSAGE, e.msg);
}

void job_form_check(struct job_form *f)
{
    for (int i = 0; i < JOB_FIELDS; i++)
        check_field(f, i);
    f->version++;
}

bool job_form_is_good(const struct job_form *f)
{
    for (int i = 0; i < JOB_FIELDS; i++) {
        if (f->error[i][0])
            return false;
    }
    return true;
}

/* --- as options --- */

void job_form_argv(const struct job_form *f, struct argv *a)
{
    for (int i = 0; i < JOB_FIELDS; i++) {
        bool is_default =
            fields[i].kind == KIND_CHOICE && choice_index(fields[i].choices, f->field[i].text) == 0;
        if (f->field[i].len > 0 && !is_default)
            argv_option(a, fields[i].option, f->field[i].text);
    }
}

struct json *job_form_json(const struct job_form *f)
{
    struct json *v = json_obj();
    for (int i = 0; i < JOB_FIELDS; i++) {
        if (f->field[i].len > 0)
            json_add_str(v, fields[i].name, f->field[i].text);
    }
    return v;
}

void job_form_summary(const struct job_form *f, char *text, size_t cap)
{
    static const struct {
        enum job_field_id id;
        const char *lead;
    } limits[] = {{JOB_SEQ, ", sequences of "}, {JOB_BUDGET, ", up to $"},
        {JOB_DEADLINE, ", within "}, {JOB_GPU, ", on "}};
    struct str s = STR_INIT;
    str_addf(&s, "%s, %s tokens", f->field[JOB_MODEL].text, f->field[JOB_TOKENS].text);
    for (size_t i = 0; i < BASE_COUNT(limits); i++) {
        if (f->field[limits[i].id].len > 0)
            str_addf(&s, "%s%s", limits[i].lead, f->field[limits[i].id].text);
    }
    str_addf(&s, ", for %s", f->field[JOB_OBJECTIVE].text);
    str_copy(text, cap, str_text(&s));
    str_release(&s);
}
