#include "tui/job_form.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "tui/argv.h"
#include "tui/term.h"

static void errors_stand_beside_their_fields(void **state)
{
    (void)state;
    struct job_form f;
    job_form_init(&f);
    assert_true(job_form_is_good(&f));
    line_edit_set(&f.field[JOB_TOKENS], "ten");
    line_edit_set(&f.field[JOB_MODEL], "no-such-model");
    line_edit_set(&f.field[JOB_BUDGET], "0");
    job_form_check(&f);
    assert_false(job_form_is_good(&f));
    assert_non_null(strstr(f.error[JOB_TOKENS], "ten"));
    assert_non_null(strstr(f.error[JOB_MODEL], "no-such-model"));
    assert_string_equal(f.error[JOB_BUDGET], "must be more than 0");
    assert_string_equal(f.error[JOB_DEADLINE], "");
    line_edit_set(&f.field[JOB_TOKENS], "");
    job_form_check(&f);
    assert_string_equal(f.error[JOB_TOKENS], "needed");
}

static void form_becomes_the_options_of_the_command(void **state)
{
    (void)state;
    struct job_form f;
    struct argv a;
    struct str s = STR_INIT;
    job_form_init(&f);
    line_edit_set(&f.field[JOB_MODEL], "gpt2");
    line_edit_set(&f.field[JOB_TOKENS], "2B");
    line_edit_set(&f.field[JOB_REGION], "eu west");
    line_edit_set(&f.field[JOB_BUDGET], "1500");
    job_form_turn(&f, JOB_OBJECTIVE, 1);
    argv_init(&a);
    argv_add(&a, "plan");
    job_form_argv(&f, &a);
    argv_text(&a, &s);
    assert_string_equal(str_text(&s), "berth plan --model gpt2 --tokens 2B --objective time "
                                      "--budget-usd 1500 --region 'eu west'");
    str_release(&s);
    argv_release(&a);
}

static void choices_turn_around(void **state)
{
    (void)state;
    struct job_form f;
    job_form_init(&f);
    const char *want[] = {"time", "balanced", "cost", "time"};
    for (int i = 0; i < 4; i++) {
        job_form_turn(&f, JOB_OBJECTIVE, 1);
        assert_string_equal(f.field[JOB_OBJECTIVE].text, want[i]);
    }
    job_form_turn(&f, JOB_OBJECTIVE, -1);
    job_form_turn(&f, JOB_OBJECTIVE, -1);
    assert_string_equal(f.field[JOB_OBJECTIVE].text, "balanced");
    job_form_turn(&f, JOB_MODEL, 1); /* not a choice: stays */
    assert_string_equal(f.field[JOB_MODEL].text, "llama-3.1-8b");
}

static void shell_words_are_quoted_where_needed(void **state)
{
    (void)state;
    struct argv a;
    struct str s = STR_INIT;
    argv_init(&a);
    argv_words(&a, "  offers price<2.5   !spot ");
    argv_add(&a, "it's");
    argv_add(&a, "");
    argv_text(&a, &s);
    assert_string_equal(str_text(&s), "berth offers 'price<2.5' '!spot' 'it'\\''s' ''");
    str_release(&s);
    argv_release(&a);
}

static void typing_edits_whole_characters(void **state)
{
    (void)state;
    struct line_edit l;
    line_edit_set(&l, "aé東");
    line_edit_begin(&l);
    line_edit_key(&l, K_BACKSPACE);
    assert_string_equal(l.text, "aé");
    line_edit_key(&l, K_LEFT);
    line_edit_key(&l, 'x');
    assert_string_equal(l.text, "axé");
    line_edit_key(&l, K_DELETE);
    assert_string_equal(l.text, "ax");
    line_edit_key(&l, 0x6771);
    assert_string_equal(l.text, "ax東");
    assert_false(line_edit_key(&l, 7)); /* a bell is no text */
    line_edit_paste(&l, "b\033[31m\tc\nnext line");
    assert_string_equal(l.text, "ax東b[31mc");
    line_edit_undo(&l);
    assert_string_equal(l.text, "aé東");
    line_edit_set(&l, "one two");
    line_edit_key(&l, K_CTRL_W);
    assert_string_equal(l.text, "one ");
    for (int i = 0; i < 2 * LINE_EDIT_MAX; i++)
        line_edit_key(&l, 0x6771);
    assert_true(l.len < LINE_EDIT_MAX && strlen(l.text) == l.len);
}

int test_job_form(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_stand_beside_their_fields),
        cmocka_unit_test(form_becomes_the_options_of_the_command),
        cmocka_unit_test(choices_turn_around),
        cmocka_unit_test(shell_words_are_quoted_where_needed),
        cmocka_unit_test(typing_edits_whole_characters),
    };
    return cmocka_run_group_tests_name("tui/job_form", tests, NULL, NULL);
}
