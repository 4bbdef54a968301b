#include "launcher/fetch.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "launcher/client_private.h"
#include "launcher/script.h"
#include "run/spec.h"

enum { LIST_TIMEOUT_S = 120, MAX_FILES = 65536, MANIFEST_MAX_BYTES = 256 << 20 };

/* A file of a checkpoint on a node. */
struct remote_file {
    char name[64];
    int64_t step, bytes;
    size_t host; /* index in the fan */
};

/* A file to bring. */
struct wanted {
    char name[64], xxh128[HASH128_HEX]; /* "": nobody says */
    int64_t bytes;
    size_t tried; /* hosts that have it and were asked */
    size_t host;  /* that is asked now */
    bool is_good, was_begun;
};

struct fetching {
    struct client *c;
    struct fan *fan;
    char **folders; /* per host: where its checkpoints lie */
    struct remote_file *v;
    size_t count, cap;
    const char *dir;
    char *final, *part; /* local folder of the step, and as long as it is being filled */
    int64_t step;
    struct wanted *wanted;
    size_t wanted_count;
    size_t *queue; /* per host: index of its next wanted file */
    struct get *transfers;
    char **remote, **local; /* per host: paths of the file in transfer */
    struct fetch_progress progress;
    void (*tick)(void *ctx, const struct fetch_progress *p);
    void *ctx;
};

/* --- what there is --- */

/* Names come from nodes: nothing that could leave the folder, nothing hidden. */
static bool is_file_name(const char *name)
{
    size_t n = strlen(name);
    return n > 0 && n < 64 && name[0] != '.' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static enum rc take_line(struct fetching *f, size_t host, char *line, struct err *e)
{
    char *save = NULL, *step = strtok_r(line, " ", &save), *bytes = strtok_r(NULL, " ", &save);
    char *name = strtok_r(NULL, " ", &save), *end = NULL;
    if (!step || !bytes || !name || !is_file_name(name))
        return RC_OK;
    struct remote_file file = {.host = host, .step = strtoll(step, &end, 10)};
    if (*end || file.step < 0)
        return RC_OK;
    file.bytes = strtoll(bytes, &end, 10);
    if (*end || file.bytes < 0)
        return RC_OK;
    if (f->count == MAX_FILES)
        return err_set(e, RC_LIMIT, "the nodes have more than %d checkpoint files", MAX_FILES);
    str_copy(file.name, sizeof(file.name), name);
    BASE_GROW(f->v, f->cap, f->count + 1);
    f->v[f->count++] = file;
    return RC_OK;
}

static enum rc list_files(struct fetching *f, struct err *e)
{
    struct script *scripts = scripts_new(f->fan->count);
    struct err partly = ERR_INIT;
    for (size_t i = 0; i < f->fan->count; i++) {
        script_set(&scripts[i].text, "dir", f->folders[i]);
        str_add(&scripts[i].text,
            "cd \"$dir\" 2>/dev/null || exit 0\n"
            "for p in step-*/*; do\n"
            "  s=${p%%/*}; s=${s#step-}\n"
            "  case $s in *[!0-9]*) continue ;; esac\n"
            "  [ -f \"$p\" ] && echo \"$s $(wc -c <\"$p\" | tr -d ' ') ${p#*/}\"\n"
            "done\ntrue\n");
    }
    enum rc rc = scripts_run(f->fan, "listing checkpoints", scripts, LIST_TIMEOUT_S, &partly);
    if (rc == RC_INTERRUPTED)
        *e = partly;
    else
        rc = RC_OK; /* hosts that are out may not be needed */
    for (size_t i = 0; !rc && i < f->fan->count; i++) {
        char *text = base_strdup(str_text(&scripts[i].out)), *save = NULL;
        for (char *line = strtok_r(text, "\n", &save); !rc && line;
             line = strtok_r(NULL, "\n", &save))
            rc = take_line(f, i, line, e);
        free(text);
    }
    scripts_free(scripts, f->fan->count);
    return rc;
}

/* --- transfer --- */

/* The next host that has the file as it should be, behind those that were tried; false: none. */
static bool assign(struct fetching *f, struct wanted *w)
{
    size_t seen = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct remote_file *v = &f->v[i];
        if (v->step != f->step || v->bytes != w->bytes || strcmp(v->name, w->name) != 0)
            continue;
        if (seen++ < w->tried)
            continue;
        w->tried++;
        if (f->fan->v[v->host].err.code)
            continue;
        w->host = v->host;
        return true;
    }
    return false;
}

