/* JSON in and out. The only user of the JSON library (Jansson; why: docs/dependencies.md).
 *
 * Reading is strict: bounded depth and size, no duplicate keys, no NaN, valid UTF-8. Numbers are
 * int64 or double. Objects keep the order of their keys, so printing is deterministic. */
#ifndef BASE_JSON_H
#define BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct json; /* one JSON value */

enum { JSON_MAX_DEPTH = 64 };

/* Parse exactly one value out of len bytes. On success *out must be released with json_free. */
enum rc json_parse(struct json **out, const char *text, size_t len, struct err *e);
/* The same for a file of at most max_bytes; "-" is standard input. The sentence names the path. */
enum rc json_read(struct json **out, const char *path, size_t max_bytes, struct err *e);
/* NULL is allowed. Frees the whole tree; only call it on a root. */
void json_free(struct json *root);

/* --- reading; every returned pointer is borrowed, valid until the root is freed --- */

/* Member, or NULL when obj is not an object, lacks the key, or has null there. */
const struct json *json_get(const struct json *obj, const char *key);
bool json_is_obj(const struct json *v);
bool json_is_arr(const struct json *v);
bool json_is_str(const struct json *v);
bool json_is_num(const struct json *v);
bool json_is_int(const struct json *v);
bool json_is_bool(const struct json *v);
/* Elements of an array; 0 for anything else. */
size_t json_len(const struct json *arr);
const struct json *json_at(const struct json *arr, size_t i);
/* Walk the members of an object: pass NULL first. Returns false at the end. */
bool json_next(const struct json *obj, void **cursor, const char **key, const struct json **value);

/* Member if it has the type, else def. */
const char *json_str(const struct json *obj, const char *key, const char *def);
double json_num(const struct json *obj, const char *key, double def);
int64_t json_int(const struct json *obj, const char *key, int64_t def);
bool json_bool(const struct json *obj, const char *key, bool def);
/* Value of v itself if it has the type, else def. */
const char *json_as_str(const struct json *v, const char *def);
double json_as_num(const struct json *v, double def);
int64_t json_as_int(const struct json *v, int64_t def);
bool json_as_bool(const struct json *v, bool def);

/* Member that must be there and have the type (and lie in min..max), else a sentence naming it. */
enum rc json_need_str(const struct json *obj, const char *key, const char **out, struct err *e);
enum rc json_need_int(
    const struct json *obj, const char *key, int64_t min, int64_t max, int64_t *out, struct err *e);
enum rc json_need_num(const struct json *obj, const char *key, double *out, struct err *e);
enum rc json_need_arr(
    const struct json *obj, const char *key, const struct json **out, struct err *e);
enum rc json_need_obj(
    const struct json *obj, const char *key, const struct json **out, struct err *e);
/* Member "schema" must be this one, else a sentence with both. */
enum rc json_need_schema(const struct json *obj, const char *schema, struct err *e);

/* --- building --- */

struct json *json_obj(void);
struct json *json_arr(void);
/* Add to an object under key; json_add takes v (NULL becomes null). Invalid UTF-8 in strings is
 * replaced. A NULL string or a non-finite number becomes null. */
void json_add(struct json *obj, const char *key, struct json *v);
void json_add_str(struct json *obj, const char *key, const char *s);
void json_add_num(struct json *obj, const char *key, double x);
void json_add_int(struct json *obj, const char *key, int64_t x);
void json_add_bool(struct json *obj, const char *key, bool x);
void json_add_null(struct json *obj, const char *key);
/* Append to an array; json_push takes v. */
void json_push(struct json *arr, struct json *v);
void json_push_str(struct json *arr, const char *s);
void json_push_int(struct json *arr, int64_t x);
void json_push_num(struct json *arr, double x);
struct json *json_clone(const struct json *v);
/* Move the members of other (an object; taken) into obj. */
void json_add_members(struct json *obj, struct json *other);

/* Text of a value: one line, or indented when is_pretty (with a newline at the end). Caller frees.
 */
char *json_print(const struct json *v, bool is_pretty);

/* Version of the JSON library in use, e.g. "2.14". */
const char *json_library_version(void);

#endif
