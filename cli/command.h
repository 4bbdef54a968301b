/* One command: a constant descriptor in its own file cli/cmd_NAME.c, listed in cli/commands.c.
 *
 * To add one: write cli/cmd_NAME.c with `const struct command CMD_NAME`, declare it and add a line
 * to COMMANDS in commands.c. Help, completion and man page follow from the descriptor. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "base/err.h"
#include "cli/options.h"

struct out;

enum { COMMAND_MAX_SETTINGS = 256 };
enum command_topic { COMMAND_PLAN, COMMAND_RUN, COMMAND_SELF };

struct command {
    const char *name;
    enum command_topic topic;                 /* under which heading `berth help` lists it */
    const char *summary;                      /* one line, imperative, no full stop */
    const char *operands;                     /* "[RUN]" as usage shows it; NULL for none */
    int min_operands, max_operands;           /* max -1: any number */
    const char *about;                        /* paragraphs for --help; may be NULL */
    const char *const *examples;              /* whole command lines, ends with NULL; two or more */
    const struct option_group *const *groups; /* ends with NULL; without the global group */
    /* Do it. The answer goes to out; on failure e holds the sentence. A failure whose answer was
     * already printed leaves e->msg empty. */
    enum rc (*run)(const struct args *args, struct out *out, struct err *e);
};

/* All commands in the order of `berth help`; ends with NULL. */
extern const struct command *const COMMANDS[];
/* Options every command takes. */
extern const struct option_group GLOBAL_OPTIONS;

/* NULL when there is none. */
const struct command *command_find(const char *name);
/* The command's groups and the global one, ending with NULL. Caller frees the array. */
const struct option_group **command_groups(const struct command *c);
/* Every option that is a setting, each name once, into all[max]; returns how many. */
size_t command_settings(const struct option **all, size_t max);

#endif
