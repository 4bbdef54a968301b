#include "planner/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "planner/adapter.h"
#include "planner/data_source.h"
#include "planner/engine_use.h"
#include "planner/training.h"

enum { JOB_MAX_BYTES = 4 << 20 };
static const int64_t max_tokens = 1000000000000000000;

/* --- life --- */

void job_init(struct job *j)
{
    memset(j, 0, sizeof *j);
    j->precision = PRECISION_BF16;
    j->master_bytes = MASTER_FP32;
    j->objective = OBJECTIVE_COST;
}

void job_release(struct job *j)
{
    json_free(j->training);
    j->training = NULL;
}

void job_copy(struct job *out, const struct job *j)
{
    *out = *j;
    out->training = j->training ? json_clone(j->training) : NULL;
}

/* --- reading --- */

/* How a field is read: into the member at offset, or by a function. */
struct field {
    struct job_field doc;
    enum { COUNT, BYTES, SECONDS, USD, NUMBER, TEXT, LIST, OTHER } kind;
    size_t offset;
    size_t size; /* of a text member */
    enum rc (*read)(struct job *j, const struct json *v, struct err *e);
};

static enum rc read_model(struct job *j, const struct json *v, struct err *e)
{
    enum rc rc;
    if (json_is_str(v))
        rc = model_find(&j->model, json_as_str(v, ""), e);
    else if (json_get(v, "model_type"))
        rc = model_from_config(&j->model, v, e);
    else
        rc = model_from_json(&j->model, v, e);
    j->has_model = rc == RC_OK;
    return rc;
}

static enum rc read_lora(struct job *j, const struct json *v, struct err *e)
{
    int64_t rank = json_as_int(v, -1);
    if (rank < 0)
        return err_set(e, RC_INVALID, "it must be a count");
    j->lora.rank = rank;
    return job_refuse_zero("lora", (double)rank, e);
}

static enum rc read_targets(struct job *j, const struct json *v, struct err *e)
{
    return adapter_targets_parse(json_as_str(v, ""), &j->lora.targets, e);
}

static enum rc read_base_bits(struct job *j, const struct json *v, struct err *e)
{
    int64_t bits = json_as_int(v, 0);
    if (bits != 16 && bits != 8 && bits != 4)
        return err_set(e, RC_INVALID, "it must be 16, 8 or 4");
    j->lora.base_bits = (int)bits;
    return RC_OK;
}

/* Which of them the engine computes in is known when the job is finished. */
static enum rc read_precision(struct job *j, const struct json *v, struct err *e)
{
    return precision_parse(json_as_str(v, ""), &j->precision, e);
}

static enum rc read_master(struct job *j, const struct json *v, struct err *e)
{
    return job_parse_master(j, json_as_str(v, ""), e);
}

static enum rc read_moments(struct job *j, const struct json *v, struct err *e)
{
    return moment_form_parse(json_as_str(v, ""), &j->moment_form, e);
}

static enum rc read_gradients(struct job *j, const struct json *v, struct err *e)
{
    return job_parse_gradients(j, json_as_str(v, ""), e);
}

static enum rc read_engine(struct job *j, const struct json *v, struct err *e)
{
    return engine_parse(json_as_str(v, ""), &j->engine, e);
}

static enum rc read_objective(struct job *j, const struct json *v, struct err *e)
{
    return objective_parse(json_as_str(v, ""), &j->objective, e);
}

static enum rc read_spot(struct job *j, const struct json *v, struct err *e)
{
    return spot_parse(json_as_str(v, ""), &j->spot, e);
}

