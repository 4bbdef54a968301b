#include "planner/layout.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Alignments are powers of two: a division would take longer than all else here. */
static int64_t aligned(int64_t offset, const struct buffer *b)
{
    int64_t mask = b->align - 1;
    assert((b->align & mask) == 0);
    return (offset + mask) & ~mask;
}

static int64_t place_persistent(struct schedule *s, enum memory memory)
{
    int64_t offset = 0;
    for (int32_t i = 0; i < s->n_buffers; i++) {
        struct buffer *b = &s->buffers[i];
        if (b->memory != memory || b->lifetime != LIFETIME_RUN)
            continue;
        b->offset = aligned(offset, b);
        offset = b->offset + b->bytes;
    }
    return offset;
}

/* Larger first; equal ones in list order, so that the order is total. */
static int larger_first(const void *pa, const void *pb)
{
    const struct buffer *a = *(struct buffer *const *)pa, *b = *(struct buffer *const *)pb;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? 1 : -1;
    if (a->first_op != b->first_op)
        return a->first_op < b->first_op ? -1 : 1;
    return (a > b) - (a < b);
}

/* Buffers that have their places, by offset, in chunks of a few. Mostly all of a chunk are live at
 * the same time as another buffer, or none of them, and then they are passed in one step. */
enum { CHUNK = 16 };

struct chunk {
    int n;
    int32_t first_op[2], last_op[2]; /* least and most of them */
    int64_t end;                     /* most */
    int64_t gap;                     /* the widest that all of them together leave between them */
    struct spot {
        int64_t offset, end;
        int32_t first_op, last_op;
    } spots[CHUNK];
};

struct placed {
    struct chunk **chunks; /* none of them empty */
    size_t n, cap;
};

