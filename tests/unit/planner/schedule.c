/* The schedule judged by independent means: brute-force happens-before, closed forms of volumes and
 * memory (Rajbhandari et al., ZeRO), and a serial replay of what each operation may read. */
#include "planner/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "planner/layout.h"

static struct schedule *make(
    const char *model, enum strategy_kind kind, int64_t ranks, const struct strategy *change)
{
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(model_find(&m, model, &e), RC_OK);
    struct strategy s = change ? *change : strategy_default(kind, ranks, ranks);
    s.kind = kind;
    s.ranks = ranks;
    if (!change) {
        s.seq = 64;
        s.micro_batch = 2;
        s.grad_accum = 3;
    }
    struct schedule *out = NULL;
    if (schedule_make(&out, &m, &s, &e))
        fail_msg("%s", e.msg);
    return out;
}

/* Reachability in one section, by following lanes and waits backwards; n^2 bits, small models. */
struct order {
    int n, first;
    unsigned char *before; /* before[i * n + j]: j happens before i */
};

static struct order order_of(const struct schedule *s, const struct section *sec)
{
    struct order o = {sec->n_ops, sec->first_op, NULL};
    o.before = calloc((size_t)o.n * (size_t)o.n, 1);
    for (int i = 0; i < o.n; i++) {
        unsigned char *row = &o.before[(size_t)i * (size_t)o.n];
        const struct op *op = &s->ops[sec->first_op + i];
        for (int l = 0; l < LANE_COUNT; l++) {
            int from = op->waits[l] >= 0 ? op->waits[l] - sec->first_op : -1;
            for (int j = i - 1; l == op->lane && j >= 0 && from < 0; j--)
                if (s->ops[sec->first_op + j].lane == op->lane)
                    from = j;
            if (from < 0)
                continue;
            assert_true(from < i);
            row[from] = 1;
            for (int j = 0; j < o.n; j++)
                row[j] |= o.before[(size_t)from * (size_t)o.n + (size_t)j];
        }
    }
    return o;
}

static bool addresses_meet(const struct buffer *a, const struct buffer *b)
{
    return a->memory == b->memory && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

static bool ops_conflict(const struct schedule *s, const struct op *a, const struct op *b)
{
    for (int i = 0; i < a->n_args; i++)
        for (int j = 0; j < b->n_args; j++)
            if (((a->arg[i].access | b->arg[j].access) & ACCESS_WRITE) &&
                addresses_meet(&s->buffers[a->arg[i].buffer], &s->buffers[b->arg[j].buffer]))
                return true;
    return false;
}

static void check_no_races(const struct schedule *s)
{
    for (int k = 0; k < s->n_sections; k++) {
        const struct section *sec = &s->section[k];
        struct order o = order_of(s, sec);
        for (int i = 0; i < o.n; i++)
            for (int j = 0; j < i; j++)
                if (!o.before[(size_t)i * (size_t)o.n + (size_t)j] &&
                    ops_conflict(s, &s->ops[o.first + i], &s->ops[o.first + j]))
                    fail_msg("%s (%d) and %s (%d) may run at the same time and share memory",
                        op_kind_name(s->ops[o.first + i].kind), o.first + i,
                        op_kind_name(s->ops[o.first + j].kind), o.first + j);
        free(o.before);
    }
}

/* In list order, whatever is read was written before and not overwritten by a neighbour in memory.
 */
static void check_replay(const struct schedule *s)
{
    int32_t *owner_clock = calloc((size_t)s->n_buffers, sizeof(*owner_clock));
    for (int k = 0; k < s->n_sections; k++) {
        const struct section *sec = &s->section[k];
        for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++) {
            const struct op *op = &s->ops[i];
            for (int a = 0; a < op->n_args; a++) {
                int32_t id = op->arg[a].buffer;
                const struct buffer *b = &s->buffers[id];
                assert_true(op->arg[a].offset >= 0 && op->arg[a].bytes >= 0);
                assert_true(op->arg[a].offset + op->arg[a].bytes <= b->bytes);
                assert_true(b->lifetime == LIFETIME_RUN || b->section == k);
                if ((op->arg[a].access & ACCESS_READ) && b->lifetime == LIFETIME_OP &&
                    owner_clock[id] <= 0)
                    fail_msg("%s (%d) reads '%s' before anything wrote it", op_kind_name(op->kind),
                        i, b->name);
            }
            for (int a = 0; a < op->n_args; a++) {
                if (!(op->arg[a].access & ACCESS_WRITE))
                    continue;
                int32_t id = op->arg[a].buffer;
                for (int32_t j = 0; j < s->n_buffers; j++)
                    if (j != id && owner_clock[j] && s->buffers[j].lifetime == LIFETIME_OP &&
                        s->buffers[j].section == k &&
                        addresses_meet(&s->buffers[j], &s->buffers[id]))
                        owner_clock[j] = -1;
                owner_clock[id] = 1;
            }
        }
    }
    free(owner_clock);
}

