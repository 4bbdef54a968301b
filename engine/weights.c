#include "engine/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/hf_layout.h"
#include "engine/safetensors.h"

enum { INDEX_MAX_BYTES = 64 << 20, CONFIG_MAX_BYTES = 1 << 20, MAX_FILES = 10000 };
enum { CHUNK = 1 << 18 }; /* elements converted at once */

#define ONE_FILE "model.safetensors"
#define INDEX    "model.safetensors.index.json"

struct file {
    char *path;
    struct st_reader *reader;
};

struct weights {
    struct model model;
    struct file *files;
    size_t n_files, cap;
    unsigned char *raw; /* CHUNK elements of up to 4 bytes */
};

/* A tensor and the file it lies in. */
struct found {
    struct file *file;
    const struct st_tensor *t;
};

/* --- files --- */

static enum rc add_file(struct weights *w, const char *path, struct err *e)
{
    BASE_GROW(w->files, w->cap, w->n_files + 1);
    w->files[w->n_files] = (struct file){.path = base_strdup(path)};
    return st_open(&w->files[w->n_files++].reader, path, e);
}

static struct file *file_named(struct weights *w, const char *path)
{
    for (size_t i = 0; i < w->n_files; i++)
        if (strcmp(w->files[i].path, path) == 0)
            return &w->files[i];
    return NULL;
}

/* Only files beside the index: it may come from anywhere. */
static bool is_plain_name(const char *name)
{
    return *name && *name != '.' && !strchr(name, '/') && str_ends(name, ".safetensors");
}

static enum rc open_indexed(
    struct weights *w, const char *dir, const char *index, const char *name, struct err *e)
{
    if (!is_plain_name(name))
        return err_set(
            e, RC_INVALID, "'%s' names '%s', which is no safetensors file beside it", index, name);
    char *path = path_join(dir, name);
    enum rc rc = RC_OK;
    if (!file_named(w, path)) {
        if (w->n_files >= MAX_FILES)
            rc = err_set(e, RC_LIMIT, "'%s' names more than %d files", index, MAX_FILES);
        else
            rc = add_file(w, path, e);
    }
    free(path);
    return rc;
}

/* Both ways: what the index places in a file is there, and what a file holds is placed there. */
static enum rc check_index(
    struct weights *w, const char *dir, const char *index, const struct json *map, struct err *e)
{
    void *cursor = NULL;
    const char *name;
    const struct json *file;
    while (json_next(map, &cursor, &name, &file)) {
        char *path = path_join(dir, json_as_str(file, ""));
        bool is_there = st_find(file_named(w, path)->reader, name);
        free(path);
        if (!is_there)
            return err_set(e, RC_INVALID, "'%s' places '%s' in '%s', which has no such tensor",
                index, name, json_as_str(file, ""));
    }
    for (size_t f = 0; f < w->n_files; f++)
        for (size_t i = 0; i < st_count(w->files[f].reader); i++) {
            const char *tensor = st_at(w->files[f].reader, i)->name;
            char *path = path_join(dir, json_str(map, tensor, ""));
            bool is_same = strcmp(path, w->files[f].path) == 0;
            free(path);
            if (!is_same)
                return err_set(e, RC_INVALID, "'%s' holds '%s', which '%s' does not place there",
                    w->files[f].path, tensor, index);
        }
    return RC_OK;
}

