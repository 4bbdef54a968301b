/* Collectives over connections: every member of a team exchanges with every other, all at once. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "engine/comm_path.h"
#include "kernels/kernels.h"

enum { HEADER_MAGIC = 0x42455254, TRIES = 8 };
/* Elements summed at once, while others are still on their way: a slot holds a few times as many.
 */
enum { SUMMED = 4096 };

/* A team reduces: what its flows need to make what they send, and where sums go to. */
struct reduction {
    const struct team *t;
    const struct parts *p;
    const struct locals *l;
    const struct sum_into *to;
    int64_t slot;         /* elements that may come from a peer before they are summed */
    int64_t mine, summed; /* elements of the own part, and how many of them are done */
};

/* --- moving bytes --- */

static int member_of(const struct team *t, int place)
{
    return t->first + place * t->stride;
}

static int place_of(const struct team *t, int flow)
{
    return flow < t->me ? flow : flow + 1;
}

static bool is_idle(const struct flow *f)
{
    return f->header_sent == sizeof(f->out) && f->send_left == 0 && f->to_make == 0;
}

static bool has_room(const struct flow *f)
{
    return f->header_received < sizeof(f->in) || f->recv_left > 0;
}

static bool wants_input(const struct flow *f)
{
    return has_room(f) || f->to_come > 0;
}

/* Sum elements [at, at + count) of a member's part over the ranks of this host. */
static void sum_locals(const struct call *k, const struct reduction *r, int member, int64_t at,
    int64_t count, float *to)
{
    const float *src[COMM_MAX_LOCALS];
    for (int i = 0; i < r->l->n; i++)
        src[i] = r->l->full[i] + r->p->part_elems * member + at;
    k->c->o.kernels->sum_ranks_f32(NULL, to, src, r->l->n, count, K_SUM_STORE);
}

/* The scratch is shared out among peers; where their parts are made here, each has a second slot
 * for that, and the own part one. */
static int64_t slot_elems(const struct call *k, const struct team *t, bool is_made)
{
    int64_t slots = is_made ? 2 * t->n - 1 : t->n - 1;
    int64_t elems = schedule_sum_scratch_bytes(call_group(k)->n) / (int64_t)sizeof(float);
    return slots ? elems / slots / SUMMED * SUMMED : 0;
}

static float *slot(const struct reduction *r, int number)
{
    return (float *)(void *)r->to->scratch + r->slot * number;
}

/* What this rank brings for elements [at, at + count) of its own part. */
static const float *own_slice(
    const struct call *k, const struct reduction *r, int64_t at, int64_t count)
{
    int mine = member_of(r->t, r->t->me);
    if (!r->l)
        return r->p->full + r->p->part_elems * mine + at;
    float *slice = slot(r, 2 * (r->t->n - 1));
    sum_locals(k, r, mine, at, count, slice);
    return slice;
}

/* Of the own part, elements that have come from every peer. */
static int64_t elements_there(const struct call *k, const struct reduction *r)
{
    int64_t least = r->mine;
    for (int i = 0; i < r->t->n - 1; i++) {
        const struct flow *f = &k->c->channel[k->ch].flow[i];
        int64_t open = f->to_come + (int64_t)((f->recv_left + sizeof(float) - 1) / sizeof(float));
        least = r->mine - open < least ? r->mine - open : least;
    }
    return least;
}

/* Room for what comes next goes round a peer's slot, as far as it was summed. */
static void make_room(const struct reduction *r, int flow, struct flow *f)
{
    int64_t at = r->mine - f->to_come, count = r->slot - at % r->slot;
    if (f->recv_left > 0 || f->to_come == 0)
        return;
    count = count < r->summed + r->slot - at ? count : r->summed + r->slot - at;
    count = count < f->to_come ? count : f->to_come;
    f->recv = (char *)(slot(r, flow) + at % r->slot);
    f->recv_left = (size_t)count * sizeof(float);
    f->to_come -= count;
}

/* Sum what has come of all peers, in their order, and make room for more. */
static void sum_arrived(const struct call *k, struct reduction *r)
{
    const float *src[COMM_MAX_RANKS];
    int64_t there = elements_there(k, r);
    while (r->summed < there) {
        int64_t at = r->summed, count = SUMMED - at % SUMMED;
        if (at + count > there && there < r->mine)
            break;
        count = at + count < there ? count : there - at;
        for (int i = 0; i < r->t->n - 1; i++)
            src[place_of(r->t, i)] = slot(r, i) + at % r->slot;
        src[r->t->me] = own_slice(k, r, at, count);
        k->c->o.kernels->sum_ranks_f32(NULL, r->to->out + at, src, r->t->n, count, r->to->way);
        r->summed += count;
    }
    for (int i = 0; i < r->t->n - 1; i++)
        make_room(r, i, &k->c->channel[k->ch].flow[i]);
}

