/* Waits between lanes, from the addresses operations touch. */
#include "planner/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The address space of one memory, cut at every border of a buffer: pieces that are wholly inside
 * or wholly outside each buffer. For each piece the last reader and writer of each lane. */
struct pieces {
    int64_t *border; /* n + 1 sorted offsets */
    int32_t n;
    int32_t (*reader)[LANE_COUNT]; /* list index, -1 none */
    int32_t (*writer)[LANE_COUNT];
};

static int compare_int64(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void pieces_init(struct pieces *p, const struct schedule *s, enum memory memory)
{
    p->border = base_alloc(sizeof(*p->border) * 2 * (size_t)(s->n_buffers + 1));
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        if (b->memory != memory || b->offset < 0)
            continue;
        p->border[n++] = b->offset;
        p->border[n++] = b->offset + b->bytes;
    }
    qsort(p->border, (size_t)n, sizeof(*p->border), compare_int64);
    int32_t unique = 0;
    for (int32_t i = 0; i < n; i++)
        if (unique == 0 || p->border[i] != p->border[unique - 1])
            p->border[unique++] = p->border[i];
    p->n = unique > 0 ? unique - 1 : 0;
    p->reader = base_alloc(sizeof(*p->reader) * (size_t)(p->n + 1));
    p->writer = base_alloc(sizeof(*p->writer) * (size_t)(p->n + 1));
}

static void pieces_reset(struct pieces *p)
{
    memset(p->reader, 0xff, sizeof(*p->reader) * (size_t)(p->n + 1));
    memset(p->writer, 0xff, sizeof(*p->writer) * (size_t)(p->n + 1));
}

static void pieces_release(struct pieces *p)
{
    free(p->border);
    free(p->reader);
    free(p->writer);
}

static int32_t pieces_find(const struct pieces *p, int64_t offset)
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

struct linker {
    struct schedule *s;
    struct pieces pieces[MEMORY_COUNT];
    /* known[i][l]: when operation i is done, so is everything on lane l up to this list index */
    int32_t (*known)[LANE_COUNT];
};

static void need(int32_t *want, const int32_t *last)
{
    for (int l = 0; l < LANE_COUNT; l++)
        if (last[l] > want[l])
            want[l] = last[l];
}

/* want[l]: last operation of lane l that this one has to follow. */
static void conflicts(struct linker *k, int32_t i, int32_t *want)
{
    const struct op *op = &k->s->ops[i];
    for (int a = 0; a < op->n_args; a++) {
        const struct buffer *b = &k->s->buffers[op->arg[a].buffer];
        struct pieces *p = &k->pieces[b->memory];
        bool is_write = op->arg[a].access & ACCESS_WRITE;
        for (int32_t j = pieces_find(p, b->offset); j < p->n && p->border[j] < b->offset + b->bytes;
             j++) {
            need(want, p->writer[j]);
            if (is_write)
                need(want, p->reader[j]);
        }
    }
}

static void record(struct linker *k, int32_t i)
{
    const struct op *op = &k->s->ops[i];
    for (int a = 0; a < op->n_args; a++) {
        const struct buffer *b = &k->s->buffers[op->arg[a].buffer];
        struct pieces *p = &k->pieces[b->memory];
        for (int32_t j = pieces_find(p, b->offset); j < p->n && p->border[j] < b->offset + b->bytes;
             j++) {
            if (op->arg[a].access & ACCESS_WRITE)
                p->writer[j][op->lane] = i;
            else
                p->reader[j][op->lane] = i;
        }
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
    conflicts(k, i, want);
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

void schedule_link(struct schedule *s)
{
    struct linker k = {.s = s};
    k.known = base_alloc(sizeof(*k.known) * (size_t)(s->n_ops + 1));
    for (int m = 0; m < MEMORY_COUNT; m++)
        pieces_init(&k.pieces[m], s, (enum memory)m);
    for (int sec = 0; sec < s->n_sections; sec++) {
        int32_t previous[LANE_COUNT];
        memset(previous, 0xff, sizeof(previous));
        for (int m = 0; m < MEMORY_COUNT; m++)
            pieces_reset(&k.pieces[m]);
        int32_t end = s->section[sec].first_op + s->section[sec].n_ops;
        for (int32_t i = s->section[sec].first_op; i < end; i++) {
            link_op(&k, i, previous);
            previous[s->ops[i].lane] = i;
        }
    }
    for (int m = 0; m < MEMORY_COUNT; m++)
        pieces_release(&k.pieces[m]);
    free(k.known);
}