static enum rc open_index(struct weights *w, const char *dir, const char *index, struct err *e)
{
    struct json *root = NULL;
    const struct json *map = NULL, *file;
    void *cursor = NULL;
    const char *name;
    enum rc rc = json_read(&root, index, INDEX_MAX_BYTES, e);
    if (!rc && json_need_obj(root, "weight_map", &map, e))
        rc = err_in(e, "'%s'", index);
    while (!rc && json_next(map, &cursor, &name, &file))
        rc = open_indexed(w, dir, index, json_as_str(file, ""), e);
    if (!rc)
        rc = check_index(w, dir, index, map, e);
    json_free(root);
    return rc;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static enum rc open_folder(struct weights *w, const char *dir, struct err *e)
{
    char *one = path_join(dir, ONE_FILE), *index = path_join(dir, INDEX);
    enum rc rc = RC_OK;
    if (file_exists(one))
        rc = add_file(w, one, e);
    else if (file_exists(index))
        rc = open_index(w, dir, index, e);
    else
        rc = err_set(e, RC_NOT_FOUND, "'%s' holds neither " ONE_FILE " nor " INDEX, dir);
    free(one);
    free(index);
    return rc;
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? base_strndup(path, slash == path ? 1 : (size_t)(slash - path))
                 : base_strdup(".");
}

/* --- the model --- */

/* Whatever decides what the weights mean. */
static enum rc check_config(const struct weights *w, const char *dir, struct err *e)
{
    struct json *config = NULL;
    struct model theirs;
    char how[MODEL_DIFFERENCE], *path = path_join(dir, "config.json");
    enum rc rc = RC_OK;
    if (file_exists(path)) {
        rc = json_read(&config, path, CONFIG_MAX_BYTES, e);
        if (!rc && model_from_config(&theirs, config, e))
            rc = err_in(e, "'%s'", path);
        if (!rc && model_differs(&theirs, &w->model, how))
            rc = err_set(e, RC_INVALID, "'%s' is of another model than the plan's '%s': its %s",
                path, w->model.name, how);
    }
    json_free(config);
    free(path);
    return rc;
}

/* --- tensors --- */

/* Checkpoints of the bare model leave the first word out. */
static const char *short_name(const char *name)
{
    static const char *const prefixes[] = {"model.", "transformer."};
    for (size_t i = 0; i < BASE_COUNT(prefixes); i++)
        if (str_starts(name, prefixes[i]))
            return name + strlen(prefixes[i]);
    return name;
}

static bool find(struct weights *w, const char *name, struct found *out)
{
    for (size_t f = 0; f < w->n_files; f++) {
        const struct st_tensor *t = st_find(w->files[f].reader, name);
        if (!t)
            t = st_find(w->files[f].reader, short_name(name));
        *out = (struct found){&w->files[f], t};
        if (t)
            return true;
    }
    return false;
}

static const char *where(const struct weights *w, char buf[32])
{
    if (w->n_files == 1)
        return w->files[0].path;
    snprintf(buf, 32, "%zu files", w->n_files);
    return buf;
}

static void shape_text(char buf[64], int dims, const int64_t *shape)
{
    int n = snprintf(buf, 64, "[");
    for (int i = 0; i < dims && n < 50; i++)
        n += snprintf(buf + n, 64 - (size_t)n, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(buf + n, 64 - (size_t)n, "]");
}

static enum rc check_found(
    const struct weights *w, const struct found *f, const struct hf_tensor *h, struct err *e)
{
    const char *path = f->file->path;
    if (strcmp(f->t->dtype, "F32") != 0 && strcmp(f->t->dtype, "BF16") != 0 &&
        strcmp(f->t->dtype, "F16") != 0)
        return err_set(e, RC_INVALID, "'%s' keeps '%s' as %s; F32, BF16 and F16 are supported",
            path, f->t->name, f->t->dtype);
    bool is_same = f->t->dims == h->dims;
    for (int i = 0; i < h->dims && is_same; i++)
        is_same = f->t->shape[i] == h->shape[i];
    if (is_same)
        return RC_OK;
    char have[64], want[64];
    shape_text(have, f->t->dims, f->t->shape);
    shape_text(want, h->dims, h->shape);
    return err_set(e, RC_INVALID, "'%s' has '%s' with shape %s, the plan's model '%s' has %s", path,
        f->t->name, have, w->model.name, want);
}

static enum rc check_unit(struct weights *w, int unit, int64_t *known, struct err *e)
{
    struct hf_tensor list[MODEL_MAX_TENSORS];
    struct found f;
    char buf[32];
    int n = hf_unit_tensors(&w->model, unit, list);
    for (int i = 0; i < n; i++) {
        if (!find(w, list[i].name, &f))
            return err_set(e, RC_INVALID, "'%s' lacks '%s', which model '%s' has", where(w, buf),
                list[i].name, w->model.name);
        enum rc rc = check_found(w, &f, &list[i], e);
        if (rc)
            return rc;
    }
    *known += n;
    return RC_OK;
}

/* The embedding under the name of the output matrix. */
static struct hf_tensor tied_head(const struct weights *w)
{
    struct hf_tensor list[MODEL_MAX_TENSORS];
    hf_unit_tensors(&w->model, 0, list);
    model_tensor_name(&w->model, model_units(&w->model) - 1, T_HEAD_W, list[0].name);
    return list[0];
}

static bool find_tied_head(struct weights *w, struct found *f)
{
    struct hf_tensor h = tied_head(w);
    return w->model.is_tied && find(w, h.name, f);
}

/* What older versions of transformers stored beside the parameters. */
static bool is_constant(const char *name)
{
    static const char *const ends[] = {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"};
    for (size_t i = 0; i < BASE_COUNT(ends); i++)
        if (str_ends(name, ends[i]))
            return true;
    return false;
}

static bool is_of_model(const struct weights *w, const char *name)
{
    struct hf_tensor list[MODEL_MAX_TENSORS];
    for (int unit = 0; unit < model_units(&w->model); unit++) {
        int n = hf_unit_tensors(&w->model, unit, list);
        for (int i = 0; i < n; i++)
            if (strcmp(list[i].name, name) == 0 || strcmp(short_name(list[i].name), name) == 0)
                return true;
    }
    return false;
}

/* A tensor that our model lacks means another model. Looked for only where the count says so. */
static enum rc refuse_others(struct weights *w, int64_t known, struct err *e)
{
    int64_t held = 0;
    struct found head = {NULL, NULL};
    bool has_head = find_tied_head(w, &head);
    for (size_t f = 0; f < w->n_files; f++)
        for (size_t i = 0; i < st_count(w->files[f].reader); i++)
            held += !is_constant(st_at(w->files[f].reader, i)->name);
    if (held == known + has_head)
        return RC_OK;
    for (size_t f = 0; f < w->n_files; f++)
        for (size_t i = 0; i < st_count(w->files[f].reader); i++) {
            const struct st_tensor *t = st_at(w->files[f].reader, i);
            if (!is_constant(t->name) && t != head.t && !is_of_model(w, t->name))
                return err_set(e, RC_INVALID, "'%s' holds '%s', which model '%s' does not have",
                    w->files[f].path, t->name, w->model.name);
        }
    return err_set(e, RC_INVALID, "'%s' holds a tensor under two names", w->files[0].path);
}

static enum rc check_tensors(struct weights *w, struct err *e)
{
    int64_t known = 0;
    struct found f;
    enum rc rc = RC_OK;
    for (int unit = 0; unit < model_units(&w->model) && !rc; unit++)
        rc = check_unit(w, unit, &known, e);
    if (!rc && find_tied_head(w, &f)) {
        struct hf_tensor h = tied_head(w);
        rc = check_found(w, &f, &h, e);
    }
    return rc ? rc : refuse_others(w, known, e);
}

/* --- life cycle --- */

enum rc weights_open(struct weights **out, const char *path, const struct model *m, struct err *e)
{
    struct weights *w = base_calloc(1, sizeof(*w));
    bool is_dir = is_folder(path);
    char *dir = is_dir ? base_strdup(path) : folder_of(path);
    *out = NULL;
    w->model = *m;
    w->raw = base_alloc(CHUNK * sizeof(float));
    enum rc rc = is_dir                          ? open_folder(w, path, e)
                 : str_ends(path, ".index.json") ? open_index(w, dir, path, e)
                                                 : add_file(w, path, e);
    if (!rc)
        rc = check_config(w, dir, e);
    if (!rc)
        rc = check_tensors(w, e);
    free(dir);
    if (rc)
        weights_close(w);
    else
        *out = w;
    return rc;
}

void weights_close(struct weights *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->n_files; i++) {
        st_close(w->files[i].reader);
        free(w->files[i].path);
    }
    free(w->files);
    free(w->raw);
    free(w);
}

/* --- values --- */

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

static float from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 0) /* subnormal: 2^-24 times the mantissa */
        return from_bits(sign) + (sign ? -1.0F : 1.0F) * (float)mantissa * 0x1p-24F;
    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | mantissa << 13);
    return from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static void widen(const char *dtype, const unsigned char *raw, int64_t n, float *out)
{
    uint16_t h;
    for (int64_t i = 0; i < n; i++) {
        if (dtype[1] == '3') {
            memcpy(&out[i], raw + i * 4, 4);
            continue;
        }
        memcpy(&h, raw + i * 2, 2);
        out[i] = dtype[0] == 'B' ? from_bits((uint32_t)h << 16) : from_f16(h);
    }
}

