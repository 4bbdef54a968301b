/* How weights and optimizer states are kept: the same bits however they are sharded, placed, saved
 * and loaded. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "engine/checkpoint.h"
#include "engine/init.h"
#include "engine/poison.h"
#include "lib_ranks.h"
#include "lib_scratch.h"

/* Steps first + 1 .. last, from the newest checkpoint or from the start, and a save if wanted. */
struct course {
    bool is_loading, is_saving, is_sync;
    int64_t last;
    enum rc rc; /* of rank 0, of loading */
    char msg[ERR_MSG_MAX];
    uint64_t loaded_hash, hash; /* of all states, after loading and at the end */
    double loss[64];
    uint64_t seed;   /* of the start; 0: 5 */
    int64_t middles; /* masters of rank 0 between two numbers of bf16 */
};

static int64_t count_middles(struct rank *r)
{
    int64_t n = 0;
    for (int u = 0; u < r->schedule->n_units; u++) {
        struct state_view v = ranks_state(r, u, STATE_MASTER);
        for (int64_t i = 0; i < v.count; i++) {
            uint32_t bits;
            memcpy(&bits, &v.data[i], sizeof(bits));
            n += (bits & 0xffff) == 0x8000;
        }
        free(v.data);
    }
    return n;
}

static void go(struct rank *r)
{
    struct course *c = r->arg;
    struct err e = ERR_INIT, passed_over = ERR_INIT;
    int host_of[16] = {0};
    struct checkpoint_options o = {
        .dir = scratch, .host_of = host_of, .is_async = !c->is_sync, .keep = 2, .collective_s = 60};
    struct checkpoint *k;
    struct checkpoint_info info = {.step = 0, .seed = 5};
    struct checkpoint_report report;
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(checkpoint_open(&k, r->x, &o, &e), &e);
    enum rc rc = c->is_loading ? checkpoint_load(k, -1, &info, &passed_over, &e)
                               : init_state(r->x, c->seed ? c->seed : 5, &e);
    uint64_t loaded = rc ? 0 : ranks_state_hash(r);
    if (!rc && c->last > info.step)
        ranks_train(r, info.step + 1, c->last - info.step, c->loss);
    info.step = c->last;
    if (!rc && c->is_saving) {
        ranks_check(checkpoint_start(k, &info, &e), &e);
        ranks_check(checkpoint_end(k, true, &report, &e), &e);
    }
    uint64_t hash = rc ? 0 : ranks_state_hash(r);
    if (r->rank == 0) {
        c->rc = rc;
        c->middles = count_middles(r);
        c->loaded_hash = loaded;
        c->hash = hash;
        memcpy(c->msg, e.msg, sizeof(c->msg));
    }
    assert_true(checkpoint_close(k));
}

static struct course run(const char *model, struct strategy s, struct course c)
{
    struct rank_options o = {
        .model = model, .strategy = s, .threads = 1, .is_poisoning = POISON_WORKS};
    ranks_run(&o, go, &c);
    return c;
}

static struct strategy base(enum strategy_kind kind, int64_t ranks, enum precision p)
{
    struct strategy s = strategy_default(kind, ranks, ranks);
    s.seq = 24;
    s.precision = p;
    return s;
}

/* --- SGD --- */

static struct strategy sgd(enum strategy_kind kind, int64_t ranks, enum precision p)
{
    struct strategy s = base(kind, ranks, p);
    strategy_take_optimizer(&s, OPTIMIZER_SGD);
    return s;
}

static void sgd_gives_the_same_bits_however_it_is_sharded_and_placed(void **state)
{
    (void)state;
    static const unsigned placements[] = {OFFLOAD_OPTIMIZER, OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS,
        OFFLOAD_OPTIMIZER | OFFLOAD_DISK, OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK};
    for (int p = PRECISION_FP32; p <= PRECISION_BF16; p++) {
        struct course three = {.last = 3};
        enum precision precision = (enum precision)p;
        uint64_t want = run("tiny-llama", sgd(STRATEGY_DDP, 3, precision), three).hash;
        for (int k = STRATEGY_ZERO1; k <= STRATEGY_ZERO3; k++)
            assert_true(
                run("tiny-llama", sgd((enum strategy_kind)k, 3, precision), three).hash == want);
        for (size_t i = 0; i < BASE_COUNT(placements); i++) {
            struct strategy s = sgd(STRATEGY_ZERO3, 3, precision);
            s.offload = placements[i];
            assert_true(run("tiny-llama", s, three).hash == want);
        }
    }
}