/* The next slice for a peer, into its place behind the slices that are received. */
static void make_slice(const struct call *k, const struct reduction *r, int flow, struct flow *f)
{
    int member = member_of(r->t, place_of(r->t, flow));
    int64_t count = f->to_make < r->slot ? f->to_make : r->slot;
    float *slice = slot(r, r->t->n - 1 + flow);
    sum_locals(k, r, member, part_len(r->p, member) - f->to_make, count, slice);
    f->to_make -= count;
    f->send = (const char *)slice;
    f->send_left = (size_t)count * sizeof(float);
}

/* What is left of a header and of the payload behind it. */
static struct msghdr message(
    struct iovec v[2], void *header, size_t done, char *payload, size_t left)
{
    v[0] = (struct iovec){(char *)header + done, sizeof(struct header) - done};
    v[1] = (struct iovec){payload, left};
    bool has_header = done < sizeof(struct header);
    return (struct msghdr){
        .msg_iov = v + !has_header, .msg_iovlen = (size_t)has_header + (left > 0)};
}

/* Of so many bytes moved, those of the header; the rest is payload. */
static size_t take_header(size_t *done, size_t moved)
{
    size_t n = sizeof(struct header) - *done;
    n = n < moved ? n : moved;
    *done += n;
    return n;
}

/* One send. */
static enum rc push(const struct call *k, const struct reduction *r, int i, struct err *e)
{
    struct flow *f = &k->c->channel[k->ch].flow[i];
    if (f->send_left == 0 && f->to_make > 0)
        make_slice(k, r, i, f);
    struct iovec v[2];
    struct msghdr m = message(v, &f->out, f->header_sent, (char *)(uintptr_t)f->send, f->send_left);
    ssize_t sent = sendmsg(f->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EINTR && errno != EAGAIN)
        return call_broken(k, RC_PEER, f->rank, "closed the connection", e);
    if (sent > 0) {
        k->c->channel[k->ch].moved += (size_t)sent;
        size_t payload = (size_t)sent - take_header(&f->header_sent, (size_t)sent);
        f->send += payload;
        f->send_left -= payload;
    }
    return RC_OK;
}

static enum rc check_header(const struct call *k, const struct flow *f, struct err *e)
{
    if (f->in.magic == f->out.magic && f->in.operation == f->out.operation &&
        f->in.sequence == f->out.sequence)
        return RC_OK;
    return call_broken(
        k, RC_NODE, f->rank, "is at another operation; the ranks disagree about the schedule", e);
}

/* One receive. */
static enum rc pull(const struct call *k, struct flow *f, struct err *e)
{
    struct iovec v[2];
    struct msghdr m = message(v, &f->in, f->header_received, f->recv, f->recv_left);
    ssize_t got = recvmsg(f->fd, &m, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN))
        return call_broken(k, RC_PEER, f->rank, "closed the connection", e);
    if (got < 0)
        return RC_OK;
    k->c->channel[k->ch].moved += (size_t)got;
    size_t header = take_header(&f->header_received, (size_t)got);
    f->recv += (size_t)got - header;
    f->recv_left -= (size_t)got - header;
    bool is_header_whole = header > 0 && f->header_received == sizeof(f->in);
    return is_header_whole ? check_header(k, f, e) : RC_OK;
}

static enum rc too_late(const struct call *k, int n, struct err *e)
{
    struct channel *ch = &k->c->channel[k->ch];
    for (int i = 0; i < n; i++)
        if (wants_input(&ch->flow[i]))
            return call_broken(
                k, RC_NODE, ch->flow[i].rank, "did not answer before the deadline", e);
    int i = 0;
    while (i < n - 1 && is_idle(&ch->flow[i]))
        i++;
    return call_broken(
        k, RC_NODE, ch->flow[i].rank, "did not take the data before the deadline", e);
}

