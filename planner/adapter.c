#include "planner/adapter.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"

enum { QUANT_BLOCK = 64, QUANT_SUPER_BLOCK = 256, MAX_TARGET_TEXT = 128 };

/* --- words --- */

static const struct {
    const char *word;
    unsigned targets;
} words[] = {{"all", ADAPT_ALL}, {"attention", ADAPT_ATTENTION}, {"mlp", ADAPT_MLP}, {"q", ADAPT_Q},
    {"k", ADAPT_K}, {"v", ADAPT_V}, {"o", ADAPT_O}, {"gate", ADAPT_GATE}, {"up", ADAPT_UP},
    {"down", ADAPT_DOWN}};

static unsigned find_word(const char *word, size_t n)
{
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        if (strlen(words[i].word) == n && strncmp(words[i].word, word, n) == 0)
            return words[i].targets;
    return 0;
}

enum rc adapter_targets_parse(const char *text, unsigned *targets, struct err *e)
{
    unsigned all = 0;
    const char *p = text;
    do {
        size_t n = strcspn(p, ",");
        unsigned one = find_word(p, n);
        if (one == 0)
            return err_set(e, RC_USAGE,
                "no matrices '%.*s' to adapt; there are all, attention, mlp, or a list of q, k, v, "
                "o, gate, up, down",
                n < MAX_TARGET_TEXT ? (int)n : MAX_TARGET_TEXT, p);
        all |= one;
        p += n;
    } while (*p++ == ',');
    *targets = all;
    return RC_OK;
}

void adapter_targets_text(struct str *out, unsigned targets)
{
    bool is_first = true;
    for (size_t i = 0; i < BASE_COUNT(words) && targets; i++) {
        if ((targets & words[i].targets) != words[i].targets)
            continue;
        str_addf(out, "%s%s", is_first ? "" : ",", words[i].word);
        targets &= ~words[i].targets;
        is_first = false;
    }
}

/* --- checks --- */

enum rc adapter_take(struct model *m, const struct adapter *a, struct err *e)
{
    if (a->rank == 0 && (a->targets || a->base_bits) && m->adapter.rank == 0)
        return err_set(e, RC_USAGE,
            "%s are of adapters; give their rank too (--lora RANK, 'lora' in a job file)",
            a->targets ? "targets" : "bits of a frozen model");
    if (a->rank > 0)
        m->adapter.rank = a->rank;
    if (m->adapter.rank == 0)
        return RC_OK;
    if (a->targets || m->adapter.targets == 0)
        m->adapter.targets = a->targets ? a->targets : ADAPT_ALL;
    if (a->base_bits || m->adapter.base_bits == 0)
        m->adapter.base_bits = a->base_bits ? a->base_bits : 16;
    return adapter_check(m, e);
}

enum rc adapter_check(const struct model *m, struct err *e)
{
    const struct adapter *a = &m->adapter;
    if (a->rank == 0)
        return RC_OK;
    if (a->rank < 1 || a->rank > m->width)
        return err_set(e, RC_INVALID,
            "adapters of rank %lld; it must lie in 1 to %lld, the width of model '%s'",
            (long long)a->rank, (long long)m->width, m->name);
    if (a->base_bits != 16 && a->base_bits != 8 && a->base_bits != 4)
        return err_set(
            e, RC_INVALID, "a frozen model in %d bits; there are 16, 8 and 4", a->base_bits);
    if ((a->targets & ADAPT_ALL) == 0 || (a->targets & ~(unsigned)ADAPT_ALL))
        return err_set(e, RC_INVALID, "adapters of no known matrices");
    if (m->expert_params > 0 && (a->targets & ADAPT_MLP))
        return err_set(e, RC_INVALID, "adapters of experts are not modelled; adapt attention only");
    struct unit_layout block;
    model_unit_layout(m, 1, 1, &block);
    if (model_adapter_count(m, &block) == 0)
        return err_set(e, RC_INVALID, "model '%s' has no gate to adapt", m->name);
    return RC_OK;
}

