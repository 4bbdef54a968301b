#include "engine/data_main.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/rank_setup.h"
#include "engine/token_file.h"
#include "engine/token_writer.h"
#include "engine/tokenize.h"
#include "engine/tokenizer.h"

enum { BATCH = 1 << 16, FIRST_TOKENS = 32 };
static const double PROGRESS_S = 0.2;

/* --- arguments --- */

struct arguments {
    const char *output, *to, *kind, *tokenizer, *field, *prompt, *begin, *end, *threads, *vocab;
    const char **files;
    size_t n_files;
};

static enum rc parse(struct arguments *a, int argc, char **argv, struct err *e)
{
    const struct {
        const char *name, **value;
    } options[] = {{"--output", &a->output}, {"--to", &a->to}, {"--kind", &a->kind},
        {"--tokenizer", &a->tokenizer}, {"--field", &a->field}, {"--prompt-field", &a->prompt},
        {"--bos", &a->begin}, {"--eos", &a->end}, {"--threads", &a->threads},
        {"--vocab", &a->vocab}};
    a->files = base_calloc((size_t)argc + 1, sizeof(*a->files));
    for (int i = 2; i < argc; i++) {
        size_t k = 0;
        while (k < BASE_COUNT(options) && strcmp(argv[i], options[k].name) != 0)
            k++;
        if (k == BASE_COUNT(options) && str_starts(argv[i], "--"))
            return err_set(e, RC_USAGE, "unknown option '%s'", argv[i]);
        if (k == BASE_COUNT(options))
            a->files[a->n_files++] = argv[i];
        else if (i + 1 == argc)
            return err_set(e, RC_USAGE, "option '%s' needs a value", argv[i]);
        else
            *options[k].value = argv[++i];
    }
    return a->n_files ? RC_OK : err_set(e, RC_USAGE, "no file is named");
}

static int64_t number(const char *text, int64_t otherwise)
{
    return text ? strtoll(text, NULL, 10) : otherwise;
}

/* The id of --eos for a conversion; "" stands for none. */
static enum rc take_end(const char *text, int64_t *out, struct err *e)
{
    char *rest = NULL;
    if (!text)
        return RC_OK;
    int64_t id = *text ? strtoll(text, &rest, 10) : -1;
    if (*text && (*rest || id < 0))
        return err_set(e, RC_USAGE, "--eos '%s' is not an id; convert knows no tokens", text);
    *out = id;
    return RC_OK;
}

/* --- telling --- */

static void say(struct json *v)
{
    char *line = json_print(v, false);
    printf("%s\n", line);
    fflush(stdout);
    free(line);
    json_free(v);
}

static struct json *event(const char *name)
{
    struct json *v = json_obj();
    json_add_str(v, "event", name);
    return v;
}

/* Ctrl-C and SIGTERM are blocked and asked for here, so that nothing half done stays. */
static bool tell_progress(void *arg, int64_t bytes, int64_t of_bytes, int64_t tokens)
{
    double *last_s = arg, now_s = clock_now_s();
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (sigtimedwait(&set, NULL, &(struct timespec){0, 0}) > 0)
        return true;
    if (now_s - *last_s < PROGRESS_S)
        return false;
    *last_s = now_s;
    struct json *v = event("progress");
    json_add_int(v, "bytes", bytes);
    json_add_int(v, "of_bytes", of_bytes);
    json_add_int(v, "tokens", tokens);
    say(v);
    return false;
}

/* --- tokenize --- */

static enum rc tokenize(const struct arguments *a, struct err *e)
{
    struct tokenize_result r = {0};
    double last_s = clock_now_s();
    struct tokenize_options o = {.inputs = a->files,
        .n_inputs = a->n_files,
        .tokenizer = a->tokenizer,
        .field = a->field,
        .prompt = a->prompt,
        .begin = a->begin,
        .end = a->end,
        .output = a->output,
        .threads = (int)number(a->threads, rank_setup_threads(1, 0)),
        .progress = tell_progress,
        .arg = &last_s};
    enum rc rc = data_kind_parse(a->to ? a->to : "berth", &o.kind, e);
    if (!rc)
        rc = tokenize_run(&o, &r, e);
    if (rc)
        return rc;
    struct json *v = event("result");
    json_add_str(v, "kind", data_kind_name(o.kind));
    json_add_int(v, "documents", r.documents);
    json_add_int(v, "skipped_documents", r.skipped);
    json_add_int(v, "tokens", r.tokens);
    json_add_int(v, "targets", r.targets);
    json_add_int(v, "text_bytes", r.bytes);
    json_add_int(v, "vocab", r.vocab);
    json_add_int(v, "token_bytes", r.token_bytes);
    say(v);
    return RC_OK;
}

/* --- inspect --- */

