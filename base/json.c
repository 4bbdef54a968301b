#include "base/json.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "base/text.h"

static json_t *jt(const struct json *v)
{
    return (json_t *)(uintptr_t)v;
}

static struct json *js(json_t *v)
{
    return (struct json *)v;
}

/* Jansson allows 2,048 levels, more than our recursive users want to follow. */
static bool is_too_deep(const char *text, size_t len)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > JSON_MAX_DEPTH)
                return true;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return false;
}

enum rc json_parse(struct json **out, const char *text, size_t len, struct err *e)
{
    *out = NULL;
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) { /* some editors put a mark in front */
        text += 3;
        len -= 3;
    }
    if (is_too_deep(text, len))
        return err_set(e, RC_INVALID, "JSON is nested deeper than %d levels", JSON_MAX_DEPTH);
    json_error_t je;
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
    if (!v)
        return err_set(
            e, RC_INVALID, "not valid JSON: %s (line %d, column %d)", je.text, je.line, je.column);
    *out = js(v);
    return RC_OK;
}

enum rc json_read(struct json **out, const char *path, size_t max_bytes, struct err *e)
{
    *out = NULL;
    struct str s;
    str_init(&s, max_bytes);
    enum rc rc = file_read(&s, path, max_bytes, e);
    if (!rc) {
        rc = json_parse(out, str_text(&s), s.len, e);
        if (rc)
            err_in(e, "'%s'", path);
    }
    str_release(&s);
    return rc;
}

void json_free(struct json *root)
{
    json_decref(jt(root));
}

const struct json *json_get(const struct json *obj, const char *key)
{
    json_t *v = json_object_get(jt(obj), key);
    return json_is_null(v) ? NULL : js(v);
}

bool json_is_obj(const struct json *v)
{
    return json_is_object(jt(v));
}

bool json_is_arr(const struct json *v)
{
    return json_is_array(jt(v));
}

bool json_is_str(const struct json *v)
{
    return json_is_string(jt(v));
}

bool json_is_num(const struct json *v)
{
    return json_is_number(jt(v));
}

bool json_is_int(const struct json *v)
{
    return json_is_integer(jt(v));
}

bool json_is_bool(const struct json *v)
{
    return json_is_boolean(jt(v));
}

size_t json_len(const struct json *arr)
{
    return json_array_size(jt(arr));
}

const struct json *json_at(const struct json *arr, size_t i)
{
    return js(json_array_get(jt(arr), i));
}

bool json_next(const struct json *obj, void **cursor, const char **key, const struct json **value)
{
    if (!json_is_obj(obj))
        return false;
    *cursor = *cursor ? json_object_iter_next(jt(obj), *cursor) : json_object_iter(jt(obj));
    if (!*cursor)
        return false;
    *key = json_object_iter_key(*cursor);
    *value = js(json_object_iter_value(*cursor));
    return true;
}

const char *json_as_str(const struct json *v, const char *def)
{
    return json_is_str(v) ? json_string_value(jt(v)) : def;
}

double json_as_num(const struct json *v, double def)
{
    return json_is_num(v) ? json_number_value(jt(v)) : def;
}

int64_t json_as_int(const struct json *v, int64_t def)
{
    if (json_is_int(v))
        return json_integer_value(jt(v));
    double x = json_as_num(v, NAN);
    /* 1e9 is an integer to people who write job files */
    if (isfinite(x) && fabs(x) < 9e15 && x >= floor(x) && x <= floor(x))
        return (int64_t)x;
    return def;
}

const char *json_str(const struct json *obj, const char *key, const char *def)
{
    return json_as_str(json_get(obj, key), def);
}

double json_num(const struct json *obj, const char *key, double def)
{
    return json_as_num(json_get(obj, key), def);
}

int64_t json_int(const struct json *obj, const char *key, int64_t def)
{
    return json_as_int(json_get(obj, key), def);
}

bool json_as_bool(const struct json *v, bool def)
{
    return json_is_bool(v) ? json_is_true(jt(v)) : def;
}

bool json_bool(const struct json *obj, const char *key, bool def)
{
    return json_as_bool(json_get(obj, key), def);
}

static enum rc wrong(const struct json *obj, const char *key, const char *want, struct err *e)
{
    if (!json_is_obj(obj))
        return err_set(e, RC_INVALID, "expected an object with field '%s'", key);
    if (!json_get(obj, key))
        return err_set(e, RC_INVALID, "field '%s' is missing", key);
    return err_set(e, RC_INVALID, "field '%s' must be %s", key, want);
}

