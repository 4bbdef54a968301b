/* What the files of checkpoints share: names, pieces of tensors, the manifest, a save. */
#ifndef ENGINE_CHECKPOINT_FILES_H
#define ENGINE_CHECKPOINT_FILES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"
#include "engine/checkpoint.h"
#include "engine/executor.h"

struct image;
struct st_reader;
struct json;

enum { CKPT_NAME = 160, CKPT_MAX_FILES = 65536, CKPT_MANIFEST_MAX = 256 << 20 };

/* Consecutive elements of one flattened tensor of one state kind, in one part. */
struct piece {
    char name[CKPT_NAME]; /* "model.layers.0.mlp.up_proj.weight.master" */
    int64_t rows, cols;   /* of the whole tensor */
    int64_t first, count; /* elements of it */
    int unit;
    enum state_kind kind;
    int64_t unit_first; /* where the piece starts in the unit */
};

/* The pieces a rank answers for, in file order: unit by unit, of each one kind after the other.
 * Caller frees *out. */
size_t checkpoint_pieces(const struct schedule *s, int rank, struct piece **out);

/* "model.layers.0.mlp.up_proj.weight.master" */
void checkpoint_piece_name(
    char out[CKPT_NAME], const struct model *m, int unit, enum tensor_role role, const char *state);
/* "master", or what PyTorch calls the moment. */
const char *checkpoint_state_name(enum optimizer o, enum state_kind kind);

struct file_entry {
    uint64_t bytes;
    struct hash128 hash;
};

/* One file for each of the first ranks, that together hold all parts. */
char *checkpoint_file_name(char buf[40], int rank);
char *checkpoint_step_dir(const char *dir, int64_t step, const char *suffix);
/* The manifest as it stands in its file, sealed with a hash of itself. Caller frees. */
char *checkpoint_manifest(
    const struct schedule *s, const struct checkpoint_info *info, const struct file_entry *files);
/* Is the text a whole manifest of this kind, as it was written? text[n] must be 0. */
bool checkpoint_manifest_is_sealed(const char *text, size_t n);

/* --- what a manifest says --- */

/* The f-th of its files; NULL beyond them. Borrowed from it. */
const struct json *checkpoint_file(const struct json *manifest, int f);
/* It lies in dir, with the size and hash that the manifest says. */
bool checkpoint_file_is_sound(const char *dir, const struct json *manifest, int f);

typedef enum rc extent_fn(void *arg, const struct piece *p, int file, int64_t entry_offset,
    int64_t piece_offset, int64_t count, struct err *e);
/* Call fn for every overlap of the piece with a stored extent; all of the piece must be stored. */
enum rc checkpoint_each_extent(
    const struct json *manifest, const struct piece *p, extent_fn *fn, void *arg, struct err *e);

/* Elements first .. first + count of the entry of a file. */
struct extent {
    int file;
    int64_t first, count;
};
/* Read them of the piece's entry in a file of dir. *reader is opened when it is NULL; caller closes
 * it. */
enum rc checkpoint_read_extent(const char *dir, struct st_reader **reader, const char *name,
    const struct extent *x, float *out, struct err *e);

/* --- a save --- */

struct checkpoint_job {
    struct executor *x;
    const struct checkpoint_options *o;
    struct checkpoint_info info;
    struct image *image; /* NULL: the rank has nothing to write */
    void *buffer;        /* for what arrives from a partner, TRANSFER_CHUNK bytes */
    atomic_bool is_given_up;
    int64_t bytes;    /* out: of all files */
    double durable_s; /* out: when all of it was on every disk, of the monotonic clock */
};

/* Write, copy to partners, agree, put in place, remove old ones. Collective. */
enum rc checkpoint_write(struct checkpoint_job *j, struct err *e);
/* See checkpoint_load; of the job x, o and buffer. */
enum rc checkpoint_read(const struct checkpoint_job *j, int64_t step, struct checkpoint_info *info,
    struct err *passed_over, struct err *e);

/* --- hosts --- */

int checkpoint_hosts(const struct executor *x, const struct checkpoint_options *o);
int checkpoint_first_rank(const struct checkpoint_options *o, int host);
int checkpoint_ranks_on(const struct executor *x, const struct checkpoint_options *o, int host);
bool checkpoint_is_host_first(const struct executor *x, const struct checkpoint_options *o);

/* Agree on the outcome: RC_OK only when all ranks pass RC_OK; the others get a sentence that names
 * a rank that failed. */
enum rc checkpoint_agree(struct executor *x, const char *what, enum rc mine, struct err *e);

#endif
