#include "cli/cli.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/config.h"
#include "cli/help.h"
#include "cli/options.h"
#include "cli/output.h"
#include "inventory/gpu.h"
#include "inventory/shape.h"

static void print_help(struct out *out, const struct command *c, bool is_full)
{
    struct str s = STR_INIT;
    if (c)
        help_command(&s, c, is_full);
    else
        help_overview(&s);
    out_whole_text(out, "help/1", "topic", c ? c->name : NULL, str_text(&s));
    str_release(&s);
}

/* -h asks for the short form; any spelling with two dashes for the full one. */
static bool has_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

static enum rc unknown_command(const char *name, struct err *e)
{
    const char *names[128];
    size_t n = 0;
    for (const struct command *const *c = COMMANDS; *c && n < BASE_COUNT(names); c++)
        names[n++] = (*c)->name;
    const char *near = nearest_word(name, names, n);
    if (near)
        return err_set(e, RC_USAGE, "unknown command '%s'; did you mean '%s'?", name, near);
    return err_set(e, RC_USAGE, "unknown command '%s'; `berth help` lists them", name);
}

static enum rc check_operands(const struct command *c, const struct args *args, struct err *e)
{
    int n = (int)args_operands(args);
    if (n < c->min_operands)
        return err_set(
            e, RC_USAGE, "%s needs %s; see `berth %s -h`", c->name, c->operands, c->name);
    if (c->max_operands >= 0 && n > c->max_operands)
        return err_set(e, RC_USAGE, "unexpected argument '%s'; see `berth %s -h`",
            args_operand(args, (size_t)c->max_operands), c->name);
    return RC_OK;
}

static void warn_unknown_keys(struct out *out, const struct config *config)
{
    const struct option *settings[COMMAND_MAX_SETTINGS];
    size_t n = command_settings(settings, COMMAND_MAX_SETTINGS);
    const char *key, *path;
    for (size_t i = 0; config_key_at(config, i, &key, &path); i++) {
        bool is_known = false;
        char known[64];
        for (size_t j = 0; j < n && !is_known; j++)
            is_known = strcmp(option_key(settings[j], known), key) == 0;
        if (!is_known)
            out_warn(out, "'%s': '%s' is not a setting; `berth config show` lists them", path, key);
    }
}

/* What one start of the program is about. */
struct call {
    int argc;
    char **argv;
    const struct command *command; /* NULL: none was named */
    int at;                        /* index of the command's name in argv, argc without one */
    struct args *args;
    struct out *out;
};

/* A new set of values for the groups; output follows the global options among them. */
static void call_reset(struct call *c, const struct option_group *const *groups)
{
    out_free(c->out);
    args_free(c->args);
    c->args = args_new(groups);
    c->out = out_new(c->args);
}

static void call_follow_options(struct call *c)
{
    out_free(c->out);
    c->out = out_new(c->args);
}

/* Find the command behind any leading global options. */
static enum rc find_command(struct call *c, struct err *e)
{
    static const struct option_group *const GLOBAL_ONLY[] = {&GLOBAL_OPTIONS, NULL};
    call_reset(c, GLOBAL_ONLY);
    int used = 0;
    enum rc rc = args_parse_until_operand(c->args, c->argc - 1, c->argv + 1, &used, e);
    c->at = 1 + used;
    if (rc)
        return rc;
    call_follow_options(c);
    if (c->at < c->argc) {
        c->command = command_find(c->argv[c->at]);
        return c->command ? RC_OK : unknown_command(c->argv[c->at], e);
    }
    if (args_flag(c->args, "version"))
        c->command = command_find("version");
    else if (!args_flag(c->args, "help") && out_is_terminal(c->out) && isatty(STDIN_FILENO))
        c->command = command_find("tui");
    return RC_OK;
}

/* Read the options once more, now knowing which ones the command has. */
static enum rc parse_for_command(struct call *c, struct err *e)
{
    const struct option_group **groups = command_groups(c->command);
    call_reset(c, groups);
    free(groups);
    enum rc rc = args_parse(c->args, c->at - 1, c->argv + 1, e);
    if (!rc && c->at < c->argc)
        rc = args_parse(c->args, c->argc - c->at - 1, c->argv + c->at + 1, e);
    if (!rc)
        call_follow_options(c);
    return rc;
}

/* gpus.csv and shapes.csv in the user's data folder add to the facts or override them. */
static enum rc load_user_facts(struct err *e)
{
    static const struct {
        const char *name;
        enum rc (*load)(const char *path, struct err *e);
    } FILES[] = {{"gpus.csv", gpu_load_user}, {"shapes.csv", shape_load_user}};
    char *folder = path_user(PATH_DATA);
    enum rc rc = RC_OK;
    for (size_t i = 0; i < BASE_COUNT(FILES) && !rc; i++) {
        char *path = path_join(folder, FILES[i].name);
        if (file_exists(path))
            rc = FILES[i].load(path, e);
        free(path);
    }
    free(folder);
    return rc;
}

/* Settings, operands, then the command itself. */
static enum rc run_command(struct call *c, struct err *e)
{
    struct config *config = NULL;
    /* a broken file must not take away the commands that help to mend it */
    bool needs_files = c->command->topic != COMMAND_SELF || c->command == command_find("config");
    enum rc rc = RC_OK;
    if (needs_files)
        rc = config_load(&config, e);
    else
        config = config_none();
    if (!rc)
        rc = args_settle(c->args, config, e);
    if (!rc && needs_files)
        rc = load_user_facts(e);
    if (!rc)
        rc = check_operands(c->command, c->args, e);
    if (!rc) {
        call_follow_options(c); /* settings may have changed the colour */
        out_arm_interrupt(c->out);
        warn_unknown_keys(c->out, config);
        rc = c->command->run(c->args, c->out, e);
    }
    config_free(config);
    return rc;
}

static enum rc without_command(struct out *out, struct err *e)
{
    struct str s = STR_INIT;
    help_overview(&s);
    out_short_help(out, str_text(&s));
    str_release(&s);
    return err_set(e, RC_USAGE, "no command, and no terminal for the full-screen interface");
}

static enum rc act(struct call *c, struct err *e)
{
    enum rc rc = find_command(c, e);
    if (!rc && c->command)
        rc = parse_for_command(c, e);
    if (rc)
        return rc;
    if (args_flag(c->args, "help"))
        print_help(c->out, c->command, !has_word(c->argc, c->argv, "-h"));
    else if (c->command)
        return run_command(c, e);
    else
        return without_command(c->out, e);
    return RC_OK;
}

int cli_main(int argc, char **argv)
{
    /* a plain command has nothing to tidy up; those that do install their own handler */
    signal(SIGINT, out_leave_on_interrupt);
    signal(SIGTERM, out_leave_on_interrupt);
    struct err e = ERR_INIT;
    struct call c = {.argc = argc, .argv = argv};
    enum rc rc = act(&c, &e);
    /* A bad option may have hidden the --json behind it; the reader still wants a document. */
    if (rc == RC_USAGE)
        out_force(c.out, has_word(argc, argv, "--json"), has_word(argc, argv, "--reproducible"));
    int status = out_finish(c.out, rc, &e);
    out_free(c.out);
    args_free(c.args);
    return status;
}
