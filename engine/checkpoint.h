/* Checkpoints: per step a folder of safetensors files and a manifest that says which elements of
 * which flattened tensor lie where, so that any strategy at any world size can load them.
 *
 *   DIR/step-00000100/  rank-0000.safetensors ...  manifest.json   (schema "checkpoint/1")
 *
 * A save writes into step-N.tmp on every host, syncs, agrees among all ranks, renames; a crash at
 * any moment leaves the previous checkpoints whole. With `local+partner` the files of a host also
 * lie on the next host. A load agrees on the newest step whose files all exist somewhere with the
 * right size and hash, brings missing files from the hosts that have them, then reads locally.
 *
 * All functions are collective: every rank calls them with the same arguments. */
#ifndef ENGINE_CHECKPOINT_H
#define ENGINE_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/guard.h"

struct executor;

struct checkpoint_options {
    const char *dir;    /* of this host; the same on all hosts for a shared store */
    const int *host_of; /* host number by rank, consecutive; all 0 for a shared store */
    bool has_partner;   /* copy each host's files to the next one */
    int64_t keep;       /* newest checkpoints that stay */
};

/* What is saved beside the tensors. */
struct checkpoint_info {
    int64_t step;
    int64_t samples; /* consumed, all ranks: the global position in the data order */
    uint64_t seed;
    struct guard guard;
};

enum rc checkpoint_save(struct executor *x, const struct checkpoint_options *o,
    const struct checkpoint_info *info, struct err *e);

/* step: one to load, or -1 for the newest good one. *info is what was loaded; step -1 in it when
 * there is none and -1 was asked for. Publishes. */
enum rc checkpoint_load(struct executor *x, const struct checkpoint_options *o, int64_t step,
    struct checkpoint_info *info, struct err *e);

#endif
