#include "engine/tokenize.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/token_file.h"
#include "engine/token_writer.h"
#include "engine/tokenizer.h"

/* Text that one thread takes at a time. */
enum { PIECE_BYTES = 256 << 10, MAX_THREADS = 256, BYTE_VOCAB = 256 };

struct input {
    struct mapped_file file;
    bool is_lines; /* .jsonl */
};

/* A part of an input, and what became of it. */
struct piece {
    int64_t number;
    const struct input *in;
    size_t from, to;
    struct id_list ids;
    unsigned char *counts; /* as long as ids; only with a prompt field */
    size_t counts_cap;
    int64_t *ends; /* of documents, in ids */
    size_t n_ends, ends_cap;
    int64_t skipped;
};

struct job {
    const struct tokenize_options *o;
    struct tokenizer *tokenizer;
    int64_t begin, end; /* ids, TOKENIZER_NONE */
    struct input *inputs;
    struct token_writer *writer;
    int64_t total_bytes;

    pthread_mutex_t lock;
    pthread_cond_t turn;
    size_t input, at;    /* where the next piece begins */
    int64_t given, done; /* pieces */
    struct tokenize_result result;
    enum rc rc;
    struct err e; /* of the first piece that failed */
};

/* --- pieces --- */

static size_t next_line(const struct mapped_file *m, size_t from)
{
    const void *p = from < m->n ? memchr(m->p + from, '\n', m->n - from) : NULL;
    return p ? (size_t)((const unsigned char *)p - m->p) + 1 : m->n;
}

static size_t piece_end(const struct job *j, const struct input *in, size_t from)
{
    const struct mapped_file *m = &in->file;
    size_t least = from + PIECE_BYTES;
    if (least >= m->n)
        return m->n;
    if (in->is_lines)
        return next_line(m, least);
    if (!j->tokenizer)
        return least;
    return from + tokenizer_cut(j->tokenizer, (const char *)m->p + from, m->n - from, PIECE_BYTES);
}

/* Under the lock. False when there is none left. */
static bool take_piece(struct job *j, struct piece *p)
{
    if (j->rc || j->input == j->o->n_inputs)
        return false;
    p->in = &j->inputs[j->input];
    p->from = j->at;
    p->to = j->at = piece_end(j, p->in, j->at);
    p->number = j->given++;
    if (j->at == p->in->file.n) {
        j->input++;
        j->at = 0;
    }
    p->ids.n = p->n_ends = 0;
    p->skipped = 0;
    return true;
}

/* --- one piece --- */

static void put(struct piece *p, int64_t id)
{
    if (id < 0)
        return;
    BASE_GROW(p->ids.v, p->ids.cap, p->ids.n + 1);
    p->ids.v[p->ids.n++] = (uint32_t)id;
}

static void end_document(struct piece *p)
{
    BASE_GROW(p->ends, p->ends_cap, p->n_ends + 1);
    p->ends[p->n_ends++] = (int64_t)p->ids.n;
}

static enum rc encode(
    struct piece *p, struct tokenizer_work *w, const char *text, size_t n, struct err *e)
{
    if (w)
        return tokenizer_encode(w, text, n, &p->ids, e);
    for (size_t i = 0; i < n; i++)
        put(p, (unsigned char)text[i]);
    return RC_OK;
}

static enum rc encode_text(
    const struct job *j, struct piece *p, struct tokenizer_work *w, struct err *e)
{
    const struct mapped_file *m = &p->in->file;
    if (p->from == 0)
        put(p, j->begin);
    enum rc rc = encode(p, w, (const char *)m->p + p->from, p->to - p->from, e);
    if (!rc && p->to == m->n) {
        put(p, j->end);
        end_document(p);
    }
    return rc;
}

/* The tokens since `from` count as targets, or do not. */
static void mark(struct piece *p, size_t from, bool counts)
{
    BASE_GROW(p->counts, p->counts_cap, p->ids.n + 1);
    memset(p->counts + from, counts, p->ids.n - from);
}

static const char usual_field[] = "text";

static const char *field_of(const struct tokenize_options *o)
{
    return o->field ? o->field : usual_field;
}

