/* JSON, CSV, safe text and sentences: what hostile input may not do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/csv.h"
#include "base/err.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"

static void json_refuses_what_is_not_exactly_one_sound_value(void **state)
{
    (void)state;
    static const char *const BAD[] = {"", "{", "{\"a\":1}x", "{\"a\":1,\"a\":2}", "[1,]", "nan",
        "{\"a\":NaN}", "'x'", "{\"a\":\"\xff\"}", "[1e999]"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct json *v = NULL;
        struct err e = ERR_INIT;
        if (json_parse(&v, BAD[i], strlen(BAD[i]), &e) == RC_OK)
            fail_msg("accepted %s", BAD[i]);
        assert_null(v);
    }
    struct str deep = STR_INIT;
    struct json *v;
    struct err e = ERR_INIT;
    for (int i = 0; i < 100000; i++)
        str_addc(&deep, '[');
    assert_int_equal(json_parse(&v, deep.p, deep.len, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "nested deeper than 64"));
    str_release(&deep);
}

static void json_keeps_whole_numbers_exact_and_the_order_of_keys(void **state)
{
    (void)state;
    const char *text =
        "\xEF\xBB\xBF{\"z\":9007199254740993,\"a\":0.5,\"m\":null,\"s\":\"\\u00e9\"}";
    struct json *v;
    struct err e = ERR_INIT;
    assert_int_equal(json_parse(&v, text, strlen(text), &e), RC_OK);
    assert_true(json_int(v, "z", 0) == 9007199254740993LL);
    assert_null(json_get(v, "m"));
    char *back = json_print(v, false);
    assert_string_equal(back, "{\"z\":9007199254740993,\"a\":0.5,\"m\":null,\"s\":\"é\"}");
    int64_t n;
    const char *s;
    assert_int_equal(json_need_int(v, "z", 0, 10, &n, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "'z'"));
    assert_int_equal(json_need_str(v, "a", &s, &e), RC_INVALID);
    assert_string_equal(e.msg, "field 'a' must be a string");
    assert_int_equal(json_need_str(v, "m", &s, &e), RC_INVALID);
    assert_string_equal(e.msg, "field 'm' is missing");
    free(back);
    json_free(v);
}

static void json_prints_numbers_that_are_none_as_null_and_repairs_utf8(void **state)
{
    (void)state;
    struct json *v = json_obj();
    json_add_num(v, "x", 0.0 / 0.0);
    json_add_num(v, "y", 1e308 * 10);
    json_add_str(v, "s", "a\xff");
    json_add_str(v, "n", NULL);
    char *text = json_print(v, false);
    assert_string_equal(text, "{\"x\":null,\"y\":null,\"s\":\"a\xEF\xBF\xBD\",\"n\":null}");
    free(text);
    json_free(v);
}

static void csv_reads_what_spreadsheets_write(void **state)
{
    (void)state;
    const char *text = "\xEF\xBB\xBF"
                       "name, price\r\n# remark\r\n\"a, \"\"b\"\"\", 1 \r\n\r\nc\r\n";
    struct csv c;
    struct err e = ERR_INIT;
    assert_int_equal(csv_parse(&c, text, strlen(text), &e), RC_OK);
    assert_int_equal(c.rows, 2);
    assert_string_equal(csv_cell(&c, 0, csv_column(&c, "NAME")), "a, \"b\"");
    assert_string_equal(csv_cell(&c, 0, csv_column(&c, "price")), "1");
    assert_string_equal(csv_cell(&c, 1, csv_column(&c, "price")), "");
    assert_string_equal(csv_cell(&c, 1, csv_column(&c, "none")), "");
    assert_int_equal(c.lines[1], 5);
    csv_release(&c);
}

static void csv_refuses_with_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } BAD[] = {{"", "no header"}, {"a,b\n1,2,3\n", "line 2 has 3 columns"},
        {"a\n\"open\n\n", "line 2: a quoted cell is not closed"},
        {"# made by a spreadsheet\na;b\n1;2\n", "separated by semicolons"},
        {"a\tb\n1\t2\n", "separated by tabs"}};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        struct csv c;
        struct err e = ERR_INIT;
        assert_int_equal(csv_parse(&c, BAD[i].text, strlen(BAD[i].text), &e), RC_INVALID);
        assert_non_null(strstr(e.msg, BAD[i].says));
    }
}

static void csv_cells_read_back_as_written(void **state)
{
    (void)state;
    static const char *const CELLS[] = {"plain", "a,b", "say \"hi\"", "two\nlines", " lead", "#no"};
    struct str s = STR_INIT;
    str_add(&s, "h\n");
    for (size_t i = 0; i < sizeof(CELLS) / sizeof(CELLS[0]); i++) {
        csv_put(&s, CELLS[i]);
        str_addc(&s, '\n');
    }
    struct csv c;
    struct err e = ERR_INIT;
    assert_int_equal(csv_parse(&c, s.p, s.len, &e), RC_OK);
    for (size_t i = 0; i < sizeof(CELLS) / sizeof(CELLS[0]); i++)
        assert_string_equal(csv_cell(&c, i, 0), CELLS[i]);
    csv_release(&c);
    str_release(&s);
}

static void text_cannot_steer_a_terminal(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } CASES[] = {{"\033[31mred", "?[31mred"}, {"a\tb\rc\n", "a b?c?"},
        {"\xc2\x9b"
         "2J",
            "?2J"},
        {"\xe2\x80\xae"
         "evil",
            "?evil"},
        {"caf\xc3\xa9 \xe2\x9c\x93", "caf\xc3\xa9 \xe2\x9c\x93"}, {"\xff\xc0\xaf", "???"},
        {"\xed\xa0\x80", "???"}};
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        char *safe = text_safe(CASES[i].in);
        assert_string_equal(safe, CASES[i].out);
        free(safe);
    }
}

static void sentences_gain_context_in_front_and_lose_control_bytes(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(err_set(&e, RC_NOT_FOUND, "cannot open '%s'", "a\033b"), RC_NOT_FOUND);
    assert_int_equal(err_in(&e, "launch run %d", 7), RC_NOT_FOUND);
    assert_string_equal(e.msg, "launch run 7: cannot open 'a?b'");
    assert_int_equal(rc_exit_code(RC_NO_FIT), 3);
    assert_int_equal(rc_exit_code(RC_INTERRUPTED), 130);
}

/* 100 kB of an argument do not push the advice out of the sentence. */
static void sentences_shorten_what_they_quote(void **state)
{
    (void)state;
    static char longest[100001];
    const char *const kinds[] = {"x", "x y", "'", "\xc3\xa9"};
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        size_t n = strlen(kinds[k]);
        for (size_t i = 0; i + n < sizeof(longest); i += n)
            memcpy(longest + i, kinds[k], n);
        struct err e = ERR_INIT;
        err_set(&e, RC_USAGE, "unknown option '--%s'; did you mean '--json'?", longest);
        assert_true(strlen(e.msg) < 300);
        assert_non_null(strstr(e.msg, "...") ? e.msg : NULL);
        assert_non_null(strstr(e.msg, "'; did you mean '--json'?"));
        char *safe = text_safe(e.msg);
        assert_string_equal(safe, e.msg); /* no character was cut */
        free(safe);
        err_in(&e, "'%s'", longest);
        assert_non_null(strstr(e.msg, "'; did you mean '--json'?"));
    }
    struct err e = ERR_INIT;
    err_set(&e, RC_USAGE, "it's '%s': 'a' and 'b'", "short");
    assert_string_equal(e.msg, "it's 'short': 'a' and 'b'");
}

