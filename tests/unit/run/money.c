#include "run/money.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const int64_t DOLLAR = 1000000;
static const double NOON_S = 1.8e9, HOUR_S = 3600;

static void unknown_is_not_free(void **state)
{
    (void)state;
    struct run_money unknown = {-1, NOON_S, 0}, owned = {0, NOON_S, 0};
    assert_int_equal(run_money_cost(&unknown, NOON_S + HOUR_S), -1);
    assert_int_equal(run_money_cost(&owned, NOON_S + HOUR_S), 0);
}

static void costs_nothing_before_it_counts(void **state)
{
    (void)state;
    struct run_money m = {2 * DOLLAR, 0, 0};
    assert_int_equal(run_money_cost(&m, NOON_S), 0);
    m.since_wall_s = NOON_S;
    assert_int_equal(run_money_cost(&m, NOON_S - 1), 0);
    assert_int_equal(run_money_cost(&m, NOON_S + HOUR_S / 4), DOLLAR / 2);
}

static void a_resumed_run_has_cost_what_it_cost_before(void **state)
{
    (void)state;
    struct run_money m = {-1, 0, 0};
    run_money_go_on(&m, 4 * DOLLAR, 0, 0, NOON_S);
    /* two hours and a pause of one, on the nodes as they were; then one hour on half of them */
    run_money_go_on(&m, 2 * DOLLAR, NOON_S + 2 * HOUR_S, 0, NOON_S + 3 * HOUR_S);
    assert_int_equal(run_money_cost(&m, NOON_S + 4 * HOUR_S), 14 * DOLLAR);
    run_money_go_on(&m, 2 * DOLLAR, NOON_S + 4 * HOUR_S, 0, NOON_S + 4 * HOUR_S);
    assert_int_equal(run_money_cost(&m, NOON_S + 5 * HOUR_S), 16 * DOLLAR);
}

static void nodes_rented_anew_do_not_cost_in_the_pause(void **state)
{
    (void)state;
    struct run_money m = {4 * DOLLAR, NOON_S, 0};
    run_money_go_on(&m, 2 * DOLLAR, NOON_S + HOUR_S, NOON_S + 9 * HOUR_S, NOON_S + 10 * HOUR_S);
    assert_int_equal(run_money_cost(&m, NOON_S + 10 * HOUR_S), 6 * DOLLAR);
    /* rented while the others still ran: nothing counts twice */
    struct run_money n = {4 * DOLLAR, NOON_S, 0};
    run_money_go_on(&n, 2 * DOLLAR, NOON_S + 2 * HOUR_S, NOON_S + HOUR_S, NOON_S + 3 * HOUR_S);
    assert_int_equal(run_money_cost(&n, NOON_S + 3 * HOUR_S), 8 * DOLLAR);
}

static void a_price_told_later_counts_from_the_start(void **state)
{
    (void)state;
    struct run_money m = {-1, 0, 0};
    run_money_go_on(&m, -1, 0, 0, NOON_S);
    run_money_go_on(&m, 2 * DOLLAR, NOON_S + HOUR_S, 0, NOON_S + 2 * HOUR_S);
    assert_int_equal(run_money_cost(&m, NOON_S + 3 * HOUR_S), 6 * DOLLAR);
}

static void huge_prices_do_not_overflow(void **state)
{
    (void)state;
    struct run_money m = {INT64_MAX, NOON_S, INT64_MAX - 5};
    assert_int_equal(run_money_cost(&m, NOON_S + 1e9), INT64_MAX);
}

int test_money(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_is_not_free),
        cmocka_unit_test(costs_nothing_before_it_counts),
        cmocka_unit_test(a_resumed_run_has_cost_what_it_cost_before),
        cmocka_unit_test(nodes_rented_anew_do_not_cost_in_the_pause),
        cmocka_unit_test(a_price_told_later_counts_from_the_start),
        cmocka_unit_test(huge_prices_do_not_overflow),
    };
    return cmocka_run_group_tests_name("money", tests, NULL, NULL);
}