static char *local_path(const struct fetching *f, const struct wanted *w)
{
    return path_join(f->part, w->name);
}

/* Set up host i's next file; false when it has none left. */
static bool next_file(struct fetching *f, size_t i)
{
    size_t *q = &f->queue[i];
    while (*q < f->wanted_count && (f->wanted[*q].host != i || f->wanted[*q].is_good))
        ++*q;
    if (*q >= f->wanted_count)
        return false;
    struct wanted *w = &f->wanted[*q];
    char step[RUN_STEP_TEXT];
    free(f->remote[i]);
    free(f->local[i]);
    f->remote[i] = base_printf("%s/%s/%s", f->folders[i], run_step_name(step, f->step), w->name);
    f->local[i] = local_path(f, w);
    if (file_size(f->local[i]) > w->bytes)
        unlink(f->local[i]); /* of another file than this one */
    w->was_begun = file_size(f->local[i]) > 0;
    f->transfers[i] = (struct get){.remote = f->remote[i], .local = f->local[i]};
    return true;
}

static enum progress step_get(void *ctx, size_t i, struct err *e)
{
    struct fetching *f = ctx;
    struct transport *t = f->fan->v[i].t;
    for (;;) {
        if (!f->transfers[i].local && !next_file(f, i))
            return PROGRESS_DONE;
        int64_t before = f->transfers[i].got_bytes;
        enum progress p = t->ops->get(t, &f->transfers[i], e);
        f->progress.got_bytes += f->transfers[i].got_bytes - before;
        if (f->tick)
            f->tick(f->ctx, &f->progress);
        if (p != PROGRESS_DONE)
            return p;
        f->transfers[i].local = NULL;
        f->queue[i]++;
    }
}

/* Is the file here as its manifest says? What is not is taken away, so that it comes anew. */
static void check(struct fetching *f, struct wanted *w)
{
    char got[HASH128_HEX], *path = local_path(f, w);
    struct err ignored = ERR_INIT;
    w->is_good = file_size(path) == w->bytes &&
                 (!w->xxh128[0] ||
                     (hash128_file(path, got, &ignored) == RC_OK && strcmp(got, w->xxh128) == 0));
    bool was_whole = file_size(path) == w->bytes;
    if (!w->is_good && was_whole) {
        unlink(path);
        if (w->was_begun) /* by an earlier call, perhaps from elsewhere: not this host's fault */
            w->tried--;
    }
    free(path);
}

static enum rc no_holder(const struct fetching *f, const struct wanted *w, struct err *e)
{
    if (!w->tried)
        return err_set(e, RC_NODE,
            "'%s' of step %lld is on no node that answers; the host that had it is lost", w->name,
            (long long)f->step);
    return err_set(e, RC_NODE,
        "'%s' of step %lld did not arrive as its manifest says from any node that has it", w->name,
        (long long)f->step);
}

/* Bring all that is wanted; what a host fails to give is asked of the next one. */
static enum rc bring_wanted(struct fetching *f, struct err *e)
{
    for (;;) {
        size_t open = 0;
        for (size_t i = 0; i < f->wanted_count; i++) {
            struct wanted *w = &f->wanted[i];
            if (!w->is_good && !assign(f, w))
                return no_holder(f, w, e);
            open += !w->is_good;
        }
        if (!open)
            return RC_OK;
        struct err why = ERR_INIT;
        memset(f->queue, 0, f->fan->count * sizeof(*f->queue));
        memset(f->transfers, 0, f->fan->count * sizeof(*f->transfers));
        if (fan_run(f->fan, "bringing files", step_get, f, 0, &why) == RC_INTERRUPTED) {
            *e = why;
            return RC_INTERRUPTED;
        }
        for (size_t i = 0; i < f->wanted_count; i++)
            if (!f->wanted[i].is_good)
                check(f, &f->wanted[i]);
    }
}

