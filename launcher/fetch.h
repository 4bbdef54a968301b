/* Bringing a checkpoint home: every file of it once, from whichever node has it, resumable and
 * verified against its manifest. */
#ifndef LAUNCHER_FETCH_H
#define LAUNCHER_FETCH_H

#include <stdint.h>

#include "base/err.h"

struct client;
struct run_info;

/* Where the checkpoints of a run lie on a node with this run folder; the caller frees it. */
char *fetch_folder(const struct run_info *r, const char *node_dir);

struct fetch_progress {
    int64_t got_bytes, total_bytes;
};

/* step: one to bring, -1 for the newest that is complete. Files go to DIR/step-NNNNNNNN, which
 * appears only when whole; an earlier attempt is continued. *got_step says which it was. tick may
 * be NULL. RC_NOT_FOUND when the nodes have no such checkpoint, RC_NODE when they lack parts. */
enum rc fetch_checkpoint(struct client *c, int64_t step, const char *dir, int64_t *got_step,
    void (*tick)(void *ctx, const struct fetch_progress *p), void *ctx, struct err *e);

#endif