struct seen {
    int64_t largest, smallest, targets, first_outside; /* token, -1: none */
};

/* Every token once. vocab 0: none is outside. */
static enum rc look_through(
    struct seen *s, const struct token_file *f, int64_t vocab, struct err *e)
{
    const struct token_file_info *info = token_file_info(f);
    double last_s = clock_now_s();
    *s = (struct seen){.largest = -1, .smallest = INT64_MAX, .first_outside = -1};
    for (int64_t i = 0; i < info->tokens; i++) {
        int64_t id = token_file_at(f, i);
        s->largest = id > s->largest ? id : s->largest;
        s->smallest = id < s->smallest ? id : s->smallest;
        s->targets += token_file_counts(f, i);
        if (s->first_outside < 0 && vocab > 0 && (id < 0 || id >= vocab))
            s->first_outside = i;
        if (i % BATCH == 0 &&
            tell_progress(&last_s, i * info->token_bytes, info->tokens * info->token_bytes, i))
            return err_set(e, RC_INTERRUPTED, "interrupted");
    }
    return RC_OK;
}

static void put_count(struct json *v, const char *key, int64_t x, int64_t unknown)
{
    if (x == unknown)
        json_add_null(v, key);
    else
        json_add_int(v, key, x);
}

static void put_first(struct json *v, const struct token_file *f, const struct tokenizer *t)
{
    const struct token_file_info *info = token_file_info(f);
    struct json *ids = json_arr();
    struct str text = STR_INIT;
    for (int64_t i = 0; i < info->tokens && i < FIRST_TOKENS; i++) {
        int64_t id = token_file_at(f, i);
        json_push_int(ids, id);
        if (t && id >= 0 && id < tokenizer_vocab(t))
            tokenizer_decode(t, (uint32_t)id, &text);
        else if (info->kind == DATA_BYTES)
            str_addc(&text, (char)id);
    }
    json_add(v, "first_tokens", ids);
    json_add_str(v, "first_text", t || info->kind == DATA_BYTES ? str_text(&text) : NULL);
    str_release(&text);
}

static void tell_inspected(
    const struct token_file *f, const struct seen *s, const struct tokenizer *t, int64_t vocab)
{
    const struct token_file_info *info = token_file_info(f);
    struct json *v = event("result");
    json_add_str(v, "kind", data_kind_name(info->kind));
    json_add_int(v, "token_bytes", info->token_bytes);
    json_add_int(v, "tokens", info->tokens);
    put_count(v, "documents", info->documents, 0);
    put_count(v, "targets", info->has_mask ? s->targets : -1, -1);
    put_count(v, "largest_id", s->largest, -1);
    put_count(v, "vocab", vocab, 0);
    put_count(v, "first_outside", s->first_outside, -1);
    put_count(v, "outside_id",
        s->first_outside < 0 ? INT64_MIN : token_file_at(f, s->first_outside), INT64_MIN);
    put_count(v, "end_of_text", info->end_of_text, -1);
    put_first(v, f, t);
    say(v);
}

static enum rc open_input(struct token_file **f, const struct arguments *a, struct err *e)
{
    enum data_kind kind = DATA_AUTO;
    enum rc rc = a->kind ? data_kind_parse(a->kind, &kind, e) : RC_OK;
    if (!rc && a->n_files != 1)
        rc = err_set(e, RC_USAGE, "one file at a time");
    if (!rc && kind == DATA_TEXT)
        rc = err_set(e, RC_USAGE, "text has no tokens yet; `berth data tokenize` makes them");
    return rc ? rc : token_file_open(f, a->files[0], kind, e);
}

static enum rc inspect(const struct arguments *a, struct err *e)
{
    struct token_file *f = NULL;
    struct tokenizer *t = NULL;
    struct seen s = {0};
    int64_t vocab = number(a->vocab, 0);
    enum rc rc = open_input(&f, a, e);
    if (!rc)
        rc = token_file_check_index(f, e);
    if (!rc && a->tokenizer)
        rc = tokenizer_open(&t, a->tokenizer, e);
    if (!rc && vocab == 0 && t)
        vocab = tokenizer_vocab(t);
    if (!rc)
        rc = look_through(&s, f, vocab, e);
    if (!rc)
        tell_inspected(f, &s, t, vocab);
    tokenizer_close(t);
    token_file_close(f);
    return rc;
}

/* --- convert --- */

struct conversion {
    const struct token_file *in;
    struct token_writer *out;
    int64_t end_of_text;        /* id that ends documents where the file does not say it; -1 */
    int64_t document, next_end; /* the file's own; next_end -1: none to come */
};

static void next_document(struct conversion *c)
{
    int64_t documents = token_file_info(c->in)->documents;
    c->next_end =
        c->document < documents ? token_file_document_end(c->in, c->document++) : (int64_t)-1;
}

