#include "engine/saved.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/checkpoint_files.h"
#include "engine/safetensors.h"
#include "run/names.h"

struct saved {
    char *dir;
    struct json *manifest;
    struct model model;
    int64_t step;
    int n_files;
    struct st_reader **reader; /* by file, opened when first needed */
    float *target;             /* of the piece being read */
};

/* --- which folder --- */

static bool is_step(const char *dir)
{
    char *manifest = path_join(dir, RUN_FILE_MANIFEST);
    bool is_there = file_exists(manifest);
    free(manifest);
    return is_there;
}

static int64_t newest_in(const char *dir)
{
    int64_t best = -1;
    DIR *d = opendir(dir);
    const struct dirent *entry;
    while (d && (entry = readdir(d))) {
        int64_t step = run_step_of(entry->d_name);
        best = step > best ? step : best;
    }
    if (d)
        closedir(d);
    return best;
}

static enum rc find_folder(struct saved *s, const char *path, struct err *e)
{
    char name[RUN_STEP_TEXT];
    if (!file_exists(path))
        return err_set(e, RC_NOT_FOUND, "there is no folder '%s'", path);
    if (is_step(path)) {
        s->dir = base_strdup(path);
        return RC_OK;
    }
    int64_t step = newest_in(path);
    if (step < 0)
        return err_set(e, RC_NOT_FOUND,
            "'%s' is no checkpoint and holds none: no " RUN_FILE_MANIFEST ", no %s folders", path,
            RUN_STEP_PREFIX "N");
    s->dir = path_join(path, run_step_name(name, step));
    return RC_OK;
}

/* --- the manifest --- */

static enum rc read_manifest(struct saved *s, struct err *e)
{
    struct str text;
    str_init(&text, CKPT_MANIFEST_MAX);
    char *path = path_join(s->dir, RUN_FILE_MANIFEST);
    enum rc rc = file_read(&text, path, CKPT_MANIFEST_MAX, e);
    if (!rc && !checkpoint_manifest_is_sealed(str_text(&text), text.len))
        rc = err_set(e, RC_INVALID, "'%s' is damaged, or not a manifest of this version", path);
    if (!rc)
        rc = json_parse(&s->manifest, str_text(&text), text.len, e);
    if (!rc)
        rc = json_need_int(s->manifest, "step", 0, INT64_MAX, &s->step, e);
    if (!rc)
        rc = model_from_json(&s->model, json_get(s->manifest, "model"), e);
    free(path);
    str_release(&text);
    return rc;
}

static enum rc check_files(struct saved *s, struct err *e)
{
    size_t n = json_len(json_get(s->manifest, "files"));
    if (n == 0 || n > CKPT_MAX_FILES)
        return err_set(e, RC_INVALID, "the manifest lists %zu files", n);
    s->n_files = (int)n;
    s->reader = base_calloc(n, sizeof(struct st_reader *));
    for (int f = 0; f < s->n_files; f++)
        if (!checkpoint_file_is_sound(s->dir, s->manifest, f)) {
            char name[40];
            char *path = path_join(s->dir, checkpoint_file_name(name, f));
            enum rc rc = err_set(e, RC_INVALID, "'%s' is %s", path,
                file_exists(path) ? "damaged: its size or hash is not what the manifest says"
                                  : "missing; it may be on another host (berth fetch brings all)");
            free(path);
            return rc;
        }
    return RC_OK;
}

static struct piece piece_of(
    const struct saved *s, int unit, const struct tensor *t, int64_t first, int64_t count)
{
    struct piece p = {.rows = t->rows, .cols = t->cols, .first = first, .count = count};
    checkpoint_piece_name(p.name, &s->model, unit, t->role,
        checkpoint_state_name(OPTIMIZER_ADAMW, STATE_MASTER)); /* of every optimizer */
    return p;
}

static enum rc need_next(void *arg, const struct piece *p, int file, int64_t entry_offset,
    int64_t piece_offset, int64_t count, struct err *e)
{
    int64_t *next = arg;
    if (piece_offset != *next)
        return err_set(e, RC_INVALID, "the checkpoint holds elements of '%s' twice", p->name);
    *next += count;
    return RC_OK;
}

/* Every element once: shards follow each other in the manifest. */
static enum rc check_tensors(const struct saved *s, struct err *e)
{
    for (int unit = 0; unit < model_units(&s->model); unit++) {
        struct unit_layout u;
        model_unit_layout(&s->model, unit, 1, &u);
        for (int i = 0; i < u.n; i++) {
            const struct tensor *t = &u.tensor[i];
            struct piece all = piece_of(s, unit, t, 0, t->rows * t->cols);
            int64_t next = 0;
            enum rc rc = checkpoint_each_extent(s->manifest, &all, need_next, &next, e);
            if (rc)
                return rc;
        }
    }
    return RC_OK;
}

/* --- life cycle --- */

enum rc saved_open(struct saved **out, const char *path, struct err *e)
{
    struct saved *s = base_calloc(1, sizeof(*s));
    *out = NULL;
    enum rc rc = find_folder(s, path, e);
    if (!rc) {
        rc = read_manifest(s, e);
        if (!rc)
            rc = check_files(s, e);
        if (!rc)
            rc = check_tensors(s, e);
        if (rc)
            err_in(e, "checkpoint '%s'", s->dir);
    }
    if (rc)
        saved_close(s);
    else
        *out = s;
    return rc;
}

void saved_close(struct saved *s)
{
    if (!s)
        return;
    for (int f = 0; f < s->n_files; f++)
        st_close(s->reader[f]);
    free(s->reader);
    json_free(s->manifest);
    free(s->dir);
    free(s);
}

const struct model *saved_model(const struct saved *s)
{
    return &s->model;
}

int64_t saved_step(const struct saved *s)
{
    return s->step;
}

/* --- values --- */

static enum rc read_extent(void *arg, const struct piece *p, int file, int64_t entry_offset,
    int64_t piece_offset, int64_t count, struct err *e)
{
    struct saved *s = arg;
    return checkpoint_read_extent(s->dir, &s->reader[file], p->name,
        &(struct extent){file, entry_offset, count}, s->target + piece_offset, e);
}

enum rc saved_read(struct saved *s, int unit, enum tensor_role role, int64_t first, int64_t count,
    float *out, struct err *e)
{
    struct unit_layout u;
    model_unit_layout(&s->model, unit, 1, &u);
    struct piece p = piece_of(s, unit, unit_tensor(&u, role), first, count);
    s->target = out;
    return checkpoint_each_extent(s->manifest, &p, read_extent, s, e);
}
