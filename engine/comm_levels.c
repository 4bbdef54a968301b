/* Collectives of groups with several ranks on each of several hosts. Between hosts each rank
 * exchanges with its counterparts only (those with its number on the other hosts), and only what is
 * theirs or its own: each byte goes to a host once. The rest happens in shared memory. */
#include <string.h>

#include "engine/comm_path.h"

static struct team counterparts(const struct call *k)
{
    const struct group *g = call_group(k);
    return (struct team){
        .n = g->hosts, .me = g->me / g->locals, .first = g->me % g->locals, .stride = g->locals};
}

/* Where the vectors of this host's members are; all lie in slabs, or none of this is reached. */
static enum rc meet_vectors(
    const struct call *k, const void *vector, const float **full, struct err *e)
{
    const struct group *g = call_group(k);
    enum rc rc = shm_meet(k, vector, e);
    for (int i = 0; i < g->locals && !rc; i++) {
        full[i] = shm_vector(k, i);
        if (!full[i])
            rc = call_broken(k, RC_NODE, g->ranks[g->me / g->locals * g->locals + i],
                "is at another operation; the ranks disagree about the schedule", e);
    }
    return rc;
}

static enum rc levels_all_gather(const struct call *k, const struct pieces *p, struct err *e)
{
    const struct group *g = call_group(k);
    const float *full[COMM_MAX_LOCALS];
    struct team t = counterparts(k);
    enum rc rc = team_all_gather(k, &t, p, e);
    if (!rc)
        rc = meet_vectors(k, p->full, full, e);
    for (int m = 0; m < g->n && !rc; m++) {
        size_t at = p->piece_bytes * (size_t)m;
        if (m % g->locals != t.first)
            memcpy(p->full + at, (const char *)full[m % g->locals] + at, piece_len(p, m));
    }
    return rc ? rc : shm_meet(k, NULL, e);
}

static enum rc levels_reduce_scatter(
    const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e)
{
    const float *full[COMM_MAX_LOCALS];
    struct team t = counterparts(k);
    struct locals l = {call_group(k)->locals, full};
    enum rc rc = meet_vectors(k, p->full, full, e);
    if (!rc)
        rc = team_reduce(k, &t, p, &l, to, e);
    return rc ? rc : shm_meet(k, NULL, e);
}

static enum rc levels_all_reduce(
    const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e)
{
    struct pieces summed = parts_pieces(p, to->out - p->part_elems * call_group(k)->me);
    enum rc rc = levels_reduce_scatter(k, p, to, e);
    return rc ? rc : levels_all_gather(k, &summed, e);
}

/* Few doubles: latency is what counts. */
static enum rc levels_sum(const struct call *k, double *x, int count, struct err *e)
{
    return comm_tcp.sum(k, x, count, e);
}

/* What one rank has for another goes to nobody else: over connections what leaves the host. */
static enum rc levels_all_to_all(const struct call *k, const struct swap *s, struct err *e)
{
    const float *full[COMM_MAX_LOCALS];
    enum rc rc = meet_vectors(k, s->from, full, e);
    if (rc)
        return rc;
    shm_swap(k, s);
    rc = tcp_swap(k, s, true, e);
    return rc ? rc : shm_meet(k, NULL, e);
}

const struct comm_path comm_levels = {"shared memory and TCP", levels_all_gather,
    levels_reduce_scatter, levels_all_reduce, levels_sum, levels_all_to_all};