/* A source, or an array of them. */
static enum rc read_data(struct job *j, const struct json *v, struct err *e)
{
    struct data_sources sources;
    struct str all = STR_INIT;
    enum rc rc = RC_OK;
    size_t n = json_is_arr(v) ? json_len(v) : 1;
    for (size_t i = 0; i < n && !rc; i++) {
        const char *text = json_as_str(json_is_arr(v) ? json_at(v, i) : v, NULL);
        if (!text || !*text || strpbrk(text, DATA_SEPARATOR))
            rc = err_set(e, RC_INVALID, "it must be a path with words, or an array of such");
        else
            str_addf(&all, "%s%s", i ? DATA_SEPARATOR : "", text);
    }
    if (!rc && !str_copy(j->data, sizeof(j->data), str_text(&all)))
        rc = err_set(e, RC_LIMIT, "it is longer than %d bytes", JOB_DATA - 1);
    if (!rc)
        rc = data_sources_parse(&sources, j->data, e);
    if (!rc)
        data_sources_release(&sources);
    str_release(&all);
    return rc;
}

static void add_data(struct json *v, const char *name, const char *data)
{
    struct json *list = json_arr();
    for (size_t n; *data; data += n + (data[n] != '\0')) {
        n = strcspn(data, DATA_SEPARATOR);
        char *line = base_strndup(data, n);
        json_push_str(list, line);
        free(line);
    }
    if (json_len(list) > 1)
        json_add(v, name, list);
    else
        json_add_str(v, name, json_as_str(json_at(list, 0), NULL));
    if (json_len(list) <= 1)
        json_free(list);
}

static enum rc read_data_kind(struct job *j, const struct json *v, struct err *e)
{
    return data_kind_parse(json_as_str(v, ""), &j->data_kind, e);
}

static enum rc read_allow(struct job *j, const struct json *v, struct err *e)
{
    if (!json_is_arr(v))
        return err_set(e, RC_INVALID, "it must be an array of words");
    j->allow_fp32 = j->allow_bf16 = j->allow_fp8 = false;
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < json_len(v); i++)
        rc = job_allow(j, json_as_str(json_at(v, i), ""), e);
    return rc;
}

static enum rc read_training(struct job *j, const struct json *v, struct err *e)
{
    if (!json_is_obj(v))
        return err_set(e, RC_INVALID, "it must be an object");
    json_free(j->training);
    j->training = json_clone(v);
    return RC_OK;
}

