/* `berth data`: files of tokens made, looked at and turned into other formats, by berth-engine as a
 * child. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/engine_child.h"
#include "cli/output.h"
#include "planner/data_kind.h"

static const struct option DATA[] = {
    {.name = "output",
        .letter = 'o',
        .kind = OPTION_FILE,
        .help = "file to write; it gets its name when it is whole",
        .example = "-o web.tok"},
    {.name = "to",
        .kind = OPTION_CHOICE,
        .argument = "KIND",
        .choices = "berth|uint16|uint32|llmc|megatron",
        .def = "berth",
        .help = "format to write",
        .detail =
            "`berth help formats` says what they are. Ends of documents, which documents=apart and "
            "packing need, are kept by berth and megatron, a loss mask by berth.",
        .example = "--to megatron"},
    {.name = "kind",
        .kind = OPTION_CHOICE,
        .choices = "auto|bytes|berth|uint16|uint32|llmc|megatron",
        .def = "auto",
        .help = "how the file that inspect and convert read holds tokens",
        .example = "--kind uint16"},
    {.name = "tokenizer",
        .kind = OPTION_FILE,
        .help = "tokenizer.json of a byte-level BPE; without one every byte is a token",
        .detail = "As GPT-2, Llama 3, Qwen 2 and 3 and SmolLM2 have it; ids are those of the "
                  "tokenizers package. A file that asks for anything that would change the ids and "
                  "is not known is refused. Special tokens written out in a text become those "
                  "tokens, and the post-processor is not applied: --bos and --eos say what stands "
                  "around documents.",
        .example = "--tokenizer tokenizer.json"},
    {.name = "field",
        .kind = OPTION_TEXT,
        .def = "text",
        .help = "field of a .jsonl line that holds the text",
        .example = "--field content"},
    {.name = "prompt-field",
        .kind = OPTION_TEXT,
        .help = "field in front of it that is read and not learnt",
        .detail = "Its tokens are left out of the loss by a mask in the file, kind berth.",
        .example = "--prompt-field question"},
    {.name = "eos",
        .kind = OPTION_TEXT,
        .argument = "TOKEN",
        .help = "tokenize: token behind each document; none for none",
        .detail = "Default is the tokenizer's end of text. With convert it is the id behind which "
                  "documents end in a file that does not say so itself.",
        .example = "--eos '<|endoftext|>'"},
    {.name = "bos",
        .kind = OPTION_TEXT,
        .argument = "TOKEN",
        .help = "tokenize: token in front of each document; default none",
        .example = "--bos '<|begin_of_text|>'"},
    {.name = "vocab",
        .kind = OPTION_COUNT,
        .help = "inspect: size of the model's vocabulary, to check every id against",
        .example = "--vocab 50257"},
    {.name = "threads",
        .kind = OPTION_COUNT,
        .help = "tokenize: default all cores; the result does not depend on it",
        .example = "--threads 4"},
    {0},
};
static const struct option_group DATA_OPTIONS = {"Options", DATA};

/* What came from the child. */
struct following {
    struct out *out;
    struct json *result;
    int64_t told_tenth;
};

static void tell_progress(struct following *f, const struct json *v)
{
    char done[UNITS_TEXT], all[UNITS_TEXT], tokens[UNITS_TEXT];
    int64_t bytes = json_int(v, "bytes", 0), of_bytes = json_int(v, "of_bytes", 0);
    int64_t tenth = of_bytes > 0 ? (int64_t)(10 * (double)bytes / (double)of_bytes) : 0;
    if (!out_err_is_terminal(f->out) && tenth <= f->told_tenth)
        return;
    f->told_tenth = tenth;
    out_progress(f->out, "%s of %s, %s tokens", units_bytes(done, (double)bytes),
        units_bytes(all, (double)of_bytes), units_count(tokens, (double)json_int(v, "tokens", 0)));
}

static void take_line(void *arg, const char *line)
{
    struct following *f = arg;
    struct json *v = NULL;
    struct err ignored = ERR_INIT;
    if (json_parse(&v, line, strlen(line), &ignored))
        return;
    if (strcmp(json_str(v, "event", ""), "progress") == 0) {
        tell_progress(f, v);
        json_free(v);
        return;
    }
    json_free(f->result);
    f->result = v;
}

/* --- the child's words --- */

struct words {
    const char **v;
    size_t n;
};

static void add_pair(struct words *w, const char *option, const char *value)
{
    if (!value)
        return;
    w->v[w->n++] = option;
    w->v[w->n++] = value;
}

