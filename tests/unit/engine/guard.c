/* What is a spike, when a run diverges, and that a checkpoint keeps the memory of it. */
#include "engine/guard.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

/* Losses 1, 3, 1, 3, ...: mean 2, deviation 1; norms ten times that. */
static struct guard alternating(int steps)
{
    struct guard g = {0};
    for (int i = 0; i < steps; i++)
        guard_note(&g, i % 2 ? 3 : 1, i % 2 ? 30 : 10, false);
    return g;
}

static void limits_are_the_mean_and_so_many_deviations(void **state)
{
    (void)state;
    struct guard g = alternating(GUARD_WINDOW);
    struct guard_limits l = guard_limits(&g, 4);
    assert_true(fabs(l.loss - 6) < 1e-12);
    assert_true(fabs(l.grad_norm - 60) < 1e-12);
    assert_true(isinf(guard_limits(&g, 0).loss));
    struct guard few = alternating(GUARD_LEAST - 1);
    assert_true(isinf(guard_limits(&few, 4).loss) && isinf(guard_limits(&few, 4).grad_norm));
}

static void steps_beyond_the_window_are_forgotten(void **state)
{
    (void)state;
    struct guard g = alternating(50);
    for (int i = 0; i < GUARD_WINDOW; i++)
        guard_note(&g, 5, 7, false);
    /* no deviation at all: a hundredth of the mean stands in */
    assert_true(fabs(guard_limits(&g, 10).loss - 5.5) < 1e-12);
    assert_true(fabs(guard_limits(&g, 10).grad_norm - 7.7) < 1e-12);
}

static void skipped_steps_do_not_move_the_limits(void **state)
{
    (void)state;
    struct guard g = alternating(64);
    guard_note(&g, 1e9, NAN, true);
    assert_true(fabs(guard_limits(&g, 4).loss - 6) < 1e-12);
}

static void a_row_of_skipped_steps_is_a_divergence_and_so_are_many_in_the_window(void **state)
{
    (void)state;
    struct guard g = alternating(40);
    for (int i = 0; i < 3; i++) {
        assert_false(guard_has_diverged(&g, 3));
        guard_note(&g, NAN, NAN, true);
    }
    assert_true(guard_has_diverged(&g, 3));
    guard_forgive(&g);
    assert_false(guard_has_diverged(&g, 3));
    for (int i = 0; i < 12; i++) {
        assert_false(guard_has_diverged(&g, 3));
        guard_note(&g, 2, 20, false);
        guard_note(&g, NAN, NAN, true);
    }
    assert_true(guard_has_diverged(&g, 3));
    for (int i = 0; i < GUARD_WINDOW; i++)
        guard_note(&g, 2, 20, false);
    assert_false(guard_has_diverged(&g, 3));
}

/* What is read back decides as what was written, whatever comes after. */
static void a_document_holds_all_of_it(void **state)
{
    (void)state;
    for (int steps = 0; steps < 300; steps += 37) {
        struct guard a = {0}, b;
        struct err e = ERR_INIT;
        for (int i = 0; i < steps; i++)
            guard_note(&a, 3 + 1.0 / (i + 3), sqrt(i + 1.0) / 7, i % 5 == 0);
        struct json *v = guard_to_json(&a), *again = NULL;
        char *text = json_print(v, false);
        assert_int_equal(json_parse(&again, text, strlen(text), &e), RC_OK);
        assert_int_equal(guard_from_json(&b, again, &e), RC_OK);
        for (int i = 0; i < 2 * GUARD_WINDOW; i++) {
            struct guard_limits x = guard_limits(&a, 3), y = guard_limits(&b, 3);
            assert_true(fabs(x.loss - y.loss) < 1e-9 || (isinf(x.loss) && isinf(y.loss)));
            assert_true(fabs(x.grad_norm - y.grad_norm) < 1e-9 || (isinf(x.loss) && isinf(y.loss)));
            assert_int_equal(guard_has_diverged(&a, 4), guard_has_diverged(&b, 4));
            guard_note(&a, 2 + i % 3, i % 7, i % 4 == 0);
            guard_note(&b, 2 + i % 3, i % 7, i % 4 == 0);
        }
        free(text);
        json_free(v);
        json_free(again);
    }
}

static void a_damaged_document_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{\"loss\":[1],\"grad_norm\":[]}",
        "{\"loss\":[null],\"grad_norm\":[1]}",
        "{\"loss\":[\"a\"],\"grad_norm\":[1]}",
        "{\"skipped_steps_ago\":[0]}",
        "{\"skipped_steps_ago\":[129]}",
        "{\"skipped_in_row\":-1}",
        "{\"skipped_in_row\":1000}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct json *v = NULL;
        struct guard g;
        struct err e = ERR_INIT;
        assert_int_equal(json_parse(&v, bad[i], strlen(bad[i]), &e), RC_OK);
        assert_int_equal(guard_from_json(&g, v, &e), RC_INVALID);
        assert_true(strstr(e.msg, "guard") != NULL);
        assert_int_equal(g.n, 0);
        json_free(v);
    }
}

int test_guard(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_are_the_mean_and_so_many_deviations),
        cmocka_unit_test(steps_beyond_the_window_are_forgotten),
        cmocka_unit_test(skipped_steps_do_not_move_the_limits),
        cmocka_unit_test(a_row_of_skipped_steps_is_a_divergence_and_so_are_many_in_the_window),
        cmocka_unit_test(a_document_holds_all_of_it),
        cmocka_unit_test(a_damaged_document_is_refused),
    };
    return cmocka_run_group_tests_name("guard", tests, NULL, NULL);
}
