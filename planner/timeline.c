#include "planner/timeline.h"

#include <string.h>

#include "base/alloc.h"

/* What is known of an operation while a timeline is made. */
struct note {
    int32_t id;      /* its price */
    int32_t next;    /* next operation of its lane in the section, -1 */
    int32_t ordinal; /* segments of its lane in the section, up to its own */
    bool is_awaited; /* by one of another lane */
    bool is_first;   /* of its segment */
};

struct maker {
    const struct schedule *s;
    struct timeline *out;
    struct prices *prices;
    bool is_merged;
    struct note *notes; /* per operation */
};

static bool has_waits(const struct op *op)
{
    for (int l = 0; l < LANE_COUNT; l++)
        if (op->waits[l] >= 0)
            return true;
    return false;
}

static bool is_collective(const struct maker *k, int32_t op)
{
    return k->prices->keys[k->notes[op].id].work == WORK_COLLECTIVES;
}

static void price_operations(struct maker *k)
{
    const struct schedule *s = k->s;
    const struct section *last = &s->section[s->n_sections - 1];
    for (int32_t i = 0; i < last->first_op + last->n_ops; i++) {
        k->notes[i].id = prices_add(k->prices, s, &s->ops[i]);
        for (int l = 0; l < LANE_COUNT; l++)
            if (s->ops[i].waits[l] >= 0)
                k->notes[s->ops[i].waits[l]].is_awaited = true;
    }
}

static bool begins_segment(const struct maker *k, int32_t op, int32_t previous)
{
    return !k->is_merged || previous < 0 || k->notes[previous].is_awaited ||
           has_waits(&k->s->ops[op]) || is_collective(k, op) != is_collective(k, previous);
}

/* Where segments of a section begin; ordinals of the last operations of the lanes are their number.
 */
static void cut(struct maker *k, const struct section *sec, struct timeline_section *out)
{
    int32_t previous[LANE_COUNT];
    memset(previous, 0xff, sizeof previous);
    for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++) {
        struct stretch *lane = &out->lane[k->s->ops[i].lane];
        int32_t before = previous[k->s->ops[i].lane];
        struct note *n = &k->notes[i];
        n->next = -1;
        n->is_first = begins_segment(k, i, before);
        lane->n += n->is_first;
        n->ordinal = lane->n;
        if (before >= 0)
            k->notes[before].next = i;
        previous[k->s->ops[i].lane] = i;
    }
}

/* The run of so many last ids, or an equal earlier one, which then replaces them. */
static int32_t add_run(struct timeline *t, struct run run)
{
    size_t bytes = (size_t)run.n * sizeof *t->ids;
    for (int32_t i = 0; i < t->n_runs; i++) {
        if (t->runs[i].hash != run.hash || t->runs[i].n != run.n ||
            memcmp(&t->ids[t->runs[i].first], &t->ids[run.first], bytes) != 0)
            continue;
        t->n_ids = run.first;
        return i;
    }
    BASE_GROW(t->runs, t->runs_cap, t->n_runs + 1);
    t->runs[t->n_runs] = run;
    return t->n_runs++;
}

/* The segment that begins with the operation. */
static struct segment make_segment(struct maker *k, int32_t op)
{
    struct timeline *t = k->out;
    struct segment seg = {.op = op};
    for (int l = 0; l < LANE_COUNT; l++) {
        int32_t awaited = k->s->ops[op].waits[l];
        seg.waits[l] = awaited >= 0 ? k->notes[awaited].ordinal : 0;
    }
    struct run run = {.first = t->n_ids, .is_collective = is_collective(k, op)};
    int32_t i = op;
    do {
        BASE_GROW(t->ids, t->ids_cap, t->n_ids + 1);
        t->ids[t->n_ids++] = k->notes[i].id;
        run.hash = run.hash * 31 + (uint32_t)k->notes[i].id;
        run.n++;
        i = k->notes[i].next;
    } while (i >= 0 && !k->notes[i].is_first);
    seg.run = add_run(t, run);
    return seg;
}

static void make_section(struct maker *k, const struct section *sec, struct timeline_section *out)
{
    struct timeline *t = k->out;
    int32_t at[LANE_COUNT];
    *out = (struct timeline_section){.kind = sec->kind, .repeat = sec->repeat, .same_as = -1};
    cut(k, sec, out);
    for (int l = 0; l < LANE_COUNT; l++) {
        at[l] = out->lane[l].first = t->n_segments;
        t->n_segments += out->lane[l].n;
    }
    BASE_GROW(t->segments, t->segments_cap, t->n_segments + 1);
    for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++)
        if (k->notes[i].is_first)
            t->segments[at[k->s->ops[i].lane]++] = make_segment(k, i);
}

/* --- sections that take as long as each other --- */

static bool same_segment(const struct segment *a, const struct segment *b)
{
    return a->run == b->run && memcmp(a->waits, b->waits, sizeof a->waits) == 0;
}

static bool same_section(const struct timeline *t, int a, int b)
{
    const struct timeline_section *x = &t->section[a], *y = &t->section[b];
    for (int l = 0; l < LANE_COUNT; l++) {
        if (x->lane[l].n != y->lane[l].n)
            return false;
        for (int32_t i = 0; i < x->lane[l].n; i++)
            if (!same_segment(
                    &t->segments[x->lane[l].first + i], &t->segments[y->lane[l].first + i]))
                return false;
    }
    return true;
}

static void find_equal_sections(struct timeline *t)
{
    for (int i = 1; i < t->n_sections; i++)
        for (int k = 0; k < i && t->section[i].same_as < 0; k++)
            if (t->section[k].same_as < 0 && same_section(t, k, i))
                t->section[i].same_as = k;
}

/* --- all of it --- */

static void count_times(struct maker *k)
{
    struct timeline *t = k->out;
    t->n_times = k->prices->n;
    t->times = base_calloc((size_t)t->n_times + 1, sizeof *t->times);
    for (int i = 0; i < t->n_sections; i++) {
        const struct section *sec = &k->s->section[i];
        for (int32_t op = sec->first_op; op < sec->first_op + sec->n_ops; op++)
            t->times[k->notes[op].id] += (double)sec->repeat;
    }
}

struct timeline *timeline_new(const struct schedule *s, struct prices *prices, bool is_merged)
{
    struct maker k = {.s = s, .prices = prices, .is_merged = is_merged};
    k.out = base_calloc(1, sizeof *k.out);
    k.notes = base_calloc((size_t)s->n_ops + 1, sizeof *k.notes);
    k.out->strategy = s->strategy;
    k.out->n_sections = s->n_sections;
    price_operations(&k);
    for (int i = 0; i < s->n_sections; i++)
        make_section(&k, &s->section[i], &k.out->section[i]);
    if (is_merged)
        find_equal_sections(k.out);
    count_times(&k);
    free(k.notes);
    return k.out;
}

void timeline_free(struct timeline *t)
{
    if (!t)
        return;
    free(t->segments);
    free(t->runs);
    free(t->ids);
    free(t->times);
    free(t);
}