static const char *none_is_empty(const char *token)
{
    return token && strcmp(token, "none") == 0 ? "" : token;
}

static void make_words(struct words *w, const struct args *args)
{
    w->v = base_calloc(args_operands(args) + 32, sizeof(*w->v));
    w->v[w->n++] = "data";
    w->v[w->n++] = args_operand(args, 0);
    add_pair(w, "--output", args_text(args, "output"));
    add_pair(w, "--to", args_text(args, "to"));
    add_pair(w, "--kind", args_text(args, "kind"));
    add_pair(w, "--tokenizer", args_text(args, "tokenizer"));
    add_pair(w, "--field", args_text(args, "field"));
    add_pair(w, "--prompt-field", args_text(args, "prompt-field"));
    add_pair(w, "--eos", none_is_empty(args_text(args, "eos")));
    add_pair(w, "--bos", args_text(args, "bos"));
}

static void add_count(struct words *w, const char *option, char text[24], int64_t value)
{
    if (value <= 0)
        return;
    snprintf(text, 24, "%lld", (long long)value);
    add_pair(w, option, text);
}

/* --- telling --- */

static void line(struct out *out, const char *name, const struct json *v, const char *key)
{
    const struct json *x = json_get(v, key);
    if (json_is_int(x))
        out_printf(out, "%-12s %lld\n", name, (long long)json_as_int(x, 0));
    else if (json_is_str(x))
        out_printf(out, "%-12s %s\n", name, json_as_str(x, ""));
}

/* Control characters of the text are shown as JSON has them. */
static void tell_text(struct out *out, const struct json *v)
{
    const struct json *text = json_get(v, "first_text"), *ids = json_get(v, "first_tokens");
    struct str s = STR_INIT;
    for (size_t i = 0; i < json_len(ids); i++)
        str_addf(&s, "%s%lld", i ? " " : "", (long long)json_as_int(json_at(ids, i), 0));
    out_printf(out, "%-12s %s\n", "first ids", str_text(&s));
    str_release(&s);
    if (!text)
        return;
    char *quoted = json_print(text, false), *safe = text_safe(quoted);
    out_printf(out, "%-12s %s\n", "first text", safe);
    free(quoted);
    free(safe);
}

static void tell_inspected(struct out *out, const struct json *v)
{
    int64_t vocab = json_int(v, "vocab", 0), outside = json_int(v, "first_outside", -1);
    line(out, "kind", v, "kind");
    line(out, "token bytes", v, "token_bytes");
    line(out, "tokens", v, "tokens");
    line(out, "documents", v, "documents");
    line(out, "targets", v, "targets");
    line(out, "largest id", v, "largest_id");
    line(out, "end of text", v, "end_of_text");
    if (outside >= 0)
        out_printf(out, "%-12s %lld: token %lld is %lld, outside it\n", "vocabulary",
            (long long)vocab, (long long)outside, (long long)json_int(v, "outside_id", 0));
    else if (vocab > 0)
        out_printf(out, "%-12s %lld: every id is below it\n", "vocabulary", (long long)vocab);
    tell_text(out, v);
}

static void tell_written(struct out *out, const struct json *v, const char *path)
{
    char tokens[UNITS_TEXT];
    int64_t n = json_int(v, "tokens", 0), skipped = json_int(v, "skipped_documents", 0);
    int64_t targets = json_int(v, "targets", n), documents = json_int(v, "documents", 0);
    out_printf(out, "%s: %s tokens (%lld)", path, units_count(tokens, (double)n), (long long)n);
    if (documents > 0)
        out_printf(out, " in %lld document%s", (long long)documents, documents == 1 ? "" : "s");
    out_printf(out, ", %s, %lld bytes each\n", json_str(v, "kind", ""),
        (long long)json_int(v, "token_bytes", 0));
    if (targets < n)
        out_printf(out, "%lld of them are targets\n", (long long)targets);
    if (skipped > 0)
        out_note(out, "%lld document%s without text left out", (long long)skipped,
            skipped == 1 ? "" : "s");
}

static void add_result(struct json *doc, const struct json *result)
{
    const char *key;
    const struct json *value;
    void *cursor = NULL;
    while (json_next(result, &cursor, &key, &value))
        if (strcmp(key, "event") != 0)
            json_add(doc, key, json_clone(value));
}

