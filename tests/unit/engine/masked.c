/* Loss masks, from the file to the gradient: with any number of targets in any sample, loss and
 * gradient of a step are the means over all its targets, however samples are shared out.
 *
 * The closed form: with n targets in a sample whose own mean loss is l and gradient g, the step's
 * are sum(n l) / sum(n) and sum(n g) / sum(n). */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "engine/comm.h"
#include "engine/data.h"
#include "engine/init.h"
#include "engine/random.h"
#include "lib_ranks.h"

enum { SEQ = 24, SAMPLES = 4, TOKENS = SAMPLES * SEQ + 1 };

/* Targets of the samples: some of each, one whole, one none. */
static bool counts_at(int i)
{
    int sample = (i - 1) / SEQ;
    return sample == 0 ? i % 5 == 0 : sample == 1 ? true : sample == 2 ? false : i % 2 == 0;
}

static struct data *open_data(int64_t vocab)
{
    struct err e = ERR_INIT;
    struct data *d;
    uint16_t ids[TOKENS];
    unsigned char mask[TOKENS];
    char path[64], mask_path[64];
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (uint16_t)(random_bits(5, (uint64_t)i) % (uint64_t)vocab);
        mask[i] = i > 0 && counts_at(i);
    }
    snprintf(path, sizeof(path), "/tmp/berth-masked-%d.u16", (int)getpid());
    snprintf(mask_path, sizeof(mask_path), "/tmp/berth-masked-%d.mask", (int)getpid());
    ranks_check(file_write(path, ids, sizeof(ids), 0600, &e), &e);
    ranks_check(file_write(mask_path, mask, sizeof(mask), 0600, &e), &e);
    struct data_source source = {.path = path, .mask = mask_path, .weight = 1};
    struct data_options o = {.sources = &source, .n = 1, .seq = SEQ, .vocab = vocab, .seed = 4};
    ranks_check(data_open(&d, &o, &e), &e);
    unlink(path);
    unlink(mask_path);
    return d;
}

struct step {
    struct data *data;
    int64_t first; /* position */
    double loss, targets;
    float *gradient; /* on rank 0 */
    size_t elems;
};

struct filling {
    const struct rank *r;
    const struct step *step;
};

static int64_t position_of(const struct filling *f, int64_t micro)
{
    const struct strategy *s = &f->r->schedule->strategy;
    return f->step->first + (micro * s->ranks + f->r->rank) * s->micro_batch;
}

static enum rc fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    const struct filling *f = arg;
    return data_sample(f->step->data, position_of(f, micro), out, e);
}

static void keep_gradient(struct rank *r, struct step *st)
{
    struct err e = ERR_INIT;
    for (int u = 0; u < r->schedule->n_units; u++) {
        const struct unit_layout *l = &r->schedule->unit[u];
        struct state_view v = executor_state(r->x, u, STATE_GRADIENT);
        float *full = malloc((size_t)l->elems * sizeof(float));
        ranks_check(comm_all_gather(r->comm, CHANNEL_COMPUTE, GROUP_SHARD, v.data, full,
                        (size_t)v.count * sizeof(float), &e),
            &e);
        for (int i = 0; i < l->n && r->rank == 0; i++) {
            size_t n = (size_t)(l->tensor[i].rows * l->tensor[i].cols);
            st->gradient = realloc(st->gradient, (st->elems + n) * sizeof(float));
            memcpy(st->gradient + st->elems, full + l->tensor[i].offset, n * sizeof(float));
            st->elems += n;
        }
        free(full);
    }
}

static void one_step(struct rank *r)
{
    struct step *st = r->arg;
    struct err e = ERR_INIT;
    struct filling f = {r, st};
    struct step_params p = {.step = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8};
    struct step_result out;
    for (int64_t m = 0; m < r->schedule->strategy.grad_accum; m++)
        p.local_targets += (double)data_targets(st->data, position_of(&f, m));
    ranks_check(init_state(r->x, 42, &e), &e);
    ranks_check(executor_step(r->x, &p, fill, &f, &out, &e), &e);
    keep_gradient(r, st);
    if (r->rank != 0)
        return;
    st->loss = out.loss;
    st->targets = out.targets;
}

static struct step step_of(const char *model, struct data *d, int64_t first,
    enum strategy_kind kind, int64_t ranks, int64_t accum)
{
    struct step st = {.data = d, .first = first};
    struct rank_options o = {.model = model, .strategy = strategy_default(kind, ranks, ranks)};
    o.strategy.seq = SEQ;
    o.strategy.micro_batch = 1;
    o.strategy.grad_accum = accum;
    o.strategy.precision = PRECISION_FP32;
    ranks_run(&o, one_step, &st);
    return st;
}

