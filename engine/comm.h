/* Collectives between the ranks of a run, with deadlines.
 *
 * Ranks of one host read each other's slabs in shared memory; ranks of several hosts exchange over
 * TCP; groups with several ranks on each of several hosts do both, so that each byte goes to a host
 * once. Where a host cannot share memory, all go over TCP and comm_note says why.
 *
 * Every pair of ranks has one connection per channel; a channel is used by one lane (one thread)
 * only, so collectives on different lanes run at the same time without mixing. Each collective has
 * a name and a place in the order that all sides compare; a dead or silent peer ends it with a
 * sentence naming rank, host, operation and bytes. Sums are made by the owner in rank order, over
 * two levels in rank order inside each host and then in host order, so results do not depend on
 * timing. After the first failure every further call on the comm fails. */
#ifndef ENGINE_COMM_H
#define ENGINE_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/schedule.h"

struct kernels;
struct comm;

enum { COMM_TOKEN_BYTES = 32, COMM_CHANNELS = 4, COMM_MAX_RANKS = 4096, COMM_MAX_SUM = 16 };
enum { COMM_MAX_LOCALS = 256 }; /* ranks of one host that share memory */
/* The last one is for checkpoints, whose thread runs beside the lanes. */
enum comm_channel { CHANNEL_COMPUTE, CHANNEL_GATHER, CHANNEL_REDUCE, CHANNEL_CHECKPOINT };

struct comm_options {
    int rank, ranks;
    int shard_degree;         /* ranks of one shard group; consecutive ranks form a group */
    int listen_fd;            /* from comm_listen; the comm closes it */
    const char *const *peers; /* "address:port" by rank; own entry unused */
    const char *const *hosts; /* names for sentences, by rank; may be NULL */
    const int *host_of; /* number of the host by rank, ascending; NULL: nobody shares a host */
    unsigned char token[COMM_TOKEN_BYTES]; /* a connection without it is closed */
    double connect_deadline_s;
    double deadline_s; /* of each collective, until comm_set_deadline says otherwise */
    const struct kernels *kernels;
};

/* Open a listening socket on all interfaces, *port tells where. */
enum rc comm_listen(int *fd, int *port, struct err *e);
/* Connect to all peers. One rank needs no peers. On success close with comm_close. */
enum rc comm_open(struct comm **out, const struct comm_options *o, struct err *e);
/* Closing is seen by the peers at once. NULL is allowed. */
void comm_close(struct comm *c);
/* From any thread: make every running and later collective fail soon. */
void comm_abort(struct comm *c);

/* Of the collectives of a channel that follow; saving and loading take longer than a step. */
void comm_set_deadline(struct comm *c, enum comm_channel ch, double seconds);
/* Arithmetic of the sums that follow; the same on all ranks. */
void comm_set_kernels(struct comm *c, const struct kernels *k);

int comm_rank(const struct comm *c);
int comm_ranks(const struct comm *c);
/* Members of a group this rank belongs to, and its place among them. */
int comm_group_size(const struct comm *c, enum op_group g);
int comm_group_rank(const struct comm *c, enum op_group g);

/* full = shards of the group in rank order. shard may point to the own part of full. */
enum rc comm_all_gather(struct comm *c, enum comm_channel ch, enum op_group g, const void *shard,
    void *full, size_t shard_bytes, struct err *e);
/* shard (+)= sum over ranks of their own-part-of-full. scratch: schedule_sum_scratch_bytes(group
 * size). shard may be the own part of full when is_accumulating is false. */
enum rc comm_reduce_scatter(struct comm *c, enum comm_channel ch, enum op_group g,
    const float *full, float *shard, int64_t shard_elems, bool is_accumulating, void *scratch,
    struct err *e);
/* data = sum over ranks, in place. Same scratch. */
enum rc comm_all_reduce(struct comm *c, enum comm_channel ch, enum op_group g, float *data,
    int64_t elems, void *scratch, struct err *e);
/* Piece i of from goes to member i of the group, and that of member i comes to place i of to; the
 * own one is copied. from and to must not overlap. */
enum rc comm_all_to_all(struct comm *c, enum comm_channel ch, enum op_group g, const void *from,
    void *to, size_t piece_bytes, struct err *e);
/* Few doubles, summed in rank order. count <= COMM_MAX_SUM. */
enum rc comm_sum(
    struct comm *c, enum comm_channel ch, enum op_group g, double *x, int count, struct err *e);
enum rc comm_barrier(struct comm *c, struct err *e);

/* Point to point, between the collectives of a channel. Either side may be absent (-1). */
struct comm_exchange {
    int to;
    const void *send;
    size_t send_bytes;
    int from;
    void *recv;
    size_t recv_bytes;
};
enum rc comm_exchange(
    struct comm *c, enum comm_channel ch, const struct comm_exchange *x, struct err *e);

/* Memory that ranks of this host may read: zeroed, in huge pages, mapped once, gone with the comm.
 * All ranks call it together, once. *base is NULL where memory is not shared, for whatever reason:
 * map some then. Collectives work with other memory too, in more copies. */
enum rc comm_map_slab(struct comm *c, size_t bytes, void **base, struct err *e);
/* Why ranks of a host do not share memory, one sentence; "" when they do or none share a host. */
const char *comm_note(const struct comm *c);
/* The way that large vectors in slabs take between the members of a group: "shared memory", "TCP"
 * or "shared memory and TCP"; "" where there is but one. */
const char *comm_path_name(const struct comm *c, enum op_group g);
/* What this rank shares beside its slab, resident. */
size_t comm_control_bytes(const struct comm *c);

/* Payload bytes that this rank brought to others so far, all channels but the scalars. */
struct comm_volume {
    uint64_t inside; /* to ranks of its host */
    uint64_t across; /* to other hosts */
};
struct comm_volume comm_sent(const struct comm *c);

#endif
