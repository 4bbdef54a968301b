/* What the files behind engine/comm.h share: a communicator's state, and the table of functions
 * that each path of the bytes fills. The paths:
 *
 *   comm_tcp.c       every member exchanges with every other over their connection
 *   comm_shm.c       members of one host read each other's slabs
 *   comm_levels.c    both: inside a host by its slabs, between hosts each rank for its own part
 *
 * comm.c chooses by group and size, the same on all ranks, and counts the bytes. */
#ifndef ENGINE_COMM_PATH_H
#define ENGINE_COMM_PATH_H

#include <poll.h>
#include <stdatomic.h>

#include "engine/comm.h"
#include "kernels/kernels.h"

struct shm;

enum operation { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, SUM, EXCHANGE, ALL_TO_ALL };

/* Members of a group in rank order. Where hosts > 1 and locals > 1, every host has as many members,
 * and member h * locals + i is the i-th of the h-th host. */
struct group {
    int n, me;
    int *ranks;
    int hosts, locals; /* 1 host: all members share it; 1 local: nobody shares a host */
};

/* Sent in front of every payload, so that ranks that disagree about the order of collectives find
 * out at once. */
struct header {
    uint32_t magic, operation;
    uint64_t sequence, bytes;
};

/* What is to be sent to and received from one peer in the running collective. */
struct flow {
    int rank, fd;
    struct header out, in;
    size_t header_sent, header_received;
    const char *send;
    size_t send_left;
    int64_t to_make; /* elements that are summed only when what is before them was sent */
    char *recv;
    size_t recv_left;
    int64_t to_come; /* elements that are received only when what is before them was summed */
};

struct channel {
    uint64_t sequence[3]; /* by group kind: world, shard, replica; exchange uses none */
    struct flow *flow;    /* ranks of them */
    size_t moved;         /* bytes so far, both ways */
    struct pollfd *poll;
    double *sums;      /* COMM_MAX_SUM of every rank */
    double deadline_s; /* of each collective */
};

struct comm {
    struct comm_options o;
    int *fd;               /* [channel * ranks + rank], -1 for the own rank */
    struct group group[4]; /* by enum op_group */
    struct channel channel[COMM_CHANNELS];
    struct shm *shm; /* NULL: ranks of this host exchange over TCP */
    bool may_map;    /* a slab, with all ranks */
    struct err note;
    atomic_bool is_aborted;
    atomic_uint_fast64_t bytes_inside, bytes_across;
};

/* One collective as it runs. */
struct call {
    struct comm *c;
    enum comm_channel ch;
    enum op_group g;
    enum operation operation;
    uint64_t bytes;
    double deadline;
};

/* Of a vector, bytes [piece * member, ...) come from a member; the last pieces may be short. */
struct pieces {
    char *full;
    size_t piece_bytes, total_bytes;
};

/* Elements [part * member, ...) of a vector that every member has are summed for a member. */
struct parts {
    const float *full;
    int64_t part_elems, total_elems;
};

struct sum_into {
    float *out;
    enum k_sum_way way;
    char *scratch; /* schedule_sum_scratch_bytes(group size) */
};

/* Every member's piece for every other. */
struct swap {
    const char *from;
    char *to;
    size_t piece_bytes;
};

/* NCCL's calls, more or less. */
struct comm_path {
    const char *name;
    /* The own piece is in its place already. */
    enum rc (*all_gather)(const struct call *k, const struct pieces *p, struct err *e);
    enum rc (*reduce_scatter)(
        const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e);
    /* to->out: the own part of the vector */
    enum rc (*all_reduce)(
        const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e);
    enum rc (*sum)(const struct call *k, double *x, int count, struct err *e);
    /* The own piece is in its place already. */
    enum rc (*all_to_all)(const struct call *k, const struct swap *s, struct err *e);
};
extern const struct comm_path comm_tcp, comm_shm, comm_levels;

/* --- of comm.c --- */

const struct group *call_group(const struct call *k);
size_t piece_len(const struct pieces *p, int member);
int64_t part_len(const struct parts *p, int member);
/* The same vector as what all-gather brings together after it was summed. */
struct pieces parts_pieces(const struct parts *p, float *full);
/* Doubles of every member lie one member after another; their sums in member order. */
void sum_members(double *x, const double *all, int members, int count);
/* Failures of a call; the first one makes all later calls on the comm fail. */
enum rc call_broken(const struct call *k, enum rc code, int peer, const char *what, struct err *e);
enum rc call_aborted(const struct call *k, struct err *e);

/* --- of comm_tcp.c --- */

/* Members first, first + stride, ... of the call's group; me: the place of this rank among them. */
struct team {
    int n, me, first, stride;
};
/* Members of one host, whose vectors this rank reads: what it sends to the team, and its own part,
 * are sums of theirs, made slice by slice into scratch behind the slices of the team. */
struct locals {
    int n;
    const float *const *full;
};
enum rc team_all_gather(
    const struct call *k, const struct team *t, const struct pieces *p, struct err *e);
/* Parts of the team's members; l NULL: sums of the vectors themselves. */
enum rc team_reduce(const struct call *k, const struct team *t, const struct parts *p,
    const struct locals *l, const struct sum_into *to, struct err *e);
/* With all members of the group but those of this host, where is_leaving. */
enum rc tcp_swap(const struct call *k, const struct swap *s, bool is_leaving, struct err *e);
enum rc tcp_exchange(const struct call *k, const struct comm_exchange *x, struct err *e);

/* --- of comm_shm.c --- */

/* Members of the call's group on this host say where their vectors lie (NULL: not in a slab), and
 * wait until all have. */
enum rc shm_meet(const struct call *k, const void *vector, struct err *e);
/* After a meeting and before the next: the vector of a member of this host as this rank sees it;
 * NULL when it lies in no slab. */
const void *shm_vector(const struct call *k, int local);
/* With the members of this host, which have met and whose vectors lie in slabs. */
void shm_swap(const struct call *k, const struct swap *s);
bool shm_has(const struct shm *s, const void *p);

#endif
