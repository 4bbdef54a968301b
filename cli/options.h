/* The option table: one row says everything about an option, and parsing, help, completion, the man
 * page, the configuration file and the tests that compare them are all made from it.
 *
 * Options come in groups (a titled table), so that commands share them. A command lists its groups;
 * the global group belongs to every command. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum option_kind {
    OPTION_FLAG,    /* --x; also --x=true or =false, 1 or 0, yes or no */
    OPTION_TEXT,    /* any text */
    OPTION_FILE,    /* a path, "-" for standard input or output */
    OPTION_CHOICE,  /* one of choices */
    OPTION_COUNT,   /* whole number: 4096, 4M, 10B */
    OPTION_NUMBER,  /* any finite number */
    OPTION_BYTES,   /* 80GiB */
    OPTION_SECONDS, /* 7d, 12h */
    OPTION_USD      /* 1500, 2.49; micro-dollars inside */
};

/* Unset members mean "none". Texts are one line, lower-case start, no full stop. */
struct option {
    const char *name;  /* long, without the dashes */
    const char *alias; /* a second long name, as other programs have it; unique like names */
    char letter;       /* short form */
    enum option_kind kind;
    bool is_repeatable;
    bool takes_pairs;     /* words NAME=VALUE that follow the value belong to it */
    bool is_setting;      /* also read from BERTH_NAME and from the configuration files */
    const char *argument; /* what --help calls the value; default from the kind */
    const char *choices;  /* OPTION_CHOICE: "cost|time|balanced" */
    const char *def;      /* default, written as the user would */
    const char *unit;     /* unit of a bare number, if the kind does not say it */
    const char *help;
    const char *detail;   /* more sentences, for --help and the man page */
    const char *since;    /* default: 0.1 */
    const char *example;  /* the option with a typical value */
    const char *complete; /* dynamic values: "runs", "gpus", "models", "providers" */
};

/* A titled table; options end with a row whose name is NULL. */
struct option_group {
    const char *title;
    const struct option *options;
};

/* Where a value came from; lower wins. The job file of a command lies between ENV and PROJECT. */
enum origin { ORIGIN_FLAG, ORIGIN_ENV, ORIGIN_PROJECT, ORIGIN_USER, ORIGIN_SYSTEM, ORIGIN_DEFAULT };
const char *origin_name(enum origin o);

/* Values of one invocation. */
struct args;
struct config;
struct str;

/* Groups end with NULL and are kept until args_free. config (may be NULL) is borrowed for the
 * call and supplies what neither flag nor environment says. */
struct args *args_new(const struct option_group *const *groups);
void args_free(struct args *a);

/* Parse argv[0..argc) (without program and command name). RC_USAGE with a sentence that names the
 * nearest known option. May be called more than once; later flags win. */
enum rc args_parse(struct args *a, int argc, char *const *argv, struct err *e);
/* Stop at the first operand instead of collecting it; *used is how many words were taken. */
enum rc args_parse_until_operand(
    struct args *a, int argc, char *const *argv, int *used, struct err *e);
/* Fill settings that no flag gave from the environment, the configuration, then the defaults. */
enum rc args_settle(struct args *a, const struct config *config, struct err *e);

/* --- reading; name must be in the groups (a mistake of ours otherwise) --- */

/* Given by flag, environment or configuration (not merely defaulted). */
bool args_has(const struct args *a, const char *name);
enum origin args_origin(const struct args *a, const char *name);
bool args_flag(const struct args *a, const char *name);
/* Text of the last value; the default; NULL. Returns borrowed, valid until args_free. */
const char *args_text(const struct args *a, const char *name);
/* Number of the last value or of the default; def when there is neither. */
int64_t args_int(const struct args *a, const char *name, int64_t def); /* count, bytes, usd */
double args_num(const struct args *a, const char *name, double def);   /* number, seconds, all */
/* Index into choices, -1 when unset and without default. */
int args_choice(const struct args *a, const char *name);
/* Values of a repeatable option, in order. */
size_t args_times(const struct args *a, const char *name);
const char *args_nth(const struct args *a, const char *name, size_t i);

/* Operands: words that are not options. args_operand gives NULL behind the end. */
size_t args_operands(const struct args *a);
const char *args_operand(const struct args *a, size_t i);

/* --- describing --- */

/* What help calls the value of an option: "N", "FILE", "cost|time"; NULL for flags. */
const char *option_argument(const struct option *o);
const char *option_since(const struct option *o);
/* Append the words of a choice, "cost, time, balanced". */
void option_put_choices(const struct option *o, struct str *s);
/* Environment variable and configuration key of a setting: BERTH_BUDGET_USD, budget_usd. */
char *option_env(const struct option *o, char buf[64]);
char *option_key(const struct option *o, char buf[64]);
/* Check a text against the option's kind; *integer, *number get its value. */
enum rc option_check(
    const struct option *o, const char *text, int64_t *integer, double *number, struct err *e);
/* Nearest of n words to a mistyped one, NULL when nothing is near. */
const char *nearest_word(const char *word, const char *const *words, size_t n);

#endif
