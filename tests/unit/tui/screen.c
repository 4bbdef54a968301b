#include "tui/screen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static bool is_inside(struct rect r, int rows, int cols)
{
    return r.h >= 0 && r.w >= 0 && r.y >= 0 && r.x >= 0 &&
           (r.h == 0 || r.w == 0 || (r.y + r.h <= rows && r.x + r.w <= cols));
}

static bool do_overlap(struct rect a, struct rect b)
{
    if (a.h == 0 || a.w == 0 || b.h == 0 || b.w == 0)
        return false;
    return a.y < b.y + b.h && b.y < a.y + a.h && a.x < b.x + b.w && b.x < a.x + a.w;
}

static void check_disjoint(const struct rect *r, int n, int rows, int cols)
{
    for (int i = 0; i < n; i++) {
        if (!is_inside(r[i], rows, cols))
            fail_msg("rectangle %d leaves %dx%d", i, rows, cols);
        for (int j = i + 1; j < n; j++) {
            if (do_overlap(r[i], r[j]))
                fail_msg("rectangles %d and %d overlap at %dx%d", i, j, rows, cols);
        }
    }
}

static void panes_stay_inside_and_apart_at_every_size(void **state)
{
    (void)state;
    for (int rows = 1; rows <= 200; rows++) {
        for (int cols = 1; cols <= 500; cols++) {
            struct screen s = screen_layout(rows, cols);
            struct rect all[] = {s.header, s.body, s.message, s.footer};
            check_disjoint(all, 4, rows, cols);
        }
    }
}

static void splits_stay_inside_and_apart(void **state)
{
    (void)state;
    for (int h = 0; h <= 60; h++) {
        for (int want = 0; want <= 70; want += 3) {
            for (int least = 1; least <= 12; least += 2) {
                struct rect body = {3, 5, h, 2 * h};
                struct split v = screen_rows(body, want, least);
                struct rect rows[] = {v.first_title, v.first, v.second_title, v.second};
                check_disjoint(rows, 4, 3 + h, 5 + 2 * h);
                assert_true(v.second.h == 0 || v.second.h >= least);
            }
        }
    }
}

static void footer_and_header_are_reserved_before_the_body(void **state)
{
    (void)state;
    for (int rows = SCREEN_MIN_ROWS; rows <= 200; rows++) {
        struct screen s = screen_layout(rows, 80);
        assert_int_equal(s.footer.y, rows - 1);
        assert_int_equal(s.footer.h, 1);
        assert_int_equal(s.header.h, 1);
        assert_int_equal(s.body.h, rows - 3);
    }
}

static void sizes_choose_full_single_or_one_line(void **state)
{
    (void)state;
    assert_int_equal(screen_layout(24, 80).size, SCREEN_FULL);
    assert_int_equal(screen_layout(23, 80).size, SCREEN_SINGLE);
    assert_int_equal(screen_layout(24, 79).size, SCREEN_SINGLE);
    assert_int_equal(screen_layout(10, 40).size, SCREEN_SINGLE);
    assert_int_equal(screen_layout(9, 200).size, SCREEN_TOO_SMALL);
    assert_int_equal(screen_layout(50, 39).size, SCREEN_TOO_SMALL);
}

int test_screen(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(panes_stay_inside_and_apart_at_every_size),
        cmocka_unit_test(splits_stay_inside_and_apart),
        cmocka_unit_test(footer_and_header_are_reserved_before_the_body),
        cmocka_unit_test(sizes_choose_full_single_or_one_line),
    };
    return cmocka_run_group_tests_name("tui/screen", tests, NULL, NULL);
}
