#include "planner/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/units.h"
#include "inventory/offer.h"

static struct job job_of(int64_t tokens)
{
    struct err e = ERR_INIT;
    struct job j;
    job_init(&j);
    assert_int_equal(model_find(&j.model, "gpt2", &e), RC_OK);
    j.has_model = true;
    j.tokens = tokens;
    j.seq = 1024;
    j.global_batch_tokens = 1024 * 512;
    assert_int_equal(job_finish(&j, &e), RC_OK);
    return j;
}

static struct offer offer_at(int64_t micro_per_hour)
{
    struct offer o;
    offer_init(&o);
    o.device = DEVICE_GPU;
    o.market = MARKET_ON_DEMAND;
    o.price_usd_micro_per_hour = micro_per_hour;
    return o;
}

static struct estimate steps_of(double seconds)
{
    return (struct estimate){
        .step_s = seconds, .step_low_s = seconds / 2, .step_high_s = 2 * seconds};
}

/* 1,000 steps of 36 s are 10 h; 5 min boot, 60 s staging, 30 s + 36 s warm-up: 10 h 7 min 6 s at
 * 10 $/h on 2 nodes are 202.366... $. */
static void adds_up_hours_and_dollars(void **state)
{
    (void)state;
    struct job j = job_of(1000LL * 512 * 1024);
    struct offer o = offer_at(10 * USD_MICRO);
    struct estimate x = steps_of(36);
    struct bill b;
    bill_make(&b, &j, &o, 2, &x);
    assert_true(fabs(b.run_s[BILL_MID] - 36426) < 1e-6);
    assert_true(llabs(b.total_micro_usd[BILL_MID] - 202366667) <= 2);
    assert_true(b.total_micro_usd[BILL_LOW] < b.total_micro_usd[BILL_MID]);
    assert_true(b.total_micro_usd[BILL_HIGH] > b.total_micro_usd[BILL_MID]);
}

static void check_lines(const struct bill *b)
{
    for (int c = 0; c < BILL_CASES; c++) {
        int64_t usd = 0;
        double s = 0;
        for (int l = 0; l < COST_LINES; l++) {
            usd += b->line_micro_usd[c][l];
            assert_true(b->line_micro_usd[c][l] >= (c ? b->line_micro_usd[c - 1][l] : 0));
        }
        for (int l = 0; l < BILL_LINES; l++) {
            s += b->line_s[c][l];
            assert_true(b->line_s[c][l] >= (c ? b->line_s[c - 1][l] : 0));
        }
        assert_int_equal(usd, b->total_micro_usd[c]);
        assert_true(fabs(s - b->run_s[c]) < 1e-6);
        assert_true(b->billed_s[c] >= b->run_s[c] - 1e-6);
    }
}

/* Whatever is rounded up, by the micro-dollar, the hour or the day. */
static void lines_sum_exactly_and_rise_from_low_to_high(void **state)
{
    (void)state;
    const double units[] = {-1, 1, 60, 3600, 86400}, least[] = {-1, 30, 24 * 30};
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        for (int k = 0; k < 60; k++) {
            struct job j = job_of((int64_t)(1 + 13 * k) * 1000 * 1000);
            struct offer o = offer_at(3333333 + k);
            o.setup_usd_micro = 1234567;
            o.granularity_s = units[u];
            o.min_hours = least[k % 3];
            struct estimate x = steps_of(7.77 + 3 * k);
            x.checkpoint_stall_s = 7;
            struct bill b;
            bill_make(&b, &j, &o, 3, &x);
            check_lines(&b);
            assert_false(bill_is_absurd(&b));
        }
    }
}

static void bills_whole_hours_minimum_and_term(void **state)
{
    (void)state;
    struct job j = job_of(512 * 1024);
    struct offer o = offer_at(6 * USD_MICRO);
    struct estimate x = steps_of(1);
    struct bill b;
    o.granularity_s = 3600;
    bill_make(&b, &j, &o, 1, &x);
    assert_int_equal(b.total_micro_usd[BILL_MID], 6 * USD_MICRO);
    o.granularity_s = 60;
    o.minimum_s = 7200;
    bill_make(&b, &j, &o, 1, &x);
    assert_int_equal(b.total_micro_usd[BILL_MID], 12 * USD_MICRO);
    o.min_hours = 24;
    bill_make(&b, &j, &o, 1, &x);
    assert_int_equal(b.total_micro_usd[BILL_MID], 144 * USD_MICRO);
}

static void unknown_price_is_not_zero_and_owned_nodes_are_free(void **state)
{
    (void)state;
    struct job j = job_of(512 * 1024);
    struct estimate x = steps_of(1);
    struct bill b;
    struct offer o = offer_at(OFFER_UNKNOWN);
    bill_make(&b, &j, &o, 1, &x);
    assert_false(b.is_priced);
    assert_null(bill_cost_json(&b));
    o = offer_at(0);
    o.market = MARKET_OWNED;
    bill_make(&b, &j, &o, 1, &x);
    assert_true(b.is_priced);
    assert_int_equal(b.total_micro_usd[BILL_HIGH], 0);
    assert_true(b.line_s[BILL_MID][BILL_BOOT] <= 0);
}

/* 2 h of steps with a checkpoint every half hour: four stalls of 10 s, and the last one written. */
static void checkpoints_stall_and_the_last_is_waited_for(void **state)
{
    (void)state;
    struct job j = job_of(200LL * 512 * 1024);
    struct offer o = offer_at(USD_MICRO);
    struct estimate x = steps_of(36.5);
    x.checkpoint_stall_s = 10;
    x.checkpoint_s = 100;
    struct bill b;
    bill_make(&b, &j, &o, 1, &x);
    assert_true(fabs(b.line_s[BILL_MID][BILL_CHECKPOINTS] - 140) < 1e-9);
}

static void endless_runs_do_not_overflow(void **state)
{
    (void)state;
    struct job j = job_of(1000000000000000000);
    struct offer o = offer_at(100000 * USD_MICRO);
    struct estimate x = steps_of(1e9);
    struct bill b;
    bill_make(&b, &j, &o, 100000, &x);
    check_lines(&b);
    assert_true(bill_is_absurd(&b));
    x = steps_of(INFINITY);
    bill_make(&b, &j, &o, 1, &x);
    assert_true(bill_is_absurd(&b));
}

int test_cost(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_up_hours_and_dollars),
        cmocka_unit_test(lines_sum_exactly_and_rise_from_low_to_high),
        cmocka_unit_test(bills_whole_hours_minimum_and_term),
        cmocka_unit_test(unknown_price_is_not_zero_and_owned_nodes_are_free),
        cmocka_unit_test(checkpoints_stall_and_the_last_is_waited_for),
        cmocka_unit_test(endless_runs_do_not_overflow),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
