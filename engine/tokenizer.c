#include "engine/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "engine/bpe.h"
#include "engine/splitter.h"
#include "engine/tokenizer_private.h"
#include "engine/unicode.h"

/* Words that come again are remembered. */
enum { CACHE_SLOTS = 1 << 15, CACHE_WORD = 24, CACHE_IDS = 9 };

struct cached {
    char word[CACHE_WORD]; /* zeros behind its end */
    uint8_t n, n_ids;      /* n 0: empty */
    uint32_t ids[CACHE_IDS];
};

struct tokenizer_work {
    const struct tokenizer *t;
    struct splitter_work *split[TOKENIZER_MAX_STAGES];
    struct str spaced[TOKENIZER_MAX_STAGES]; /* text with a space put in front */
    struct bpe_work bpe;
    struct cached *cache;
    struct id_list *out;
};

/* --- life cycle --- */

static void release_added(struct added_set *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->v[i].text);
    free(s->v);
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_stages; i++)
        splitter_free(t->stage[i].splitter);
    bpe_free(t->bpe);
    release_added(&t->raw);
    release_added(&t->normal);
    index_release(&t->by_bytes);
    free(t->piece);
    free(t->pool);
    free(t);
}

struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t)
{
    struct tokenizer_work *w = base_calloc(1, sizeof(*w));
    w->t = t;
    w->cache = base_calloc(CACHE_SLOTS, sizeof(*w->cache));
    for (size_t i = 0; i < t->n_stages; i++)
        if (t->stage[i].splitter)
            w->split[i] = splitter_work_new(t->stage[i].splitter);
    return w;
}

void tokenizer_work_free(struct tokenizer_work *w)
{
    if (!w)
        return;
    for (size_t i = 0; i < w->t->n_stages; i++) {
        splitter_work_free(w->split[i]);
        str_release(&w->spaced[i]);
    }
    bpe_work_release(&w->bpe);
    free(w->cache);
    free(w);
}

/* --- tokens --- */

int64_t tokenizer_vocab(const struct tokenizer *t)
{
    return (int64_t)t->vocab;
}

int64_t tokenizer_find(const struct tokenizer *t, const char *text)
{
    const struct added_set *sets[] = {&t->raw, &t->normal};
    size_t n = strlen(text);
    for (size_t s = 0; s < BASE_COUNT(sets); s++)
        for (size_t i = 0; i < sets[s]->n; i++)
            if (sets[s]->v[i].n == n && memcmp(sets[s]->v[i].text, text, n) == 0)
                return sets[s]->v[i].id;
    return tokenizer_piece_of(t, text, n);
}

int64_t tokenizer_end_of_text(const struct tokenizer *t)
{
    static const char *const names[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};
    int64_t id = TOKENIZER_NONE;
    for (size_t i = 0; i < BASE_COUNT(names) && id < 0; i++)
        id = tokenizer_find(t, names[i]);
    return id;
}

void tokenizer_decode(const struct tokenizer *t, uint32_t id, struct str *out)
{
    if (id < t->vocab)
        str_addn(out, t->pool + t->piece[id].at, t->piece[id].n);
}

/* --- words --- */

static void put_id(struct id_list *out, uint32_t id)
{
    BASE_GROW(out->v, out->cap, out->n + 1);
    out->v[out->n++] = id;
}

static struct cached *cache_slot(
    struct tokenizer_work *w, const char *word, size_t n, char key[CACHE_WORD])
{
    uint64_t part[CACHE_WORD / 8], h = n;
    memset(key, 0, CACHE_WORD);
    memcpy(key, word, n);
    memcpy(part, key, CACHE_WORD);
    for (size_t i = 0; i < BASE_COUNT(part); i++)
        h = (h ^ part[i] ^ part[i] >> 32) * 0x9e3779b97f4a7c15u;
    return &w->cache[h >> 49];
}

static void remember(
    struct cached *c, const char key[CACHE_WORD], size_t n, const uint32_t *ids, size_t n_ids)
{
    memcpy(c->word, key, CACHE_WORD);
    memcpy(c->ids, ids, n_ids * sizeof(*ids));
    c->n = (uint8_t)n;
    c->n_ids = (uint8_t)n_ids;
}

/* Its ids at the end of the list, by merging. */
static void merge_word(struct tokenizer_work *w, const char *word, size_t n)
{
    const struct tokenizer *t = w->t;
    struct id_list *out = w->out;
    int64_t whole = t->ignores_merges ? tokenizer_piece_of(t, word, n) : TOKENIZER_NONE;
    if (whole >= 0) {
        put_id(out, (uint32_t)whole);
        return;
    }
    BASE_GROW(out->v, out->cap, out->n + n);
    uint32_t *ids = out->v + out->n;
    for (size_t i = 0; i < n; i++)
        ids[i] = t->byte_id[(unsigned char)word[i]];
    out->n += bpe_merge(t->bpe, &w->bpe, ids, n);
}

static void put_word(struct tokenizer_work *w, const char *word, size_t n)
{
    char key[CACHE_WORD];
    size_t before = w->out->n;
    if (n > CACHE_WORD) {
        merge_word(w, word, n);
        return;
    }
    struct cached *c = cache_slot(w, word, n, key);
    if (c->n == n && memcmp(c->word, key, CACHE_WORD) == 0) {
        BASE_GROW(w->out->v, w->out->cap, w->out->n + CACHE_IDS);
        memcpy(w->out->v + w->out->n, c->ids, sizeof(c->ids));
        w->out->n += c->n_ids;
        return;
    }
    merge_word(w, word, n);
    if (w->out->n - before <= CACHE_IDS)
        remember(c, key, n, w->out->v + before, w->out->n - before);
}

