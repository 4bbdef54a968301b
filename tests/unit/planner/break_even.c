#include "planner/break_even.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "lib_market.h"

/* Three GPUs on demand and one of them on spot nodes, with the billing rules that markets have. */
static struct offers *random_market(void)
{
    static const char *const gpus[] = {"h100-sxm", "a100-80-sxm", "b200", "h100-sxm"};
    static const int64_t per_hour[] = {16, 10, 32, 9}; /* dollars of a node, about */
    struct offers *l = offers_new();
    for (int i = 0; i < 4; i++) {
        char id[8] = {(char)('a' + i), '\0'};
        int64_t price = per_hour[i] * (USD_MICRO / 2 + market_pick(USD_MICRO));
        struct offer o = market_offer(id, gpus[i], 8, 1 + market_pick(8), price);
        if (i == 3) {
            o.market = MARKET_SPOT;
            o.interruptions_per_hour = 0.001 * (double)market_pick(20);
            o.notice_s = (double)market_pick(2) * 120;
        }
        o.granularity_s = market_pick(2) ? 3600 : 1;
        o.setup_usd_micro = market_pick(3) * USD_MICRO;
        o.egress_usd_micro_per_gib = market_pick(2) * 100000;
        o.storage_usd_micro_per_gib_month = market_pick(2) * 200000;
        market_add(l, o);
    }
    return l;
}

/* Is offer i the first when its node-hour costs so much? */
static bool wins_at(const struct job *j, const struct offers *l, size_t i, int64_t price_micro)
{
    struct offer o = *offers_at(l, i);
    o.price_usd_micro_per_hour = price_micro;
    struct offers *changed = market_with(l, i, o);
    struct search *s = market_plans(j, changed, 0);
    bool wins = s->n_plans > 0 && s->plans[0].offer == i;
    search_free(s);
    offers_free(changed);
    return wins;
}

enum { CENT = 10000 };

static void check_tie(const struct job *j, const struct offers *l, const struct break_even *t)
{
    int64_t tie = t->tie_usd_micro;
    if (tie < 0) {
        if (wins_at(j, l, t->offer, 0))
            fail_msg("seed %u: offer %zu wins for nothing", market_seed, t->offer);
        return;
    }
    if (tie >= CENT && !wins_at(j, l, t->offer, tie - CENT))
        fail_msg("seed %u: offer %zu does not win a cent below %lld", market_seed, t->offer,
            (long long)tie);
    if (wins_at(j, l, t->offer, tie + CENT))
        fail_msg(
            "seed %u: offer %zu wins a cent above %lld", market_seed, t->offer, (long long)tie);
}

/* The market is planned again with that price of a node-hour, a cent less and a cent more. */
static void a_cent_decides_who_wins(void **state)
{
    (void)state;
    static const char *const models[] = {"gpt2", "qwen2.5-0.5b", "llama-3.2-1b"};
    int ties = 0;
    for (int i = 0; i < 12; i++) {
        struct err e = ERR_INIT;
        market_seed = 77 + (uint32_t)i;
        struct offers *l = random_market();
        struct job j =
            market_job(models[i % 3], 2000000000 + market_pick(100) * 50000000, 1024, 256);
        j.objective = i % 2 ? OBJECTIVE_BALANCED : OBJECTIVE_COST;
        j.spot = SPOT_ALLOW;
        struct search *s = market_plans(&j, l, 0);
        struct search_input in = {.job = &j, .offers = l, .rates = market_rates};
        struct break_even *all = NULL;
        size_t n = 0;
        assert_int_equal(break_even_find(&all, &n, &in, s, 0, &e), RC_OK);
        assert_int_equal(n, 3);
        for (size_t k = 0; k < n; k++) {
            assert_true(all[k].decides);
            ties += all[k].tie_usd_micro > 0;
            check_tie(&j, l, &all[k]);
        }
        free(all);
        search_free(s);
        offers_free(l);
        job_release(&j);
    }
    assert_true(ties > 25);
}

/* 8 GPUs at 16 $/h against 8 at 10 $/h, without fees and by the second: the price of equal cost is
 * what the first costs over the hours of the other. */
