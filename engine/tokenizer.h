/* Text to tokens as a `tokenizer.json` of Hugging Face says: byte-level BPE, as GPT-2, Llama 3,
 * Qwen 2 and 3 and SmolLM2 have it.
 *
 * What is read: a BPE model (merges as texts or as pairs, ignore_merges), the normalizer NFC, the
 * pre-tokenizers ByteLevel, Digits, Split by an expression (isolated) and sequences of them, tokens
 * added beside the model. Anything else that would change the ids is refused by name. The
 * post-processor is not applied: which tokens stand between documents is the caller's choice.
 *
 * A tokenizer does not change and is shared by threads; each thread encodes with a work of its own.
 */
#ifndef ENGINE_TOKENIZER_H
#define ENGINE_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct json;
struct str;
struct tokenizer;
struct tokenizer_work;

enum { TOKENIZER_NONE = -1, TOKENIZER_MAX_IDS = 1 << 24, TOKENIZER_MAX_FILE_BYTES = 256 << 20 };

/* A growing list of ids; starts zeroed, the caller frees v. */
struct id_list {
    uint32_t *v;
    size_t n, cap;
};

/* Close with tokenizer_close. */
enum rc tokenizer_open(struct tokenizer **out, const char *path, struct err *e);
enum rc tokenizer_from_json(struct tokenizer **out, const struct json *v, struct err *e);
void tokenizer_close(struct tokenizer *t);

/* All ids are below it. */
int64_t tokenizer_vocab(const struct tokenizer *t);
/* The id of a token with exactly this text, TOKENIZER_NONE when there is none. */
int64_t tokenizer_find(const struct tokenizer *t, const char *text);
/* The token that ends documents, by the names that models give it; TOKENIZER_NONE. */
int64_t tokenizer_end_of_text(const struct tokenizer *t);
/* Append the bytes that an id stands for; nothing for an id without a token. */
void tokenizer_decode(const struct tokenizer *t, uint32_t id, struct str *out);

/* Where text may be cut so that its parts encode to the same ids as the whole: the first place at
 * or behind `from`, n when there is none. Such places are ends of lines, and only expressions known
 * to keep lines apart have any. */
size_t tokenizer_cut(const struct tokenizer *t, const char *text, size_t n, size_t from);

/* t is kept until tokenizer_work_free. */
struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t);
void tokenizer_work_free(struct tokenizer_work *w);
/* Append the ids of text; invalid UTF-8 is read as U+FFFD. */
enum rc tokenizer_encode(
    struct tokenizer_work *w, const char *text, size_t n, struct id_list *out, struct err *e);

#endif
