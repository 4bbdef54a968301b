/* A file from one rank's folder to another's, over the comm. */
#ifndef ENGINE_FILE_TRANSFER_H
#define ENGINE_FILE_TRANSFER_H

#include <stdint.h>

#include "base/err.h"

struct comm;

enum { TRANSFER_CHUNK = 4 << 20 };

/* Ranks of -1: nothing to send or receive. Sizes are known to both sides. */
struct transfer {
    int to, from;
    uint64_t send, recv; /* bytes */
    const char *dir;     /* files lie and arrive here */
    char send_name[40], recv_name[40];
};

/* Both directions at once; what arrives is synced. A side that fails still moves its bytes, so that
 * its peers are not left waiting, and reports afterwards. */
enum rc transfer_files(struct comm *c, const struct transfer *t, struct err *e);

#endif
