/* Ranks of one host share memory: each has a control block, and later a slab, that the others map.
 *
 * Both are memory files without names, whose descriptors are passed over Unix sockets, so nothing
 * is left behind when ranks are killed. The sockets stay open: their end says at once that a peer
 * is gone. A Unix socket's name is one nobody without the run's token can tell; both ends prove the
 * token all the same, and belong to the same user. */
#ifndef ENGINE_COMM_SHM_H
#define ENGINE_COMM_SHM_H

#include <stdatomic.h>

#include "engine/comm.h"

struct pollfd;

enum { SHM_SLOT_BYTES = 32 << 10, SHM_GROUPS = 3 };

/* What a member says at a step of its channel and group: which collective it is in, and where its
 * vector lies in its slab, -1 for nowhere. */
struct shm_post {
    uint32_t operation;
    uint64_t bytes;
    int64_t offset;
};

/* A channel of a group, written by the rank whose block it is. Two of each, used in turns: whoever
 * has come to step t + 1 has read what was posted at t - 1. */
struct shm_cell {
    _Alignas(64) atomic_uint step; /* others sleep on it */
    atomic_uint sleepers;          /* written by the others */
    struct shm_post post[2];
    _Alignas(64) char slot[2][SHM_SLOT_BYTES]; /* payload that is small, or not in a slab */
};

struct shm_control {
    struct shm_cell cell[COMM_CHANNELS][SHM_GROUPS];
};

/* Arrays are by rank of the host, first + index. */
struct shm {
    const struct comm_options *o;
    int first, n, me;
    int listen_fd;
    int *fd; /* Unix sockets, -1 for the own rank */
    struct shm_control **control;
    char **slab; /* own one writable */
    size_t slab_bytes;
    int spins;                          /* before sleeping */
    struct pollfd *poll[COMM_CHANNELS]; /* the sockets */
    struct err why;                     /* it cannot be used, from the start */
};

/* NULL when this rank is alone on its host. Keeps o. What goes wrong is said by shm_reach. */
struct shm *shm_open_host(const struct comm_options *o);
/* Connect to the higher ranks of the host: at once or not at all. */
enum rc shm_reach(struct shm *s, struct err *e);
/* When all have reached all: prove the token, share control blocks. */
enum rc shm_connect(struct shm *s, struct err *e);
/* A slab of every rank, zeroed, in huge pages; *base is the own one until shm_close. */
enum rc shm_map_slab(struct shm *s, size_t bytes, void **base, struct err *e);
size_t shm_control_bytes(const struct shm *s);
/* NULL is allowed. */
void shm_close(struct shm *s);

#endif
