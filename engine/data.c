#include "engine/data.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"
#include "engine/random.h"
#include "planner/data_kind.h"

/* llm.c's token files: 256 int32 of header (magic, version, tokens), then uint16 or uint32. */
enum { LLMC_HEADER_BYTES = 1024 };

struct data {
    struct data_options o;
    char *path;
    unsigned char *map;
    size_t map_bytes, header_bytes;
    int token_bytes;
    int64_t tokens, samples;
};

static uint32_t read_u32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static enum rc llmc_form(struct data *d, struct err *e)
{
    if (d->map_bytes < LLMC_HEADER_BYTES)
        return err_set(
            e, RC_INVALID, "token file '%s' is shorter than its 1,024-byte header", d->path);
    uint32_t magic = read_u32(d->map), version = read_u32(d->map + 4), count = read_u32(d->map + 8);
    if (magic != DATA_LLMC_MAGIC && magic != DATA_LLMC_MAGIC_U32)
        return err_set(e, RC_INVALID, "token file '%s' does not start as llm.c files do", d->path);
    if (version != 1 && version != 7)
        return err_set(
            e, RC_INVALID, "token file '%s' has version %u; 1 and 7 are known", d->path, version);
    d->header_bytes = LLMC_HEADER_BYTES;
    d->token_bytes = magic == DATA_LLMC_MAGIC_U32 || version == 7 ? 4 : 2;
    d->tokens = count;
    uint64_t need = LLMC_HEADER_BYTES + (uint64_t)count * (uint64_t)d->token_bytes;
    if (need > d->map_bytes)
        return err_set(e, RC_INVALID,
            "token file '%s' is cut short: its header says %u tokens, %llu bytes are missing",
            d->path, count, (unsigned long long)(need - d->map_bytes));
    return RC_OK;
}

static enum rc find_form(struct data *d, struct err *e)
{
    static const int BYTES[DATA_KINDS] = {[DATA_BYTES] = 1, [DATA_UINT16] = 2, [DATA_UINT32] = 4};
    enum data_kind kind = DATA_AUTO;
    enum rc rc = d->o.kind ? data_kind_parse(d->o.kind, &kind, e) : RC_OK;
    if (!rc)
        rc = data_kind_settle(&kind, kind, d->path, d->map, d->map_bytes, e);
    if (rc || kind == DATA_LLMC)
        return rc ? rc : llmc_form(d, e);
    d->token_bytes = BYTES[kind];
    if (d->map_bytes % (size_t)d->token_bytes)
        return err_set(e, RC_INVALID, "token file '%s' has %zu bytes, not a multiple of %d",
            d->path, d->map_bytes, d->token_bytes);
    d->tokens = (int64_t)(d->map_bytes / (size_t)d->token_bytes);
    return RC_OK;
}

static enum rc map_file(struct data *d, struct err *e)
{
    int fd = open(d->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, RC_NOT_FOUND, "cannot open data file '%s'", d->path);
    struct stat st;
    enum rc rc = RC_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        rc = err_set(e, RC_INVALID, "data file '%s' is not a regular file", d->path);
    else if (st.st_size == 0)
        rc = err_set(e, RC_INVALID, "data file '%s' is empty", d->path);
    if (!rc) {
        d->map_bytes = (size_t)st.st_size;
        void *p = mmap(NULL, d->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            rc = err_sys(e, RC_IO, "cannot map data file '%s'", d->path);
        else
            d->map = p;
    }
    close(fd);
    return rc;
}

enum rc data_open(struct data **out, const struct data_options *o, struct err *e)
{
    *out = NULL;
    struct data *d = base_calloc(1, sizeof(*d));
    d->o = *o;
    d->path = base_strdup(o->path);
    enum rc rc = map_file(d, e);
    if (!rc)
        rc = find_form(d, e);
    if (!rc) {
        d->samples = (d->tokens - 1) / o->seq;
        if (d->samples < 1)
            rc = err_set(e, RC_INVALID,
                "data file '%s' has %lld tokens, fewer than one sequence of %lld and its target",
                d->path, (long long)d->tokens, (long long)o->seq);
    }
    if (!rc && d->token_bytes == 1 && o->vocab < 256)
        rc = err_set(e, RC_INVALID,
            "text is read as bytes and needs a vocabulary of 256; the model has %lld",
            (long long)o->vocab);
    if (rc)
        data_close(d);
    else
        *out = d;
    return rc;
}

void data_close(struct data *d)
{
    if (!d)
        return;
    if (d->map)
        munmap(d->map, d->map_bytes);
    free(d->path);
    free(d);
}

int64_t data_samples(const struct data *d)
{
    return d->samples;
}

static uint32_t token_at(const struct data *d, int64_t i)
{
    const unsigned char *p = d->map + d->header_bytes + (size_t)i * (size_t)d->token_bytes;
    return d->token_bytes == 1   ? p[0]
           : d->token_bytes == 2 ? (uint32_t)p[0] | (uint32_t)p[1] << 8
                                 : read_u32(p);
}

enum rc data_sample(
    const struct data *d, int64_t position, int32_t *tokens, int32_t *targets, struct err *e)
{
    uint64_t epoch = (uint64_t)position / (uint64_t)d->samples;
    uint64_t k = random_permute(random_key(d->o.seed, 0xDA7A000000ULL + epoch),
        (uint64_t)position % (uint64_t)d->samples, (uint64_t)d->samples);
    int64_t first = (int64_t)k * d->o.seq;
    for (int64_t i = 0; i <= d->o.seq; i++) {
        uint32_t id = token_at(d, first + i);
        if ((int64_t)id >= d->o.vocab)
            return err_set(e, RC_INVALID,
                "data file '%s': token %lld (byte %lld) is %u, outside the vocabulary of %lld",
                d->path, (long long)(first + i),
                (long long)d->header_bytes + (long long)(first + i) * d->token_bytes, id,
                (long long)d->o.vocab);
        if (i < d->o.seq)
            tokens[i] = (int32_t)id;
        if (i > 0)
            targets[i - 1] = (int32_t)id;
    }
    return RC_OK;
}
