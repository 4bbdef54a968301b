/* Waits between lanes, from the addresses operations touch. */
#include "planner/schedule.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* The address space of one memory, cut at every border of a buffer of a section that other lanes
 * than the compute lane touch: pieces that are wholly inside or wholly outside each of these.
 * Others may end inside a piece: what they share with it they share with all who touch it. */
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

/* A buffer in the run of operations of one lane that is being linked. While no other lane comes in
 * between, only its first touch can have to wait, and only its last one need be recorded. */
struct touch {
    int32_t run;         /* in which it was last touched */
    int32_t read, write; /* last of each in the run, -1 */
};

struct linker {
    struct schedule *s;
    struct pieces pieces[MEMORY_COUNT];
    uint32_t *lanes;    /* by buffer: that touch it in the section */
    struct span *spans; /* by buffer, in the section */
    struct shared *shared;
    int32_t n_shared, shared_cap;
    struct touch *touches; /* by buffer */
    int32_t *touched;      /* buffers of the run */
    int32_t run, n_touched;
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

static int32_t add_borders(struct linker *k, enum memory memory, enum lifetime lifetime, int32_t n)
{
    int64_t *border = k->pieces[memory].border;
    for (int32_t i = 0; i < k->s->n_buffers; i++) {
        const struct buffer *b = &k->s->buffers[i];
        bool is_cut = (k->lanes[i] & ~(1u << LANE_COMPUTE)) != 0;
        if (b->memory != memory || b->lifetime != lifetime || !is_cut)
            continue;
        border[n++] = b->offset;
        border[n++] = b->offset + b->bytes;
    }
    return n;
}

/* Persistent buffers lie first, and in the order of the list: they need no sorting. */
static void cut(struct linker *k, enum memory memory)
{
    struct pieces *p = &k->pieces[memory];
    int32_t lasting = add_borders(k, memory, LIFETIME_RUN, 0);
    int32_t n = add_borders(k, memory, LIFETIME_OP, lasting), unique = 0;
    qsort(p->border + lasting, (size_t)(n - lasting), sizeof(*p->border), compare_int64);
    for (int32_t i = 0; i < n; i++) {
        assert(i == 0 || p->border[i] >= p->border[i - 1]);
        if (unique == 0 || p->border[i] != p->border[unique - 1])
            p->border[unique++] = p->border[i];
    }
    p->n = unique > 0 ? unique - 1 : 0;
    memset(p->lanes, 0, sizeof(*p->lanes) * (size_t)p->n);
}

/* The first that ends behind the offset. */
static int32_t find_piece(const struct pieces *p, int64_t offset)
{
    int32_t lo = 0, hi = p->n;
    while (lo < hi) {
        int32_t mid = (lo + hi) / 2;
        if (p->border[mid + 1] <= offset)
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
static void conflicts(struct linker *k, int32_t i, int32_t *want)
{
    const struct op *op = &k->s->ops[i];
    for (int a = 0; a < op->n_args; a++) {
        int32_t buffer = op->arg[a].buffer;
        struct span at = k->spans[buffer];
        struct touch *t = &k->touches[buffer];
        bool is_write = op->arg[a].access & ACCESS_WRITE;
        if (at.first == at.end)
            continue;
        bool is_new = t->run != k->run;
        if (is_new) {
            *t = (struct touch){.run = k->run, .read = -1, .write = -1};
            k->touched[k->n_touched++] = buffer;
        }
        for (int32_t j = at.first; is_new && j < at.end; j++)
            need(want, k->shared[j].writer);
        for (int32_t j = at.first; is_write && t->write < 0 && j < at.end; j++)
            need(want, k->shared[j].reader);
        *(is_write ? &t->write : &t->read) = i;
    }
}

static void record_one(int32_t *last, int32_t i)
{
    if (i > *last)
        *last = i;
}

/* Pieces may belong to several buffers: the last touch counts. */
static void record_run(struct linker *k, int lane)
{
    for (int32_t n = 0; n < k->n_touched; n++) {
        struct span at = k->spans[k->touched[n]];
        const struct touch *t = &k->touches[k->touched[n]];
        for (int32_t j = at.first; j < at.end; j++) {
            record_one(&k->shared[j].reader[lane], t->read);
            record_one(&k->shared[j].writer[lane], t->write);
        }
    }
    k->n_touched = 0;
    k->run++;
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
}

static bool has_one_lane(const struct schedule *s, const struct section *sec)
{
    for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++)
        if (s->ops[i].lane != s->ops[sec->first_op].lane)
            return false;
    return true;
}

/* --- sections that touch the same addresses in the same order --- */

static bool same_place(const struct schedule *s, const struct ref *a, const struct ref *b)
{
    const struct buffer *x = &s->buffers[a->buffer], *y = &s->buffers[b->buffer];
    return a->access == b->access &&
           (x == y || (x->memory == y->memory && x->offset == y->offset && x->bytes == y->bytes));
}

static bool same_touches(const struct schedule *s, const struct op *a, const struct op *b)
{
    if (a->lane != b->lane || a->n_args != b->n_args)
        return false;
    for (int i = 0; i < a->n_args; i++)
        if (!same_place(s, &a->arg[i], &b->arg[i]))
            return false;
    return true;
}

static bool same_section(
    const struct schedule *s, const struct section *sec, const struct section *earlier)
{
    if (sec->n_ops != earlier->n_ops)
        return false;
    for (int32_t i = 0; i < sec->n_ops; i++)
        if (!same_touches(s, &s->ops[sec->first_op + i], &s->ops[earlier->first_op + i]))
            return false;
    return true;
}

/* Micro steps mostly do: they then wait alike. */
static bool copy_waits(struct schedule *s, const struct section *sec)
{
    for (const struct section *earlier = s->section; earlier < sec; earlier++) {
        int32_t apart = sec->first_op - earlier->first_op;
        if (!same_section(s, sec, earlier))
            continue;
        for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++)
            for (int l = 0; l < LANE_COUNT; l++) {
                int32_t wait = s->ops[i - apart].waits[l];
                s->ops[i].waits[l] = wait < 0 ? wait : wait + apart;
            }
        return true;
    }
    return false;
}

static void link_section(struct linker *k, const struct section *sec)
{
    int32_t previous[LANE_COUNT], end = sec->first_op + sec->n_ops;
    if (has_one_lane(k->s, sec) || copy_waits(k->s, sec))
        return;
    memset(previous, 0xff, sizeof(previous));
    find_shared(k, sec);
    for (int32_t i = sec->first_op; i < end; i++) {
        int lane = k->s->ops[i].lane;
        link_op(k, i, previous);
        previous[lane] = i;
        if (i + 1 == end || k->s->ops[i + 1].lane != lane)
            record_run(k, lane);
    }
}

void schedule_link(struct schedule *s)
{
    struct linker k = {.s = s};
    size_t buffers = (size_t)s->n_buffers + 1;
    k.known = base_alloc(sizeof(*k.known) * (size_t)(s->n_ops + 1));
    k.lanes = base_alloc(sizeof(*k.lanes) * buffers);
    k.spans = base_alloc(sizeof(*k.spans) * buffers);
    k.touches = base_calloc(buffers, sizeof(*k.touches));
    k.touched = base_alloc(sizeof(*k.touched) * buffers);
    k.run = 1;
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
    free(k.touches);
    free(k.touched);
    free(k.shared);
}
