/* What a step computes must not depend on how it is sharded, placed or timed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/init.h"
#include "engine/poison.h"
#include "lib_ranks.h"

/* Masters of the whole model after some steps, gathered on rank 0, without the padding that depends
 * on the number of shards. */
struct outcome {
    int64_t steps;
    float *state; /* units one after another */
    size_t elems;
    double loss[8];
    double norm; /* of the gradient, of one_gradient */
};

static void train_and_collect(struct rank *r)
{
    struct outcome *o = r->arg;
    struct err e = ERR_INIT;
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(init_state(r->x, 42, &e), &e);
    ranks_train(r, 1, o->steps, o->loss);
    size_t at = 0;
    for (int u = 0; u < r->schedule->n_units; u++) {
        ranks_check(executor_fetch_state(r->x, u, STATE_MASTER, &e), &e);
        float *full = ranks_whole(r, u, STATE_MASTER);
        const struct unit_layout *l = &r->schedule->unit[u];
        const struct tensor *last = &l->tensor[l->n - 1];
        size_t used = (size_t)(last->offset + last->rows * last->cols);
        if (r->rank == 0) {
            o->state = realloc(o->state, (at + used) * sizeof(float));
            memcpy(o->state + at, full, used * sizeof(float));
        }
        at += used;
        free(full);
    }
    if (r->rank == 0)
        o->elems = at;
}

static struct outcome outcome_of(const char *model, struct strategy s, int threads)
{
    struct outcome o = {.steps = 3};
    struct rank_options ro = {
        .model = model, .strategy = s, .threads = threads, .is_poisoning = POISON_WORKS};
    ranks_run(&ro, train_and_collect, &o);
    return o;
}

static void assert_same_bits(const struct outcome *a, struct outcome b, const char *what)
{
    if (a->elems != b.elems || memcmp(a->state, b.state, a->elems * sizeof(float)) != 0)
        fail_msg("%s changed the bits", what);
    for (int i = 0; i < 3; i++)
        if (memcmp(&a->loss[i], &b.loss[i], sizeof(double)) != 0)
            fail_msg("%s changed the loss", what);
    free(b.state);
}

static void assert_close(const struct outcome *a, struct outcome b, double limit, const char *what)
{
    double difference = 0, norm = 0;
    for (size_t i = 0; i < a->elems && i < b.elems; i++) {
        difference += pow((double)a->state[i] - (double)b.state[i], 2);
        norm += pow((double)a->state[i], 2);
    }
    if (!(sqrt(difference / norm) <= limit))
        fail_msg("%s: relative difference %g", what, sqrt(difference / norm));
    free(b.state);
}

/* The gradient of the first step, whole, on rank 0: first moments start at zero and hold (1 -
 * beta1) times the clipped gradient, so the gradient itself is read. */
static void one_gradient(struct rank *r)
{
    struct outcome *o = r->arg;
    struct err e = ERR_INIT;
    ranks_check(init_state(r->x, 42, &e), &e);
    ranks_train(r, 1, 1, o->loss);
    const double *scalars = executor_buffer(r->x, r->schedule->scalars);
    if (r->rank == 0)
        o->norm = sqrt(scalars[SCALAR_SQUARES]);
    for (int u = 0; u < r->schedule->n_units; u++) {
        const struct unit_layout *l = &r->schedule->unit[u];
        float *full = ranks_whole(r, u, STATE_GRADIENT);
        for (int i = 0; i < l->n && r->rank == 0; i++) {
            const struct tensor *t = &l->tensor[i];
            size_t n = (size_t)(t->rows * t->cols);
            o->state = realloc(o->state, (o->elems + n) * sizeof(float));
            memcpy(o->state + o->elems, full + t->offset, n * sizeof(float));
            o->elems += n;
        }
        free(full);
    }
}

static struct outcome gradient_of(const char *model, struct strategy s)
{
    struct outcome o = {0};
    struct rank_options ro = {.model = model, .strategy = s};
    ranks_run(&ro, one_gradient, &o);
    return o;
}

static const char *const MODELS[] = {"tiny-llama", "tiny-gpt2", "tiny-qwen3"};
enum { MODEL_COUNT = 3 };