static void check_all(struct schedule *s)
{
    check_no_races(s);
    check_replay(s);
    schedule_free(s);
}

static void no_two_operations_race_and_nothing_is_read_unwritten(void **state)
{
    (void)state;
    const char *models[] = {"tiny-llama", "tiny-gpt2", "tiny-qwen3"};
    static const unsigned offloads[] = {OFFLOAD_NONE, OFFLOAD_OPTIMIZER,
        OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS, OFFLOAD_OPTIMIZER | OFFLOAD_DISK,
        OFFLOAD_ACTIVATIONS, OFFLOAD_PARAMETERS,
        OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS};
    for (int m = 0; m < 3; m++)
        for (int kind = STRATEGY_DDP; kind <= STRATEGY_HSDP; kind++)
            for (int variant = 0; variant < 60; variant++) {
                struct strategy s = strategy_default((enum strategy_kind)kind, 4, 2);
                s.seq = 32;
                s.micro_batch = 1 + variant % 2;
                s.grad_accum = 1 + variant % 3;
                s.recompute = (enum recompute)(variant % 4);
                s.full_blocks = s.recompute != RECOMPUTE_FULL && variant % 3 == 0;
                s.offload = offloads[variant % 7];
                bool is_gathered = kind == STRATEGY_ZERO3 || kind == STRATEGY_HSDP;
                if (!is_gathered)
                    s.offload &= ~(unsigned)OFFLOAD_PARAMETERS;
                static const enum precision precisions[] = {
                    PRECISION_FP32, PRECISION_BF16, PRECISION_FP8};
                s.precision = precisions[variant / 8 % 3];
                s.prefetch = 1 + variant % 4;
                s.reshard_after_forward = variant % 5 != 0;
                s.reshard_above_bytes = variant % 5 == 1 ? 400 << 10 : 0;
                if (kind <= STRATEGY_ZERO2 && variant % 2)
                    s.bucket_bytes = variant % 4 == 1 ? 500 << 10 : INT64_MAX;
                s.loss_chunks = 1 + variant % 3;
                if (variant % 7 == 3 || variant % 11 == 0)
                    strategy_take_optimizer(&s, OPTIMIZER_SGD);
                if (s.precision == PRECISION_BF16 && !(s.offload & ~(unsigned)OFFLOAD_ACTIVATIONS))
                    s.master_bytes = variant % 3 * 2;
                strategy_take_moments(&s, (enum moment_form)(variant % 5 % 3));
                if (kind == STRATEGY_HSDP)
                    s.shard_degree = 2;
                s.splits_over_replicas =
                    kind == STRATEGY_HSDP && variant % 3 == 1 && !(s.offload & OFFLOAD_PARAMETERS);
                s.gather_format = is_gathered && variant % 7 < 2 ? WIRE_INT8 : WIRE_PLAIN;
                s.reduce_format = variant % 7 > 0 && variant % 7 < 4 ? WIRE_INT8 : WIRE_PLAIN;
                bool is_plain = s.grad_accum == 1 && s.bucket_bytes == 0 &&
                                !(s.offload & (OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS));
                s.fp8_gradients = is_plain && kind >= STRATEGY_ZERO2 && !s.splits_over_replicas;
                check_all(make(models[m], (enum strategy_kind)kind, 4, &s));
            }
}

/* Bytes each rank sends per step; algorithms: ring or direct, (n-1)/n of the vector per phase. */
static double sent(const struct schedule *s)
{
    double total = 0;
    for (int k = 0; k < s->n_sections; k++)
        for (int32_t i = 0; i < s->section[k].n_ops; i++) {
            const struct op *op = &s->ops[s->section[k].first_op + i];
            double n = (double)(op->group == GROUP_SHARD     ? s->shards
                                : op->group == GROUP_REPLICA ? s->strategy.ranks / s->shards
                                                             : s->strategy.ranks);
            double phases = op->kind == OP_ALL_REDUCE                                    ? 2
                            : op->kind == OP_ALL_GATHER || op->kind == OP_REDUCE_SCATTER ? 1
                                                                                         : 0;
            total += phases * op->bytes * (n - 1) / n * (double)s->section[k].repeat;
        }
    return total;
}

