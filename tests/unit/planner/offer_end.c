#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/str.h"
#include "base/units.h"
#include "lib_market.h"

/* The cheapest takes one node days; two days are left. */
static struct offer until(const char *end, int64_t nodes)
{
    struct offer o = market_offer("leased", "h100-sxm", 8, nodes, 16 * USD_MICRO);
    str_copy(o.fetched_at, sizeof o.fetched_at, "2026-11-30T00:00:00Z");
    str_copy(o.available_until, sizeof o.available_until, end);
    return o;
}

static struct search *plans_on(const struct job *j, struct offer o)
{
    struct offers *l = offers_new();
    market_add(l, o);
    struct search *s = market_plans(j, l, 0);
    offers_free(l);
    return s;
}

static void an_offer_that_ends_before_the_run_is_refused(void **state)
{
    (void)state;
    struct job j = market_job("llama-3.1-8b", 30000000000, 4096, 512);
    struct search *s = plans_on(&j, until("", 1));
    assert_int_equal(s->n_plans, 1);
    double run_s = s->plans[0].bill.run_s[BILL_MID];
    assert_true(run_s > 2 * 86400 && run_s < 30 * 86400);
    assert_null(strstr(s->plans[0].why, "ends at"));
    search_free(s);
    s = plans_on(&j, until("2026-12-02T00:00:00Z", 1));
    assert_int_equal(s->n_plans, 0);
    assert_int_equal(s->n_rejected, 1);
    assert_non_null(strstr(s->rejected[0].why, "gone before the end"));
    assert_non_null(strstr(s->rejected[0].why, "2.00 d, until 2026-12-02T00:00:00Z"));
    assert_int_equal(s->rejected[0].shortage, SHORT_SECONDS);
    assert_true(fabs(s->rejected[0].short_by - (run_s - 2 * 86400)) < 0.01 * run_s);
    search_free(s);
    s = plans_on(&j, until("2027-01-30T00:00:00Z", 1));
    assert_int_equal(s->n_plans, 1);
    assert_non_null(strstr(s->plans[0].why, "; the offer ends at 2027-01-30T00:00:00Z"));
    search_free(s);
    job_release(&j);
}

/* Dearer with more nodes, but done in time. */
static void more_nodes_are_taken_to_be_done_before_the_end(void **state)
{
    (void)state;
    struct job j = market_job("llama-3.1-8b", 30000000000, 4096, 512);
    struct offer o = until("", 8);
    o.inter_gbps_per_node = 100;
    struct search *s = plans_on(&j, o);
    int64_t nodes = s->plans[0].nodes;
    search_free(s);
    str_copy(o.available_until, sizeof o.available_until, "2026-12-01T12:00:00Z");
    s = plans_on(&j, o);
    assert_int_equal(s->n_plans, 1);
    assert_true(s->plans[0].nodes > nodes);
    assert_true(s->plans[0].bill.run_s[BILL_MID] <= 36 * 3600);
    search_free(s);
    job_release(&j);
}

static void what_is_left_is_counted_from_when_the_offer_was_seen(void **state)
{
    (void)state;
    struct offer o = until("2026-11-30T01:00:00Z", 1);
    assert_true(fabs(offer_seconds_left(&o) - 3600) < 1e-6);
    o = until("2026-11-29T00:00:00Z", 1);
    assert_true(fabs(offer_seconds_left(&o)) < 1e-6);
    o = until("next year", 1);
    assert_true(isnan(offer_seconds_left(&o)));
    o = until("2026-11-30T01:00:00Z", 1);
    o.fetched_at[0] = '\0';
    assert_true(isnan(offer_seconds_left(&o)));
}

int test_offer_end(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_offer_that_ends_before_the_run_is_refused),
        cmocka_unit_test(more_nodes_are_taken_to_be_done_before_the_end),
        cmocka_unit_test(what_is_left_is_counted_from_when_the_offer_was_seen),
    };
    return cmocka_run_group_tests_name("offer_end", tests, market_setup, market_teardown);
}