static void all_strategies_give_the_same_bits_without_accumulation(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        struct outcome ddp = outcome_of(MODELS[m], ranks_strategy(STRATEGY_DDP, 3, 1), 1);
        for (int k = STRATEGY_ZERO1; k <= STRATEGY_ZERO3; k++)
            assert_same_bits(&ddp,
                outcome_of(MODELS[m], ranks_strategy((enum strategy_kind)k, 3, 1), 1),
                strategy_kind_name((enum strategy_kind)k));
        free(ddp.state);
    }
}

static void with_accumulation_ddp_equals_zero1_and_zero2_equals_zero3(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        struct outcome a = outcome_of(MODELS[m], ranks_strategy(STRATEGY_DDP, 2, 3), 1);
        assert_same_bits(
            &a, outcome_of(MODELS[m], ranks_strategy(STRATEGY_ZERO1, 2, 3), 1), "zero1");
        struct outcome b = outcome_of(MODELS[m], ranks_strategy(STRATEGY_ZERO2, 2, 3), 1);
        assert_same_bits(
            &b, outcome_of(MODELS[m], ranks_strategy(STRATEGY_ZERO3, 2, 3), 1), "zero3");
        assert_close(&a, b, 1e-5, "the two classes");
        free(a.state);
    }
}

/* Three steps, of which the second is above a limit: masters after it are those before it. */
static void skip_the_second(struct rank *r)
{
    const struct strategy *s = &r->schedule->strategy;
    struct state_view v = executor_state(r->x, 1, STATE_MASTER);
    size_t bytes = (size_t)v.count * sizeof(float);
    float *before = malloc(bytes);
    struct err e = ERR_INIT;
    ranks_check(init_state(r->x, 42, &e), &e);
    struct batch b = {r, 1};
    struct step_params p = {.step = 1,
        .lr = 1e-3,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .local_targets = (double)(s->seq * s->micro_batch * s->grad_accum)};
    struct step_result out;
    const struct {
        double max_loss, max_grad_norm;
        bool is_skipped;
    } limits[] = {{0, 0, false}, {1e-3, 0, true}, {0, 1e-3, true}, {1e9, 1e9, false}};
    for (size_t i = 0; i < BASE_COUNT(limits); i++) {
        memcpy(before, v.data, bytes);
        p.max_loss = limits[i].max_loss;
        p.max_grad_norm = limits[i].max_grad_norm;
        ranks_check(executor_step(r->x, &p, batch_fill, &b, &out, &e), &e);
        bool is_same = memcmp(before, v.data, bytes) == 0;
        if (out.is_skipped != limits[i].is_skipped || is_same != limits[i].is_skipped)
            ranks_check(
                err_set(&e, RC_FAILED, "step %zu: skipped %d, same %d", i, out.is_skipped, is_same),
                &e);
    }
    free(before);
}

static void a_step_above_a_limit_updates_nothing_on_any_rank(void **state)
{
    (void)state;
    for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO3; k++) {
        struct rank_options ro = {.model = "tiny-llama",
            .strategy = ranks_strategy((enum strategy_kind)k, 2, 2),
            .threads = 1};
        ranks_run(&ro, skip_the_second, NULL);
    }
}

/* The loss of a batch, twice, then the same batch in a training step. */
static void evaluate_and_train(struct rank *r)
{
    const struct strategy *s = &r->schedule->strategy;
    struct evaluation once, again;
    double loss;
    struct err e = ERR_INIT;
    struct batch b = {r, 1};
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(init_state(r->x, 42, &e), &e);
    ranks_check(executor_evaluate(r->x, s->grad_accum, batch_fill, &b, &once, &e), &e);
    ranks_check(executor_evaluate(r->x, s->grad_accum, batch_fill, &b, &again, &e), &e);
    ranks_train(r, 1, 1, &loss);
    double targets = (double)strategy_tokens_per_step(s);
    bool is_same = memcmp(&once.loss, &again.loss, sizeof(double)) == 0 &&
                   (r->rank > 0 || memcmp(&once.loss, &loss, sizeof(double)) == 0);
    if (!is_same || once.targets < targets || once.targets > targets)
        ranks_check(err_set(&e, RC_FAILED, "evaluated %.17g, %.17g, trained %.17g, %g targets",
                        once.loss, again.loss, loss, once.targets),
            &e);
}

