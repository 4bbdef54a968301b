/* What the search holds to be the least is never more than what the whole schedule takes. */
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
#include "planner/search_cells.h"

#include "lib_market.h"

/* Tied and not, of few blocks and of many, with adapters in few bits and without. */
static struct job random_job(int64_t ranks)
{
    static const char *const models[] = {"gpt2", "qwen2.5-0.5b", "llama-3.2-1b", "qwen2.5-7b"};
    static const struct adapter adapters[] = {{8, ADAPT_ATTENTION, 16}, {16, ADAPT_ALL, 4},
        {1, ADAPT_DOWN, 8}, {32, ADAPT_Q | ADAPT_UP, 16}};
    static const char sgd[] = "{\"optimizer\": \"sgd\"}";
    struct job j =
        market_job(models[market_pick(4)], 1000000000, 512, ranks * ((int64_t)1 << market_pick(4)));
    j.model.layers = 1 + market_pick(market_pick(2) ? 4 : 30);
    j.allow_fp32 = market_pick(2);
    if (market_pick(3) == 0)
        j.model.adapter = adapters[market_pick(4)];
    else
        j.allow_fp8 = market_pick(2);
    j.fp8_gradients = j.model.layers % 4 == 1;
    j.master_bytes = MASTER_FP32 - (int)(j.model.layers % 5 % 3) * 2;
    j.moment_form = (enum moment_form)(j.model.layers % 7 % 3);
    if (j.model.layers % 3 == 0)
        assert_int_equal(json_parse(&j.training, sgd, strlen(sgd), NULL), RC_OK);
    return j;
}

static void check_strategy(const struct job *j, const struct bounds *b, size_t i,
    const struct strategy *s, const struct machine *mc, double step_s)
{
    struct err e = ERR_INIT;
    struct estimate whole;
    struct strategy filled = *s;
    assert_int_equal(estimate_fill(&filled, &j->model, mc, &e), RC_OK);
    assert_int_equal(estimate_make(&whole, &j->model, &filled, mc, &e), RC_OK);
    int64_t live = whole.peak_bytes - whole.packing_bytes;
    struct node_bytes node = bounds_node_bytes(b, i);
    if (isfinite(step_s) ? step_s > whole.step_s : whole.peak_bytes <= whole.capacity_bytes)
        fail_msg("%lld blocks, %s of %lld ranks, strategy %zu: %.9g above %.9g s",
            (long long)j->model.layers, strategy_kind_name(s->kind), (long long)s->ranks, i, step_s,
            whole.step_s);
    if (bounds_live_bytes(b, i) > (double)live)
        fail_msg("%lld blocks, %s of %lld ranks, strategy %zu: %.0f above %lld bytes",
            (long long)j->model.layers, strategy_kind_name(s->kind), (long long)s->ranks, i,
            bounds_live_bytes(b, i), (long long)live);
    assert_true(node.host <= whole.host_ram_bytes && node.disk <= whole.disk_bytes);
}

static void check_space(const struct job *j, const struct machine *mc, enum space_stage stage)
{
    struct err e = ERR_INIT;
    int64_t rpn = mc->hw.ranks_per_node;
    struct shape_of_ranks shape = {rpn * mc->hw.nodes, rpn, true};
    struct track t = {.machine = *mc};
    struct space space;
    struct bounds *b = NULL;
    struct works *works = works_new(&j->model, j->seq);
    space_make(&space, j, &shape, stage);
    assert_int_equal(bounds_new(&b, works, &space, true, &e), RC_OK);
    double *step_s = base_calloc(space.n + 1, sizeof *step_s);
    bounds_step_s(b, &t, step_s);
    for (size_t i = 0; i < space.n; i++)
        if (market_pick(20) == 0 && machine_computes(mc, space.items[i].precision))
            check_strategy(j, b, i, &space.items[i], mc, step_s[i]);
    free(step_s);
    free(t.compute_s);
    bounds_free(b);
    works_free(works);
    space_release(&space);
}

static void bounds_stay_below_whole_schedules(void **state)
{
    (void)state;
    static const char *const gpus[] = {"rtx4090", "a100-80-sxm", "h100-sxm", "v100-32"};
    for (int k = 0; k < 40; k++) {
        struct err e = ERR_INIT;
        int64_t nodes = 1 + market_pick(2), gpn = (int64_t)1 << market_pick(4);
        struct job j = random_job(nodes * gpn);
        struct offer o = market_offer("x", gpus[market_pick(4)], gpn, nodes, 1);
        struct hardware hw;
        struct machine mc;
        o.inter_gbps_per_node = (double)(100 << market_pick(5));
        assert_int_equal(hardware_from_offer(&hw, &o, nodes, &e), RC_OK);
        assert_int_equal(machine_make(&mc, market_rates, &hw, "berth", &e), RC_OK);
        for (int stage = SPACE_USUAL; stage < SPACE_STAGES; stage++)
            check_space(&j, &mc, (enum space_stage)stage);
        job_release(&j);
    }
}

int test_search_bound(void)
{
    market_seed = 20261130;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_stay_below_whole_schedules),
    };
    return cmocka_run_group_tests_name("search_bound", tests, market_setup, market_teardown);
}
