#include "cli/options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"

static const struct option TABLE[] = {
    {.name = "dry-run", .letter = 'n', .kind = OPTION_FLAG, .help = "x"},
    {.name = "yes", .letter = 'y', .kind = OPTION_FLAG, .help = "x"},
    {.name = "output", .letter = 'o', .kind = OPTION_FILE, .help = "x"},
    {.name = "gpu", .kind = OPTION_TEXT, .is_repeatable = true, .help = "x"},
    {.name = "tokens", .kind = OPTION_COUNT, .help = "x"},
    {.name = "memory", .kind = OPTION_BYTES, .def = "80GiB", .help = "x"},
    {.name = "deadline", .kind = OPTION_SECONDS, .is_setting = true, .help = "x"},
    {.name = "budget-usd", .kind = OPTION_USD, .help = "x"},
    {.name = "ratio", .kind = OPTION_NUMBER, .help = "x"},
    {.name = "goal",
        .kind = OPTION_CHOICE,
        .choices = "cost|time|balanced",
        .def = "cost",
        .help = "x"},
    {.name = "what-if",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .takes_pairs = true,
        .help = "x"},
    {0},
};
static const struct option_group GROUP = {"Options", TABLE};
static const struct option_group *const GROUPS[] = {&GROUP, NULL};

/* Split text at spaces and parse it; "~" stands for an empty word. */
static enum rc parse(struct args *a, const char *text, struct err *e)
{
    char copy[256];
    char *words[32], *save = NULL;
    int n = 0;
    assert_true(str_copy(copy, sizeof(copy), text));
    for (char *p = strtok_r(copy, " ", &save); p; p = strtok_r(NULL, " ", &save))
        words[n++] = strcmp(p, "~") == 0 ? p + 1 : p;
    return args_parse(a, n, words, e);
}

static void reads_every_spelling_of_an_option(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct args *a = args_new(GROUPS);
    assert_int_equal(parse(a,
                         "one --tokens=10B -ny -oout.json --gpu h100 two --gpu=a100 --memory "
                         "512MiB --deadline 1d12h --budget-usd 1,500.25 --ratio -0.5 "
                         "--goal time -- --three -n -",
                         &e),
        RC_OK);
    assert_true(args_int(a, "tokens", 0) == 10000000000LL);
    assert_true(args_flag(a, "dry-run") && args_flag(a, "yes"));
    assert_string_equal(args_text(a, "output"), "out.json");
    assert_int_equal(args_times(a, "gpu"), 2);
    assert_string_equal(args_nth(a, "gpu", 0), "h100");
    assert_string_equal(args_nth(a, "gpu", 1), "a100");
    assert_null(args_nth(a, "gpu", 2));
    assert_true(args_int(a, "memory", 0) == 512LL << 20);
    assert_float_equal(args_num(a, "deadline", 0), 129600, 1e-9);
    assert_true(args_int(a, "budget-usd", 0) == 1500250000);
    assert_float_equal(args_num(a, "ratio", 0), -0.5, 1e-12);
    assert_int_equal(args_choice(a, "goal"), 1);
    assert_int_equal(args_operands(a), 5);
    assert_string_equal(args_operand(a, 2), "--three");
    assert_string_equal(args_operand(a, 4), "-");
    assert_null(args_operand(a, 5));
    args_free(a);
}

static void defaults_are_not_values_that_were_given(void **state)
{
    (void)state;
    struct args *a = args_new(GROUPS);
    assert_false(args_has(a, "memory"));
    assert_true(args_int(a, "memory", 0) == 80LL << 30);
    assert_string_equal(args_text(a, "goal"), "cost");
    assert_int_equal(args_choice(a, "goal"), 0);
    assert_true(args_int(a, "tokens", 42) == 42);
    assert_null(args_text(a, "output"));
    assert_int_equal(args_origin(a, "goal"), ORIGIN_DEFAULT);
    args_free(a);
}

static void the_last_value_wins_and_flags_can_be_switched_off(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct args *a = args_new(GROUPS);
    assert_int_equal(parse(a, "--tokens 1 --tokens 2 -n --dry-run=false", &e), RC_OK);
    assert_true(args_int(a, "tokens", 0) == 2);
    assert_int_equal(args_times(a, "tokens"), 1);
    assert_false(args_flag(a, "dry-run"));
    args_free(a);
}