/* --- what is adapted --- */

bool model_adapts(const struct model *m, enum tensor_role role)
{
    static const unsigned bits[T_ROLE_COUNT] = {[T_Q_W] = ADAPT_Q,
        [T_K_W] = ADAPT_K,
        [T_V_W] = ADAPT_V,
        [T_O_W] = ADAPT_O,
        [T_GATE_W] = ADAPT_GATE,
        [T_UP_W] = ADAPT_UP,
        [T_DOWN_W] = ADAPT_DOWN};
    return m->adapter.rank > 0 && (m->adapter.targets & bits[role]) != 0;
}

int model_adapter_index(
    const struct model *m, const struct unit_layout *block, enum tensor_role role)
{
    int n = 0;
    for (int i = 0; i < block->n && block->tensor[i].role != role; i++)
        n += model_adapts(m, block->tensor[i].role);
    return n;
}

int model_adapter_count(const struct model *m, const struct unit_layout *block)
{
    return model_adapter_index(m, block, T_ROLE_COUNT);
}

/* --- sizes --- */

static bool is_block(const struct model *m, int unit)
{
    return unit > 0 && unit <= m->layers;
}

struct trained_unit model_trained_unit(
    const struct model *m, int unit, const struct unit_layout *u, int64_t shards)
{
    if (m->adapter.rank == 0)
        return (struct trained_unit){u->params, u->elems, u->shard_elems};
    struct trained_unit out = {0, 0, 0};
    for (int i = 0; is_block(m, unit) && i < u->n; i++)
        if (model_adapts(m, u->tensor[i].role))
            out.params += m->adapter.rank * (u->tensor[i].rows + u->tensor[i].cols);
    out.elems = (int64_t)base_align_up((uint64_t)out.params, (uint64_t)shards * MODEL_ALIGN);
    out.shard_elems = out.elems / shards;
    return out;
}

struct trained_unit model_split_unit(
    const struct model *m, int unit, int64_t shards, int64_t parts, struct unit_layout *u)
{
    model_unit_layout(m, unit, parts, u);
    struct trained_unit t = model_trained_unit(m, unit, u, parts);
    u->shard_elems = u->elems / shards;
    t.shard_elems = t.elems / shards;
    return t;
}

double adapter_base_bytes(const struct adapter *a, int64_t element)
{
    if (a->base_bits >= 16)
        return (double)element;
    return a->base_bits / 8.0 + 1.0 / QUANT_BLOCK + 4.0 / (QUANT_BLOCK * QUANT_SUPER_BLOCK);
}

bool model_is_quantised(const struct model *m, int unit)
{
    return m->adapter.rank > 0 && m->adapter.base_bits < 16 && is_block(m, unit);
}

struct frozen_unit model_frozen_unit(
    const struct model *m, int unit, const struct unit_layout *u, int64_t element)
{
    if (m->adapter.rank == 0)
        return (struct frozen_unit){0, 0};
    if (!model_is_quantised(m, unit))
        return (struct frozen_unit){u->elems * element, u->shard_elems * element};
    int64_t vectors = 0;
    for (int i = 0; i < u->n; i++)
        vectors += u->tensor[i].is_vector ? u->tensor[i].rows : 0;
    double bytes = (double)(u->elems - vectors) * adapter_base_bytes(&m->adapter, element) +
                   (double)(vectors * element);
    double share = (double)u->shard_elems / (double)u->elems;
    return (struct frozen_unit){(int64_t)ceil(bytes), (int64_t)ceil(bytes * share)};
}

int64_t model_trained_params(const struct model *m)
{
    if (m->adapter.rank == 0)
        return model_params(m);
    struct unit_layout block;
    model_unit_layout(m, 1, 1, &block);
    return m->layers * model_trained_unit(m, 1, &block, 1).params;
}
