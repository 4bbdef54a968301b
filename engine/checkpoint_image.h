/* The file a rank contributes to a checkpoint, as bytes: a safetensors header, then the pieces it
 * holds, in the order of checkpoint_files.h. Whoever reads it from front to back has it hashed.
 *
 * A staged image owns memory for the whole file, taken at the start of the run. image_begin only
 * marks it: a thread copies and hashes it piece by piece, ahead of whoever reads, and an update of
 * a unit copies what is left of that unit just before it changes the values (image_before_update).
 * So forward and backward never wait, and an update at most for a copy. An image that is not staged
 * reads the state itself through a window of one piece; the state must not change until the save is
 * over.
 *
 * Begin from the executor's thread between steps, image_before_update from any lane, the rest from
 * the thread that writes. */
#ifndef ENGINE_CHECKPOINT_IMAGE_H
#define ENGINE_CHECKPOINT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

struct executor;
struct image;

/* RC_LIMIT when the memory cannot be had. */
enum rc image_new(struct image **out, struct executor *x, bool is_staged, struct err *e);
void image_free(struct image *im);

uint64_t image_bytes(const struct image *im);
/* Memory it holds, for as long as it lives. */
int64_t image_memory_bytes(const struct image *im);

/* The state as it is now is what the file will hold. No reader of what was before. */
void image_begin(struct image *im);
/* im is a struct image *: an update_fn of the executor. */
void image_before_update(void *im, int unit);
/* Seconds that updates waited since image_begin. */
double image_waited_s(struct image *im);

/* Bytes [at, at + n), n at most DURABLE_PIECE_BYTES and at a multiple of it: aligned to
 * DURABLE_ALIGN, and readable up to the next multiple. Borrowed until the next call; NULL when
 * states on disk cannot be read. A transfer_source. */
const void *image_at(void *im, uint64_t at, size_t n, struct err *e);
/* Of all bytes, once they have been read from front to back. */
struct hash128 image_hash(struct image *im);

#endif
