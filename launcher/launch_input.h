/* A file that the ranks read and that the user named: local:PATH (or just PATH), which is staged;
 * host:PATH and shared:PATH, which are on the nodes already. */
#ifndef LAUNCHER_LAUNCH_INPUT_H
#define LAUNCHER_LAUNCH_INPUT_H

#include "base/err.h"
#include "launcher/stage.h"

struct launch_input {
    const char *what; /* in sentences: "data" */
    char *local;      /* what is staged; NULL: nothing */
    struct stage_file file;
};

/* Take what the user wrote; a local file is hashed, and refused when it is empty. *node_path, which
 * is freed before, is where the ranks find it: NULL for a local file, see launch_input_node_path.
 */
enum rc launch_input_set(
    struct launch_input *in, char **node_path, const char *text, struct err *e);
void launch_input_release(struct launch_input *in);

/* What the ranks would refuse is better refused before anything is sent: its kind, by a word of
 * planner/data_kind.h. Nothing to do for a file on the nodes. */
enum rc launch_input_check(const struct launch_input *in, const char *kind, struct err *e);

/* Where a staged file lies on a node with this work folder. The caller frees it. */
char *launch_input_node_path(const struct launch_input *in, const char *workdir);

#endif