/* --- which step --- */

static void forget_wanted(struct fetching *f)
{
    free(f->wanted);
    f->wanted = NULL;
    f->wanted_count = 0;
}

static enum rc want_file(struct fetching *f, const struct json *entry, struct err *e)
{
    const char *name, *hash;
    struct wanted w = {0};
    enum rc rc = json_need_str(entry, "name", &name, e);
    if (!rc)
        rc = json_need_str(entry, "xxh128", &hash, e);
    if (!rc)
        rc = json_need_int(entry, "bytes", 0, INT64_MAX, &w.bytes, e);
    if (rc)
        return err_in(e, "manifest of step %lld", (long long)f->step);
    if (!is_file_name(name) || strlen(hash) != HASH128_HEX - 1)
        return err_set(e, RC_INVALID, "the manifest names a file '%s'", name);
    str_copy(w.name, sizeof(w.name), name);
    str_copy(w.xxh128, sizeof(w.xxh128), hash);
    struct wanted probe = w;
    if (!assign(f, &probe))
        return no_holder(f, &w, e);
    f->wanted[f->wanted_count++] = w;
    return RC_OK;
}

static enum rc want_all(struct fetching *f, struct err *e)
{
    struct json *manifest = NULL;
    const struct json *files;
    char *path = path_join(f->part, RUN_FILE_MANIFEST);
    enum rc rc = json_read(&manifest, path, MANIFEST_MAX_BYTES, e);
    if (!rc)
        rc = json_need_arr(manifest, "files", &files, e);
    forget_wanted(f);
    if (!rc) {
        f->wanted = base_calloc(json_len(files) + 1, sizeof(*f->wanted));
        for (size_t i = 0; !rc && i < json_len(files); i++)
            rc = want_file(f, json_at(files, i), e);
    }
    f->progress = (struct fetch_progress){0};
    for (size_t i = 0; i < f->wanted_count; i++)
        f->progress.total_bytes += f->wanted[i].bytes;
    json_free(manifest);
    free(path);
    return rc;
}

/* Bring one host's manifest of the step; RC_OK when all that it lists is on hosts that answer. */
static enum rc try_manifest(struct fetching *f, const struct remote_file *file, struct err *e)
{
    char *path = path_join(f->part, RUN_FILE_MANIFEST);
    unlink(path);
    forget_wanted(f);
    f->wanted = base_calloc(1, sizeof(*f->wanted));
    f->wanted_count = 1;
    f->wanted[0] = (struct wanted){.bytes = file->bytes};
    str_copy(f->wanted[0].name, sizeof(f->wanted[0].name), RUN_FILE_MANIFEST);
    enum rc rc = dir_make(f->part, 0700, e);
    if (!rc)
        rc = bring_wanted(f, e);
    if (!rc)
        rc = want_all(f, e);
    if (rc) {
        unlink(path);
        rmdir(f->part); /* stays when an earlier call has brought something */
    }
    free(path);
    return rc;
}

static void set_step(struct fetching *f, int64_t step)
{
    char name[RUN_STEP_TEXT];
    f->step = step;
    free(f->final);
    free(f->part);
    f->final = path_join(f->dir, run_step_name(name, step));
    f->part = base_printf("%s.part", f->final);
}

/* Any host's manifest of a step that is complete, or a copy of it that was brought before. */
static enum rc try_step(struct fetching *f, int64_t step, struct err *e)
{
    struct err later = ERR_INIT;
    enum rc rc = RC_NOT_FOUND;
    set_step(f, step);
    if (file_exists(f->final))
        return RC_OK;
    for (size_t i = 0; i < f->count && rc && rc != RC_INTERRUPTED; i++)
        if (f->v[i].step == step && strcmp(f->v[i].name, RUN_FILE_MANIFEST) == 0)
            rc = try_manifest(f, &f->v[i], e->code ? &later : e);
    if (!rc)
        *e = (struct err)ERR_INIT;
    return rc;
}

