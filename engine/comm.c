#include "engine/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "engine/comm_connect.h"
#include "engine/comm_path.h"
#include "engine/comm_shm.h"

/* Payloads up to this cross hosts in one exchange of all with all: latency is what counts. */
enum { SMALL_BYTES = 64 << 10 };
enum { PAST_CACHE_ELEMS = 1 << 18 };

static const char *const OPERATION_NAMES[] = {
    "all-gather", "reduce-scatter", "all-reduce", "sum", "exchange", "all-to-all"};

/* --- failures --- */

enum rc call_broken(const struct call *k, enum rc code, int peer, const char *what, struct err *e)
{
    const char *host = k->c->o.hosts && k->c->o.hosts[peer] ? k->c->o.hosts[peer] : "?";
    atomic_store(&k->c->is_aborted, true);
    return err_set(e, code, "rank %d: %s of %llu bytes: rank %d on host '%s' %s", k->c->o.rank,
        OPERATION_NAMES[k->operation], (unsigned long long)k->bytes, peer, host, what);
}

enum rc call_aborted(const struct call *k, struct err *e)
{
    return err_set(e, RC_INTERRUPTED, "rank %d: %s of %llu bytes was given up", k->c->o.rank,
        OPERATION_NAMES[k->operation], (unsigned long long)k->bytes);
}

/* --- vectors --- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t piece_len(const struct pieces *p, int member)
{
    size_t first = p->piece_bytes * (size_t)member;
    return first >= p->total_bytes ? 0 : least(p->piece_bytes, p->total_bytes - first);
}

int64_t part_len(const struct parts *p, int member)
{
    struct pieces as_bytes = parts_pieces(p, NULL);
    return (int64_t)(piece_len(&as_bytes, member) / sizeof(float));
}

struct pieces parts_pieces(const struct parts *p, float *full)
{
    return (struct pieces){(char *)full, (size_t)p->part_elems * sizeof(float),
        (size_t)p->total_elems * sizeof(float)};
}

void sum_members(double *x, const double *all, int members, int count)
{
    for (int i = 0; i < count; i++) {
        double sum = all[i];
        for (int m = 1; m < members; m++)
            sum += all[m * count + i];
        x[i] = sum;
    }
}

/* --- groups --- */

const struct group *call_group(const struct call *k)
{
    return &k->c->group[k->g];
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
    return c->group[g].n;
}

int comm_group_rank(const struct comm *c, enum op_group g)
{
    return c->group[g].me;
}

static bool share_host(const struct comm *c, int a, int b)
{
    return c->o.host_of && c->o.host_of[a] == c->o.host_of[b];
}

/* Hosts with equally many members each, or every member on its own. */
static void place_on_hosts(const struct comm *c, struct group *g)
{
    int locals = 1;
    while (locals < g->n && share_host(c, g->ranks[0], g->ranks[locals]))
        locals++;
    bool is_even = g->n % locals == 0;
    for (int i = 1; i < g->n && is_even; i++)
        is_even = share_host(c, g->ranks[i - 1], g->ranks[i]) == (i % locals != 0);
    g->locals = is_even ? locals : 1;
    g->hosts = g->n / g->locals;
}

static void make_group(struct comm *c, enum op_group kind, int first, int stride, int n)
{
    struct group *g = &c->group[kind];
    g->n = n;
    g->ranks = base_alloc(sizeof(*g->ranks) * (size_t)n);
    for (int i = 0; i < n; i++) {
        g->ranks[i] = first + i * stride;
        if (g->ranks[i] == c->o.rank)
            g->me = i;
    }
    place_on_hosts(c, g);
}

/* --- the way of a call --- */

static struct call begin(
    struct comm *c, enum comm_channel ch, enum op_group g, enum operation op, uint64_t bytes)
{
    return (struct call){c, ch, g, op, bytes, clock_now_s() + c->channel[ch].deadline_s};
}