static int32_t less(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static int32_t more(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

static void sum_up(struct chunk *c)
{
    const struct spot *s = &c->spots[0];
    c->first_op[0] = c->first_op[1] = s->first_op;
    c->last_op[0] = c->last_op[1] = s->last_op;
    c->end = s->end;
    c->gap = 0;
    for (int i = 1; i < c->n; i++) {
        s = &c->spots[i];
        c->first_op[0] = less(c->first_op[0], s->first_op);
        c->first_op[1] = more(c->first_op[1], s->first_op);
        c->last_op[0] = less(c->last_op[0], s->last_op);
        c->last_op[1] = more(c->last_op[1], s->last_op);
        c->gap = s->offset - c->end > c->gap ? s->offset - c->end : c->gap;
        c->end = s->end > c->end ? s->end : c->end;
    }
}

/* Is there room for b at the offset or between those of the chunk? The offset moves behind the ones
 * that are in its way. */
static bool fits_among(const struct chunk *c, const struct buffer *b, int64_t *offset)
{
    for (int i = 0; i < c->n; i++) {
        const struct spot *s = &c->spots[i];
        if (s->first_op > b->last_op || b->first_op > s->last_op)
            continue;
        if (s->offset - *offset >= b->bytes)
            return true;
        if (s->end > *offset)
            *offset = aligned(s->end, b);
    }
    return false;
}

/* Lowest gap among the buffers that are live at the same time as b. */
static int64_t first_fit(const struct placed *p, const struct buffer *b, int64_t base)
{
    int64_t offset = aligned(base, b);
    for (size_t i = 0; i < p->n; i++) {
        const struct chunk *c = p->chunks[i];
        if (c->first_op[0] > b->last_op || b->first_op > c->last_op[1])
            continue;
        bool are_all = c->first_op[1] <= b->last_op && b->first_op <= c->last_op[0];
        if (!are_all || c->gap >= b->bytes) {
            if (fits_among(c, b, &offset))
                return offset;
            continue;
        }
        if (c->spots[0].offset - offset >= b->bytes)
            return offset;
        if (c->end > offset)
            offset = aligned(c->end, b);
    }
    return offset;
}

/* The last chunk that begins at or before the offset, or the first. */
static size_t find_chunk(const struct placed *p, int64_t offset)
{
    size_t low = 0, high = p->n;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (p->chunks[middle]->spots[0].offset > offset)
            high = middle;
        else
            low = middle;
    }
    return low;
}

static void insert_chunk(struct placed *p, size_t at, struct chunk *c)
{
    BASE_GROW(p->chunks, p->cap, p->n + 1);
    memmove(p->chunks + at + 1, p->chunks + at, (p->n - at) * sizeof(*p->chunks));
    p->chunks[at] = c;
    p->n++;
}

/* A full one gives half of what it has to a new one behind it. */
static void split(struct placed *p, size_t at)
{
    struct chunk *c = p->chunks[at], *rest = base_alloc(sizeof *rest);
    c->n = CHUNK / 2;
    rest->n = CHUNK - c->n;
    memcpy(rest->spots, c->spots + c->n, (size_t)rest->n * sizeof *rest->spots);
    sum_up(c);
    sum_up(rest);
    insert_chunk(p, at + 1, rest);
}

/* Keep them sorted. */
static void insert_by_offset(struct placed *p, const struct buffer *b)
{
    struct spot spot = {b->offset, b->offset + b->bytes, b->first_op, b->last_op};
    if (p->n == 0)
        insert_chunk(p, 0, base_calloc(1, sizeof(struct chunk)));
    size_t at = find_chunk(p, b->offset);
    if (p->chunks[at]->n == CHUNK) {
        split(p, at);
        at = find_chunk(p, b->offset);
    }
    struct chunk *c = p->chunks[at];
    int i = c->n++;
    for (; i > 0 && c->spots[i - 1].offset > b->offset; i--)
        c->spots[i] = c->spots[i - 1];
    c->spots[i] = spot;
    sum_up(c);
}

static void placed_release(struct placed *p)
{
    for (size_t i = 0; i < p->n; i++)
        free(p->chunks[i]);
    free(p->chunks);
}

static bool has_any(const struct schedule *s, enum memory memory)
{
    for (int32_t i = 0; i < s->n_buffers; i++)
        if (s->buffers[i].memory == memory)
            return true;
    return false;
}

/* Greedy by size: packs the periodic shapes here to within a few per cent of the live peak
 * (tests/unit/planner/schedule.c holds it to that). */
static int64_t place_section(struct schedule *s, int section, enum memory memory, int64_t base)
{
    struct buffer **pending = base_alloc(sizeof(*pending) * (size_t)(s->n_buffers + 1));
    struct placed placed = {0};
    size_t n = 0;
    for (int32_t i = 0; i < s->n_buffers; i++)
        if (s->buffers[i].section == section && s->buffers[i].memory == memory)
            pending[n++] = &s->buffers[i];
    qsort(pending, n, sizeof(*pending), larger_first);
    int64_t end = base;
    for (size_t i = 0; i < n; i++) {
        pending[i]->offset = first_fit(&placed, pending[i], base);
        insert_by_offset(&placed, pending[i]);
        if (pending[i]->offset + pending[i]->bytes > end)
            end = pending[i]->offset + pending[i]->bytes;
    }
    placed_release(&placed);
    free(pending);
    return end;
}

/* Buffers of one section: they follow each other in the list. */
struct stretch {
    int32_t first, n;
};

static struct stretch buffers_of(const struct schedule *s, int section)
{
    struct stretch out = {0, 0};
    while (out.first < s->n_buffers && s->buffers[out.first].section != section)
        out.first++;
    while (out.first + out.n < s->n_buffers && s->buffers[out.first + out.n].section == section)
        out.n++;
    return out;
}

/* Same sizes and lifetimes, a constant number of operations apart. */
static bool same_buffers(const struct schedule *s, struct stretch x, struct stretch y)
{
    if (x.n != y.n || x.n == 0)
        return false;
    const struct buffer *a = &s->buffers[x.first], *b = &s->buffers[y.first];
    int32_t apart = b->first_op - a->first_op;
    for (int32_t i = 0; i < x.n; i++)
        if (a[i].memory != b[i].memory || a[i].bytes != b[i].bytes || a[i].align != b[i].align ||
            b[i].first_op - a[i].first_op != apart || b[i].last_op - a[i].last_op != apart)
            return false;
    return true;
}

/* Micro steps mostly use the same buffers: place them as in an earlier one. */
static bool copy_offsets(struct schedule *s, int section)
{
    struct stretch own = buffers_of(s, section);
    for (int i = 0; i < section; i++) {
        struct stretch other = buffers_of(s, i);
        if (!same_buffers(s, other, own))
            continue;
        for (int32_t k = 0; k < own.n; k++)
            s->buffers[own.first + k].offset = s->buffers[other.first + k].offset;
        return true;
    }
    return false;
}

void layout_assign(struct schedule *s)
{
    int64_t base[MEMORY_COUNT], slab[MEMORY_COUNT];
    bool is_used[MEMORY_COUNT];
    for (int m = 0; m < MEMORY_COUNT; m++) {
        is_used[m] = has_any(s, (enum memory)m);
        base[m] = slab[m] = place_persistent(s, (enum memory)m);
    }
    for (int sec = 0; sec < s->n_sections; sec++) {
        if (copy_offsets(s, sec))
            continue;
        for (int m = 0; m < MEMORY_COUNT; m++) {
            if (!is_used[m])
                continue;
            int64_t end = place_section(s, sec, (enum memory)m, base[m]);
            slab[m] = end > slab[m] ? end : slab[m];
        }
    }
    for (int m = 0; m < MEMORY_COUNT; m++)
        s->slab_bytes[m] = (int64_t)base_align_up((uint64_t)slab[m], SLAB_PAGE);
}

/* Live bytes of a section's own buffers after each operation, by sweeping first and last uses. */
static int32_t section_peak(
    const struct schedule *s, int section, enum memory memory, int64_t *peak)
{
    const struct section *sec = &s->section[section];
    int64_t *delta = base_calloc((size_t)sec->n_ops + 2, sizeof(*delta));
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        if (b->section != section || b->memory != memory)
            continue;
        delta[b->first_op - sec->first_op] += b->bytes;
        delta[b->last_op - sec->first_op + 1] -= b->bytes;
    }
    int64_t live = 0;
    int32_t at = -1;
    *peak = -1;
    for (int32_t i = 0; i < sec->n_ops; i++) {
        live += delta[i];
        if (live > *peak) {
            *peak = live;
            at = sec->first_op + i;
        }
    }
    free(delta);
    return at;
}

struct layout_peak layout_peak(const struct schedule *s, enum memory memory)
{
    struct layout_peak p = {.op = -1, .slab_bytes = s->slab_bytes[memory]};
    int64_t best = -1;
    int best_section = -1;
    if (!has_any(s, memory))
        return p;
    for (int i = 0; i < s->n_sections; i++) {
        int64_t peak;
        int32_t at = section_peak(s, i, memory, &peak);
        if (peak > best) {
            best = peak;
            best_section = i;
            p.op = at;
        }
    }
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        bool is_live = b->lifetime == LIFETIME_RUN ||
                       (b->section == best_section && b->first_op <= p.op && p.op <= b->last_op);
        if (b->memory == memory && is_live) {
            p.part_bytes[b->part] += b->bytes;
            p.live_bytes += b->bytes;
        }
    }
    return p;
}
