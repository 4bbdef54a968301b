#include "engine/comm.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/comm_connect.h"
#include "kernels/kernels.h"

/* Sent in front of every payload, so that ranks that disagree about the order of collectives find
 * out at once. */
struct header {
    uint32_t magic, operation;
    uint64_t sequence, bytes;
};

enum { HEADER_MAGIC = 0x42455254 };
enum operation { ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, SUM, EXCHANGE };

static const char *const OPERATION_NAMES[] = {
    "all-gather", "reduce-scatter", "all-reduce", "sum", "exchange"};

struct group {
    int n, me;
    int *ranks; /* global ranks of the members, in order */
};

/* What is to be sent to and received from one peer in the running collective. */
struct flow {
    int rank, fd;
    struct header out, in;
    size_t header_sent, header_received;
    const char *send;
    size_t send_left;
    char *recv;
    size_t recv_left;
};

struct channel {
    uint64_t sequence[3]; /* by group kind: world, shard, replica; exchange uses none */
    struct flow *flow;    /* ranks of them */
    struct pollfd *poll;
    double *sums;      /* COMM_MAX_SUM of every rank */
    double deadline_s; /* of each collective */
};

struct comm {
    struct comm_options o;
    int *fd;               /* [channel * ranks + rank], -1 for the own rank */
    struct group group[4]; /* by enum op_group */
    struct channel channel[COMM_CHANNELS];
    atomic_bool is_aborted;
    atomic_uint_fast64_t bytes_sent;
};

/* --- failures --- */

struct call {
    struct comm *c;
    enum comm_channel ch;
    enum operation operation;
    uint64_t bytes;
    double deadline;
};

static enum rc broken(const struct call *k, enum rc code, int peer, const char *what, struct err *e)
{
    const char *host = k->c->o.hosts && k->c->o.hosts[peer] ? k->c->o.hosts[peer] : "?";
    atomic_store(&k->c->is_aborted, true);
    return err_set(e, code, "rank %d: %s of %llu bytes: rank %d on host '%s' %s", k->c->o.rank,
        OPERATION_NAMES[k->operation], (unsigned long long)k->bytes, peer, host, what);
}

static enum rc aborted(const struct call *k, struct err *e)
{
    return err_set(e, RC_INTERRUPTED, "rank %d: %s of %llu bytes was given up", k->c->o.rank,
        OPERATION_NAMES[k->operation], (unsigned long long)k->bytes);
}

/* --- moving bytes --- */

static bool is_idle(const struct flow *f)
{
    return f->header_sent == sizeof(f->out) && f->send_left == 0;
}

static bool wants_input(const struct flow *f)
{
    return f->header_received < sizeof(f->in) || f->recv_left > 0;
}

/* Returns RC_OK when progress was made or the socket is full. */
static enum rc push(const struct call *k, struct flow *f, struct err *e)
{
    while (!is_idle(f)) {
        bool is_header = f->header_sent < sizeof(f->out);
        const char *p = is_header ? (const char *)&f->out + f->header_sent : f->send;
        size_t n = is_header ? sizeof(f->out) - f->header_sent : f->send_left;
        ssize_t sent = send(f->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT | (is_header ? MSG_MORE : 0));
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return RC_OK;
        if (sent < 0)
            return broken(k, RC_PEER, f->rank, "closed the connection", e);
        if (is_header) {
            f->header_sent += (size_t)sent;
        } else {
            f->send += sent;
            f->send_left -= (size_t)sent;
        }
    }
    return RC_OK;
}

static enum rc check_header(const struct call *k, const struct flow *f, struct err *e)
{
    if (f->in.magic == f->out.magic && f->in.operation == f->out.operation &&
        f->in.sequence == f->out.sequence)
        return RC_OK;
    return broken(
        k, RC_NODE, f->rank, "is at another operation; the ranks disagree about the schedule", e);
}