static void sgd_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    struct err e;
    for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO3; k++) {
        struct strategy s = sgd((enum strategy_kind)k, 2, PRECISION_FP32);
        struct course whole = run("tiny-gpt2", s, (struct course){.last = 4});
        dir_remove(scratch, &e);
        run("tiny-gpt2", s, (struct course){.last = 2, .is_saving = true, .is_sync = k % 2});
        s = sgd(k == STRATEGY_DDP ? STRATEGY_ZERO3 : STRATEGY_DDP, 2, PRECISION_FP32);
        struct course rest = run("tiny-gpt2", s, (struct course){.last = 4, .is_loading = true});
        assert_int_equal(rest.rc, RC_OK);
        assert_true(rest.hash == whole.hash);
        assert_memory_equal(rest.loss, whole.loss + 2, 2 * sizeof(double));
        s = sgd(STRATEGY_ZERO1, 3, PRECISION_BF16);
        struct course other = run("tiny-gpt2", s, (struct course){.last = 2, .is_loading = true});
        assert_true(other.hash == rest.loaded_hash);
    }
}

static void states_of_another_optimizer_are_refused_by_name(void **state)
{
    (void)state;
    struct err e;
    for (int is_sgd = 0; is_sgd < 2; is_sgd++) {
        struct strategy a = base(STRATEGY_ZERO1, 2, PRECISION_FP32);
        struct strategy b = sgd(STRATEGY_ZERO1, 2, PRECISION_FP32);
        dir_remove(scratch, &e);
        run("tiny-llama", is_sgd ? b : a, (struct course){.last = 1, .is_saving = true});
        struct course c = run("tiny-llama", is_sgd ? a : b, (struct course){.is_loading = true});
        assert_int_equal(c.rc, RC_INVALID);
        assert_non_null(strstr(c.msg, is_sgd ? "of optimizer sgd, the plan's is adamw"
                                             : "of optimizer adamw, the plan's is sgd"));
    }
}

/* --- master weights in other forms --- */

static const int FORMS[] = {MASTER_FP32, MASTER_SPLIT, MASTER_NONE};

static struct strategy form(enum strategy_kind kind, int64_t ranks, int master_bytes)
{
    struct strategy s = base(kind, ranks, PRECISION_BF16);
    s.master_bytes = master_bytes;
    if (kind == STRATEGY_HSDP)
        s.shard_degree = 2;
    return s;
}

/* What is rounded at random depends on seed, step and element alone. */
static void every_form_gives_the_same_bits_however_it_is_sharded(void **state)
{
    (void)state;
    struct course three = {.last = 3};
    for (size_t f = 0; f < BASE_COUNT(FORMS); f++)
        for (int o = OPTIMIZER_ADAMW; o <= OPTIMIZER_SGD; o++) {
            struct strategy s = form(STRATEGY_DDP, 3, FORMS[f]);
            strategy_take_optimizer(&s, (enum optimizer)o);
            struct course want = run("tiny-llama", s, three);
            for (int k = STRATEGY_ZERO1; k <= STRATEGY_ZERO3; k++) {
                s = form((enum strategy_kind)k, 3, FORMS[f]);
                strategy_take_optimizer(&s, (enum optimizer)o);
                struct course got = run("tiny-llama", s, three);
                assert_memory_equal(got.loss, want.loss, 3 * sizeof(double));
                assert_true(got.hash == want.hash);
            }
            struct strategy t = form(STRATEGY_HSDP, 4, FORMS[f]);
            strategy_take_optimizer(&t, (enum optimizer)o);
            want = run("tiny-gpt2", t, three);
            t.splits_over_replicas = true;
            assert_true(run("tiny-gpt2", t, three).hash == want.hash);
        }
}

/* Halves are the whole: as long as no weight lies in the middle between two in bf16, which the
 * forms round to different sides, all bits are those of a master in fp32. */
