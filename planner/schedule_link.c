/* Waits between lanes, from the addresses operations touch. */
#include "planner/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The address space of one memory, cut at every border of a buffer of a section: pieces that are
 * wholly inside or wholly outside each buffer. */
struct pieces {
    int64_t *border; /* n + 1 sorted offsets */
    int32_t n;
    uint32_t *lanes; /* by piece: that touch it in the section */
};

/* A piece that several lanes touch: its last reader and writer of each lane. All others order
 * nothing that the lane does not. */
struct shared {
    int32_t reader[LANE_COUNT]; /* list index, -1 none */
    int32_t writer[LANE_COUNT];
};

/* Shared pieces of a buffer: first up to end. */
struct span {
    int32_t first, end;
};

struct linker {
    struct schedule *s;
    struct pieces pieces[MEMORY_COUNT];
    uint32_t *lanes;    /* by buffer: that touch it in the section */
    struct span *spans; /* by buffer, in the section */
    struct shared *shared;
    int32_t n_shared, shared_cap;
    /* known[i][l]: when operation i is done, so is everything on lane l up to this list index */
    int32_t (*known)[LANE_COUNT];
};

/* --- what lanes share in a section --- */

static int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void find_lanes(struct linker *k, const struct section *sec)
{
    memset(k->lanes, 0, sizeof(*k->lanes) * (size_t)k->s->n_buffers);
    for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++) {
        const struct op *op = &k->s->ops[i];
        for (int a = 0; a < op->n_args; a++)
            k->lanes[op->arg[a].buffer] |= 1u << op->lane;
    }
}

static void cut(struct linker *k, enum memory memory)
{
    struct pieces *p = &k->pieces[memory];
    int32_t n = 0, unique = 0;
    for (int32_t i = 0; i < k->s->n_buffers; i++) {
        const struct buffer *b = &k->s->buffers[i];
        if (b->memory != memory || !k->lanes[i])
            continue;
        p->border[n++] = b->offset;
        p->border[n++] = b->offset + b->bytes;
    }
    qsort(p->border, (size_t)n, sizeof(*p->border), compare_int64);
    for (int32_t i = 0; i < n; i++)
        if (unique == 0 || p->border[i] != p->border[unique - 1])
            p->border[unique++] = p->border[i];
    p->n = unique > 0 ? unique - 1 : 0;
    memset(p->lanes, 0, sizeof(*p->lanes) * (size_t)p->n);
}

