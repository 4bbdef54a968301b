/* What a plan keeps on disk, optimizer states and parameters: the slab of MEMORY_DISK, striped over
 * files in several folders.
 *
 * The files are scratch: preallocated, and without a name from the start, so that nothing stays
 * when the process ends, however it ends. Reads and writes go past the page cache (O_DIRECT) in
 * requests of DISK_STRIPE_BYTES, many at a time through io_uring; where the system refuses either,
 * by threads or through the cache, which is slower and said in disk_way.
 *
 * Addresses of the slab (disk_base) stand for places in the files; touching them faults. One thread
 * at a time. After disk_open nothing is allocated. */
#ifndef ENGINE_DISK_H
#define ENGINE_DISK_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct disk;

enum { DISK_STRIPE_BYTES = 1 << 20, DISK_MAX_DIRS = 16 };

struct disk_options {
    const char *const *dirs; /* kept until disk_close; must exist */
    int n_dirs;              /* 1 to DISK_MAX_DIRS */
    int64_t bytes;           /* a multiple of DISK_ALIGN */
    /* for tests: as if the system refused them */
    bool has_no_uring, has_no_direct;
};

/* RC_LIMIT saying by how much when a folder has too little room. On success close with disk_close.
 */
enum rc disk_open(struct disk **out, const struct disk_options *o, struct err *e);
void disk_close(struct disk *d);

/* First address of the slab. */
char *disk_base(const struct disk *d);
/* "io_uring, direct": how it is read and written, and what the system refused. Borrowed. */
const char *disk_way(const struct disk *d);

/* A stretch of the slab and where it lies in memory. Both addresses and bytes: multiples of
 * DISK_ALIGN. */
struct disk_part {
    char *at; /* in the slab */
    char *memory;
    int64_t bytes;
    bool is_write;
};

/* Read or write all parts, which must not overlap, and wait. RC_IO naming folder, offset and errno
 * when a request fails. */
enum rc disk_move(struct disk *d, const struct disk_part *parts, int n, struct err *e);

/* Bytes per second of reading and writing at once, measured for a fraction of a second; what is in
 * the slab is lost. memory: room to read into and write from, a multiple of DISK_ALIGN. */
enum rc disk_measure(
    struct disk *d, char *memory, int64_t bytes, double *bytes_per_s, struct err *e);

#endif