static void evaluation_gives_the_loss_that_training_would(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++) {
            struct strategy s =
                ranks_strategy((enum strategy_kind)k, k == STRATEGY_HSDP ? 4 : 2, 2);
            s.shard_degree = k == STRATEGY_DDP ? 1 : 2;
            s.recompute = k % 2 ? RECOMPUTE_FULL : RECOMPUTE_NONE;
            s.evaluates = true;
            struct rank_options ro = {
                .model = MODELS[m], .strategy = s, .threads = 1, .is_poisoning = POISON_WORKS};
            ranks_run(&ro, evaluate_and_train, NULL);
        }
    }
}

/* Nothing of a step changes, and nothing else does in memory: a forward pass needs less. */
static void evaluation_is_added_to_a_schedule_and_changes_nothing_of_it(void **state)
{
    (void)state;
    for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO3; k++) {
        struct model m;
        struct err e = ERR_INIT;
        struct schedule *without, *with;
        struct strategy s = ranks_strategy((enum strategy_kind)k, 4, 3);
        assert_int_equal(model_find(&m, "nano-llama", &e), RC_OK);
        assert_int_equal(schedule_make(&without, &m, &s, &e), RC_OK);
        s.evaluates = true;
        assert_int_equal(schedule_make(&with, &m, &s, &e), RC_OK);
        assert_int_equal(with->n_sections, without->n_sections + 1);
        assert_true(with->n_ops > without->n_ops);
        for (int32_t i = 0; i < without->n_ops; i++)
            assert_memory_equal(&with->ops[i], &without->ops[i], sizeof(struct op));
        for (int32_t i = without->n_ops; i < with->n_ops; i++)
            assert_true(with->ops[i].kind != OP_ADAMW && with->ops[i].lane != LANE_REDUCE);
        assert_int_equal(with->slab_bytes[MEMORY_DEVICE], without->slab_bytes[MEMORY_DEVICE]);
        schedule_free(without);
        schedule_free(with);
    }
}

/* Everything that may not change the bits, alone and together. */
static struct strategy with(struct strategy s, enum recompute r, int full_blocks)
{
    s.recompute = r;
    s.full_blocks = full_blocks;
    return s;
}

static void recompute_never_changes_the_bits(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        struct strategy s = ranks_strategy(STRATEGY_ZERO3, 2, 2);
        struct outcome want = outcome_of(MODELS[m], s, 1);
        for (int r = RECOMPUTE_SELECTIVE; r <= RECOMPUTE_FULL; r++)
            assert_same_bits(&want, outcome_of(MODELS[m], with(s, (enum recompute)r, 0), 1),
                recompute_name((enum recompute)r));
        for (int r = RECOMPUTE_NONE; r < RECOMPUTE_FULL; r++)
            assert_same_bits(
                &want, outcome_of(MODELS[m], with(s, (enum recompute)r, 1), 1), "mixed recompute");
        free(want.state);
    }
}

static void placement_and_timing_never_change_the_bits(void **state)
{
    (void)state;
    struct outcome want = outcome_of("tiny-llama", ranks_strategy(STRATEGY_ZERO3, 2, 2), 1);
    struct strategy s = ranks_strategy(STRATEGY_ZERO3, 2, 2);
    s.offload = OFFLOAD_OPTIMIZER;
    assert_same_bits(&want, outcome_of("tiny-llama", s, 1), "offload");
    for (int prefetch = 2; prefetch <= 4; prefetch++) {
        s = ranks_strategy(STRATEGY_ZERO3, 2, 2);
        s.prefetch = prefetch;
        s.reshard_after_forward = prefetch % 2;
        assert_same_bits(&want, outcome_of("tiny-llama", s, 1), "prefetch");
    }
    assert_same_bits(
        &want, outcome_of("tiny-llama", ranks_strategy(STRATEGY_ZERO3, 2, 2), 3), "threads");
    free(want.state);
}

static void norms_of_queries_and_keys_are_recomputed_to_the_same_bits(void **state)
{
    (void)state;
    for (int p = 0; p < 2; p++) {
        struct strategy s = ranks_strategy(STRATEGY_ZERO3, 2, 2);
        s.precision = p ? PRECISION_BF16 : PRECISION_FP32;
        struct outcome want = outcome_of("tiny-qwen3", s, 1);
        assert_same_bits(&want, outcome_of("tiny-qwen3", s, 3), "threads");
        s.recompute = RECOMPUTE_FULL;
        assert_same_bits(&want, outcome_of("tiny-qwen3", s, 1), "full recompute");
        s.recompute = RECOMPUTE_SELECTIVE;
        assert_same_bits(&want, outcome_of("tiny-qwen3", s, 1), "selective recompute");
        free(want.state);
    }
}

