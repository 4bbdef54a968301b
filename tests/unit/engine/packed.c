/* Documents packed into sequences: each as if it were alone, whatever the strategy. */
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

enum { SEQ = 32 };

/* Lengths of documents in one sequence. */
static const int lengths[] = {1, 7, 2, 13, 9};
enum { DOCUMENTS = BASE_COUNT(lengths), TARGETS = SEQ - DOCUMENTS };

static int32_t token_at(int i)
{
    return (int32_t)((i * 37 + i * i * 11) % 89);
}

/* Document d at the start of a sequence of its own, what follows is not learnt; -1: all of them,
 * packed. */
static void fill_document(int d, const struct micro_data *out)
{
    int at = 0;
    memset(out->targets, 0xff, SEQ * sizeof(int32_t));
    memset(out->tokens, 0, SEQ * sizeof(int32_t));
    for (int k = 0, first = 0; k < DOCUMENTS; first += lengths[k++]) {
        for (int i = 0; i < lengths[k] && (d < 0 || d == k); i++, at++) {
            out->tokens[at] = token_at(first + i);
            out->targets[at] = i + 1 < lengths[k] ? token_at(first + i + 1) : -1;
            if (out->positions)
                out->positions[at] = i;
        }
    }
}

static enum rc fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    (void)arg;
    fill_document(out->positions ? -1 : (int)micro, out);
    return RC_OK;
}

struct gradients {
    double loss;
    float *v;
    size_t n;
};

static void one_gradient(struct rank *r)
{
    struct gradients *g = r->arg;
    struct err e = ERR_INIT;
    struct step_params p = {
        .step = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .local_targets = TARGETS};
    struct step_result out;
    ranks_check(init_state(r->x, 42, &e), &e);
    ranks_check(executor_step(r->x, &p, fill, NULL, &out, &e), &e);
    g->loss = out.loss;
    for (int u = 0; u < r->schedule->n_units; u++) {
        struct state_view v = executor_state(r->x, u, STATE_GRADIENT);
        g->v = base_realloc(g->v, (g->n + (size_t)v.count) * sizeof(float));
        memcpy(g->v + g->n, v.data, (size_t)v.count * sizeof(float));
        g->n += (size_t)v.count;
    }
}

static struct gradients gradients_of(const char *model, int64_t doc_tokens)
{
    struct gradients g = {0};
    struct rank_options o = {.model = model,
        .strategy = strategy_default(STRATEGY_DDP, 1, 1),
        .is_poisoning = POISON_WORKS};
    o.strategy.seq = SEQ;
    o.strategy.precision = PRECISION_FP32;
    o.strategy.doc_tokens = doc_tokens;
    o.strategy.grad_accum = doc_tokens ? 1 : DOCUMENTS;
    ranks_run(&o, one_gradient, &g);
    return g;
}

static const char *const models[] = {"tiny-llama", "tiny-gpt2", "tiny-qwen3"};

static void a_packed_sequence_is_its_documents_one_by_one(void **state)
{
    (void)state;
    for (size_t m = 0; m < BASE_COUNT(models); m++) {
        struct gradients packed = gradients_of(models[m], 6), alone = gradients_of(models[m], 0);
        double difference = 0, norm = 0;
        assert_int_equal(packed.n, alone.n);
        for (size_t i = 0; i < packed.n; i++) {
            difference += pow((double)packed.v[i] - (double)alone.v[i], 2);
            norm += pow((double)alone.v[i], 2);
        }
        if (!(sqrt(difference) <= 1e-6 * sqrt(norm) &&
                fabs(packed.loss - alone.loss) <= 1e-6 * alone.loss))
            fail_msg("%s: loss %.9f, alone %.9f; gradients apart by %.2e", models[m], packed.loss,
                alone.loss, sqrt(difference / norm));
        free(packed.v);
        free(alone.v);
    }
}

/* --- strategies --- */

struct course {
    double loss[2], evaluated;
    uint64_t hash;
};

