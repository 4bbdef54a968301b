#include "engine/token_writer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "engine/token_file.h"

enum { BUFFER_BYTES = 1 << 20, BATCH = 4096 };

/* A file that is written under another name. */
struct output {
    char *path, *temporary; /* temporary NULL: not there */
    FILE *f;
};

struct token_writer {
    struct token_writer_options o;
    int token_bytes;
    struct output main, index;
    FILE *ends, *mask; /* without a name: uint64 ends of documents, bits of the mask */
    unsigned char mask_bits;
    int64_t tokens, documents, document_end;
    uint32_t largest; /* id */
};

static enum rc failed(const struct output *o, struct err *e)
{
    return err_sys(e, RC_IO, "cannot write '%s'", o->path);
}

static enum rc put(struct output *o, const void *data, size_t n, struct err *e)
{
    return fwrite(data, 1, n, o->f) == n ? RC_OK : failed(o, e);
}

static void put_uint(unsigned char *p, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (unsigned char)(x >> 8 * i);
}

static enum rc put_number(struct output *o, uint64_t x, int bytes, struct err *e)
{
    unsigned char p[8];
    put_uint(p, x, bytes);
    return put(o, p, (size_t)bytes, e);
}

/* --- opening --- */

/* A link stays one: what it points to is replaced. */
static enum rc output_open(struct output *o, const char *path, struct err *e)
{
    struct stat st;
    char *full = realpath(path, NULL);
    o->path = full ? full : base_strdup(path);
    if (full && (stat(full, &st) != 0 || !S_ISREG(st.st_mode)))
        return err_set(e, RC_INVALID, "'%s' is there already and is no file", path);
    o->temporary = base_printf("%s.tmp-%d", o->path, (int)getpid());
    o->f = fopen(o->temporary, "w+e");
    if (!o->f) {
        int error = errno;
        free(o->temporary);
        o->temporary = NULL;
        errno = error;
        return failed(o, e);
    }
    setvbuf(o->f, NULL, _IOFBF, BUFFER_BYTES);
    return RC_OK;
}

static void output_close(struct output *o)
{
    if (o->f)
        fclose(o->f);
    if (o->temporary)
        unlink(o->temporary);
    free(o->temporary);
    free(o->path);
}

/* A file beside the output that goes away with the program. */
static enum rc spool_open(FILE **out, const struct output *beside, struct err *e)
{
    char *path = base_printf("%s-spool-XXXXXX", beside->temporary);
    int fd = mkstemp(path);
    if (fd >= 0)
        unlink(path);
    free(path);
    *out = fd >= 0 ? fdopen(fd, "w+") : NULL;
    if (*out)
        setvbuf(*out, NULL, _IOFBF, BUFFER_BYTES);
    return *out ? RC_OK : failed(beside, e);
}

static int width_of(const struct token_writer_options *o)
{
    if (o->kind == DATA_UINT16 || o->kind == DATA_UINT32)
        return o->kind == DATA_UINT16 ? 2 : 4;
    return o->vocab > 1 << 16 ? 4 : 2;
}

static size_t header_bytes(enum data_kind kind)
{
    return kind == DATA_BERTH ? TOKEN_FILE_HEADER : kind == DATA_LLMC ? LLMC_HEADER_BYTES : 0;
}

static enum rc check(const struct token_writer *w, struct err *e)
{
    enum data_kind kind = w->o.kind;
    if (kind != DATA_BERTH && kind != DATA_UINT16 && kind != DATA_UINT32 && kind != DATA_LLMC &&
        kind != DATA_MEGATRON)
        return err_set(e, RC_USAGE, "tokens cannot be written as '%s'", data_kind_name(kind));
    if (kind == DATA_MEGATRON && !str_ends(w->o.path, ".bin"))
        return err_set(
            e, RC_USAGE, "'%s': Megatron's files are named NAME.bin and NAME.idx", w->o.path);
    if (w->o.has_mask && kind != DATA_BERTH)
        return err_set(e, RC_USAGE,
            "there is a loss mask and files of kind %s hold none; write kind berth",
            data_kind_name(kind));
    return RC_OK;
}

