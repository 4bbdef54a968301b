#include "tui/plot.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct grid grid;

static void label(double value, char text[32])
{
    snprintf(text, 32, "%.1f", value);
}

static void draw(const struct plot *plot, int rows, int cols, enum glyph_level level)
{
    grid_release(&grid);
    grid_init(&grid, level);
    grid_reset(&grid, rows, cols);
    plot_draw(grid_pane(&grid, (struct rect){0, 0, rows, cols}), plot);
}

static void row_is(int y, const char *want)
{
    char *have = grid_row_text(&grid, y);
    assert_string_equal(have, want);
    free(have);
}

static void bins_keep_the_extremes_of_what_falls_into_a_column(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, y[] = {5, 9, 1, 2, NAN, 2, 3, 3, 100, 4};
    struct plot plot = {.x = x, .y = y, .n = 10, .reference = NAN};
    struct plot_bin bin[4];
    plot_bins(&plot, 0, 9, bin, 4); /* columns are centred on x = 0, 3, 6, 9 */
    assert_int_equal(bin[0].n, 2);
    assert_true(fabs(bin[0].max - 9) < 1e-12 && fabs(bin[0].min - 5) < 1e-12);
    assert_int_equal(bin[1].n, 2); /* the gap counts for nothing */
    assert_true(fabs(bin[1].min - 1) < 1e-12);
    assert_true(fabs(bin[3].max - 100) < 1e-12 && fabs(bin[3].last - 4) < 1e-12);
}

static void falling_line_goes_down_in_ascii(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3, 4}, y[] = {3, 2, 1, 0};
    struct plot plot = {.x = x, .y = y, .n = 4, .reference = NAN, .label = label, .x_name = "step"};
    draw(&plot, 5, 14, GLYPH_ASCII); /* four columns, four rows */
    row_is(0, "     3.0 *");
    row_is(1, "     1.5  *");
    row_is(2, "           *");
    row_is(3, "     0.0    *");
    row_is(4, "            4");
}

static void braille_sets_exactly_the_dots_of_the_values(void **state)
{
    (void)state;
    /* one cell column of interest: two dot columns, values at top and bottom */
    const double x[] = {0, 1, 2, 3, 4, 5, 6, 7}, y[] = {3, 0, 3, 0, 3, 0, 3, 0};
    struct plot plot = {.x = x, .y = y, .n = 8, .reference = NAN, .label = label, .x_name = ""};
    draw(&plot, 2, 14, GLYPH_BRAILLE);
    for (int i = 0; i < 4; i++) /* dot 1 (top left) and dot 8 (bottom right) */
        assert_int_equal(grid_at(&grid, 0, 9 + i)->cp, 0x2800 + 0x01 + 0x80);
}

static void band_covers_what_merged_points_span(void **state)
{
    (void)state;
    const double x[] = {0, 1, 2, 3}, y[] = {1, 1, 1, 1}, low[] = {1, 0, 1, 1},
                 high[] = {1, 3, 1, 1};
    struct plot plot = {.x = x,
        .y = y,
        .low = low,
        .high = high,
        .n = 4,
        .reference = NAN,
        .label = label,
        .x_name = ""};
    draw(&plot, 5, 14, GLYPH_ASCII);
    for (int row = 0; row < 4; row++)
        assert_int_equal(grid_at(&grid, row, 10)->cp, '*');
    assert_int_equal(grid_at(&grid, 0, 9)->cp, ' ');
}

static void empty_level_and_hostile_data_draw_without_trouble(void **state)
{
    (void)state;
    const double x[] = {1, 2, 3}, nothing[] = {NAN, NAN, NAN}, level[] = {2, 2, 2},
                 wild[] = {INFINITY, -INFINITY, 1e308}, negative[] = {-1, 0, -2};
    const double *curves[] = {nothing, level, wild, negative};
    for (int i = 0; i < 4; i++) {
        for (int log = 0; log < 2; log++) {
            for (int rows = 1; rows < 12; rows++) {
                for (int cols = 1; cols < 40; cols += 3) {
                    struct plot plot = {.x = x,
                        .y = curves[i],
                        .n = 3,
                        .is_log = log,
                        .reference = 5,
                        .reference_name = "planned",
                        .label = label,
                        .x_name = "step"};
                    draw(&plot, rows, cols, GLYPH_BRAILLE);
                }
            }
        }
    }
    struct plot none = {.reference = NAN, .label = label, .x_name = "step"};
    draw(&none, 5, 30, GLYPH_BLOCK);
    row_is(2, "          no values yet");
}

static void bar_shares_its_cells_in_proportion(void **state)
{
    (void)state;
    const struct bar_part part[] = {{50, 'a'}, {0, 'b'}, {25, 'c'}, {0.001, 'd'}};
    grid_release(&grid);
    grid_init(&grid, GLYPH_BLOCK);
    grid_reset(&grid, 1, 20);
    bar_draw(grid_pane(&grid, (struct rect){0, 0, 1, 20}), 0, 0, 20, part, 4, 100);
    row_is(0, "aaaaaaaaaacccccd····");
    const struct bar_part over[] = {{150, 'a'}, {50, 'b'}};
    grid_reset(&grid, 1, 20);
    bar_draw(grid_pane(&grid, (struct rect){0, 0, 1, 20}), 0, 0, 10, over, 2, 100);
    row_is(0, "aaaaaaaaaa");
}

int test_plot(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bins_keep_the_extremes_of_what_falls_into_a_column),
        cmocka_unit_test(falling_line_goes_down_in_ascii),
        cmocka_unit_test(braille_sets_exactly_the_dots_of_the_values),
        cmocka_unit_test(band_covers_what_merged_points_span),
        cmocka_unit_test(empty_level_and_hostile_data_draw_without_trouble),
        cmocka_unit_test(bar_shares_its_cells_in_proportion),
    };
    int bad = cmocka_run_group_tests_name("tui/plot", tests, NULL, NULL);
    grid_release(&grid);
    return bad;
}
