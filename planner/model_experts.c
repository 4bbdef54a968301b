/* Mixtures of experts, from config.json files and presets: for prediction.
 *
 * All blocks are alike here, so blocks without experts are spread over the others: parameters stay
 * exact, and so do the products of a token but for rounding. Routers, and experts that every token
 * passes through, count among the parameters of the experts. */
#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/model_experts.h"

static const struct {
    const char *type, *like; /* attention and all else are those of this type */
} types[] = {{"mixtral", "mistral"}, {"qwen2_moe", "qwen2"}, {"qwen3_moe", "qwen3"},
    {"deepseek", "llama"}, {"deepseek_v2", "llama"}, {"deepseek_v3", "llama"}};

const char *model_experts_like(const char *type)
{
    for (size_t i = 0; i < BASE_COUNT(types); i++)
        if (strcmp(types[i].type, type) == 0)
            return types[i].like;
    return NULL;
}

/* Named differently by everybody: the first one that is there, else the first one is missing. */
static enum rc need_any(
    const struct json *c, const char *const *names, size_t n, int64_t *out, struct err *e)
{
    size_t i = 0;
    while (i < n && !json_get(c, names[i]))
        i++;
    return json_need_int(c, names[i < n ? i : 0], 1, INT32_MAX, out, e);
}

static enum rc maybe(const struct json *c, const char *key, int64_t *out, struct err *e)
{
    return json_get(c, key) ? json_need_int(c, key, 0, INT32_MAX, out, e) : RC_OK;
}

static bool lists(const struct json *list, int64_t layer)
{
    for (size_t i = 0; i < json_len(list); i++)
        if (json_as_int(json_at(list, i), -1) == layer)
            return true;
    return false;
}

/* Blocks that have experts: all, those behind the first few, every so many, but for a list. */
static enum rc count_blocks(
    int64_t *out, const struct model *m, const struct json *c, struct err *e)
{
    int64_t first = 0, step = 1, every = 1;
    const struct json *without = json_get(c, "mlp_only_layers");
    enum rc rc = maybe(c, "first_k_dense_replace", &first, e);
    if (!rc)
        rc = maybe(c, "decoder_sparse_step", &step, e);
    if (!rc)
        rc = maybe(c, "moe_layer_freq", &every, e);
    if (rc)
        return rc;
    *out = 0;
    for (int64_t i = first; i < m->layers && step > 0 && every > 0; i++)
        *out += i % every == 0 && (i + 1) % step == 0 && !lists(without, i);
    if (*out == 0)
        return err_set(e, RC_INVALID,
            "no layer has experts by 'first_k_dense_replace', "
            "'decoder_sparse_step', 'moe_layer_freq' and "
            "'mlp_only_layers'");
    return RC_OK;
}

static enum rc read_shared(struct mixture *x, const struct json *c, struct err *e)
{
    int64_t n = 0;
    enum rc rc = maybe(c, "shared_expert_intermediate_size", &x->shared, e);
    x->has_shared_gate = x->shared > 0;
    if (!rc)
        rc = maybe(c, "n_shared_experts", &n, e);
    if (!rc && n > 0)
        x->shared = n * x->width;
    return rc;
}

enum rc model_read_experts(struct model *m, const struct json *c, struct err *e)
{
    static const char *const counts[] = {"num_local_experts", "num_experts", "n_routed_experts"};
    static const char *const widths[] = {"moe_intermediate_size", "intermediate_size"};
    static const char *const tops[] = {"num_experts_per_tok"};
    struct mixture x = {0};
    if (json_get(c, "kv_lora_rank"))
        return err_set(e, RC_INVALID,
            "'kv_lora_rank' is set: attention over compressed keys and values is not supported");
    enum rc rc = need_any(c, counts, BASE_COUNT(counts), &x.count, e);
    if (!rc)
        rc = need_any(c, tops, BASE_COUNT(tops), &x.top, e);
    if (!rc)
        rc = need_any(c, widths, BASE_COUNT(widths), &x.width, e);
    if (!rc)
        rc = read_shared(&x, c, e);
    if (!rc)
        rc = count_blocks(&x.blocks, m, c, e);
    return rc ? rc : model_set_experts(m, &x, e);
}

enum rc model_set_experts(struct model *m, const struct mixture *x, struct err *e)
{
    int64_t blocks = x->blocks > 0 ? x->blocks : m->layers, per_column = 3 * m->width;
    double rough = (double)m->layers * (double)per_column *
                   ((double)x->count * (double)x->width + (double)x->shared + (double)m->ffn);
    if (x->top > x->count)
        return err_set(e, RC_INVALID, "a token passes through %lld experts, but there are %lld",
            (long long)x->top, (long long)x->count);
    if (x->count > MODEL_MAX_EXPERTS)
        return err_set(e, RC_INVALID, "there are %lld experts; there may be up to %d",
            (long long)x->count, MODEL_MAX_EXPERTS);
    if (rough > 2e14)
        return err_set(e, RC_INVALID, "model '%s' has more than 200 trillion parameters", m->name);
    int64_t routers = m->width * (x->count + x->has_shared_gate);
    double share = (double)blocks / (double)m->layers, dense = (double)m->ffn * (1 - share);
    double stored = share * (double)(per_column * (x->count * x->width + x->shared) + routers);
    m->ffn = (int64_t)(share * (double)(x->top * x->width + x->shared) + dense + 1e-9);
    m->expert_params = (int64_t)llround(stored + dense * (double)per_column);
    m->expert_top = x->top;
    m->experts = x->count;
    return RC_OK;
}
