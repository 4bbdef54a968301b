/* berth-engine on this machine, as a child whose output is wanted. */
#ifndef CLI_ENGINE_CHILD_H
#define CLI_ENGINE_CHILD_H

#include "base/err.h"

struct str;

/* Called with each line of the child's standard output, without its end, as soon as it is there. */
typedef void engine_child_line(void *arg, const char *line);

/* Run it with these words (behind its name; ends with NULL) and append what it writes to standard
 * output to out. A failure carries the last line it wrote to standard error and the code that its
 * exit status stands for. */
enum rc engine_child_run(struct str *out, const char *const *words, struct err *e);

/* The same with its lines handed on one by one. */
enum rc engine_child_follow(
    engine_child_line *on_line, void *arg, const char *const *words, struct err *e);

#endif
