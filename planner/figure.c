#include "planner/figure.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "planner/adapter.h"
#include "planner/engine_memory.h"
#include "planner/explain.h"
#include "planner/layout.h"

/* --- terms --- */

struct term *terms_add(struct terms *t, const char *part, const char *what)
{
    BASE_GROW(t->all, t->cap, t->n + 1);
    t->all[t->n] = (struct term){.part = part, .what = what};
    return &t->all[t->n++];
}

void term_times(struct term *t, double value, const char *word)
{
    assert(t->n < FIGURE_FACTORS);
    t->factor[t->n++] = (struct factor){value, word};
}

void term_over(struct term *t, double value, const char *word)
{
    t->over = (struct factor){value, word};
    t->over_at = t->n;
}

double term_product(const struct term *t)
{
    double x = t->over.value > 0 ? 1 / t->over.value : 1;
    for (int i = 0; i < t->n; i++)
        x *= t->factor[i].value;
    return x;
}

void terms_release(struct terms *t)
{
    free(t->all);
    memset(t, 0, sizeof *t);
}

/* --- buffers of a schedule --- */

/* How the bytes of a buffer follow from the model. */
enum form {
    FORM_STATE, /* trained parameters of all units, whole or the own part: the part says which */
    FORM_WHOLE, /* of one unit */
    FORM_OWN,   /* the own part of one unit */
    FORM_TOKENS,
    FORM_FIXED
};

/* columns, a letter each: d width, f ffn, u what goes into the activation function, q heads of
 * queries, keys and values, h heads, e head dimension, v vocabulary, n numbers of a norm. */
struct kind {
    const char *name, *what;
    enum form form;
    const char *columns;
    int bytes; /* of an element; 0: as activations */
};

static const struct kind KINDS[] = {
    {"param", "as they are kept", FORM_STATE, "", 0},
    {"adapter", "adapters", FORM_STATE, "", 0},
    {"grad", "as they are kept", FORM_STATE, "", 0},
    {"master", "master copies", FORM_STATE, "", 0},
    {"low", "lower halves of master copies", FORM_STATE, "", 0},
    {"m", "first moments", FORM_STATE, "", 0},
    {"v", "second moments", FORM_STATE, "", 0},
    {"momentum", "momentum", FORM_STATE, "", 0},
    {"gathered", "gathered", FORM_WHOLE, "", 0},
    {"unit_grad", "before they are reduced", FORM_WHOLE, "", 0},
    {"shard_up", "copied up", FORM_OWN, "", 0},
    {"shard_grad", "reduced, on the way", FORM_OWN, "", 0},
    {"param_new", "updated, on the way down", FORM_OWN, "", 0},
    {"grad_down", "on the way to the optimizer", FORM_OWN, "", 0},
    {"param_up", "updated, on the way up", FORM_OWN, "", 0},
    {"embedded", "embedded tokens", FORM_TOKENS, "d", 0},
    {"norm1", "first norm", FORM_TOKENS, "d", 0},
    {"norm1_stats", "statistics of the first norm", FORM_TOKENS, "n", 4},
    {"qkv", "queries, keys and values", FORM_TOKENS, "qe", 0},
    {"qkv_raw", "queries, keys and values before their norms", FORM_TOKENS, "qe", 0},
    {"qk_stats", "statistics of those norms", FORM_TOKENS, "k", 4},
    {"attention", "attention", FORM_TOKENS, "he", 0},
    {"lse", "sums of attention scores", FORM_TOKENS, "h", 4},
    {"mid", "sum after attention", FORM_TOKENS, "d", 0},
    {"norm2", "second norm", FORM_TOKENS, "d", 0},
    {"norm2_stats", "statistics of the second norm", FORM_TOKENS, "n", 4},
    {"up", "into the activation function", FORM_TOKENS, "u", 0},
    {"up_half", "half of what goes into it", FORM_TOKENS, "f", 0},
    {"activated", "activation function", FORM_TOKENS, "f", 0},
    {"out", "block outputs", FORM_TOKENS, "d", 0},
    {"d_activated", "gradient of the activation function", FORM_TOKENS, "f", 0},
    {"d_up", "gradient of what goes into it", FORM_TOKENS, "u", 0},
    {"d_norm2", "gradient of the second norm", FORM_TOKENS, "d", 0},
    {"d_attention", "gradient of attention", FORM_TOKENS, "he", 0},
    {"d_qkv", "gradient of queries, keys and values", FORM_TOKENS, "qe", 0},
    {"d_lse", "scratch of attention", FORM_TOKENS, "h", 4},
    {"d_norm1", "gradient of the first norm", FORM_TOKENS, "d", 0},
    {"final_norm", "final norm", FORM_TOKENS, "d", 0},
    {"final_stats", "statistics of the final norm", FORM_TOKENS, "n", 4},
    {"d_final_norm", "gradient of the final norm", FORM_TOKENS, "d", 0},
    {"d_residual", "gradient of the residual stream", FORM_TOKENS, "d", 0},
    {"logits", "logits, then their gradient", FORM_TOKENS, "v", 0},
    {"tokens", "tokens", FORM_TOKENS, "", 4},
    {"targets", "targets", FORM_TOKENS, "", 4},
    {"rope", "table of rotary embeddings", FORM_FIXED, "", 0},
    {"workspace", "workspace of products and attention", FORM_FIXED, "", 0},
    {"reduce_scratch", "slices of collectives as they arrive", FORM_FIXED, "", 0},
    {"wire_param", "parameters on the way, in blocks", FORM_FIXED, "", 0},
    {"wire_grad", "gradients on the way, in blocks", FORM_FIXED, "", 0},
    {"wire_pieces", "gradients to sum, in blocks", FORM_FIXED, "", 0},
    {"scalars", "sums of a step", FORM_FIXED, "", 0},
    {"x_fp8", "operands of a product in fp8", FORM_FIXED, "", 0},
    {"xt_fp8", "the same, turned", FORM_FIXED, "", 0},
    {"w_fp8", "weights of a product in fp8", FORM_FIXED, "", 0},
    {"weight_amax", "largest magnitudes of weights", FORM_FIXED, "", 0},
    {"grad_amax", "largest magnitudes of gradients", FORM_FIXED, "", 0},
};

