#include "launcher/launch_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "run/names.h"

void launch_input_release(struct launch_input *in)
{
    for (size_t i = 0; i < in->n_files; i++)
        free(in->files[i].local);
    free(in->files);
    in->files = NULL;
    in->n_files = 0;
}

int64_t launch_input_bytes(const struct launch_input *in)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < in->n_files; i++)
        bytes += in->files[i].stage.bytes;
    return bytes;
}

/* --- which files --- */

static enum rc add_file(struct launch_input *in, const char *local, char **into, struct err *e)
{
    in->files = base_realloc(in->files, (in->n_files + 1) * sizeof(*in->files));
    struct launch_file *f = &in->files[in->n_files++];
    *f = (struct launch_file){.local = base_strdup(local), .into = into};
    enum rc rc = stage_file_init(&f->stage, f->local, 0600, e);
    if (!rc && f->stage.bytes == 0)
        rc = err_set(e, RC_INVALID, "%s file '%s' is empty", in->what, local);
    return rc;
}

/* What the ranks would refuse is better refused before anything is sent. */
static enum rc settle_kind(struct data_source *d, bool has_index, struct err *e)
{
    unsigned char first[DATA_MAGIC_BYTES];
    FILE *f = fopen(d->path, "re");
    if (!f)
        return err_sys(e, RC_INVALID, "cannot open '%s'", d->path);
    struct data_start start = {.path = d->path,
        .first = first,
        .n = fread(first, 1, sizeof first, f),
        .has_index = has_index,
        .has_tokenizer = d->tokenizer != NULL};
    fclose(f);
    return data_kind_settle(&d->kind, d->kind, &start, e);
}

static enum rc add_local(struct launch_input *in, struct data_source *d, struct err *e)
{
    char *index = data_kind_index_path(d->path);
    bool has_index = index && file_exists(index);
    enum rc rc = add_file(in, d->path, &d->path, e);
    if (!rc)
        rc = settle_kind(d, has_index, e);
    if (!rc && d->kind == DATA_MEGATRON)
        rc = add_file(in, index, NULL, e);
    if (!rc && d->tokenizer)
        rc = add_file(in, d->tokenizer, &d->tokenizer, e);
    if (!rc && d->mask)
        rc = add_file(in, d->mask, &d->mask, e);
    free(index);
    return rc;
}

enum rc launch_input_set(struct launch_input *in, const char *text, const char *kind, struct err *e)
{
    enum data_kind common = DATA_AUTO;
    launch_input_release(in);
    data_sources_release(in->sources);
    enum rc rc = data_kind_parse(kind, &common, e);
    if (!rc)
        rc = data_sources_parse(in->sources, text, e);
    for (size_t i = 0; i < in->sources->n && !rc; i++) {
        struct data_source *d = &in->sources->v[i];
        if (d->kind == DATA_AUTO && !d->tokenizer)
            d->kind = common;
        if (!d->is_on_nodes)
            rc = add_local(in, d, e);
    }
    return rc ? err_in(e, "%s", in->what) : RC_OK;
}

/* --- where they lie --- */

/* Folders are named by content; an index lies in that of its file. */
static char *folder(const struct launch_file *f, const char *workdir)
{
    const struct launch_file *owner = f->into ? f : f - 1;
    return run_data_dir(workdir, owner->stage.sha256);
}

char *launch_input_node_path(const struct launch_input *in, size_t file, const char *workdir)
{
    const struct launch_file *f = &in->files[file];
    const char *slash = strrchr(f->local, '/');
    char *dir = folder(f, workdir);
    char *path = path_join(dir, slash ? slash + 1 : f->local);
    free(dir);
    return path;
}

void launch_input_place(struct launch_input *in, const char *workdir)
{
    for (size_t i = 0; i < in->n_files; i++) {
        char **into = in->files[i].into;
        if (!into)
            continue;
        free(*into);
        *into = launch_input_node_path(in, i, workdir);
    }
}

void launch_input_describe(
    const struct launch_input *in, const char *word, const char *workdir, struct str *out)
{
    for (size_t i = 0; i < in->n_files; i++) {
        char *dir = folder(&in->files[i], workdir);
        str_addf(out, "  %-8s %s/ (from %s)\n", word, dir, in->files[i].local);
        free(dir);
    }
    for (size_t i = 0; i < in->sources->n; i++) {
        const struct data_source *d = &in->sources->v[i];
        const char *const there[] = {d->path, d->tokenizer, d->mask};
        for (size_t k = 0; k < BASE_COUNT(there) && d->is_on_nodes; k++)
            if (there[k])
                str_addf(out, "  %-8s %s (must be there)\n", word, there[k]);
    }
}