static void says_what_is_wrong_and_what_is_near(void **state)
{
    (void)state;
    static const struct {
        const char *words, *sentence;
    } CASES[] = {
        {"--dryrun", "unknown option '--dryrun'; did you mean '--dry-run'?"},
        {"--budget=5", "unknown option '--budget'; did you mean '--budget-usd'?"},
        {"--zzzzzz", "unknown option '--zzzzzz'"},
        {"-x", "unknown option '-x'"},
        {"-nx", "unknown option '-x'"},
        {"--tokens", "option '--tokens' needs a value: --tokens N"},
        {"-o", "option '--output' needs a value: --output FILE"},
        {"--goal", "option '--goal' needs a value: --goal cost|time|balanced"},
        {"--tokens many",
            "option '--tokens': 'many' is not a count; write it like 10B, 4M or 4096"},
        {"--goal=cos", "option '--goal': 'cos' is not one of cost|time|balanced"},
        {"--goal=", "option '--goal': '' is not one of cost|time|balanced"},
        {"--goal=cost|time", "option '--goal': 'cost|time' is not one of cost|time|balanced"},
        {"--dry-run=maybe",
            "option '--dry-run': 'maybe' must be true or false (1 or 0, yes or no)"},
        {"--output ~", "option '--output': the value is empty"},
        {"--deadline 7y",
            "option '--deadline': '7y' is not a duration; write it like 7d, 12h or 90s"},
        {"--tok 5", "unknown option '--tok'; did you mean '--tokens'?"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct err e = ERR_INIT;
        struct args *a = args_new(GROUPS);
        assert_int_equal(parse(a, CASES[i].words, &e), RC_USAGE);
        assert_string_equal(e.msg, CASES[i].sentence);
        args_free(a);
    }
}

static void the_environment_fills_settings_only(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    setenv("BERTH_DEADLINE", "2h", 1);
    setenv("BERTH_TOKENS", "7", 1);
    struct args *a = args_new(GROUPS);
    assert_int_equal(args_settle(a, NULL, &e), RC_OK);
    assert_float_equal(args_num(a, "deadline", 0), 7200, 1e-9);
    assert_int_equal(args_origin(a, "deadline"), ORIGIN_ENV);
    assert_false(args_has(a, "tokens"));
    args_free(a);

    a = args_new(GROUPS);
    assert_int_equal(parse(a, "--deadline 1h", &e), RC_OK);
    assert_int_equal(args_settle(a, NULL, &e), RC_OK);
    assert_float_equal(args_num(a, "deadline", 0), 3600, 1e-9);
    assert_int_equal(args_origin(a, "deadline"), ORIGIN_FLAG);
    args_free(a);

    setenv("BERTH_DEADLINE", "soon", 1);
    a = args_new(GROUPS);
    assert_int_not_equal(args_settle(a, NULL, &e), RC_OK);
    assert_string_equal(e.msg, "environment variable 'BERTH_DEADLINE': 'soon' is not a duration; "
                               "write it like 7d, 12h or 90s");
    args_free(a);
    unsetenv("BERTH_DEADLINE");
    unsetenv("BERTH_TOKENS");
}

static void pairs_that_follow_belong_to_the_option(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct args *a = args_new(GROUPS);
    assert_int_equal(
        parse(a,
            "--what-if a=1x b=2x job.json c=3x --what-if=d=1x e=+2% -n f=1x --what-if g=1 -- "
            "h=2",
            &e),
        RC_OK);
    assert_int_equal(args_times(a, "what-if"), 3);
    assert_string_equal(args_nth(a, "what-if", 0), "a=1x b=2x");
    assert_string_equal(args_nth(a, "what-if", 1), "d=1x e=+2%");
    assert_string_equal(args_nth(a, "what-if", 2), "g=1");
    assert_int_equal(args_operands(a), 4);
    assert_string_equal(args_operand(a, 0), "job.json");
    assert_string_equal(args_operand(a, 1), "c=3x");
    assert_string_equal(args_operand(a, 2), "f=1x");
    assert_string_equal(args_operand(a, 3), "h=2");
    args_free(a);
}

static void stops_at_the_first_operand_when_told(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char y[] = "-y", tokens[] = "--tokens", five[] = "5", plan[] = "plan", rest[] = "--nonsense";
    char *words[] = {y, tokens, five, plan, rest};
    int used = -1;
    struct args *a = args_new(GROUPS);
    assert_int_equal(args_parse_until_operand(a, 5, words, &used, &e), RC_OK);
    assert_int_equal(used, 3);
    assert_int_equal(args_operands(a), 0);
    args_free(a);
}

int test_options(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_spelling_of_an_option),
        cmocka_unit_test(defaults_are_not_values_that_were_given),
        cmocka_unit_test(the_last_value_wins_and_flags_can_be_switched_off),
        cmocka_unit_test(says_what_is_wrong_and_what_is_near),
        cmocka_unit_test(the_environment_fills_settings_only),
        cmocka_unit_test(pairs_that_follow_belong_to_the_option),
        cmocka_unit_test(stops_at_the_first_operand_when_told),
    };
    return cmocka_run_group_tests_name("cli/options", tests, NULL, NULL);
}
