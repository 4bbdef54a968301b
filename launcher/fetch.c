#include "launcher/fetch.h"

#include <dirent.h>
#include <fcntl.h>
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
static const char MANIFEST[] = "manifest.json";

/* A file of a checkpoint on a node. */
struct remote_file {
    char name[64];
    int64_t step, bytes;
    size_t host; /* index in the fan */
};

struct fetching {
    struct client *c;
    struct fan *fan;
    char **folders; /* per host: where its checkpoints lie */
    struct remote_file *v;
    size_t count, cap;
    char *part; /* local folder being filled */
    int64_t step;
    size_t *queue; /* per host: index of its next file */
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

static const struct remote_file *find(const struct fetching *f, int64_t step, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (f->v[i].step == step && strcmp(f->v[i].name, name) == 0)
            return &f->v[i];
    return NULL;
}

static enum rc choose_step(struct fetching *f, int64_t wanted, struct err *e)
{
    f->step = -1;
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(f->v[i].name, MANIFEST) == 0 && f->v[i].step > f->step &&
            (wanted < 0 || f->v[i].step == wanted))
            f->step = f->v[i].step;
    if (f->step >= 0)
        return RC_OK;
    enum rc rc =
        wanted < 0
            ? err_set(e, RC_NOT_FOUND, "run %s has no checkpoint on its nodes", f->c->info.id)
            : err_set(e, RC_NOT_FOUND, "run %s has no checkpoint of step %lld on its nodes",
                  f->c->info.id, (long long)wanted);
    for (size_t i = 0; i < f->fan->count; i++)
        if (f->fan->v[i].err.code)
            return err_set(e, RC_NODE,
                "run %s has no checkpoint on the nodes that answer; host "
                "'%s': %s",
                f->c->info.id, f->fan->v[i].label, f->fan->v[i].err.msg);
    return rc;
}

/* Keep the files of the step, each from the first node that has it. */
static void keep_step(struct fetching *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++) {
        bool is_known = f->v[i].step != f->step;
        for (size_t k = 0; k < n && !is_known; k++)
            is_known = strcmp(f->v[k].name, f->v[i].name) == 0;
        if (!is_known)
            f->v[n++] = f->v[i];
    }
    f->count = n;
    for (size_t i = 0; i < n; i++)
        f->progress.total_bytes += f->v[i].bytes;
}

/* --- transfer --- */

/* Set up host i's next file; false when it has none left. */
static bool next_file(struct fetching *f, size_t i)
{
    while (f->queue[i] < f->count && f->v[f->queue[i]].host != i)
        f->queue[i]++;
    if (f->queue[i] >= f->count)
        return false;
    const struct remote_file *file = &f->v[f->queue[i]];
    free(f->remote[i]);
    free(f->local[i]);
    f->remote[i] = base_printf("%s/step-%08lld/%s", f->folders[i], (long long)f->step, file->name);
    f->local[i] = path_join(f->part, file->name);
    if (file_size(f->local[i]) > file->bytes)
        unlink(f->local[i]); /* of another file than this one */
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

/* --- proof --- */

static enum rc hash_file(const char *path, char out[HASH128_HEX], struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, RC_NOT_FOUND, "cannot open '%s'", path);
    struct hash_stream *h = hash_stream_new();
    char *buf = base_alloc(1 << 20);
    ssize_t n;
    while ((n = read(fd, buf, 1 << 20)) > 0)
        hash_stream_add(h, buf, (size_t)n);
    enum rc rc = n < 0 ? err_sys(e, RC_IO, "cannot read '%s'", path) : RC_OK;
    hash128_hex(hash_stream_end(h), out);
    hash_stream_free(h);
    free(buf);
    close(fd);
    return rc;
}

