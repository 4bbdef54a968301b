#include "planner/cost.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/str.h"
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
    o.gpus_per_node = 8;
    o.price_usd_micro_per_hour = micro_per_hour;
    return o;
}

static struct estimate steps_of(double seconds)
{
    return (struct estimate){
        .step_s = seconds, .step_low_s = seconds / 2, .step_high_s = 2 * seconds};
}

/* Of 16 GPUs, three times as often as Llama 3's: 419 in 54 days on 16,384. */
static const double stops_per_s = 3 * 16 * 419.0 / (16384.0 * 54 * 24 * 3600);

/* 1,000 steps of 36 s are 10 h; 5 min boot, 60 s staging, 30 s + 36 s warm-up: 10 h 7 min 6 s at
 * 10 $/h on 2 nodes are 202.366... $. A stop undoes half of 30 min, and takes the first 426 s
 * again: 1,326 s. */
static void adds_up_hours_and_dollars(void **state)
{
    (void)state;
    struct job j = job_of(1000LL * 512 * 1024);
    j.checkpoint_every_s = 1800;
    struct offer o = offer_at(10 * USD_MICRO);
    struct estimate x = steps_of(36);
    struct bill b;
    bill_make(&b, &j, &o, 2, &x);
    double lost_s = 36000 * stops_per_s * 1326;
    assert_true(lost_s > 12 && lost_s < 13);
    assert_true(fabs(b.run_s[BILL_MID] - 36426 - lost_s) < 1e-6);
    /* billed by the whole second */
    double usd = ceil(36426 + lost_s) * 20 / 3600;
    assert_true(fabs((double)b.total_micro_usd[BILL_MID] / 1e6 - usd) <= 2e-6);
    assert_true(fabs(b.restart_s - 426) < 1e-9);
    assert_true(fabs(b.between_stops_s * stops_per_s - 1) < 1e-9);
    assert_true(fabs(b.stops[BILL_MID] - 36000 * stops_per_s) < 1e-9);
    assert_false(b.never_ends);
    assert_true(b.total_micro_usd[BILL_LOW] < b.total_micro_usd[BILL_MID]);
    assert_true(b.total_micro_usd[BILL_HIGH] > b.total_micro_usd[BILL_MID]);
}

