#include "cli/table.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

static const struct table_column COLUMNS[] = {
    {.name = "NAME", .is_elastic = true},
    {.name = "GPUS", .align = TABLE_RIGHT},
    {.name = "MARKET", .drop = 1},
    {.name = "NOTE", .drop = 2, .is_elastic = true},
    {.name = "HIDDEN", .is_extra = true},
    {0},
};

static struct table *filled(void)
{
    struct table *t = table_new(COLUMNS);
    static const char *const CELLS[] = {"a-rather-long-name-of-a-node", "8", "spot", "first", "h1",
        "b", "16", NULL, "second note that is longer", "h2"};
    for (size_t i = 0; i < sizeof(CELLS) / sizeof(CELLS[0]); i++)
        table_cell(t, CELLS[i]);
    return t;
}

static void assert_prints(const struct table *t, struct table_style style, const char *want)
{
    struct str s = STR_INIT;
    table_print(t, &style, &s);
    assert_string_equal(str_text(&s), want);
    str_release(&s);
}

static void aligns_columns_and_leaves_no_trailing_spaces(void **state)
{
    (void)state;
    struct table *t = filled();
    assert_prints(t, (struct table_style){.has_header = true},
        "NAME                          GPUS  MARKET  NOTE\n"
        "a-rather-long-name-of-a-node     8  spot    first\n"
        "b                               16  -       second note that is longer\n");
    table_free(t);
}

/* On any terminal, with the columns it chooses and with those asked for. */
static void no_line_is_wider_than_the_terminal(void **state)
{
    (void)state;
    static const char *const selections[] = {
        NULL, "name,gpus,market,note,hidden", "gpus,market", "market,note", "hidden"};
    for (size_t k = 0; k < sizeof(selections) / sizeof(selections[0]); k++) {
        for (int width = 1; width < 100; width++) {
            struct table *t = filled();
            struct str s = STR_INIT;
            struct err e = ERR_INIT;
            if (selections[k])
                assert_int_equal(table_select(t, selections[k], &e), RC_OK);
            struct table_style style = {.width = width, .has_header = true, .ellipsis = "~"};
            table_print(t, &style, &s);
            const char *p = str_text(&s);
            int lines = 0;
            for (; *p; p += strcspn(p, "\n") + 1, lines++)
                if ((int)strcspn(p, "\n") > width)
                    fail_msg("at %d columns: %s", width, p);
            assert_int_equal(lines, 3);
            str_release(&s);
            table_free(t);
        }
    }
}

static void plain_is_tab_separated_and_whole(void **state)
{
    (void)state;
    struct table *t = filled();
    assert_prints(t, (struct table_style){.is_plain = true, .width = 10, .has_header = false},
        "a-rather-long-name-of-a-node\t8\tspot\tfirst\n"
        "b\t16\t-\tsecond note that is longer\n");
    table_free(t);
}

static void cuts_elastic_cells_before_dropping_columns(void **state)
{
    (void)state;
    struct table *t = filled();
    assert_prints(t, (struct table_style){.width = 50, .has_header = true},
        "NAME               GPUS  MARKET  NOTE\n"
        "a-rather-long-na…     8  spot    first\n"
        "b                    16  -       second note that…\n");
    assert_prints(t, (struct table_style){.width = 24, .has_header = true},
        "NAME        GPUS  MARKET\n"
        "a-rather-…     8  spot\n"
        "b             16  -\n");
    table_free(t);
}

/* Columns of a line, counting a UTF-8 character as one. */
static int columns_of(const char *line, size_t n)
{
    int columns = 0;
    for (size_t i = 0; i < n; i++)
        columns += ((unsigned char)line[i] & 0xC0) != 0x80;
    return columns;
}

static void no_line_is_wider_than_asked(void **state)
{
    (void)state;
    struct table *t = filled();
    for (int width = 14; width < 120; width++) {
        struct str s = STR_INIT;
        struct table_style style = {.width = width, .has_header = true};
        table_print(t, &style, &s);
        for (const char *p = str_text(&s); *p;) {
            size_t n = strcspn(p, "\n");
            assert_true(columns_of(p, n) <= width);
            p += n + 1;
        }
        str_release(&s);
    }
    table_free(t);
}

static void shows_the_columns_asked_for_in_their_order(void **state)
{
    (void)state;
    struct table *t = filled();
    struct err e = ERR_INIT;
    assert_int_equal(table_select(t, "hidden,NAME", &e), RC_OK);
    assert_prints(t, (struct table_style){.is_plain = true, .has_header = true},
        "HIDDEN\tNAME\nh1\ta-rather-long-name-of-a-node\nh2\tb\n");
    assert_int_equal(table_select(t, "name,price", &e), RC_USAGE);
    assert_string_equal(e.msg, "option '--columns': unknown column 'price'; known are name, gpus, "
                               "market, note, hidden");
    table_free(t);
}

static void foreign_cells_cannot_steer_the_terminal(void **state)
{
    (void)state;
    struct table *t = table_new((const struct table_column[]){{.name = "X"}, {0}});
    table_cell(t, "a\x1b[31m\nb\tc");
    assert_prints(t, (struct table_style){0}, "a?[31m?b c\n");
    table_free(t);
}

int test_table(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aligns_columns_and_leaves_no_trailing_spaces),
        cmocka_unit_test(no_line_is_wider_than_the_terminal),
        cmocka_unit_test(plain_is_tab_separated_and_whole),
        cmocka_unit_test(cuts_elastic_cells_before_dropping_columns),
        cmocka_unit_test(no_line_is_wider_than_asked),
        cmocka_unit_test(shows_the_columns_asked_for_in_their_order),
        cmocka_unit_test(foreign_cells_cannot_steer_the_terminal),
    };
    return cmocka_run_group_tests_name("cli/table", tests, NULL, NULL);
}
