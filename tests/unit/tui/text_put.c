#include "tui/text_put.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"

static struct grid grid;

static struct pane fresh(int rows, int cols, enum glyph_level glyphs)
{
    grid_release(&grid);
    grid_init(&grid, glyphs);
    grid_reset(&grid, rows, cols);
    return grid_pane(&grid, (struct rect){0, 0, rows, cols});
}

static void row_is(int y, const char *want)
{
    char *have = grid_row_text(&grid, y);
    assert_string_equal(have, want);
    free(have);
}

static void cuts_with_an_ellipsis_and_pads_to_the_width(void **state)
{
    (void)state;
    struct pane p = fresh(1, 20, GLYPH_BLOCK);
    pane_fill(p, 0, 0, 20, '#', ROLE_NORMAL);
    text_put(p, 0, 2, 8, ROLE_NORMAL, "abcdefghij");
    row_is(0, "##abcdefg…##########");
    text_put(p, 0, 2, 8, ROLE_NORMAL, "abc");
    row_is(0, "##abc     ##########");
    text_put_right(p, 0, 2, 8, ROLE_NORMAL, "12");
    row_is(0, "##      12##########");
}

static void wide_characters_take_two_cells_and_are_never_halved(void **state)
{
    (void)state;
    struct pane p = fresh(1, 8, GLYPH_BLOCK);
    assert_int_equal(text_put(p, 0, 0, 8, ROLE_NORMAL, "東京"), 4);
    assert_int_equal(grid_at(&grid, 0, 0)->columns, 2);
    assert_int_equal(grid_at(&grid, 0, 1)->cp, 0);
    row_is(0, "東京");
    text_put(p, 0, 0, 4, ROLE_NORMAL, "東京都");
    row_is(0, "東…");
    pane_put(p, 0, 1, 'x', ROLE_NORMAL); /* over the right half */
    assert_int_equal(grid_at(&grid, 0, 0)->cp, ' ');
    pane_put(p, 0, 7, 0x6771, ROLE_NORMAL); /* no room for both halves */
    assert_int_equal(grid_at(&grid, 0, 7)->cp, ' ');
}

/* What would move the cursor, switch colours, reverse the line or hide text. */
static void hostile_text_cannot_steer_the_terminal(void **state)
{
    (void)state;
    static const char *const hostile[] = {"\033[2J\033[31mred", "a\rb", "a\bb",
        "\x9b"
        "31m",
        "\xe2\x80\xae"
        "txet",
        "z\xe2\x80\x8bw", "\xff\xfe\xc0\x80", "\xf4\x90\x80\x80", "a\x07b", "\xee\x80\x80",
        "\xe2\x81\xa6x\xe2\x81\xa9",
        "\xc2\x9b"
        "2J",
        "e\xcc\x81"};
    for (size_t i = 0; i < BASE_COUNT(hostile); i++) {
        struct pane p = fresh(1, 16, GLYPH_BRAILLE);
        text_put(p, 0, 0, 16, ROLE_NORMAL, hostile[i]);
        for (int x = 0; x < 16; x++) {
            uint32_t cp = grid_at(&grid, 0, x)->cp;
            assert_true(cp >= ' ' && cp < 0x2000 && !(cp >= 0x7f && cp < 0xa0));
            assert_true(cp < 0x300 || cp > 0x36f);
        }
    }
    fresh(1, 16, GLYPH_BRAILLE);
    text_put(grid_pane(&grid, (struct rect){0, 0, 1, 16}), 0, 0, 16, ROLE_NORMAL, "a\033[1mb\tc");
    row_is(0, "a·[1mb c");
}

static void text_outside_of_the_pane_is_dropped(void **state)
{
    (void)state;
    fresh(3, 10, GLYPH_BLOCK);
    struct pane p = grid_pane(&grid, (struct rect){1, 2, 1, 5});
    text_put(p, 0, 0, 50, ROLE_NORMAL, "0123456789");
    text_put(p, 1, 0, 5, ROLE_NORMAL, "below");
    text_put(p, -1, 0, 5, ROLE_NORMAL, "above");
    text_put(p, 0, -3, 3, ROLE_NORMAL, "left");
    row_is(0, "");
    row_is(1, "  01234");
    row_is(2, "");
}

static void ascii_level_draws_nothing_but_ascii(void **state)
{
    (void)state;
    struct pane p = fresh(1, 12, GLYPH_ASCII);
    text_put(p, 0, 0, 12, ROLE_NORMAL, "─│▲ 東é 8×2");
    row_is(0, "-|^ ??? 8x2");
}

static void long_text_is_wrapped_at_blanks(void **state)
{
    (void)state;
    struct pane p = fresh(4, 10, GLYPH_BLOCK);
    assert_int_equal(text_wrap(p, 0, 0, 3, ROLE_NORMAL, "one two three four five six"), 3);
    row_is(0, "one two");
    row_is(1, "three four");
    row_is(2, "five six");
    p = fresh(4, 10, GLYPH_BLOCK);
    text_wrap(p, 0, 0, 2, ROLE_NORMAL, "one two three four five six");
    row_is(1, "three fou…");
    p = fresh(4, 4, GLYPH_BLOCK);
    assert_int_equal(text_wrap(p, 0, 0, 4, ROLE_NORMAL, "abcdefgh"), 2);
    row_is(1, "efgh");
}

static void panes_are_clipped_to_their_parent(void **state)
{
    (void)state;
    struct pane p = fresh(10, 10, GLYPH_BLOCK);
    struct pane in = pane_part(p, 8, 8, 5, 5);
    assert_int_equal(in.r.h, 2);
    assert_int_equal(in.r.w, 2);
    in = pane_part(p, 20, 20, 5, 5);
    assert_int_equal(in.r.h * in.r.w, 0);
    in = pane_part(p, -2, -2, 4, 4);
    assert_int_equal(in.r.h, 2);
}

int test_text_put(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_with_an_ellipsis_and_pads_to_the_width),
        cmocka_unit_test(wide_characters_take_two_cells_and_are_never_halved),
        cmocka_unit_test(hostile_text_cannot_steer_the_terminal),
        cmocka_unit_test(text_outside_of_the_pane_is_dropped),
        cmocka_unit_test(ascii_level_draws_nothing_but_ascii),
        cmocka_unit_test(long_text_is_wrapped_at_blanks),
        cmocka_unit_test(panes_are_clipped_to_their_parent),
    };
    int bad = cmocka_run_group_tests_name("tui/text_put", tests, NULL, NULL);
    grid_release(&grid);
    return bad;
}
