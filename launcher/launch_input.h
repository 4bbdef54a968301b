/* Files that the ranks read and that the user named: sources of data (planner/data_source.h). Local
 * ones are staged, with tokenizer, mask and index; others are on the nodes already. */
#ifndef LAUNCHER_LAUNCH_INPUT_H
#define LAUNCHER_LAUNCH_INPUT_H

#include <stddef.h>

#include "base/err.h"
#include "launcher/stage.h"
#include "planner/data_source.h"

struct str;

/* One file that goes along. */
struct launch_file {
    struct stage_file stage;
    char *local;
    char **into; /* the member of a source that names it on a node; NULL: it lies beside the file
                    before it, and nothing names it */
};

struct launch_input {
    const char *what;             /* in sentences: "data" */
    struct data_sources *sources; /* of the specification; set by the owner */
    struct launch_file *files;
    size_t n_files;
};

/* Take what the user wrote, a source a line; kind is a word for those that say none. Local files
 * are hashed, and what the ranks would refuse by their beginnings is refused. */
enum rc launch_input_set(
    struct launch_input *in, const char *text, const char *kind, struct err *e);
/* Without the sources. */
void launch_input_release(struct launch_input *in);

/* Of all files that go along. */
int64_t launch_input_bytes(const struct launch_input *in);
/* Where a staged file lies on a node with this work folder. The caller frees it. */
char *launch_input_node_path(const struct launch_input *in, size_t file, const char *workdir);
/* Let the sources name the files as a node with this work folder has them. */
void launch_input_place(struct launch_input *in, const char *workdir);
/* A line for each file, for --dry-run; word: what they are for. */
void launch_input_describe(
    const struct launch_input *in, const char *word, const char *workdir, struct str *out);

#endif