enum rc json_need_str(const struct json *obj, const char *key, const char **out, struct err *e)
{
    const struct json *v = json_get(obj, key);
    if (!json_is_str(v))
        return wrong(obj, key, "a string", e);
    *out = json_as_str(v, "");
    return RC_OK;
}

enum rc json_need_int(
    const struct json *obj, const char *key, int64_t min, int64_t max, int64_t *out, struct err *e)
{
    int64_t x = json_int(obj, key, INT64_MIN);
    if (x == INT64_MIN)
        return wrong(obj, key, "a whole number", e);
    if (x < min || x > max)
        return err_set(e, RC_INVALID, "field '%s' is %lld, must be %lld to %lld", key, (long long)x,
            (long long)min, (long long)max);
    *out = x;
    return RC_OK;
}

enum rc json_need_num(const struct json *obj, const char *key, double *out, struct err *e)
{
    const struct json *v = json_get(obj, key);
    if (!json_is_num(v))
        return wrong(obj, key, "a number", e);
    *out = json_as_num(v, 0);
    return RC_OK;
}

enum rc json_need_arr(
    const struct json *obj, const char *key, const struct json **out, struct err *e)
{
    const struct json *v = json_get(obj, key);
    if (!json_is_arr(v))
        return wrong(obj, key, "an array", e);
    *out = v;
    return RC_OK;
}

enum rc json_need_obj(
    const struct json *obj, const char *key, const struct json **out, struct err *e)
{
    const struct json *v = json_get(obj, key);
    if (!json_is_obj(v))
        return wrong(obj, key, "an object", e);
    *out = v;
    return RC_OK;
}

enum rc json_need_schema(const struct json *obj, const char *schema, struct err *e)
{
    const char *has;
    enum rc rc = json_need_str(obj, "schema", &has, e);
    if (!rc && strcmp(has, schema) != 0)
        rc = err_set(e, RC_INVALID, "schema is '%s', this program reads %s", has, schema);
    return rc;
}

struct json *json_obj(void)
{
    return js(json_object());
}

struct json *json_arr(void)
{
    return js(json_array());
}

static json_t *string_value(const char *s)
{
    if (!s)
        return json_null();
    json_t *v = json_string(s);
    if (v)
        return v;
    char *clean = text_valid_utf8(s);
    v = json_string(clean);
    free(clean);
    return v;
}

static json_t *number_value(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

void json_add(struct json *obj, const char *key, struct json *v)
{
    json_object_set_new(jt(obj), key, v ? jt(v) : json_null());
}

void json_add_str(struct json *obj, const char *key, const char *s)
{
    json_object_set_new(jt(obj), key, string_value(s));
}

void json_add_num(struct json *obj, const char *key, double x)
{
    json_object_set_new(jt(obj), key, number_value(x));
}

void json_add_int(struct json *obj, const char *key, int64_t x)
{
    json_object_set_new(jt(obj), key, json_integer(x));
}

void json_add_bool(struct json *obj, const char *key, bool x)
{
    json_object_set_new(jt(obj), key, json_boolean(x));
}

void json_add_null(struct json *obj, const char *key)
{
    json_object_set_new(jt(obj), key, json_null());
}

void json_push(struct json *arr, struct json *v)
{
    json_array_append_new(jt(arr), v ? jt(v) : json_null());
}

void json_push_str(struct json *arr, const char *s)
{
    json_array_append_new(jt(arr), string_value(s));
}

void json_push_int(struct json *arr, int64_t x)
{
    json_array_append_new(jt(arr), json_integer(x));
}

void json_push_num(struct json *arr, double x)
{
    json_array_append_new(jt(arr), number_value(x));
}

struct json *json_clone(const struct json *v)
{
    return js(json_deep_copy(jt(v)));
}

void json_add_members(struct json *obj, struct json *other)
{
    json_object_update(jt(obj), jt(other));
    json_free(other);
}

char *json_print(const struct json *v, bool is_pretty)
{
    size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(12);
    char *raw = json_dumps(jt(v), flags | (is_pretty ? JSON_INDENT(2) : JSON_COMPACT));
    char *text = raw ? base_printf("%s%s", raw, is_pretty ? "\n" : "") : base_strdup("null");
    free(raw);
    return text;
}

const char *json_library_version(void)
{
    return jansson_version_str();
}
