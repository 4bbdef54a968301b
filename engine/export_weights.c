#include "engine/export_weights.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/hf_layout.h"
#include "engine/safetensors.h"
#include "engine/saved.h"
#include "kernels/kernels.h"

enum { CHUNK = 1 << 18 }; /* elements on their way at once */

/* A tensor of the export. */
struct item {
    struct hf_tensor hf;
    int unit, file;
};

struct export
{
    const struct export_options *o;
    struct saved *from;
    char *tmp; /* beside the folder that is to be */
    struct item *items;
    size_t n, cap;
    int n_files;
    const struct kernels *k;
    float *values;  /* CHUNK */
    uint16_t *half; /* CHUNK */
    struct exported *result;
};

/* --- what goes where --- */

static int64_t item_bytes(const struct export *x, const struct item *it)
{
    return hf_elems(&it->hf) * (x->o->is_bf16 ? 2 : 4);
}

/* Files are filled in the order of the model. */
static void list_items(struct export *x)
{
    const struct model *m = saved_model(x->from);
    int64_t in_file = 0;
    x->n_files = 1;
    for (int unit = 0; unit < model_units(m); unit++) {
        struct hf_tensor list[MODEL_MAX_TENSORS];
        int n = hf_unit_tensors(m, unit, list);
        for (int i = 0; i < n; i++) {
            BASE_GROW(x->items, x->cap, x->n + 1);
            struct item *it = &x->items[x->n++];
            *it = (struct item){.hf = list[i], .unit = unit};
            int64_t bytes = item_bytes(x, it);
            if (in_file > 0 && in_file + bytes > x->o->file_bytes) {
                x->n_files++;
                in_file = 0;
            }
            it->file = x->n_files - 1;
            in_file += bytes;
            x->result->bytes += bytes;
        }
    }
    x->result->files = x->n_files;
    x->result->params = model_params(m);
    x->result->step = saved_step(x->from);
}

static char *file_name(const struct export *x, int file, char buf[64])
{
    if (x->n_files == 1)
        snprintf(buf, 64, "model.safetensors");
    else
        snprintf(buf, 64, "model-%05d-of-%05d.safetensors", file + 1, x->n_files);
    return buf;
}

/* --- values --- */

static enum rc check_interrupt(struct err *e)
{
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGINT) || sigismember(&pending, SIGTERM))
        return err_set(e, RC_INTERRUPTED, "interrupted; nothing was written");
    return RC_OK;
}

static enum rc put(struct export *x, struct st_writer *w, const float *v, int64_t n, struct err *e)
{
    enum rc rc = check_interrupt(e);
    if (rc)
        return rc;
    if (!x->o->is_bf16)
        return st_write(w, v, (size_t)n * sizeof(*v), e);
    for (int64_t at = 0; at < n && !rc; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK;
        x->k->fp32_to_bf16(NULL, x->half, v + at, count);
        rc = st_write(w, x->half, (size_t)count * sizeof(*x->half), e);
    }
    return rc;
}

/* Parts one after the other, as they are. */
static enum rc copy_item(
    struct export *x, struct st_writer *w, const struct item *it, struct err *e)
{
    enum rc rc = RC_OK;
    for (int p = 0; p < it->hf.n_parts && !rc; p++) {
        const struct tensor *t = &it->hf.part[p];
        int64_t elems = t->rows * t->cols;
        for (int64_t at = 0; at < elems && !rc; at += CHUNK) {
            int64_t n = elems - at < CHUNK ? elems - at : CHUNK;
            rc = saved_read(x->from, it->unit, t->role, at, n, x->values, e);
            if (!rc)
                rc = put(x, w, x->values, n, e);
        }
    }
    return rc;
}

/* GPT-2's: [in, out], parts beside each other. The largest there is has some 10 million elements.
 */