enum rc token_writer_open(
    struct token_writer **out, const struct token_writer_options *o, struct err *e)
{
    struct token_writer *w = base_calloc(1, sizeof(*w));
    unsigned char zeros[LLMC_HEADER_BYTES] = {0};
    *out = NULL;
    w->o = *o;
    w->token_bytes = width_of(o);
    enum rc rc = check(w, e);
    if (!rc)
        rc = output_open(&w->main, o->path, e);
    if (!rc && o->kind == DATA_MEGATRON) {
        char *index = data_kind_index_path(o->path);
        rc = output_open(&w->index, index, e);
        free(index);
    }
    if (!rc)
        rc = spool_open(&w->ends, &w->main, e);
    if (!rc && o->has_mask)
        rc = spool_open(&w->mask, &w->main, e);
    if (!rc)
        rc = put(&w->main, zeros, header_bytes(o->kind), e);
    if (rc)
        token_writer_close(w);
    else
        *out = w;
    return rc;
}

void token_writer_close(struct token_writer *w)
{
    if (!w)
        return;
    if (w->ends)
        fclose(w->ends);
    if (w->mask)
        fclose(w->mask);
    output_close(&w->main);
    output_close(&w->index);
    free(w);
}

int64_t token_writer_tokens(const struct token_writer *w)
{
    return w->tokens;
}

int64_t token_writer_documents(const struct token_writer *w)
{
    return w->documents;
}

int token_writer_bytes(const struct token_writer *w)
{
    return w->token_bytes;
}

/* --- tokens --- */

static enum rc add_mask(
    struct token_writer *w, const unsigned char *counts, size_t n, struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        int bit = (int)((w->tokens + (int64_t)i) % 8);
        w->mask_bits |= (unsigned char)((!counts || counts[i]) << bit);
        if (bit < 7)
            continue;
        if (fputc(w->mask_bits, w->mask) == EOF)
            return failed(&w->main, e);
        w->mask_bits = 0;
    }
    return RC_OK;
}

enum rc token_writer_add(struct token_writer *w, const uint32_t *ids, const unsigned char *counts,
    size_t n, struct err *e)
{
    unsigned char bytes[4 * BATCH];
    enum rc rc = w->mask ? add_mask(w, counts, n, e) : RC_OK;
    for (size_t done = 0, batch; done < n && !rc; done += batch) {
        batch = n - done < BATCH ? n - done : BATCH;
        for (size_t i = 0; i < batch; i++) {
            uint32_t id = ids[done + i];
            if (w->token_bytes == 2 && id > UINT16_MAX)
                return err_set(e, RC_INVALID,
                    "token %lld is %u, which 2 bytes do not hold; use uint32 or kind berth",
                    (long long)(w->tokens + (int64_t)(done + i)), id);
            w->largest = id > w->largest ? id : w->largest;
            put_uint(bytes + i * (size_t)w->token_bytes, id, w->token_bytes);
        }
        rc = put(&w->main, bytes, batch * (size_t)w->token_bytes, e);
    }
    w->tokens += (int64_t)n;
    return rc;
}

enum rc token_writer_end_document(struct token_writer *w, struct err *e)
{
    unsigned char end[8];
    if (w->tokens == w->document_end)
        return RC_OK;
    if (w->o.kind == DATA_MEGATRON && w->tokens - w->document_end > INT32_MAX)
        return err_set(e, RC_LIMIT,
            "document %lld has more than 2^31 - 1 tokens, which Megatron's index cannot say",
            (long long)w->documents);
    put_uint(end, (uint64_t)w->tokens, 8);
    w->document_end = w->tokens;
    w->documents++;
    return fwrite(end, 1, 8, w->ends) == 8 ? RC_OK : failed(&w->main, e);
}

/* --- the end --- */

static enum rc finish_berth(struct token_writer *w, struct err *e)
{
    unsigned char header[TOKEN_FILE_HEADER] = DATA_BERTH_MAGIC, chunk[BATCH];
    int64_t bytes = TOKEN_FILE_HEADER + w->tokens * w->token_bytes;
    enum rc rc =
        put_number(&w->main, 0, (int)(base_align_up((uint64_t)bytes, 8) - (uint64_t)bytes), e);
    FILE *spools[] = {w->ends, w->mask};
    if (!rc && w->mask && w->tokens % 8 && fputc(w->mask_bits, w->mask) == EOF)
        rc = failed(&w->main, e);
    for (size_t i = 0; i < BASE_COUNT(spools) && !rc; i++) {
        if (!spools[i])
            continue;
        rewind(spools[i]);
        for (size_t n; !rc && (n = fread(chunk, 1, sizeof(chunk), spools[i])) > 0;)
            rc = put(&w->main, chunk, n, e);
        if (!rc && ferror(spools[i]))
            rc = failed(&w->main, e);
    }
    put_uint(header + 8, TOKEN_FILE_VERSION, 4);
    put_uint(header + 12, (uint64_t)w->token_bytes, 4);
    put_uint(header + 16, (uint64_t)w->tokens, 8);
    put_uint(header + 24, (uint64_t)w->documents, 8);
    put_uint(header + 32, (uint64_t)w->largest + 1, 8);
    put_uint(header + 40, w->mask != NULL, 8);
    put_uint(header + 48, (uint64_t)w->o.end_of_text, 8);
    rewind(w->main.f);
    return rc ? rc : put(&w->main, header, sizeof(header), e);
}

