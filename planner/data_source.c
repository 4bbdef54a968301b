#include "planner/data_source.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"

void data_sources_release(struct data_sources *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->v[i].path);
        free(s->v[i].tokenizer);
        free(s->v[i].field);
        free(s->v[i].prompt);
        free(s->v[i].mask);
    }
    free(s->v);
    *s = (struct data_sources){0};
}

static struct data_source *add(struct data_sources *s)
{
    s->v = base_realloc(s->v, (s->n + 1) * sizeof(*s->v));
    s->v[s->n] = (struct data_source){.eos = -1, .weight = 1};
    return &s->v[s->n++];
}

/* --- words --- */

static enum rc set_kind(struct data_source *d, const char *value, struct err *e)
{
    return data_kind_parse(value, &d->kind, e);
}

static enum rc set_text(char **to, const char *value, const char *what, struct err *e)
{
    if (!*value)
        return err_set(e, RC_INVALID, "it names no %s", what);
    free(*to);
    *to = base_strdup(value);
    return RC_OK;
}

static enum rc set_tokenizer(struct data_source *d, const char *value, struct err *e)
{
    return set_text(&d->tokenizer, value, "file", e);
}

static enum rc set_mask(struct data_source *d, const char *value, struct err *e)
{
    return set_text(&d->mask, value, "file", e);
}

static enum rc set_field(struct data_source *d, const char *value, struct err *e)
{
    return set_text(&d->field, value, "field", e);
}

static enum rc set_prompt(struct data_source *d, const char *value, struct err *e)
{
    return set_text(&d->prompt, value, "field", e);
}

static enum rc check_weight(double weight, struct err *e)
{
    if (weight > 0 && weight <= 1e12)
        return RC_OK;
    return err_set(e, RC_INVALID, "a weight must be more than 0");
}

static enum rc set_weight(struct data_source *d, const char *value, struct err *e)
{
    enum rc rc = units_parse_number(value, &d->weight, e);
    return rc ? rc : check_weight(d->weight, e);
}

static enum rc set_documents(struct data_source *d, const char *value, struct err *e)
{
    d->is_apart = strcmp(value, "apart") == 0;
    if (d->is_apart || strcmp(value, "joined") == 0)
        return RC_OK;
    return err_set(e, RC_INVALID, "documents are joined or apart");
}

static enum rc set_eos(struct data_source *d, const char *value, struct err *e)
{
    return units_parse_count(value, &d->eos, e);
}

static const struct {
    const char *name; /* with its = */
    enum rc (*set)(struct data_source *d, const char *value, struct err *e);
} KEYS[] = {
    {"kind=", set_kind},
    {"tokenizer=", set_tokenizer},
    {"field=", set_field},
    {"prompt-field=", set_prompt},
    {"mask=", set_mask},
    {"weight=", set_weight},
    {"documents=", set_documents},
    {"eos=", set_eos},
};

/* Index of the key that text starts with, -1 when it does with none. */
static int key_at(const char *text)
{
    for (size_t i = 0; i < BASE_COUNT(KEYS); i++)
        if (str_starts(text, KEYS[i].name))
            return (int)i;
    return -1;
}

/* Where the next word that is a key begins, behind a space; paths may hold spaces. */
static size_t value_length(const char *text)
{
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] == ' ' && key_at(text + i + 1) >= 0)
            return i;
    return n;
}

static enum rc set_path(struct data_source *d, const char *path, struct err *e)
{
    static const char *const on_nodes[] = {"host:", "shared:"};
    const char *whole = path;
    for (size_t i = 0; i < BASE_COUNT(on_nodes) && !d->is_on_nodes; i++)
        if (str_starts(path, on_nodes[i])) {
            d->is_on_nodes = true;
            path += strlen(on_nodes[i]);
        }
    if (d->is_on_nodes && path[0] != '/')
        return err_set(e, RC_USAGE, "data '%s' needs an absolute path on the nodes", whole);
    if (!d->is_on_nodes && str_starts(path, "local:"))
        path += strlen("local:");
    if (!*path)
        return err_set(e, RC_USAGE, "data '%s' names no file", whole);
    d->path = base_strdup(path);
    return RC_OK;
}