#define AT(member)      offsetof(struct job, member)
#define TEXT_AT(member) offsetof(struct job, member), sizeof(((struct job *)0)->member)
static const struct field fields[] = {
    {{"model", "name, path or object",
         "preset, path of a config.json, or its dimensions as an object"},
        OTHER, 0, 0, read_model},
    {{"tokens", "count", "tokens to train on"}, COUNT, AT(tokens), 0, NULL},
    {{"seq", "count", "tokens of a sequence; default 4096, or what the model can"}, COUNT, AT(seq),
        0, NULL},
    {{"global_batch_tokens", "count", "tokens of an optimizer step; default by model size"}, COUNT,
        AT(global_batch_tokens), 0, NULL},
    {{"precision", "bf16, fp32 or fp8", "of parameters in use and activations; default bf16"},
        OTHER, 0, 0, read_precision},
    {{"master", "fp32, split or pure",
         "how weights in bf16 are kept; split: no copy, but their lower 16 bits beside them; pure: "
         "nothing beside them, and updates rounded at random; default fp32"},
        OTHER, 0, 0, read_master},
    {{"gradients", "fp32 or fp8",
         "how reduced ones wait for the update; fp8: each tensor with a scale of its own, in steps "
         "of one micro step; default fp32"},
        OTHER, 0, 0, read_gradients},
    {{"moments", "fp32, 8bit or fp8",
         "how the optimizer's moments are kept; 8bit: codes and a scale for each block of 128, "
         "fp8: "
         "E4M3 and a scale for each tensor; both change results; default fp32"},
        OTHER, 0, 0, read_moments},
    {{"doc_tokens", "count", "mean tokens of packed documents; default one text a sequence"}, COUNT,
        AT(doc_tokens), 0, NULL},
    {{"lora", "count", "rank of adapters trained beside the frozen model; default the whole model"},
        OTHER, 0, 0, read_lora},
    {{"lora_targets", "text",
         "matrices with adapters: all, attention, mlp, or \"q,v\"; default all"},
        OTHER, 0, 0, read_targets},
    {{"base_bits", "16, 8 or 4", "of frozen parameters beside adapters; default 16"}, OTHER, 0, 0,
        read_base_bits},
    {{"engine", "word", "that trains; others than berth are planned, not launched; default berth"},
        OTHER, 0, 0, read_engine},
    {{"stack", "text", "measured software whose constants predict such an engine"}, TEXT,
        TEXT_AT(stack), NULL},
    {{"objective", "cost, time or balanced", "what the first plan is best at; default cost"}, OTHER,
        0, 0, read_objective},
    {{"budget_usd", "money", "most the whole run may cost; default no limit"}, USD,
        AT(budget_micro_usd), 0, NULL},
    {{"deadline", "duration", "longest the whole run may take; default no limit"}, SECONDS,
        AT(deadline_s), 0, NULL},
    {{"max_gpus", "count", "most GPUs (on CPU: worker processes) to rent"}, COUNT, AT(max_gpus), 0,
        NULL},
    {{"providers", "array of words", "only offers of these"}, LIST, TEXT_AT(provider), NULL},
    {{"regions", "array of words", "only offers in these"}, LIST, TEXT_AT(region), NULL},
    {{"gpus", "array of words", "only these GPU models or families"}, LIST, TEXT_AT(gpu), NULL},
    {{"fabrics", "array of words",
         "only these between nodes: none, ethernet, roce, infiniband (ib), efa, tcpx"},
        LIST, TEXT_AT(fabric), NULL},
    {{"strategies", "array of words", "only these: ddp, zero1, zero2, zero3, hsdp"}, LIST,
        TEXT_AT(strategy), NULL},
    {{"offloads", "array of words",
         "only these: none, optimizer, optimizer+params, nvme, nvme+params, activations"},
        LIST, TEXT_AT(offload), NULL},
    {{"recompute", "array of words",
         "only these: none, selective, selective-ffn, full, mixed; default all but selective-ffn"},
        LIST, TEXT_AT(recompute), NULL},
    {{"reshard", "always, never or size",
         "free gathered parameters after forward, or of units above a size; default what is best"},
        TEXT, TEXT_AT(reshard), NULL},
    {{"bucket", "size or unlimited",
         "gradients reduced together (ddp, zero1, zero2); default each unit's alone"},
        TEXT, TEXT_AT(bucket), NULL},
    {{"gather_format", "plain, int8 or fp8",
         "how parameters travel to be used (zero3, hsdp), in blocks of few bits; default plain"},
        TEXT, TEXT_AT(gather_format), NULL},
    {{"reduce_format", "plain, int8 or fp8",
         "how gradients travel to be summed, in blocks of few bits; default plain"},
        TEXT, TEXT_AT(reduce_format), NULL},
    {{"spot", "no, allow or only", "interruptible offers; default no"}, OTHER, 0, 0, read_spot},
    {{"allow", "array of words", "precisions the search may also try: fp32, bf16, fp8"}, OTHER, 0,
        0, read_allow},
    {{"data", "text or array of texts",
         "what to train on: local:PATH, host:PATH or shared:PATH, with words such as weight=0.3 "
         "behind it (berth help formats)"},
        OTHER, 0, 0, read_data},
    {{"data_kind", "word", "how those files hold tokens (berth help formats); default auto"}, OTHER,
        0, 0, read_data_kind},
    {{"weights", "text", "Hugging Face weights to start from; default: initial values by the seed"},
        TEXT, TEXT_AT(weights), NULL},
    {{"eval_data", "text", "held-out text for the validation loss, named as data are"}, TEXT,
        TEXT_AT(eval_data), NULL},
    {{"eval_every_steps", "count", "steps between validations; default a tenth of the run"}, COUNT,
        AT(eval_every_steps), 0, NULL},
    {{"eval_tokens", "count", "of each validation; default eight global batches"}, COUNT,
        AT(eval_tokens), 0, NULL},
    {{"data_bytes", "size", "bytes of data to upload before the run"}, BYTES, AT(data_bytes), 0,
        NULL},
    {{"weights_bytes", "size",
         "of weights to upload; default 2 bytes a parameter of local ones, else none"},
        BYTES, AT(weights_bytes), 0, NULL},
    {{"tokenising", "duration", "time to tokenise the data on the nodes; default 0"}, SECONDS,
        AT(tokenising_s), 0, NULL},
    {{"upload_bytes_per_second", "number", "rate of that upload; default 12.5e6 (100 Mbit/s)"},
        NUMBER, AT(upload_bytes_per_s), 0, NULL},
    {{"checkpoint_every", "duration",
         "time between checkpoints; default what wastes least time, at most 2h"},
        SECONDS, AT(checkpoint_every_s), 0, NULL},
    {{"store", "text", "where checkpoints live: local, local+partner or shared:PATH"}, TEXT,
        TEXT_AT(store), NULL},
    {{"training", "object", "of the optimizer, with the fields below"}, OTHER, 0, 0, read_training},
    {{NULL, NULL, NULL}, OTHER, 0, 0, NULL},
};