static void a_split_master_has_the_bits_of_one_in_fp32(void **state)
{
    (void)state;
    struct course c = {.seed = 0};
    do {
        c.seed++;
        assert_true(c.seed < 50);
        c = run("tiny-llama", form(STRATEGY_DDP, 1, MASTER_FP32), c);
    } while (c.middles > 0);
    struct course one = {.last = 1, .seed = c.seed};
    for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO3; k++) {
        struct course whole = run("tiny-llama", form((enum strategy_kind)k, 2, MASTER_FP32), one);
        struct course halves = run("tiny-llama", form((enum strategy_kind)k, 2, MASTER_SPLIT), one);
        assert_true(halves.loaded_hash == whole.loaded_hash);
        assert_memory_equal(halves.loss, whole.loss, sizeof(double));
        assert_true(halves.hash == whole.hash);
    }
}

static void every_form_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    struct err e;
    for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++)
        for (size_t f = 0; f < BASE_COUNT(FORMS); f++) {
            struct strategy s = form((enum strategy_kind)k, k == STRATEGY_HSDP ? 4 : 2, FORMS[f]);
            struct course whole = run("tiny-llama", s, (struct course){.last = 4});
            dir_remove(scratch, &e);
            struct course half = {.last = 2, .is_saving = true, .is_sync = f % 2};
            half = run("tiny-llama", s, half);
            struct course rest =
                run("tiny-llama", s, (struct course){.last = 4, .is_loading = true});
            assert_int_equal(rest.rc, RC_OK);
            assert_true(rest.loaded_hash == half.hash && rest.hash == whole.hash);
            assert_memory_equal(rest.loss, whole.loss + 2, 2 * sizeof(double));
        }
}

/* Through fp32: nothing is lost but what a form cannot hold. */
static void every_form_loads_what_another_saved_at_another_world_size(void **state)
{
    (void)state;
    struct err e;
    for (size_t f = 0; f < BASE_COUNT(FORMS); f++) {
        dir_remove(scratch, &e);
        struct strategy s = form(f % 2 ? STRATEGY_DDP : STRATEGY_ZERO3, 2, FORMS[f]);
        struct course saved = run("tiny-gpt2", s, (struct course){.last = 2, .is_saving = true});
        uint64_t pure = 0;
        for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO3; k++)
            for (size_t g = 0; g < BASE_COUNT(FORMS); g++) {
                s = form((enum strategy_kind)k, 3, FORMS[g]);
                struct course c =
                    run("tiny-gpt2", s, (struct course){.last = 2, .is_loading = true});
                assert_int_equal(c.rc, RC_OK);
                bool is_whole = FORMS[g] != MASTER_NONE || FORMS[f] == MASTER_NONE;
                pure = is_whole || pure ? pure : c.hash;
                assert_true(c.hash == (is_whole ? saved.hash : pure));
            }
    }
}

/* --- moments in 8 bits --- */

static const enum moment_form MOMENTS[] = {MOMENT_FP32, MOMENT_BLOCKS, MOMENT_FP8};

static struct strategy moments(
    enum strategy_kind kind, int64_t ranks, enum moment_form f, enum optimizer o)
{
    struct strategy s = base(kind, ranks, PRECISION_FP32);
    strategy_take_optimizer(&s, o);
    strategy_take_moments(&s, f);
    if (kind == STRATEGY_HSDP)
        s.shard_degree = 2;
    return s;
}

/* Blocks end where parts do, and scales of fp8 are of parts, whoever holds them. */
static void moments_have_the_same_bits_however_they_are_sharded_and_placed(void **state)
{
    (void)state;
    struct course three = {.last = 3};
    static const unsigned placements[] = {OFFLOAD_OPTIMIZER, OFFLOAD_OPTIMIZER | OFFLOAD_DISK,
        OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK}; /* the last of zero3 */
    for (size_t f = 1; f < BASE_COUNT(MOMENTS); f++)
        for (int o = OPTIMIZER_ADAMW; o <= OPTIMIZER_SGD; o++) {
            struct strategy s = moments(STRATEGY_DDP, 3, MOMENTS[f], (enum optimizer)o);
            struct course want = run("tiny-gpt2", s, three);
            for (int k = STRATEGY_ZERO1; k <= STRATEGY_ZERO3; k++) {
                s.kind = (enum strategy_kind)k;
                s.shard_degree = 3;
                struct course got = run("tiny-gpt2", s, three);
                assert_memory_equal(got.loss, want.loss, 3 * sizeof(double));
                assert_true(got.hash == want.hash);
            }
            for (size_t i = 0; i < BASE_COUNT(placements); i++) {
                s.offload = placements[i];
                assert_true(run("tiny-gpt2", s, three).hash == want.hash);
            }
        }
}

