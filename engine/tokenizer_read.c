/* Reading of tokenizer.json. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "engine/bpe.h"
#include "engine/splitter.h"
#include "engine/tokenizer_private.h"
#include "engine/unicode.h"

/* ByteLevel's own expression, and the others for which a line's end is a place to cut. */
#define GPT2_REGEX                                                                                 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define NEWER_REGEX(digits)                                                                        \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits                           \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const char *const KEEP_LINES_APART[] = {
    GPT2_REGEX, NEWER_REGEX("\\p{N}{1,3}"), NEWER_REGEX("\\p{N}"), "\\p{N}", "\\p{N}+"};

/* --- byte symbols --- */

/* GPT-2 writes each byte as a printable character: printable Latin-1 as itself, the others as
 * U+0100 and up in the order of their values: 256 of them below 324. */
enum { SYMBOLS = 324 };

static bool is_printable_byte(int c)
{
    return (c >= '!' && c <= '~') || (c >= 0xa1 && c <= 0xac) || (c >= 0xae && c <= 0xff);
}

static void fill_symbols(int table[SYMBOLS])
{
    int next = 256;
    for (int i = 0; i < SYMBOLS; i++)
        table[i] = -1;
    for (int c = 0; c < 256; c++)
        table[is_printable_byte(c) ? c : next++] = c;
}

/* The bytes that a text of symbols stands for; false when a character of it is none. */
static bool bytes_of_symbols(struct str *out, const char *text, const int table[SYMBOLS])
{
    size_t n = strlen(text);
    unsigned cp;
    while (n > 0) {
        size_t used = text_decode(text, n, &cp);
        if (cp >= SYMBOLS || table[cp] < 0)
            return false;
        str_addc(out, (char)table[cp]);
        text += used;
        n -= used;
    }
    return true;
}

struct reader {
    struct tokenizer *t;
    int symbols[SYMBOLS];
};

/* --- pieces --- */

struct bytes {
    const char *p;
    size_t n;
};

static uint64_t hash_bytes(const char *p, size_t n)
{
    uint64_t h = 0;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        h = index_hash_word(h, word);
    }
    uint64_t rest = 0;
    memcpy(&rest, p, n);
    return index_hash_word(h, rest + (n << 56));
}

static bool same_piece(const void *array, size_t i, const void *key)
{
    const struct tokenizer *t = array;
    const struct bytes *b = key;
    return t->piece[i].n == b->n && memcmp(t->pool + t->piece[i].at, b->p, b->n) == 0;
}

int64_t tokenizer_piece_of(const struct tokenizer *t, const char *bytes, size_t n)
{
    struct bytes key = {bytes, n};
    return index_find(&t->by_bytes, hash_bytes(bytes, n), same_piece, t, &key);
}

static void set_piece(struct tokenizer *t, uint32_t id, const char *bytes, size_t n, bool is_bytes)
{
    if (id >= t->vocab) {
        BASE_GROW(t->piece, t->piece_cap, id + 1);
        memset(t->piece + t->vocab, 0, (id + 1 - t->vocab) * sizeof(*t->piece));
        t->vocab = id + 1;
    }
    BASE_GROW(t->pool, t->pool_cap, t->pool_n + n);
    memcpy(t->pool + t->pool_n, bytes, n);
    t->piece[id] = (struct piece){t->pool_n, (uint32_t)n, is_bytes};
    t->pool_n += n;
    if (is_bytes)
        index_add(&t->by_bytes, hash_bytes(bytes, n), id);
}

/* --- the model --- */

static enum rc read_id(const struct json *v, const char *token, uint32_t *out, struct err *e)
{
    int64_t id = json_as_int(v, -1);
    if (id < 0 || id >= TOKENIZER_MAX_IDS)
        return err_set(
            e, RC_INVALID, "token '%s' has no id in 0 to %d", token, TOKENIZER_MAX_IDS - 1);
    *out = (uint32_t)id;
    return RC_OK;
}

static enum rc read_vocab(struct reader *r, const struct json *model, struct err *e)
{
    const struct json *vocab, *value;
    const char *token;
    void *cursor = NULL;
    struct str bytes = STR_INIT;
    enum rc rc = json_need_obj(model, "vocab", &vocab, e);
    while (!rc && json_next(vocab, &cursor, &token, &value)) {
        uint32_t id = 0;
        str_reset(&bytes);
        rc = read_id(value, token, &id, e);
        if (!rc && id < r->t->vocab && r->t->piece[id].n > 0)
            rc = err_set(e, RC_INVALID, "token '%s' has the id %u of another", token, id);
        if (rc || !*token)
            continue;
        bool is_bytes = bytes_of_symbols(&bytes, token, r->symbols);
        set_piece(r->t, id, is_bytes ? str_text(&bytes) : token,
            is_bytes ? bytes.len : strlen(token), is_bytes);
    }
    str_release(&bytes);
    return rc;
}