static bool ends_here(const struct conversion *c, int64_t i, uint32_t id)
{
    if (token_file_info(c->in)->documents > 0)
        return c->next_end == i + 1;
    return (int64_t)id == c->end_of_text;
}

/* Tokens first .. first + n, up to the end of a document at most; *taken of them. */
static enum rc convert_some(
    struct conversion *c, int64_t first, int64_t n, int64_t *taken, struct err *e)
{
    uint32_t ids[1024] = {0};
    unsigned char counts[1024] = {0};
    bool is_end = false;
    int64_t k = 0;
    for (; k < n && k < 1024 && !is_end; k++) {
        ids[k] = (uint32_t)token_file_at(c->in, first + k);
        counts[k] = token_file_counts(c->in, first + k);
        is_end = ends_here(c, first + k, ids[k]);
    }
    *taken = k;
    enum rc rc = token_writer_add(c->out, ids, counts, (size_t)k, e);
    if (!rc && is_end)
        rc = token_writer_end_document(c->out, e);
    while (is_end && c->next_end >= 0 && c->next_end <= first + k)
        next_document(c);
    return rc;
}

static enum rc convert_all(struct conversion *c, struct err *e)
{
    const struct token_file_info *info = token_file_info(c->in);
    double last_s = clock_now_s();
    enum rc rc = RC_OK;
    next_document(c);
    while (c->next_end == 0) /* documents without tokens */
        next_document(c);
    for (int64_t i = 0, taken; i < info->tokens && !rc; i += taken) {
        rc = convert_some(c, i, info->tokens - i, &taken, e);
        if (!rc &&
            tell_progress(&last_s, i * info->token_bytes, info->tokens * info->token_bytes, i))
            rc = err_set(e, RC_INTERRUPTED, "interrupted");
    }
    return rc ? rc : token_writer_finish(c->out, e);
}

static enum rc convert_opened(const struct token_file *f, const struct arguments *a, struct err *e)
{
    const struct token_file_info *info = token_file_info(f);
    struct seen s = {0};
    struct token_writer *w = NULL;
    struct token_writer_options o = {.path = a->output, .has_mask = info->has_mask};
    struct conversion c = {.in = f, .end_of_text = info->end_of_text};
    enum rc rc = data_kind_parse(a->to ? a->to : "berth", &o.kind, e);
    if (!rc)
        rc = take_end(a->end, &c.end_of_text, e);
    if (!rc)
        rc = token_file_check_index(f, e);
    if (!rc)
        rc = look_through(&s, f, 0, e);
    if (!rc && (s.smallest < 0 || s.largest > UINT32_MAX))
        rc = err_set(e, RC_INVALID, "'%s' holds %lld, which is no token id", a->files[0],
            (long long)(s.smallest < 0 ? s.smallest : s.largest));
    o.vocab = s.largest + 1;
    o.end_of_text = c.end_of_text;
    if (!rc)
        rc = token_writer_open(&w, &o, e);
    c.out = w;
    if (!rc)
        rc = convert_all(&c, e);
    if (!rc) {
        struct json *v = event("result");
        json_add_str(v, "kind", data_kind_name(o.kind));
        json_add_int(v, "token_bytes", token_writer_bytes(w));
        json_add_int(v, "tokens", token_writer_tokens(w));
        json_add_int(v, "documents", token_writer_documents(w));
        say(v);
    }
    token_writer_close(w);
    return rc;
}

static enum rc convert(const struct arguments *a, struct err *e)
{
    struct token_file *f = NULL;
    enum rc rc = open_input(&f, a, e);
    if (!rc)
        rc = convert_opened(f, a, e);
    token_file_close(f);
    return rc;
}

/* --- the whole --- */

static const struct {
    const char *name;
    enum rc (*run)(const struct arguments *a, struct err *e);
    bool writes;
} ACTIONS[] = {
    {"tokenize", tokenize, true}, {"inspect", inspect, false}, {"convert", convert, true}};

static enum rc act(const char *name, const struct arguments *a, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(ACTIONS); i++) {
        if (strcmp(name, ACTIONS[i].name) != 0)
            continue;
        if (ACTIONS[i].writes && !a->output)
            return err_set(e, RC_USAGE, "no --output is given");
        return ACTIONS[i].run(a, e);
    }
    return err_set(e, RC_USAGE, "'%s' is none of tokenize, inspect and convert", name);
}

int data_main(int argc, char **argv)
{
    struct arguments a = {0};
    struct err e = ERR_INIT;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGXFSZ, SIG_IGN);
    enum rc rc = parse(&a, argc, argv, &e);
    if (!rc)
        rc = act(argv[1], &a, &e);
    if (rc)
        fprintf(stderr, "berth-engine: %s\n", e.msg);
    free(a.files);
    return rc_exit_code(rc);
}
