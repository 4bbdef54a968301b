#include "tui/list.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

struct fruit {
    const char *name;
    int price;
};
struct basket {
    struct fruit fruit[8];
    size_t n;
    const char *filter;
};

static uint64_t id(const void *data, size_t row)
{
    return list_id(((const struct basket *)data)->fruit[row].name);
}

static void cell(const void *data, size_t row, int column, char text[LIST_CELL], enum role *role)
{
    (void)role;
    const struct fruit *f = &((const struct basket *)data)->fruit[row];
    if (column == 0)
        str_copy(text, LIST_CELL, f->name);
    else
        snprintf(text, LIST_CELL, "%d", f->price);
}

static int compare(const void *data, size_t a, size_t b, int column)
{
    const struct basket *k = data;
    return column == 0 ? strcmp(k->fruit[a].name, k->fruit[b].name)
                       : k->fruit[a].price - k->fruit[b].price;
}

static bool matches(const void *data, size_t row)
{
    const struct basket *k = data;
    return !k->filter || strstr(k->fruit[row].name, k->filter);
}

static const struct list_column columns[] = {
    {"NAME", 8, false, true, 0}, {"PRICE", 6, true, false, 1}, {NULL, 0, false, false, 0}};

static struct list_rows rows_of(const struct basket *k)
{
    return (struct list_rows){k, k->n, columns, id, cell, compare, matches};
}

static const char *selected(const struct list *l, const struct basket *k)
{
    size_t row;
    return list_selected(l, &row) ? k->fruit[row].name : NULL;
}

static const struct basket start = {
    {{"pear", 30}, {"apple", 20}, {"plum", 10}, {"cherry", 40}}, 4, NULL};

static void selection_follows_the_row_when_the_order_changes(void **state)
{
    (void)state;
    struct basket k = start;
    struct list_rows rows = rows_of(&k);
    struct list l;
    list_init(&l, 1, false);
    list_update(&l, &rows);
    assert_string_equal(selected(&l, &k), "plum");
    list_act(&l, &rows, ACT_DOWN);
    assert_string_equal(selected(&l, &k), "apple");
    list_act(&l, &rows, ACT_SORT_REVERSE);
    assert_string_equal(selected(&l, &k), "apple");
    k.fruit[1].price = 1; /* a refresh */
    list_update(&l, &rows);
    assert_string_equal(selected(&l, &k), "apple");
    assert_int_equal(l.cursor, 3);
    list_release(&l);
}

static void filter_hides_rows_and_the_cursor_stays_on_its_line(void **state)
{
    (void)state;
    struct basket k = start;
    struct list_rows rows = rows_of(&k);
    struct list l;
    char text[48];
    list_init(&l, 0, false);
    list_update(&l, &rows);
    list_act(&l, &rows, ACT_LAST);
    assert_string_equal(selected(&l, &k), "plum");
    k.filter = "p";
    list_update(&l, &rows);
    assert_string_equal(selected(&l, &k), "plum");
    assert_string_equal(list_count(&l, text), "3 of 4");
    k.filter = "ch";
    list_update(&l, &rows);
    assert_string_equal(selected(&l, &k), "cherry");
    k.filter = "zzz";
    list_update(&l, &rows);
    assert_null(selected(&l, &k));
    list_act(&l, &rows, ACT_DOWN); /* in an empty list nothing happens */
    list_act(&l, &rows, ACT_PAGE_UP);
    k.filter = NULL;
    list_update(&l, &rows);
    assert_string_equal(selected(&l, &k), "cherry");
    list_release(&l);
}

static void cursor_is_always_on_the_screen(void **state)
{
    (void)state;
    struct basket k = start;
    k.n = 4;
    struct list_rows rows = rows_of(&k);
    struct list l;
    list_init(&l, -1, false);
    list_update(&l, &rows);
    for (int lines = 1; lines < 6; lines++) {
        list_arrange(&l, lines);
        for (int i = 0; i < 40; i++) {
            static const enum action moves[] = {ACT_DOWN, ACT_DOWN, ACT_PAGE_DOWN, ACT_UP, ACT_LAST,
                ACT_FIRST, ACT_PAGE_UP, ACT_DOWN};
            list_act(&l, &rows, moves[i % 8]);
            assert_true(l.cursor < l.n && l.top <= l.cursor);
            assert_true(l.cursor < l.top + (size_t)lines);
        }
    }
    list_release(&l);
}

static void narrow_lists_drop_columns_and_keep_the_name(void **state)
{
    (void)state;
    struct basket k = start;
    struct list_rows rows = rows_of(&k);
    struct list l;
    struct grid g;
    list_init(&l, 1, true);
    list_update(&l, &rows);
    list_arrange(&l, 4);
    grid_init(&g, GLYPH_BLOCK);
    grid_reset(&g, 3, 18);
    list_draw(&l, &rows, grid_pane(&g, (struct rect){0, 0, 3, 18}), true);
    char *head = grid_row_text(&g, 0), *first = grid_row_text(&g, 1);
    assert_string_equal(head, " NAME      PRICE▼");
    assert_string_equal(first, ">cherry        40");
    assert_int_equal(grid_at(&g, 1, 17)->role, ROLE_SELECTED);
    free(head);
    free(first);
    grid_reset(&g, 3, 12);
    list_draw(&l, &rows, grid_pane(&g, (struct rect){0, 0, 3, 12}), true);
    head = grid_row_text(&g, 0);
    assert_string_equal(head, " NAME");
    free(head);
    grid_release(&g);
    list_release(&l);
}

int test_list(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(selection_follows_the_row_when_the_order_changes),
        cmocka_unit_test(filter_hides_rows_and_the_cursor_stays_on_its_line),
        cmocka_unit_test(cursor_is_always_on_the_screen),
        cmocka_unit_test(narrow_lists_drop_columns_and_keep_the_name),
    };
    return cmocka_run_group_tests_name("tui/list", tests, NULL, NULL);
}
