#include "tui/run_series.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "run/record.h"
#include "tui/log_ring.h"

static void add(struct run_series *s, int64_t step, double loss)
{
    struct record_metrics m;
    record_metrics_init(&m);
    m.step = step;
    m.loss = loss;
    run_series_add(s, &m);
}

static void a_spike_survives_a_million_steps(void **state)
{
    (void)state;
    struct run_series s;
    run_series_init(&s);
    for (int64_t step = 1; step <= 1000000; step++)
        add(&s, step, step == 123457 ? 50 : 2);
    assert_true(s.n <= RUN_SERIES_MAX);
    double max = 0;
    for (size_t i = 0; i < s.n; i++) {
        max = fmax(max, s.high[RUN_LOSS][i]);
        assert_true(i == 0 || s.step[i] > s.step[i - 1]);
    }
    assert_true(fabs(max - 50) < 1e-12);
    assert_true(fabs(s.step[s.n - 1] - 1000000) < 0.5);
    run_series_release(&s);
}

static void going_back_to_a_checkpoint_drops_what_came_after_it(void **state)
{
    (void)state;
    struct run_series s;
    run_series_init(&s);
    for (int64_t step = 1; step <= 100; step++)
        add(&s, step, 100);
    add(&s, 41, 1);
    assert_int_equal(s.n, 41);
    assert_true(fabs(run_series_last(&s, RUN_LOSS) - 1) < 1e-12);
    add(&s, 42, NAN);
    assert_true(fabs(run_series_last(&s, RUN_LOSS) - 1) < 1e-12);
    assert_true(isnan(run_series_last(&s, RUN_SPEED)));
    assert_true(fabs(run_series_mean(&s, RUN_LOSS, 2) - 50.5) < 1e-9);
    run_series_release(&s);
}

static void log_is_bounded_and_says_what_it_dropped(void **state)
{
    (void)state;
    struct log_ring r;
    log_ring_init(&r, 10000);
    char line[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(line, sizeof(line), "line %d\n", i);
        log_ring_add(&r, line);
        assert_true(r.bytes <= 10000);
    }
    assert_int_equal(r.n + r.dropped, 5000);
    const char *found[3];
    assert_int_equal(log_ring_newest(&r, "", 1, found, 2), 2);
    assert_string_equal(found[0], "line 4998");
    assert_string_equal(found[1], "line 4997");
    assert_int_equal(log_ring_newest(&r, "4999", 0, found, 3), 1);
    assert_string_equal(found[0], "line 4999");
    assert_int_equal(log_ring_newest(&r, "LINE 499", 8, found, 3), 2);
    assert_string_equal(found[1], "line 4990");
    assert_int_equal(log_ring_newest(&r, "", 100000, found, 3), 0);
    assert_int_equal(log_ring_newest(&r, "line 7\n", 0, found, 3), 0);
    assert_int_equal(log_ring_count(&r, "LINE 499"), 10); /* 4990 to 4999; case does not matter */
    char *huge = base_alloc(1 << 20);
    memset(huge, 'x', (1 << 20) - 1);
    huge[(1 << 20) - 1] = '\0';
    log_ring_add(&r, huge);
    assert_int_equal(log_ring_newest(&r, "", 0, found, 1), 1);
    assert_int_equal(strlen(found[0]), LOG_LINE_MAX);
    free(huge);
    log_ring_release(&r);
}

int test_run_series(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spike_survives_a_million_steps),
        cmocka_unit_test(going_back_to_a_checkpoint_drops_what_came_after_it),
        cmocka_unit_test(log_is_bounded_and_says_what_it_dropped),
    };
    return cmocka_run_group_tests_name("tui/run_series", tests, NULL, NULL);
}
