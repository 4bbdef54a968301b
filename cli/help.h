/* Texts made from the command and option tables: help, the man page, completion scripts. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdbool.h>

struct command;
struct str;

/* `berth help`: what the program is, the commands by topic. */
void help_overview(struct str *s);
/* `berth NAME -h` (two examples, one line per option) or --help (everything). */
void help_command(struct str *s, const struct command *c, bool is_full);
/* "usage: berth NAME [options] OPERANDS". */
void help_usage(struct str *s, const struct command *c);

/* A topic of `berth help TOPIC`. */
struct help_topic {
    const char *name;
    const char *summary;
    void (*write)(struct str *s);
};
/* All topics; ends with a NULL name. */
extern const struct help_topic HELP_TOPICS[];

/* berth.1, in man macros. */
void help_man_page(struct str *s);

/* Completion script of "bash", "zsh" or "fish". */
bool help_completion(struct str *s, const char *shell);

/* Text folded at 80 columns, each line after indent spaces. */
void help_fold(struct str *s, const char *text, int indent);

#endif
