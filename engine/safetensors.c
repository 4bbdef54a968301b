#include "engine/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"

struct st_writer {
    char *path;
    int fd;
    uint64_t bytes, expected;
    struct hash_stream *hash;
};

struct st_reader {
    char *path;
    int fd;
    uint64_t data_start;
    struct st_tensor *tensors; /* sorted by name */
    size_t n;
};

int st_dtype_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        int bytes;
    } TYPES[] = {{"F32", 4}, {"BF16", 2}, {"F16", 2}, {"F64", 8}, {"I64", 8}, {"U64", 8},
        {"I32", 4}, {"U32", 4}, {"I16", 2}, {"U16", 2}, {"I8", 1}, {"U8", 1}, {"BOOL", 1},
        {"F8_E4M3", 1}, {"F8_E5M2", 1}};
    for (size_t i = 0; i < BASE_COUNT(TYPES); i++)
        if (strcmp(TYPES[i].name, dtype) == 0)
            return TYPES[i].bytes;
    return 0;
}

/* --- writing --- */

static char *make_header(struct st_tensor *t, size_t n, uint64_t *data_bytes)
{
    struct json *root = json_obj(), *metadata = json_obj();
    uint64_t at = 0;
    json_add_str(metadata, "format", "pt"); /* transformers loads no file without it */
    json_add(root, "__metadata__", metadata);
    for (size_t i = 0; i < n; i++) {
        uint64_t elems = 1;
        struct json *entry = json_obj(), *shape = json_arr(), *offsets = json_arr();
        for (int d = 0; d < t[i].dims; d++) {
            json_push_int(shape, t[i].shape[d]);
            elems *= (uint64_t)t[i].shape[d];
        }
        t[i].begin = at;
        at += elems * (uint64_t)st_dtype_bytes(t[i].dtype);
        t[i].end = at;
        json_push_int(offsets, (int64_t)t[i].begin);
        json_push_int(offsets, (int64_t)t[i].end);
        json_add_str(entry, "dtype", t[i].dtype);
        json_add(entry, "shape", shape);
        json_add(entry, "data_offsets", offsets);
        json_add(root, t[i].name, entry);
    }
    *data_bytes = at;
    char *text = json_print(root, false);
    json_free(root);
    return text;
}

uint64_t st_header(struct str *out, struct st_tensor *tensors, size_t n)
{
    uint64_t data_bytes;
    char *text = make_header(tensors, n, &data_bytes);
    size_t start = out->len;
    uint64_t len = base_align_up(strlen(text) + 8, 64) - 8; /* data start aligned */
    for (int i = 0; i < 8; i++)
        str_addc(out, (char)(len >> (8 * i)));
    str_add(out, text);
    while (out->len - start < len + 8)
        str_addc(out, ' ');
    free(text);
    return data_bytes;
}

enum rc st_create(
    struct st_writer **out, const char *path, struct st_tensor *tensors, size_t n, struct err *e)
{
    *out = NULL;
    struct st_writer *w = base_calloc(1, sizeof(*w));
    w->path = base_strdup(path);
    w->hash = hash_stream_new();
    w->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (w->fd < 0) {
        enum rc rc = err_sys(e, RC_IO, "cannot create '%s'", path);
        st_abandon(w);
        return rc;
    }
    struct str s = STR_INIT;
    w->expected = st_header(&s, tensors, n);
    w->expected += s.len;
    enum rc rc = st_write(w, s.p, s.len, e);
    str_release(&s);
    if (rc) {
        st_abandon(w);
        return rc;
    }
    *out = w;
    return RC_OK;
}

enum rc st_write(struct st_writer *w, const void *data, size_t bytes, struct err *e)
{
    enum rc rc = file_write_fd(w->fd, data, bytes, w->path, e);
    hash_stream_add(w->hash, data, bytes);
    w->bytes += bytes;
    return rc;
}

static void writer_free(struct st_writer *w)
{
    hash_stream_free(w->hash);
    free(w->path);
    free(w);
}

