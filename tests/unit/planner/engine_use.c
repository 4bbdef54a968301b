/* Engines other than the bundled one: what they can be asked for, and what is chosen. */
#include "planner/engine_use.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/hardware.h"

#include "lib_market.h"

static struct offer h100s(int64_t nodes)
{
    struct offer o = market_offer("x", "h100-sxm", 8, nodes, 20 * USD_MICRO);
    o.ram_bytes = 2048LL << 30;
    if (nodes > 1)
        o.inter_gbps_per_node = 3200;
    return o;
}

static struct job job_for(enum engine g)
{
    struct job j;
    job_init(&j);
    assert_int_equal(model_find(&j.model, "llama-3.1-8b", NULL), RC_OK);
    j.has_model = true;
    j.tokens = 1000000000;
    j.seq = 4096;
    j.global_batch_tokens = 64 * 4096;
    j.engine = g;
    engine_stack(j.stack, market_rates, g);
    assert_int_equal(job_finish(&j, NULL), RC_OK);
    return j;
}

static void stacks_belong_to_the_engine_with_the_longest_name(void **state)
{
    (void)state;
    const struct {
        const char *stack;
        enum engine engine;
    } want[] = {
        {"fsdp2", ENGINE_FSDP2},
        {"fsdp2-torchtitan+compile", ENGINE_FSDP2},
        {"fsdp1-composer", ENGINE_FSDP1},
        {"megatron-bridge-26.06", ENGINE_MEGATRON},
        {"megatron-deepspeed", ENGINE_MEGATRON_DEEPSPEED},
        {"megatron-deepspeed+plain", ENGINE_MEGATRON_DEEPSPEED},
        {"deepspeed-hf+plain", ENGINE_DEEPSPEED},
        {"deepspeed-accelerate", ENGINE_ACCELERATE_ZERO3},
        {"berth", ENGINE_BERTH},
        {"jax-maxtext", ENGINE_COUNT},
        {"fsdp22", ENGINE_COUNT},
        {"", ENGINE_COUNT},
    };
    for (size_t i = 0; i < BASE_COUNT(want); i++)
        assert_int_equal(engine_of_stack(want[i].stack), want[i].engine);
}

static void an_engine_is_predicted_with_its_most_measured_stack(void **state)
{
    (void)state;
    char stack[RATES_NAME];
    const char *text = "{\"schema\":\"calibration/1\",\"entries\":["
                       "{\"device\":\"gpu\",\"chip\":\"*\",\"stack\":\"fsdp2-a\",\"date\":\"\","
                       "\"source\":\"\",\"rows\":3,\"values\":{}},"
                       "{\"device\":\"gpu\",\"chip\":\"*\",\"stack\":\"fsdp2-b+compile\","
                       "\"date\":\"\",\"source\":\"\",\"rows\":7,\"values\":{}},"
                       "{\"device\":\"gpu\",\"chip\":\"*\",\"stack\":\"fsdp2-c+plain\",\"date\":"
                       "\"\",\"source\":\"\",\"rows\":9,\"values\":{}},"
                       "{\"device\":\"gpu\",\"chip\":\"*\",\"stack\":\"fsdp2*\",\"date\":\"\","
                       "\"source\":\"\",\"rows\":99,\"values\":{}}]}";
    struct json *doc = NULL;
    struct rates *few = NULL;
    struct err e = ERR_INIT;
    assert_int_equal(json_parse(&doc, text, strlen(text), &e), RC_OK);
    assert_int_equal(rates_from_json(&few, doc, &e), RC_OK);
    engine_stack(stack, few, ENGINE_FSDP2);
    assert_string_equal(stack, "fsdp2-b+compile");
    engine_stack(stack, few, ENGINE_MEGATRON);
    assert_string_equal(stack, "megatron");
    assert_int_equal(engine_check_stack(few, ENGINE_FSDP2, "fsdp2-c+plain", &e), RC_OK);
    assert_int_equal(engine_check_stack(few, ENGINE_FSDP2, "fsdp2-d", &e), RC_USAGE);
    assert_string_equal(e.msg, "no stack 'fsdp2-d' of engine fsdp2 was measured; there are "
                               "fsdp2-a, fsdp2-b+compile, fsdp2-c+plain");
    rates_free(few);
}

