/* Files of text to a file of tokens, by several threads; what is written does not depend on how
 * many they are.
 *
 * A text file is one document; of a .jsonl file each line is one. Large texts are cut where that
 * changes no id (tokenizer_cut), so that one file too keeps all threads busy. */
#ifndef ENGINE_TOKENIZE_H
#define ENGINE_TOKENIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/data_kind.h"

struct tokenize_result {
    int64_t documents, tokens, targets; /* targets: that count in the loss */
    int64_t skipped;                    /* documents without text */
    int64_t bytes;                      /* read */
    int64_t vocab;
    int token_bytes;
};

struct tokenize_options {
    const char *const *inputs;
    size_t n_inputs;
    const char *tokenizer; /* path; NULL: every byte is a token */
    const char *field;     /* of a .jsonl line; NULL: "text" */
    const char *prompt;    /* field in front of it whose tokens are no targets; NULL: none */
    const char *begin;     /* token in front of each document; NULL: none */
    const char
        *end; /* token behind it; NULL: the tokenizer's end of text where it has one, "": none */
    const char *output;
    enum data_kind kind; /* of the output */
    int threads;
    /* Called now and then, by one thread at a time; true ends the work with RC_INTERRUPTED. May be
     * NULL. */
    bool (*progress)(void *arg, int64_t bytes, int64_t of_bytes, int64_t tokens);
    void *arg;
};

enum rc tokenize_run(const struct tokenize_options *o, struct tokenize_result *out, struct err *e);

#endif
