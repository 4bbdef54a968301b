#include "engine/data.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "engine/blend.h"
#include "engine/data_text.h"
#include "engine/random.h"
#include "engine/token_file.h"

/* Permutations of epochs: one stream of keys for each source. */
static const uint64_t ORDER_STREAM = 0xDA7A000000ULL, SOURCE_STREAMS = 1ULL << 44;

struct source {
    struct token_file *file;
    struct mapped_file mask;
    int mask_bytes; /* of an entry: 0 (no mask beside the file), 1 or 4 */
    bool is_apart;
    int64_t eos; /* documents end behind it; -1: as the file says */
    int64_t samples;
};

struct data {
    int64_t seq, vocab, samples;
    uint64_t seed;
    struct source *v;
    size_t n;
    struct blend blend; /* of several */
};

/* --- opening --- */

static enum rc open_tokens(
    struct source *s, const struct data_source *d, const struct data_options *o, struct err *e)
{
    char *path = NULL;
    enum rc rc = RC_OK;
    enum data_kind kind = d->tokenizer && d->kind == DATA_AUTO ? DATA_TEXT : d->kind;
    struct data_start named = {.path = d->path, .has_tokenizer = d->tokenizer, .has_index = true};
    if (kind != DATA_AUTO)
        rc = data_kind_settle(&kind, kind, &named, e);
    if (!rc && kind == DATA_TEXT)
        rc = data_text_tokens(&path, d, o->text_dir, o->threads, e);
    if (!rc)
        rc = token_file_open(&s->file, path ? path : d->path, path ? DATA_BERTH : kind, e);
    free(path);
    return rc;
}

static enum rc open_mask(struct source *s, const struct data_source *d, struct err *e)
{
    int64_t tokens = token_file_info(s->file)->tokens;
    if (!d->mask)
        return RC_OK;
    enum rc rc = mapped_file_open(&s->mask, d->mask, "loss mask", e);
    if (rc)
        return rc;
    s->mask_bytes = (int64_t)s->mask.n == tokens ? 1 : (int64_t)s->mask.n == 4 * tokens ? 4 : 0;
    if (s->mask_bytes)
        return RC_OK;
    return err_set(e, RC_INVALID,
        "loss mask '%s' has %zu bytes; '%s' with its %lld tokens needs %lld (0 or 1 a token) or "
        "%lld (int32 labels)",
        d->mask, s->mask.n, d->path, (long long)tokens, (long long)tokens, (long long)tokens * 4);
}

static enum rc check_vocab(
    const struct source *s, const struct data_source *d, int64_t vocab, struct err *e)
{
    const struct token_file_info *info = token_file_info(s->file);
    if (info->kind == DATA_BYTES && vocab < 256)
        return err_set(e, RC_INVALID,
            "text is read as bytes and needs a vocabulary of 256; the model has %lld",
            (long long)vocab);
    if (info->ids_end > vocab)
        return err_set(e, RC_INVALID,
            "data file '%s' holds the id %lld, outside the vocabulary of %lld", d->path,
            (long long)info->ids_end - 1, (long long)vocab);
    return RC_OK;
}

static enum rc settle_documents(struct source *s, const struct data_source *d, struct err *e)
{
    s->is_apart = d->is_apart;
    s->eos = token_file_info(s->file)->documents > 0 ? -1 : d->eos;
    if (!d->is_apart || s->eos >= 0 || token_file_info(s->file)->documents > 0)
        return RC_OK;
    return err_set(e, RC_INVALID,
        "'%s' does not say where documents end; with documents=apart it needs eos=ID", d->path);
}

static enum rc open_source(
    struct source *s, const struct data_source *d, const struct data_options *o, struct err *e)
{
    enum rc rc = open_tokens(s, d, o, e);
    if (rc)
        return rc;
    int64_t tokens = token_file_info(s->file)->tokens;
    s->samples = (tokens - 1) / o->seq;
    if (s->samples < 1)
        return err_set(e, RC_INVALID,
            "data file '%s' has %lld tokens, fewer than one sequence of %lld and its target",
            d->path, (long long)tokens, (long long)o->seq);
    rc = check_vocab(s, d, o->vocab, e);
    if (!rc)
        rc = settle_documents(s, d, e);
    return rc ? rc : open_mask(s, d, e);
}

static enum rc open_blend(struct data *d, const struct data_options *o, struct err *e)
{
    double weights[DATA_MAX_SOURCES];
    if (o->n == 1)
        return RC_OK;
    for (size_t i = 0; i < o->n; i++)
        weights[i] = o->sources[i].weight;
    return blend_make(&d->blend, weights, o->n, e);
}

enum rc data_open(struct data **out, const struct data_options *o, struct err *e)
{
    *out = NULL;
    struct data *d = base_calloc(1, sizeof(*d));
    d->seq = o->seq;
    d->vocab = o->vocab;
    d->seed = o->seed;
    d->v = base_calloc(o->n + 1, sizeof(*d->v));
    enum rc rc = RC_OK;
    for (size_t i = 0; i < o->n && !rc; i++) {
        d->n++;
        rc = open_source(&d->v[i], &o->sources[i], o, e);
        d->samples += d->v[i].samples;
    }
    if (!rc)
        rc = open_blend(d, o, e);
    if (rc)
        data_close(d);
    else
        *out = d;
    return rc;
}

void data_close(struct data *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n; i++) {
        token_file_close(d->v[i].file);
        mapped_file_close(&d->v[i].mask);
    }
    blend_release(&d->blend);
    free(d->v);
    free(d);
}

int64_t data_samples(const struct data *d)
{
    return d->samples;
}

/* --- samples --- */