/* --- what leaves the device --- */

static uint64_t picks;

static int pick(int n)
{
    picks = picks * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int)((picks >> 33) % (uint64_t)n);
}

/* Of a kind and a model: its class of bits, which no placement, recompute mode or timing leaves. */
static struct strategy random_placement(enum strategy_kind kind)
{
    static const unsigned offloads[] = {OFFLOAD_OPTIMIZER, OFFLOAD_ACTIVATIONS,
        OFFLOAD_OPTIMIZER | OFFLOAD_ACTIVATIONS, OFFLOAD_OPTIMIZER | OFFLOAD_DISK,
        OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS, OFFLOAD_PARAMETERS,
        OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS,
        OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS,
        OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK};
    struct strategy s = ranks_strategy(kind, 2, 2);
    s.offload = offloads[pick(kind >= STRATEGY_ZERO3 ? 9 : 4)];
    s.recompute = (enum recompute)pick(4);
    s.prefetch = 1 + pick(3);
    s.reshard_after_forward = pick(2);
    return s;
}

static void what_leaves_the_device_never_changes_the_bits(void **state)
{
    (void)state;
    static const enum precision precisions[] = {PRECISION_FP32, PRECISION_BF16, PRECISION_FP8};
    picks = 20261130;
    for (int m = 0; m < MODEL_COUNT; m++)
        for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++)
            for (size_t p = 0; p < BASE_COUNT(precisions); p++) {
                struct strategy plain = ranks_strategy((enum strategy_kind)k, 2, 2);
                plain.precision = precisions[p];
                struct outcome want = outcome_of(MODELS[m], plain, 1);
                for (int i = 0; i < 4; i++) {
                    struct strategy s = random_placement((enum strategy_kind)k);
                    char what[80];
                    s.precision = precisions[p];
                    snprintf(what, sizeof(what), "%s %s, offload %s, recompute %s", MODELS[m],
                        strategy_kind_name(s.kind), offload_name(s.offload),
                        recompute_name(s.recompute));
                    assert_same_bits(&want, outcome_of(MODELS[m], s, 1 + pick(2)), what);
                }
                free(want.state);
            }
}

/* tiny-gpt2 has a tied embedding beside smaller blocks: above a size, it alone is freed. */
static void resharding_by_size_never_changes_the_bits(void **state)
{
    (void)state;
    struct outcome want = outcome_of("tiny-gpt2", ranks_strategy(STRATEGY_ZERO3, 2, 2), 1);
    for (int64_t above = 1 << 10; above < 1 << 24; above *= 4) {
        struct strategy s = ranks_strategy(STRATEGY_ZERO3, 2, 2);
        s.reshard_above_bytes = above;
        assert_same_bits(&want, outcome_of("tiny-gpt2", s, 1), "resharding above a size");
    }
    free(want.state);
}

/* From a unit each, over several units, to all of them at once. */
static void the_size_of_buckets_never_changes_the_bits(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 100 << 10, 300 << 10, INT64_MAX};
    for (int m = 0; m < MODEL_COUNT; m++)
        for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO2; kind++) {
            struct strategy s = ranks_strategy((enum strategy_kind)kind, 3, 2);
            struct outcome want = outcome_of(MODELS[m], s, 1);
            for (size_t i = 0; i < BASE_COUNT(sizes); i++) {
                s.bucket_bytes = sizes[i];
                assert_same_bits(&want, outcome_of(MODELS[m], s, 1), "the size of buckets");
            }
            free(want.state);
        }
}

/* Summed by one rank of each group or by all of them: the same sums, of the same elements. The norm
 * is summed over other blocks, and is above one here: clipping by it changes the last bits. */
