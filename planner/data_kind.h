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
    X(DATA_AUTO, "auto", "by how the file starts and its name, as said below; else bytes")         \
    X(DATA_BYTES, "bytes", "each byte is a token, for text")                                       \
    X(DATA_TEXT, "text", "text, or .jsonl with a field text, by tokenizer=FILE")                   \
    X(DATA_BERTH, "berth", "what `berth data` writes: numbers, ends of documents, loss mask")      \
    X(DATA_UINT16, "uint16", "little-endian numbers of 2 bytes, as nanoGPT writes them to .bin")   \
    X(DATA_UINT32, "uint32", "little-endian numbers of 4 bytes")                                   \
    X(DATA_LLMC, "llmc", "a header of 1,024 bytes, then numbers, as llm.c writes them to .bin")    \
    X(DATA_MEGATRON, "megatron", "numbers in PATH.bin, documents in PATH.idx, as Megatron has it")

enum data_kind {
#define X(name, word, help) name,
    DATA_KIND_MAP(X)
#undef X
        DATA_KINDS
};
/* The same words, for option tables. */
#define DATA_KIND_CHOICES "auto|bytes|text|berth|uint16|uint32|llmc|megatron"

/* llm.c's magic numbers: tokens of 2 bytes, of 4. */
enum { DATA_LLMC_MAGIC = 20240520, DATA_LLMC_MAGIC_U32 = 20240801 };
/* The first bytes of Berth's own files, and of Megatron's index. */
#define DATA_BERTH_MAGIC    "BERTHTOK"
#define DATA_MEGATRON_MAGIC "MMIDIDX\0"
enum { DATA_MAGIC_BYTES = 8 };

const char *data_kind_name(enum data_kind k);
const char *data_kind_help(enum data_kind k);
enum rc data_kind_parse(const char *word, enum data_kind *out, struct err *e);

/* What is known of a file before it is read. */
struct data_start {
    const char *path;
    const unsigned char *first; /* its first bytes, up to DATA_MAGIC_BYTES */
    size_t n;
    bool has_index;     /* data_kind_index_path names a file that is there */
    bool has_tokenizer; /* a tokenizer.json was given for it */
};

/* How the file is read, never DATA_AUTO. RC_INVALID for `auto` and a .bin file that nothing tells
 * the width of, and where kind and tokenizer do not go together. */
enum rc data_kind_settle(
    enum data_kind *out, enum data_kind k, const struct data_start *s, struct err *e);

/* "a.idx" of "a.bin"; NULL for a name that does not end so. Caller frees. */
char *data_kind_index_path(const char *path);

#endif