/* GPT-2 has 124,439,808 parameters, which are published in 16 bits; 12.5e6 bytes a second. */
static void local_weights_are_uploaded_and_those_on_the_nodes_are_not(void **state)
{
    (void)state;
    static const struct {
        const char *weights;
        int64_t stated_bytes;
        double seconds;
    } cases[] = {{"", 0, 0}, {"host:/m", 0, 0}, {"shared:/m", 0, 0},
        {"local:m", 0, 248879616 / 12.5e6}, {"m", 0, 248879616 / 12.5e6}, {"m", 500000000, 40},
        {"", 500000000, 40}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct job j = job_of(1000LL * 512 * 1024);
        struct offer o = offer_at(10 * USD_MICRO);
        struct estimate x = steps_of(36);
        struct bill b;
        j.weights_bytes = cases[i].stated_bytes;
        snprintf(j.weights, sizeof j.weights, "%s", cases[i].weights);
        bill_make(&b, &j, &o, 1, &x);
        assert_true(fabs(b.line_s[BILL_MID][BILL_WEIGHTS] - cases[i].seconds) < 1e-6);
    }
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
            o.interruptions_per_hour = k % 4 ? -1 : 0.01 * k;
            o.storage_usd_micro_per_gib_month = k % 5 ? -1 : 70000;
            if (k % 2)
                str_copy(j.eval_data, sizeof j.eval_data, "local:held_out.txt");
            j.weights_bytes = k % 3 ? 0 : 1LL << 30;
            j.tokenising_s = 7 * (k % 4);
            struct estimate x = steps_of(7.77 + 3 * k);
            x.checkpoint_stall_s = 7;
            x.checkpoint_bytes = 12LL << 30;
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
    j.checkpoint_every_s = 1800;
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

/* --- stops --- */

/* A spot node of 8 GPUs that goes every 10 h. 1,000 steps of 36 s, a save every 30 min that stalls
 * 10 s and takes 100 s; a restart takes 5 min + 60 s + 66 s + 100 s. */
static struct bill spot_bill(double notice_s, int64_t nodes)
{
    struct job j = job_of(1000LL * 512 * 1024);
    struct offer o = offer_at(10 * USD_MICRO);
    struct estimate x = steps_of(36);
    struct bill b;
    j.checkpoint_every_s = 1800;
    o.market = MARKET_SPOT;
    o.interruptions_per_hour = 0.1;
    o.notice_s = notice_s;
    x.checkpoint_stall_s = 10;
    x.checkpoint_s = 100;
    bill_make(&b, &j, &o, nodes, &x);
    assert_false(bill_ignores_interruptions(&o));
    return b;
}

/* Work lost, restarts, and waiting for replacements, which are 360 s behind. */
static double stopped_s(const struct bill *b)
{
    const double *line = b->line_s[BILL_MID];
    assert_true(fabs(line[BILL_REPLACEMENTS] - 360 * b->stops[BILL_MID]) < 1e-6);
    return line[BILL_FAILURES] + line[BILL_REPLACEMENTS];
}

static void interruptions_cost_half_an_interval_or_the_save_in_the_notice(void **state)
{
    (void)state;
    double failures_per_s = stops_per_s / 2, interruptions_per_s = 0.1 / 3600;
    struct bill b = spot_bill(109, 1); /* a second too short */
    double lost = 36000 * (failures_per_s + interruptions_per_s) * (900 + 526);
    assert_true(fabs(stopped_s(&b) - lost) < 1e-6);
    assert_false(b.saves_in_notice);
    b = spot_bill(120, 1);
    lost = 36000 * (failures_per_s * (900 + 526) + interruptions_per_s * (110 + 526));
    assert_true(fabs(stopped_s(&b) - lost) < 1e-6);
    assert_true(b.saves_in_notice);
    b = spot_bill(-1, 3); /* three nodes stop three times as often */
    lost = 36000 * 3 * (failures_per_s + interruptions_per_s) * (900 + 526);
    assert_true(fabs(stopped_s(&b) - lost) < 1e-6);
    assert_false(b.saves_in_notice);
}

/* The exact expectation with exponential stops: M (e^((t + d)/M) - 1) e^(R/M) for every t of work.
 */
static void the_first_order_is_close_to_the_exact_time_where_it_is_used(void **state)
{
    (void)state;
    for (int64_t nodes = 1; nodes <= 6; nodes++) {
        struct bill b = spot_bill(-1, nodes);
        double m = 1 / ((double)nodes * (stops_per_s / 2 + 0.1 / 3600));
        double exact = 36000 / 1800.0 * m * exp(526 / m) * (exp(1810 / m) - 1);
        double mine = 36000 + stopped_s(&b) + 200;
        assert_true(mine < exact && mine > exact / 1.1);
        assert_false(b.never_ends);
    }
}

/* Half of the time is lost when 1,800 + 526 s are lost every 4,652 s: with 7.7 nodes. */
static void what_stops_too_often_never_ends(void **state)
{
    (void)state;
    assert_false(spot_bill(-1, 7).never_ends);
    assert_true(spot_bill(-1, 8).never_ends);
    assert_false(spot_bill(120, 8).never_ends); /* time to save */
    assert_true(spot_bill(120, 1000).never_ends);
}

static void an_unknown_rate_is_not_counted_and_said(void **state)
{
    (void)state;
    struct offer o = offer_at(1);
    assert_false(bill_ignores_interruptions(&o));
    o.market = MARKET_SPOT;
    assert_true(bill_ignores_interruptions(&o));
    o.interruptions_per_hour = 0;
    assert_false(bill_ignores_interruptions(&o));
}

/* Time wasted per second, to the first order; the best interval lies where it is least. */
static double wasted(double t, double d, double m, double r)
{
    return d / t + (t / 2 + r) / m;
}

static void the_optimal_interval_wastes_least(void **state)
{
    (void)state;
    const double d = 10, m = 1e6, r = 500;
    double best = bill_optimal_interval_s(d, m, r);
    assert_true(fabs(best / sqrt(2 * d * m) - 1) < 0.01); /* Young */
    assert_true(fabs(best - (10 + sqrt(2 * 1000500.0 * 10 + 100))) < 1e-6);
    assert_true(wasted(best, d, m, r) < wasted(best * 1.1, d, m, r));
    assert_true(wasted(best, d, m, r) < wasted(best / 1.1, d, m, r));
}

static void a_job_that_does_not_say_how_often_saves_at_the_best_interval(void **state)
{
    (void)state;
    struct job j = job_of(1000LL * 512 * 1024);
    struct offer o = offer_at(USD_MICRO);
    struct estimate x = steps_of(360);
    struct bill b;
    x.checkpoint_stall_s = 10;
    x.checkpoint_s = 100;
    bill_make(&b, &j, &o, 2, &x);
    double r = 300 + 60 + 30 + 360 + 100;
    double best = 10 + sqrt(2 * (1 / stops_per_s + r) * 10 + 100);
    assert_true(fabs(b.optimal_interval_s / best - 1) < 1e-9);
    assert_true(best > 7200); /* rarer than anybody wants to bet on */
    assert_true(fabs(b.interval_s - 7200) < 1e-9);
    x.checkpoint_stall_s = 1;
    bill_make(&b, &j, &o, 8, &x);
    assert_true(b.optimal_interval_s > 600 && b.optimal_interval_s < 7200);
    assert_true(b.interval_s >= b.optimal_interval_s && b.interval_s < b.optimal_interval_s + 1);
    x.checkpoint_stall_s = 10;
    j.checkpoint_every_s = 1800;
    bill_make(&b, &j, &o, 2, &x);
    assert_true(fabs(b.optimal_interval_s / best - 1) < 1e-9);
    assert_true(fabs(b.interval_s - 1800) < 1e-9);
    j.checkpoint_every_s = 0;
    x.checkpoint_stall_s = 0; /* nothing to lose by it, but one is over before the next */
    x.checkpoint_s = 7200;
    bill_make(&b, &j, &o, 2, &x);
    assert_true(fabs(b.interval_s - 7200) < 1e-9);
}

/* --- what else is priced --- */

/* 9 GiB, two kept on both of two nodes for 20 h of 730 at 7.3 cents; 9 GiB home at 9 cents. */
static void kept_checkpoints_and_bringing_one_home_are_billed(void **state)
{
    (void)state;
    struct job j = job_of(1000LL * 512 * 1024);
    struct offer o = offer_at(10 * USD_MICRO);
    struct estimate x = steps_of(72);
    struct bill b;
    j.checkpoint_every_s = 1800;
    x.checkpoint_bytes = 9LL << 30;
    o.storage_usd_micro_per_gib_month = 73000;
    o.egress_usd_micro_per_gib = 90000;
    bill_make(&b, &j, &o, 2, &x);
    double usd = 9 * 2 * 2 * 0.073 * b.run_s[BILL_MID] / 3600 / 730;
    assert_true(fabs((double)b.line_micro_usd[BILL_MID][COST_STORAGE] / 1e6 - usd) < 2e-6);
    assert_int_equal(b.line_micro_usd[BILL_MID][COST_EGRESS], 810000);
    check_lines(&b);
    str_copy(j.store, sizeof j.store, "shared:/data");
    bill_make(&b, &j, &o, 2, &x);
    assert_true(fabs((double)b.line_micro_usd[BILL_MID][COST_STORAGE] / 1e6 - usd / 2) < 2e-6);
}

static void replacements_are_set_up_again(void **state)
{
    (void)state;
    struct job j = job_of(1000LL * 512 * 1024);
    struct offer o = offer_at(10 * USD_MICRO);
    struct estimate x = steps_of(36);
    struct bill without, with;
    bill_make(&without, &j, &o, 2, &x);
    o.setup_usd_micro = 5000 * USD_MICRO;
    bill_make(&with, &j, &o, 2, &x);
    double more =
        (double)(with.total_micro_usd[BILL_MID] - without.total_micro_usd[BILL_MID]) / 1e6;
    assert_true(fabs(more - 5000 * (2 + 36000 * stops_per_s)) < 1e-5);
}

/* 1,000 steps, validated after every 200 on two batches of tokens: 5 x 2 forward passes, a third of
 * 36 s each. 2.5 GB of weights at 12.5 MB/s are 200 s. Two nodes at 10 $ an hour. */
static void what_the_job_states_has_its_own_line(void **state)
{
    (void)state;
    struct job j = job_of(1000LL * 512 * 1024);
    struct offer o = offer_at(10 * USD_MICRO);
    struct estimate x = steps_of(36);
    struct bill without, with;
    bill_make(&without, &j, &o, 2, &x);
    assert_true(without.line_s[BILL_MID][BILL_EVALUATION] <= 0);
    assert_true(without.line_s[BILL_MID][BILL_WEIGHTS] <= 0);
    assert_true(without.line_s[BILL_MID][BILL_TOKENISING] <= 0);
    str_copy(j.eval_data, sizeof j.eval_data, "local:held_out.txt");
    j.eval_every_steps = 200;
    j.eval_tokens = 2LL * 512 * 1024;
    j.weights_bytes = 2500 * 1000 * 1000LL;
    j.tokenising_s = 90;
    bill_make(&with, &j, &o, 2, &x);
    assert_true(fabs(with.line_s[BILL_MID][BILL_EVALUATION] - 120) < 1e-9);
    /* each waits for updates that would have hidden behind the next step */
    struct estimate deferred = x;
    deferred.hidden_update_s = 3;
    struct bill waiting;
    bill_make(&waiting, &j, &o, 2, &deferred);
    assert_true(fabs(waiting.line_s[BILL_MID][BILL_EVALUATION] - 135) < 1e-9);
    assert_true(fabs(with.line_s[BILL_MID][BILL_WEIGHTS] - 200) < 1e-9);
    assert_true(fabs(with.line_s[BILL_MID][BILL_TOKENISING] - 90) < 1e-9);
    assert_true(fabs(with.run_s[BILL_MID] - without.run_s[BILL_MID] - 410) < 1e-6);
    const int64_t *usd = with.line_micro_usd[BILL_MID];
    assert_int_equal(usd[COST_WEIGHTS], llround(200 * 20e6 / 3600));
    assert_int_equal(usd[COST_TOKENISING], 500000);
    assert_int_equal(usd[COST_EVALUATION], llround(120 * 20e6 / 3600));
    check_lines(&with);
}

/* What cells are left out by must be below what they would come to. */
static void the_least_bill_is_below_all_of_longer_steps_and_saves(void **state)
{
    (void)state;
    for (int k = 0; k < 400; k++) {
        struct job j = job_of((int64_t)(1 + 7 * k) * 3000 * 1000);
        struct offer o = offer_at(3333333 + k);
        o.interruptions_per_hour = k % 3 ? 0.004 * k : -1;
        o.granularity_s = k % 2 ? 3600 : -1;
        o.storage_usd_micro_per_gib_month = 70000;
        j.checkpoint_every_s = k % 5 ? 0 : 300 + k;
        if (k % 6 == 0)
            str_copy(j.eval_data, sizeof j.eval_data, "local:held_out.txt");
        struct estimate x = steps_of(5 + k % 11);
        x.checkpoint_stall_s = k % 7;
        x.checkpoint_s = 10 * k % 130;
        x.checkpoint_bytes = 12LL << 30;
        struct bill least, b;
        bill_make_least(&least, &j, &o, 3, &x);
        double run_s = bill_run_s(&j, &o, x.step_s, estimate_saves(&x));
        assert_true(fabs(least.run_s[BILL_MID] - run_s) < 1e-6);
        x.step_s *= 1 + 0.001 * (k % 13);
        x.checkpoint_stall_s *= 1 + 0.01 * (k % 17);
        bill_make(&b, &j, &o, 3, &x);
        assert_true(least.run_s[BILL_MID] <= b.run_s[BILL_MID]);
        assert_true(least.total_micro_usd[BILL_MID] <= b.total_micro_usd[BILL_MID]);
    }
}

int test_cost(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_up_hours_and_dollars),
        cmocka_unit_test(local_weights_are_uploaded_and_those_on_the_nodes_are_not),
        cmocka_unit_test(lines_sum_exactly_and_rise_from_low_to_high),
        cmocka_unit_test(bills_whole_hours_minimum_and_term),
        cmocka_unit_test(unknown_price_is_not_zero_and_owned_nodes_are_free),
        cmocka_unit_test(checkpoints_stall_and_the_last_is_waited_for),
        cmocka_unit_test(endless_runs_do_not_overflow),
        cmocka_unit_test(interruptions_cost_half_an_interval_or_the_save_in_the_notice),
        cmocka_unit_test(the_first_order_is_close_to_the_exact_time_where_it_is_used),
        cmocka_unit_test(what_stops_too_often_never_ends),
        cmocka_unit_test(an_unknown_rate_is_not_counted_and_said),
        cmocka_unit_test(the_optimal_interval_wastes_least),
        cmocka_unit_test(a_job_that_does_not_say_how_often_saves_at_the_best_interval),
        cmocka_unit_test(kept_checkpoints_and_bringing_one_home_are_billed),
        cmocka_unit_test(replacements_are_set_up_again),
        cmocka_unit_test(what_the_job_states_has_its_own_line),
        cmocka_unit_test(the_least_bill_is_below_all_of_longer_steps_and_saves),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}