static const struct comm_path *path_of(const struct call *k, const void *vector)
{
    const struct group *g = call_group(k);
    if (!k->c->shm || g->locals == 1)
        return &comm_tcp;
    if (g->hosts == 1)
        return &comm_shm;
    return k->bytes > SMALL_BYTES && shm_has(k->c->shm, vector) ? &comm_levels : &comm_tcp;
}

const char *comm_path_name(const struct comm *c, enum op_group g)
{
    const struct group *grp = &c->group[g];
    if (grp->n == 1)
        return "";
    return (!c->shm || grp->locals == 1 ? comm_tcp : grp->hosts == 1 ? comm_shm : comm_levels).name;
}

static void count(struct comm *c, bool is_inside, size_t bytes)
{
    atomic_fetch_add(is_inside ? &c->bytes_inside : &c->bytes_across, bytes);
}

/* What others get of this rank's: the own piece, and over two levels to members of this host those
 * of its counterparts too. */
static void count_gather(const struct call *k, const struct pieces *p, bool is_two_level)
{
    const struct group *g = call_group(k);
    for (int m = 0; m < g->n; m++) {
        bool is_inside = share_host(k->c, g->ranks[m], g->ranks[g->me]);
        bool is_counterpart = m % g->locals == g->me % g->locals;
        if (m != g->me && (!is_two_level || is_counterpart))
            count(k->c, is_inside, piece_len(p, g->me));
        if (is_two_level && is_counterpart)
            count(k->c, true, piece_len(p, m) * (size_t)(g->locals - 1));
    }
}

/* Every other member its part; over two levels parts leave the host for counterparts only, and
 * all else is read inside of it. */
static void count_reduce(const struct call *k, const struct pieces *p, bool is_two_level)
{
    const struct group *g = call_group(k);
    for (int m = 0; m < g->n; m++) {
        bool is_inside = share_host(k->c, g->ranks[m], g->ranks[g->me]);
        bool is_counterpart = m % g->locals == g->me % g->locals;
        if (m != g->me)
            count(k->c, is_inside || (is_two_level && !is_counterpart), piece_len(p, m));
    }
}

/* --- collectives --- */

enum rc comm_all_gather(struct comm *c, enum comm_channel ch, enum op_group g, const void *shard,
    void *full, size_t shard_bytes, struct err *e)
{
    const struct group *grp = &c->group[g];
    struct call k = begin(c, ch, g, ALL_GATHER, shard_bytes * (uint64_t)grp->n);
    struct pieces p = {full, shard_bytes, shard_bytes * (size_t)grp->n};
    const struct comm_path *path = path_of(&k, full);
    char *own = p.full + shard_bytes * (size_t)grp->me;
    if (own != shard)
        memcpy(own, shard, shard_bytes);
    if (grp->n == 1)
        return RC_OK;
    count_gather(&k, &p, path == &comm_levels);
    return path->all_gather(&k, &p, e);
}

/* Large sums would push everything else out of a second-level cache. */
static enum k_sum_way sum_way(int64_t elems, bool is_accumulating)
{
    if (is_accumulating)
        return K_SUM_ADD;
    return elems < PAST_CACHE_ELEMS ? K_SUM_STORE : K_SUM_PAST_CACHE;
}

enum rc comm_reduce_scatter(struct comm *c, enum comm_channel ch, enum op_group g,
    const float *full, float *shard, int64_t shard_elems, bool is_accumulating, void *scratch,
    struct err *e)
{
    struct parts p = {full, shard_elems, shard_elems * comm_group_size(c, g)};
    struct call k = begin(c, ch, g, REDUCE_SCATTER, (uint64_t)p.total_elems * sizeof(float));
    struct sum_into to = {shard, sum_way(shard_elems, is_accumulating), scratch};
    const struct comm_path *path = path_of(&k, full);
    struct pieces counted = parts_pieces(&p, NULL);
    count_reduce(&k, &counted, path == &comm_levels);
    return path->reduce_scatter(&k, &p, &to, e);
}

