#include "tui/keys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "tui/term.h"

static void no_key_means_two_things_in_one_view(void **state)
{
    (void)state;
    size_t n;
    const struct binding *t = keys_table(&n);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = i + 1; j < n; j++) {
            if (t[i].view != t[j].view)
                continue;
            bool is_same = t[i].key == t[j].key || t[i].key == t[j].alias ||
                           (t[i].alias && (t[i].alias == t[j].key || t[i].alias == t[j].alias));
            if (is_same)
                fail_msg("'%s' and '%s' share a key", t[i].help, t[j].help);
        }
    }
}

static void every_binding_is_explained_and_every_action_has_a_plain_key(void **state)
{
    (void)state;
    size_t n;
    const struct binding *t = keys_table(&n);
    for (size_t i = 0; i < n; i++) {
        assert_true(strlen(t[i].help) > 0);
        assert_true(t[i].priority == 0 || t[i].label);
        assert_true(t[i].key < K_F1 || t[i].key > K_F10); /* function keys are aliases only */
        /* what acts outside must say how to do it without the screens */
        assert_true(!t[i].is_acting || t[i].command);
    }
}

static void read_only_takes_the_acting_keys_away(void **state)
{
    (void)state;
    assert_int_equal(keys_find(VIEW_RUN, 'X', false)->action, ACT_STOP);
    assert_null(keys_find(VIEW_RUN, 'X', true));
    assert_null(keys_find(VIEW_LAUNCH, 'L', true));
    assert_int_equal(keys_find(VIEW_RUN, 'q', true)->action, ACT_QUIT);
}

static void modes_hide_the_keys_of_the_views(void **state)
{
    (void)state;
    assert_null(keys_find(MODE_EDIT, 'q', false));
    assert_null(keys_find(MODE_CONFIRM, 'y', false));
    assert_int_equal(keys_find(MODE_CONFIRM, K_ESC, false)->action, ACT_EDIT_CANCEL);
    assert_int_equal(keys_find(VIEW_JOB, 'h', false)->action, ACT_LEFT);
}

static void footer_keeps_help_and_quit_longest_and_whole_entries_only(void **state)
{
    (void)state;
    struct grid g;
    grid_init(&g, GLYPH_BLOCK);
    for (int view = 0; view < VIEW_COUNT; view++) {
        for (int cols = 40; cols <= 200; cols++) {
            grid_reset(&g, 1, cols);
            keys_footer(
                grid_pane(&g, (struct rect){0, 0, 1, cols}), (enum view)view, false, "quit");
            char *row = grid_row_text(&g, 0);
            assert_non_null(strstr(row, "? help"));
            assert_non_null(strstr(row, "q quit"));
            assert_null(strstr(row, "…"));
            free(row);
        }
    }
    grid_reset(&g, 1, 12);
    keys_footer(grid_pane(&g, (struct rect){0, 0, 1, 12}), VIEW_OFFERS, false, "quit");
    char *row = grid_row_text(&g, 0);
    assert_string_equal(row, " q quit");
    free(row);
    grid_release(&g);
}

int test_keys(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_key_means_two_things_in_one_view),
        cmocka_unit_test(every_binding_is_explained_and_every_action_has_a_plain_key),
        cmocka_unit_test(read_only_takes_the_acting_keys_away),
        cmocka_unit_test(modes_hide_the_keys_of_the_views),
        cmocka_unit_test(footer_keeps_help_and_quit_longest_and_whole_entries_only),
    };
    return cmocka_run_group_tests_name("tui/keys", tests, NULL, NULL);
}