enum rc st_finish(struct st_writer *w, uint64_t *bytes, struct hash128 *hash, struct err *e)
{
    enum rc rc = RC_OK;
    if (w->bytes != w->expected)
        rc = err_set(e, RC_FAILED, "'%s' got %llu of %llu bytes", w->path,
            (unsigned long long)w->bytes, (unsigned long long)w->expected);
    if (!rc && fsync(w->fd) != 0)
        rc = err_sys(e, RC_IO, "cannot write '%s'", w->path);
    if (rc) {
        st_abandon(w);
        return rc;
    }
    *bytes = w->bytes;
    *hash = hash_stream_end(w->hash);
    close(w->fd);
    writer_free(w);
    return RC_OK;
}

void st_abandon(struct st_writer *w)
{
    if (!w)
        return;
    if (w->fd >= 0) {
        close(w->fd);
        unlink(w->path);
    }
    writer_free(w);
}

/* --- reading --- */

static enum rc bad(const struct st_reader *r, const char *what, const char *name, struct err *e)
{
    return err_set(e, RC_INVALID, "'%s' is not a sound safetensors file: %s%s%s%s", r->path, what,
        name ? " '" : "", name ? name : "", name ? "'" : "");
}

static enum rc read_entry(
    struct st_reader *r, struct st_tensor *t, const char *name, const struct json *v, struct err *e)
{
    const struct json *shape = json_get(v, "shape"), *offsets = json_get(v, "data_offsets");
    const char *dtype = json_str(v, "dtype", "");
    uint64_t elems = 1, bytes;
    t->name = base_strdup(name);
    str_copy(t->dtype, sizeof(t->dtype), dtype);
    if (!st_dtype_bytes(dtype))
        return bad(r, "unknown type of", name, e);
    if (!json_is_arr(shape) || json_len(shape) > ST_MAX_DIMS || json_len(offsets) != 2)
        return bad(r, "no shape or offsets for", name, e);
    t->dims = (int)json_len(shape);
    for (int d = 0; d < t->dims; d++) {
        t->shape[d] = json_as_int(json_at(shape, (size_t)d), -1);
        if (t->shape[d] < 0 || !base_mul(elems, (uint64_t)t->shape[d], &elems))
            return bad(r, "absurd shape of", name, e);
    }
    int64_t begin = json_as_int(json_at(offsets, 0), -1),
            end = json_as_int(json_at(offsets, 1), -1);
    if (begin < 0 || end < begin || !base_mul(elems, (uint64_t)st_dtype_bytes(dtype), &bytes) ||
        (uint64_t)(end - begin) != bytes)
        return bad(r, "shape and offsets disagree for", name, e);
    t->begin = (uint64_t)begin;
    t->end = (uint64_t)end;
    return RC_OK;
}

