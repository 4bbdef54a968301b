#include "cli/options.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/config.h"

struct value {
    char *text;
    int64_t integer;
    double number;
};

/* One option of the groups with what was said about it. */
struct slot {
    const struct option *option;
    enum origin origin;
    struct value *values;
    size_t n, cap;
};

struct args {
    struct slot *slots;
    size_t n_slots, slots_cap;
    char **operands;
    size_t n_operands, operands_cap;
};

/* --- describing ------------------------------------------------------------------------------- */

const char *origin_name(enum origin o)
{
    static const char *const NAMES[] = {
        "flag", "environment", "project file", "user file", "system file", "default"};
    return NAMES[o];
}

const char *option_argument(const struct option *o)
{
    static const char *const NAMES[] = {
        NULL, "TEXT", "FILE", NULL, "N", "X", "SIZE", "DURATION", "USD"};
    if (o->argument)
        return o->argument;
    return o->kind == OPTION_CHOICE ? o->choices : NAMES[o->kind];
}

const char *option_since(const struct option *o)
{
    return o->since ? o->since : "0.1";
}

void option_put_choices(const struct option *o, struct str *s)
{
    for (const char *p = o->choices; *p; p++)
        str_add(s, *p == '|' ? ", " : (const char[]){*p, '\0'});
}

char *option_key(const struct option *o, char buf[64])
{
    size_t i = 0;
    for (; o->name[i] && i < 63; i++)
        buf[i] = o->name[i] == '-' ? '_' : o->name[i];
    buf[i] = '\0';
    return buf;
}

char *option_env(const struct option *o, char buf[64])
{
    char key[64];
    snprintf(buf, 64, "BERTH_%.57s", option_key(o, key));
    for (char *p = buf; *p; p++)
        *p = (char)toupper((unsigned char)*p);
    return buf;
}

const char *nearest_word(const char *word, const char *const *words, size_t n)
{
    const char *best = NULL;
    int best_distance = 1 + (int)strlen(word) / 3;
    for (size_t i = 0; i < n; i++) {
        int d = str_distance(word, words[i]);
        bool is_start = strlen(word) >= 2 && str_starts(words[i], word);
        if (is_start && d > 1)
            d = 1;
        if (d <= best_distance && (!best || d < best_distance)) {
            best = words[i];
            best_distance = d;
        }
    }
    return best;
}

/* Index of text among "a|b|c", -1 when it is none of them. */
static int choice_index(const char *choices, const char *text)
{
    size_t len = strlen(text);
    int index = 0;
    for (const char *p = choices;; index++) {
        size_t n = strcspn(p, "|");
        if (n == len && strncmp(p, text, n) == 0)
            return index;
        if (!p[n])
            return -1;
        p += n + 1;
    }
}

static enum rc check_flag(const char *text, int64_t *integer, struct err *e)
{
    static const char *const WORDS[] = {"false", "true", "0", "1", "no", "yes"};
    for (size_t i = 0; i < BASE_COUNT(WORDS); i++) {
        *integer = (int64_t)(i % 2);
        if (strcmp(text, WORDS[i]) == 0)
            return RC_OK;
    }
    return err_set(e, RC_USAGE, "'%s' must be true or false (1 or 0, yes or no)", text);
}

enum rc option_check(
    const struct option *o, const char *text, int64_t *integer, double *number, struct err *e)
{
    enum rc rc = RC_OK;
    *integer = 0;
    *number = 0;
    switch (o->kind) {
    case OPTION_FLAG:
        rc = check_flag(text, integer, e);
        break;
    case OPTION_TEXT:
    case OPTION_FILE:
        if (!*text)
            rc = err_set(e, RC_USAGE, "the value is empty");
        break;
    case OPTION_CHOICE:
        *integer = choice_index(o->choices, text);
        if (*integer < 0)
            rc = err_set(e, RC_USAGE, "'%s' is not one of %s", text, o->choices);
        break;
    case OPTION_COUNT:
        rc = units_parse_count(text, integer, e);
        break;
    case OPTION_BYTES:
        rc = units_parse_bytes(text, integer, e);
        break;
    case OPTION_USD:
        rc = units_parse_usd(text, integer, e);
        break;
    case OPTION_NUMBER:
        return units_parse_number(text, number, e);
    case OPTION_SECONDS:
        return units_parse_seconds(text, number, e);
    }
    *number = (double)*integer;
    return rc;
}

/* --- slots ------------------------------------------------------------------------------------ */

struct args *args_new(const struct option_group *const *groups)
{
    struct args *a = base_calloc(1, sizeof(*a));
    for (; *groups; groups++)
        for (const struct option *o = (*groups)->options; o->name; o++) {
            BASE_GROW(a->slots, a->slots_cap, a->n_slots + 1);
            a->slots[a->n_slots++] = (struct slot){.option = o, .origin = ORIGIN_DEFAULT};
        }
    return a;
}

