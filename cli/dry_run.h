/* What a command that acts would do, for --dry-run: a list of steps, each at a place. */
#ifndef CLI_DRY_RUN_H
#define CLI_DRY_RUN_H

#include "cli/options.h"

struct json;
struct out;

/* The row of a command's table; launch and resume have one of their own. */
#define DRY_RUN_OPTION                                                                             \
    {                                                                                              \
        .name = "dry-run", .letter = 'n', .kind = OPTION_FLAG,                                     \
        .help = "print every host, request and file; do nothing"                                   \
    }

#define DRY_HERE "this machine"

/* Append a step to an array: where (a host, or DRY_HERE), the verb, and on what (printf). Steps at
 * one place stand together. */
void dry_add(struct json *steps, const char *where, const char *verb, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Show it; takes steps. title says the whole in one line. */
void dry_print(struct out *out, const char *schema, const char *title, struct json *steps);

#endif
