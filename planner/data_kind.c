#include "planner/data_kind.h"

#include <string.h>

#include "base/alloc.h"
#include "base/str.h"

static const char *const names[] = {
#define X(name, word, help) word,
    DATA_KIND_MAP(X)
#undef X
};
static const char *const helps[] = {
#define X(name, word, help) help,
    DATA_KIND_MAP(X)
#undef X
};

const char *data_kind_name(enum data_kind k)
{
    return names[k];
}

const char *data_kind_help(enum data_kind k)
{
    return helps[k];
}

enum rc data_kind_parse(const char *word, enum data_kind *out, struct err *e)
{
    for (int i = 0; i < DATA_KINDS; i++)
        if (strcmp(word, names[i]) == 0) {
            *out = (enum data_kind)i;
            return RC_OK;
        }
    return err_set(e, RC_INVALID, "data kind '%s' is unknown; use one of " DATA_KIND_CHOICES, word);
}

static bool has_magic(const unsigned char *first, size_t n)
{
    if (n < 4)
        return false;
    uint32_t x = (uint32_t)first[0] | (uint32_t)first[1] << 8 | (uint32_t)first[2] << 16 |
                 (uint32_t)first[3] << 24;
    return x == DATA_LLMC_MAGIC || x == DATA_LLMC_MAGIC_U32;
}

static bool starts_with(const struct data_start *s, const char *magic)
{
    return s->n >= DATA_MAGIC_BYTES && memcmp(s->first, magic, DATA_MAGIC_BYTES) == 0;
}

static enum rc guess(enum data_kind *out, const struct data_start *s, struct err *e)
{
    if (s->has_tokenizer)
        *out = DATA_TEXT;
    else if (has_magic(s->first, s->n))
        *out = DATA_LLMC;
    else if (starts_with(s, DATA_BERTH_MAGIC))
        *out = DATA_BERTH;
    else if (starts_with(s, DATA_MEGATRON_MAGIC))
        return err_set(
            e, RC_INVALID, "'%s' is an index of Megatron's; name the .bin file beside it", s->path);
    else if (str_ends(s->path, ".bin") && s->has_index)
        *out = DATA_MEGATRON;
    else if (str_ends(s->path, ".bin"))
        return err_set(e, RC_INVALID,
            "'%s' does not start as llm.c files do and has no .idx beside it, so its tokens may be "
            "of any width; say --data-kind uint16 (nanoGPT), uint32 or bytes",
            s->path);
    else if (str_ends(s->path, ".u16"))
        *out = DATA_UINT16;
    else
        *out = str_ends(s->path, ".u32") ? DATA_UINT32 : DATA_BYTES;
    return RC_OK;
}

enum rc data_kind_settle(
    enum data_kind *out, enum data_kind k, const struct data_start *s, struct err *e)
{
    *out = k;
    if (k == DATA_AUTO)
        return guess(out, s, e);
    if (k == DATA_TEXT && !s->has_tokenizer)
        return err_set(e, RC_INVALID,
            "'%s' is text for a tokenizer; say which with tokenizer=FILE, or read it as bytes",
            s->path);
    if (k != DATA_TEXT && s->has_tokenizer)
        return err_set(e, RC_INVALID, "'%s' is read as %s, which needs no tokenizer", s->path,
            data_kind_name(k));
    if (k == DATA_MEGATRON && !s->has_index)
        return err_set(e, RC_INVALID,
            "'%s' has no index beside it; Megatron's data are two files, NAME.bin and NAME.idx",
            s->path);
    return RC_OK;
}

char *data_kind_index_path(const char *path)
{
    size_t n = strlen(path);
    return str_ends(path, ".bin") ? base_printf("%.*s.idx", (int)(n - 4), path) : NULL;
}
