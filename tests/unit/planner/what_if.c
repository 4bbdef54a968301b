#include "planner/what_if.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "lib_market.h"

static struct what_if parsed(const char *text)
{
    struct err e = ERR_INIT;
    struct what_if w;
    if (what_if_parse(&w, text, &e))
        fail_msg("%s", e.msg);
    return w;
}

static void reads_factors_shares_and_amounts(void **state)
{
    (void)state;
    struct what_if w = parsed(" network=0.5x,  price.h100=+10% memory=-4GiB price.cpu=0.25 ");
    assert_string_equal(w.text, "network=0.5x price.h100=+10% memory=-4GiB price.cpu=0.25");
    assert_int_equal(w.n, 4);
    assert_int_equal(w.changes[0].how, WHAT_IF_TIMES);
    assert_true(fabs(w.changes[0].value - 0.5) < 1e-12);
    assert_true(fabs(w.changes[1].value - 1.1) < 1e-12);
    assert_string_equal(w.changes[1].gpu, "h100");
    assert_true(w.changes[1].n_ids >= 2); /* sxm and pcie at least */
    assert_int_equal(w.changes[2].how, WHAT_IF_PLUS);
    assert_true(fabs(w.changes[2].value + 4.0 * (1LL << 30)) < 1);
    assert_int_equal(w.changes[3].how, WHAT_IF_SET);
    assert_true(fabs(w.changes[3].value - 0.25) < 1e-12);
}

static void refuses_what_says_nothing(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"", "changes nothing"},
        {" , ", "changes nothing"},
        {"network", "'network' is no change"},
        {"network=", "'network=' is no change"},
        {"nework=0.5x", "nothing called 'nework' can be changed; network, link"},
        {"network=fast", "'fast' says no change of network"},
        {"network=10%", "'10%' needs a sign: +10% or -10%"},
        {"network=x", "'x' says no change"},
        {"network=0.5xx", "'0.5xx' says no change"},
        {"price=-101%", "leaves nothing of price"},
        {"price=-1x", "leaves nothing of price"},
        {"price=nanx", "says no change"},
        {"price=1e9x", "more than there can be"},
        {"mfu=0x", "leaves nothing of mfu"},
        {"mfu=300", "'300' says no change of mfu"},
        {"memory=-100%", "leaves nothing of memory"},
        {"memory=80", "'80' says no change of memory"},
        {"memory=4GiBs", "says no change of memory"},
        {"price.h200sx=0.5x", "unknown GPU 'h200sx'"},
        {"price.=0.5x", "'' names no GPU"},
        {"failures.h100=2x", "failures cannot be changed for one GPU alone"},
        {"failures=3", "'3' says no change of failures"},
        {"network=0.5x 0.5x", "'0.5x' is no change"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct err e = ERR_INIT;
        struct what_if w;
        if (what_if_parse(&w, bad[i][0], &e) != RC_USAGE)
            fail_msg("'%s' is taken", bad[i][0]);
        if (!strstr(e.msg, bad[i][1]))
            fail_msg("'%s' is refused with: %s", bad[i][0], e.msg);
    }
    struct err e = ERR_INIT;
    struct what_if w;
    struct str many = STR_INIT;
    for (int i = 0; i <= WHAT_IF_CHANGES; i++)
        str_add(&many, "mfu=1x ");
    assert_int_equal(what_if_parse(&w, str_text(&many), &e), RC_USAGE);
    str_release(&many);
}

/* Two kinds that may be many nodes, and a spot one. */
static struct offers *market(void)
{
    struct offers *l = offers_new();
    market_add(l, market_offer("a", "h100-sxm", 8, 4, 20 * USD_MICRO));
    market_add(l, market_offer("b", "a100-80-sxm", 8, 8, 10 * USD_MICRO));
    struct offer o = market_offer("c", "h100-sxm", 8, 1, 12 * USD_MICRO);
    o.market = MARKET_SPOT;
    o.interruptions_per_hour = 0.05;
    o.notice_s = 30;
    market_add(l, o);
    return l;
}

struct asked {
    struct job job;
    struct offers *offers;
    struct search *search;
    struct search_input in;
};

static struct asked ask(const char *model, enum objective objective)
{
    struct asked a = {.job = market_job(model, 5000000000, 2048, 256), .offers = market()};
    a.job.objective = objective;
    a.search = market_plans(&a.job, a.offers, 0);
    return a;
}

static void release(struct asked *a)
{
    search_free(a->search);
    offers_free(a->offers);
    job_release(&a->job);
}

