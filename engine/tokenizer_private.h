/* What a tokenizer consists of; shared by the files tokenizer*.c alone. */
#ifndef ENGINE_TOKENIZER_PRIVATE_H
#define ENGINE_TOKENIZER_PRIVATE_H

#include "base/index.h"
#include "engine/tokenizer.h"

struct bpe;
struct splitter;

enum { TOKENIZER_MAX_STAGES = 8 };

/* One pre-tokenizer: a space in front of what has none, then cutting; splitter NULL: no cut. */
struct stage {
    struct splitter *splitter;
    bool adds_space;
    bool drops_gaps;        /* only matches are kept */
    bool keeps_lines_apart; /* the expression is one of those for which tokenizer_cut was checked */
};

/* Bytes of a token in the pool; length 0: the id has none. */
struct piece {
    size_t at;
    uint32_t n;
    bool is_bytes; /* made of byte symbols, so that a word can be it */
};

/* A token found in the text itself, before anything else. */
struct added {
    char *text;
    size_t n;
    uint32_t id;
};

/* Tokens that are looked for together; the longest first among those with the same first byte. */
struct added_set {
    struct added *v;
    size_t n;
    size_t first[257]; /* of each first byte, in v; first[c + 1] is behind its last */
};

struct tokenizer {
    struct piece *piece; /* by id */
    size_t vocab, piece_cap;
    char *pool;
    size_t pool_n, pool_cap;
    struct index by_bytes; /* of pieces with is_bytes */
    uint32_t byte_id[256];
    struct bpe *bpe;
    bool ignores_merges, composes;
    struct stage stage[TOKENIZER_MAX_STAGES];
    size_t n_stages;
    struct added_set raw, normal; /* looked for before and after normalization */
};

/* The id of a piece of byte symbols that is these bytes; TOKENIZER_NONE. */
int64_t tokenizer_piece_of(const struct tokenizer *t, const char *bytes, size_t n);

#endif