enum rc comm_all_reduce(struct comm *c, enum comm_channel ch, enum op_group g, float *data,
    int64_t elems, void *scratch, struct err *e)
{
    int size = comm_group_size(c, g);
    if (size == 1)
        return RC_OK;
    struct parts p = {data, (elems + size - 1) / size, elems};
    struct call k = begin(c, ch, g, ALL_REDUCE, (uint64_t)elems * sizeof(float));
    struct sum_into to = {
        data + p.part_elems * comm_group_rank(c, g), sum_way(p.part_elems, false), scratch};
    const struct comm_path *path = path_of(&k, data);
    struct pieces counted = parts_pieces(&p, NULL);
    count_reduce(&k, &counted, path == &comm_levels);
    count_gather(&k, &counted, path == &comm_levels);
    return path->all_reduce(&k, &p, &to, e);
}

enum rc comm_all_to_all(struct comm *c, enum comm_channel ch, enum op_group g, const void *from,
    void *to, size_t piece_bytes, struct err *e)
{
    int n = comm_group_size(c, g), me = comm_group_rank(c, g);
    struct call k = begin(c, ch, g, ALL_TO_ALL, piece_bytes * (uint64_t)n);
    struct swap s = {from, to, piece_bytes};
    struct pieces counted = {NULL, piece_bytes, piece_bytes * (size_t)n};
    memcpy(s.to + piece_bytes * (size_t)me, s.from + piece_bytes * (size_t)me, piece_bytes);
    if (n == 1)
        return RC_OK;
    count_reduce(&k, &counted, false);
    return path_of(&k, from)->all_to_all(&k, &s, e);
}

enum rc comm_sum(
    struct comm *c, enum comm_channel ch, enum op_group g, double *x, int count, struct err *e)
{
    struct call k = begin(c, ch, g, SUM, sizeof(*x) * (uint64_t)count);
    return comm_group_size(c, g) == 1 ? RC_OK : path_of(&k, NULL)->sum(&k, x, count, e);
}

enum rc comm_barrier(struct comm *c, struct err *e)
{
    double x = 0;
    return comm_sum(c, CHANNEL_COMPUTE, GROUP_WORLD, &x, 1, e);
}

enum rc comm_exchange(
    struct comm *c, enum comm_channel ch, const struct comm_exchange *x, struct err *e)
{
    size_t bytes = x->send_bytes > x->recv_bytes ? x->send_bytes : x->recv_bytes;
    struct call k = begin(c, ch, GROUP_WORLD, EXCHANGE, bytes);
    if (x->to >= 0)
        count(c, share_host(c, x->to, c->o.rank), x->send_bytes);
    return tcp_exchange(&k, x, e);
}

struct comm_volume comm_sent(const struct comm *c)
{
    return (struct comm_volume){atomic_load(&c->bytes_inside), atomic_load(&c->bytes_across)};
}

/* --- shared memory --- */

/* All ranks go the same way: each says whether it can. */
static enum rc agree(struct comm *c, bool *can, double patience_s, struct err *e)
{
    unsigned char mine = *can, all[COMM_MAX_RANKS];
    struct call k = begin(c, CHANNEL_COMPUTE, GROUP_WORLD, ALL_GATHER, (uint64_t)c->o.ranks);
    struct pieces p = {(char *)all, 1, (size_t)c->o.ranks};
    k.deadline = clock_now_s() + patience_s;
    all[c->o.rank] = mine;
    enum rc rc = comm_tcp.all_gather(&k, &p, e);
    for (int r = 0; r < c->o.ranks && !rc; r++)
        *can = *can && all[r];
    return rc;
}

static void give_up_sharing(struct comm *c, const struct err *why)
{
    if (!c->shm)
        return;
    err_set(&c->note, RC_LIMIT, "ranks of a host exchange over TCP: %s",
        why->code ? why->msg : "another rank cannot share memory");
    shm_close(c->shm);
    c->shm = NULL;
}

/* In two steps, so that nobody waits for a rank that cannot come. Ranks that are alone on their
 * host can, having nobody to share with. */