static enum rc encode_fields(const struct job *j, struct piece *p, struct tokenizer_work *w,
    const struct json *v, struct err *e)
{
    const char *field = field_of(j->o), *prompt = "", *text;
    size_t from = p->ids.n;
    enum rc rc = json_need_str(v, field, &text, e);
    if (!rc && j->o->prompt)
        rc = json_need_str(v, j->o->prompt, &prompt, e);
    if (rc)
        return rc;
    if (!*text) {
        p->skipped++;
        return RC_OK;
    }
    put(p, j->begin);
    rc = encode(p, w, prompt, strlen(prompt), e);
    if (j->o->prompt)
        mark(p, from, false);
    from = p->ids.n;
    if (!rc)
        rc = encode(p, w, text, strlen(text), e);
    put(p, j->end);
    if (j->o->prompt)
        mark(p, from, true);
    end_document(p);
    return rc;
}

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strchr(" \t\r\n", text[i]))
            return false;
    return true;
}

static enum rc at_line(const struct mapped_file *m, size_t at, struct err *e)
{
    long long line = 1;
    for (size_t i = 0; i < at; i++)
        line += m->p[i] == '\n';
    return err_in(e, "'%s', line %lld (byte %zu)", m->path, line, at);
}

static enum rc encode_lines(
    const struct job *j, struct piece *p, struct tokenizer_work *w, struct err *e)
{
    const struct mapped_file *m = &p->in->file;
    enum rc rc = RC_OK;
    for (size_t at = p->from, next; at < p->to && !rc; at = next) {
        const char *text = (const char *)m->p + at;
        struct json *v = NULL;
        next = next_line(m, at);
        if (is_blank(text, next - at))
            continue;
        rc = json_parse(&v, text, next - at, e);
        if (!rc)
            rc = encode_fields(j, p, w, v, e);
        json_free(v);
        if (rc)
            return at_line(m, at, e);
    }
    return rc;
}

/* --- writing, in the order of the pieces --- */

static enum rc write_piece(struct job *j, const struct piece *p, struct err *e)
{
    int64_t from = 0;
    enum rc rc = RC_OK;
    for (size_t i = 0; i <= p->n_ends && !rc; i++) {
        int64_t to = i < p->n_ends ? p->ends[i] : (int64_t)p->ids.n;
        rc = token_writer_add(j->writer, p->ids.v + from, p->counts ? p->counts + from : NULL,
            (size_t)(to - from), e);
        if (!rc && i < p->n_ends)
            rc = token_writer_end_document(j->writer, e);
        from = to;
    }
    for (size_t i = 0; i < p->ids.n; i++)
        j->result.targets += !p->counts || p->counts[i];
    j->result.bytes += (int64_t)(p->to - p->from);
    j->result.skipped += p->skipped;
    if (!rc && j->o->progress &&
        j->o->progress(j->o->arg, j->result.bytes, j->total_bytes, token_writer_tokens(j->writer)))
        rc = err_set(e, RC_INTERRUPTED, "interrupted");
    return rc;
}

/* Wait for all pieces before it, then write it; under the lock. */
static void hand_in(struct job *j, const struct piece *p, enum rc rc, struct err *e)
{
    while (j->done < p->number)
        pthread_cond_wait(&j->turn, &j->lock);
    if (!j->rc && !rc)
        rc = write_piece(j, p, e);
    if (!j->rc && rc) {
        j->rc = rc;
        j->e = *e;
    }
    j->done++;
    pthread_cond_broadcast(&j->turn);
}

static void *work(void *arg)
{
    struct job *j = arg;
    struct piece p = {0};
    struct tokenizer_work *w = j->tokenizer ? tokenizer_work_new(j->tokenizer) : NULL;
    pthread_mutex_lock(&j->lock);
    while (take_piece(j, &p)) {
        struct err e = ERR_INIT;
        pthread_mutex_unlock(&j->lock);
        enum rc rc = p.in->is_lines ? encode_lines(j, &p, w, &e) : encode_text(j, &p, w, &e);
        pthread_mutex_lock(&j->lock);
        hand_in(j, &p, rc, &e);
    }
    pthread_mutex_unlock(&j->lock);
    tokenizer_work_free(w);
    free(p.ids.v);
    free(p.counts);
    free(p.ends);
    return NULL;
}

