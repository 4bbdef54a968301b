/* Writing a file of tokens in one of the formats of engine/token_file.h, token after token. What is
 * written so far has temporary names; token_writer_finish makes it durable and gives it its own. */
#ifndef ENGINE_TOKEN_WRITER_H
#define ENGINE_TOKEN_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/data_kind.h"

struct token_writer;

struct token_writer_options {
    const char *path;
    enum data_kind kind; /* berth, uint16, uint32, llmc or megatron */
    int64_t vocab;       /* ids are below it: the width where the kind does not decide it */
    int64_t end_of_text; /* id, noted in kind berth; -1: none */
    int has_mask;        /* kind berth only */
};

/* Close with token_writer_close, which removes what was not finished. */
enum rc token_writer_open(
    struct token_writer **out, const struct token_writer_options *o, struct err *e);
/* counts: one byte a token, 0 where it is no target; NULL: all are. */
enum rc token_writer_add(struct token_writer *w, const uint32_t *ids, const unsigned char *counts,
    size_t n, struct err *e);
/* The tokens since the last call are a document; none are none. */
enum rc token_writer_end_document(struct token_writer *w, struct err *e);
enum rc token_writer_finish(struct token_writer *w, struct err *e);
void token_writer_close(struct token_writer *w);

int64_t token_writer_tokens(const struct token_writer *w);
int64_t token_writer_documents(const struct token_writer *w);
int token_writer_bytes(const struct token_writer *w); /* of a token */

#endif