static void slot_clear(struct slot *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->values[i].text);
    s->n = 0;
}

void args_free(struct args *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->n_slots; i++) {
        slot_clear(&a->slots[i]);
        free(a->slots[i].values);
    }
    for (size_t i = 0; i < a->n_operands; i++)
        free(a->operands[i]);
    free(a->operands);
    free(a->slots);
    free(a);
}

static bool is_word(const char *word, const char *text, size_t len)
{
    return strncmp(word, text, len) == 0 && word[len] == '\0';
}

static struct slot *find_slot(const struct args *a, const char *name, size_t len)
{
    for (size_t i = 0; i < a->n_slots; i++) {
        const struct option *o = a->slots[i].option;
        if (is_word(o->name, name, len) || (o->alias && is_word(o->alias, name, len)))
            return &a->slots[i];
    }
    return NULL;
}

static struct slot *find_letter(const struct args *a, char letter)
{
    for (size_t i = 0; i < a->n_slots; i++)
        if (a->slots[i].option->letter == letter)
            return &a->slots[i];
    return NULL;
}

static const struct slot *need_slot(const struct args *a, const char *name)
{
    const struct slot *s = find_slot(a, name, strlen(name));
    assert(s && "an option that the command does not list");
    return s;
}

/* Record a value; a better origin replaces, the same origin appends or, for single ones, wins. */
static enum rc slot_set(struct slot *s, const char *text, enum origin origin, struct err *e)
{
    struct value v = {0};
    enum rc rc = option_check(s->option, text, &v.integer, &v.number, e);
    if (rc)
        return rc;
    if (origin != s->origin || !s->option->is_repeatable)
        slot_clear(s);
    s->origin = origin;
    BASE_GROW(s->values, s->cap, s->n + 1);
    v.text = base_strdup(text);
    s->values[s->n++] = v;
    return RC_OK;
}

/* --- parsing ---------------------------------------------------------------------------------- */

static enum rc set_from_flag(struct slot *s, const char *text, struct err *e)
{
    if (!slot_set(s, text, ORIGIN_FLAG, e))
        return RC_OK;
    err_in(e, "option '--%s'", s->option->name);
    e->code = RC_USAGE;
    return RC_USAGE;
}

static bool is_pair(const char *word)
{
    return word[0] != '-' && strchr(word, '=');
}

/* The value, and of an option that takes pairs those that follow it at argv[*i]. */
static enum rc set_with_pairs(
    struct slot *s, const char *text, int argc, char *const *argv, int *i, struct err *e)
{
    struct str all = STR_INIT;
    if (!s->option->takes_pairs)
        return set_from_flag(s, text, e);
    str_add(&all, text);
    while (*i + 1 < argc && is_pair(argv[*i + 1]))
        str_addf(&all, " %s", argv[++*i]);
    enum rc rc = set_from_flag(s, str_text(&all), e);
    str_release(&all);
    return rc;
}

static enum rc unknown_option(const struct args *a, const char *name, size_t len, struct err *e)
{
    const char **words = base_alloc(a->n_slots * sizeof(*words));
    for (size_t i = 0; i < a->n_slots; i++)
        words[i] = a->slots[i].option->name;
    char *typed = base_strndup(name, len);
    const char *near = nearest_word(typed, words, a->n_slots);
    if (near)
        err_set(e, RC_USAGE, "unknown option '--%s'; did you mean '--%s'?", typed, near);
    else
        err_set(e, RC_USAGE, "unknown option '--%s'", typed);
    free(typed);
    free(words);
    return RC_USAGE;
}

static enum rc missing_value(const struct option *o, struct err *e)
{
    return err_set(
        e, RC_USAGE, "option '--%s' needs a value: --%s %s", o->name, o->name, option_argument(o));
}

/* One "--name", "--name=value" or "--name value" at argv[*i]. */
static enum rc take_long(struct args *a, int argc, char *const *argv, int *i, struct err *e)
{
    const char *name = argv[*i] + 2;
    size_t len = strcspn(name, "=");
    struct slot *s = find_slot(a, name, len);
    if (!s)
        return unknown_option(a, name, len, e);
    if (name[len] == '=')
        return set_with_pairs(s, name + len + 1, argc, argv, i, e);
    if (s->option->kind == OPTION_FLAG)
        return set_from_flag(s, "true", e);
    if (*i + 1 >= argc)
        return missing_value(s->option, e);
    ++*i;
    return set_with_pairs(s, argv[*i], argc, argv, i, e);
}

