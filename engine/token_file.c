#include "engine/token_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"

struct token_file {
    struct token_file_info info;
    struct mapped_file file, index;
    const unsigned char *tokens, *ends, *mask;
    const unsigned char *lengths, *pointers, *documents; /* of Megatron's index */
};

static const uint64_t MAX_TOKENS = (uint64_t)1 << 56;

static uint64_t read_uint(const unsigned char *p, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)p[i] << 8 * i;
    return x;
}

/* --- mapping --- */

enum rc mapped_file_open(struct mapped_file *out, const char *path, const char *what, struct err *e)
{
    *out = (struct mapped_file){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, RC_NOT_FOUND, "cannot open %s '%s'", what, path);
    struct stat st;
    enum rc rc = RC_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = err_set(e, RC_INVALID, "%s '%s' is not a regular file", what, path);
    else if (st.st_size == 0)
        rc = err_set(e, RC_INVALID, "%s '%s' is empty", what, path);
    if (!rc) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            rc = err_sys(e, RC_IO, "cannot map %s '%s'", what, path);
        else
            *out = (struct mapped_file){base_strdup(path), p, (size_t)st.st_size};
    }
    close(fd);
    return rc;
}

void mapped_file_close(struct mapped_file *m)
{
    if (m->p)
        munmap((void *)(uintptr_t)m->p, m->n);
    free(m->path);
    *m = (struct mapped_file){0};
}

/* --- forms --- */

static enum rc cut_short(const struct mapped_file *m, uint64_t need, struct err *e)
{
    return err_set(e, RC_INVALID,
        "'%s' is cut short: it ends at byte %zu, by its header it should at %llu", m->path, m->n,
        (unsigned long long)need);
}

static enum rc plain_form(struct token_file *f, int bytes, struct err *e)
{
    if (f->file.n % (size_t)bytes)
        return err_set(e, RC_INVALID, "token file '%s' has %zu bytes, not a multiple of %d",
            f->file.path, f->file.n, bytes);
    f->tokens = f->file.p;
    f->info.token_bytes = bytes;
    f->info.tokens = (int64_t)(f->file.n / (size_t)bytes);
    return RC_OK;
}

static enum rc bytes_form(struct token_file *f, struct err *e)
{
    return plain_form(f, 1, e);
}

static enum rc uint16_form(struct token_file *f, struct err *e)
{
    return plain_form(f, 2, e);
}

static enum rc uint32_form(struct token_file *f, struct err *e)
{
    return plain_form(f, 4, e);
}

static enum rc llmc_form(struct token_file *f, struct err *e)
{
    const struct mapped_file *m = &f->file;
    if (m->n < LLMC_HEADER_BYTES)
        return err_set(
            e, RC_INVALID, "token file '%s' is shorter than its 1,024-byte header", m->path);
    uint64_t magic = read_uint(m->p, 4), version = read_uint(m->p + 4, 4);
    uint64_t count = read_uint(m->p + 8, 4);
    if (magic != DATA_LLMC_MAGIC && magic != DATA_LLMC_MAGIC_U32)
        return err_set(
            e, RC_INVALID, "token file '%s' does not start as llm.c files do (byte 0)", m->path);
    if (version != 1 && version != 7)
        return err_set(e, RC_INVALID,
            "token file '%s' has version %llu (byte 4); 1 and 7 are known", m->path,
            (unsigned long long)version);
    f->tokens = m->p + LLMC_HEADER_BYTES;
    f->info.token_bytes = magic == DATA_LLMC_MAGIC_U32 || version == 7 ? 4 : 2;
    f->info.tokens = (int64_t)count;
    uint64_t need = LLMC_HEADER_BYTES + count * (uint64_t)f->info.token_bytes;
    return need > m->n ? cut_short(m, need, e) : RC_OK;
}

static enum rc berth_header(struct token_file *f, uint64_t *documents, struct err *e)
{
    const unsigned char *p = f->file.p;
    const char *path = f->file.path;
    if (f->file.n < TOKEN_FILE_HEADER || memcmp(p, DATA_BERTH_MAGIC, DATA_MAGIC_BYTES) != 0)
        return err_set(e, RC_INVALID,
            "token file '%s' does not start as those of berth data do (byte 0)", path);
    uint64_t version = read_uint(p + 8, 4), width = read_uint(p + 12, 4);
    uint64_t tokens = read_uint(p + 16, 8), ids_end = read_uint(p + 32, 8);
    uint64_t end = read_uint(p + 48, 8);
    *documents = read_uint(p + 24, 8);
    if (version != TOKEN_FILE_VERSION)
        return err_set(e, RC_INVALID, "token file '%s' has version %llu (byte 8); 1 is known", path,
            (unsigned long long)version);
    if (width != 2 && width != 4)
        return err_set(e, RC_INVALID, "token file '%s' has tokens of %llu bytes (byte 12)", path,
            (unsigned long long)width);
    if (tokens > MAX_TOKENS || *documents > tokens || ids_end > (uint64_t)1 << 32)
        return err_set(
            e, RC_INVALID, "the header of token file '%s' is damaged (bytes 16 to 40)", path);
    f->info.token_bytes = (int)width;
    f->info.tokens = (int64_t)tokens;
    f->info.documents = (int64_t)*documents;
    f->info.ids_end = (int64_t)ids_end;
    f->info.has_mask = read_uint(p + 40, 8) == 1;
    f->info.end_of_text = end <= UINT32_MAX ? (int64_t)end : -1;
    return RC_OK;
}

