#include "planner/network_need.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/str.h"
#include "lib_market.h"
#include "planner/hardware.h"
#include "planner/schedule.h"
#include "planner/simulate.h"

static struct hardware hardware_of(const char *gpu, int64_t gpus, int64_t nodes, double gbps)
{
    struct err e = ERR_INIT;
    struct hardware hw;
    struct offer o = market_offer("x", gpu, gpus, nodes, 1);
    o.inter_gbps_per_node = nodes > 1 ? gbps : -1;
    assert_int_equal(hardware_from_offer(&hw, &o, nodes, &e), RC_OK);
    return hw;
}

/* Operation by operation, over the list that the engine would run. */
static double step_s(const struct schedule *s, struct hardware hw, double between, double inside)
{
    struct err e = ERR_INIT;
    struct machine mc;
    struct simulation x;
    struct op_span *spans = calloc((size_t)s->n_ops + 1, sizeof *spans);
    hw.fabric_bytes_per_s = between;
    hw.link_bytes_per_s = inside;
    assert_int_equal(machine_make(&mc, market_rates, &hw, "berth", &e), RC_OK);
    simulate(&x, s, &mc, spans);
    free(spans);
    return x.step_s;
}

/* Every rate from a thirtieth to thirty times of what is said to be required: steps are over 5 %
 * longer than without limit below it, and nowhere above it. */
static void assert_required(const struct network_need *need, const struct schedule *s,
    const struct hardware *hw, bool is_between)
{
    const double none = 1e30;
    double fabric = hw->fabric_bytes_per_s, link = hw->link_bytes_per_s;
    double least_s = is_between ? step_s(s, *hw, none, link) : step_s(s, *hw, fabric, none);
    double offered_s = step_s(s, *hw, fabric, link);
    assert_true(need->exists);
    assert_true(fabs(need->slowdown - (offered_s / least_s - 1)) < 1e-6);
    assert_int_equal(need->is_bound, offered_s > 1.05 * least_s);
    assert_true(need->required_bytes_per_s > 0);
    for (int i = -30; i <= 30; i++) {
        double rate = need->required_bytes_per_s * exp(log(30) * i / 30.0);
        double now = is_between ? step_s(s, *hw, rate, link) : step_s(s, *hw, fabric, rate);
        if (i < 0 && now <= 1.05 * least_s)
            fail_msg("%g of the rate is enough", rate / need->required_bytes_per_s);
        if (i >= 0 && now > 1.05 * least_s * (1 + 1e-9))
            fail_msg("%g of the rate is not enough", rate / need->required_bytes_per_s);
    }
    double edge = need->required_bytes_per_s / 1.002;
    assert_true(
        (is_between ? step_s(s, *hw, edge, link) : step_s(s, *hw, fabric, edge)) > 1.05 * least_s);
}

static void check(
    const struct strategy *s, const struct hardware *hw, const char *model, bool is_inside_asked)
{
    struct err e = ERR_INIT;
    struct model m;
    struct network_needs n;
    struct schedule *list = NULL;
    assert_int_equal(model_find(&m, model, &e), RC_OK);
    assert_int_equal(schedule_make(&list, &m, s, &e), RC_OK);
    assert_int_equal(network_needs_make(&n, &m, s, hw, "berth", market_rates, &e), RC_OK);
    if (hw->nodes > 1)
        assert_required(&n.between, list, hw, true);
    else
        assert_false(n.between.exists);
    if (is_inside_asked)
        assert_required(&n.inside, list, hw, false);
    schedule_free(list);
}

static struct strategy strategy_of(enum strategy_kind kind, const struct hardware *hw)
{
    struct strategy s = strategy_default(kind, hw->nodes * hw->ranks_per_node, hw->ranks_per_node);
    s.precision = PRECISION_BF16;
    s.seq = 2048;
    s.micro_batch = 2;
    s.grad_accum = 2;
    return s;
}

static void the_rate_required_is_where_brute_force_finds_it(void **state)
{
    (void)state;
    static const enum strategy_kind kinds[] = {STRATEGY_DDP, STRATEGY_ZERO2, STRATEGY_ZERO3};
    static const double offered[] = {25, 400, 3200};
    for (int i = 0; i < 3; i++) {
        struct hardware hw = hardware_of("h100-sxm", 8, 2 + i, offered[i]);
        struct strategy s = strategy_of(kinds[i], &hw);
        check(&s, &hw, "llama-3.2-1b", false);
    }
}

/* Cards without direct links gather over PCIe. */
static void links_inside_a_node_are_asked_about_too(void **state)
{
    (void)state;
    struct hardware hw = hardware_of("rtx4090", 8, 1, 0);
    struct strategy s = strategy_of(STRATEGY_ZERO3, &hw);
    check(&s, &hw, "qwen2.5-0.5b", true);
    hw = hardware_of("h100-sxm", 8, 1, 0);
    s = strategy_of(STRATEGY_ZERO3, &hw);
    check(&s, &hw, "qwen2.5-0.5b", true);
}

static void one_rank_needs_no_wires(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    struct network_needs n;
    struct hardware hw = hardware_of("h100-sxm", 1, 1, 0);
    struct strategy s = strategy_of(STRATEGY_DDP, &hw);
    assert_int_equal(model_find(&m, "gpt2", &e), RC_OK);
    s.seq = 1024;
    assert_int_equal(network_needs_make(&n, &m, &s, &hw, "berth", market_rates, &e), RC_OK);
    assert_false(n.between.exists);
    assert_false(n.inside.exists);
    struct str text = STR_INIT;
    network_needs_describe(&text, &n);
    assert_int_equal(text.len, 0);
    struct json *v = network_needs_json(&n);
    assert_null(json_get(v, "between_nodes"));
    assert_null(json_get(v, "inside_nodes"));
    json_free(v);
    str_release(&text);
}

/* Where shards stay inside a node, only gradients cross: any slower network still does. */
static void the_plans_of_a_search_have_it(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct job j = market_job("llama-2-7b", 1000000000, 2048, 256);
    struct offers *l = offers_new();
    market_add(l, market_offer("slow", "h100-sxm", 8, 4, 16 * USD_MICRO));
    j.objective = OBJECTIVE_TIME;
    struct search *s = market_plans(&j, l, 0);
    struct search_input in = {.job = &j, .offers = l, .rates = market_rates};
    assert_true(s->n_plans == 1 && s->plans[0].nodes > 1);
    assert_false(s->plans[0].knows_network);
    assert_int_equal(search_find_network(s, &in, &e), RC_OK);
    assert_true(s->plans[0].knows_network);
    const struct network_need *need = &s->plans[0].network.between;
    assert_true(fabs(need->offered_bytes_per_s - 50e9) < 1);
    struct str text = STR_INIT;
    network_needs_describe(&text, &s->plans[0].network);
    assert_non_null(strstr(str_text(&text), "400 are offered"));
    str_release(&text);
    search_free(s);
    offers_free(l);
    job_release(&j);
}

int test_network_need(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rate_required_is_where_brute_force_finds_it),
        cmocka_unit_test(links_inside_a_node_are_asked_about_too),
        cmocka_unit_test(one_rank_needs_no_wires),
        cmocka_unit_test(the_plans_of_a_search_have_it),
    };
    return cmocka_run_group_tests_name("network_need", tests, market_setup, market_teardown);
}