static struct what_if_outcome answer(struct asked *a, const char *text)
{
    struct err e = ERR_INIT;
    struct what_if w = parsed(text);
    struct what_if_outcome x;
    a->in = (struct search_input){.job = &a->job, .offers = a->offers, .rates = market_rates};
    const struct plan *stated = a->search->n_plans > 0 ? &a->search->plans[0] : NULL;
    if (what_if_plan(&x, &w, &a->in, stated, &e))
        fail_msg("%s", e.msg);
    return x;
}

/* The same as a list of offers that says so itself. */
static void assert_as_planned(
    struct asked *a, const char *text, void (*change)(struct offer *), size_t changed)
{
    struct what_if_outcome x = answer(a, text);
    struct offers *l = offers_new();
    for (size_t i = 0; i < offers_count(a->offers); i++) {
        struct offer o = *offers_at(a->offers, i);
        change(&o);
        market_add(l, o);
    }
    struct search *s = market_plans(&a->job, l, 0);
    assert_int_equal(x.offers_changed, changed);
    assert_int_equal(x.has_plan, s->n_plans > 0);
    assert_int_equal(x.plan.offer, s->plans[0].offer);
    assert_int_equal(x.plan.nodes, s->plans[0].nodes);
    assert_memory_equal(&x.plan.bill, &s->plans[0].bill, sizeof x.plan.bill);
    search_free(s);
    offers_free(l);
}

static void half_network(struct offer *o)
{
    if (o->max_nodes_one_fabric > 1)
        o->inter_gbps_per_node /= 2;
}

static void set_network(struct offer *o)
{
    if (o->max_nodes_one_fabric > 1)
        o->inter_gbps_per_node = 50;
}

static void dearer_h100(struct offer *o)
{
    if (strcmp(o->gpu, "h100-sxm") == 0)
        o->price_usd_micro_per_hour = o->price_usd_micro_per_hour * 3 / 2;
}

static void cheaper_by_a_dollar(struct offer *o)
{
    o->price_usd_micro_per_hour -= 8 * USD_MICRO;
}

static void less_memory(struct offer *o)
{
    o->gpu_memory_bytes -= 40LL << 30;
}

static void more_interruptions(struct offer *o)
{
    if (o->market == MARKET_SPOT)
        o->interruptions_per_hour *= 4;
}

static void changes_of_offers_are_as_if_the_offers_said_so(void **state)
{
    (void)state;
    struct asked a = ask("llama-2-7b", OBJECTIVE_TIME);
    assert_as_planned(&a, "network=0.5x", half_network, 2);
    assert_as_planned(&a, "network=50", set_network, 2);
    assert_as_planned(&a, "price.h100=+50%", dearer_h100, 2);
    assert_as_planned(&a, "price=-1", cheaper_by_a_dollar, 3);
    assert_as_planned(&a, "memory=-40GiB", less_memory, 3);
    release(&a);
    a = ask("llama-3.2-1b", OBJECTIVE_COST);
    a.job.spot = SPOT_ONLY;
    assert_as_planned(&a, "interruptions=4x", more_interruptions, 1);
    release(&a);
}

/* A single step and node: products take all the time, so half the speed takes twice as long. */
static void rates_are_multiplied(void **state)
{
    (void)state;
    struct asked a = ask("llama-3.2-1b", OBJECTIVE_COST);
    const struct plan *p = &a.search->plans[0];
    assert_int_equal(p->nodes, 1);
    struct what_if_outcome x = answer(&a, "mfu=0.5x");
    assert_int_equal(x.offers_changed, 3);
    assert_true(x.plan.estimate.step_s > 1.9 * p->estimate.step_s);
    assert_true(x.plan.estimate.step_s < 2.001 * p->estimate.step_s);
    x = answer(&a, "mfu=0.5x mfu=2x link=1x host-link=1x failures=1x network=1x");
    assert_memory_equal(&x.plan.bill, &p->bill, sizeof p->bill);
    assert_false(x.flips || x.is_other_strategy);
    x = answer(&a, "link=0.001x");
    assert_true(x.plan.estimate.step_s > p->estimate.step_s);
    x = answer(&a, "mfu.h200-sxm=0.5x");
    assert_int_equal(x.offers_changed, 0);
    assert_memory_equal(&x.plan.bill, &p->bill, sizeof p->bill);
    release(&a);
}

