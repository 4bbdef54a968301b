#include "planner/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static int64_t aligned(int64_t offset, const struct buffer *b)
{
    return (int64_t)base_align_up((uint64_t)offset, (uint64_t)b->align);
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

/* Buffers that have their places, sorted by these: field by field, since most are passed over for
 * their lifetimes alone, several at a time. */
struct placed {
    size_t n;
    int64_t *offset, *end;
    int32_t *first_op, *last_op;
};

enum { LOOK = 16 };

/* From i on, a place before which no buffer is live at the same time as b. */
static size_t skip_others(const struct placed *p, size_t i, const struct buffer *b)
{
    int32_t first = b->first_op, last = b->last_op;
    for (; i + LOOK <= p->n; i += LOOK) {
        int32_t live = 0;
        for (size_t k = i; k < i + LOOK; k++)
            live |= (p->first_op[k] <= last) & (p->last_op[k] >= first);
        if (live)
            break;
    }
    return i;
}

/* Lowest gap among the buffers that are live at the same time as b. */
static int64_t first_fit(const struct placed *p, const struct buffer *b, int64_t base)
{
    int64_t offset = aligned(base, b);
    for (size_t i = 0; i < p->n;) {
        i = skip_others(p, i, b);
        for (size_t end = i + LOOK < p->n ? i + LOOK : p->n; i < end; i++) {
            if (p->first_op[i] > b->last_op || b->first_op > p->last_op[i])
                continue;
            if (p->offset[i] - offset >= b->bytes)
                return offset;
            if (p->end[i] > offset)
                offset = aligned(p->end[i], b);
        }
    }
    return offset;
}

/* Keep them sorted. */
static void insert_by_offset(struct placed *p, const struct buffer *b)
{
    size_t low = 0, high = p->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (p->offset[middle] > b->offset)
            high = middle;
        else
            low = middle + 1;
    }
    size_t behind = p->n++ - low;
    memmove(p->offset + low + 1, p->offset + low, behind * sizeof(*p->offset));
    memmove(p->end + low + 1, p->end + low, behind * sizeof(*p->end));
    memmove(p->first_op + low + 1, p->first_op + low, behind * sizeof(*p->first_op));
    memmove(p->last_op + low + 1, p->last_op + low, behind * sizeof(*p->last_op));
    p->offset[low] = b->offset;
    p->end[low] = b->offset + b->bytes;
    p->first_op[low] = b->first_op;
    p->last_op[low] = b->last_op;
}

static struct placed placed_new(size_t most)
{
    return (struct placed){.offset = base_alloc(most * sizeof(int64_t)),
        .end = base_alloc(most * sizeof(int64_t)),
        .first_op = base_alloc(most * sizeof(int32_t)),
        .last_op = base_alloc(most * sizeof(int32_t))};
}

static void placed_release(struct placed *p)
{
    free(p->offset);
    free(p->end);
    free(p->first_op);
    free(p->last_op);
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
    struct placed placed = placed_new((size_t)s->n_buffers + 1);
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