/* Blocks are those of the unit; a scale of fp8 is of a part of it. */
static void blocks_do_not_depend_on_the_number_of_replicas(void **state)
{
    (void)state;
    struct course three = {.last = 3};
    struct strategy s = moments(STRATEGY_HSDP, 4, MOMENT_BLOCKS, OPTIMIZER_ADAMW);
    uint64_t want = run("tiny-llama", s, three).hash;
    s.splits_over_replicas = true;
    assert_true(run("tiny-llama", s, three).hash == want);
}

static void moments_go_on_with_the_same_bits(void **state)
{
    (void)state;
    struct err e;
    for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++)
        for (size_t f = 1; f < BASE_COUNT(MOMENTS); f++) {
            enum optimizer o = k % 3 == 2 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
            struct strategy s =
                moments((enum strategy_kind)k, k == STRATEGY_HSDP ? 4 : 2, MOMENTS[f], o);
            if (k == STRATEGY_ZERO1)
                s.offload = OFFLOAD_OPTIMIZER | OFFLOAD_DISK;
            struct course whole = run("tiny-gpt2", s, (struct course){.last = 4});
            dir_remove(scratch, &e);
            struct course half = {.last = 2, .is_saving = true, .is_sync = f % 2};
            half = run("tiny-gpt2", s, half);
            struct course rest =
                run("tiny-gpt2", s, (struct course){.last = 4, .is_loading = true});
            assert_int_equal(rest.rc, RC_OK);
            assert_true(rest.loaded_hash == half.hash);
            assert_true(rest.hash == whole.hash);
            assert_memory_equal(rest.loss, whole.loss + 2, 2 * sizeof(double));
        }
}

/* What is read in fp32, of blocks also elsewhere, is what was saved. */
static void moments_load_into_any_form_at_another_world_size(void **state)
{
    (void)state;
    struct err e;
    for (size_t f = 0; f < BASE_COUNT(MOMENTS); f++) {
        dir_remove(scratch, &e);
        struct strategy s = moments(STRATEGY_ZERO2, 2, MOMENTS[f], OPTIMIZER_ADAMW);
        struct course saved = run("tiny-llama", s, (struct course){.last = 2, .is_saving = true});
        for (size_t g = 0; g < BASE_COUNT(MOMENTS); g++) {
            uint64_t hash = 0;
            for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO3; k++) {
                s = moments((enum strategy_kind)k, 3, MOMENTS[g], OPTIMIZER_ADAMW);
                struct course c =
                    run("tiny-llama", s, (struct course){.last = 3, .is_loading = true});
                assert_int_equal(c.rc, RC_OK);
                bool is_whole =
                    MOMENTS[g] == MOMENT_FP32 || (MOMENTS[g] == MOMENT_BLOCKS && f == g);
                assert_true((c.loaded_hash == saved.hash) == is_whole || f == g);
                hash = hash ? hash : c.hash;
                assert_true(c.hash == hash);
            }
        }
    }
}

int test_states(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_gives_the_same_bits_however_it_is_sharded_and_placed),
        cmocka_unit_test(sgd_goes_on_with_the_same_bits),
        cmocka_unit_test(states_of_another_optimizer_are_refused_by_name),
        cmocka_unit_test(every_form_gives_the_same_bits_however_it_is_sharded),
        cmocka_unit_test(a_split_master_has_the_bits_of_one_in_fp32),
        cmocka_unit_test(every_form_goes_on_with_the_same_bits),
        cmocka_unit_test(every_form_loads_what_another_saved_at_another_world_size),
        cmocka_unit_test(moments_have_the_same_bits_however_they_are_sharded_and_placed),
        cmocka_unit_test(blocks_do_not_depend_on_the_number_of_replicas),
        cmocka_unit_test(moments_go_on_with_the_same_bits),
        cmocka_unit_test(moments_load_into_any_form_at_another_world_size),
    };
    return cmocka_run_group_tests_name("engine/states", tests, scratch_make, scratch_remove);
}