static int by_begin(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

static enum rc check_offsets(struct st_reader *r, uint64_t data_bytes, struct err *e)
{
    if (r->n) /* qsort takes no null pointer */
        qsort(r->tensors, r->n, sizeof(*r->tensors), by_begin);
    uint64_t at = 0;
    for (size_t i = 0; i < r->n; i++) {
        if (r->tensors[i].begin != at)
            return bad(r, "a hole or an overlap before", r->tensors[i].name, e);
        at = r->tensors[i].end;
    }
    if (at != data_bytes)
        return err_set(e, RC_INVALID,
            "'%s' is cut short or has a tail: its header describes %llu data bytes, the file has "
            "%llu",
            r->path, (unsigned long long)at, (unsigned long long)data_bytes);
    if (r->n)
        qsort(r->tensors, r->n, sizeof(*r->tensors), by_name);
    return RC_OK;
}

static enum rc check_metadata(const struct st_reader *r, const struct json *v, struct err *e)
{
    void *cursor = NULL;
    const char *name;
    const struct json *text;
    if (!json_is_obj(v))
        return bad(r, "its '__metadata__' is not an object", NULL, e);
    while (json_next(v, &cursor, &name, &text))
        if (!json_is_str(text))
            return bad(r, "no text in '__metadata__' for", name, e);
    return RC_OK;
}

static enum rc read_entries(struct st_reader *r, const struct json *root, struct err *e)
{
    void *cursor = NULL;
    const char *name;
    const struct json *v;
    size_t cap = 0;
    if (!json_is_obj(root))
        return bad(r, "its header is not an object", NULL, e);
    while (json_next(root, &cursor, &name, &v)) {
        if (strcmp(name, "__metadata__") == 0) {
            if (check_metadata(r, v, e))
                return e->code;
            continue;
        }
        BASE_GROW(r->tensors, cap, r->n + 1);
        struct st_tensor *t = &r->tensors[r->n++];
        memset(t, 0, sizeof(*t));
        enum rc rc = read_entry(r, t, name, v, e);
        if (rc)
            return rc;
    }
    return RC_OK;
}

static enum rc read_at(struct st_reader *r, uint64_t offset, void *out, size_t bytes, struct err *e)
{
    char *p = out;
    while (bytes) {
        ssize_t n = pread(r->fd, p, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, RC_IO, "cannot read '%s'", r->path);
        if (n == 0)
            return bad(r, "it ends early", NULL, e);
        p += n;
        offset += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return RC_OK;
}

static enum rc read_header(struct st_reader *r, struct err *e)
{
    struct stat st;
    if (fstat(r->fd, &st) != 0 || !S_ISREG(st.st_mode))
        return bad(r, "not a regular file", NULL, e);
    unsigned char head[8] = {0};
    enum rc rc =
        st.st_size < 8 ? bad(r, "shorter than 8 bytes", NULL, e) : read_at(r, 0, head, 8, e);
    if (rc)
        return rc;
    uint64_t len = 0;
    for (int i = 0; i < 8; i++)
        len |= (uint64_t)head[i] << (8 * i);
    if (len > ST_MAX_HEADER_BYTES || len > (uint64_t)st.st_size - 8)
        return err_set(e, RC_INVALID,
            "'%s' is not a sound safetensors file: it claims a header of %llu bytes and has %lld "
            "bytes in all",
            r->path, (unsigned long long)len, (long long)st.st_size);
    char *text = base_alloc(len + 1);
    rc = read_at(r, 8, text, len, e);
    struct json *root = NULL;
    if (!rc) {
        rc = text[0] == '{' ? json_parse(&root, text, len, e)
                            : bad(r, "its header does not begin with '{'", NULL, e);
        if (rc && text[0] == '{')
            err_in(e, "header of '%s'", r->path);
    }
    if (!rc)
        rc = read_entries(r, root, e);
    r->data_start = 8 + len;
    if (!rc)
        rc = check_offsets(r, (uint64_t)st.st_size - r->data_start, e);
    json_free(root);
    free(text);
    return rc;
}

enum rc st_open(struct st_reader **out, const char *path, struct err *e)
{
    *out = NULL;
    struct st_reader *r = base_calloc(1, sizeof(*r));
    r->path = base_strdup(path);
    r->fd = open(path, O_RDONLY | O_CLOEXEC);
    enum rc rc = r->fd < 0 ? err_sys(e, RC_NOT_FOUND, "cannot open '%s'", path) : read_header(r, e);
    if (rc)
        st_close(r);
    else
        *out = r;
    return rc;
}

void st_close(struct st_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    for (size_t i = 0; i < r->n; i++)
        free(r->tensors[i].name);
    free(r->tensors);
    free(r->path);
    free(r);
}

const struct st_tensor *st_find(const struct st_reader *r, const char *name)
{
    struct st_tensor key = {.name = (char *)(uintptr_t)name};
    return bsearch(&key, r->tensors, r->n, sizeof(*r->tensors), by_name);
}

size_t st_count(const struct st_reader *r)
{
    return r->n;
}

const struct st_tensor *st_at(const struct st_reader *r, size_t i)
{
    return &r->tensors[i];
}

enum rc st_read(struct st_reader *r, const struct st_tensor *t, uint64_t offset, void *out,
    size_t bytes, struct err *e)
{
    if (offset > t->end - t->begin || bytes > t->end - t->begin - offset)
        return bad(r, "asked beyond", t->name, e);
    return read_at(r, r->data_start + t->begin + offset, out, bytes, e);
}
