/* Which files of this machine make up weights to start from: one safetensors file or several with
 * an index, and config.json beside, as they are sent to nodes. */
#ifndef LAUNCHER_WEIGHT_FILES_H
#define LAUNCHER_WEIGHT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "launcher/stage.h"
#include "planner/model.h"

enum { WEIGHT_FILES_MAX = 10000 };

struct weight_files {
    char *local;             /* as the user said it, without "local:" */
    struct stage_file *file; /* local paths are owned here */
    size_t count;
    char sha256[SHA256_HEX]; /* of all: names and contents */
    const char *name;        /* the file that is named in its folder; "" for the folder itself */
    int64_t bytes;           /* of all */
};

/* What "local:PATH", "PATH", "host:PATH" or "shared:PATH" says: *local is a path on this machine,
 * borrowed from text, or NULL, and then *node_path, freed before, a copy of the one on the nodes.
 */
enum rc weight_files_place(const char **local, char **node_path, const char *text, struct err *e);

/* Find and hash the files that path, a folder, a .safetensors file or an index, stands for.
 * RC_INVALID when there are none. Release also on failure. */
enum rc weight_files_open(struct weight_files *out, const char *path, struct err *e);
void weight_files_release(struct weight_files *w);
/* A config.json among them must be of this model: what the ranks would refuse is better refused
 * before anything is sent. */
enum rc weight_files_check(const struct weight_files *w, const struct model *m, struct err *e);

/* Name of the i-th file in its folder. Borrowed. */
const char *weight_files_name(const struct weight_files *w, size_t i);
/* Where a file of that name lies on a node with this work folder; "": their folder. Caller frees.
 */
char *weight_files_node_path(const struct weight_files *w, const char *workdir, const char *name);

#endif