/* Elements first .. first + n of a tensor in the file. */
static enum rc read_elements(
    struct weights *w, const struct found *f, int64_t first, int64_t n, float *out, struct err *e)
{
    int64_t size = st_dtype_bytes(f->t->dtype);
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t count = n - at < CHUNK ? n - at : CHUNK;
        enum rc rc = st_read(f->file->reader, f->t, (uint64_t)((first + at) * size), w->raw,
            (size_t)(count * size), e);
        if (rc)
            return rc;
        widen(f->t->dtype, w->raw, count, out + at);
        for (int64_t i = 0; i < count; i++)
            if (!isfinite(out[at + i]))
                return err_set(e, RC_INVALID, "'%s': element %lld of '%s' is not finite",
                    f->file->path, (long long)(first + at + i), f->t->name);
    }
    return RC_OK;
}

/* One row of the file is one of our columns: the outputs of one input. */
static enum rc read_transposed(struct weights *w, const struct found *f, const struct hf_tensor *h,
    int part, int64_t first, int64_t count, float *out, struct err *e)
{
    int64_t cols = h->part[part].cols, all = h->shape[1], before = hf_outputs_before(h, part);
    int64_t top = first / cols, rows = (first + count - 1) / cols - top + 1;
    float *outputs = base_alloc((size_t)rows * sizeof(*outputs));
    enum rc rc = RC_OK;
    for (int64_t c = 0; c < cols && !rc; c++) {
        rc = read_elements(w, f, c * all + before + top, rows, outputs, e);
        for (int64_t r = 0; r < rows && !rc; r++) {
            int64_t at = (top + r) * cols + c - first;
            if (at >= 0 && at < count)
                out[at] = outputs[r];
        }
    }
    free(outputs);
    return rc;
}

