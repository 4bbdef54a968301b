/* Bytes of one rank become a file of another's, over the comm. */
#ifndef ENGINE_FILE_TRANSFER_H
#define ENGINE_FILE_TRANSFER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"

struct comm;

enum { TRANSFER_CHUNK = 4 << 20 };

/* Bytes [at, at + n) of what is sent, n at most TRANSFER_CHUNK; borrowed until the next call. NULL:
 * failed. */
typedef const void *transfer_source(void *arg, uint64_t at, size_t n, struct err *e);

/* Ranks of -1: nothing to send or receive. Sizes are known to both sides. */
struct transfer {
    int to, from;
    uint64_t send, recv; /* bytes */
    transfer_source *source;
    void *source_arg;
    const char *recv_path;
    struct hash128 recv_hash; /* what arrives must have it */
    void *buffer;             /* TRANSFER_CHUNK bytes at a multiple of DURABLE_ALIGN, to receive */
};

/* Both directions at once; what arrives is on its disk. A side that fails still moves its bytes, so
 * that its peers are not left waiting, and reports afterwards. */
enum rc transfer_files(struct comm *c, const struct transfer *t, struct err *e);

/* A transfer_source that reads a file; arg is a struct transfer_file * with an open descriptor. */
struct transfer_file {
    int fd;
    const char *path; /* for sentences */
    void *buffer;     /* TRANSFER_CHUNK bytes */
};
const void *transfer_from_file(void *arg, uint64_t at, size_t n, struct err *e);

#endif