static void take_course(struct rank *r)
{
    struct course *c = r->arg;
    struct err e = ERR_INIT;
    struct batch b = {r, 1};
    struct evaluation seen;
    double losses[2];
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(init_state(r->x, 42, &e), &e);
    ranks_check(
        executor_evaluate(r->x, r->schedule->strategy.grad_accum, batch_fill, &b, &seen, &e), &e);
    ranks_train(r, 1, 2, losses);
    uint64_t hash = ranks_state_hash(r);
    if (r->rank == 0)
        *c = (struct course){{losses[0], losses[1]}, seen.loss, hash};
}

static struct course course_of(const char *model, struct strategy s)
{
    struct course c = {.hash = 0};
    struct rank_options o = {
        .model = model, .strategy = s, .threads = 2, .is_poisoning = POISON_WORKS};
    ranks_run(&o, take_course, &c);
    return c;
}

static void assert_same(const struct course *a, struct course b, const char *what)
{
    if (memcmp(a, &b, sizeof(b)) != 0)
        fail_msg("%s changed what packed documents give", what);
}

static struct strategy base(enum strategy_kind kind, int64_t accum)
{
    struct strategy s = strategy_default(kind, 2, 2);
    s.seq = SEQ;
    s.grad_accum = accum;
    s.precision = PRECISION_FP32;
    s.doc_tokens = 5;
    s.evaluates = true;
    return s;
}

static void sharding_and_placement_never_change_the_bits(void **state)
{
    (void)state;
    for (size_t m = 0; m < BASE_COUNT(models); m++) {
        struct course want = course_of(models[m], base(STRATEGY_DDP, 1));
        assert_memory_equal(&want.evaluated, &want.loss[0], sizeof(double));
        for (int k = STRATEGY_ZERO1; k <= STRATEGY_ZERO3; k++)
            assert_same(&want, course_of(models[m], base((enum strategy_kind)k, 1)),
                strategy_kind_name((enum strategy_kind)k));
        struct strategy s = base(STRATEGY_ZERO3, 1);
        for (int r = RECOMPUTE_SELECTIVE; r <= RECOMPUTE_FULL; r++) {
            s.recompute = (enum recompute)r;
            s.offload = r == RECOMPUTE_FULL ? OFFLOAD_OPTIMIZER | OFFLOAD_ACTIVATIONS : 0;
            assert_same(&want, course_of(models[m], s), recompute_name(s.recompute));
        }
        s = base(STRATEGY_ZERO3, 1);
        s.doc_tokens = 0;
        struct course whole = course_of(models[m], s);
        assert_true(fabs(whole.loss[0] - want.loss[0]) > 1e-9 * want.loss[0]);
    }
}

/* A place for each token is all that packing takes, of memory and of operations. */
static void packing_takes_four_bytes_a_token(void **state)
{
    (void)state;
    for (size_t m = 0; m < BASE_COUNT(models); m++) {
        struct err e = ERR_INIT;
        struct model model;
        struct schedule *whole, *packed;
        struct strategy s = base(STRATEGY_ZERO3, 3);
        s.micro_batch = 8;
        assert_int_equal(model_find(&model, models[m], &e), RC_OK);
        assert_int_equal(schedule_make(&packed, &model, &s, &e), RC_OK);
        s.doc_tokens = 0;
        assert_int_equal(schedule_make(&whole, &model, &s, &e), RC_OK);
        assert_int_equal(packed->n_ops, whole->n_ops);
        assert_int_equal(packed->n_buffers, whole->n_buffers + 1);
        assert_int_equal(packed->buffers[packed->positions].bytes, 8 * SEQ * 4);
        int64_t more =
            packed->slab_bytes[MEMORY_DEVICE] - whole->slab_bytes[MEMORY_DEVICE] - 8 * SEQ * 4;
        assert_true(llabs(more) < SLAB_PAGE);
        schedule_free(whole);
        schedule_free(packed);
    }
}

int test_packed(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_packed_sequence_is_its_documents_one_by_one),
        cmocka_unit_test(sharding_and_placement_never_change_the_bits),
        cmocka_unit_test(packing_takes_four_bytes_a_token),
    };
    return cmocka_run_group_tests_name("engine/packed", tests, NULL, NULL);
}