static void what_an_engine_lacks_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct strategy s = strategy_default(STRATEGY_ZERO3, 16, 8);
    s.engine = ENGINE_MEGATRON;
    assert_int_equal(engine_check(&s, &e), RC_INVALID);
    assert_string_equal(e.msg, "engine megatron has no zero3");
    s.engine = ENGINE_FSDP2;
    assert_int_equal(engine_check(&s, &e), RC_OK);
    s.parallel.tensor = 2;
    assert_int_equal(engine_check(&s, &e), RC_OK);
    s.engine = ENGINE_FSDP1;
    assert_int_equal(engine_check(&s, &e), RC_INVALID);
    s.parallel.tensor = 1;
    s.offload = OFFLOAD_OPTIMIZER;
    assert_int_equal(engine_check(&s, &e), RC_INVALID);
}

/* Parts and what the allocator holds are the peak; it fits when the probability says so. */
static void parts_and_allocator_are_the_peak(void **state)
{
    (void)state;
    struct offer o = h100s(1);
    struct hardware hw;
    struct machine mc;
    struct job j = job_for(ENGINE_FSDP2);
    assert_int_equal(hardware_from_offer(&hw, &o, 1, NULL), RC_OK);
    assert_int_equal(machine_make(&mc, market_rates, &hw, j.stack, NULL), RC_OK);
    bool has_fitting = false, has_too_large = false;
    for (int mb = 1; mb <= 32; mb++) {
        struct strategy s = strategy_default(STRATEGY_ZERO3, 8, 8);
        struct estimate x;
        engine_take(&s, ENGINE_FSDP2, j.stack);
        s.seq = 4096;
        s.micro_batch = mb;
        assert_int_equal(estimate_make(&x, &j.model, &s, &mc, NULL), RC_OK);
        int64_t sum = x.packing_bytes;
        for (int i = 0; i < PART_COUNT; i++)
            sum += x.part_bytes[i];
        assert_true(x.packing_bytes > 0);
        assert_in_range(sum - x.peak_bytes + 16, 0, 32); /* parts are rounded to bytes */
        assert_int_equal(x.fit_probability >= 0.5, estimate_fits(&x));
        has_fitting = has_fitting || estimate_fits(&x);
        has_too_large = has_too_large || !estimate_fits(&x);
    }
    assert_true(has_fitting && has_too_large);
    job_release(&j);
}

static double fastest_of_stage(
    const struct job *j, const struct offer *o, enum space_stage stage, struct strategy *best)
{
    double least = INFINITY;
    struct hardware hw;
    struct machine mc;
    struct space space;
    const struct shape_of_ranks shape = {8, 8, true};
    assert_int_equal(hardware_from_offer(&hw, o, 1, NULL), RC_OK);
    assert_int_equal(machine_make(&mc, market_rates, &hw, j->stack, NULL), RC_OK);
    space_make(&space, j, &shape, stage);
    assert_true(space.n > 0 || stage != SPACE_USUAL);
    for (size_t i = 0; i < space.n; i++) {
        struct estimate x;
        assert_int_equal(space.items[i].engine, j->engine);
        assert_int_equal(engine_check(&space.items[i], NULL), RC_OK);
        assert_int_equal(estimate_quick(&x, &j->model, &space.items[i], &mc, NULL), RC_OK);
        double run = bill_run_s(j, o, x.step_s, estimate_saves(&x));
        if (estimate_fits(&x) && run < least) {
            least = run;
            *best = space.items[i];
        }
    }
    space_release(&space);
    return least;
}

/* The fastest of the first stage of the space in which anything fits, by trying it here. */
static double fastest_run_s(const struct job *j, const struct offer *o, struct strategy *best)
{
    double least = INFINITY;
    for (int stage = SPACE_USUAL; stage < SPACE_STAGES && isinf(least); stage++)
        least = fastest_of_stage(j, o, (enum space_stage)stage, best);
    return least;
}