/* The newest step below bound of which some host has a manifest; -1: none. */
static int64_t newest_below(const struct fetching *f, int64_t bound)
{
    int64_t best = -1;
    for (size_t i = 0; i < f->count; i++)
        if (f->v[i].step > best && f->v[i].step < bound &&
            strcmp(f->v[i].name, RUN_FILE_MANIFEST) == 0)
            best = f->v[i].step;
    return best;
}

static enum rc no_checkpoint(const struct fetching *f, int64_t wanted, struct err *e)
{
    for (size_t i = 0; i < f->fan->count; i++)
        if (f->fan->v[i].err.code)
            return err_set(e, RC_NODE,
                "run %s has no checkpoint on the nodes that answer; host '%s': %s", f->c->info.id,
                f->fan->v[i].label, f->fan->v[i].err.msg);
    if (wanted < 0)
        return err_set(e, RC_NOT_FOUND, "run %s has no checkpoint on its nodes", f->c->info.id);
    return err_set(e, RC_NOT_FOUND, "run %s has no checkpoint of step %lld on its nodes",
        f->c->info.id, (long long)wanted);
}

/* The step that was asked for, or the newest one that is whole. The newest one's lack is told when
 * there is none. */
static enum rc choose_step(struct fetching *f, int64_t wanted, struct err *e)
{
    int64_t step = newest_below(f, wanted < 0 ? INT64_MAX : wanted + 1);
    if (step < 0 || (wanted >= 0 && step != wanted))
        return no_checkpoint(f, wanted, e);
    enum rc rc = try_step(f, step, e);
    while (rc && rc != RC_INTERRUPTED && wanted < 0 && (step = newest_below(f, step)) >= 0) {
        struct err later = ERR_INIT;
        rc = try_step(f, step, &later);
        if (!rc || rc == RC_INTERRUPTED)
            *e = later;
    }
    return rc ? e->code : RC_OK;
}

static enum rc publish(struct fetching *f, struct err *e)
{
    enum rc rc = dir_sync(f->part, e);
    if (!rc && rename(f->part, f->final) != 0)
        rc = err_sys(e, RC_IO, "cannot rename '%s' to '%s'", f->part, f->final);
    return rc;
}

char *fetch_folder(const struct run_info *r, const char *node_dir)
{
    struct run_spec spec;
    struct err ignored;
    char *folder = NULL;
    if (r->spec && !run_spec_from_json(&spec, r->spec, &ignored)) {
        folder = run_checkpoint_dir(&spec, node_dir);
        run_spec_release(&spec);
    }
    return folder ? folder : path_join(node_dir, RUN_DIR_CKPT);
}

enum rc fetch_checkpoint(struct client *c, int64_t step, const char *dir, int64_t *got_step,
    void (*tick)(void *ctx, const struct fetch_progress *p), void *ctx, struct err *e)
{
    struct everywhere w;
    enum rc rc = client_connect_all(c, &w, e);
    if (rc)
        return rc;
    struct fetching f = {.c = c, .fan = w.fan, .dir = dir, .step = -1, .tick = tick, .ctx = ctx};
    size_t n = f.fan->count;
    f.folders = base_calloc(n, sizeof(*f.folders));
    f.queue = base_calloc(n, sizeof(*f.queue));
    f.transfers = base_calloc(n, sizeof(*f.transfers));
    f.remote = base_calloc(n, sizeof(*f.remote));
    f.local = base_calloc(n, sizeof(*f.local));
    for (size_t i = 0; i < n; i++)
        f.folders[i] = fetch_folder(&c->info, w.nodes[i].dir);
    rc = list_files(&f, e);
    if (!rc)
        rc = choose_step(&f, step, e);
    if (!rc && !file_exists(f.final)) {
        rc = bring_wanted(&f, e);
        if (!rc)
            rc = publish(&f, e);
    }
    *got_step = f.step;
    for (size_t i = 0; i < n; i++) {
        free(f.folders[i]);
        free(f.remote[i]);
        free(f.local[i]);
    }
    free(f.folders);
    free(f.queue);
    free(f.transfers);
    free(f.remote);
    free(f.local);
    free(f.part);
    free(f.final);
    free(f.wanted);
    free(f.v);
    return rc;
}