static enum rc transpose_item(
    struct export *x, struct st_writer *w, const struct item *it, struct err *e)
{
    int64_t in = it->hf.shape[0], out = it->hf.shape[1];
    float *ours = base_alloc((size_t)hf_elems(&it->hf) * sizeof(*ours));
    float *row = base_alloc((size_t)out * sizeof(*row));
    enum rc rc = RC_OK;
    for (int p = 0; p < it->hf.n_parts && !rc; p++) {
        const struct tensor *t = &it->hf.part[p];
        rc = saved_read(x->from, it->unit, t->role, 0, t->rows * t->cols,
            ours + hf_outputs_before(&it->hf, p) * in, e);
    }
    for (int64_t i = 0; i < in && !rc; i++) {
        for (int64_t j = 0; j < out; j++)
            row[j] = ours[j * in + i];
        rc = put(x, w, row, out, e);
    }
    free(ours);
    free(row);
    return rc;
}

/* --- files --- */

static struct st_tensor *describe(const struct export *x, int file, size_t *n)
{
    struct st_tensor *t = base_calloc(x->n, sizeof(*t));
    *n = 0;
    for (size_t i = 0; i < x->n; i++) {
        const struct hf_tensor *h = &x->items[i].hf;
        if (x->items[i].file != file)
            continue;
        struct st_tensor *out = &t[(*n)++];
        out->name = (char *)(uintptr_t)h->name;
        out->dims = h->dims;
        str_copy(out->dtype, sizeof(out->dtype), x->o->is_bf16 ? "BF16" : "F32");
        memcpy(out->shape, h->shape, sizeof(h->shape));
    }
    return t;
}

static enum rc write_weights(struct export *x, int file, struct err *e)
{
    char name[64];
    size_t n;
    uint64_t bytes;
    struct hash128 hash;
    struct st_writer *w;
    char *path = path_join(x->tmp, file_name(x, file, name));
    struct st_tensor *t = describe(x, file, &n);
    enum rc rc = st_create(&w, path, t, n, e);
    if (!rc) {
        for (size_t i = 0; i < x->n && !rc; i++)
            if (x->items[i].file == file)
                rc = x->items[i].hf.is_transposed ? transpose_item(x, w, &x->items[i], e)
                                                  : copy_item(x, w, &x->items[i], e);
        if (rc)
            st_abandon(w);
        else
            rc = st_finish(w, &bytes, &hash, e);
    }
    free(t);
    free(path);
    return rc;
}

/* takes v */
static enum rc write_json(struct export *x, const char *name, struct json *v, struct err *e)
{
    char *text = json_print(v, true), *path = path_join(x->tmp, name);
    enum rc rc = file_write(path, text, strlen(text), 0644, e);
    free(path);
    free(text);
    json_free(v);
    return rc;
}

static enum rc write_index(struct export *x, struct err *e)
{
    struct json *root = json_obj(), *metadata = json_obj(), *map = json_obj();
    char name[64];
    for (size_t i = 0; i < x->n; i++)
        json_add_str(map, x->items[i].hf.name, file_name(x, x->items[i].file, name));
    json_add_int(metadata, "total_size", x->result->bytes);
    json_add(root, "metadata", metadata);
    json_add(root, "weight_map", map);
    return write_json(x, "model.safetensors.index.json", root, e);
}

static enum rc write_all(struct export *x, struct err *e)
{
    struct json *config;
    enum rc rc =
        model_to_config(&config, saved_model(x->from), x->o->is_bf16 ? "bfloat16" : "float32", e);
    if (!rc)
        rc = write_json(x, "config.json", config, e);
    for (int f = 0; f < x->n_files && !rc; f++)
        rc = write_weights(x, f, e);
    if (!rc && x->n_files > 1)
        rc = write_index(x, e);
    return rc ? rc : dir_sync(x->tmp, e);
}

/* --- the folder --- */

static bool is_empty_folder(const char *path)
{
    DIR *d = opendir(path);
    const struct dirent *entry;
    bool is_empty = d;
    while (d && (entry = readdir(d)))
        is_empty &= strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (d)
        closedir(d);
    return is_empty;
}

static char *parent_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? base_strndup(path, slash == path ? 1 : (size_t)(slash - path))
                 : base_strdup(".");
}

static enum rc make_tmp(struct export *x, const char *out, const char *parent, struct err *e)
{
    if (file_exists(out) && !is_empty_folder(out))
        return err_set(e, RC_USAGE, "'%s' is there already; name a folder that is not", out);
    enum rc rc = dir_make(parent, 0755, e);
    if (rc)
        return rc;
    char *tmp = base_printf("%s/.export-XXXXXX", parent);
    if (!mkdtemp(tmp)) {
        rc = err_sys(e, RC_IO, "cannot make a folder in '%s'", parent);
        free(tmp);
        return rc;
    }
    x->tmp = tmp;
    return chmod(tmp, 0755) == 0 ? RC_OK : err_sys(e, RC_IO, "cannot open up '%s'", tmp);
}