/* Every byte that valid UTF-8 has must be a token, so that all text can be written. */
static enum rc find_byte_ids(struct tokenizer *t, struct err *e)
{
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        int64_t id = tokenizer_piece_of(t, &byte, 1);
        bool is_needed = c != 0xc0 && c != 0xc1 && c < 0xf5;
        if (id < 0 && is_needed)
            return err_set(e, RC_INVALID,
                "the vocabulary has no token for the byte %02X; it is not that of a byte-level BPE",
                (unsigned)c);
        t->byte_id[c] = id < 0 ? 0 : (uint32_t)id;
    }
    return RC_OK;
}

/* The halves of a merge: "a b", or ["a", "b"]. */
static bool halves(const struct json *v, struct str *left, struct str *right, const int *symbols)
{
    const char *both = json_as_str(v, NULL), *second = json_as_str(json_at(v, 1), NULL);
    str_reset(left);
    str_reset(right);
    if (!both)
        return json_len(v) == 2 && second &&
               bytes_of_symbols(left, json_as_str(json_at(v, 0), " "), symbols) &&
               bytes_of_symbols(right, second, symbols);
    const char *space = strchr(both, ' ');
    if (!space)
        return false;
    char *first = base_strndup(both, (size_t)(space - both));
    bool is_good =
        bytes_of_symbols(left, first, symbols) && bytes_of_symbols(right, space + 1, symbols);
    free(first);
    return is_good;
}

static enum rc read_merges(struct reader *r, const struct json *model, struct err *e)
{
    struct tokenizer *t = r->t;
    const struct json *merges;
    struct str left = STR_INIT, right = STR_INIT;
    enum rc rc = json_need_arr(model, "merges", &merges, e);
    size_t n = json_len(merges);
    if (!rc)
        t->bpe = bpe_new(n);
    for (size_t i = 0; i < n && !rc; i++) {
        int64_t a = TOKENIZER_NONE, b = TOKENIZER_NONE, both = TOKENIZER_NONE;
        if (halves(json_at(merges, i), &left, &right, r->symbols)) {
            a = tokenizer_piece_of(t, str_text(&left), left.len);
            b = tokenizer_piece_of(t, str_text(&right), right.len);
            str_addn(&left, str_text(&right), right.len);
            both = tokenizer_piece_of(t, str_text(&left), left.len);
        }
        if (a < 0 || b < 0 || both < 0)
            rc = err_set(e, RC_INVALID,
                "merge %zu is not two tokens of the vocabulary that make a third", i);
        else
            bpe_add(t->bpe, (uint32_t)a, (uint32_t)b, (uint32_t)i, (uint32_t)both);
    }
    str_release(&left);
    str_release(&right);
    return rc;
}

static enum rc refuse(const char *what, struct err *e)
{
    return err_set(e, RC_INVALID,
        "%s is not supported; byte-level BPE of GPT-2, Llama 3, Qwen and "
        "SmolLM2 is",
        what);
}

static enum rc read_model(struct reader *r, const struct json *v, struct err *e)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const struct json *model;
    enum rc rc = json_need_obj(v, "model", &model, e);
    if (rc)
        return rc;
    const char *type = json_str(model, "type", "BPE");
    if (strcmp(type, "BPE") != 0)
        return err_set(e, RC_INVALID, "a model of type '%s' is not supported; BPE is", type);
    if (json_num(model, "dropout", 0) > 0)
        return refuse("'dropout' of the model", e);
    for (size_t i = 0; i < BASE_COUNT(affixes); i++)
        if (*json_str(model, affixes[i], ""))
            return refuse(affixes[i], e);
    r->t->ignores_merges = json_bool(model, "ignore_merges", false);
    rc = read_vocab(r, model, e);
    if (!rc)
        rc = find_byte_ids(r->t, e);
    return rc ? rc : read_merges(r, model, e);
}

/* --- normalizer --- */

static enum rc read_normalizer(struct reader *r, const struct json *v, int depth, struct err *e)
{
    if (!v)
        return RC_OK;
    const char *type = json_str(v, "type", "");
    const struct json *list = json_get(v, "normalizers");
    enum rc rc = RC_OK;
    if (strcmp(type, "NFC") == 0)
        r->t->composes = true;
    else if (strcmp(type, "Sequence") != 0 || !json_is_arr(list) || depth > 4)
        return err_set(e, RC_INVALID, "a normalizer of type '%s' is not supported; NFC is", type);
    for (size_t i = 0; i < json_len(list) && !rc; i++)
        rc = read_normalizer(r, json_at(list, i), depth + 1, e);
    return rc;
}

