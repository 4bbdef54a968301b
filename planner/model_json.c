/* A model as an object of job files and plans: its dimensions, and nothing that is not known. */
#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "planner/adapter.h"

static const char *const family_names[] = {"llama", "gpt2", NULL};
static const char *const rope_names[] = {"none", "linear", "llama3", NULL};

/* A field: how it is read, where it goes, and for which models it is written. */
struct field {
    struct model_field doc;
    enum { NAME, FAMILY, DIMENSION, FLAG, NUMBER, COUNT, ROPE, TARGETS, BITS } kind;
    size_t offset;
    enum { ALWAYS, OF_LLAMA, OF_SCALED, OF_LLAMA3, OF_EXPERTS, OF_ADAPTED } when;
};

#define AT(member) offsetof(struct model, member)
static const struct field fields[] = {
    {{"name", "text", "what reports call it; default unnamed"}, NAME, 0, ALWAYS},
    {{"family", "llama or gpt2", "must be there"}, FAMILY, AT(family), ALWAYS},
    {{"layers", "count", "blocks; must be there, as all counts up to max_positions"}, DIMENSION,
        AT(layers), ALWAYS},
    {{"width", "count", "of the hidden state"}, DIMENSION, AT(width), ALWAYS},
    {{"heads", "count", "attention heads"}, DIMENSION, AT(heads), ALWAYS},
    {{"kv_heads", "count", "heads of keys and values; divides heads"}, DIMENSION, AT(kv_heads),
        ALWAYS},
    {{"head_dim", "count", "width of a head"}, DIMENSION, AT(head_dim), ALWAYS},
    {{"ffn", "count", "width inside the MLP"}, DIMENSION, AT(ffn), ALWAYS},
    {{"vocab", "count", "tokens there are"}, DIMENSION, AT(vocab), ALWAYS},
    {{"max_positions", "count", "longest sequence"}, DIMENSION, AT(max_positions), ALWAYS},
    {{"is_tied", "true or false", "the output matrix is the embedding; default false"}, FLAG,
        AT(is_tied), ALWAYS},
    {{"has_qkv_bias", "true or false", "biases of queries, keys and values; default false"}, FLAG,
        AT(has_qkv_bias), ALWAYS},
    {{"has_qk_norm", "true or false", "norms of queries and keys; default false"}, FLAG,
        AT(has_qk_norm), ALWAYS},
    {{"norm_eps", "number", "default 1e-5"}, NUMBER, AT(norm_eps), ALWAYS},
    {{"rope_theta", "number", "base of the rotary embedding; default 10000"}, NUMBER,
        AT(rope_theta), OF_LLAMA},
    {{"rope_scaling", "none, linear or llama3", "default none"}, ROPE, AT(rope), OF_LLAMA},
    {{"rope_factor", "number", "with linear and llama3"}, NUMBER, AT(rope_factor), OF_SCALED},
    {{"rope_low_freq", "number", "with llama3"}, NUMBER, AT(rope_low_freq), OF_LLAMA3},
    {{"rope_high_freq", "number", "with llama3"}, NUMBER, AT(rope_high_freq), OF_LLAMA3},
    {{"rope_original_positions", "count", "with llama3"}, COUNT, AT(rope_original_positions),
        OF_LLAMA3},
    {{"experts", "count", "routed experts of a block; default none, which is a dense model"}, COUNT,
        AT(experts), OF_EXPERTS},
    {{"experts_of_a_token", "count",
         "with experts: that a token passes through; ffn is their width "
         "together"},
        COUNT, AT(expert_top), OF_EXPERTS},
    {{"expert_params", "count", "with experts: parameters of all of a block, and of its router"},
        COUNT, AT(expert_params), OF_EXPERTS},
    {{"lora", "count", "rank of adapters that are trained while all else is frozen"}, COUNT,
        AT(adapter.rank), OF_ADAPTED},
    {{"lora_targets", "text", "matrices they stand beside; default all"}, TARGETS,
        AT(adapter.targets), OF_ADAPTED},
    {{"base_bits", "16, 8 or 4", "of frozen matrices of blocks; default 16"}, BITS,
        AT(adapter.base_bits), OF_ADAPTED},
    {{NULL, NULL, NULL}, NAME, 0, ALWAYS},
};

const struct model_field *model_field_at(int i)
{
    return &fields[i].doc;
}

/* --- writing --- */

static bool is_written(const struct field *f, const struct model *m)
{
    return f->when == ALWAYS || (f->when == OF_LLAMA && m->family == MODEL_LLAMA) ||
           (f->when == OF_SCALED && m->rope != ROPE_PLAIN) ||
           (f->when == OF_LLAMA3 && m->rope == ROPE_LLAMA3) ||
           (f->when == OF_EXPERTS && m->experts > 0) ||
           (f->when == OF_ADAPTED && m->adapter.rank > 0);
}

static void add_targets(struct json *v, const char *name, unsigned targets)
{
    struct str text = STR_INIT;
    adapter_targets_text(&text, targets);
    json_add_str(v, name, str_text(&text));
    str_release(&text);
}

static void add_field(struct json *v, const struct field *f, const struct model *m)
{
    const void *member = (const char *)m + f->offset;
    switch (f->kind) {
    case NAME:
        json_add_str(v, f->doc.name, m->name);
        break;
    case FAMILY:
        json_add_str(v, f->doc.name, family_names[m->family]);
        break;
    case ROPE:
        json_add_str(v, f->doc.name, rope_names[m->rope]);
        break;
    case FLAG:
        json_add_bool(v, f->doc.name, *(const bool *)member);
        break;
    case NUMBER:
        json_add_num(v, f->doc.name, *(const double *)member);
        break;
    case DIMENSION:
    case COUNT:
        json_add_int(v, f->doc.name, *(const int64_t *)member);
        break;
    case TARGETS:
        add_targets(v, f->doc.name, *(const unsigned *)member);
        break;
    case BITS:
        json_add_int(v, f->doc.name, *(const int *)member);
        break;
    }
}