/* Sleep until a socket is ready. */
static enum rc wait_for_sockets(const struct call *k, int n, struct err *e)
{
    struct channel *ch = &k->c->channel[k->ch];
    for (int i = 0; i < n; i++) {
        struct flow *f = &ch->flow[i];
        short events = (short)((is_idle(f) ? 0 : POLLOUT) | (has_room(f) ? POLLIN : 0));
        ch->poll[i] = (struct pollfd){events ? f->fd : -1, events, 0};
    }
    double left = k->deadline - clock_now_s();
    if (poll(ch->poll, (nfds_t)n, left < 0.1 ? (int)(left * 1000) + 1 : 100) < 0 && errno != EINTR)
        return err_sys(e, RC_NETWORK, "poll failed");
    return RC_OK;
}

/* Send and receive in turns, with each peer once. Sends come first: a rank that gives up over what
 * it reads has said what it is at. Returns whether there is more to do in *is_pending. */
static enum rc move_once(
    const struct call *k, const struct reduction *r, int n, bool *is_pending, struct err *e)
{
    enum rc rc = RC_OK;
    *is_pending = false;
    for (int i = 0; i < n && !rc; i++) {
        struct flow *f = &k->c->channel[k->ch].flow[i];
        if (!is_idle(f))
            rc = push(k, r, i, e);
        if (!rc && has_room(f))
            rc = pull(k, f, e);
        *is_pending = *is_pending || wants_input(f) || !is_idle(f);
    }
    return rc;
}

/* Move bytes until everything wanted has arrived and everything was sent. Sleeping costs more than
 * to look again a few times. */
static enum rc run_flows(const struct call *k, struct reduction *r, int n, struct err *e)
{
    struct channel *ch = &k->c->channel[k->ch];
    for (int in_vain = 0;;) {
        size_t before = ch->moved;
        bool is_pending;
        if (r)
            sum_arrived(k, r);
        enum rc rc = move_once(k, r, n, &is_pending, e);
        if (rc || !is_pending)
            return rc;
        if (atomic_load(&k->c->is_aborted))
            return call_aborted(k, e);
        if (clock_now_s() >= k->deadline)
            return too_late(k, n, e);
        in_vain = ch->moved == before ? in_vain + 1 : 0;
        if (in_vain > TRIES) {
            rc = wait_for_sockets(k, n, e);
            if (rc)
                return rc;
        }
    }
}

/* --- teams --- */

/* One flow per other member of the team, in its order; returns how many. */
static int start_flows(const struct call *k, const struct team *t)
{
    const struct group *g = call_group(k);
    struct channel *ch = &k->c->channel[k->ch];
    uint64_t sequence = ch->sequence[k->g - GROUP_WORLD]++;
    bool is_part = t->n < g->n; /* of the group: ranks must agree about that too */
    for (int i = 0; i < t->n - 1; i++) {
        int rank = g->ranks[member_of(t, place_of(t, i))];
        ch->flow[i] = (struct flow){.rank = rank,
            .fd = k->c->fd[(int)k->ch * k->c->o.ranks + rank],
            .out = {HEADER_MAGIC, (uint32_t)k->operation * 2 + is_part,
                sequence * 4 + (uint64_t)k->g, k->bytes}};
    }
    return t->n - 1;
}

enum rc team_all_gather(
    const struct call *k, const struct team *t, const struct pieces *p, struct err *e)
{
    struct channel *ch = &k->c->channel[k->ch];
    int n = start_flows(k, t), mine = member_of(t, t->me);
    for (int i = 0; i < n; i++) {
        int member = member_of(t, place_of(t, i));
        ch->flow[i].send = p->full + p->piece_bytes * (size_t)mine;
        ch->flow[i].send_left = piece_len(p, mine);
        ch->flow[i].recv = p->full + p->piece_bytes * (size_t)member;
        ch->flow[i].recv_left = piece_len(p, member);
    }
    return run_flows(k, NULL, n, e);
}

static void start_parts(const struct call *k, const struct reduction *r, int n)
{
    struct channel *ch = &k->c->channel[k->ch];
    for (int i = 0; i < n; i++) {
        int member = member_of(r->t, place_of(r->t, i));
        ch->flow[i].to_come = r->mine;
        if (r->l) {
            ch->flow[i].to_make = part_len(r->p, member);
        } else {
            ch->flow[i].send = (const char *)(r->p->full + r->p->part_elems * member);
            ch->flow[i].send_left = (size_t)part_len(r->p, member) * sizeof(float);
        }
    }
}