static void strings_stop_at_their_maximum(void **state)
{
    (void)state;
    struct str s;
    str_init(&s, 10);
    for (int i = 0; i < 100; i++)
        str_addf(&s, "%d", i);
    assert_int_equal(s.len, 10);
    assert_true(s.is_truncated);
    assert_string_equal(s.p, "0123456789");
    str_drop(&s, 4);
    assert_string_equal(s.p, "456789");
    str_release(&s);
    assert_int_equal(str_distance("kitten", "sitting"), 3);
}

int test_texts(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_refuses_what_is_not_exactly_one_sound_value),
        cmocka_unit_test(json_keeps_whole_numbers_exact_and_the_order_of_keys),
        cmocka_unit_test(json_prints_numbers_that_are_none_as_null_and_repairs_utf8),
        cmocka_unit_test(csv_reads_what_spreadsheets_write),
        cmocka_unit_test(csv_refuses_with_the_line),
        cmocka_unit_test(csv_cells_read_back_as_written),
        cmocka_unit_test(text_cannot_steer_a_terminal),
        cmocka_unit_test(sentences_gain_context_in_front_and_lose_control_bytes),
        cmocka_unit_test(sentences_shorten_what_they_quote),
        cmocka_unit_test(strings_stop_at_their_maximum),
    };
    return cmocka_run_group_tests_name("base/texts", tests, NULL, NULL);
}
