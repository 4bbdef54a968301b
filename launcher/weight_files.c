#include "launcher/weight_files.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "run/names.h"

enum { INDEX_MAX_BYTES = 64 << 20, CONFIG_MAX_BYTES = 1 << 20 };

#define ONE_FILE "model.safetensors"
#define INDEX    "model.safetensors.index.json"

const char *weight_files_name(const struct weight_files *w, size_t i)
{
    return strrchr(w->file[i].local, '/') + 1;
}

static bool has_name(const struct weight_files *w, const char *name)
{
    for (size_t i = 0; i < w->count; i++)
        if (strcmp(weight_files_name(w, i), name) == 0)
            return true;
    return false;
}

static enum rc add(struct weight_files *w, const char *dir, const char *name, struct err *e)
{
    if (has_name(w, name))
        return RC_OK;
    w->file = base_realloc(w->file, (w->count + 1) * sizeof(*w->file));
    char *path = path_join(dir, name);
    enum rc rc = stage_file_init(&w->file[w->count], path, 0600, e);
    w->bytes += rc ? 0 : w->file[w->count].bytes;
    w->count++;
    return rc;
}

/* The files that an index names; names come from it, and only those beside it are followed. */
static enum rc add_indexed(struct weight_files *w, const char *dir, const char *name, struct err *e)
{
    struct json *root = NULL;
    const struct json *map = NULL, *value;
    const char *tensor;
    void *cursor = NULL;
    char *index = path_join(dir, name);
    enum rc rc = err_input(e, json_read(&root, index, INDEX_MAX_BYTES, e));
    if (!rc && json_need_obj(root, "weight_map", &map, e))
        rc = err_in(e, "'%s'", index);
    while (!rc && json_next(map, &cursor, &tensor, &value)) {
        const char *file = json_as_str(value, "");
        if (!*file || *file == '.' || strchr(file, '/'))
            rc = err_set(e, RC_INVALID, "'%s' names '%s', which is no file beside it", index, file);
        else if (w->count >= WEIGHT_FILES_MAX)
            rc = err_set(e, RC_LIMIT, "'%s' names more than %d files", index, WEIGHT_FILES_MAX);
        else
            rc = add(w, dir, file, e);
    }
    json_free(root);
    free(index);
    return rc ? rc : add(w, dir, name, e);
}

static bool has_file(const char *dir, const char *name)
{
    char *path = path_join(dir, name);
    bool is_there = file_is_regular(path);
    free(path);
    return is_there;
}

static enum rc add_folder(struct weight_files *w, const char *dir, struct err *e)
{
    if (has_file(dir, ONE_FILE))
        return add(w, dir, ONE_FILE, e);
    if (has_file(dir, INDEX))
        return add_indexed(w, dir, INDEX, e);
    return err_set(e, RC_INVALID, "'%s' holds neither " ONE_FILE " nor " INDEX, dir);
}

/* By names and contents in the order of names: the same files are not sent twice. */
static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct stage_file *)a)->local, ((const struct stage_file *)b)->local);
}

static void hash_all(struct weight_files *w)
{
    struct str s = STR_INIT;
    qsort(w->file, w->count, sizeof(*w->file), by_name);
    for (size_t i = 0; i < w->count; i++)
        str_addf(&s, "%s %s\n", w->file[i].sha256, weight_files_name(w, i));
    hash_sha256(str_text(&s), s.len, w->sha256);
    str_release(&s);
}

enum rc weight_files_place(const char **local, char **node_path, const char *text, struct err *e)
{
    static const char *const there[] = {"host:", "shared:"};
    free(*node_path);
    *node_path = NULL;
    *local = NULL;
    for (size_t i = 0; i < BASE_COUNT(there); i++) {
        const char *path = text + strlen(there[i]);
        if (!str_starts(text, there[i]))
            continue;
        if (path[0] != '/')
            return err_set(e, RC_USAGE, "weights '%s' need an absolute path on the nodes", text);
        *node_path = base_strdup(path);
        return RC_OK;
    }
    *local = str_starts(text, "local:") ? text + strlen("local:") : text;
    return RC_OK;
}

enum rc weight_files_open(struct weight_files *out, const char *path, struct err *e)
{
    *out = (struct weight_files){.local = base_strdup(path), .name = ""};
    char *dir = base_strdup(path), *slash;
    enum rc rc;
    if (!file_exists(path)) {
        rc = err_set(e, RC_INVALID, "cannot open '%s'", path);
    } else if (!file_is_regular(path)) {
        rc = add_folder(out, dir, e);
    } else {
        slash = strrchr(dir, '/');
        out->name = slash ? out->local + (slash + 1 - dir) : out->local;
        if (slash)
            slash[slash == dir] = '\0';
        else
            memcpy(dir, ".", 2); /* the path has a byte at least */
        rc = str_ends(path, ".json") ? add_indexed(out, dir, out->name, e)
                                     : add(out, dir, out->name, e);
    }
    if (!rc && has_file(dir, "config.json"))
        rc = add(out, dir, "config.json", e);
    if (!rc)
        hash_all(out);
    free(dir);
    return rc;
}

enum rc weight_files_check(const struct weight_files *w, const struct model *m, struct err *e)
{
    struct json *config = NULL;
    struct model theirs;
    char how[MODEL_DIFFERENCE];
    size_t i = 0;
    while (i < w->count && strcmp(weight_files_name(w, i), "config.json") != 0)
        i++;
    if (i == w->count)
        return RC_OK;
    enum rc rc = err_input(e, json_read(&config, w->file[i].local, CONFIG_MAX_BYTES, e));
    if (!rc && model_from_config(&theirs, config, e))
        rc = err_in(e, "'%s'", w->file[i].local);
    if (!rc && model_differs(&theirs, m, how))
        rc = err_set(e, RC_INVALID, "'%s' is of another model than the plan's '%s': its %s",
            w->file[i].local, m->name, how);
    json_free(config);
    return rc;
}

char *weight_files_node_path(const struct weight_files *w, const char *workdir, const char *name)
{
    char *dir = run_data_dir(workdir, w->sha256);
    char *path = *name ? path_join(dir, name) : base_strdup(dir);
    free(dir);
    return path;
}

void weight_files_release(struct weight_files *w)
{
    for (size_t i = 0; i < w->count; i++)
        free((char *)(uintptr_t)w->file[i].local);
    free(w->file);
    free(w->local);
    *w = (struct weight_files){0};
}
