/* Completion scripts for bash, zsh and fish, made from the tables of commands and options. Values
 * known only at the moment (runs, GPUs, models) come from `berth __complete`. */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/options.h"

/* Quote for a single-quoted shell word. */
static void put_quoted(struct str *s, const char *text)
{
    for (; *text; text++)
        str_add(s, *text == '\'' ? "'\\''" : (const char[]){*text, '\0'});
}

static void put_choices(struct str *s, const char *choices)
{
    for (; *choices; choices++)
        str_addc(s, *choices == '|' ? ' ' : *choices);
}

/* Words a command takes as operands when they are written as a choice, "bash|zsh|fish". */
static const char *operand_choices(const struct command *c)
{
    const char *o = c->operands;
    return o && !strpbrk(o, "[] ABCDEFGHIJKLMNOPQRSTUVWXYZ") ? o : NULL;
}

/* What `berth __complete` lists for the operands; NULL when they are files or words. */
static const char *operand_kind(const struct command *c)
{
    return c->operands && strstr(c->operands, "RUN") ? "runs" : NULL;
}

/* --- bash ------------------------------------------------------------------------------------- */

static void bash_values(struct str *s, const struct option *o)
{
    str_addf(s, "        --%s", o->name);
    if (o->letter)
        str_addf(s, "|-%c", o->letter);
    if (o->kind == OPTION_CHOICE) {
        str_add(s, ") COMPREPLY=($(compgen -W '");
        put_choices(s, o->choices);
        str_add(s, "' -- \"$cur\")); return ;;\n");
    } else if (o->kind == OPTION_FILE) {
        str_add(s, ") COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
    } else if (o->complete) {
        str_addf(s,
            ") COMPREPLY=($(compgen -W \"$(berth __complete %s 2>/dev/null)\" -- \"$cur\")); "
            "return "
            ";;\n",
            o->complete);
    } else {
        str_add(s, ") return ;;\n");
    }
}

static void bash_command(struct str *s, const struct command *c)
{
    const struct option_group **groups = command_groups(c);
    str_addf(s, "    %s)\n        case $prev in\n", c->name);
    for (size_t g = 0; groups[g]; g++)
        for (const struct option *o = groups[g]->options; o->name; o++)
            if (o->kind != OPTION_FLAG)
                bash_values(s, o);
    str_add(s, "        esac\n        words='");
    for (size_t g = 0; groups[g]; g++)
        for (const struct option *o = groups[g]->options; o->name; o++)
            str_addf(s, "--%s ", o->name);
    str_add(s, "'\n");
    if (operand_choices(c)) {
        str_add(s, "        [[ $cur == -* ]] || words='");
        put_choices(s, operand_choices(c));
        str_add(s, "'\n");
    } else if (operand_kind(c)) {
        str_addf(s, "        [[ $cur == -* ]] || words=$(berth __complete %s 2>/dev/null)\n",
            operand_kind(c));
    } else if (strcmp(c->name, "help") == 0) {
        str_add(s, "        [[ $cur == -* ]] || words=\"$commands $topics\"\n");
    } else {
        str_add(
            s, "        [[ $cur == -* ]] || { COMPREPLY=($(compgen -f -- \"$cur\")); return; }\n");
    }
    str_add(s, "        ;;\n");
    free(groups);
}

static void bash_script(struct str *s)
{
    str_add(s, "# bash completion for berth; load with: source <(berth completion bash)\n"
               "_berth() {\n"
               "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= i "
               "command=\n"
               "    local commands='");
    for (const struct command *const *c = COMMANDS; *c; c++)
        str_addf(s, "%s ", (*c)->name);
    str_add(s, "' topics='");
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        str_addf(s, "%s ", t->name);
    str_add(s, "'\n"
               "    COMPREPLY=()\n"
               "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
               "        case ${COMP_WORDS[i]} in --color) i=$((i + 1)) ;; -*) ;; *) "
               "command=${COMP_WORDS[i]}; break ;; esac\n"
               "    done\n"
               "    case $command in\n"
               "    '') words=\"$commands\"; [[ $cur != -* ]] || words='");
    for (const struct option *o = GLOBAL_OPTIONS.options; o->name; o++)
        str_addf(s, "--%s ", o->name);
    str_add(s, "' ;;\n");
    for (const struct command *const *c = COMMANDS; *c; c++)
        bash_command(s, *c);
    str_add(s, "    esac\n"
               "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
               "}\n"
               "complete -F _berth berth\n");
}

/* --- zsh -------------------------------------------------------------------------------------- */

/* Colons and brackets structure zsh's option specifications. */
static void zsh_text(struct str *s, const char *text)
{
    for (; *text; text++) {
        if (strchr(":[]\\", *text))
            str_addc(s, '\\');
        char one[2] = {*text, '\0'};
        put_quoted(s, one);
    }
}

static void zsh_option(struct str *s, const struct option *o)
{
    str_addf(s, "            '%s--%s%s[", o->is_repeatable ? "*" : "", o->name,
        o->kind == OPTION_FLAG ? "" : "=");
    zsh_text(s, o->help);
    str_addc(s, ']');
    if (o->kind == OPTION_CHOICE) {
        str_addf(s, ":%s:(", o->name);
        put_choices(s, o->choices);
        str_addc(s, ')');
    } else if (o->kind == OPTION_FILE) {
        str_addf(s, ":%s:_files", o->name);
    } else if (o->complete) {
        str_addf(s, ":%s:{compadd -- $(berth __complete %s 2>/dev/null)}", o->name, o->complete);
    } else if (o->kind != OPTION_FLAG) {
        str_addf(s, ":%s: ", o->name);
    }
    str_add(s, "' \\\n");
}

static void zsh_command(struct str *s, const struct command *c)
{
    const struct option_group **groups = command_groups(c);
    str_addf(s, "    %s)\n        _arguments -s \\\n", c->name);
    for (size_t g = 0; groups[g]; g++)
        for (const struct option *o = groups[g]->options; o->name; o++)
            zsh_option(s, o);
    if (operand_choices(c)) {
        str_add(s, "            '*:value:(");
        put_choices(s, operand_choices(c));
        str_add(s, ")' ;;\n");
    } else if (operand_kind(c)) {
        str_addf(s, "            '*:value:{compadd -- $(berth __complete %s 2>/dev/null)}' ;;\n",
            operand_kind(c));
    } else if (strcmp(c->name, "help") == 0) {
        str_add(s, "            \"1:topic:(${commands%%:*} $topics)\" ;;\n");
    } else {
        str_add(s, "            '*:file:_files' ;;\n");
    }
    free(groups);
}

static void zsh_script(struct str *s)
{
    str_add(s, "#compdef berth\n"
               "_berth() {\n"
               "    local -a commands topics\n"
               "    commands=(\n");
    for (const struct command *const *c = COMMANDS; *c; c++) {
        str_addf(s, "        '%s:", (*c)->name);
        zsh_text(s, (*c)->summary);
        str_add(s, "'\n");
    }
    str_add(s, "    )\n    topics=(");
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        str_addf(s, "%s ", t->name);
    str_add(s, ")\n"
               "    if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
               "    local command=$words[2]\n"
               "    shift words; (( CURRENT-- ))\n"
               "    case $command in\n");
    for (const struct command *const *c = COMMANDS; *c; c++)
        zsh_command(s, *c);
    str_add(s,
        "    esac\n"
        "}\n"
        "if [[ $funcstack[1] == _berth ]]; then _berth \"$@\"; else compdef _berth berth; fi\n");
}

/* --- fish ------------------------------------------------------------------------------------- */

static void fish_option(struct str *s, const char *condition, const struct option *o)
{
    str_addf(s, "complete -c berth %s -l %s", condition, o->name);
    if (o->letter)
        str_addf(s, " -s %c", o->letter);
    if (o->kind == OPTION_FILE)
        str_add(s, " -r -F");
    else if (o->kind != OPTION_FLAG)
        str_add(s, " -x");
    if (o->kind == OPTION_CHOICE) {
        str_add(s, " -a '");
        put_choices(s, o->choices);
        str_addc(s, '\'');
    }
    if (o->complete)
        str_addf(s, " -a '(berth __complete %s 2>/dev/null)'", o->complete);
    str_add(s, " -d '");
    put_quoted(s, o->help);
    str_add(s, "'\n");
}

static void fish_command(struct str *s, const struct command *c)
{
    struct str condition = STR_INIT;
    str_addf(&condition, "-n '__fish_seen_subcommand_from %s'", c->name);
    str_addf(s, "complete -c berth -n __fish_use_subcommand -f -a %s -d '", c->name);
    put_quoted(s, c->summary);
    str_add(s, "'\n");
    if (operand_choices(c)) {
        str_addf(s, "complete -c berth %s -f -a '", str_text(&condition));
        put_choices(s, operand_choices(c));
        str_add(s, "'\n");
    }
    if (operand_kind(c))
        str_addf(s, "complete -c berth %s -f -a '(berth __complete %s 2>/dev/null)'\n",
            str_text(&condition), operand_kind(c));
    for (const struct option_group *const *g = c->groups; g && *g; g++)
        for (const struct option *o = (*g)->options; o->name; o++)
            fish_option(s, str_text(&condition), o);
    str_release(&condition);
}

static void fish_script(struct str *s)
{
    str_add(s, "# fish completion for berth\n");
    for (const struct command *const *c = COMMANDS; *c; c++)
        fish_command(s, *c);
    for (const struct help_topic *t = HELP_TOPICS; t->name; t++)
        str_addf(s, "complete -c berth -n '__fish_seen_subcommand_from help' -f -a %s\n", t->name);
    for (const struct option *o = GLOBAL_OPTIONS.options; o->name; o++)
        fish_option(s, "", o);
}

bool help_completion(struct str *s, const char *shell)
{
    static const struct {
        const char *name;
        void (*write)(struct str *s);
    } SHELLS[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
    for (size_t i = 0; i < sizeof(SHELLS) / sizeof(SHELLS[0]); i++)
        if (strcmp(SHELLS[i].name, shell) == 0) {
            SHELLS[i].write(s);
            return true;
        }
    return false;
}