const struct job_field *job_field_at(int i)
{
    return &fields[i].doc;
}

static enum rc read_int(const struct field *f, const struct json *v, int64_t *out, struct err *e)
{
    if (json_is_int(v)) {
        int64_t x = json_as_int(v, -1);
        if (x < 0 || (f->kind == USD && x > INT64_MAX / USD_MICRO))
            return err_set(e, RC_INVALID, "it is out of range");
        *out = f->kind == USD ? x * USD_MICRO : x;
        return RC_OK;
    }
    if (json_is_num(v)) {
        double x = json_as_num(v, -1) * (f->kind == USD ? (double)USD_MICRO : 1);
        if (!(x >= 0 && x < 9e18) || (f->kind != USD && x != floor(x)))
            return err_set(e, RC_INVALID, "it must be a whole number that is not negative");
        *out = llround(x);
        return RC_OK;
    }
    const char *text = json_as_str(v, NULL);
    if (!text)
        return err_set(e, RC_INVALID, "it must be a %s", f->doc.form);
    if (f->kind == USD)
        return units_parse_usd(text, out, e);
    return f->kind == BYTES ? units_parse_bytes(text, out, e) : units_parse_count(text, out, e);
}

static enum rc read_number(const struct field *f, const struct json *v, double *out, struct err *e)
{
    if (json_is_str(v) && f->kind == SECONDS)
        return units_parse_seconds(json_as_str(v, ""), out, e);
    double x = json_as_num(v, NAN);
    if (!(x >= 0 && isfinite(x)))
        return err_set(e, RC_INVALID, "it must be a %s", f->doc.form);
    *out = x;
    return RC_OK;
}

static enum rc read_text(const struct field *f, const struct json *v, char *out, struct err *e)
{
    const char *text = json_as_str(v, NULL);
    if (!text)
        return err_set(e, RC_INVALID, "it must be a text");
    if (!str_copy(out, f->size, text))
        return err_set(e, RC_LIMIT, "it is longer than %zu bytes", f->size - 1);
    return RC_OK;
}

/* A single word, or an array of them, kept as "a,b". */
static enum rc read_list(const struct field *f, const struct json *v, char *out, struct err *e)
{
    if (json_is_str(v))
        return read_text(f, v, out, e);
    if (!json_is_arr(v))
        return err_set(e, RC_INVALID, "it must be an %s", f->doc.form);
    struct str all = STR_INIT;
    enum rc rc = RC_OK;
    for (size_t i = 0; i < json_len(v); i++) {
        const char *word = json_as_str(json_at(v, i), "");
        if (*word == '\0' || strchr(word, ','))
            rc = err_set(e, RC_INVALID, "each of it must be a word");
        str_addf(&all, "%s%s", i ? "," : "", word);
    }
    if (!rc && !str_copy(out, f->size, str_text(&all)))
        rc = err_set(e, RC_LIMIT, "it is longer than %zu bytes", f->size - 1);
    str_release(&all);
    return rc;
}