/* The source of a position, and the first token of its sample there. */
static const struct source *find(const struct data *d, int64_t position, int64_t *first)
{
    size_t i = 0;
    if (d->n > 1)
        blend_pick(&d->blend, position, &i, &position);
    const struct source *s = &d->v[i];
    uint64_t samples = (uint64_t)s->samples, epoch = (uint64_t)position / samples;
    uint64_t key = random_key(d->seed, ORDER_STREAM + i * SOURCE_STREAMS + epoch);
    *first = (int64_t)random_permute(key, (uint64_t)position % samples, samples) * d->seq;
    return s;
}

static int32_t label_at(const struct source *s, int64_t i)
{
    int32_t label;
    memcpy(&label, s->mask.p + 4 * i, sizeof(label));
    return label;
}

/* The first document that does not end before token i. */
static int64_t document_at(const struct source *s, int64_t i)
{
    int64_t low = 0, high = token_file_info(s->file)->documents;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (token_file_document_end(s->file, middle) < i)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Walking through tokens of a source one after another. */
struct walk {
    const struct source *s;
    int64_t document; /* that ends next */
};

static struct walk walk_from(const struct source *s, int64_t i)
{
    bool is_recorded = s->is_apart && s->eos < 0;
    return (struct walk){s, is_recorded ? document_at(s, i) : 0};
}

/* Does token i begin a document? Asked for each token in turn. */
static bool begins(struct walk *w, int64_t i)
{
    const struct source *s = w->s;
    if (!s->is_apart || i == 0)
        return false;
    if (s->eos >= 0)
        return token_file_at(s->file, i - 1) == s->eos;
    int64_t documents = token_file_info(s->file)->documents;
    while (w->document < documents && token_file_document_end(s->file, w->document) < i)
        w->document++;
    return w->document < documents && token_file_document_end(s->file, w->document) == i;
}

static bool is_unmasked(const struct source *s, int64_t i)
{
    if (s->mask_bytes == 4)
        return label_at(s, i) != DATA_IGNORED_LABEL;
    return s->mask_bytes == 1 ? s->mask.p[i] != 0 : token_file_counts(s->file, i);
}

static bool counts(struct walk *w, int64_t i)
{
    return !begins(w, i) && is_unmasked(w->s, i);
}

/* What stands in the mask for token i must be one of the two things that it may be. */
static enum rc check_entry(const struct source *s, int64_t i, struct err *e)
{
    if (s->mask_bytes == 1 && s->mask.p[i] > 1)
        return err_set(e, RC_INVALID, "loss mask '%s': byte %lld is %u, not 0 or 1", s->mask.path,
            (long long)i, s->mask.p[i]);
    if (s->mask_bytes == 4 && label_at(s, i) != DATA_IGNORED_LABEL &&
        label_at(s, i) != token_file_at(s->file, i))
        return err_set(e, RC_INVALID,
            "loss mask '%s': label %lld (byte %lld) is %d, neither -100 nor the token there, %lld",
            s->mask.path, (long long)i, (long long)i * 4, label_at(s, i),
            (long long)token_file_at(s->file, i));
    return RC_OK;
}

/* Places in documents of the tokens from first on. */
static void fill_positions(const struct source *s, int64_t first, int64_t seq, int32_t *positions)
{
    struct walk w = walk_from(s, first);
    int32_t at = 0;
    for (int64_t i = 0; i < seq; i++, at++) {
        at = begins(&w, first + i) ? 0 : at;
        positions[i] = at;
    }
}

enum rc data_sample(
    const struct data *d, int64_t position, const struct micro_data *out, struct err *e)
{
    int32_t *tokens = out->tokens, *targets = out->targets;
    int64_t first;
    const struct source *s = find(d, position, &first);
    enum rc rc = token_file_read(s->file, first, d->seq, d->vocab, tokens, e);
    if (!rc)
        rc = token_file_read(s->file, first + d->seq, 1, d->vocab, &targets[d->seq - 1], e);
    if (rc)
        return rc;
    memcpy(targets, tokens + 1, (size_t)(d->seq - 1) * sizeof(*targets));
    struct walk w = walk_from(s, first + 1);
    for (int64_t i = 1; i <= d->seq && !rc; i++) {
        rc = check_entry(s, first + i, e);
        if (!counts(&w, first + i))
            targets[i - 1] = -1;
    }
    if (out->positions)
        fill_positions(s, first, d->seq, out->positions);
    return rc;
}

int64_t data_targets(const struct data *d, int64_t position)
{
    int64_t first, n = 0;
    const struct source *s = find(d, position, &first);
    struct walk w = walk_from(s, first + 1);
    if (!s->mask_bytes && !token_file_info(s->file)->has_mask && !s->is_apart)
        return d->seq;
    for (int64_t i = 1; i <= d->seq; i++)
        n += counts(&w, first + i);
    return n;
}

/* --- agreement --- */

static uint64_t mix(uint64_t h, uint64_t x)
{
    return random_bits(h, x);
}

uint64_t data_fingerprint(const struct data *d)
{
    enum { LOOKS = 64 };
    uint64_t h = mix(d->seed, (uint64_t)d->seq);
    for (size_t i = 0; i < d->n; i++) {
        const struct source *s = &d->v[i];
        int64_t tokens = token_file_info(s->file)->tokens;
        h = mix(mix(h, (uint64_t)tokens), (uint64_t)s->mask_bytes);
        for (int64_t k = 0; k < LOOKS; k++) {
            int64_t at = (int64_t)(random_bits(h, (uint64_t)k) % (uint64_t)tokens);
            h = mix(h, (uint64_t)token_file_at(s->file, at) * 2 + is_unmasked(s, at));
        }
    }
    return h;
}
