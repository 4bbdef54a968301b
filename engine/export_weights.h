/* `berth-engine export-weights`: the weights of a checkpoint as transformers loads them, and
 * config.json beside. */
#ifndef ENGINE_EXPORT_WEIGHTS_H
#define ENGINE_EXPORT_WEIGHTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct export_options {
    const char *checkpoint; /* see saved_open */
    const char *out;        /* folder; absent or empty. It appears only when whole. */
    bool is_bf16;           /* else fp32 */
    int64_t file_bytes;     /* several files and an index above this; a tensor is never split */
};

struct exported {
    int64_t step, params, bytes, files;
};

/* RC_INVALID for a checkpoint that is damaged or incomplete, RC_INTERRUPTED when SIGINT or SIGTERM
 * is pending (both must be blocked). Nothing stays at out but a whole export. */
enum rc export_weights(const struct export_options *o, struct exported *result, struct err *e);

/* The subcommand: prints the result as one line of JSON. */
int export_weights_main(int argc, char **argv);

#endif