/* The bounds of the search hold for changed market_rates, too. */
static void nothing_is_pruned_that_would_win_then(void **state)
{
    (void)state;
    static const char *const questions[] = {"mfu=0.3x", "mfu=20x network=0.1x",
        "link=0.01x mfu.a100=3x", "host-link=0.1x failures=50x"};
    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        struct err e = ERR_INIT;
        struct asked a = ask("qwen2.5-0.5b", i % 2 ? OBJECTIVE_TIME : OBJECTIVE_COST);
        a.job.max_gpus = 16;
        struct what_if w = parsed(questions[i]);
        struct what_if_outcome bounded = answer(&a, questions[i]), full;
        a.in.tries_everything = true;
        assert_int_equal(what_if_plan(&full, &w, &a.in, &a.search->plans[0], &e), RC_OK);
        assert_int_equal(bounded.plan.offer, full.plan.offer);
        assert_memory_equal(&bounded.plan.bill, &full.plan.bill, sizeof full.plan.bill);
        release(&a);
    }
}

static void nodes_fail_so_many_times_as_often(void **state)
{
    (void)state;
    struct asked a = ask("llama-3.2-1b", OBJECTIVE_COST);
    const struct bill *was = &a.search->plans[0].bill;
    struct what_if_outcome x = answer(&a, "failures=10x");
    assert_false(x.flips);
    for (int c = 0; c < BILL_CASES; c++)
        assert_true(fabs(x.plan.bill.stops[c] / was->stops[c] - 10) < 1e-6);
    release(&a);
}

/* 20 $/h against 10 $/h for a third of the speed: the first falls when it costs four times as much,
 * and what it would cost then is said. */
static void says_when_another_is_rented_and_what_staying_costs(void **state)
{
    (void)state;
    struct asked a = ask("llama-3.2-1b", OBJECTIVE_COST);
    const struct plan *p = &a.search->plans[0];
    assert_int_equal(p->offer, 0);
    struct what_if_outcome x = answer(&a, "price.h100-sxm=4x");
    assert_true(x.flips && x.has_plan && x.has_kept);
    assert_int_equal(x.plan.offer, 1);
    assert_int_equal(x.kept.offer, 0);
    double ratio =
        (double)x.kept.bill.total_micro_usd[BILL_MID] / (double)p->bill.total_micro_usd[BILL_MID];
    assert_true(fabs(ratio - 4) < 1e-3);
    struct what_if w = parsed("price.h100-sxm=4x");
    struct json *v = what_if_json(&w, &x, p, &a.in);
    assert_true(json_bool(v, "flips", false));
    assert_string_equal(json_str(json_get(v, "plan"), "id", ""), "b");
    assert_string_equal(json_str(json_get(v, "stated_offer"), "id", ""), "a");
    assert_true(
        fabs(json_num(json_get(json_get(v, "stated_offer"), "change"), "cost", 0) - 3) < 1e-3);
    json_free(v);
    struct str text = STR_INIT;
    what_if_describe(&text, &w, &x, p, &a.in);
    assert_non_null(strstr(str_text(&text), "another choice: "));
    assert_non_null(strstr(str_text(&text), "the offer that was first would cost $"));
    str_release(&text);
    release(&a);
}

/* Too little memory for anything; a price below nothing is nobody's. */
static void says_why_there_is_no_plan_then(void **state)
{
    (void)state;
    struct asked a = ask("llama-2-7b", OBJECTIVE_COST);
    struct what_if_outcome x = answer(&a, "memory=4GiB");
    assert_true(x.flips && !x.has_plan);
    assert_non_null(strstr(x.why_none, "does not fit"));
    x = answer(&a, "price=-100 memory=-1GiB");
    assert_true(!x.has_plan);
    assert_non_null(strstr(x.why_none, "price would be less than nothing"));
    a.job.deadline_s = 60;
    search_free(a.search);
    a.search = market_plans(&a.job, a.offers, 0);
    assert_int_equal(a.search->n_plans, 0);
    x = answer(&a, "mfu=100000x link=1000x network=1000x");
    assert_false(x.flips || x.has_plan); /* boot alone takes longer */
    a.job.deadline_s = 24 * 3600;
    search_free(a.search);
    a.search = market_plans(&a.job, a.offers, 0);
    if (a.search->n_plans == 0) {
        x = answer(&a, "mfu=10x");
        assert_true(x.flips && x.has_plan);
    }
    release(&a);
}

int test_what_if(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_factors_shares_and_amounts),
        cmocka_unit_test(refuses_what_says_nothing),
        cmocka_unit_test(changes_of_offers_are_as_if_the_offers_said_so),
        cmocka_unit_test(rates_are_multiplied),
        cmocka_unit_test(nothing_is_pruned_that_would_win_then),
        cmocka_unit_test(nodes_fail_so_many_times_as_often),
        cmocka_unit_test(says_when_another_is_rented_and_what_staying_costs),
        cmocka_unit_test(says_why_there_is_no_plan_then),
    };
    return cmocka_run_group_tests_name("what_if", tests, market_setup, market_teardown);
}
