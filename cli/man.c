/* The man page, made from the tables of commands and options and from the topics of help. */
#include <stddef.h>

#include "base/str.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/options.h"

/* Text as man macros want it: dashes and backslashes literal, no line that looks like a request. */
static void put_text(struct str *s, const char *text)
{
    bool is_line_start = true;
    for (; *text; text++) {
        if (is_line_start && (*text == '.' || *text == '\''))
            str_add(s, "\\&");
        if (*text == '-' || *text == '\\')
            str_addc(s, '\\');
        str_addc(s, *text == '\\' ? 'e' : *text);
        is_line_start = *text == '\n';
    }
}

static void put_line(struct str *s, const char *text)
{
    put_text(s, text);
    str_addc(s, '\n');
}

static void put_option(struct str *s, const struct option *o)
{
    char name[64];
    const char *argument = option_argument(o);
    str_add(s, ".TP\n\\fB");
    if (o->letter)
        str_addf(s, "\\-%c\\fR, \\fB", o->letter);
    str_add(s, "\\-\\-");
    put_text(s, o->name);
    str_add(s, "\\fR");
    if (argument) {
        str_add(s, " \\fI");
        put_text(s, argument);
        str_add(s, "\\fR");
    }
    str_addc(s, '\n');
    put_line(s, o->help);
    if (o->detail)
        put_line(s, o->detail);
    str_add(s, ".br\n");
    struct str facts = STR_INIT;
    if (o->choices && o->argument) {
        str_add(&facts, "Values: ");
        option_put_choices(o, &facts);
        str_add(&facts, ". ");
    }
    if (o->alias)
        str_addf(&facts, "Also --%s. ", o->alias);
    if (o->unit)
        str_addf(&facts, "Unit: %s. ", o->unit);
    if (o->def)
        str_addf(&facts, "Default: %s. ", o->def);
    if (o->is_repeatable)
        str_add(&facts, "May be repeated. ");
    if (o->is_setting)
        str_addf(&facts, "Also %s. ", option_env(o, name));
    if (o->example)
        str_addf(&facts, "Example: %s. ", o->example);
    str_addf(&facts, "Since %s.", option_since(o));
    put_line(s, str_text(&facts));
    str_release(&facts);
}

static void put_command(struct str *s, const struct command *c)
{
    str_addf(
        s, ".SS berth %s%s%s\n", c->name, c->operands ? " " : "", c->operands ? c->operands : "");
    put_line(s, c->summary);
    if (c->about) {
        str_add(s, ".PP\n");
        put_line(s, c->about);
    }
    for (const struct option_group *const *g = c->groups; g && *g; g++)
        for (const struct option *o = (*g)->options; o->name; o++)
            put_option(s, o);
    str_add(s, ".PP\nExamples:\n.RS\n.nf\n");
    for (size_t i = 0; c->examples[i]; i++)
        put_line(s, c->examples[i]);
    str_add(s, ".fi\n.RE\n");
}

static void put_topic(struct str *s, const struct help_topic *t)
{
    struct str text = STR_INIT;
    t->write(&text);
    str_addf(s, ".SH ");
    for (const char *p = t->name; *p; p++)
        str_addc(s, *p == '-' ? ' ' : *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p);
    str_add(s, "\n.nf\n");
    put_line(s, str_text(&text));
    str_add(s, ".fi\n");
    str_release(&text);
}

void help_man_page(struct str *s)
{
    str_add(s, ".TH BERTH 1 \"\" \"berth " BERTH_VERSION "\" \"User Commands\"\n"
               ".SH NAME\nberth \\- plan and launch sharded training of large models\n"
               ".SH SYNOPSIS\n.B berth\n[\\fIcommand\\fR] [\\fIoptions\\fR]\n"
               ".SH DESCRIPTION\n"
               "Berth reads what can be rented, works out how to shard a model over it and what "
               "that\nwill cost, launches its own training engine on the nodes over SSH and looks "
               "after the run.\nWithout a command on a terminal it opens a full\\-screen "
               "interface.\n.SH COMMANDS\n");
    for (const struct command *const *c = COMMANDS; *c; c++)
        put_command(s, *c);
    str_add(s, ".SH GLOBAL OPTIONS\n");
    for (const struct option *o = GLOBAL_OPTIONS.options; o->name; o++)
        put_option(s, o);
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        put_topic(s, t);
}