static double padded(const struct schedule *s, int first, int last)
{
    double n = 0;
    for (int u = first; u <= last; u++)
        n += (double)s->unit[u].elems;
    return n;
}

static void volumes_equal_the_closed_forms(void **state)
{
    (void)state;
    const int64_t accum = 3;
    for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO3; kind++) {
        struct strategy st = strategy_default((enum strategy_kind)kind, 4, 4);
        st.seq = 32;
        st.micro_batch = 1;
        st.grad_accum = accum;
        st.precision = PRECISION_BF16;
        struct schedule *s = make("nano-llama", (enum strategy_kind)kind, 4, &st);
        int head = s->n_units - 1;
        double p = padded(s, 0, head), a = (double)accum;
        double grads = 4 * p, params = 2 * p, f = 3.0 / 4;
        /* zero3: the embedding is needed once when untied, or twice; the last block and the head
         * are gathered once, the other blocks twice */
        double once = 2 * (padded(s, head, head) + padded(s, head - 1, head - 1));
        double twice = 2 * 2 * padded(s, 1, head - 2);
        double embed = 2 * padded(s, 0, 0) * (s->model.is_tied ? 2 : 1);
        double want[] = {
            2 * grads, grads + params, a * grads + params, a * (grads + once + twice + embed)};
        double got = sent(s);
        if (got < want[kind] * f * 0.999999 || got > want[kind] * f * 1.000001)
            fail_msg("%s sends %.0f bytes, the closed form says %.0f", strategy_kind_name(kind),
                got, want[kind] * f);
        schedule_free(s);
    }
}

/* Groups of S in N = R S ranks: inside a group as zero3 over S in every micro step; between groups
 * once a step an all-reduce of the shard's gradient, or its reduce-scatter and the all-gather of
 * the shard's parameters where optimizer states are split over replicas too. */
static void volumes_of_hsdp_equal_the_closed_forms(void **state)
{
    (void)state;
    for (int splits = 0; splits < 2; splits++)
        for (int64_t shards = 2; shards <= 4; shards += 2) {
            struct strategy st = strategy_default(STRATEGY_HSDP, 8, 8);
            st.seq = 32;
            st.grad_accum = 3;
            st.shard_degree = shards;
            st.splits_over_replicas = splits;
            struct schedule *s = make("nano-llama", STRATEGY_HSDP, 8, &st);
            int head = s->n_units - 1;
            double n = (double)shards, r = 8 / n, p = padded(s, 0, head);
            double again = padded(s, 1, head - 2) + (s->model.is_tied ? padded(s, 0, 0) : 0);
            double inside = 3 * (4 * p + 2 * (p + again)) * (n - 1) / n;
            double between = (splits ? 4 + 2 : 2 * 4) * p / n * (r - 1) / r;
            double want = inside + between, got = sent(s);
            if (got < want * 0.999999 || got > want * 1.000001)
                fail_msg("hsdp over %d of 8 sends %.0f bytes, the closed form says %.0f",
                    (int)shards, got, want);
            schedule_free(s);
        }
}

/* Above a size blocks are freed between forward and backward, or the tied embedding is, or all. */
static void what_is_resharded_is_gathered_twice(void **state)
{
    (void)state;
    struct strategy st = strategy_default(STRATEGY_ZERO3, 4, 4);
    st.seq = 32;
    struct schedule *s = make("smollm2-135m", STRATEGY_ZERO3, 4, &st);
    assert_true(s->model.is_tied);
    int64_t embed = 2 * s->unit[0].elems, block = 2 * s->unit[1].elems;
    assert_true(embed > block);
    double all = padded(s, 0, s->n_units - 1), table = (double)s->unit[0].elems;
    double blocks = padded(s, 1, s->n_units - 3);
    schedule_free(s);
    const struct {
        int64_t above;
        double again;
    } want[] = {{0, blocks + table}, {block - 1, blocks + table}, {block, table},
        {embed - 1, table}, {embed, 0}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        st.reshard_above_bytes = want[i].above;
        s = make("smollm2-135m", STRATEGY_ZERO3, 4, &st);
        double expected = (4 * all + 2 * (all + want[i].again)) * 3 / 4;
        assert_true(fabs(sent(s) - expected) < 1e-6 * expected);
        schedule_free(s);
    }
}