/* --- pre-tokenizers --- */

static enum rc add_stage(
    struct reader *r, const char *regex, bool adds_space, bool drops_gaps, struct err *e)
{
    struct tokenizer *t = r->t;
    if (t->n_stages == TOKENIZER_MAX_STAGES)
        return err_set(e, RC_LIMIT, "more than %d pre-tokenizers", TOKENIZER_MAX_STAGES);
    struct stage *s = &t->stage[t->n_stages++];
    *s = (struct stage){.adds_space = adds_space, .drops_gaps = drops_gaps};
    s->keeps_lines_apart = !regex && !adds_space;
    if (!regex)
        return RC_OK;
    for (size_t i = 0; i < BASE_COUNT(KEEP_LINES_APART); i++)
        s->keeps_lines_apart |= !adds_space && strcmp(regex, KEEP_LINES_APART[i]) == 0;
    return splitter_new(&s->splitter, regex, e);
}

static void quote_regex(struct str *out, const char *text)
{
    for (; *text; text++)
        str_addf(out, strchr("\\^$.[]|()?*+{}#-&", *text) ? "\\%c" : "%c", *text);
}

static enum rc read_split(struct reader *r, const struct json *v, struct err *e)
{
    const struct json *pattern = json_get(v, "pattern");
    const char *behavior = json_str(v, "behavior", ""), *text = json_str(pattern, "String", NULL);
    bool is_isolated = strcmp(behavior, "Isolated") == 0;
    bool keeps_matches = strcmp(behavior, "Removed") == 0 && json_bool(v, "invert", false);
    struct str regex = STR_INIT;
    enum rc rc = RC_OK;
    if (text)
        quote_regex(&regex, text);
    else
        str_add(&regex, json_str(pattern, "Regex", ""));
    if (!is_isolated && !keeps_matches)
        rc = err_set(e, RC_INVALID,
            "a pre-tokenizer Split with behavior '%s' is not supported; Isolated is", behavior);
    else if (regex.len == 0)
        rc = err_set(e, RC_INVALID, "a pre-tokenizer Split has no pattern");
    else
        rc = add_stage(r, str_text(&regex), false, keeps_matches, e);
    str_release(&regex);
    return rc;
}

static enum rc read_digits(struct reader *r, const struct json *v, struct err *e)
{
    bool is_individual = json_bool(v, "individual_digits", false);
    return add_stage(r, is_individual ? "\\p{N}" : "\\p{N}+", false, false, e);
}

static enum rc read_byte_level(struct reader *r, const struct json *v, struct err *e)
{
    const char *regex = json_bool(v, "use_regex", true) ? GPT2_REGEX : NULL;
    return add_stage(r, regex, json_bool(v, "add_prefix_space", true), false, e);
}

static enum rc read_pre_tokenizer(
    struct reader *r, const struct json *v, int depth, bool *has_bytes, struct err *e)
{
    const char *type = json_str(v, "type", "");
    const struct json *list = json_get(v, "pretokenizers");
    enum rc rc = RC_OK;
    if (*has_bytes)
        return err_set(e, RC_INVALID, "a pre-tokenizer behind ByteLevel is not supported");
    *has_bytes = strcmp(type, "ByteLevel") == 0;
    if (*has_bytes)
        return read_byte_level(r, v, e);
    if (strcmp(type, "Split") == 0)
        return read_split(r, v, e);
    if (strcmp(type, "Digits") == 0)
        return read_digits(r, v, e);
    if (strcmp(type, "Sequence") != 0 || !json_is_arr(list) || depth > 4)
        return err_set(e, RC_INVALID,
            "a pre-tokenizer of type '%s' is not supported; ByteLevel, Split and Digits are", type);
    for (size_t i = 0; i < json_len(list) && !rc; i++)
        rc = read_pre_tokenizer(r, json_at(list, i), depth + 1, has_bytes, e);
    return rc;
}

/* --- added tokens --- */

static int compare_added(const void *a, const void *b)
{
    const struct added *x = a, *y = b;
    unsigned char cx = (unsigned char)x->text[0], cy = (unsigned char)y->text[0];
    if (cx != cy)
        return cx < cy ? -1 : 1;
    return x->n != y->n ? (x->n > y->n ? -1 : 1) : (x->id > y->id) - (x->id < y->id);
}

