/* A checkpoint in a folder of this machine, read by one process: no ranks, no connections.
 *
 * Opening checks all of it: the manifest's seal, size and hash of every file, and that the master
 * values of every tensor of the model are there once. */
#ifndef ENGINE_SAVED_H
#define ENGINE_SAVED_H

#include <stdint.h>

#include "base/err.h"
#include "planner/model.h"

struct saved;

/* path: the folder of a step, or one that holds such folders: then the newest. On success close
 * with saved_close. */
enum rc saved_open(struct saved **out, const char *path, struct err *e);
void saved_close(struct saved *s);

/* Borrowed, valid until saved_close. */
const struct model *saved_model(const struct saved *s);
int64_t saved_step(const struct saved *s);

/* Elements first .. first + count of the master values of a tensor, flattened. */
enum rc saved_read(struct saved *s, int unit, enum tensor_role role, int64_t first, int64_t count,
    float *out, struct err *e);

#endif
