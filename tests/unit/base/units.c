#include "base/units.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static void reads_quantities_as_people_write_them(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int64_t n;
    double s;
    assert_int_equal(units_parse_count("10B", &n, &e), RC_OK);
    assert_int_equal(n, 10000000000LL);
    assert_int_equal(units_parse_count("1_000_000", &n, &e), RC_OK);
    assert_int_equal(n, 1000000);
    assert_int_equal(units_parse_bytes("80GiB", &n, &e), RC_OK);
    assert_int_equal(n, 80LL << 30);
    assert_int_equal(units_parse_bytes("80GB", &n, &e), RC_OK);
    assert_int_equal(n, 80000000000LL);
    assert_int_equal(units_parse_seconds("2d12h", &s, &e), RC_OK);
    assert_true(s > 215999 && s < 216001);
    assert_int_equal(units_parse_usd("$1,500.25", &n, &e), RC_OK);
    assert_int_equal(n, 1500250000);
}

static void refuses_rests_signs_and_overflow(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int64_t n;
    double s;
    const char *bad[] = {"", "10X", "ten", "1..2", "-5", "99999999999999999999T", "nan", "inf",
        "1 2", "2,49", "1,15", "1,0000", ",500", "15.6", "0.5"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_not_equal(units_parse_count(bad[i], &n, &e), RC_OK);
        assert_int_not_equal(units_parse_bytes(bad[i], &n, &e), RC_OK);
    }
    assert_int_not_equal(units_parse_seconds("7y", &s, &e), RC_OK);
    assert_int_not_equal(units_parse_usd("1.2.3", &n, &e), RC_OK);
    assert_int_not_equal(units_parse_usd("-1", &n, &e), RC_OK);
    assert_int_not_equal(units_parse_usd("2,49", &n, &e), RC_OK);
    assert_int_equal(units_parse_usd("1500 USD", &n, &e), RC_OK);
    assert_int_equal(n, 1500 * USD_MICRO);
    assert_int_equal(units_parse_count("3,200", &n, &e), RC_OK);
    assert_int_equal(n, 3200);
}

static void money_is_rounded_up_to_the_cent(void **state)
{
    (void)state;
    char b[UNITS_TEXT];
    assert_string_equal(units_usd(b, 1042100000), "$1,042.10");
    assert_string_equal(units_usd(b, 1), "$0.01");
    assert_string_equal(units_usd(b, 1234567000000LL), "$1,234,567.00");
    assert_string_equal(units_usd(b, INT64_MAX / 4), "too large");
    assert_string_equal(units_seconds(b, INFINITY), "too large");
    assert_string_equal(units_seconds(b, 1e300), "too large");
    assert_string_equal(units_seconds(b, NAN), "unknown");
    assert_string_equal(units_bytes(b, 1e30), "too large");
}

int test_units(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_quantities_as_people_write_them),
        cmocka_unit_test(refuses_rests_signs_and_overflow),
        cmocka_unit_test(money_is_rounded_up_to_the_cent),
    };
    return cmocka_run_group_tests_name("base/units", tests, NULL, NULL);
}
