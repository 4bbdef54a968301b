/* The file a rank contributes to a checkpoint, as bytes: a safetensors header, then the pieces it
 * holds, in the order of checkpoint_files.h.
 *
 * A staged image owns memory for the whole file, taken at the start of the run. image_begin only
 * marks every unit; a unit is copied when image_copy gets to it, or by its next update just before
 * it changes the values (image_before_update), whichever comes first: forward and backward never
 * wait. An image that is not staged reads the state itself through a window of one piece, so the
 * state must not change until the save is over.
 *
 * Begin from the executor's thread between steps; image_before_update from any lane; everything
 * else from one thread at a time. */
#ifndef ENGINE_CHECKPOINT_IMAGE_H
#define ENGINE_CHECKPOINT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct executor;
struct image;

/* RC_LIMIT when the memory cannot be had. */
enum rc image_new(struct image **out, struct executor *x, bool is_staged, struct err *e);
void image_free(struct image *im);

uint64_t image_bytes(const struct image *im);
/* Memory it holds, for as long as it lives. */
int64_t image_memory_bytes(const struct image *im);

/* The state as it is now is what the file will hold. */
void image_begin(struct image *im);
/* Copy what has not been copied. */
void image_copy(struct image *im);
/* im is a struct image *: an update_fn of the executor. */
void image_before_update(void *im, int unit);
/* Seconds that updates waited since image_begin. */
double image_waited_s(struct image *im);

/* Bytes [at, at + n), n at most DURABLE_PIECE_BYTES and at a multiple of it: aligned to
 * DURABLE_ALIGN, and so many more may be read. Borrowed until the next call. A transfer_source. */
const void *image_at(void *im, uint64_t at, size_t n, struct err *e);

#endif
