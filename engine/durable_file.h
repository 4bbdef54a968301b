/* A file written from front to back that is on its disk when it is finished.
 *
 * Where the file system takes it the bytes go past the page cache (O_DIRECT): that is several times
 * as fast for large files and costs little processor time. Elsewhere (memory file systems, and
 * those of other machines, whose caches decide when an error is seen) they go through it and are
 * synced as the file grows. Never mapped, never renamed over. One thread. */
#ifndef ENGINE_DURABLE_FILE_H
#define ENGINE_DURABLE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Of memory and sizes of pieces, for O_DIRECT; and a good size of a piece. */
enum { DURABLE_ALIGN = 4096, DURABLE_PIECE_BYTES = 4 << 20 };

struct durable_file {
    char *path;
    int fd;
    uint64_t bytes, written;
    uint64_t synced; /* of them, where O_DIRECT is not used */
    bool is_direct;
};

/* Create or replace path and reserve its space, so that a full disk is known now. On success end
 * with durable_finish or durable_abandon. */
enum rc durable_create(struct durable_file *f, const char *path, uint64_t bytes, struct err *e);
/* The next n bytes. data is aligned to DURABLE_ALIGN, and so is n in all pieces but the last;
 * memory up to the next multiple is read too. */
enum rc durable_write(struct durable_file *f, const void *data, size_t n, struct err *e);
/* Sync and close; the file has exactly the size it was created with. Removes it on failure. */
enum rc durable_finish(struct durable_file *f, struct err *e);
/* Close and remove. */
void durable_abandon(struct durable_file *f);

/* A file system whose files are kept by another machine or another process: buffered there. */
bool durable_is_remote(long file_system_type);

#endif
