/* The table of all commands, in the order of help, and of the options that all of them take. */
#include "cli/command.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Each is defined in cli/cmd_NAME.c. */
extern const struct command CMD_OFFERS;
extern const struct command CMD_PLAN, CMD_ESTIMATE, CMD_EXPLAIN, CMD_VALIDATE, CMD_CALIBRATE;
extern const struct command CMD_PROBE, CMD_COMPARE, CMD_EXPORT, CMD_DATA, CMD_TUI;
extern const struct command CMD_LAUNCH, CMD_RUNS, CMD_STATUS, CMD_LOGS, CMD_ATTACH, CMD_WAIT;
extern const struct command CMD_STOP, CMD_RESUME, CMD_FETCH, CMD_EXPORT_WEIGHTS;
extern const struct command CMD_CLEAN, CMD_DOCTOR;
extern const struct command CMD_PATHS, CMD_CONFIG, CMD_COMPLETION, CMD_HELP, CMD_VERSION;
extern const struct command CMD_COMPLETE; /* for the completion scripts only: not listed */

const struct command *const COMMANDS[] = {
    &CMD_OFFERS,
    &CMD_PLAN,
    &CMD_ESTIMATE,
    &CMD_COMPARE,
    &CMD_EXPLAIN,
    &CMD_VALIDATE,
    &CMD_CALIBRATE,
    &CMD_PROBE,
    &CMD_EXPORT,
    &CMD_DATA,
    &CMD_TUI,
    &CMD_LAUNCH,
    &CMD_RUNS,
    &CMD_STATUS,
    &CMD_LOGS,
    &CMD_ATTACH,
    &CMD_WAIT,
    &CMD_STOP,
    &CMD_RESUME,
    &CMD_FETCH,
    &CMD_EXPORT_WEIGHTS,
    &CMD_CLEAN,
    &CMD_DOCTOR,
    &CMD_CONFIG,
    &CMD_PATHS,
    &CMD_COMPLETION,
    &CMD_HELP,
    &CMD_VERSION,
    NULL,
};

static const struct option GLOBAL[] = {
    {.name = "json",
        .kind = OPTION_FLAG,
        .help = "print one JSON document instead of text",
        .detail = "Its fields are added to, never renamed; unknown values are null. Errors are "
                  "documents too (error/1)."},
    {.name = "plain", .kind = OPTION_FLAG, .help = "print tables tab-separated, nothing cut"},
    {.name = "no-header", .kind = OPTION_FLAG, .help = "print tables without the header line"},
    {.name = "color",
        .kind = OPTION_CHOICE,
        .is_setting = true,
        .argument = "WHEN",
        .choices = "auto|always|never",
        .def = "auto",
        .help = "colour of text output",
        .detail = "With auto, NO_COLOR turns it off, FORCE_COLOR on, and otherwise only a "
                  "terminal gets it.",
        .example = "--color never"},
    {.name = "quiet",
        .letter = 'q',
        .kind = OPTION_FLAG,
        .help = "no notes and no progress; errors still appear"},
    {.name = "no-input",
        .kind = OPTION_FLAG,
        .is_setting = true,
        .help = "never ask; fail with exit code 7 instead"},
    {.name = "yes", .letter = 'y', .kind = OPTION_FLAG, .help = "answer questions with yes"},
    {.name = "reproducible",
        .kind = OPTION_FLAG,
        .is_setting = true,
        .help = "print null for times of day and durations of the program itself",
        .detail = "The same inputs then give the same bytes."},
    {.name = "help",
        .letter = 'h',
        .kind = OPTION_FLAG,
        .help = "explain the command; -h is the short form"},
    {.name = "version", .kind = OPTION_FLAG, .help = "print the version"},
    {0},
};

const struct option_group GLOBAL_OPTIONS = {"Global options", GLOBAL};

const struct command *command_find(const char *name)
{
    for (const struct command *const *c = COMMANDS; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return strcmp(name, CMD_COMPLETE.name) == 0 ? &CMD_COMPLETE : NULL;
}

const struct option_group **command_groups(const struct command *c)
{
    size_t n = 0;
    while (c && c->groups && c->groups[n])
        n++;
    const struct option_group **all = base_calloc(n + 2, sizeof(*all));
    for (size_t i = 0; i < n; i++)
        all[i] = c->groups[i];
    all[n] = &GLOBAL_OPTIONS;
    return all;
}

static bool is_listed(const struct option **all, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i]->name, name) == 0)
            return true;
    return false;
}

size_t command_settings(const struct option **all, size_t max)
{
    size_t n = 0;
    for (const struct command *const *c = COMMANDS; *c; c++) {
        const struct option_group **groups = command_groups(*c);
        for (size_t g = 0; groups[g]; g++)
            for (const struct option *o = groups[g]->options; o->name; o++)
                if (o->is_setting && n < max && !is_listed(all, n, o->name))
                    all[n++] = o;
        free(groups);
    }
    return n;
}