static int count_of(const struct schedule *s, enum op_kind kind)
{
    int n = 0;
    for (int32_t i = 0; i < s->n_ops; i++)
        n += s->ops[i].kind == kind;
    return n;
}

/* As many reductions as the sizes of units say, and in all the same bytes. */
static void buckets_reduce_units_together(void **state)
{
    (void)state;
    for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO2; kind++) {
        enum op_kind reduction = kind == STRATEGY_DDP ? OP_ALL_REDUCE : OP_REDUCE_SCATTER;
        struct strategy st = strategy_default((enum strategy_kind)kind, 4, 4);
        st.seq = 32;
        struct schedule *s = make("gpt2-124m", (enum strategy_kind)kind, 4, &st);
        int64_t block = 4 * s->unit[1].elems;
        double bytes = sent(s);
        assert_int_equal(count_of(s, reduction), 14);
        schedule_free(s);
        /* the head is two vectors: it and three blocks, three times three blocks, the embedding */
        const struct {
            int64_t bytes;
            int reductions;
        } want[] = {{1, 14}, {3 * block, 5}, {INT64_MAX, 1}};
        for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
            st.bucket_bytes = want[i].bytes;
            s = make("gpt2-124m", (enum strategy_kind)kind, 4, &st);
            assert_int_equal(count_of(s, reduction), want[i].reductions);
            assert_true(fabs(sent(s) - bytes) < 1e-6 * bytes);
            schedule_free(s);
        }
    }
}

/* ZeRO's table with fp32 gradients: parameters 2, gradients 4, a master copy 4 or what its
 * form takes, moments 8 bytes per parameter, or 4 of SGD. */
static void persistent_state_equals_the_closed_forms_of(enum optimizer optimizer, int master)
{
    static const double SHARDED[][3] = {{0, 0, 0}, {0, 0, 1}, {0, 1, 1}, {1, 1, 1}};
    for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO3; kind++) {
        struct strategy st = strategy_default((enum strategy_kind)kind, 8, 8);
        st.seq = 32;
        st.micro_batch = 1;
        st.grad_accum = 1;
        st.precision = PRECISION_BF16;
        strategy_take_optimizer(&st, optimizer);
        st.master_bytes = master;
        struct schedule *s = make("nano-llama", (enum strategy_kind)kind, 8, &st);
        double p = padded(s, 0, s->n_units - 1), got[3] = {0, 0, 0};
        for (int32_t i = 0; i < s->n_buffers; i++)
            if (s->buffers[i].lifetime == LIFETIME_RUN && s->buffers[i].part <= PART_OPTIMIZER)
                got[s->buffers[i].part] += (double)s->buffers[i].bytes;
        const double BYTES[] = {2, 4, master + (optimizer == OPTIMIZER_SGD ? 4 : 8)};
        for (int k = 0; k < 3; k++) {
            double want = BYTES[k] * p / (SHARDED[kind][k] > 0 ? 8 : 1);
            assert_true(got[k] > want * 0.999999 && got[k] < want * 1.000001);
        }
        schedule_free(s);
    }
}

static void persistent_state_equals_the_closed_forms(void **state)
{
    (void)state;
    for (int master = MASTER_NONE; master <= MASTER_FP32; master += 2) {
        persistent_state_equals_the_closed_forms_of(OPTIMIZER_ADAMW, master);
        persistent_state_equals_the_closed_forms_of(OPTIMIZER_SGD, master);
    }
}

/* A byte for each element; in fp32 a scale for each 128 of a part and each tensor, or each tensor.
 */
static void moments_in_8_bits_take_a_byte_and_their_scales(void **state)
{
    (void)state;
    for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO3; kind++)
        for (int form = MOMENT_BLOCKS; form <= MOMENT_FP8; form++) {
            struct strategy st = strategy_default((enum strategy_kind)kind, 8, 8);
            st.seq = 32;
            strategy_take_moments(&st, (enum moment_form)form);
            struct schedule *s = make("gpt2-124m", (enum strategy_kind)kind, 8, &st);
            for (int u = 0; u < s->n_units; u++) {
                int64_t part = s->unit[u].elems / 8, parts = kind == STRATEGY_DDP ? 8 : 1;
                int64_t scales = s->unit[u].n + (form == MOMENT_BLOCKS ? part / 128 : 0);
                int64_t want = parts * (part + 4 * scales);
                assert_int_equal(s->buffers[s->state[u].m].bytes, (want + 255) / 256 * 256);
                assert_int_equal(s->buffers[s->state[u].v].bytes, (want + 255) / 256 * 256);
            }
            schedule_free(s);
        }
}