static int32_t find_piece(const struct pieces *p, int64_t offset)
{
    int32_t lo = 0, hi = p->n;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (p->border[mid] < offset)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* spans as pieces, and the lanes of these. */
static void find_pieces(struct linker *k)
{
    for (int32_t i = 0; i < k->s->n_buffers; i++) {
        const struct buffer *b = &k->s->buffers[i];
        struct pieces *p = &k->pieces[b->memory];
        if (!k->lanes[i])
            continue;
        int32_t at = find_piece(p, b->offset);
        k->spans[i].first = at;
        for (; at < p->n && p->border[at] < b->offset + b->bytes; at++)
            p->lanes[at] |= k->lanes[i];
        k->spans[i].end = at;
    }
}

/* Number the shared pieces; lanes of a piece become the number of those before it. */
static void number_shared(struct linker *k)
{
    k->n_shared = 0;
    for (int m = 0; m < MEMORY_COUNT; m++) {
        struct pieces *p = &k->pieces[m];
        for (int32_t i = 0; i <= p->n; i++) {
            bool is_shared = i < p->n && (p->lanes[i] & (p->lanes[i] - 1)) != 0;
            p->lanes[i] = (uint32_t)k->n_shared;
            k->n_shared += is_shared;
        }
    }
    for (int32_t i = 0; i < k->s->n_buffers; i++) {
        const struct pieces *p = &k->pieces[k->s->buffers[i].memory];
        if (k->lanes[i])
            k->spans[i] = (struct span){
                (int32_t)p->lanes[k->spans[i].first], (int32_t)p->lanes[k->spans[i].end]};
    }
    BASE_GROW(k->shared, k->shared_cap, k->n_shared + 1);
    memset(k->shared, 0xff, sizeof(*k->shared) * (size_t)k->n_shared);
}

static void find_shared(struct linker *k, const struct section *sec)
{
    find_lanes(k, sec);
    for (int m = 0; m < MEMORY_COUNT; m++)
        cut(k, (enum memory)m);
    find_pieces(k);
    number_shared(k);
}

/* --- waits --- */

static void need(int32_t *want, const int32_t *last)
{
    for (int l = 0; l < LANE_COUNT; l++)
        if (last[l] > want[l])
            want[l] = last[l];
}

/* want[l]: last operation of lane l that this one has to follow. */
static void conflicts(const struct linker *k, const struct op *op, int32_t *want)
{
    for (int a = 0; a < op->n_args; a++) {
        struct span at = k->spans[op->arg[a].buffer];
        for (int32_t j = at.first; j < at.end; j++) {
            need(want, k->shared[j].writer);
            if (op->arg[a].access & ACCESS_WRITE)
                need(want, k->shared[j].reader);
        }
    }
}

static void record(struct linker *k, int32_t i)
{
    const struct op *op = &k->s->ops[i];
    for (int a = 0; a < op->n_args; a++) {
        struct span at = k->spans[op->arg[a].buffer];
        bool is_write = op->arg[a].access & ACCESS_WRITE;
        for (int32_t j = at.first; j < at.end; j++)
            (is_write ? k->shared[j].writer : k->shared[j].reader)[op->lane] = i;
    }
}

static void merge(int32_t *into, const int32_t *from)
{
    for (int l = 0; l < LANE_COUNT; l++)
        if (from[l] > into[l])
            into[l] = from[l];
}

static void link_op(struct linker *k, int32_t i, const int32_t *previous_on_lane)
{
    struct op *op = &k->s->ops[i];
    int32_t want[LANE_COUNT];
    int32_t *known = k->known[i];
    memset(want, 0xff, sizeof(want));
    memset(known, 0xff, sizeof(k->known[i]));
    if (previous_on_lane[op->lane] >= 0)
        merge(known, k->known[previous_on_lane[op->lane]]);
    conflicts(k, op, want);
    /* latest first: it may imply the earlier ones */
    for (;;) {
        int best = -1;
        for (int l = 0; l < LANE_COUNT; l++)
            if (l != op->lane && want[l] > known[l] && (best < 0 || want[l] > want[best]))
                best = l;
        if (best < 0)
            break;
        op->waits[best] = want[best];
        merge(known, k->known[want[best]]);
    }
    known[op->lane] = i;
    record(k, i);
}

static void link_section(struct linker *k, const struct section *sec)
{
    int32_t previous[LANE_COUNT];
    memset(previous, 0xff, sizeof(previous));
    find_shared(k, sec);
    for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++) {
        link_op(k, i, previous);
        previous[k->s->ops[i].lane] = i;
    }
}

void schedule_link(struct schedule *s)
{
    struct linker k = {.s = s};
    size_t buffers = (size_t)s->n_buffers + 1;
    k.known = base_alloc(sizeof(*k.known) * (size_t)(s->n_ops + 1));
    k.lanes = base_alloc(sizeof(*k.lanes) * buffers);
    k.spans = base_alloc(sizeof(*k.spans) * buffers);
    for (int m = 0; m < MEMORY_COUNT; m++) {
        k.pieces[m].border = base_alloc(sizeof(*k.pieces[m].border) * 2 * buffers);
        k.pieces[m].lanes = base_alloc(sizeof(*k.pieces[m].lanes) * 2 * buffers);
    }
    for (int i = 0; i < s->n_sections; i++)
        link_section(&k, &s->section[i]);
    for (int m = 0; m < MEMORY_COUNT; m++) {
        free(k.pieces[m].border);
        free(k.pieces[m].lanes);
    }
    free(k.known);
    free(k.lanes);
    free(k.spans);
    free(k.shared);
}