/* A cluster of letters, "-qy", "-o FILE" or "-oFILE". */
static enum rc take_short(struct args *a, int argc, char *const *argv, int *i, struct err *e)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        struct slot *s = find_letter(a, *p);
        if (!s)
            return err_set(e, RC_USAGE, "unknown option '-%c'", *p);
        if (s->option->kind == OPTION_FLAG) {
            enum rc rc = set_from_flag(s, "true", e);
            if (rc)
                return rc;
            continue;
        }
        if (p[1])
            return set_from_flag(s, p + 1, e);
        if (*i + 1 >= argc)
            return missing_value(s->option, e);
        return set_from_flag(s, argv[++*i], e);
    }
    return RC_OK;
}

static void add_operand(struct args *a, const char *text)
{
    BASE_GROW(a->operands, a->operands_cap, a->n_operands + 1);
    a->operands[a->n_operands++] = base_strdup(text);
}

static enum rc parse(
    struct args *a, int argc, char *const *argv, int *stop_at_operand, struct err *e)
{
    bool only_operands = false;
    int i = 0;
    for (; i < argc; i++) {
        const char *word = argv[i];
        bool is_option = !only_operands && word[0] == '-' && word[1];
        enum rc rc = RC_OK;
        if (is_option && strcmp(word, "--") == 0)
            only_operands = true;
        else if (is_option)
            rc =
                word[1] == '-' ? take_long(a, argc, argv, &i, e) : take_short(a, argc, argv, &i, e);
        else if (stop_at_operand)
            break;
        else
            add_operand(a, word);
        if (rc)
            return rc;
    }
    if (stop_at_operand)
        *stop_at_operand = i;
    return RC_OK;
}

enum rc args_parse(struct args *a, int argc, char *const *argv, struct err *e)
{
    return parse(a, argc, argv, NULL, e);
}

enum rc args_parse_until_operand(
    struct args *a, int argc, char *const *argv, int *used, struct err *e)
{
    return parse(a, argc, argv, used, e);
}

static enum rc settle_slot(struct slot *s, const struct config *config, struct err *e)
{
    char env[64], key[64];
    if (s->n || !s->option->is_setting)
        return RC_OK;
    const char *text = getenv(option_env(s->option, env));
    if (text && *text) {
        enum rc rc = slot_set(s, text, ORIGIN_ENV, e);
        return rc ? err_in(e, "environment variable '%s'", env) : RC_OK;
    }
    struct config_value found;
    if (!config || !config_find(config, option_key(s->option, key), &found))
        return RC_OK;
    for (size_t i = 0; i < found.n; i++) {
        enum rc rc = slot_set(s, found.texts[i], found.origin, e);
        if (rc)
            return err_in(e, "'%s': setting '%s'", found.path, key);
    }
    return RC_OK;
}

enum rc args_settle(struct args *a, const struct config *config, struct err *e)
{
    for (size_t i = 0; i < a->n_slots; i++) {
        enum rc rc = settle_slot(&a->slots[i], config, e);
        if (rc)
            return rc;
    }
    return RC_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

bool args_has(const struct args *a, const char *name)
{
    return need_slot(a, name)->n > 0;
}

enum origin args_origin(const struct args *a, const char *name)
{
    return need_slot(a, name)->origin;
}

/* The last value, else the default's; false when there is neither. */
static bool last_value(const struct args *a, const char *name, struct value *out)
{
    const struct slot *s = need_slot(a, name);
    if (s->n) {
        *out = s->values[s->n - 1];
        return true;
    }
    if (!s->option->def)
        return false;
    out->text = NULL;
    enum rc rc = option_check(s->option, s->option->def, &out->integer, &out->number, NULL);
    assert(!rc && "a default that its own option refuses");
    return !rc;
}

bool args_flag(const struct args *a, const char *name)
{
    struct value v;
    return last_value(a, name, &v) && v.integer != 0;
}

const char *args_text(const struct args *a, const char *name)
{
    const struct slot *s = need_slot(a, name);
    return s->n ? s->values[s->n - 1].text : s->option->def;
}

int64_t args_int(const struct args *a, const char *name, int64_t def)
{
    struct value v;
    return last_value(a, name, &v) ? v.integer : def;
}

double args_num(const struct args *a, const char *name, double def)
{
    struct value v;
    return last_value(a, name, &v) ? v.number : def;
}

int args_choice(const struct args *a, const char *name)
{
    struct value v;
    return last_value(a, name, &v) ? (int)v.integer : -1;
}

size_t args_times(const struct args *a, const char *name)
{
    return need_slot(a, name)->n;
}

const char *args_nth(const struct args *a, const char *name, size_t i)
{
    const struct slot *s = need_slot(a, name);
    return i < s->n ? s->values[i].text : NULL;
}

size_t args_operands(const struct args *a)
{
    return a->n_operands;
}

const char *args_operand(const struct args *a, size_t i)
{
    return i < a->n_operands ? a->operands[i] : NULL;
}