static enum rc berth_form(struct token_file *f, struct err *e)
{
    uint64_t documents = 0;
    enum rc rc = berth_header(f, &documents, e);
    if (rc)
        return rc;
    uint64_t tokens = (uint64_t)f->info.tokens;
    uint64_t ends = base_align_up(TOKEN_FILE_HEADER + tokens * (uint64_t)f->info.token_bytes, 8);
    uint64_t mask = ends + 8 * documents;
    uint64_t need = mask + (f->info.has_mask ? (tokens + 7) / 8 : 0);
    if (need > f->file.n)
        return cut_short(&f->file, need, e);
    f->tokens = f->file.p + TOKEN_FILE_HEADER;
    f->ends = f->file.p + ends;
    f->mask = f->info.has_mask ? f->file.p + mask : NULL;
    if (documents > 0 && read_uint(f->ends + 8 * (documents - 1), 8) != tokens)
        return err_set(e, RC_INVALID,
            "token file '%s': the last document does not end with the last token (byte %llu)",
            f->file.path, (unsigned long long)(mask - 8));
    return RC_OK;
}

/* --- Megatron's two files --- */

static const struct {
    int bytes;
    bool is_signed;
} TYPES[9] = {[MEGATRON_UINT8] = {1, false},
    [MEGATRON_INT8] = {1, true},
    [MEGATRON_INT16] = {2, true},
    [MEGATRON_INT32] = {4, true},
    [MEGATRON_INT64] = {8, true},
    [MEGATRON_UINT16] = {2, false}};

static enum rc index_header(struct token_file *f, uint64_t *starts, struct err *e)
{
    static const char magic[9] = "MMIDIDX\0";
    const struct mapped_file *m = &f->index;
    if (m->n < MEGATRON_HEADER_BYTES || memcmp(m->p, magic, sizeof(magic)) != 0)
        return err_set(
            e, RC_INVALID, "index '%s' does not start as Megatron's do (byte 0)", m->path);
    uint64_t version = read_uint(m->p + 9, 8), sequences = read_uint(m->p + 18, 8);
    unsigned type = m->p[17];
    *starts = read_uint(m->p + 26, 8);
    if (version != 1)
        return err_set(e, RC_INVALID, "index '%s' has version %llu (byte 9); 1 is known", m->path,
            (unsigned long long)version);
    if (type >= BASE_COUNT(TYPES) || TYPES[type].bytes == 0)
        return err_set(e, RC_INVALID, "index '%s': numbers of type %u (byte 17) hold no token ids",
            m->path, type);
    if (sequences > MAX_TOKENS || *starts > MAX_TOKENS || *starts < 1)
        return err_set(
            e, RC_INVALID, "the header of index '%s' is damaged (bytes 18 to 33)", m->path);
    f->info.token_bytes = TYPES[type].bytes;
    f->info.is_signed = TYPES[type].is_signed;
    f->info.sequences = (int64_t)sequences;
    f->info.documents = (int64_t)*starts - 1;
    return RC_OK;
}

/* Behind which token a sequence ends. */
static int64_t sequence_end(const struct token_file *f, int64_t i)
{
    int64_t first = (int64_t)read_uint(f->pointers + 8 * i, 8) / f->info.token_bytes;
    int64_t length = (int32_t)read_uint(f->lengths + 4 * i, 4);
    return (int64_t)((uint64_t)first + (uint64_t)length); /* the file may say anything */
}

static enum rc index_form(struct token_file *f, struct err *e)
{
    uint64_t starts = 0;
    enum rc rc = index_header(f, &starts, e);
    if (rc)
        return rc;
    uint64_t n = (uint64_t)f->info.sequences;
    uint64_t need = MEGATRON_HEADER_BYTES + 12 * n + 8 * starts;
    if (need > f->index.n)
        return cut_short(&f->index, need, e);
    f->lengths = f->index.p + MEGATRON_HEADER_BYTES;
    f->pointers = f->lengths + 4 * n;
    f->documents = f->pointers + 8 * n;
    return RC_OK;
}

static enum rc megatron_form(struct token_file *f, struct err *e)
{
    char *path = data_kind_index_path(f->file.path);
    enum rc rc = path ? mapped_file_open(&f->index, path, "index", e)
                      : err_set(e, RC_INVALID, "'%s' does not end with .bin", f->file.path);
    free(path);
    if (!rc)
        rc = index_form(f, e);
    if (!rc)
        rc = plain_form(f, f->info.token_bytes, e);
    if (rc)
        return rc;
    int64_t sequences = f->info.sequences, said = sequences ? sequence_end(f, sequences - 1) : 0;
    if (said != f->info.tokens)
        return err_set(e, RC_INVALID,
            "'%s' has %lld tokens, its index '%s' says %lld (sequence %lld at byte %lld)",
            f->file.path, (long long)f->info.tokens, f->index.path, (long long)said,
            (long long)sequences - 1, (long long)(f->pointers - f->index.p) + 8 * (sequences - 1));
    return RC_OK;
}

