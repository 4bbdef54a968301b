/* Help, completion and man page come from the same tables; this looks at what came out. */
#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/help.h"
#include "cli/options.h"

/* Call check for every option of every command, the global ones included. */
static void each_option(void (*check)(const struct command *c, const struct option *o))
{
    for (const struct command *const *c = COMMANDS; *c; c++) {
        const struct option_group **groups = command_groups(*c);
        for (size_t g = 0; groups[g]; g++)
            for (const struct option *o = groups[g]->options; o->name; o++)
                check(*c, o);
        free(groups);
    }
}

static void check_option(const struct command *c, const struct option *o)
{
    int64_t integer;
    double number;
    bool is_good = o->help &&
                   islower((unsigned char)o->help[0]) | isupper((unsigned char)o->help[0]) &&
                   o->help[strlen(o->help) - 1] != '.' && strlen(o->help) <= 75;
    if (!is_good)
        fail_msg("--%s of %s: help text '%s'", o->name, c->name, o->help);
    if (o->kind == OPTION_CHOICE && !o->choices)
        fail_msg("--%s of %s has no choices", o->name, c->name);
    if (o->def && option_check(o, o->def, &integer, &number, NULL))
        fail_msg("--%s of %s refuses its own default", o->name, c->name);
    if (o->kind == OPTION_FLAG && (o->def || o->is_repeatable))
        fail_msg("--%s of %s: a flag with a default", o->name, c->name);
    if (o->kind != OPTION_FLAG && !o->example)
        fail_msg("--%s of %s has no example", o->name, c->name);
}

static void every_option_is_fully_described(void **state)
{
    (void)state;
    each_option(check_option);
}

/* args_choice is taken for the enumerator. */
static void engines_are_listed_in_their_order(void **state)
{
    (void)state;
    struct str all = STR_INIT;
    for (int g = 0; g < ENGINE_COUNT; g++)
        str_addf(&all, "%s%s", g ? "|" : "", engine_name((enum engine)g));
    assert_string_equal(ENGINE_CHOICES, str_text(&all));
    str_release(&all);
}

static void names_and_letters_are_unique_within_a_command(void **state)
{
    (void)state;
    for (const struct command *const *c = COMMANDS; *c; c++) {
        const struct option_group **groups = command_groups(*c);
        const char *names[256];
        char letters[256] = "";
        size_t n = 0;
        for (size_t g = 0; groups[g]; g++)
            for (const struct option *o = groups[g]->options; o->name; o++) {
                for (size_t i = 0; i < n; i++)
                    if (strcmp(names[i], o->name) == 0)
                        fail_msg("%s has --%s twice", (*c)->name, o->name);
                names[n++] = o->name;
                if (o->alias)
                    names[n++] = o->alias;
                if (o->letter && strchr(letters, o->letter))
                    fail_msg("%s has -%c twice", (*c)->name, o->letter);
                if (o->letter)
                    letters[strlen(letters)] = o->letter;
            }
        free(groups);
    }
}

/* The options in "berth NAME ... --x ... -y" are options of NAME. */
static void check_example(const struct command *c, const char *line)
{
    const struct option_group **groups = command_groups(c);
    for (const char *p = strstr(line, " --"); p; p = strstr(p + 1, " --")) {
        const char *after_pipe = strchr(line, '|');
        size_t len = strcspn(p + 3, " =)");
        bool is_known = after_pipe && p > after_pipe;
        for (size_t g = 0; groups[g] && !is_known; g++)
            for (const struct option *o = groups[g]->options; o->name && !is_known; o++)
                is_known = strlen(o->name) == len && strncmp(o->name, p + 3, len) == 0;
        if (!is_known)
            fail_msg("example '%s' of %s uses an option it does not have", line, c->name);
    }
    free(groups);
}