static const struct kind *kind_of(const struct buffer *b)
{
    static const struct kind other = {"", "other", FORM_FIXED, "", 0};
    size_t n = strcspn(b->name, ".");
    for (size_t i = 0; i < BASE_COUNT(KINDS); i++)
        if (strlen(KINDS[i].name) == n && strncmp(KINDS[i].name, b->name, n) == 0)
            return &KINDS[i];
    return &other;
}

/* Equal buffers of the same kind, live together. */
struct pile {
    const struct kind *kind;
    const struct buffer *first;
    int64_t count, bytes;
};

static const char *unit_word(const struct schedule *s, int unit, int64_t count)
{
    if (unit == 0)
        return "embedding";
    if (unit == s->n_units - 1)
        return "head";
    return count == 1 ? "block" : "blocks";
}

/* Units of one pile have the same word; states of all units are one. */
static bool goes_on(
    const struct schedule *s, const struct pile *p, const struct kind *k, const struct buffer *b)
{
    if (p->kind != k || p->first->part != b->part)
        return false;
    if (k->form == FORM_STATE)
        return true;
    if (k->form == FORM_WHOLE || k->form == FORM_OWN)
        return strcmp(unit_word(s, p->first->unit, 2), unit_word(s, b->unit, 2)) == 0;
    return p->first->bytes == b->bytes;
}

struct piles {
    struct pile *all;
    size_t n, cap;
};

static void add_to_piles(struct piles *p, const struct schedule *s, const struct buffer *b)
{
    const struct kind *k = kind_of(b);
    size_t i = 0;
    while (i < p->n && !goes_on(s, &p->all[i], k, b))
        i++;
    if (i == p->n) {
        BASE_GROW(p->all, p->cap, p->n + 1);
        p->all[p->n++] = (struct pile){.kind = k, .first = b};
    }
    p->all[i].count++;
    p->all[i].bytes += b->bytes;
}

static int section_at(const struct schedule *s, int32_t op)
{
    for (int i = 0; i < s->n_sections; i++)
        if (op >= s->section[i].first_op && op < s->section[i].first_op + s->section[i].n_ops)
            return i;
    return -1;
}

static void find_piles(struct piles *p, const struct schedule *s, enum memory memory)
{
    int32_t op = layout_peak(s, memory).op;
    int section = section_at(s, op);
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        bool is_live = b->lifetime == LIFETIME_RUN ||
                       (b->section == section && b->first_op <= op && op <= b->last_op);
        if (b->memory == memory && is_live)
            add_to_piles(p, s, b);
    }
}

/* --- their products --- */

static int64_t shards_of_part(const struct schedule *s, enum part part)
{
    const struct strategy *st = &s->strategy;
    return part == PART_PARAMETERS  ? strategy_parameter_shards(st)
           : part == PART_GRADIENTS ? strategy_gradient_shards(st)
                                    : strategy_optimizer_shards(st);
}

