/* Collectives of ranks that share memory. Members meet (each says that its vector is ready, and
 * waits for the others), read what they need where it lies, and meet again before anybody changes
 * it. Payload that is small, or lies in no slab, goes through slots and takes one meeting each. */
#include "engine/comm_shm.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/comm_path.h"
#include "kernels/kernels.h"

/* How long a peer's end and the deadline stay unseen by a rank that sleeps. */
enum { SLEEP_MS = 5 };

/* --- who is here --- */

/* The member of the group on this host with this number. */
static int local_member(const struct call *k, int local)
{
    const struct group *g = call_group(k);
    return g->me / g->locals * g->locals + local;
}

static int my_local(const struct call *k)
{
    const struct group *g = call_group(k);
    return g->me % g->locals;
}

static int host_index(const struct call *k, int local)
{
    return call_group(k)->ranks[local_member(k, local)] - k->c->shm->first;
}

static struct shm_cell *cell_of(const struct call *k, int local)
{
    return &k->c->shm->control[host_index(k, local)]->cell[k->ch][k->g - GROUP_WORLD];
}

static unsigned my_step(const struct call *k)
{
    return atomic_load_explicit(&cell_of(k, my_local(k))->step, memory_order_relaxed);
}

/* --- waiting --- */

static bool has_come(struct shm_cell *cell, unsigned step)
{
    return (int)(atomic_load(&cell->step) - step) >= 0;
}

static void sleep_until(struct shm_cell *cell, unsigned step)
{
    const struct timespec most = {0, SLEEP_MS * 1000000L};
    atomic_fetch_add(&cell->sleepers, 1);
    unsigned seen = atomic_load(&cell->step);
    if ((int)(seen - step) < 0)
        syscall(SYS_futex, &cell->step, FUTEX_WAIT, seen, &most, NULL, 0);
    atomic_fetch_sub(&cell->sleepers, 1);
}

static void pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    atomic_signal_fence(memory_order_seq_cst);
#endif
}

/* Nothing is sent over the sockets any more: what can be read is their end. A member that left
 * after its step has done its part. */
static enum rc check_peers(const struct call *k, unsigned step, struct err *e)
{
    struct shm *s = k->c->shm;
    struct pollfd *p = s->poll[k->ch];
    int n = call_group(k)->locals;
    for (int i = 0; i < n; i++)
        p[i] = (struct pollfd){s->fd[host_index(k, i)], POLLIN, 0};
    if (poll(p, (nfds_t)n, 0) <= 0)
        return RC_OK;
    for (int i = 0; i < n; i++)
        if (p[i].revents && !has_come(cell_of(k, i), step))
            return call_broken(
                k, RC_PEER, call_group(k)->ranks[local_member(k, i)], "closed the connection", e);
    return RC_OK;
}

static enum rc wait_for(const struct call *k, int local, unsigned step, struct err *e)
{
    struct shm_cell *cell = cell_of(k, local);
    enum rc rc = RC_OK;
    for (int i = 0; i < k->c->shm->spins; i++, pause_briefly())
        if (has_come(cell, step))
            return RC_OK;
    for (;;) {
        sleep_until(cell, step);
        if (has_come(cell, step))
            return RC_OK;
        if (atomic_load(&k->c->is_aborted))
            return call_aborted(k, e);
        rc = check_peers(k, step, e);
        if (rc)
            return rc;
        if (clock_now_s() >= k->deadline)
            return call_broken(k, RC_NODE, call_group(k)->ranks[local_member(k, local)],
                "did not answer before the deadline", e);
    }
}

/* --- meeting --- */

static void publish(struct shm_cell *cell, unsigned step)
{
    atomic_store(&cell->step, step);
    if (atomic_load(&cell->sleepers) > 0)
        syscall(SYS_futex, &cell->step, FUTEX_WAKE, COMM_MAX_LOCALS, NULL, NULL, 0);
}

static const struct shm_post *post_of(const struct call *k, int local)
{
    return &cell_of(k, local)->post[my_step(k) % 2];
}

enum rc shm_meet(const struct call *k, const void *vector, struct err *e)
{
    struct shm *s = k->c->shm;
    int mine = my_local(k), n = call_group(k)->locals;
    struct shm_cell *own = cell_of(k, mine);
    unsigned step = my_step(k) + 1;
    const char *base = s->slab[s->me];
    own->post[step % 2] = (struct shm_post){(uint32_t)k->operation, k->bytes,
        vector && shm_has(s, vector) ? (const char *)vector - base : -1};
    publish(own, step);
    for (int i = 0; i < n; i++) {
        if (i == mine)
            continue;
        enum rc rc = atomic_load(&k->c->is_aborted) ? call_aborted(k, e) : wait_for(k, i, step, e);
        if (rc)
            return rc;
        const struct shm_post *p = post_of(k, i);
        if (p->operation != k->operation || p->bytes != k->bytes)
            return call_broken(k, RC_NODE, call_group(k)->ranks[local_member(k, i)],
                "is at another operation; the ranks disagree about the schedule", e);
    }
    return RC_OK;
}