static void every_command_has_examples_that_use_its_own_options(void **state)
{
    (void)state;
    for (const struct command *const *c = COMMANDS; *c; c++) {
        char start[64];
        snprintf(start, sizeof(start), "berth %s", (*c)->name);
        assert_non_null((*c)->summary);
        assert_non_null((*c)->run);
        assert_true(strlen((*c)->summary) <= 62 && islower((unsigned char)(*c)->summary[0]));
        for (size_t i = 0; i < 2 || (*c)->examples[i]; i++) {
            if (!(*c)->examples[i])
                fail_msg("%s has fewer than two examples", (*c)->name);
            if (!strstr((*c)->examples[i], start))
                fail_msg("an example of %s does not start with it", (*c)->name);
            check_example(*c, (*c)->examples[i]);
        }
    }
}

static struct str text;

static void want(const char *what, const char *in)
{
    if (!strstr(str_text(&text), what))
        fail_msg("'%s' is not in %s", what, in);
}

static void want_in_help(const struct command *c, const struct option *o)
{
    char name[96];
    snprintf(name, sizeof(name), "--%s", o->name);
    str_reset(&text);
    help_command(&text, c, true);
    want(name, "--help");
    if (o->is_setting)
        want(option_env(o, name), "--help");
}

static void help_shows_every_option(void **state)
{
    (void)state;
    each_option(want_in_help);
    str_reset(&text);
    help_overview(&text);
    for (const struct command *const *c = COMMANDS; *c; c++)
        want((*c)->summary, "berth help");
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        want(t->summary, "berth help");
    str_release(&text);
}

static void no_help_line_is_wider_than_80_columns(void **state)
{
    (void)state;
    str_reset(&text);
    help_overview(&text);
    for (const struct command *const *c = COMMANDS; *c; c++) {
        help_command(&text, *c, false);
        help_command(&text, *c, true);
    }
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        if (strcmp(t->name, "files") != 0) /* paths are as long as they are */
            t->write(&text);
    for (const char *p = str_text(&text); *p;) {
        size_t n = strcspn(p, "\n"), columns = 0;
        for (size_t i = 0; i < n; i++)
            columns += ((unsigned char)p[i] & 0xC0) != 0x80;
        bool is_example = strstr(p, "berth ") && strstr(p, "berth ") < p + n;
        if (columns > 80 && !is_example)
            fail_msg("%zu columns: %.*s", columns, (int)n, p);
        p += n + 1;
    }
    str_release(&text);
}

static void want_in_man(const struct command *c, const struct option *o)
{
    (void)c;
    struct str name = STR_INIT;
    str_add(&name, "\\fB\\-\\-");
    for (const char *p = o->name; *p; p++)
        str_addf(&name, *p == '-' ? "\\-" : "%c", *p);
    str_add(&name, "\\fR");
    want(str_text(&name), "berth.1");
    str_release(&name);
}

static void the_man_page_shows_every_option(void **state)
{
    (void)state;
    str_reset(&text);
    help_man_page(&text);
    each_option(want_in_man);
    str_release(&text);
}

static const char *shell;

static void want_in_completion(const struct command *c, const struct option *o)
{
    (void)c;
    char name[96];
    snprintf(name, sizeof(name), strcmp(shell, "fish") == 0 ? " -l %s" : "--%s", o->name);
    want(name, shell);
}

static void every_shell_completes_every_command_and_option(void **state)
{
    (void)state;
    static const char *const SHELLS[] = {"bash", "zsh", "fish"};
    for (size_t i = 0; i < 3; i++) {
        shell = SHELLS[i];
        str_reset(&text);
        assert_true(help_completion(&text, shell));
        for (const struct command *const *c = COMMANDS; *c; c++)
            want((*c)->name, shell);
        each_option(want_in_completion);
    }
    assert_false(help_completion(&text, "csh"));
    str_release(&text);
}

int test_tables_agree(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_are_listed_in_their_order),
        cmocka_unit_test(every_option_is_fully_described),
        cmocka_unit_test(names_and_letters_are_unique_within_a_command),
        cmocka_unit_test(every_command_has_examples_that_use_its_own_options),
        cmocka_unit_test(help_shows_every_option),
        cmocka_unit_test(no_help_line_is_wider_than_80_columns),
        cmocka_unit_test(the_man_page_shows_every_option),
        cmocka_unit_test(every_shell_completes_every_command_and_option),
    };
    return cmocka_run_group_tests_name("cli/tables_agree", tests, NULL, NULL);
}