enum rc job_refuse_zero(const char *field, double value, struct err *e)
{
    static const struct {
        const char *field, *absent;
    } positive[] = {
        {"tokens", NULL},
        {"seq", "the default"},
        {"global_batch_tokens", "the default"},
        {"budget_usd", "no limit"},
        {"deadline", "no limit"},
        {"max_gpus", "no limit"},
        {"upload_bytes_per_second", "the default"},
        {"checkpoint_every", "the default"},
        {"lora", "training the whole model"},
        {"doc_tokens", "one text a sequence"},
        {"eval_every_steps", "the default"},
        {"eval_tokens", "the default"},
    };
    for (size_t i = 0; !(value > 0) && i < BASE_COUNT(positive); i++) {
        if (strcmp(positive[i].field, field) != 0)
            continue;
        if (!positive[i].absent)
            return err_set(e, RC_USAGE, "it must be more than 0");
        return err_set(
            e, RC_USAGE, "it must be more than 0; leave it out for %s", positive[i].absent);
    }
    return RC_OK;
}

static enum rc read_field(struct job *j, const struct field *f, const struct json *v, struct err *e)
{
    enum rc rc;
    void *member = (char *)j + f->offset;
    switch (f->kind) {
    case COUNT:
    case BYTES:
    case USD:
        rc = read_int(f, v, member, e);
        return rc ? rc : job_refuse_zero(f->doc.name, (double)*(int64_t *)member, e);
    case SECONDS:
    case NUMBER:
        rc = read_number(f, v, member, e);
        return rc ? rc : job_refuse_zero(f->doc.name, *(double *)member, e);
    case TEXT:
        return read_text(f, v, member, e);
    case LIST:
        return read_list(f, v, member, e);
    case OTHER:
        break;
    }
    return f->read(j, v, e);
}

static const struct field *find_field(const char *name)
{
    for (const struct field *f = fields; f->doc.name; f++)
        if (strcmp(f->doc.name, name) == 0)
            return f;
    return NULL;
}

static const char *nearest_field(const char *name)
{
    const char *best = NULL;
    int distance = (int)strlen(name) / 3 + 2;
    for (const struct field *f = fields; f->doc.name; f++) {
        int d = str_distance(name, f->doc.name);
        if (d < distance) {
            distance = d;
            best = f->doc.name;
        }
    }
    return best;
}

static enum rc unknown_field(const char *name, struct err *e)
{
    const char *near = nearest_field(name);
    if (near)
        return err_set(e, RC_INVALID, "a job has no field '%s'; did you mean '%s'?", name, near);
    return err_set(e, RC_INVALID, "a job has no field '%s' (berth help job lists them)", name);
}

enum rc job_read_json(struct job *j, const struct json *v, struct err *e)
{
    if (!json_is_obj(v))
        return err_set(e, RC_INVALID, "a job must be a JSON object");
    struct job read;
    job_copy(&read, j);
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    enum rc rc = RC_OK;
    while (!rc && json_next(v, &cursor, &key, &value)) {
        const struct field *f = find_field(key);
        if (strcmp(key, "schema") == 0 || (f && !json_get(v, key)))
            continue;
        rc = f ? read_field(&read, f, value, e) : unknown_field(key, e);
        if (rc && f)
            err_in(e, "job field '%s'", key);
    }
    if (rc) {
        job_release(&read);
        return rc;
    }
    job_release(j);
    *j = read;
    return RC_OK;
}

enum rc job_read_file(struct job *j, const char *path, struct err *e)
{
    struct json *v = NULL;
    enum rc rc = json_read(&v, path, JOB_MAX_BYTES, e);
    if (rc)
        return err_input(e, rc);
    rc = job_read_json(j, v, e);
    if (rc)
        err_in(e, "'%s'", path);
    json_free(v);
    return err_input(e, rc);
}

/* --- writing --- */