static void sort_added(struct added_set *s)
{
    size_t i = 0;
    if (s->n)
        qsort(s->v, s->n, sizeof(*s->v), compare_added);
    for (size_t c = 0; c < 257; c++) {
        s->first[c] = i;
        while (i < s->n && (unsigned char)s->v[i].text[0] == c)
            i++;
    }
}

static void put_added(struct added_set *s, const char *text, size_t n, uint32_t id)
{
    s->v = base_realloc(s->v, (s->n + 1) * sizeof(*s->v));
    s->v[s->n++] = (struct added){base_strndup(text, n), n, id};
}

/* It is looked for in normalized text, so it is normalized too. */
static enum rc put_normal(struct tokenizer *t, const char *text, uint32_t id, struct err *e)
{
    const char *composed = text;
    char *owned = NULL;
    size_t n = strlen(text);
    enum rc rc = t->composes ? unicode_nfc(text, n, &composed, &n, &owned, e) : RC_OK;
    if (!rc)
        put_added(&t->normal, composed, n, id);
    free(owned);
    return rc;
}

static enum rc read_added(struct reader *r, const struct json *v, struct err *e)
{
    static const char *const flags[] = {"single_word", "lstrip", "rstrip"};
    struct tokenizer *t = r->t;
    const char *text;
    uint32_t id = 0;
    enum rc rc = json_need_str(v, "content", &text, e);
    if (!rc)
        rc = read_id(json_get(v, "id"), text, &id, e);
    if (rc || !*text)
        return rc;
    for (size_t i = 0; i < BASE_COUNT(flags); i++)
        if (json_bool(v, flags[i], false))
            return err_set(
                e, RC_INVALID, "added token '%s': '%s' is not supported", text, flags[i]);
    int64_t known = tokenizer_find(t, text);
    if (known >= 0 && known != id)
        return err_set(e, RC_INVALID, "added token '%s' has the id %u, in the vocabulary %lld",
            text, id, (long long)known);
    if (known < 0 && id < t->vocab && t->piece[id].n > 0)
        return err_set(e, RC_INVALID, "added token '%s' has the id %u of another", text, id);
    if (known < 0)
        set_piece(t, id, text, strlen(text), false);
    if (json_bool(v, "normalized", false))
        return put_normal(t, text, id, e);
    put_added(&t->raw, text, strlen(text), id);
    return RC_OK;
}

static enum rc read_all_added(struct reader *r, const struct json *v, struct err *e)
{
    const struct json *list = json_get(v, "added_tokens");
    enum rc rc = RC_OK;
    for (size_t i = 0; i < json_len(list) && !rc; i++)
        rc = read_added(r, json_at(list, i), e);
    sort_added(&r->t->raw);
    sort_added(&r->t->normal);
    return rc;
}

/* --- the whole --- */

static enum rc read_all(struct reader *r, const struct json *v, struct err *e)
{
    bool has_bytes = false;
    enum rc rc = RC_OK;
    if (!json_is_obj(v))
        return err_set(e, RC_INVALID, "it is not a JSON object");
    if (json_get(v, "truncation"))
        return refuse("'truncation'", e);
    if (json_get(v, "padding"))
        return refuse("'padding'", e);
    rc = read_model(r, v, e);
    if (!rc)
        rc = read_normalizer(r, json_get(v, "normalizer"), 0, e);
    if (!rc)
        rc = read_pre_tokenizer(r, json_get(v, "pre_tokenizer"), 0, &has_bytes, e);
    if (!rc && !has_bytes)
        rc = err_set(e, RC_INVALID, "the pre-tokenizer has no ByteLevel");
    return rc ? rc : read_all_added(r, v, e);
}

enum rc tokenizer_from_json(struct tokenizer **out, const struct json *v, struct err *e)
{
    struct reader r = {.t = base_calloc(1, sizeof(struct tokenizer))};
    fill_symbols(r.symbols);
    enum rc rc = read_all(&r, v, e);
    *out = rc ? NULL : r.t;
    if (rc)
        tokenizer_close(r.t);
    return rc;
}

enum rc tokenizer_open(struct tokenizer **out, const char *path, struct err *e)
{
    struct json *v = NULL;
    *out = NULL;
    enum rc rc = json_read(&v, path, TOKENIZER_MAX_FILE_BYTES, e);
    if (rc)
        return err_input(e, rc);
    rc = tokenizer_from_json(out, v, e);
    json_free(v);
    return rc ? err_in(e, "tokenizer '%s'", path) : RC_OK;
}