/* Of a unit, or of all from first to last together. */
static struct trained_unit trained_units(const struct schedule *s, int first, int last)
{
    struct trained_unit sum = {0};
    for (int u = first; u <= last; u++) {
        struct trained_unit t = model_trained_unit(&s->model, u, &s->unit[u], s->shards);
        sum.params += t.params;
        sum.elems += t.elems;
        sum.shard_elems += t.shard_elems;
    }
    return sum;
}

/* Bytes of an element follow from the buffer, which may hold the whole or the own part. */
static void multiply_params(
    struct term *t, struct trained_unit u, int64_t shards, int64_t bytes, const char *word)
{
    int64_t elems = shards > 1 ? u.shard_elems : u.elems;
    term_times(t, (double)u.params, word);
    if (shards > 1)
        term_over(t, (double)shards, "ranks");
    /* whole but for scales beside codes */
    double each = elems > 0 ? (double)bytes / (double)elems : 0;
    term_times(t, fabs(each - round(each)) < 0.02 ? round(each) : each, "bytes");
}

static void multiply_states(struct term *t, const struct schedule *s, const struct pile *p)
{
    struct trained_unit all = trained_units(s, 0, s->n_units - 1);
    multiply_params(t, all, shards_of_part(s, (enum part)p->first->part), p->bytes, "parameters");
}

static void multiply_unit(struct term *t, const struct schedule *s, const struct pile *p)
{
    int unit = p->first->unit;
    struct trained_unit u = trained_units(s, unit, unit);
    int64_t shards = p->kind->form == FORM_OWN ? s->shards : 1;
    term_times(t, (double)p->count, unit_word(s, unit, p->count));
    multiply_params(t, u, shards, p->bytes / p->count, "parameters");
}

static void multiply_column(struct term *t, const struct model *m, char column)
{
    bool is_gated = m->family == MODEL_LLAMA && !m->has_plain_mlp;
    const struct {
        char letter;
        int64_t n;
        const char *word;
    } all[] = {{'d', m->width, "width"}, {'f', m->ffn, "ffn"},
        {'u', m->ffn * (is_gated ? 2 : 1), is_gated ? "gate and up" : "ffn"},
        {'q', m->heads + 2 * m->kv_heads, "heads"}, {'h', m->heads, "heads"},
        {'k', m->heads + m->kv_heads, "heads"}, {'e', m->head_dim, "dimensions"},
        {'v', m->vocab, "vocabulary"}, {'n', m->family == MODEL_GPT2 ? 2 : 1, "numbers"}};
    for (size_t i = 0; i < BASE_COUNT(all); i++)
        if (all[i].letter == column)
            term_times(t, (double)all[i].n, all[i].word);
}

static void multiply_tokens(struct term *t, const struct schedule *s, const struct pile *p)
{
    const struct strategy *st = &s->strategy;
    int64_t tokens = st->seq * st->micro_batch, chunks = st->loss_chunks;
    if (p->first->part == PART_LOGITS)
        tokens = (tokens + chunks - 1) / chunks;
    if (p->first->unit >= 0 && p->count > 1)
        term_times(t, (double)p->count, unit_word(s, p->first->unit, p->count));
    else if (p->count > 1)
        term_times(t, (double)p->count, "times");
    term_times(t, (double)tokens, "tokens");
    for (const char *c = p->kind->columns; *c; c++)
        multiply_column(t, &s->model, *c);
    term_times(
        t, p->kind->bytes ? p->kind->bytes : (double)precision_bytes(st->precision), "bytes");
}

/* Sizes that the schedule sets, or that no product here describes. */
static void multiply_bytes(struct term *t, const struct pile *p)
{
    t->n = 0;
    t->over.value = 0;
    if (p->count > 1)
        term_times(t, (double)p->count, "buffers");
    term_times(t, (double)p->bytes / (double)p->count, "bytes");
}

/* A product that is not nearly what is there does not describe it. */
static bool describes(const struct term *t)
{
    double x = term_product(t);
    return x <= t->total * (1 + 1e-9) && x >= t->total / 2;
}

static void add_pile(struct terms *out, const struct schedule *s, const struct pile *p)
{
    static void (*const multiply[])(struct term *, const struct schedule *, const struct pile *) = {
        [FORM_STATE] = multiply_states,
        [FORM_WHOLE] = multiply_unit,
        [FORM_OWN] = multiply_unit,
        [FORM_TOKENS] = multiply_tokens,
    };
    struct term *t = terms_add(out, part_name((enum part)p->first->part), p->kind->what);
    t->total = (double)p->bytes;
    if (p->kind->form != FORM_FIXED)
        multiply[p->kind->form](t, s, p);
    if (p->kind->form == FORM_FIXED || !describes(t))
        multiply_bytes(t, p);
}