static enum rc finish_llmc(struct token_writer *w, struct err *e)
{
    bool is_wide = w->token_bytes == 4;
    if (w->tokens > INT32_MAX)
        return err_set(e, RC_LIMIT,
            "%lld tokens are more than the header of an llm.c file can say (2^31 - 1)",
            (long long)w->tokens);
    rewind(w->main.f);
    enum rc rc = put_number(&w->main, is_wide ? DATA_LLMC_MAGIC_U32 : DATA_LLMC_MAGIC, 4, e);
    if (!rc)
        rc = put_number(&w->main, is_wide ? 7 : 1, 4, e);
    return rc ? rc : put_number(&w->main, (uint64_t)w->tokens, 4, e);
}

/* What is written of each document, in three passes over their ends. */
enum pass { LENGTHS, POINTERS, PASSES };

static enum rc index_pass(struct token_writer *w, enum pass pass, struct err *e)
{
    unsigned char end[8];
    int64_t last = 0;
    enum rc rc = RC_OK;
    rewind(w->ends);
    while (!rc && fread(end, 1, 8, w->ends) == 8) {
        int64_t here = 0;
        for (int i = 0; i < 8; i++)
            here |= (int64_t)end[i] << 8 * i;
        rc = pass == LENGTHS ? put_number(&w->index, (uint64_t)(here - last), 4, e)
                             : put_number(&w->index, (uint64_t)(last * w->token_bytes), 8, e);
        last = here;
    }
    if (!rc && ferror(w->ends))
        rc = failed(&w->index, e);
    return rc;
}

/* Every document is one sequence. */
static enum rc finish_megatron(struct token_writer *w, struct err *e)
{
    static const char magic[9] = "MMIDIDX\0";
    uint64_t documents = (uint64_t)w->documents;
    enum rc rc = put(&w->index, magic, sizeof(magic), e);
    if (!rc)
        rc = put_number(&w->index, 1, 8, e);
    if (!rc)
        rc = put_number(&w->index, w->token_bytes == 2 ? MEGATRON_UINT16 : MEGATRON_INT32, 1, e);
    if (!rc)
        rc = put_number(&w->index, documents, 8, e);
    if (!rc)
        rc = put_number(&w->index, documents + 1, 8, e);
    for (int pass = 0; pass < PASSES && !rc; pass++)
        rc = index_pass(w, (enum pass)pass, e);
    for (uint64_t i = 0; i <= documents && !rc; i++)
        rc = put_number(&w->index, i, 8, e);
    return rc;
}

static enum rc output_sync(struct output *o, struct err *e)
{
    if (o->f && (fflush(o->f) != 0 || fsync(fileno(o->f)) != 0))
        return failed(o, e);
    return RC_OK;
}

static enum rc output_rename(struct output *o, struct err *e)
{
    if (!o->f)
        return RC_OK;
    if (rename(o->temporary, o->path) != 0)
        return failed(o, e);
    free(o->temporary);
    o->temporary = NULL;
    char *slash = strrchr(o->path, '/');
    char *dir = slash ? base_strndup(o->path, (size_t)(slash - o->path) + 1) : base_strdup(".");
    enum rc rc = dir_sync(dir, e);
    free(dir);
    return rc;
}

enum rc token_writer_finish(struct token_writer *w, struct err *e)
{
    enum rc rc =
        w->documents > 0 || w->o.kind == DATA_MEGATRON ? token_writer_end_document(w, e) : RC_OK;
    if (!rc && w->o.kind == DATA_BERTH)
        rc = finish_berth(w, e);
    if (!rc && w->o.kind == DATA_LLMC)
        rc = finish_llmc(w, e);
    if (!rc && w->o.kind == DATA_MEGATRON)
        rc = finish_megatron(w, e);
    struct output *all[] = {&w->main, &w->index};
    for (size_t i = 0; i < BASE_COUNT(all) && !rc; i++)
        rc = output_sync(all[i], e);
    for (size_t i = 0; i < BASE_COUNT(all) && !rc; i++)
        rc = output_rename(all[i], e);
    return rc;
}
