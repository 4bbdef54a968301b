#include "planner/data_kind.h"

#include <string.h>

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
    return err_set(
        e, RC_INVALID, "data kind '%s' is unknown; use auto, bytes, uint16, uint32 or llmc", word);
}

static bool has_magic(const unsigned char *first, size_t n)
{
    if (n < 4)
        return false;
    uint32_t x = (uint32_t)first[0] | (uint32_t)first[1] << 8 | (uint32_t)first[2] << 16 |
                 (uint32_t)first[3] << 24;
    return x == DATA_LLMC_MAGIC || x == DATA_LLMC_MAGIC_U32;
}

enum rc data_kind_settle(enum data_kind *out, enum data_kind k, const char *path,
    const unsigned char *first, size_t n, struct err *e)
{
    *out = k;
    if (k != DATA_AUTO)
        return RC_OK;
    if (has_magic(first, n))
        *out = DATA_LLMC;
    else if (str_ends(path, ".bin"))
        return err_set(e, RC_INVALID,
            "'%s' does not start as llm.c files do, so its tokens may be of any width; say "
            "--data-kind uint16 (nanoGPT), uint32 or bytes",
            path);
    else if (str_ends(path, ".u16"))
        *out = DATA_UINT16;
    else
        *out = str_ends(path, ".u32") ? DATA_UINT32 : DATA_BYTES;
    return RC_OK;
}