/* --- pre-tokenizers, each cutting what the one before it left --- */

static enum rc pass(
    struct tokenizer_work *w, size_t stage, const char *text, size_t n, struct err *e);

static enum rc cut(
    struct tokenizer_work *w, size_t stage, const char *text, size_t n, struct err *e)
{
    bool drops_gaps = w->t->stage[stage].drops_gaps;
    size_t at = 0, start, end;
    enum rc rc = RC_OK;
    while (at < n && !rc) {
        rc = splitter_next(w->split[stage], text, n, at, &start, &end, e);
        if (!rc && start > at && !drops_gaps)
            rc = pass(w, stage + 1, text + at, start - at, e);
        if (!rc && end > start)
            rc = pass(w, stage + 1, text + start, end - start, e);
        at = end;
    }
    return rc;
}

static enum rc pass(
    struct tokenizer_work *w, size_t stage, const char *text, size_t n, struct err *e)
{
    if (stage == w->t->n_stages) {
        put_word(w, text, n);
        return RC_OK;
    }
    if (w->t->stage[stage].adds_space && text[0] != ' ') {
        struct str *s = &w->spaced[stage];
        str_reset(s);
        s->max = n + 1 > STR_DEFAULT_MAX ? n + 1 : STR_DEFAULT_MAX;
        str_addc(s, ' ');
        str_addn(s, text, n);
        text = str_text(s);
        n++;
    }
    return w->split[stage] ? cut(w, stage, text, n, e) : pass(w, stage + 1, text, n, e);
}

/* --- added tokens --- */

static const struct added *added_at(const struct added_set *s, const char *text, size_t n)
{
    unsigned char c = (unsigned char)text[0];
    for (size_t i = s->first[c]; i < s->first[c + 1]; i++)
        if (s->v[i].n <= n && memcmp(s->v[i].text, text, s->v[i].n) == 0)
            return &s->v[i];
    return NULL;
}

/* The first added token in text[from, n), the longest where several start; *at is n without one. */
static const struct added *next_added(
    const struct added_set *s, const char *text, size_t n, size_t from, size_t *at)
{
    const struct added *a = NULL;
    *at = n;
    if (s->n == 0)
        return NULL;
    bool has_one_first = s->v[0].text[0] == s->v[s->n - 1].text[0];
    for (size_t i = from; i < n; i++) {
        if (has_one_first) {
            const char *p = memchr(text + i, s->v[0].text[0], n - i);
            if (!p)
                return NULL;
            i = (size_t)(p - text);
        }
        a = added_at(s, text + i, n - i);
        if (a) {
            *at = i;
            return a;
        }
    }
    return NULL;
}

typedef enum rc part_fn(struct tokenizer_work *w, const char *text, size_t n, struct err *e);

/* What lies between added tokens goes to `part`. */
static enum rc around_added(struct tokenizer_work *w, const struct added_set *s, const char *text,
    size_t n, part_fn *part, struct err *e)
{
    enum rc rc = RC_OK;
    for (size_t from = 0, at; from < n && !rc;) {
        const struct added *a = next_added(s, text, n, from, &at);
        if (at > from)
            rc = part(w, text + from, at - from, e);
        if (a)
            put_id(w->out, a->id);
        from = at + (a ? a->n : 0);
    }
    return rc;
}

static enum rc pass_first(struct tokenizer_work *w, const char *text, size_t n, struct err *e)
{
    return pass(w, 0, text, n, e);
}

static enum rc normalize(struct tokenizer_work *w, const char *text, size_t n, struct err *e)
{
    char *owned = NULL;
    enum rc rc = RC_OK;
    if (w->t->composes)
        rc = unicode_nfc(text, n, &text, &n, &owned, e);
    if (!rc)
        rc = around_added(w, &w->t->normal, text, n, pass_first, e);
    free(owned);
    return rc;
}

/* --- the whole --- */

enum rc tokenizer_encode(
    struct tokenizer_work *w, const char *text, size_t n, struct id_list *out, struct err *e)
{
    struct str repaired = STR_INIT;
    w->out = out;
    if (utf8_valid_prefix(text, n) < n) {
        str_init(&repaired, 3 * n + 1);
        utf8_repair(&repaired, text, n);
        text = str_text(&repaired);
        n = repaired.len;
    }
    enum rc rc = around_added(w, &w->t->raw, text, n, normalize, e);
    str_release(&repaired);
    return rc;
}

static bool is_word_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool keeps_lines_apart(const struct tokenizer *t)
{
    const struct added_set *sets[] = {&t->raw, &t->normal};
    for (size_t i = 0; i < t->n_stages; i++)
        if (!t->stage[i].keeps_lines_apart)
            return false;
    for (size_t s = 0; s < BASE_COUNT(sets); s++)
        for (size_t i = 0; i < sets[s]->n; i++)
            if (memchr(sets[s]->v[i].text, '\n', sets[s]->v[i].n))
                return false;
    return true;
}

/* Behind a line's end between a visible ASCII character and a letter or digit: white space there is
 * a piece of its own, with or without what follows. */
size_t tokenizer_cut(const struct tokenizer *t, const char *text, size_t n, size_t from)
{
    if (!keeps_lines_apart(t))
        return n;
    for (size_t i = from < 2 ? 2 : from; i < n; i++) {
        const char *p = memchr(text + i - 1, '\n', n - i);
        if (!p)
            return n;
        i = (size_t)(p - text) + 1;
        if (text[i - 2] > ' ' && text[i - 2] < 0x7f && is_word_byte(text[i]))
            return i;
    }
    return n;
}
