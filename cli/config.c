#include "cli/config.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"

enum { CONFIG_FILES = 3, CONFIG_MAX_BYTES = 1 << 20 };

struct entry {
    char *key;
    char **texts;
    size_t n;
    int file;
};

struct config {
    enum origin origins[CONFIG_FILES];
    char *paths[CONFIG_FILES];
    struct entry *entries; /* nearest file first */
    size_t n, cap;
};

/* A number, text or truth value as the user would type it; NULL for anything else. */
static char *text_of(const struct json *v)
{
    if (json_is_str(v))
        return base_strdup(json_as_str(v, ""));
    return json_is_num(v) || json_is_bool(v) ? json_print(v, false) : NULL;
}

static void entry_release(struct entry *it)
{
    for (size_t i = 0; i < it->n; i++)
        free(it->texts[i]);
    free(it->texts);
    free(it->key);
}

static enum rc add_entry(
    struct config *c, int file, const char *key, const struct json *v, struct err *e)
{
    size_t n = json_is_arr(v) ? json_len(v) : 1;
    struct entry it = {base_strdup(key), base_calloc(n + 1, sizeof(char *)), n, file};
    for (size_t i = 0; i < n; i++) {
        it.texts[i] = text_of(json_is_arr(v) ? json_at(v, i) : v);
        if (it.texts[i])
            continue;
        entry_release(&it);
        return err_set(e, RC_INVALID,
            "'%s': setting '%s' must be a text, a number, true, false or an array of them",
            c->paths[file], key);
    }
    BASE_GROW(c->entries, c->cap, c->n + 1);
    c->entries[c->n++] = it;
    return RC_OK;
}

static enum rc load_file(struct config *c, int file, struct err *e)
{
    const char *path = c->paths[file];
    if (!file_exists(path))
        return RC_OK;
    struct json *root;
    enum rc rc = err_input(e, json_read(&root, path, CONFIG_MAX_BYTES, e));
    if (rc)
        return rc;
    if (!json_is_obj(root))
        rc = err_set(e, RC_INVALID, "'%s' must hold one JSON object", path);
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    while (!rc && json_next(root, &cursor, &key, &value))
        rc = add_entry(c, file, key, value, e);
    json_free(root);
    return rc;
}

enum rc config_load(struct config **out, struct err *e)
{
    static const enum origin ORIGINS[CONFIG_FILES] = {ORIGIN_PROJECT, ORIGIN_USER, ORIGIN_SYSTEM};
    struct config *c = base_calloc(1, sizeof(*c));
    char *user = path_user(PATH_CONFIG);
    c->paths[0] = base_strdup("berth.json");
    c->paths[1] = path_join(user, "config.json");
    c->paths[2] = base_strdup("/etc/berth/config.json");
    free(user);
    enum rc rc = RC_OK;
    for (int i = 0; i < CONFIG_FILES && !rc; i++) {
        c->origins[i] = ORIGINS[i];
        rc = load_file(c, i, e);
    }
    *out = rc ? NULL : c;
    if (rc)
        config_free(c);
    return rc;
}

struct config *config_none(void)
{
    return base_calloc(1, sizeof(struct config));
}

void config_free(struct config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        entry_release(&c->entries[i]);
    for (int i = 0; i < CONFIG_FILES; i++)
        free(c->paths[i]);
    free(c->entries);
    free(c);
}

bool config_find(const struct config *c, const char *key, struct config_value *out)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct entry *it = &c->entries[i];
        if (strcmp(it->key, key) != 0)
            continue;
        *out = (struct config_value){
            (const char *const *)it->texts, it->n, c->origins[it->file], c->paths[it->file]};
        return true;
    }
    return false;
}

bool config_key_at(const struct config *c, size_t i, const char **key, const char **path)
{
    if (i >= c->n)
        return false;
    *key = c->entries[i].key;
    *path = c->paths[c->entries[i].file];
    return true;
}