/* A model that says it is tied, with another output matrix, is not. */
static enum rc compare_tied(struct weights *w, const char *embedding, int64_t first, int64_t count,
    const float *have, struct err *e)
{
    struct found f;
    if (!find_tied_head(w, &f))
        return RC_OK;
    float *head = base_alloc(CHUNK * sizeof(*head));
    enum rc rc = RC_OK;
    for (int64_t at = 0; at < count && !rc; at += CHUNK) {
        int64_t n = count - at < CHUNK ? count - at : CHUNK;
        rc = read_elements(w, &f, first + at, n, head, e);
        if (!rc && memcmp(head, have + at, (size_t)n * sizeof(*head)) != 0)
            rc = err_set(e, RC_INVALID,
                "'%s': '%s' differs from '%s', although model '%s' ties them", f.file->path,
                f.t->name, embedding, w->model.name);
    }
    free(head);
    return rc;
}

enum rc weights_read(struct weights *w, int unit, enum tensor_role role, int64_t first,
    int64_t count, float *out, struct err *e)
{
    struct hf_tensor list[MODEL_MAX_TENSORS];
    struct found f = {NULL, NULL};
    int n = hf_unit_tensors(&w->model, unit, list), i = 0, part = 0;
    while (i < n && list[i].part[part].role != role)
        if (++part == list[i].n_parts) {
            part = 0;
            i++;
        }
    if (i == n || !find(w, list[i].name, &f))
        return err_set(e, RC_NOT_FOUND, "model '%s' has no such tensor", w->model.name);
    if (count == 0)
        return RC_OK;
    if (list[i].is_transposed)
        return read_transposed(w, &f, &list[i], part, first, count, out, e);
    int64_t before = hf_outputs_before(&list[i], part) * list[i].part[part].cols;
    enum rc rc = read_elements(w, &f, before + first, count, out, e);
    if (!rc && role == T_TOKEN_EMBED)
        rc = compare_tied(w, list[i].name, first, count, out, e);
    return rc;
}