static enum rc check_places(const struct data_source *d, struct err *e)
{
    const char *const beside[] = {d->tokenizer, d->mask};
    for (size_t i = 0; i < BASE_COUNT(beside); i++)
        if (d->is_on_nodes && beside[i] && beside[i][0] != '/')
            return err_set(e, RC_USAGE,
                "'%s' lies on the nodes as '%s' does and needs an absolute path", beside[i],
                d->path);
    return RC_OK;
}

static enum rc parse_one(struct data_source *d, const char *text, struct err *e)
{
    size_t n = value_length(text);
    char *value = base_strndup(text, n);
    enum rc rc = set_path(d, value, e);
    free(value);
    for (text += n; !rc && *text; text += n) {
        int key = key_at(++text); /* behind the space */
        text += strlen(KEYS[key].name);
        n = value_length(text);
        value = base_strndup(text, n);
        rc = KEYS[key].set(d, value, e);
        if (rc)
            err_in(e, "data '%s': '%s%s'", d->path, KEYS[key].name, value);
        free(value);
    }
    if (!rc && (d->field || d->prompt) && !d->tokenizer)
        rc = err_set(e, RC_USAGE,
            "data '%s' names a field, which only text with a tokenizer=FILE has", d->path);
    return rc ? rc : check_places(d, e);
}

enum rc data_sources_parse(struct data_sources *out, const char *text, struct err *e)
{
    enum rc rc = RC_OK;
    *out = (struct data_sources){0};
    for (size_t n; *text && !rc; text += n + (text[n] != '\0')) {
        n = strcspn(text, DATA_SEPARATOR);
        char *line = base_strndup(text, n);
        if (out->n == DATA_MAX_SOURCES)
            rc = err_set(e, RC_LIMIT, "more than %d data sources", DATA_MAX_SOURCES);
        else
            rc = parse_one(add(out), line, e);
        free(line);
    }
    if (rc)
        data_sources_release(out);
    return rc;
}

/* --- JSON --- */

enum rc data_sources_check_packing(const struct data_sources *s, int64_t doc_tokens, struct err *e)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->v[i].is_apart)
            return RC_OK;
    return doc_tokens == 0
               ? RC_OK
               : err_set(e, RC_USAGE,
                     "documents are to be packed (doc_tokens), and the data join them; say "
                     "documents=apart behind the file");
}

struct json *data_sources_to_json(const struct data_sources *s)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < s->n; i++) {
        const struct data_source *d = &s->v[i];
        struct json *o = json_obj();
        json_add_str(o, "path", d->path);
        json_add_str(o, "kind", data_kind_name(d->kind));
        json_add_str(o, "tokenizer", d->tokenizer);
        json_add_str(o, "field", d->field);
        json_add_str(o, "prompt_field", d->prompt);
        json_add_str(o, "mask", d->mask);
        json_add_num(o, "weight", d->weight);
        json_add_bool(o, "documents_apart", d->is_apart);
        if (d->eos >= 0)
            json_add_int(o, "eos", d->eos);
        json_push(list, o);
    }
    return list;
}

static char *text_of(const struct json *o, const char *key)
{
    const char *text = json_str(o, key, NULL);
    return text ? base_strdup(text) : NULL;
}

static enum rc read_one(struct data_source *d, const struct json *o, struct err *e)
{
    const char *path;
    enum rc rc = json_need_str(o, "path", &path, e);
    if (rc)
        return rc;
    d->is_on_nodes = true;
    d->path = base_strdup(path);
    d->tokenizer = text_of(o, "tokenizer");
    d->field = text_of(o, "field");
    d->prompt = text_of(o, "prompt_field");
    d->mask = text_of(o, "mask");
    d->weight = json_num(o, "weight", 1);
    d->is_apart = json_bool(o, "documents_apart", false);
    d->eos = json_int(o, "eos", -1);
    rc = data_kind_parse(json_str(o, "kind", "auto"), &d->kind, e);
    return rc ? rc : check_weight(d->weight, e);
}

enum rc data_sources_from_json(struct data_sources *out, const struct json *v, struct err *e)
{
    enum rc rc = RC_OK;
    *out = (struct data_sources){0};
    if (json_len(v) < 1 || json_len(v) > DATA_MAX_SOURCES)
        return err_set(e, RC_INVALID, "'sources' must list 1 to %d files", DATA_MAX_SOURCES);
    for (size_t i = 0; i < json_len(v) && !rc; i++)
        rc = read_one(add(out), json_at(v, i), e);
    if (rc)
        data_sources_release(out);
    return rc;
}