/* From steps of one sample each. */
static struct step closed_form(const char *model, struct data *d)
{
    struct step all = {0};
    double *sum = NULL;
    for (int64_t i = 0; i < SAMPLES; i++) {
        if (data_targets(d, i) == 0)
            continue;
        struct step one = step_of(model, d, i, STRATEGY_DDP, 1, 1);
        assert_float_equal(one.targets, (double)data_targets(d, i), 0);
        if (!sum)
            sum = calloc(one.elems, sizeof(*sum));
        for (size_t k = 0; k < one.elems; k++)
            sum[k] += one.targets * (double)one.gradient[k];
        all.loss += one.targets * one.loss;
        all.targets += one.targets;
        all.elems = one.elems;
        free(one.gradient);
    }
    all.loss /= all.targets;
    all.gradient = malloc(all.elems * sizeof(float));
    for (size_t k = 0; k < all.elems; k++)
        all.gradient[k] = (float)(sum[k] / all.targets);
    free(sum);
    return all;
}

static double distance(const struct step *a, const struct step *b)
{
    double difference = 0, norm = 0;
    assert_int_equal(a->elems, b->elems);
    for (size_t i = 0; i < a->elems; i++) {
        difference += pow((double)a->gradient[i] - (double)b->gradient[i], 2);
        norm += pow((double)a->gradient[i], 2);
    }
    return sqrt(difference / norm);
}

static void losses_and_gradients_are_means_over_the_targets_of_all_ranks(void **state)
{
    (void)state;
    static const struct {
        enum strategy_kind kind;
        int64_t ranks, accum;
    } shared[] = {{STRATEGY_DDP, 1, 4}, {STRATEGY_DDP, 2, 2}, {STRATEGY_ZERO1, 2, 2},
        {STRATEGY_ZERO2, 2, 2}, {STRATEGY_ZERO3, 2, 2}, {STRATEGY_ZERO3, 4, 1}};
    static const char *const models[] = {"tiny-llama", "tiny-gpt2"};
    for (size_t m = 0; m < BASE_COUNT(models); m++) {
        struct data *d = open_data(200);
        struct step want = closed_form(models[m], d);
        int targets = 0;
        for (int i = 1; i < TOKENS; i++)
            targets += counts_at(i);
        assert_float_equal(want.targets, targets, 0);
        for (size_t k = 0; k < BASE_COUNT(shared); k++) {
            struct step got =
                step_of(models[m], d, 0, shared[k].kind, shared[k].ranks, shared[k].accum);
            assert_float_equal(got.targets, want.targets, 0);
            assert_float_equal(got.loss, want.loss, 1e-6 * want.loss);
            assert_true(distance(&want, &got) < 2e-6);
            free(got.gradient);
        }
        free(want.gradient);
        data_close(d);
    }
}

/* Nothing was learnt, so nothing decays and no momentum moves on. */
static void masked_step(struct rank *r)
{
    struct step *st = r->arg;
    struct err e = ERR_INIT;
    struct filling f = {r, st};
    struct step_params p = {
        .step = 1, .lr = 0.1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.5};
    struct step_result out;
    ranks_check(init_state(r->x, 42, &e), &e);
    uint64_t before = ranks_state_hash(r);
    ranks_check(executor_step(r->x, &p, fill, &f, &out, &e), &e);
    ranks_check(executor_flush(r->x, &e), &e);
    uint64_t after = ranks_state_hash(r);
    if (!out.is_skipped || !isnan(out.loss) || out.targets > 0 || after != before)
        ranks_check(err_set(&e, RC_FAILED, "a step without targets was one"), &e);
}

static void a_step_without_targets_makes_no_update(void **state)
{
    (void)state;
    struct data *d = open_data(200);
    struct step st = {.data = d};
    while (data_targets(d, st.first) > 0)
        st.first++;
    for (int offloads = 0; offloads < 2; offloads++) {
        struct rank_options o = {
            .model = "tiny-llama", .strategy = strategy_default(STRATEGY_ZERO3, 1, 1)};
        o.strategy.seq = SEQ;
        o.strategy.micro_batch = o.strategy.grad_accum = 1;
        o.strategy.precision = PRECISION_FP32;
        o.strategy.offload = offloads ? OFFLOAD_OPTIMIZER : 0;
        ranks_run(&o, masked_step, &st);
    }
    data_close(d);
}

int test_masked(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_without_targets_makes_no_update),
        cmocka_unit_test(losses_and_gradients_are_means_over_the_targets_of_all_ranks),
    };
    return cmocka_run_group_tests_name("engine/masked", tests, NULL, NULL);
}