static void add_list(struct json *v, const char *key, const char *list)
{
    if (list[0] == '\0')
        return;
    struct json *arr = json_arr();
    for (const char *p = list; *p; p += *p == ',') {
        size_t n = strcspn(p, ",");
        char *word = base_strndup(p, n);
        json_push_str(arr, word);
        free(word);
        p += n;
    }
    json_add(v, key, arr);
}

static void add_field(struct json *v, const struct field *f, const struct job *j)
{
    const void *member = (const char *)j + f->offset;
    int64_t i = 0;
    double x = 0;
    if (f->kind == COUNT || f->kind == BYTES || f->kind == USD)
        i = *(const int64_t *)member;
    if (f->kind == SECONDS || f->kind == NUMBER)
        x = *(const double *)member;
    if (f->kind == USD && i > 0)
        json_add_num(v, f->doc.name, (double)i / (double)USD_MICRO);
    else if (i > 0)
        json_add_int(v, f->doc.name, i);
    else if (x > 0)
        json_add_num(v, f->doc.name, x);
    else if (f->kind == TEXT && *(const char *)member)
        json_add_str(v, f->doc.name, member);
    else if (f->kind == LIST)
        add_list(v, f->doc.name, member);
}

static void add_master(struct json *v, const struct job *j)
{
    struct strategy any = {.master_bytes = j->master_bytes};
    json_add_str(v, "master", strategy_master_name(&any));
}

static void add_other(struct json *v, const char *name, const struct job *j)
{
    if (strcmp(name, "model") == 0 && j->has_model)
        json_add(v, name, model_to_json(&j->model));
    else if (strcmp(name, "precision") == 0)
        json_add_str(v, name, precision_name(j->precision));
    else if (strcmp(name, "master") == 0 && j->master_bytes != MASTER_FP32)
        add_master(v, j);
    else if (strcmp(name, "gradients") == 0 && j->fp8_gradients)
        json_add_str(v, name, "fp8");
    else if (strcmp(name, "moments") == 0 && j->moment_form != MOMENT_FP32)
        json_add_str(v, name, moment_form_name(j->moment_form));
    else if (strcmp(name, "engine") == 0 && j->engine != ENGINE_BERTH)
        json_add_str(v, name, engine_name(j->engine));
    else if (strcmp(name, "objective") == 0)
        json_add_str(v, name, objective_name(j->objective));
    else if (strcmp(name, "spot") == 0)
        json_add_str(v, name, spot_name(j->spot));
    else if (strcmp(name, "data") == 0 && j->data[0])
        add_data(v, name, j->data);
    else if (strcmp(name, "data_kind") == 0 && j->data_kind != DATA_AUTO)
        json_add_str(v, name, data_kind_name(j->data_kind));
    else if (strcmp(name, "training") == 0 && j->training)
        json_add(v, name, json_clone(j->training));
    if (strcmp(name, "allow") != 0 || (!j->allow_fp32 && !j->allow_bf16 && !j->allow_fp8))
        return;
    struct json *words = json_arr();
    if (j->allow_fp32)
        json_push_str(words, precision_name(PRECISION_FP32));
    if (j->allow_bf16)
        json_push_str(words, precision_name(PRECISION_BF16));
    if (j->allow_fp8)
        json_push_str(words, precision_name(PRECISION_FP8));
    json_add(v, name, words);
}

struct json *job_to_json(const struct job *j)
{
    struct json *v = json_obj();
    for (const struct field *f = fields; f->doc.name; f++) {
        if (f->kind == OTHER)
            add_other(v, f->doc.name, j);
        else
            add_field(v, f, j);
    }
    return v;
}

/* --- finishing --- */

/* Batches of published runs by size: GPT-3 (arXiv 2005.14165, table 2.1) from 0.5M tokens at 125M
 * to 2M at 13B, Llama 2 4M (2307.09288); below that, toys. */