static void states_over_replicas_change_nothing_but_the_blocks_of_the_norm(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++)
        for (int accum = 1; accum <= 3; accum += 2) {
            struct strategy s = ranks_hsdp(4, accum);
            struct outcome want = gradient_of(MODELS[m], s);
            s.splits_over_replicas = true;
            struct outcome got = gradient_of(MODELS[m], s);
            assert_int_equal(want.elems, got.elems);
            assert_memory_equal(want.state, got.state, want.elems * sizeof(float));
            assert_memory_equal(&want.loss[0], &got.loss[0], sizeof(double));
            assert_true(fabs(want.norm - got.norm) <= 1e-12 * want.norm);
            free(want.state);
            free(got.state);
        }
    struct strategy s = ranks_hsdp(4, 2);
    struct outcome want = outcome_of("tiny-llama", s, 1);
    s.splits_over_replicas = true;
    assert_close(&want, outcome_of("tiny-llama", s, 1), 1e-6, "optimizer over replicas");
    s.precision = PRECISION_BF16;
    s.offload = OFFLOAD_OPTIMIZER;
    struct outcome host = outcome_of("tiny-llama", s, 1);
    s.offload = OFFLOAD_NONE;
    assert_same_bits(&host, outcome_of("tiny-llama", s, 1), "offload");
    free(host.state);
    free(want.state);
}

static void hsdp_and_other_world_sizes_stay_within_rounding(void **state)
{
    (void)state;
    struct outcome one = outcome_of("tiny-llama", ranks_strategy(STRATEGY_DDP, 1, 4), 1);
    struct strategy s = ranks_hsdp(4, 1);
    assert_close(&one, outcome_of("tiny-llama", s, 1), 1e-5, "hsdp on 4 ranks");
    s.splits_over_replicas = true;
    assert_close(&one, outcome_of("tiny-llama", s, 1), 1e-5, "hsdp, optimizer over replicas");
    assert_close(
        &one, outcome_of("tiny-llama", ranks_strategy(STRATEGY_ZERO3, 4, 1), 1), 1e-5, "4 ranks");
    assert_close(
        &one, outcome_of("tiny-llama", ranks_strategy(STRATEGY_ZERO2, 2, 2), 1), 1e-5, "2 ranks");
    free(one.state);
}

/* Between classes of sums the contract is 1e-6 per gradient tensor (relative L2); tensors whose
 * true gradient is zero (GPT-2's key bias) are rounding and judged against the largest tensor. */
static void assert_gradients_agree(const char *model, const struct outcome *a, struct outcome b)
{
    struct err e = ERR_INIT;
    struct model m;
    ranks_check(model_find(&m, model, &e), &e);
    size_t at = 0;
    double largest = 0;
    for (size_t i = 0; i < a->elems; i++)
        largest += pow((double)a->state[i], 2);
    for (int u = 0; u < model_units(&m); u++) {
        struct unit_layout l;
        model_unit_layout(&m, u, 1, &l);
        for (int i = 0; i < l.n; i++) {
            size_t n = (size_t)(l.tensor[i].rows * l.tensor[i].cols);
            double difference = 0, norm = 0;
            for (size_t j = at; j < at + n; j++) {
                difference += pow((double)a->state[j] - (double)b.state[j], 2);
                norm += pow((double)a->state[j], 2);
            }
            bool is_rounding = norm < 1e-10 * largest;
            if (sqrt(difference) > 1e-6 * sqrt(is_rounding ? largest : norm))
                fail_msg("%s, unit %d, tensor %d: relative difference %g", model, u, i,
                    sqrt(difference / norm));
            at += n;
        }
    }
    assert_int_equal(at, a->elems);
    assert_int_equal(at, b.elems);
    free(b.state);
}

static void gradients_of_other_groupings_agree_to_a_millionth(void **state)
{
    (void)state;
    for (int k = 0; k < MODEL_COUNT; k++) {
        struct outcome one = gradient_of(MODELS[k], ranks_strategy(STRATEGY_DDP, 1, 4));
        struct strategy s = ranks_hsdp(4, 1);
        assert_gradients_agree(MODELS[k], &one, gradient_of(MODELS[k], s));
        s.splits_over_replicas = true;
        assert_gradients_agree(MODELS[k], &one, gradient_of(MODELS[k], s));
        assert_gradients_agree(
            MODELS[k], &one, gradient_of(MODELS[k], ranks_strategy(STRATEGY_ZERO3, 4, 1)));
        assert_gradients_agree(
            MODELS[k], &one, gradient_of(MODELS[k], ranks_strategy(STRATEGY_ZERO2, 2, 2)));
        free(one.state);
    }
}