static void it_is_the_cost_of_the_first_over_the_hours_of_the_other(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct job j = market_job("gpt2", 5000000000, 1024, 256);
    struct offers *l = offers_new();
    market_add(l, market_offer("a", "h100-sxm", 8, 1, 16 * USD_MICRO));
    market_add(l, market_offer("b", "a100-80-sxm", 8, 1, 10 * USD_MICRO));
    for (int time = 0; time < 2; time++) {
        j.objective = time ? OBJECTIVE_TIME : OBJECTIVE_COST;
        struct search *s = market_plans(&j, l, 0);
        struct search_input in = {.job = &j, .offers = l, .rates = market_rates};
        struct break_even *all = NULL;
        size_t n = 0;
        assert_int_equal(break_even_find(&all, &n, &in, s, 0, &e), RC_OK);
        assert_int_equal(n, 1);
        double usd = (double)s->plans[0].bill.total_micro_usd[BILL_MID];
        double tie = usd / ceil(s->plans[1].bill.run_s[BILL_MID]) * 3600;
        assert_true(fabs((double)all[0].tie_usd_micro - tie) < 100);
        assert_int_equal(all[0].rank, 2);
        assert_int_equal(all[0].decides, !time);
        struct json *v = break_even_json(all, n, &in);
        struct str text = STR_INIT;
        break_even_describe(&text, v, 1);
        assert_non_null(
            strstr(str_text(&text), time ? "would cost the same at $" : "would win below $"));
        assert_true(fabs(json_num(json_at(v, 0), "break_even_usd_per_gpu_hour", 0) -
                         tie / 8 / (double)USD_MICRO) < 1e-4);
        json_free(v);
        str_release(&text);
        free(all);
        search_free(s);
    }
    offers_free(l);
    job_release(&j);
}

/* Too late at any price, does not fit at any price, dearer than nothing by its fee alone. */
static void no_price_makes_up_for_a_limit(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct job j = market_job("llama-3.2-1b", 5000000000, 2048, 256);
    struct offers *l = offers_new();
    market_add(l, market_offer("fast", "h100-sxm", 8, 1, 16 * USD_MICRO));
    market_add(l, market_offer("late", "l4", 8, 1, USD_MICRO));
    struct offer fee = market_offer("fee", "b200", 8, 1, 16 * USD_MICRO);
    fee.setup_usd_micro = 100000 * USD_MICRO;
    market_add(l, fee);
    struct search *s = market_plans(&j, l, 0);
    double fast_s = 0;
    for (size_t i = 0; i < s->n_plans; i++)
        if (s->plans[i].offer == 0)
            fast_s = s->plans[i].bill.run_s[BILL_MID];
    search_free(s);
    j.deadline_s = 1.1 * fast_s;
    s = market_plans(&j, l, 0);
    assert_int_equal(s->plans[0].offer, 0);
    struct search_input in = {.job = &j, .offers = l, .rates = market_rates};
    struct break_even *all = NULL;
    size_t n = 0;
    assert_int_equal(break_even_find(&all, &n, &in, s, 0, &e), RC_OK);
    assert_int_equal(n, 2);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(all[i].tie_usd_micro, -1);
        assert_non_null(strstr(
            all[i].why_never, all[i].offer == 1 ? "misses the deadline" : "even for nothing"));
        check_tie(&j, l, &all[i]);
    }
    struct json *v = break_even_json(all, n, &in);
    assert_null(json_get(json_at(v, 0), "break_even_usd_per_gpu_hour"));
    json_free(v);
    free(all);
    search_free(s);
    offers_free(l);
    job_release(&j);
}

/* A list of one plan still has a runner-up of another kind; a budget does not hide what could come
 * below it. */
static void the_other_kind_is_found_beyond_the_list_and_beyond_the_budget(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct job j = market_job("gpt2", 5000000000, 1024, 256);
    struct offers *l = offers_new();
    market_add(l, market_offer("a", "h100-sxm", 8, 1, 16 * USD_MICRO));
    market_add(l, market_offer("a2", "h100-sxm", 8, 1, 17 * USD_MICRO));
    market_add(l, market_offer("b", "a100-80-sxm", 8, 1, 90 * USD_MICRO));
    for (int i = 0; i < 2; i++) {
        struct search *s = market_plans(&j, l, i ? 0 : 1);
        struct search_input in = {
            .job = &j, .offers = l, .rates = market_rates, .max_plans = i ? 0 : 1};
        struct break_even *all = NULL;
        size_t n = 0;
        if (i)
            assert_int_equal(s->n_plans, 2); /* the third is over the budget */
        assert_int_equal(break_even_find(&all, &n, &in, s, 0, &e), RC_OK);
        assert_int_equal(n, 1);
        assert_int_equal(all[0].offer, 2);
        assert_int_equal(all[0].rank, 0);
        assert_true(all[0].tie_usd_micro > USD_MICRO);
        check_tie(&j, l, &all[0]);
        j.budget_micro_usd = s->plans[0].bill.total_micro_usd[BILL_MID] * 3 / 2;
        free(all);
        search_free(s);
    }
    offers_free(l);
    job_release(&j);
}

int test_break_even(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cent_decides_who_wins),
        cmocka_unit_test(it_is_the_cost_of_the_first_over_the_hours_of_the_other),
        cmocka_unit_test(no_price_makes_up_for_a_limit),
        cmocka_unit_test(the_other_kind_is_found_beyond_the_list_and_beyond_the_budget),
    };
    return cmocka_run_group_tests_name("break_even", tests, market_setup, market_teardown);
}