static enum rc verify_file(struct fetching *f, const struct json *entry, struct err *e)
{
    const char *name, *want;
    int64_t bytes;
    char got[HASH128_HEX];
    enum rc rc = json_need_str(entry, "name", &name, e);
    if (!rc)
        rc = json_need_str(entry, "xxh128", &want, e);
    if (!rc)
        rc = json_need_int(entry, "bytes", 0, INT64_MAX, &bytes, e);
    if (rc)
        return err_in(e, "manifest");
    if (!is_file_name(name))
        return err_set(e, RC_INVALID, "the manifest names a file '%s'", name);
    if (!find(f, f->step, name))
        return err_set(e, RC_NODE,
            "'%s' of step %lld is on no node that answers; the host that had it is lost", name,
            (long long)f->step);
    char *path = path_join(f->part, name);
    rc = hash_file(path, got, e);
    if (!rc && (file_size(path) != bytes || strcmp(got, want) != 0)) {
        unlink(path); /* so that the next attempt brings it anew */
        rc = err_set(e, RC_NODE, "'%s' did not arrive as its manifest says", name);
    }
    free(path);
    return rc;
}

static enum rc verify(struct fetching *f, struct err *e)
{
    struct json *manifest = NULL;
    const struct json *files;
    char *path = path_join(f->part, MANIFEST);
    enum rc rc = json_read(&manifest, path, MANIFEST_MAX_BYTES, e);
    if (!rc)
        rc = json_need_arr(manifest, "files", &files, e);
    for (size_t i = 0; !rc && i < json_len(files); i++)
        rc = verify_file(f, json_at(files, i), e);
    json_free(manifest);
    free(path);
    return rc;
}

static enum rc publish(struct fetching *f, const char *final, struct err *e)
{
    enum rc rc = dir_sync(f->part, e);
    if (!rc && rename(f->part, final) != 0)
        rc = err_sys(e, RC_IO, "cannot rename '%s' to '%s'", f->part, final);
    return rc;
}

static char *checkpoint_folder(const struct client *c, const char *node_dir)
{
    struct run_spec spec;
    struct err ignored;
    char *folder = NULL;
    if (c->info.spec && !run_spec_from_json(&spec, c->info.spec, &ignored)) {
        if (spec.checkpoint.store == RUN_STORE_SHARED)
            folder = path_join(spec.checkpoint.shared_path, RUN_DIR_CKPT);
        run_spec_release(&spec);
    }
    return folder ? folder : path_join(node_dir, RUN_DIR_CKPT);
}

static enum rc bring(struct fetching *f, const char *dir, struct err *e)
{
    char *final = base_printf("%s/step-%08lld", dir, (long long)f->step);
    f->part = base_printf("%s.part", final);
    enum rc rc = RC_OK;
    if (file_exists(final))
        goto out; /* brought and verified before */
    keep_step(f);
    rc = dir_make(f->part, 0700, e);
    if (!rc)
        rc = fan_run(f->fan, "bringing files", step_get, f, 0, e);
    if (!rc)
        rc = verify(f, e);
    if (!rc)
        rc = publish(f, final, e);
out:
    free(final);
    return rc;
}

enum rc fetch_checkpoint(struct client *c, int64_t step, const char *dir, int64_t *got_step,
    void (*tick)(void *ctx, const struct fetch_progress *p), void *ctx, struct err *e)
{
    struct everywhere w;
    enum rc rc = client_connect_all(c, &w, e);
    if (rc)
        return rc;
    struct fetching f = {.c = c, .fan = w.fan, .tick = tick, .ctx = ctx};
    size_t n = f.fan->count;
    f.folders = base_calloc(n, sizeof(*f.folders));
    f.queue = base_calloc(n, sizeof(*f.queue));
    f.transfers = base_calloc(n, sizeof(*f.transfers));
    f.remote = base_calloc(n, sizeof(*f.remote));
    f.local = base_calloc(n, sizeof(*f.local));
    for (size_t i = 0; i < n; i++)
        f.folders[i] = checkpoint_folder(c, w.nodes[i].dir);
    rc = list_files(&f, e);
    if (!rc)
        rc = choose_step(&f, step, e);
    if (!rc)
        rc = bring(&f, dir, e);
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
    free(f.v);
    return rc;
}