/* Bytes that a SwiGLU block keeps of a token for backward in bf16, with fused attention
 * (Korthikanti et al., for this block): h width, k width of keys and values, f of the FFN.
 * Statistics of norms and attention, four bytes a head and norm, are beside. */
static void blocks_keep_the_bytes_of_their_kind_of_recompute(void **state)
{
    (void)state;
    enum { BLOCKS = 4 };
    for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL; r++)
        for (int full = 0; full <= (r == RECOMPUTE_FULL ? 0 : BLOCKS - 1); full++) {
            struct err e = ERR_INIT;
            struct model m;
            assert_int_equal(model_find(&m, "llama-3.1-8b", &e), RC_OK);
            m.layers = BLOCKS;
            struct strategy st = strategy_default(STRATEGY_DDP, 1, 1);
            st.seq = 1024;
            st.recompute = (enum recompute)r;
            st.full_blocks = full;
            struct schedule *s = NULL;
            assert_int_equal(schedule_make(&s, &m, &st, &e), RC_OK);
            int64_t kept = 0;
            int32_t loss = 0;
            while (s->ops[loss].kind != OP_CROSS_ENTROPY)
                loss++;
            for (int32_t i = 0; i < s->n_buffers; i++) {
                const struct buffer *b = &s->buffers[i];
                bool is_block = b->unit >= 1 && b->unit <= BLOCKS && b->part == PART_ACTIVATIONS;
                if (is_block && b->first_op < loss && b->last_op > loss)
                    kept += b->bytes;
            }
            int64_t h = m.width, k = m.kv_heads * m.head_dim, f = m.ffn, lse = 4 * m.heads;
            const int64_t each[] = {12 * h + 4 * k + 6 * f + lse + 8,
                8 * h + 4 * k + 4 * f + lse + 8, 8 * h + 4 * k + lse + 8, 2 * h};
            int64_t want = (BLOCKS - full) * each[r] + full * each[RECOMPUTE_FULL];
            /* a block's input is the output of the one before it, and the last output the head's */
            assert_int_equal(kept, st.seq * want);
            schedule_free(s);
        }
}

/* Forward and backward products: 6 FLOPs per parameter of a product and token (Kaplan et al.). */
static void product_flops_equal_six_per_parameter_and_token(void **state)
{
    (void)state;
    struct schedule *s = make("nano-llama", STRATEGY_DDP, 1, NULL);
    double got = 0, products = 0;
    for (int k = 0; k < s->n_sections; k++)
        for (int32_t i = 0; i < s->section[k].n_ops; i++) {
            const struct op *op = &s->ops[s->section[k].first_op + i];
            got += op->kind == OP_MATMUL ? op->flops * (double)s->section[k].repeat : 0;
        }
    for (int u = 0; u < s->n_units; u++)
        for (int t = 0; t < s->unit[u].n; t++) {
            const struct tensor *x = &s->unit[u].tensor[t];
            bool is_product = !x->is_vector && (x->role != T_TOKEN_EMBED || s->model.is_tied);
            products += is_product ? (double)(x->rows * x->cols) : 0;
        }
    double want = 6 * products * (double)strategy_tokens_per_step(&s->strategy);
    assert_true(got > want * 0.999999 && got < want * 1.000001);
    schedule_free(s);
}