static void tell(struct out *out, const struct args *args, const struct json *result)
{
    static const struct {
        const char *action, *schema;
    } SCHEMAS[] = {{"tokenize", "data-tokenize/1"}, {"inspect", "data-inspect/1"},
        {"convert", "data-convert/1"}};
    const char *action = args_operand(args, 0), *path = args_text(args, "output");
    bool inspects = strcmp(action, "inspect") == 0;
    if (!out_is_json(out)) {
        if (inspects)
            tell_inspected(out, result);
        else
            tell_written(out, result, path);
        return;
    }
    for (size_t i = 0; i < BASE_COUNT(SCHEMAS); i++) {
        if (strcmp(action, SCHEMAS[i].action) != 0)
            continue;
        struct json *doc = out_document(out, SCHEMAS[i].schema);
        json_add_str(doc, "file", inspects ? args_operand(args, 1) : path);
        add_result(doc, result);
        out_json(out, doc);
    }
}

/* --- the command --- */

/* Options that only some actions have: an option that does nothing is a mistake. */
static enum rc check_options(const struct args *args, const char *action, struct err *e)
{
    static const struct {
        const char *option, *actions;
    } ROWS[] = {{"output", "tokenize convert"}, {"to", "tokenize convert"},
        {"kind", "inspect convert"}, {"tokenizer", "tokenize inspect"}, {"field", "tokenize"},
        {"prompt-field", "tokenize"}, {"eos", "tokenize convert"}, {"bos", "tokenize"},
        {"vocab", "inspect"}, {"threads", "tokenize"}};
    for (size_t i = 0; i < BASE_COUNT(ROWS); i++)
        if (args_has(args, ROWS[i].option) && !strstr(ROWS[i].actions, action))
            return err_set(e, RC_USAGE, "--%s is not for berth data %s", ROWS[i].option, action);
    return RC_OK;
}

static enum rc check(const struct args *args, struct err *e)
{
    const char *action = args_operand(args, 0);
    bool tokenizes = strcmp(action, "tokenize") == 0, inspects = strcmp(action, "inspect") == 0;
    if (!tokenizes && !inspects && strcmp(action, "convert") != 0)
        return err_set(e, RC_USAGE,
            "'%s' is no action of berth data; use tokenize, inspect or convert", action);
    if (args_operands(args) < 2)
        return err_set(e, RC_USAGE, "%s which file? berth data %s FILE", action, action);
    if (!tokenizes && args_operands(args) > 2)
        return err_set(e, RC_USAGE, "%s takes one file at a time", action);
    if (!inspects && !args_text(args, "output"))
        return err_set(e, RC_USAGE, "give -o FILE to write to");
    return check_options(args, action, e);
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct following f = {.out = out};
    struct words w = {0};
    char threads[24], vocab[24];
    enum rc rc = check(args, e);
    if (rc)
        return rc;
    make_words(&w, args);
    add_count(&w, "--threads", threads, args_int(args, "threads", 0));
    add_count(&w, "--vocab", vocab, args_int(args, "vocab", 0));
    for (size_t i = 1; i < args_operands(args); i++)
        w.v[w.n++] = args_operand(args, i);
    rc = engine_child_follow(take_line, &f, w.v, e);
    out_progress_end(out);
    if (!rc && !f.result)
        rc = err_set(e, RC_FAILED, "berth-engine gave no answer");
    if (!rc)
        tell(out, args, f.result);
    /* the answer is there, and it says that training with this file would fail */
    if (!rc && json_int(f.result, "first_outside", -1) >= 0)
        rc = RC_INVALID;
    json_free(f.result);
    free(w.v);
    return rc;
}

static const char *const EXAMPLES[] = {
    "berth data tokenize web.jsonl --tokenizer tokenizer.json -o web.tok",
    "berth data inspect web.tok --tokenizer tokenizer.json --vocab 49152",
    "berth data convert web.tok --to megatron -o web.bin",
    NULL,
};
static const struct option_group *const GROUPS[] = {&DATA_OPTIONS, NULL};

const struct command CMD_DATA = {
    .name = "data",
    .topic = COMMAND_PLAN,
    .summary = "turn text into tokens, look at files of tokens, convert them",
    .operands = "tokenize|inspect|convert FILE...",
    .min_operands = 1,
    .max_operands = -1,
    .about = "tokenize reads text files, each a document, and .jsonl files, each line a document, "
             "and writes one file of tokens. inspect reads a file of tokens whole and says what is "
             "in it. convert writes it in another format. All of them stream: no file is held in "
             "memory.",
    .examples = EXAMPLES,
    .groups = GROUPS,
    .run = run,
};
