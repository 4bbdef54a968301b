#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"

static enum rc unknown_topic(const char *name, struct err *e)
{
    const char *names[128];
    size_t n = 0;
    for (const struct help_topic *t = HELP_TOPICS; t->name && n < BASE_COUNT(names); t++)
        names[n++] = t->name;
    for (const struct command *const *c = COMMANDS; *c && n < BASE_COUNT(names); c++)
        names[n++] = (*c)->name;
    const char *near = nearest_word(name, names, n);
    if (near)
        return err_set(e, RC_USAGE, "no help on '%s'; did you mean '%s'?", name, near);
    return err_set(e, RC_USAGE, "no help on '%s'; `berth help` lists commands and topics", name);
}

static enum rc write_topic(struct str *s, const char *name, struct err *e)
{
    const struct command *c = command_find(name);
    if (c) {
        help_command(s, c, true);
        return RC_OK;
    }
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        if (strcmp(t->name, name) == 0) {
            t->write(s);
            return RC_OK;
        }
    return unknown_topic(name, e);
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct str s = STR_INIT;
    enum rc rc = RC_OK;
    const char *topic = args_operand(args, 0);
    if (args_flag(args, "man"))
        help_man_page(&s);
    else if (topic)
        rc = write_topic(&s, topic, e);
    else
        help_overview(&s);
    if (!rc)
        out_whole_text(out, "help/1", "topic", topic, str_text(&s));
    str_release(&s);
    return rc;
}

static const struct option OPTIONS[] = {
    {.name = "man", .kind = OPTION_FLAG, .help = "print the manual page berth.1"},
    {0},
};
static const struct option_group HELP_OPTIONS = {"Options", OPTIONS};

const struct command CMD_HELP = {
    .name = "help",
    .topic = COMMAND_SELF,
    .summary = "explain a command or a topic",
    .operands = "[COMMAND|TOPIC]",
    .max_operands = 1,
    .about = "Without an argument: all commands and topics.",
    .examples = (const char *const[]){"berth help exit-codes", "berth help --man | man -l -", NULL},
    .groups = (const struct option_group *const[]){&HELP_OPTIONS, NULL},
    .run = run,
};