struct json *model_to_json(const struct model *m)
{
    struct json *v = json_obj();
    for (const struct field *f = fields; f->doc.name; f++)
        if (is_written(f, m))
            add_field(v, f, m);
    return v;
}

static bool is_free_to_differ(const struct field *f, const struct model *m)
{
    return f->kind == NAME || (f->offset == AT(max_positions) && m->family == MODEL_LLAMA);
}

static char *field_text(const struct field *f, const struct model *m)
{
    struct json *v = json_obj();
    add_field(v, f, m);
    char *text = json_print(json_get(v, f->doc.name), false);
    json_free(v);
    return text;
}

bool model_differs(const struct model *theirs, const struct model *ours, char how[MODEL_DIFFERENCE])
{
    for (const struct field *f = fields; f->doc.name; f++) {
        if (is_free_to_differ(f, ours) || !(is_written(f, theirs) || is_written(f, ours)))
            continue;
        char *a = field_text(f, theirs), *b = field_text(f, ours);
        bool is_same = strcmp(a, b) == 0;
        snprintf(how, MODEL_DIFFERENCE, "%s is %.40s, not %.40s", f->doc.name, a, b);
        free(a);
        free(b);
        if (!is_same)
            return true;
    }
    return false;
}

/* --- reading --- */

/* Index of a word in a table, -1 when it is not there. */
static int find_word(const char *const *words, const char *word)
{
    for (int i = 0; words[i]; i++)
        if (strcmp(words[i], word) == 0)
            return i;
    return -1;
}

/* It goes into scripts, reports and onto terminals. */
static void set_name(struct model *m, const char *name)
{
    char *safe = text_safe(name);
    str_copy(m->name, sizeof m->name, safe);
    free(safe);
}

static enum rc read_field(
    struct model *m, const struct field *f, const struct json *v, struct err *e)
{
    void *member = (char *)m + f->offset;
    int word = -1;
    bool is_good = false;
    switch (f->kind) {
    case NAME:
        is_good = json_is_str(v);
        set_name(m, json_as_str(v, ""));
        break;
    case FAMILY:
        word = find_word(family_names, json_as_str(v, ""));
        is_good = word >= 0;
        m->family = is_good ? (enum model_family)word : MODEL_LLAMA;
        break;
    case ROPE:
        word = find_word(rope_names, json_as_str(v, ""));
        is_good = word >= 0;
        m->rope = is_good ? (enum rope_scaling)word : ROPE_PLAIN;
        break;
    case FLAG:
        is_good = json_is_bool(v);
        *(bool *)member = json_as_bool(v, false);
        break;
    case NUMBER:
        is_good = json_is_num(v);
        *(double *)member = json_as_num(v, 0);
        break;
    case DIMENSION:
    case COUNT:
        *(int64_t *)member = json_as_int(v, -1);
        is_good = *(int64_t *)member >= 1;
        break;
    case TARGETS:
        return adapter_targets_parse(json_as_str(v, ""), member, e);
    case BITS:
        *(int *)member = (int)json_as_int(v, 0);
        is_good = json_as_int(v, 0) == 16 || json_as_int(v, 0) == 8 || json_as_int(v, 0) == 4;
        break;
    }
    return is_good ? RC_OK
                   : err_set(e, RC_INVALID, "'%s' must be given as %s", f->doc.name, f->doc.form);
}

static enum rc unknown_field(const char *name, struct err *e)
{
    const char *near = NULL;
    int distance = (int)strlen(name) / 3 + 2;
    for (const struct field *f = fields; f->doc.name; f++) {
        int d = str_distance(name, f->doc.name);
        if (d < distance) {
            distance = d;
            near = f->doc.name;
        }
    }
    if (near)
        return err_set(e, RC_INVALID, "there is no field '%s'; did you mean '%s'?", name, near);
    return err_set(e, RC_INVALID, "there is no field '%s' (berth help job lists them)", name);
}

static enum rc read_fields(struct model *m, const struct json *v, struct err *e)
{
    void *cursor = NULL;
    const char *name;
    const struct json *value;
    for (const struct field *f = fields; f->doc.name; f++)
        if ((f->kind == DIMENSION || f->kind == FAMILY) && !json_get(v, f->doc.name))
            return err_set(e, RC_INVALID, "field '%s' is missing, %s", f->doc.name,
                f->kind == FAMILY ? "llama or gpt2" : "a count");
    while (json_next(v, &cursor, &name, &value)) {
        const struct field *f = fields;
        while (f->doc.name && strcmp(f->doc.name, name) != 0)
            f++;
        if (f->doc.name && !json_get(v, name))
            continue; /* null: not said */
        enum rc rc = f->doc.name ? read_field(m, f, value, e) : unknown_field(name, e);
        if (rc)
            return rc;
    }
    return RC_OK;
}

enum rc model_from_json(struct model *out, const struct json *v, struct err *e)
{
    struct model m = {
        .name = "unnamed", .norm_eps = 1e-5, .adapter = {.targets = ADAPT_ALL, .base_bits = 16}};
    bool is_llama = strcmp(json_str(v, "family", ""), family_names[MODEL_LLAMA]) == 0;
    m.rope_theta = is_llama ? 1e4 : 0;
    if (read_fields(&m, v, e))
        return err_in(e, "model '%s'", json_str(v, "name", "unnamed"));
    if (m.adapter.rank == 0)
        m.adapter = (struct adapter){0};
    enum rc rc = model_check(&m, e);
    if (!rc)
        *out = m;
    return rc;
}