static enum rc open_shm(struct comm *c, struct shm *shm, struct err *e)
{
    struct err why = ERR_INIT;
    c->shm = shm;
    bool can = !shm || shm_reach(shm, &why) == RC_OK;
    enum rc rc = agree(c, &can, c->o.connect_deadline_s, e);
    if (!rc && can) {
        can = !shm || shm_connect(shm, &why) == RC_OK;
        rc = agree(c, &can, c->o.connect_deadline_s, e);
    }
    c->may_map = can;
    if (!rc && !can)
        give_up_sharing(c, &why);
    return rc;
}

enum rc comm_map_slab(struct comm *c, size_t bytes, void **base, struct err *e)
{
    /* pages of a slab are touched first here, which has been seen to take 7 ms a MiB in a virtual
     * machine, and ranks wait for each other */
    const double slowest_bytes_per_s = 64e6;
    struct err why = ERR_INIT;
    *base = NULL;
    if (!c->may_map)
        return RC_OK;
    c->may_map = false;
    bool can = !c->shm || shm_map_slab(c->shm, bytes, base, &why) == RC_OK;
    enum rc rc = agree(c, &can, c->o.connect_deadline_s + (double)bytes / slowest_bytes_per_s, e);
    if (!rc && !can) {
        give_up_sharing(c, &why);
        *base = NULL;
    }
    return rc;
}

const char *comm_note(const struct comm *c)
{
    return c->note.code ? c->note.msg : "";
}

size_t comm_control_bytes(const struct comm *c)
{
    return c->shm ? shm_control_bytes(c->shm) : 0;
}

/* --- life cycle --- */

void comm_set_deadline(struct comm *c, enum comm_channel ch, double seconds)
{
    c->channel[ch].deadline_s = seconds;
}

void comm_set_kernels(struct comm *c, const struct kernels *k)
{
    c->o.kernels = k;
}

static void make_groups(struct comm *c)
{
    int rank = c->o.rank, ranks = c->o.ranks, s = c->o.shard_degree;
    make_group(c, GROUP_NONE, rank, 1, 1);
    make_group(c, GROUP_WORLD, 0, 1, ranks);
    make_group(c, GROUP_SHARD, rank / s * s, 1, s);
    make_group(c, GROUP_REPLICA, rank % s, s, ranks / s);
}

static void make_channels(struct comm *c)
{
    size_t ranks = (size_t)c->o.ranks;
    for (int i = 0; i < COMM_CHANNELS; i++) {
        c->channel[i].flow = base_calloc(ranks, sizeof(struct flow));
        c->channel[i].poll = base_calloc(ranks, sizeof(struct pollfd));
        c->channel[i].sums = base_calloc(ranks, COMM_MAX_SUM * sizeof(double));
        c->channel[i].deadline_s = c->o.deadline_s;
    }
    c->fd = base_alloc(ranks * COMM_CHANNELS * sizeof(*c->fd));
    for (size_t i = 0; i < ranks * COMM_CHANNELS; i++)
        c->fd[i] = -1;
}

static bool has_shared_hosts(const struct comm *c)
{
    for (int r = 1; r < c->o.ranks; r++)
        if (share_host(c, r - 1, r))
            return true;
    return false;
}

enum rc comm_open(struct comm **out, const struct comm_options *o, struct err *e)
{
    *out = NULL;
    if (o->ranks > COMM_MAX_RANKS || o->shard_degree < 1 || o->ranks % o->shard_degree)
        return err_set(
            e, RC_INVALID, "%d ranks cannot be split into groups of %d", o->ranks, o->shard_degree);
    struct comm *c = base_calloc(1, sizeof(*c));
    c->o = *o;
    make_groups(c);
    make_channels(c);
    /* listens before it connects: whoever is connected finds this rank on its host too */
    struct shm *shm = has_shared_hosts(c) ? shm_open_host(&c->o) : NULL;
    enum rc rc = o->ranks > 1 ? comm_connect(c->fd, o, e) : RC_OK;
    if (!rc && has_shared_hosts(c))
        rc = open_shm(c, shm, e);
    else
        shm_close(shm);
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
    shm_close(c->shm);
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
