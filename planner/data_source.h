/* What a run trains on: one or several files, each with how it is read and how often it is taken.
 *
 * As text, with DATA_SEPARATOR between sources, since a path may have any other character:
 * [local:|host:|shared:]PATH [kind=KIND] [tokenizer=FILE] [field=NAME] [prompt-field=NAME]
 * [mask=FILE] [weight=NUMBER] [documents=joined|apart] [eos=ID]. Without a word in front a path is
 * local: a file of the user's machine that is sent to the nodes; host: and shared: name one that is
 * on every node. Tokenizer and mask lie where the file itself does. */
#ifndef PLANNER_DATA_SOURCE_H
#define PLANNER_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/data_kind.h"

struct json;

enum { DATA_MAX_SOURCES = 64 };
#define DATA_SEPARATOR "\036" /* ASCII's record separator */

struct data_source {
    bool is_on_nodes; /* else local */
    char *path;
    enum data_kind kind;
    char *tokenizer; /* tokenizer.json for kind text; NULL: none */
    char *field;     /* of a .jsonl line, that holds the text; NULL: "text" */
    char *prompt;    /* field in front of it that is read and not learnt; NULL: none */
    char
        *mask; /* what counts as a target (engine/data.h); NULL: every token, or as the file says */
    bool is_apart; /* the first token of a document is no target */
    int64_t eos;   /* id behind which documents end where the file does not say it; -1: none */
    double weight; /* its share of the samples, beside the others' */
};

struct data_sources {
    struct data_source *v;
    size_t n;
};

/* Release with data_sources_release; empty on failure. */
enum rc data_sources_parse(struct data_sources *out, const char *text, struct err *e);
void data_sources_release(struct data_sources *s);

/* RC_USAGE where documents of so many tokens are to be packed (0: none are) and no source keeps
 * them apart. */
enum rc data_sources_check_packing(const struct data_sources *s, int64_t doc_tokens, struct err *e);

/* An array for run specifications, and back. */
struct json *data_sources_to_json(const struct data_sources *s);
enum rc data_sources_from_json(struct data_sources *out, const struct json *v, struct err *e);

#endif