static enum rc pull(const struct call *k, struct flow *f, struct err *e)
{
    while (wants_input(f)) {
        bool is_header = f->header_received < sizeof(f->in);
        char *p = is_header ? (char *)&f->in + f->header_received : f->recv;
        size_t n = is_header ? sizeof(f->in) - f->header_received : f->recv_left;
        ssize_t got = recv(f->fd, p, n, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return RC_OK;
        if (got <= 0)
            return broken(k, RC_PEER, f->rank, "closed the connection", e);
        if (is_header) {
            f->header_received += (size_t)got;
            if (f->header_received == sizeof(f->in)) {
                enum rc rc = check_header(k, f, e);
                if (rc)
                    return rc;
            }
        } else {
            f->recv += got;
            f->recv_left -= (size_t)got;
        }
    }
    return RC_OK;
}

static int poll_set(struct channel *ch, int n, bool is_flushing)
{
    int busy = 0;
    for (int i = 0; i < n; i++) {
        struct flow *f = &ch->flow[i];
        short events = (short)((is_idle(f) ? 0 : POLLOUT) | (wants_input(f) ? POLLIN : 0));
        bool is_pending = wants_input(f) || (is_flushing && !is_idle(f));
        busy += is_pending;
        ch->poll[i] = (struct pollfd){events ? f->fd : -1, events, 0};
    }
    return busy;
}

static enum rc too_late(const struct call *k, int n, struct err *e)
{
    struct channel *ch = &k->c->channel[k->ch];
    for (int i = 0; i < n; i++)
        if (wants_input(&ch->flow[i]))
            return broken(k, RC_NODE, ch->flow[i].rank, "did not answer before the deadline", e);
    return broken(k, RC_NODE, ch->flow[0].rank, "did not take the data before the deadline", e);
}

/* Move bytes until everything wanted has arrived, and with is_flushing also everything was sent. */
static enum rc run_flows(const struct call *k, int n, bool is_flushing, struct err *e)
{
    struct channel *ch = &k->c->channel[k->ch];
    enum rc rc = RC_OK;
    for (int i = 0; i < n && !rc; i++) {
        rc = push(k, &ch->flow[i], e);
        if (!rc)
            rc = pull(k, &ch->flow[i], e);
    }
    while (!rc && poll_set(ch, n, is_flushing) > 0) {
        if (atomic_load(&k->c->is_aborted))
            return aborted(k, e);
        double left = k->deadline - clock_now_s();
        if (left <= 0)
            return too_late(k, n, e);
        int wait_ms = left < 0.1 ? (int)(left * 1000) + 1 : 100;
        int ready = poll(ch->poll, (nfds_t)n, wait_ms);
        if (ready < 0 && errno != EINTR)
            return err_sys(e, RC_NETWORK, "poll failed");
        for (int i = 0; ready > 0 && i < n && !rc; i++) {
            if (ch->poll[i].revents & (POLLOUT | POLLERR | POLLHUP))
                rc = push(k, &ch->flow[i], e);
            if (!rc && ch->poll[i].revents & (POLLIN | POLLERR | POLLHUP))
                rc = pull(k, &ch->flow[i], e);
        }
    }
    return rc;
}

/* --- groups and calls --- */

static const struct group *group_of(const struct comm *c, enum op_group g)
{
    return &c->group[g];
}

static struct call begin(struct comm *c, enum comm_channel ch, enum operation op, uint64_t bytes)
{
    return (struct call){c, ch, op, bytes, clock_now_s() + c->channel[ch].deadline_s};
}

/* One flow per other member of the group, in member order; returns how many. */
static int start_flows(const struct call *k, enum op_group g)
{
    const struct group *grp = group_of(k->c, g);
    struct channel *ch = &k->c->channel[k->ch];
    uint64_t sequence = ch->sequence[g - GROUP_WORLD]++;
    int n = 0;
    for (int i = 0; i < grp->n; i++) {
        if (i == grp->me)
            continue;
        int rank = grp->ranks[i];
        ch->flow[n++] = (struct flow){.rank = rank,
            .fd = k->c->fd[(int)k->ch * k->c->o.ranks + rank],
            .out = {HEADER_MAGIC, (uint32_t)k->operation, sequence * 4 + (uint64_t)g, k->bytes}};
    }
    return n;
}

static int member_of(const struct group *grp, int flow_index)
{
    return flow_index < grp->me ? flow_index : flow_index + 1;
}

void comm_set_deadline(struct comm *c, enum comm_channel ch, double seconds)
{
    c->channel[ch].deadline_s = seconds;
}

void comm_set_kernels(struct comm *c, const struct kernels *k)
{
    c->o.kernels = k;
}

int comm_rank(const struct comm *c)
{
    return c->o.rank;
}

int comm_ranks(const struct comm *c)
{
    return c->o.ranks;
}

int comm_group_size(const struct comm *c, enum op_group g)
{
    return group_of(c, g)->n;
}

int comm_group_rank(const struct comm *c, enum op_group g)
{
    return group_of(c, g)->me;
}

uint64_t comm_bytes_sent(const struct comm *c)
{
    return atomic_load(&c->bytes_sent);
}

/* --- collectives --- */

enum rc comm_all_gather(struct comm *c, enum comm_channel channel, enum op_group g,
    const void *shard, void *full, size_t shard_bytes, struct err *e)
{
    const struct group *grp = group_of(c, g);
    struct call k = begin(c, channel, ALL_GATHER, shard_bytes * (uint64_t)grp->n);
    struct channel *ch = &c->channel[channel];
    char *base = full;
    int n = start_flows(&k, g);
    for (int i = 0; i < n; i++) {
        ch->flow[i].send = shard;
        ch->flow[i].send_left = ch->flow[i].recv_left = shard_bytes;
        ch->flow[i].recv = base + (size_t)member_of(grp, i) * shard_bytes;
    }
    char *own = base + (size_t)grp->me * shard_bytes;
    if (own != shard)
        memcpy(own, shard, shard_bytes);
    atomic_fetch_add(&c->bytes_sent, shard_bytes * (uint64_t)n);
    return run_flows(&k, n, true, e);
}

/* Elements [first, first + count) of the vector belong to this member; every member sends the
 * others their parts and sums what it gets for its own, slice by slice, in rank order. */
struct parts {
    const float *full;
    int64_t part_elems, total_elems;
};

static int64_t part_len(const struct parts *p, int member)
{
    int64_t first = p->part_elems * member;
    int64_t left = p->total_elems - first;
    return left < 0 ? 0 : left < p->part_elems ? left : p->part_elems;
}

static enum rc reduce_parts(const struct call *k, enum op_group g, const struct parts *p,
    float *out, bool is_accumulating, char *scratch, struct err *e)
{
    struct comm *c = k->c;
    const struct group *grp = group_of(c, g);
    struct channel *ch = &c->channel[k->ch];
    int n = start_flows(k, g);
    for (int i = 0; i < n; i++) {
        int member = member_of(grp, i);
        ch->flow[i].send = (const char *)(p->full + p->part_elems * member);
        ch->flow[i].send_left = (size_t)part_len(p, member) * sizeof(float);
        atomic_fetch_add(&c->bytes_sent, ch->flow[i].send_left);
    }
    const float *own = p->full + p->part_elems * grp->me;
    int64_t mine = part_len(p, grp->me);
    const int64_t slice = SCHEDULE_SLICE_BYTES / (int64_t)sizeof(float);
    const float *src[COMM_MAX_RANKS];
    enum rc rc = RC_OK;
    for (int64_t first = 0; first < mine && !rc; first += slice) {
        int64_t count = mine - first < slice ? mine - first : slice;
        for (int i = 0; i < n; i++) {
            ch->flow[i].recv = scratch + (size_t)member_of(grp, i) * SCHEDULE_SLICE_BYTES;
            ch->flow[i].recv_left = (size_t)count * sizeof(float);
            src[member_of(grp, i)] = (const float *)(const void *)ch->flow[i].recv;
        }
        src[grp->me] = own + first;
        rc = run_flows(k, n, false, e);
        if (!rc)
            c->o.kernels->sum_ranks_f32(NULL, out + first, src, grp->n, count, is_accumulating);
    }
    return rc ? rc : run_flows(k, n, true, e);
}

enum rc comm_reduce_scatter(struct comm *c, enum comm_channel ch, enum op_group g,
    const float *full, float *shard, int64_t shard_elems, bool is_accumulating, void *scratch,
    struct err *e)
{
    struct parts p = {full, shard_elems, shard_elems * comm_group_size(c, g)};
    struct call k = begin(c, ch, REDUCE_SCATTER, (uint64_t)p.total_elems * sizeof(float));
    return reduce_parts(&k, g, &p, shard, is_accumulating, scratch, e);
}

/* The reduced parts are sent round in a second exchange; the last part may be shorter. */
static enum rc gather_parts(
    const struct call *k, enum op_group g, const struct parts *p, float *data, struct err *e)
{
    const struct group *grp = group_of(k->c, g);
    struct channel *ch = &k->c->channel[k->ch];
    int n = start_flows(k, g);
    for (int i = 0; i < n; i++) {
        int member = member_of(grp, i);
        ch->flow[i].send = (const char *)(data + p->part_elems * grp->me);
        ch->flow[i].send_left = (size_t)part_len(p, grp->me) * sizeof(float);
        ch->flow[i].recv = (char *)(data + p->part_elems * member);
        ch->flow[i].recv_left = (size_t)part_len(p, member) * sizeof(float);
        atomic_fetch_add(&k->c->bytes_sent, ch->flow[i].send_left);
    }
    return run_flows(k, n, true, e);
}

enum rc comm_all_reduce(struct comm *c, enum comm_channel ch, enum op_group g, float *data,
    int64_t elems, void *scratch, struct err *e)
{
    int size = comm_group_size(c, g);
    if (size == 1)
        return RC_OK;
    struct parts p = {data, (elems + size - 1) / size, elems};
    struct call k = begin(c, ch, ALL_REDUCE, (uint64_t)elems * sizeof(float));
    float *own = data + p.part_elems * comm_group_rank(c, g);
    enum rc rc = reduce_parts(&k, g, &p, own, false, scratch, e);
    return rc ? rc : gather_parts(&k, g, &p, data, e);
}

enum rc comm_sum(
    struct comm *c, enum comm_channel channel, enum op_group g, double *x, int count, struct err *e)
{
    const struct group *grp = group_of(c, g);
    size_t bytes = sizeof(*x) * (size_t)count;
    struct call k = begin(c, channel, SUM, bytes);
    struct channel *ch = &c->channel[channel];
    double *all = ch->sums;
    int n = start_flows(&k, g);
    for (int i = 0; i < n; i++) {
        ch->flow[i].send = (const char *)x;
        ch->flow[i].send_left = ch->flow[i].recv_left = bytes;
        ch->flow[i].recv = (char *)(all + (size_t)count * (size_t)member_of(grp, i));
    }
    memcpy(all + (size_t)count * (size_t)grp->me, x, bytes);
    enum rc rc = run_flows(&k, n, true, e);
    for (int i = 0; !rc && i < count; i++) {
        double sum = all[i];
        for (int r = 1; r < grp->n; r++)
            sum += all[r * count + i];
        x[i] = sum;
    }
    return rc;
}

enum rc comm_barrier(struct comm *c, struct err *e)
{
    double x = 0;
    return comm_sum(c, CHANNEL_COMPUTE, GROUP_WORLD, &x, 1, e);
}

static struct flow exchange_flow(const struct call *k, int rank)
{
    return (struct flow){.rank = rank,
        .fd = k->c->fd[(int)k->ch * k->c->o.ranks + rank],
        .out = {HEADER_MAGIC, EXCHANGE, UINT64_MAX, 0},
        .header_sent = sizeof(struct header),
        .header_received = sizeof(struct header)};
}

enum rc comm_exchange(
    struct comm *c, enum comm_channel channel, const struct comm_exchange *x, struct err *e)
{
    struct call k =
        begin(c, channel, EXCHANGE, x->send_bytes > x->recv_bytes ? x->send_bytes : x->recv_bytes);
    struct channel *ch = &c->channel[channel];
    int n = 0;
    if (x->to >= 0) {
        struct flow f = exchange_flow(&k, x->to);
        f.header_sent = 0;
        f.send = x->send;
        f.send_left = x->send_bytes;
        ch->flow[n++] = f;
        atomic_fetch_add(&c->bytes_sent, x->send_bytes);
    }
    if (x->from >= 0) {
        bool is_same = n == 1 && x->from == x->to;
        if (!is_same)
            ch->flow[n++] = exchange_flow(&k, x->from);
        struct flow *f = &ch->flow[n - 1];
        f->header_received = 0;
        f->recv = x->recv;
        f->recv_left = x->recv_bytes;
    }
    return n ? run_flows(&k, n, true, e) : RC_OK;
}

/* --- life cycle --- */

static void make_group(struct group *g, int first, int stride, int n, int rank)
{
    g->n = n;
    g->ranks = base_alloc(sizeof(*g->ranks) * (size_t)n);
    for (int i = 0; i < n; i++) {
        g->ranks[i] = first + i * stride;
        if (g->ranks[i] == rank)
            g->me = i;
    }
}

enum rc comm_open(struct comm **out, const struct comm_options *o, struct err *e)
{
    *out = NULL;
    if (o->ranks > COMM_MAX_RANKS || o->shard_degree < 1 || o->ranks % o->shard_degree)
        return err_set(
            e, RC_INVALID, "%d ranks cannot be split into groups of %d", o->ranks, o->shard_degree);
    struct comm *c = base_calloc(1, sizeof(*c));
    c->o = *o;
    int s = o->shard_degree;
    make_group(&c->group[GROUP_NONE], o->rank, 1, 1, o->rank);
    make_group(&c->group[GROUP_WORLD], 0, 1, o->ranks, o->rank);
    make_group(&c->group[GROUP_SHARD], o->rank / s * s, 1, s, o->rank);
    make_group(&c->group[GROUP_REPLICA], o->rank % s, s, o->ranks / s, o->rank);
    for (int i = 0; i < COMM_CHANNELS; i++) {
        c->channel[i].flow = base_calloc((size_t)o->ranks, sizeof(struct flow));
        c->channel[i].poll = base_calloc((size_t)o->ranks, sizeof(struct pollfd));
        c->channel[i].sums = base_calloc((size_t)o->ranks, COMM_MAX_SUM * sizeof(double));
        c->channel[i].deadline_s = o->deadline_s;
    }
    size_t n = (size_t)o->ranks * COMM_CHANNELS;
    c->fd = base_alloc(n * sizeof(*c->fd));
    for (size_t i = 0; i < n; i++)
        c->fd[i] = -1;
    enum rc rc = o->ranks > 1 ? comm_connect(c->fd, o, e) : RC_OK;
    if (o->listen_fd >= 0)
        close(o->listen_fd);
    if (rc) {
        comm_close(c);
        return rc;
    }
    *out = c;
    return RC_OK;
}

void comm_close(struct comm *c)
{
    if (!c)
        return;
    for (int i = 0; i < COMM_CHANNELS * c->o.ranks; i++)
        if (c->fd[i] >= 0)
            close(c->fd[i]);
    for (int i = 0; i < COMM_CHANNELS; i++) {
        free(c->channel[i].flow);
        free(c->channel[i].poll);
        free(c->channel[i].sums);
    }
    for (int i = 0; i < 4; i++)
        free(c->group[i].ranks);
    free(c->fd);
    free(c);
}

void comm_abort(struct comm *c)
{
    atomic_store(&c->is_aborted, true);
}
