#include "cli/help.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "cli/command.h"
#include "cli/options.h"

enum { HELP_WIDTH = 80, HELP_COLUMN = 28 };

static void pad(struct str *s, int n)
{
    for (int i = 0; i < n; i++)
        str_addc(s, ' ');
}

/* Fold behind text that already takes `at` columns of the first line. */
static void fold_from(struct str *s, const char *text, int indent, int at)
{
    int column = at;
    bool is_start = true;
    while (*text) {
        size_t n = strcspn(text, " \n");
        if (!is_start && column + 1 + (int)n > HELP_WIDTH) {
            str_addc(s, '\n');
            pad(s, indent);
            column = indent;
            is_start = true;
        }
        if (!is_start)
            str_addc(s, ' ');
        column += (int)n + !is_start;
        str_addn(s, text, n);
        is_start = false;
        text += n;
        if (*text == '\n') {
            str_addc(s, '\n');
            pad(s, text[1] && text[1] != '\n' ? indent : 0);
            column = indent;
            is_start = true;
        }
        text += *text != '\0';
    }
    str_addc(s, '\n');
}

void help_fold(struct str *s, const char *text, int indent)
{
    pad(s, indent);
    fold_from(s, text, indent, indent);
}

void help_usage(struct str *s, const struct command *c)
{
    str_addf(s, "usage: berth %s [options]%s%s\n", c->name, c->operands ? " " : "",
        c->operands ? c->operands : "");
}

/* "  -o, --output FILE" */
static void put_names(struct str *s, const struct option *o)
{
    const char *argument = option_argument(o);
    if (o->letter)
        str_addf(s, "  -%c, --%s", o->letter, o->name);
    else
        str_addf(s, "      --%s", o->name);
    if (argument)
        str_addf(s, " %s", argument);
}

static void put_facts(struct str *s, const struct option *o)
{
    char name[64];
    if (o->detail)
        help_fold(s, o->detail, HELP_COLUMN);
    struct str facts = STR_INIT;
    if (o->choices && o->argument) {
        str_add(&facts, "values: ");
        option_put_choices(o, &facts);
        str_add(&facts, "; ");
    }
    if (o->alias)
        str_addf(&facts, "also --%s; ", o->alias);
    if (o->unit)
        str_addf(&facts, "unit: %s; ", o->unit);
    if (o->def)
        str_addf(&facts, "default: %s; ", o->def);
    if (o->is_repeatable)
        str_add(&facts, "may be repeated; ");
    if (o->is_setting) {
        str_addf(&facts, "also %s, ", option_env(o, name));
        str_addf(&facts, "setting %s; ", option_key(o, name));
    }
    if (o->example)
        str_addf(&facts, "example: %s; ", o->example);
    if (facts.len) {
        char *text = str_steal(&facts);
        text[strlen(text) - 2] = '\0'; /* the last "; " */
        help_fold(s, text, HELP_COLUMN);
        free(text);
    }
    str_release(&facts);
}

static void put_option(struct str *s, const struct option *o, bool is_full)
{
    size_t start = s->len;
    put_names(s, o);
    int used = (int)(s->len - start);
    if (used > HELP_COLUMN - 2) {
        str_addc(s, '\n');
        used = 0;
    }
    pad(s, HELP_COLUMN - used);
    fold_from(s, o->help, HELP_COLUMN, HELP_COLUMN);
    if (is_full)
        put_facts(s, o);
}

static void put_group(struct str *s, const struct option_group *g, bool is_full)
{
    str_addf(s, "\n%s:\n", g->title);
    for (const struct option *o = g->options; o->name; o++)
        put_option(s, o, is_full);
}

static void put_examples(struct str *s, const struct command *c, int most)
{
    str_add(s, "\nExamples:\n");
    for (int i = 0; c->examples[i] && i < most; i++)
        str_addf(s, "  %s\n", c->examples[i]);
}

void help_command(struct str *s, const struct command *c, bool is_full)
{
    str_addf(s, "berth %s: %s\n", c->name, c->summary);
    if (!is_full)
        put_examples(s, c, 2);
    str_addc(s, '\n');
    help_usage(s, c);
    if (is_full && c->about) {
        str_addc(s, '\n');
        help_fold(s, c->about, 0);
    }
    for (const struct option_group *const *g = c->groups; g && *g; g++)
        put_group(s, *g, is_full);
    if (!is_full) {
        str_addf(s, "\nGlobal options and more: berth %s --help\n", c->name);
        return;
    }
    put_group(s, &GLOBAL_OPTIONS, true);
    put_examples(s, c, 100);
    str_add(s, "\nExit codes: berth help exit-codes\n");
}

static void put_commands(struct str *s, enum command_topic topic, const char *title)
{
    bool is_first = true;
    for (const struct command *const *c = COMMANDS; *c; c++) {
        if ((*c)->topic != topic)
            continue;
        if (is_first)
            str_addf(s, "\n%s:\n", title);
        is_first = false;
        str_addf(s, "  %-14s %s\n", (*c)->name, (*c)->summary);
    }
}

void help_overview(struct str *s)
{
    str_add(s, "Berth plans sharded training of large models over rented nodes, launches it\n"
               "over SSH and looks after the run.\n\n"
               "usage: berth [command] [options]\n"
               "       berth                     without a command: the full-screen interface\n");
    put_commands(s, COMMAND_PLAN, "Plan");
    put_commands(s, COMMAND_RUN, "Run");
    put_commands(s, COMMAND_SELF, "About Berth");
    str_add(s, "\nTopics (berth help TOPIC):\n");
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        str_addf(s, "  %-14s %s\n", t->name, t->summary);
    str_add(s, "\nEvery command explains itself: berth COMMAND -h, or in full --help.\n");
}