enum rc team_reduce(const struct call *k, const struct team *t, const struct parts *p,
    const struct locals *l, const struct sum_into *to, struct err *e)
{
    struct reduction r = {.t = t, .p = p, .l = l, .to = to};
    r.slot = slot_elems(k, t, l != NULL);
    r.mine = part_len(p, member_of(t, t->me));
    int n = start_flows(k, t);
    start_parts(k, &r, n);
    enum rc rc = run_flows(k, &r, n, e);
    if (!rc)
        sum_arrived(k, &r);
    return rc;
}

/* --- the path --- */

static struct team whole_group(const struct call *k)
{
    const struct group *g = call_group(k);
    return (struct team){g->n, g->me, 0, 1};
}

static enum rc tcp_all_gather(const struct call *k, const struct pieces *p, struct err *e)
{
    struct team t = whole_group(k);
    return team_all_gather(k, &t, p, e);
}

static enum rc tcp_reduce_scatter(
    const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e)
{
    struct team t = whole_group(k);
    return team_reduce(k, &t, p, NULL, to, e);
}

static enum rc tcp_all_reduce(
    const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e)
{
    struct team t = whole_group(k);
    struct pieces summed = parts_pieces(p, to->out - p->part_elems * t.me);
    enum rc rc = team_reduce(k, &t, p, NULL, to, e);
    return rc ? rc : team_all_gather(k, &t, &summed, e);
}

static enum rc tcp_sum(const struct call *k, double *x, int count, struct err *e)
{
    struct team t = whole_group(k);
    double *all = k->c->channel[k->ch].sums;
    size_t bytes = sizeof(*x) * (size_t)count;
    struct pieces p = {(char *)all, bytes, bytes * (size_t)t.n};
    memcpy(all + count * t.me, x, bytes);
    enum rc rc = team_all_gather(k, &t, &p, e);
    if (!rc)
        sum_members(x, all, t.n, count);
    return rc;
}

/* Flows of members that are left out have nothing to do. */
enum rc tcp_swap(const struct call *k, const struct swap *s, bool is_leaving, struct err *e)
{
    const struct group *g = call_group(k);
    struct team t = whole_group(k);
    struct channel *ch = &k->c->channel[k->ch];
    int n = start_flows(k, &t);
    for (int i = 0; i < n; i++) {
        int member = place_of(&t, i);
        if (is_leaving && member / g->locals == g->me / g->locals) {
            ch->flow[i].header_sent = ch->flow[i].header_received = sizeof(struct header);
            continue;
        }
        ch->flow[i].send = s->from + s->piece_bytes * (size_t)member;
        ch->flow[i].recv = s->to + s->piece_bytes * (size_t)member;
        ch->flow[i].send_left = ch->flow[i].recv_left = s->piece_bytes;
    }
    return run_flows(k, NULL, n, e);
}

static enum rc tcp_all_to_all(const struct call *k, const struct swap *s, struct err *e)
{
    return tcp_swap(k, s, false, e);
}

const struct comm_path comm_tcp = {
    "TCP", tcp_all_gather, tcp_reduce_scatter, tcp_all_reduce, tcp_sum, tcp_all_to_all};

/* --- point to point --- */

static struct flow exchange_flow(const struct call *k, int rank)
{
    return (struct flow){.rank = rank,
        .fd = k->c->fd[(int)k->ch * k->c->o.ranks + rank],
        .out = {HEADER_MAGIC, EXCHANGE * 2, UINT64_MAX, 0},
        .header_sent = sizeof(struct header),
        .header_received = sizeof(struct header)};
}

enum rc tcp_exchange(const struct call *k, const struct comm_exchange *x, struct err *e)
{
    struct channel *ch = &k->c->channel[k->ch];
    int n = 0;
    if (x->to >= 0) {
        struct flow f = exchange_flow(k, x->to);
        f.header_sent = 0;
        f.send = x->send;
        f.send_left = x->send_bytes;
        ch->flow[n++] = f;
    }
    if (x->from >= 0) {
        bool is_same = n == 1 && x->from == x->to;
        if (!is_same)
            ch->flow[n++] = exchange_flow(k, x->from);
        struct flow *f = &ch->flow[n - 1];
        f->header_received = 0;
        f->recv = x->recv;
        f->recv_left = x->recv_bytes;
    }
    return n ? run_flows(k, NULL, n, e) : RC_OK;
}