static int64_t default_batch_tokens(int64_t params)
{
    static const struct {
        int64_t below, tokens;
    } sizes[] = {
        {20000000, 16384},
        {100000000, 131072},
        {800000000, 524288},
        {3000000000, 1048576},
        {20000000000, 2097152},
    };
    for (size_t i = 0; i < BASE_COUNT(sizes); i++)
        if (params < sizes[i].below)
            return sizes[i].tokens;
    return 4194304;
}

static enum rc finish_seq(struct job *j, struct err *e)
{
    if (j->seq == 0) {
        j->seq = j->model.max_positions < 4096 ? j->model.max_positions : 4096;
        j->is_seq_assumed = true;
    }
    return model_check_seq(&j->model, j->seq, e);
}

static enum rc finish_batch(struct job *j, struct err *e)
{
    if (j->global_batch_tokens == 0) {
        int64_t wanted = default_batch_tokens(model_params(&j->model));
        int64_t sequences = wanted / j->seq;
        j->global_batch_tokens = (sequences > 0 ? sequences : 1) * j->seq;
        j->is_batch_assumed = true;
    }
    int64_t nearest = (j->global_batch_tokens + j->seq / 2) / j->seq * j->seq;
    if (j->global_batch_tokens % j->seq != 0)
        return err_set(e, RC_INVALID,
            "a global batch of %lld token%s is not a whole number of sequences of %lld tokens; the "
            "nearest is %lld",
            (long long)j->global_batch_tokens, j->global_batch_tokens == 1 ? "" : "s",
            (long long)j->seq, (long long)(nearest > 0 ? nearest : j->seq));
    if (job_step_sequences(j) > STRATEGY_MAX_ACCUM)
        return err_set(e, RC_INVALID,
            "a global batch of %lld sequences is too large; it may have up to %d",
            (long long)job_step_sequences(j), STRATEGY_MAX_ACCUM);
    return RC_OK;
}

static enum rc finish_precision(struct job *j, struct err *e)
{
    if (profile_of(j->engine)->is_bundled &&
        precision_parse_trainable(precision_name(j->precision), &j->precision, e))
        return e ? e->code : RC_USAGE;
    j->allow_fp32 = j->allow_fp32 || j->precision == PRECISION_FP32;
    j->allow_bf16 = j->allow_bf16 || j->precision == PRECISION_BF16;
    j->allow_fp8 = j->allow_fp8 || j->precision == PRECISION_FP8;
    bool is_bundled_fp8 = j->allow_fp8 && profile_of(j->engine)->is_bundled;
    return is_bundled_fp8 ? precision_check_model(PRECISION_FP8, &j->model, e) : RC_OK;
}

static const char *const sharding_gradients[] = {"zero2", "zero3", "hsdp", NULL};

static bool allows_any(const char *list, const char *const *words)
{
    while (*words && !job_allows(list, *words))
        words++;
    return *words != NULL;
}

/* Of other engines how weights and gradients are kept is their own. */
static enum rc check_kept(const struct job *j, struct err *e)
{
    struct strategy any = {.master_bytes = j->master_bytes};
    if (j->moment_form != MOMENT_FP32 && !profile_of(j->engine)->is_bundled)
        return err_set(
            e, RC_USAGE, "how engine %s keeps moments is its own affair", engine_name(j->engine));
    bool has_16bit = j->allow_bf16 || j->allow_fp8;
    if (j->fp8_gradients && !profile_of(j->engine)->is_bundled)
        return err_set(
            e, RC_USAGE, "how engine %s keeps gradients is its own affair", engine_name(j->engine));
    if (j->fp8_gradients && !allows_any(j->strategy, sharding_gradients))
        return err_set(e, RC_USAGE,
            "gradients wait in fp8 where they are sharded: with zero2, zero3 or hsdp, and the job "
            "allows none of them");
    if (j->master_bytes == MASTER_FP32 || (profile_of(j->engine)->is_bundled && has_16bit))
        return RC_OK;
    if (has_16bit)
        return err_set(
            e, RC_USAGE, "how engine %s keeps weights is its own affair", engine_name(j->engine));
    return err_set(e, RC_USAGE,
        "weights in fp32 are their own master copy: master '%s' is for bf16",
        strategy_master_name(&any));
}

