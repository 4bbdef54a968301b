/* Files to all hosts by content hash: what is there already is not sent again, what was sent is
 * verified on the host before it gets its name. */
#ifndef LAUNCHER_STAGE_H
#define LAUNCHER_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

struct fan;

/* One file for all hosts. */
struct stage_file {
    const char *local; /* borrowed */
    char sha256[SHA256_HEX];
    int64_t bytes;
    unsigned mode;
    char nonce[13]; /* in the names under which it arrives */
};

struct stage_progress {
    int64_t sent_bytes, total_bytes; /* over all hosts that need it */
};

/* berth-engine of this installation: below BERTH_LIBEXEC, beside this program, or in
 * ../libexec/berth from there. The caller frees *out. */
enum rc stage_find_engine(char **out, struct err *e);

/* Hash a local file. */
enum rc stage_file_init(struct stage_file *f, const char *local, unsigned mode, struct err *e);

/* Put the file at targets[i] (absolute) on every host that is in. tick, when not NULL, is called
 * now and then while bytes move. */
enum rc stage_run(struct fan *fan, const struct stage_file *f, const char *const *targets,
    void (*tick)(void *ctx, const struct stage_progress *p), void *ctx, struct err *e);

/* Take away what stage_run left half sent when it was interrupted; connections must be there again.
 * What a killed program left goes with the next stage_run of the same file, minutes later. */
void stage_undo(struct fan *fan, const struct stage_file *f, const char *const *targets);

#endif