enum rc figure_memory(struct terms *out, const struct model *m, const struct strategy *s,
    enum memory memory, struct err *e)
{
    struct schedule *list = NULL;
    struct piles piles = {0};
    if (memory == MEMORY_DEVICE && !profile_of(s->engine)->is_bundled) {
        engine_memory_terms(out, m, s);
        return RC_OK;
    }
    enum rc rc = schedule_build(&list, m, s, e);
    if (rc)
        return rc;
    find_piles(&piles, list, memory);
    for (size_t i = 0; i < piles.n; i++)
        add_pile(out, list, &piles.all[i]);
    free(piles.all);
    schedule_free(list);
    return RC_OK;
}

/* --- work --- */

/* What decides the seconds of a class. */
static bool counts_flops(enum work w)
{
    return w == WORK_PRODUCTS || w == WORK_ATTENTION;
}

enum rc figure_work(struct terms *out, const struct model *m, const struct strategy *s,
    const double work_s[WORK_COUNT], struct err *e)
{
    struct schedule *list = NULL;
    double amount[WORK_COUNT] = {0}, ops[WORK_COUNT] = {0};
    enum rc rc = schedule_build(&list, m, s, e);
    if (rc)
        return rc;
    for (int i = 0; i < list->n_sections; i++) {
        const struct section *sec = &list->section[i];
        for (int32_t k = sec->first_op; k < sec->first_op + sec->n_ops; k++) {
            const struct op *op = &list->ops[k];
            enum work w = op_work((enum op_kind)op->kind);
            amount[w] += (counts_flops(w) ? op->flops : op->bytes) * (double)sec->repeat;
            ops[w] += (double)sec->repeat;
        }
    }
    schedule_free(list);
    for (int w = 0; w < WORK_COUNT; w++) {
        if (!(work_s[w] > 0 && amount[w] > 0))
            continue;
        struct term *t = terms_add(out, work_name((enum work)w), "of a rank");
        term_times(t, ops[w], "operations");
        term_times(t, amount[w] / ops[w], counts_flops((enum work)w) ? "flop" : "bytes");
        term_over(t, amount[w] / work_s[w],
            counts_flops((enum work)w) ? "flop/s reached" : "bytes/s reached");
        t->total = work_s[w];
    }
    return RC_OK;
}

/* --- in words --- */

/* Whole numbers in full up to where they are no longer read. */
static void add_number(struct str *out, double x)
{
    if (x == floor(x) && x < 1e12)
        str_addf(out, "%.0f", x);
    else
        str_addf(out, "%.4g", x);
}

static void add_factor(struct str *out, const struct factor *f)
{
    add_number(out, f->value);
    str_addf(out, " %s", f->word);
}

static void describe_term(struct str *out, const struct term *t)
{
    struct str line = STR_INIT;
    str_addf(&line, "%s:", t->what);
    for (int i = 0; i < t->n; i++) {
        str_addf(&line, i ? " x " : " ");
        add_factor(&line, &t->factor[i]);
        if (t->over.value > 0 && i == t->over_at - 1) {
            str_addf(&line, " / ");
            add_factor(&line, &t->over);
        }
    }
    if (term_product(t) < 0.995 * t->total)
        str_addf(&line, ", padded");
    explain_wrapped(out, 4, str_text(&line));
    str_release(&line);
}

void terms_describe(struct str *out, const struct terms *t, const char *part)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->all[i].part, part) == 0)
            describe_term(out, &t->all[i]);
}

static struct json *factor_json(const struct factor *f)
{
    struct json *v = json_obj();
    json_add_num(v, "value", f->value);
    json_add_str(v, "of", f->word);
    return v;
}

struct json *terms_json(const struct terms *t)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < t->n; i++) {
        const struct term *x = &t->all[i];
        struct json *v = json_obj(), *factors = json_arr();
        json_add_str(v, "part", x->part);
        json_add_str(v, "what", x->what);
        for (int k = 0; k < x->n; k++)
            json_push(factors, factor_json(&x->factor[k]));
        json_add(v, "factors", factors);
        json_add(v, "divided_by", x->over.value > 0 ? factor_json(&x->over) : NULL);
        json_add_num(v, "padding", fmax(0, x->total - term_product(x)));
        json_add_num(v, "total", x->total);
        json_push(list, v);
    }
    return list;
}