static void the_plan_of_an_engine_is_the_fastest_that_fits(void **state)
{
    (void)state;
    for (int g = ENGINE_FSDP1; g < ENGINE_COUNT; g++) {
        struct job j = job_for((enum engine)g);
        struct offers *list = offers_new();
        struct offer o = h100s(1);
        struct search *s = NULL;
        struct strategy best;
        struct err e = ERR_INIT;
        offers_add(list, &o, NULL);
        struct search_input in = {.job = &j, .offers = list, .rates = market_rates};
        assert_int_equal(search_run(&s, &in, &e), RC_OK);
        double least = fastest_run_s(&j, &o, &best);
        assert_int_equal(s->n_plans, least < INFINITY);
        if (s->n_plans) {
            const struct plan *p = &s->plans[0];
            assert_int_equal(p->strategy.kind, best.kind);
            assert_int_equal(p->strategy.micro_batch, best.micro_batch);
            assert_int_equal(p->strategy.recompute, best.recompute);
            assert_int_equal(p->strategy.offload, best.offload);
            assert_false(p->is_launchable);
            assert_non_null(strstr(p->not_launchable, "berth export --to "));
        } else {
            assert_true(s->n_rejected > 0);
            assert_true(s->rejected[0].short_by > 0);
        }
        search_free(s);
        offers_free(list);
        job_release(&j);
    }
}

static void strategies_of_engines_survive_json(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct strategy s = strategy_default(STRATEGY_ZERO1, 64, 8), back;
    engine_take(&s, ENGINE_MEGATRON, "megatron-core+plain");
    s.parallel = (struct parallel){
        .tensor = 8, .pipeline = 4, .context = 2, .expert = 1, .virtual_stages = 2};
    s.precision = PRECISION_FP8;
    s.shard_degree = 2;
    struct json *v = strategy_to_json(&s);
    assert_int_equal(strategy_from_json(&back, v, NULL), RC_OK);
    assert_memory_equal(&back, &s, sizeof s);
    json_free(v);
    s = strategy_default(STRATEGY_ZERO3, 8, 8);
    v = strategy_to_json(&s);
    assert_null(json_get(v, "engine"));
    json_add_str(v, "engine", "nothing");
    assert_int_equal(strategy_from_json(&back, v, &e), RC_USAGE);
    json_free(v);
}

/* Over 64 ranks, or over 8 that share and 8 that split: each saves as much. */
static void split_states_are_saved_in_parts(void **state)
{
    (void)state;
    struct offer o = h100s(8);
    struct hardware hw;
    struct machine mc;
    struct model m;
    assert_int_equal(model_find(&m, "llama-3-70b", NULL), RC_OK);
    assert_int_equal(hardware_from_offer(&hw, &o, 8, NULL), RC_OK);
    assert_int_equal(machine_make(&mc, market_rates, &hw, "megatron", NULL), RC_OK);
    struct strategy s = strategy_default(STRATEGY_ZERO1, 64, 8);
    engine_take(&s, ENGINE_MEGATRON, "megatron");
    struct save_s whole = estimate_save_s(1e12, &s, &mc);
    s.parallel.tensor = 8;
    s.shard_degree = 8;
    struct save_s split = estimate_save_s(1e12, &s, &mc);
    assert_true(fabs(split.stall / whole.stall - 1) < 1e-12);
}

int test_engine_use(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stacks_belong_to_the_engine_with_the_longest_name),
        cmocka_unit_test(an_engine_is_predicted_with_its_most_measured_stack),
        cmocka_unit_test(what_an_engine_lacks_is_refused),
        cmocka_unit_test(parts_and_allocator_are_the_peak),
        cmocka_unit_test(the_plan_of_an_engine_is_the_fastest_that_fits),
        cmocka_unit_test(strategies_of_engines_survive_json),
        cmocka_unit_test(split_states_are_saved_in_parts),
    };
    return cmocka_run_group_tests_name(
        "planner/engine_use", tests, market_setup_fitted, market_teardown);
}
