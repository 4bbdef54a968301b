/* A file of tokens, mapped: nothing of it is read before it is asked for.
 *
 * Formats: bytes, uint16, uint32 (numbers from the first byte on); llm.c's and Megatron's (below);
 * and Berth's own, all little-endian:
 *
 *   byte  0  "BERTHTOK"
 *         8  uint32 version, 1
 *        12  uint32 bytes of a token, 2 or 4
 *        16  uint64 tokens
 *        24  uint64 documents; 0: where they end is not recorded
 *        32  uint64 the largest id, plus 1; 0: not recorded
 *        40  uint64 1 when there is a loss mask
 *        48  uint64 id that ends documents, 2^64 - 1: none
 *        56  uint64 0
 *        64  the tokens, then zeros up to a multiple of 8
 *            documents uint64: behind which token each ends (the last: tokens)
 *            loss mask: one bit a token, the first in bit 0 of the first byte; 1: it is a target
 *
 * llm.c: 256 int32 (magic 20240520 and version 1 for GPT-2's uint16, magic 20240801 and version 7
 * for Llama 3's uint32; tokens), then the tokens. Megatron: the tokens in NAME.bin; in NAME.idx
 * "MMIDIDX" and two zeros, uint64 1, uint8 type, uint64 sequences, uint64 documents + 1, int32
 * lengths of the sequences, int64 their first bytes in NAME.bin, int64 the first sequence of each
 * document and the number of sequences. */
#ifndef ENGINE_TOKEN_FILE_H
#define ENGINE_TOKEN_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/data_kind.h"

struct token_file;

enum {
    TOKEN_FILE_VERSION = 1,
    TOKEN_FILE_HEADER = 64,
    LLMC_HEADER_BYTES = 1024,
    MEGATRON_HEADER_BYTES = 34
};
/* Types of Megatron's numbers that hold token ids. */
enum megatron_type {
    MEGATRON_UINT8 = 1,
    MEGATRON_INT8 = 2,
    MEGATRON_INT16 = 3,
    MEGATRON_INT32 = 4,
    MEGATRON_INT64 = 5,
    MEGATRON_UINT16 = 8
};

struct token_file_info {
    enum data_kind kind; /* as it was settled */
    int token_bytes;
    bool is_signed;
    int64_t tokens;
    int64_t documents;   /* 0: where they end is not recorded */
    int64_t sequences;   /* Megatron's; else 0 */
    int64_t ids_end;     /* the largest id, plus 1; 0: not recorded */
    int64_t end_of_text; /* id; -1: not recorded */
    bool has_mask;
};

/* Map the file and check its form; kind DATA_TEXT is not for here. What is wrong is named with its
 * byte. Close with token_file_close. */
enum rc token_file_open(
    struct token_file **out, const char *path, enum data_kind kind, struct err *e);
void token_file_close(struct token_file *f);
const struct token_file_info *token_file_info(const struct token_file *f);

/* A token as it is written; it may be negative or beyond every vocabulary. i < tokens. */
int64_t token_file_at(const struct token_file *f, int64_t i);
/* n ids from token `first` on. The first that is not below vocab is an error naming token and byte.
 */
enum rc token_file_read(const struct token_file *f, int64_t first, int64_t n, int64_t vocab,
    int32_t *out, struct err *e);
/* False where the file's mask says that a token is no target. */
bool token_file_counts(const struct token_file *f, int64_t i);
/* Behind which token document i ends. i < documents. */
int64_t token_file_document_end(const struct token_file *f, int64_t i);
/* Look through all of the index: documents follow each other and sequences tile the tokens. */
enum rc token_file_check_index(const struct token_file *f, struct err *e);

/* --- mapping, for masks and texts too --- */

struct mapped_file {
    char *path;
    const unsigned char *p;
    size_t n;
};
/* A regular file that is not empty. what: "data file". */
enum rc mapped_file_open(
    struct mapped_file *out, const char *path, const char *what, struct err *e);
void mapped_file_close(struct mapped_file *m);

#endif
