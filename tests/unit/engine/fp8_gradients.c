/* Gradients that wait for the update in eight bits: each is the nearest number to what waits in
 * fp32, in the unit of its tensor, however tensors are sharded. */
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

static const char *const MODELS[] = {"tiny-llama", "tiny-gpt2", "tiny-qwen3"};

static struct strategy base(enum strategy_kind kind, int64_t ranks, bool is_fp8)
{
    struct strategy s = strategy_default(kind, ranks, ranks);
    s.seq = 24;
    s.shard_degree = kind == STRATEGY_HSDP ? ranks / 2 : ranks;
    s.precision = PRECISION_FP32;
    s.fp8_gradients = is_fp8;
    return s;
}

/* --- equal bits --- */

struct course {
    uint64_t hash; /* of states after three steps */
    double loss[3];
};

static void train(struct rank *r)
{
    struct course *c = r->arg;
    struct err e = ERR_INIT;
    double loss[3];
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(init_state(r->x, 42, &e), &e);
    ranks_train(r, 1, 3, loss);
    uint64_t hash = ranks_state_hash(r);
    if (r->rank == 0) {
        c->hash = hash;
        memcpy(c->loss, loss, sizeof(loss));
    }
}

static struct course course_of(const char *model, struct strategy s, int threads)
{
    struct course c;
    memset(&c, 0, sizeof(c));
    struct rank_options o = {
        .model = model, .strategy = s, .threads = threads, .is_poisoning = POISON_WORKS};
    ranks_run(&o, train, &c);
    return c;
}

static void sharding_recompute_and_threads_never_change_the_bits(void **state)
{
    (void)state;
    static const enum precision precisions[] = {PRECISION_FP32, PRECISION_BF16, PRECISION_FP8};
    for (size_t m = 0; m < BASE_COUNT(MODELS); m++) {
        struct strategy s = base(STRATEGY_ZERO2, 3, true);
        s.precision = precisions[m];
        struct course want = course_of(MODELS[m], s, 1);
        s = base(STRATEGY_ZERO3, 3, true);
        s.precision = precisions[m];
        struct course zero3 = course_of(MODELS[m], s, 3);
        assert_memory_equal(&zero3, &want, sizeof(want));
        s.recompute = RECOMPUTE_FULL;
        s.prefetch = 2;
        s.offload = OFFLOAD_ACTIVATIONS;
        struct course full = course_of(MODELS[m], s, 1);
        assert_memory_equal(&full, &want, sizeof(want));
        s = base(STRATEGY_ZERO3, 3, false);
        s.precision = precisions[m];
        struct course fp32 = course_of(MODELS[m], s, 1);
        assert_true(fp32.hash != want.hash);
        for (int i = 0; i < 3; i++)
            assert_true(fabs(fp32.loss[i] - want.loss[i]) <= 0.01 * fp32.loss[i]);
    }
}

/* --- each number --- */

/* The first moments of one step, which are the gradients it was made with; unit by unit. */
struct gradients {
    float *unit[8];
    int n;
    double norm;
    const struct schedule *schedule;
};

static void one_step(struct rank *r)
{
    struct gradients *g = r->arg;
    struct err e = ERR_INIT;
    struct batch b = {r, 1};
    struct step_result out;
    struct step_params p = {.step = 1, .beta2 = 0.5, .eps = 1};
    const struct strategy *s = &r->schedule->strategy;
    p.local_targets = (double)(s->seq * s->micro_batch);
    ranks_check(init_state(r->x, 42, &e), &e);
    ranks_check(executor_step(r->x, &p, batch_fill, &b, &out, &e), &e);
    for (int u = 0; u < r->schedule->n_units; u++) {
        float *whole = ranks_whole(r, u, STATE_M);
        if (r->rank == 0)
            g->unit[u] = whole;
        else
            free(whole);
    }
    if (r->rank == 0) {
        g->n = r->schedule->n_units;
        g->norm = out.grad_norm;
    }
}

static struct gradients gradients_of(const char *model, struct strategy s)
{
    struct gradients g = {.n = 0};
    struct rank_options o = {.model = model, .strategy = s, .threads = 1};
    ranks_run(&o, one_step, &g);
    return g;
}

/* To nearest even, of three bits behind the first down to 2^-6, below of multiples of 2^-9. */
static double nearest_e4m3(double x)
{
    int exponent;
    frexp(x, &exponent); /* x is 0.5 to 1 times two to it */
    double step = ldexp(1, (exponent - 1 < -6 ? -6 : exponent - 1) - 3);
    return rint(x / step) * step;
}

static void check_tensor(const float *exact, const float *got, int64_t n, const char *what)
{
    double amax = 0;
    for (int64_t i = 0; i < n; i++)
        amax = fmax(amax, fabs((double)exact[i]));
    double unit = amax > 0 ? exp2(ceil(log2(amax / 448))) : 1;
    for (int64_t i = 0; i < n; i++) {
        float want = (float)(nearest_e4m3((double)exact[i] / unit) * unit);
        if (got[i] < want || got[i] > want)
            fail_msg("%s: element %lld is %g, not %g, from %g", what, (long long)i, (double)got[i],
                (double)want, (double)exact[i]);
    }
}

static void each_is_the_nearest_to_its_own_in_fp32(void **state)
{
    (void)state;
    for (size_t m = 0; m < BASE_COUNT(MODELS); m++)
        for (int kind = STRATEGY_ZERO2; kind <= STRATEGY_HSDP; kind++) {
            struct err e = ERR_INIT;
            struct model model;
            ranks_check(model_find(&model, MODELS[m], &e), &e);
            struct gradients exact =
                gradients_of(MODELS[m], base((enum strategy_kind)kind, 4, false));
            struct gradients got = gradients_of(MODELS[m], base((enum strategy_kind)kind, 4, true));
            assert_memory_equal(&got.norm, &exact.norm, sizeof(double));
            for (int u = 0; u < exact.n; u++) {
                struct unit_layout l;
                model_unit_layout(&model, u, 4, &l);
                for (int i = 0; i < l.n; i++)
                    check_tensor(exact.unit[u] + l.tensor[i].offset,
                        got.unit[u] + l.tensor[i].offset, l.tensor[i].rows * l.tensor[i].cols,
                        MODELS[m]);
                free(exact.unit[u]);
                free(got.unit[u]);
            }
        }
}

int test_fp8_gradients(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sharding_recompute_and_threads_never_change_the_bits),
        cmocka_unit_test(each_is_the_nearest_to_its_own_in_fp32),
    };
    return cmocka_run_group_tests_name("engine/fp8_gradients", tests, NULL, NULL);
}
