/* What checkpoint_save.c and checkpoint_load.c share: names, pieces of tensors, the manifest. */
#ifndef ENGINE_CHECKPOINT_FILES_H
#define ENGINE_CHECKPOINT_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "engine/checkpoint.h"
#include "engine/executor.h"

struct json;

enum { CKPT_NAME = 160, CKPT_MAX_FILES = 65536, CKPT_MANIFEST_MAX = 256 << 20 };

/* Consecutive elements of one flattened tensor of one state kind, held by one shard. */
struct piece {
    char name[CKPT_NAME]; /* "model.layers.0.mlp.up_proj.weight.master" */
    int64_t rows, cols;   /* of the whole tensor */
    int64_t first, count; /* elements of it */
    int unit;
    enum state_kind kind;
    int64_t unit_first; /* where the piece starts in the unit */
};

/* The pieces a shard rank holds, in file order. Caller frees *out. */
size_t checkpoint_pieces(const struct schedule *s, int shard_rank, struct piece **out);

struct file_entry {
    uint64_t bytes;
    struct hash128 hash;
};

/* One file per shard rank. */
char *checkpoint_file_name(char buf[40], int shard_rank);
char *checkpoint_step_dir(const char *dir, int64_t step, const char *suffix);
struct json *checkpoint_manifest(
    const struct schedule *s, const struct checkpoint_info *info, const struct file_entry *files);

/* --- hosts --- */

int checkpoint_hosts(const struct executor *x, const struct checkpoint_options *o);
int checkpoint_first_rank(const struct checkpoint_options *o, int host);
int checkpoint_ranks_on(const struct executor *x, const struct checkpoint_options *o, int host);
bool checkpoint_is_host_first(const struct executor *x, const struct checkpoint_options *o);

/* Agree on the outcome: RC_OK only when all ranks pass RC_OK; the others get a sentence that names
 * a rank that failed. */
enum rc checkpoint_agree(struct executor *x, const char *what, enum rc mine, struct err *e);

#endif