enum rc job_check_documents(int64_t tokens, struct err *e)
{
    if (tokens <= STRATEGY_MAX_DOCUMENT)
        return RC_OK;
    return err_set(e, RC_INVALID, "documents of %lld tokens are too long; they may have up to %d",
        (long long)tokens, STRATEGY_MAX_DOCUMENT);
}

static enum rc check_packing(const struct job *j, struct err *e)
{
    struct data_sources sources;
    if (!j->data[0] || j->doc_tokens == 0)
        return RC_OK;
    enum rc rc = data_sources_parse(&sources, j->data, e);
    if (!rc)
        rc = data_sources_check_packing(&sources, j->doc_tokens, e);
    data_sources_release(&sources);
    return rc;
}

enum rc job_finish(struct job *j, struct err *e)
{
    if (!j->has_model)
        return err_set(e, RC_USAGE, "which model? give --model NAME, or a job file");
    enum rc rc = model_check(&j->model, e);
    if (!rc)
        rc = adapter_take(&j->model, &j->lora, e);
    if (!rc)
        rc = job_check_documents(j->doc_tokens, e);
    if (!rc)
        rc = check_packing(j, e);
    if (rc)
        return rc;
    if (j->tokens <= 0)
        return err_set(e, RC_USAGE, "train on how many tokens? give --tokens N, at least 1");
    if (j->tokens > max_tokens || j->global_batch_tokens > max_tokens)
        return err_set(e, RC_LIMIT, "more than 10^18 tokens cannot be planned");
    rc = finish_precision(j, e);
    if (!rc)
        rc = check_kept(j, e);
    if (!rc)
        rc = job_settle_lists(j, e);
    if (!rc)
        rc = finish_seq(j, e);
    if (!rc)
        rc = finish_batch(j, e);
    if (!rc && !j->eval_data[0] && (j->eval_every_steps > 0 || j->eval_tokens > 0))
        rc = err_set(e, RC_USAGE,
            "validate on what? eval_data says, eval_every_steps and "
            "eval_tokens only how often and how much");
    if (!rc && j->eval_tokens > max_tokens)
        rc = err_set(e, RC_LIMIT, "validations of more than 10^18 tokens cannot be planned");
    if (!rc)
        rc = training_from_json(&(struct training){0}, j->training, job_steps(j), e);
    if (!rc)
        rc = engine_check_optimizer(j->engine, job_optimizer(j), e);
    if (j->upload_bytes_per_s <= 0)
        j->upload_bytes_per_s = 12.5e6;
    return rc;
}

const char *job_stack(const struct job *j)
{
    return j->stack[0] ? j->stack : profile_of(j->engine)->stack;
}

enum optimizer job_optimizer(const struct job *j)
{
    return training_optimizer(j->training);
}

int64_t job_step_sequences(const struct job *j)
{
    return j->global_batch_tokens / j->seq;
}

int64_t job_steps(const struct job *j)
{
    return (j->tokens - 1) / j->global_batch_tokens + 1;
}

int64_t job_weights_bytes(const struct job *j)
{
    bool is_sent =
        j->weights[0] && !str_starts(j->weights, "host:") && !str_starts(j->weights, "shared:");
    if (j->weights_bytes > 0 || !is_sent)
        return j->weights_bytes;
    return 2 * model_params(&j->model); /* as they are published: 16 bits a parameter */
}

int64_t job_eval_every_steps(const struct job *j)
{
    int64_t tenth = job_steps(j) / 10;
    return j->eval_every_steps > 0 ? j->eval_every_steps : tenth > 0 ? tenth : 1;
}

int64_t job_eval_tokens(const struct job *j)
{
    return j->eval_tokens > 0 ? j->eval_tokens : 8 * j->global_batch_tokens;
}

int64_t job_evaluations(const struct job *j)
{
    int64_t steps = job_steps(j), every = job_eval_every_steps(j);
    return j->eval_data[0] ? (steps + every - 1) / every : 0;
}