static void layout_packs_close_to_the_live_peak(void **state)
{
    (void)state;
    const char *models[] = {"gpt2-124m", "llama-3.1-8b"};
    for (int m = 0; m < 2; m++)
        for (int r = RECOMPUTE_NONE; r <= RECOMPUTE_FULL + 1; r++) {
            struct strategy st = strategy_default(STRATEGY_ZERO3, 8, 8);
            st.seq = m ? 4096 : 1024;
            st.micro_batch = 1;
            st.grad_accum = 1;
            st.precision = PRECISION_BF16;
            st.recompute = r > RECOMPUTE_FULL ? RECOMPUTE_SELECTIVE : (enum recompute)r;
            st.full_blocks = r > RECOMPUTE_FULL ? 7 : 0;
            struct schedule *s = make(models[m], STRATEGY_ZERO3, 8, &st);
            struct layout_peak p = layout_peak(s, MEMORY_DEVICE);
            int64_t sum = 0;
            for (int i = 0; i < PART_COUNT; i++)
                sum += p.part_bytes[i];
            assert_int_equal(sum, p.live_bytes);
            assert_true(p.slab_bytes >= p.live_bytes);
            if ((double)p.slab_bytes > 1.05 * (double)p.live_bytes)
                fail_msg("%s %s: slab %lld for %lld live bytes", models[m],
                    strategy_recompute_name(&st), (long long)p.slab_bytes, (long long)p.live_bytes);
            schedule_free(s);
        }
}

/* Activations live at the peak, of a model with the norms and without. */
static int64_t activations_of(bool has_qk_norm, enum recompute r)
{
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *s;
    assert_int_equal(model_find(&m, "qwen3-0.6b", &e), RC_OK);
    m.has_qk_norm = has_qk_norm;
    m.vocab = 256; /* else the peak is at the logits */
    struct strategy st = strategy_default(STRATEGY_DDP, 1, 1);
    st.seq = 512;
    st.micro_batch = 1;
    st.grad_accum = 1;
    st.precision = PRECISION_BF16;
    st.recompute = r;
    assert_int_equal(schedule_make(&s, &m, &st, &e), RC_OK);
    int64_t bytes = layout_peak(s, MEMORY_DEVICE).part_bytes[PART_ACTIVATIONS];
    schedule_free(s);
    return bytes;
}

/* Per token and block: queries, keys and values before the norms in bf16, and an fp32 scale for
 * each head of queries and keys. Selective recompute keeps the former in place of what attention
 * reads, and makes the latter again; there the peak holds one block's. */
static void norms_of_queries_and_keys_cost_the_memory_they_need(void **state)
{
    (void)state;
    const int64_t qkv = 512 * (16 + 2 * 8) * 128 * 2, scales = 512 * (16 + 8) * 4;
    assert_int_equal(activations_of(true, RECOMPUTE_NONE) - activations_of(false, RECOMPUTE_NONE),
        28 * (qkv + scales));
    assert_int_equal(
        activations_of(true, RECOMPUTE_SELECTIVE) - activations_of(false, RECOMPUTE_SELECTIVE),
        qkv + scales);
    assert_int_equal(
        activations_of(true, RECOMPUTE_FULL) - activations_of(false, RECOMPUTE_FULL), qkv + scales);
}

static void the_same_inputs_give_the_same_hash_and_others_another(void **state)
{
    (void)state;
    struct schedule *a = make("tiny-llama", STRATEGY_ZERO3, 2, NULL);
    struct schedule *b = make("tiny-llama", STRATEGY_ZERO3, 2, NULL);
    struct schedule *c = make("tiny-llama", STRATEGY_ZERO2, 2, NULL);
    struct hash128 x = schedule_hash(a), y = schedule_hash(b), z = schedule_hash(c);
    assert_true(x.hi == y.hi && x.lo == y.lo);
    assert_false(x.hi == z.hi && x.lo == z.lo);
    schedule_free(a);
    schedule_free(b);
    schedule_free(c);
}

int test_schedule(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_operations_race_and_nothing_is_read_unwritten),
        cmocka_unit_test(volumes_equal_the_closed_forms),
        cmocka_unit_test(volumes_of_hsdp_equal_the_closed_forms),
        cmocka_unit_test(what_is_resharded_is_gathered_twice),
        cmocka_unit_test(buckets_reduce_units_together),
        cmocka_unit_test(persistent_state_equals_the_closed_forms),
        cmocka_unit_test(moments_in_8_bits_take_a_byte_and_their_scales),
        cmocka_unit_test(blocks_keep_the_bytes_of_their_kind_of_recompute),
        cmocka_unit_test(product_flops_equal_six_per_parameter_and_token),
        cmocka_unit_test(layout_packs_close_to_the_live_peak),
        cmocka_unit_test(norms_of_queries_and_keys_cost_the_memory_they_need),
        cmocka_unit_test(the_same_inputs_give_the_same_hash_and_others_another),
    };
    return cmocka_run_group_tests_name("planner/schedule", tests, NULL, NULL);
}