bool shm_has(const struct shm *s, const void *p)
{
    const char *base = s->slab[s->me], *at = p;
    return base && at >= base && at < base + s->slab_bytes;
}

const void *shm_vector(const struct call *k, int local)
{
    int64_t offset = post_of(k, local)->offset;
    return offset < 0 ? NULL : k->c->shm->slab[host_index(k, local)] + offset;
}

static bool have_vectors(const struct call *k)
{
    for (int i = 0; i < call_group(k)->locals; i++)
        if (!shm_vector(k, i))
            return false;
    return true;
}

/* Of the meeting to come, and of the one that was. */
static char *next_slot(const struct call *k)
{
    return cell_of(k, my_local(k))->slot[(my_step(k) + 1) % 2];
}

static char *slot_of(const struct call *k, int local)
{
    return cell_of(k, local)->slot[my_step(k) % 2];
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- all members are of this host --- */

/* Others first from the next member on, so that not all read the same one at once. */
static void copy_pieces(const struct call *k, const struct pieces *p)
{
    const struct group *g = call_group(k);
    for (int i = 1; i < g->n; i++) {
        int m = (g->me + i) % g->n;
        size_t at = p->piece_bytes * (size_t)m;
        memcpy(p->full + at, (const char *)shm_vector(k, m) + at, piece_len(p, m));
    }
}

static enum rc gather_by_slots(const struct call *k, const struct pieces *p, struct err *e)
{
    const struct group *g = call_group(k);
    enum rc rc = RC_OK;
    for (size_t at = 0; at < p->piece_bytes && !rc; at += SHM_SLOT_BYTES) {
        size_t n = least(SHM_SLOT_BYTES, p->piece_bytes - at);
        memcpy(next_slot(k), p->full + p->piece_bytes * (size_t)g->me + at, n);
        rc = shm_meet(k, NULL, e);
        for (int m = 0; m < g->n && !rc; m++)
            if (m != g->me)
                memcpy(p->full + p->piece_bytes * (size_t)m + at, slot_of(k, m), n);
    }
    return rc;
}

static enum rc shm_all_gather(const struct call *k, const struct pieces *p, struct err *e)
{
    if (p->piece_bytes <= SHM_SLOT_BYTES)
        return gather_by_slots(k, p, e);
    enum rc rc = shm_meet(k, p->full, e);
    if (rc)
        return rc;
    if (!have_vectors(k))
        return gather_by_slots(k, p, e);
    copy_pieces(k, p);
    return shm_meet(k, NULL, e);
}

static void sum_part(const struct call *k, const struct parts *p, const struct sum_into *to)
{
    const struct group *g = call_group(k);
    const float *src[COMM_MAX_LOCALS];
    for (int m = 0; m < g->n; m++)
        src[m] = (const float *)shm_vector(k, m) + p->part_elems * g->me;
    k->c->o.kernels->sum_ranks_f32(NULL, to->out, src, g->n, part_len(p, g->me), to->way);
}

/* Each slot holds a bit of every member's part. */
static enum rc reduce_by_slots(
    const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e)
{
    const struct group *g = call_group(k);
    const float *src[COMM_MAX_LOCALS];
    const size_t width = SHM_SLOT_BYTES / sizeof(float) / (size_t)g->n;
    size_t part = (size_t)p->part_elems;
    enum rc rc = RC_OK;
    for (size_t at = 0; at < part && !rc; at += width) {
        size_t n = least(width, part - at);
        float *slot = (float *)(void *)next_slot(k);
        for (int m = 0; m < g->n; m++)
            memcpy(slot + width * (size_t)m, p->full + part * (size_t)m + at, n * sizeof(float));
        rc = shm_meet(k, NULL, e);
        for (int m = 0; m < g->n && !rc; m++)
            src[m] = (const float *)(const void *)slot_of(k, m) + width * (size_t)g->me;
        if (!rc)
            k->c->o.kernels->sum_ranks_f32(NULL, to->out + at, src, g->n, (int64_t)n, to->way);
    }
    return rc;
}

static enum rc shm_reduce_scatter(
    const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e)
{
    if (k->bytes <= SHM_SLOT_BYTES)
        return reduce_by_slots(k, p, to, e);
    enum rc rc = shm_meet(k, p->full, e);
    if (rc)
        return rc;
    if (!have_vectors(k))
        return reduce_by_slots(k, p, to, e);
    sum_part(k, p, to);
    return shm_meet(k, NULL, e);
}

/* Everybody sums everything, in the same order as an owner would. */
static enum rc sum_by_slots(const struct call *k, const struct parts *p, float *data, struct err *e)
{
    const struct group *g = call_group(k);
    const float *src[COMM_MAX_LOCALS];
    const size_t width = SHM_SLOT_BYTES / sizeof(float);
    size_t total = (size_t)p->total_elems;
    enum rc rc = RC_OK;
    for (size_t at = 0; at < total && !rc; at += width) {
        size_t n = least(width, total - at);
        memcpy(next_slot(k), data + at, n * sizeof(float));
        rc = shm_meet(k, NULL, e);
        for (int m = 0; m < g->n && !rc; m++)
            src[m] = (const float *)(const void *)slot_of(k, m);
        if (!rc)
            k->c->o.kernels->sum_ranks_f32(NULL, data + at, src, g->n, (int64_t)n, K_SUM_STORE);
    }
    return rc;
}

static enum rc shm_all_reduce(
    const struct call *k, const struct parts *p, const struct sum_into *to, struct err *e)
{
    float *data = to->out - p->part_elems * call_group(k)->me;
    if (k->bytes <= SHM_SLOT_BYTES)
        return sum_by_slots(k, p, data, e);
    enum rc rc = shm_meet(k, data, e);
    if (rc)
        return rc;
    if (!have_vectors(k))
        return sum_by_slots(k, p, data, e);
    struct pieces summed = parts_pieces(p, data);
    sum_part(k, p, to);
    rc = shm_meet(k, data, e);
    if (rc)
        return rc;
    copy_pieces(k, &summed);
    return shm_meet(k, NULL, e);
}

static enum rc shm_sum(const struct call *k, double *x, int count, struct err *e)
{
    const struct group *g = call_group(k);
    double *all = k->c->channel[k->ch].sums;
    memcpy(next_slot(k), x, sizeof(*x) * (size_t)count);
    enum rc rc = shm_meet(k, NULL, e);
    for (int m = 0; m < g->n && !rc; m++)
        memcpy(all + count * m, slot_of(k, m), sizeof(*x) * (size_t)count);
    if (!rc)
        sum_members(x, all, g->n, count);
    return rc;
}

void shm_swap(const struct call *k, const struct swap *s)
{
    const struct group *g = call_group(k);
    int mine = my_local(k);
    for (int i = 1; i < g->locals; i++) {
        int local = (mine + i) % g->locals;
        memcpy(s->to + s->piece_bytes * (size_t)local_member(k, local),
            (const char *)shm_vector(k, local) + s->piece_bytes * (size_t)g->me, s->piece_bytes);
    }
}

/* Each slot holds a bit of what goes to every member. */
static enum rc swap_by_slots(const struct call *k, const struct swap *s, struct err *e)
{
    const struct group *g = call_group(k);
    const size_t width = SHM_SLOT_BYTES / (size_t)g->n;
    enum rc rc = RC_OK;
    for (size_t at = 0; at < s->piece_bytes && !rc; at += width) {
        size_t n = least(width, s->piece_bytes - at);
        char *slot = next_slot(k);
        for (int m = 0; m < g->n; m++)
            memcpy(slot + width * (size_t)m, s->from + s->piece_bytes * (size_t)m + at, n);
        rc = shm_meet(k, NULL, e);
        for (int m = 0; m < g->n && !rc; m++)
            if (m != g->me)
                memcpy(s->to + s->piece_bytes * (size_t)m + at,
                    slot_of(k, m) + width * (size_t)g->me, n);
    }
    return rc;
}

static enum rc shm_all_to_all(const struct call *k, const struct swap *s, struct err *e)
{
    if (k->bytes <= SHM_SLOT_BYTES)
        return swap_by_slots(k, s, e);
    enum rc rc = shm_meet(k, s->from, e);
    if (rc)
        return rc;
    if (!have_vectors(k))
        return swap_by_slots(k, s, e);
    shm_swap(k, s);
    return shm_meet(k, NULL, e);
}

const struct comm_path comm_shm = {
    "shared memory", shm_all_gather, shm_reduce_scatter, shm_all_reduce, shm_sum, shm_all_to_all};