static void bf16_with_fp32_master_follows_fp32(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        struct outcome want = outcome_of(MODELS[m], ranks_strategy(STRATEGY_DDP, 2, 1), 1);
        struct strategy s = ranks_strategy(STRATEGY_ZERO3, 2, 1);
        s.precision = PRECISION_BF16;
        struct outcome got = outcome_of(MODELS[m], s, 1);
        for (int i = 0; i < 3; i++)
            assert_true(fabs(got.loss[i] - want.loss[i]) < 0.02 * want.loss[i]);
        s.kind = STRATEGY_DDP;
        s.shard_degree = 1;
        assert_same_bits(&got, outcome_of(MODELS[m], s, 1), "sharding in bf16");
        free(got.state);
        free(want.state);
    }
}

/* --- products of eight bits --- */

static struct strategy in_fp8(enum strategy_kind kind, int64_t ranks, int64_t accum)
{
    struct strategy s = ranks_strategy(kind, ranks, accum);
    s.precision = PRECISION_FP8;
    return s;
}

/* The unit of a weight comes from all of it, whoever holds it. */
static void fp8_weights_are_cast_alike_however_they_are_sharded(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        struct outcome ddp = outcome_of(MODELS[m], in_fp8(STRATEGY_DDP, 3, 1), 1);
        for (int k = STRATEGY_ZERO1; k <= STRATEGY_ZERO3; k++)
            assert_same_bits(&ddp, outcome_of(MODELS[m], in_fp8((enum strategy_kind)k, 3, 1), 1),
                strategy_kind_name((enum strategy_kind)k));
        free(ddp.state);
        struct outcome a = outcome_of(MODELS[m], in_fp8(STRATEGY_DDP, 2, 3), 1);
        assert_same_bits(&a, outcome_of(MODELS[m], in_fp8(STRATEGY_ZERO1, 2, 3), 1), "zero1");
        free(a.state);
        struct outcome b = outcome_of(MODELS[m], in_fp8(STRATEGY_ZERO2, 2, 3), 1);
        assert_same_bits(&b, outcome_of(MODELS[m], in_fp8(STRATEGY_ZERO3, 2, 3), 3), "zero3");
        free(b.state);
    }
}

static void fp8_follows_bf16(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        struct strategy s = in_fp8(STRATEGY_ZERO3, 2, 1);
        struct outcome got = outcome_of(MODELS[m], s, 1);
        s.precision = PRECISION_BF16;
        struct outcome want = outcome_of(MODELS[m], s, 1);
        assert_true(memcmp(got.state, want.state, got.elems * sizeof(float)) != 0);
        for (int i = 0; i < 3; i++)
            assert_true(fabs(got.loss[i] - want.loss[i]) < 0.02 * want.loss[i]);
        free(got.state);
        free(want.state);
    }
}

int test_executor(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_strategies_give_the_same_bits_without_accumulation),
        cmocka_unit_test(with_accumulation_ddp_equals_zero1_and_zero2_equals_zero3),
        cmocka_unit_test(a_step_above_a_limit_updates_nothing_on_any_rank),
        cmocka_unit_test(evaluation_gives_the_loss_that_training_would),
        cmocka_unit_test(evaluation_is_added_to_a_schedule_and_changes_nothing_of_it),
        cmocka_unit_test(recompute_never_changes_the_bits),
        cmocka_unit_test(placement_and_timing_never_change_the_bits),
        cmocka_unit_test(what_leaves_the_device_never_changes_the_bits),
        cmocka_unit_test(norms_of_queries_and_keys_are_recomputed_to_the_same_bits),
        cmocka_unit_test(resharding_by_size_never_changes_the_bits),
        cmocka_unit_test(the_size_of_buckets_never_changes_the_bits),
        cmocka_unit_test(states_over_replicas_change_nothing_but_the_blocks_of_the_norm),
        cmocka_unit_test(hsdp_and_other_world_sizes_stay_within_rounding),
        cmocka_unit_test(gradients_of_other_groupings_agree_to_a_millionth),
        cmocka_unit_test(bf16_with_fp32_master_follows_fp32),
        cmocka_unit_test(fp8_weights_are_cast_alike_however_they_are_sharded),
        cmocka_unit_test(fp8_follows_bf16),
    };
    return cmocka_run_group_tests_name("engine/executor", tests, NULL, NULL);
}