static enum rc check_sequences(const struct token_file *f, struct err *e)
{
    int64_t at = 0;
    for (int64_t i = 0; i < f->info.sequences; i++) {
        int64_t pointer = (int64_t)read_uint(f->pointers + 8 * i, 8);
        if (pointer != at * f->info.token_bytes || sequence_end(f, i) < at)
            return err_set(e, RC_INVALID,
                "index '%s': sequence %lld (byte %lld) does not begin where the one before it ends",
                f->index.path, (long long)i, (long long)(f->pointers - f->index.p) + 8 * i);
        at = sequence_end(f, i);
    }
    return RC_OK;
}

enum rc token_file_check_index(const struct token_file *f, struct err *e)
{
    enum rc rc = f->index.p ? check_sequences(f, e) : RC_OK;
    int64_t last = 0;
    for (int64_t i = 0; i < f->info.documents && !rc; i++) {
        const unsigned char *at = f->index.p ? f->documents + 8 * (i + 1) : f->ends + 8 * i;
        const struct mapped_file *m = f->index.p ? &f->index : &f->file;
        int64_t limit = f->index.p ? f->info.sequences : f->info.tokens;
        int64_t end = (int64_t)read_uint(at, 8);
        if (end < last || end > limit)
            rc =
                err_set(e, RC_INVALID, "'%s': the end of document %lld (byte %lld) is out of order",
                    m->path, (long long)i, (long long)(at - m->p));
        last = end;
    }
    return rc;
}

/* --- life cycle --- */

static enum rc settle_kind(enum data_kind *kind, const struct mapped_file *m, struct err *e)
{
    char *index = data_kind_index_path(m->path);
    struct data_start start = {
        .path = m->path, .first = m->p, .n = m->n, .has_index = index && file_exists(index)};
    free(index);
    return data_kind_settle(kind, *kind, &start, e);
}

enum rc token_file_open(
    struct token_file **out, const char *path, enum data_kind kind, struct err *e)
{
    static enum rc (*const form[DATA_KINDS])(struct token_file * f, struct err * e) = {
        [DATA_BYTES] = bytes_form,
        [DATA_BERTH] = berth_form,
        [DATA_UINT16] = uint16_form,
        [DATA_UINT32] = uint32_form,
        [DATA_LLMC] = llmc_form,
        [DATA_MEGATRON] = megatron_form,
    };
    struct token_file *f = base_calloc(1, sizeof(*f));
    *out = NULL;
    f->info.end_of_text = -1;
    enum rc rc = mapped_file_open(&f->file, path, "data file", e);
    if (!rc)
        rc = settle_kind(&kind, &f->file, e);
    if (!rc) {
        f->info.kind = kind;
        rc = form[kind](f, e);
    }
    if (rc)
        token_file_close(f);
    else
        *out = f;
    return rc;
}

void token_file_close(struct token_file *f)
{
    if (!f)
        return;
    mapped_file_close(&f->file);
    mapped_file_close(&f->index);
    free(f);
}

const struct token_file_info *token_file_info(const struct token_file *f)
{
    return &f->info;
}

/* --- tokens --- */

int64_t token_file_at(const struct token_file *f, int64_t i)
{
    int bytes = f->info.token_bytes, shift = 64 - 8 * bytes;
    uint64_t x = read_uint(f->tokens + i * bytes, bytes);
    return f->info.is_signed ? (int64_t)(x << shift) >> shift : (int64_t)x;
}

static enum rc outside(const struct token_file *f, int64_t i, int64_t vocab, struct err *e)
{
    return err_set(e, RC_INVALID,
        "data file '%s': token %lld (byte %lld) is %lld, outside the vocabulary of %lld",
        f->file.path, (long long)i,
        (long long)(f->tokens - f->file.p) + (long long)i * f->info.token_bytes,
        (long long)token_file_at(f, i), (long long)vocab);
}

enum rc token_file_read(const struct token_file *f, int64_t first, int64_t n, int64_t vocab,
    int32_t *out, struct err *e)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t id = token_file_at(f, first + i);
        if (id < 0 || id >= vocab)
            return outside(f, first + i, vocab, e);
        out[i] = (int32_t)id;
    }
    return RC_OK;
}

bool token_file_counts(const struct token_file *f, int64_t i)
{
    return !f->mask || f->mask[i / 8] >> (i % 8) & 1;
}

int64_t token_file_document_end(const struct token_file *f, int64_t i)
{
    if (!f->index.p)
        return (int64_t)read_uint(f->ends + 8 * i, 8);
    int64_t sequence = (int64_t)read_uint(f->documents + 8 * (i + 1), 8);
    return sequence > 0 && sequence <= f->info.sequences ? sequence_end(f, sequence - 1) : 0;
}
