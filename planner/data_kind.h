/* How the bytes of a data file are read as tokens. Pure: whoever opens the file says how it starts.
 */
#ifndef PLANNER_DATA_KIND_H
#define PLANNER_DATA_KIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* name, word, what it means */
#define DATA_KIND_MAP(X)                                                                           \
    X(DATA_AUTO, "auto", "llmc by how the file starts, .u16 and .u32 by name, else bytes")         \
    X(DATA_BYTES, "bytes", "each byte is a token, for text")                                       \
    X(DATA_UINT16, "uint16", "little-endian numbers of 2 bytes, as nanoGPT writes them to .bin")   \
    X(DATA_UINT32, "uint32", "little-endian numbers of 4 bytes")                                   \
    X(DATA_LLMC, "llmc", "a header of 1,024 bytes, then numbers, as llm.c writes them to .bin")

enum data_kind {
#define X(name, word, help) name,
    DATA_KIND_MAP(X)
#undef X
        DATA_KINDS
};
/* The same words, for option tables. */
#define DATA_KIND_CHOICES "auto|bytes|uint16|uint32|llmc"

/* llm.c's magic numbers: tokens of 2 bytes, of 4. */
enum { DATA_LLMC_MAGIC = 20240520, DATA_LLMC_MAGIC_U32 = 20240801 };

const char *data_kind_name(enum data_kind k);
const char *data_kind_help(enum data_kind k);
enum rc data_kind_parse(const char *word, enum data_kind *out, struct err *e);

/* How the file is read, never DATA_AUTO. first: its first bytes, up to 4. RC_INVALID for `auto` and
 * a .bin file without magic number: such files hold numbers of a width that nothing tells. */
enum rc data_kind_settle(enum data_kind *out, enum data_kind k, const char *path,
    const unsigned char *first, size_t n, struct err *e);

#endif