static enum rc write_folder(struct export *x, const char *out, struct err *e)
{
    char *parent = parent_of(out);
    enum rc rc = make_tmp(x, out, parent, e);
    if (!rc)
        rc = write_all(x, e);
    if (!rc && rename(x->tmp, out) != 0)
        rc = err_sys(e, RC_IO, "cannot rename '%s' to '%s'", x->tmp, out);
    if (!rc)
        rc = dir_sync(parent, e);
    else if (x->tmp) {
        struct err ignored;
        dir_remove(x->tmp, &ignored);
    }
    free(parent);
    free(x->tmp);
    return rc;
}

enum rc export_weights(const struct export_options *o, struct exported *result, struct err *e)
{
    struct export x = {.o = o, .k = kernels_best(), .result = result};
    size_t end = strlen(o->out);
    while (end > 1 && o->out[end - 1] == '/')
        end--;
    char *out = base_strndup(o->out, end);
    *result = (struct exported){0};
    x.values = base_alloc(CHUNK * sizeof(*x.values));
    x.half = base_alloc(CHUNK * sizeof(*x.half));
    enum rc rc = saved_open(&x.from, o->checkpoint, e);
    if (!rc) {
        list_items(&x);
        rc = write_folder(&x, out, e);
    }
    saved_close(x.from);
    free(x.items);
    free(x.values);
    free(x.half);
    free(out);
    return rc;
}

/* --- the subcommand --- */

static enum rc parse_bytes(int64_t *out, const char *text, struct err *e)
{
    char *end;
    long long n = strtoll(text, &end, 10);
    if (*end || end == text || n < 1)
        return err_set(e, RC_USAGE, "'%s' is no number of bytes", text);
    *out = n;
    return RC_OK;
}

static enum rc parse_word(
    struct export_options *o, const char *name, const char *value, struct err *e)
{
    if (strcmp(name, "--checkpoint") == 0)
        o->checkpoint = value;
    else if (strcmp(name, "--out") == 0)
        o->out = value;
    else if (strcmp(name, "--file-bytes") == 0)
        return parse_bytes(&o->file_bytes, value, e);
    else if (strcmp(name, "--dtype") == 0 && strcmp(value, "bf16") == 0)
        o->is_bf16 = true;
    else if (strcmp(name, "--dtype") != 0 || strcmp(value, "fp32") != 0)
        return err_set(e, RC_USAGE, "option '%s' with '%s' is unknown", name, value);
    return RC_OK;
}

static enum rc parse(struct export_options *o, int argc, char **argv, struct err *e)
{
    enum rc rc = RC_OK;
    for (int i = 1; i < argc && !rc; i += 2)
        rc = i + 1 < argc ? parse_word(o, argv[i], argv[i + 1], e)
                          : err_set(e, RC_USAGE, "option '%s' needs a value", argv[i]);
    if (!rc && (!o->checkpoint || !o->out || o->file_bytes < 1))
        rc = err_set(e, RC_USAGE,
            "usage: berth-engine export-weights --checkpoint DIR --out DIR --dtype bf16|fp32 "
            "--file-bytes N");
    return rc;
}

int export_weights_main(int argc, char **argv)
{
    struct export_options o = {0};
    struct exported result;
    struct err e = ERR_INIT;
    sigset_t stop;
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* nobody would read the answer */
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigaddset(&stop, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error like a full disk */
    enum rc rc = parse(&o, argc, argv, &e);
    if (!rc)
        rc = export_weights(&o, &result, &e);
    if (rc)
        fprintf(stderr, "berth-engine: %s\n", e.msg);
    else
        printf("{\"step\":%lld,\"parameters\":%lld,\"bytes\":%lld,\"files\":%lld}\n",
            (long long)result.step, (long long)result.params, (long long)result.bytes,
            (long long)result.files);
    return rc_exit_code(rc);
}