static void run_threads(struct job *j)
{
    pthread_t threads[MAX_THREADS];
    int n = j->o->threads < 1 ? 1 : j->o->threads > MAX_THREADS ? MAX_THREADS : j->o->threads;
    int started = 0;
    while (started < n - 1 && pthread_create(&threads[started], NULL, work, j) == 0)
        started++;
    work(j);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* --- the whole --- */

static enum rc open_inputs(struct job *j, struct err *e)
{
    enum rc rc = RC_OK;
    j->inputs = base_calloc(j->o->n_inputs, sizeof(*j->inputs));
    for (size_t i = 0; i < j->o->n_inputs && !rc; i++) {
        struct input *in = &j->inputs[i];
        const char *path = j->o->inputs[i];
        in->is_lines = str_ends(path, ".jsonl");
        rc = mapped_file_open(&in->file, path, "text file", e);
        const char *asked = j->o->prompt ? j->o->prompt : field_of(j->o);
        if (!rc && !in->is_lines && strcmp(asked, usual_field) != 0)
            rc = err_set(
                e, RC_USAGE, "'%s' is no .jsonl file, so it has no field '%s'", path, asked);
        j->total_bytes += (int64_t)in->file.n;
    }
    return rc;
}

static enum rc find_token(const struct job *j, const char *text, int64_t *out, struct err *e)
{
    *out = j->tokenizer ? tokenizer_find(j->tokenizer, text) : TOKENIZER_NONE;
    if (*out >= 0)
        return RC_OK;
    return j->tokenizer
               ? err_set(e, RC_USAGE, "tokenizer '%s' has no token '%s'", j->o->tokenizer, text)
               : err_set(e, RC_USAGE, "bytes have no token '%s'", text);
}

static enum rc open_tokenizer(struct job *j, struct err *e)
{
    const struct tokenize_options *o = j->o;
    enum rc rc = o->tokenizer ? tokenizer_open(&j->tokenizer, o->tokenizer, e) : RC_OK;
    j->begin = j->end = TOKENIZER_NONE;
    if (!rc && o->begin)
        rc = find_token(j, o->begin, &j->begin, e);
    if (!rc && !o->end && j->tokenizer)
        j->end = tokenizer_end_of_text(j->tokenizer);
    if (!rc && o->end && *o->end)
        rc = find_token(j, o->end, &j->end, e);
    j->result.vocab = j->tokenizer ? tokenizer_vocab(j->tokenizer) : BYTE_VOCAB;
    return rc;
}

static enum rc open_writer(struct job *j, struct err *e)
{
    struct token_writer_options w = {.path = j->o->output,
        .kind = j->o->kind,
        .vocab = j->result.vocab,
        .end_of_text = j->end,
        .has_mask = j->o->prompt != NULL};
    return token_writer_open(&j->writer, &w, e);
}

static enum rc run(struct job *j, struct err *e)
{
    enum rc rc = open_inputs(j, e);
    if (!rc)
        rc = open_tokenizer(j, e);
    if (!rc)
        rc = open_writer(j, e);
    if (rc)
        return rc;
    run_threads(j);
    if (j->rc) {
        *e = j->e;
        return j->rc;
    }
    j->result.tokens = token_writer_tokens(j->writer);
    j->result.documents = token_writer_documents(j->writer);
    j->result.token_bytes = token_writer_bytes(j->writer);
    if (j->result.tokens == 0)
        return err_set(e, RC_INVALID, "there is no text in what was given");
    return token_writer_finish(j->writer, e);
}

enum rc tokenize_run(const struct tokenize_options *o, struct tokenize_result *out, struct err *e)
{
    struct job j = {
        .o = o, .lock = PTHREAD_MUTEX_INITIALIZER, .turn = PTHREAD_COND_INITIALIZER, .e = ERR_INIT};
    enum rc rc = run(&j, e);
    *out = j.result;
    token_writer_close(j.writer);
    tokenizer_close(j.tokenizer);
    for (size_t i = 0; j.inputs && i < o->n_inputs; i++)
        mapped_file_close(&j.inputs[i].file);
    free(j.inputs);
    return rc;
}
