#include "planner/simulate.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/split.h"
#include "planner/timeline.h"

/* What a lane does now. */
struct lane_state {
    const struct segment *next, *end; /* not started yet */
    int32_t done;                     /* segments finished */
    bool is_running, is_collective;
    double left_s; /* of the running one, as if alone */
    double slow;   /* it takes so many times as long beside the others */
};

/* Lanes that have anything to do in a section, the compute lane first if it has. */
struct sim {
    const struct timeline *t;
    const double *run_s; /* by run, as if alone */
    const struct machine *m;
    double cores; /* of one rank, CPU only */
    int n_lanes;
    enum lane name[LANE_COUNT];
    struct lane_state lane[LANE_COUNT];
    double now_s;
    double busy_s[LANE_COUNT], exposed_s[LANE_COUNT]; /* of the section, by name */
    struct op_span *spans;
};

static bool is_ready(const struct sim *x, const struct segment *seg)
{
    for (int k = 0; k < x->n_lanes; k++)
        if (seg->waits[x->name[k]] > x->lane[k].done)
            return false;
    return true;
}

static void start_ready(struct sim *x)
{
    for (int k = 0; k < x->n_lanes; k++) {
        struct lane_state *st = &x->lane[k];
        if (st->is_running || st->next == st->end || !is_ready(x, st->next))
            continue;
        st->is_running = true;
        st->is_collective = x->t->runs[st->next->run].is_collective;
        st->left_s = x->run_s[st->next->run];
        if (x->spans)
            x->spans[st->next->op].start_s = x->now_s;
        st->next++;
    }
}

/* CPU: products and updates want all cores of a rank, waiting for the disk none, others one. */
static double cores_wanted(const struct sim *x, int k)
{
    enum lane name = x->name[k];
    if (!x->lane[k].is_running || name == LANE_DISK)
        return 0;
    return name == LANE_COMPUTE || name == LANE_HOST ? x->cores : 1;
}

/* How much slower each running operation progresses beside the others than alone. */
static void set_rates(struct sim *x)
{
    int collectives = 0;
    double demand = 0;
    for (int k = 0; k < x->n_lanes; k++) {
        demand += cores_wanted(x, k);
        collectives += x->lane[k].is_running && x->lane[k].is_collective;
    }
    double share = x->m->is_shared && demand > x->cores ? demand / x->cores : 1;
    for (int k = 0; k < x->n_lanes; k++) {
        struct lane_state *st = &x->lane[k];
        st->slow = share;
        if (st->is_collective)
            st->slow *= collectives;
        else if (x->name[k] == LANE_COMPUTE && collectives > 0)
            st->slow *= x->m->overlap_slowdown;
    }
}

static void account(struct sim *x, double dt)
{
    bool has_compute = x->name[0] == LANE_COMPUTE && x->lane[0].is_running;
    int busy = 0;
    for (int k = 0; k < x->n_lanes; k++) {
        if (!x->lane[k].is_running)
            continue;
        busy++;
        x->busy_s[x->name[k]] += dt;
    }
    for (int k = 0; k < x->n_lanes && !has_compute; k++)
        if (x->lane[k].is_running)
            x->exposed_s[x->name[k]] += dt / busy;
}

/* Let time pass until the first running operation ends; false when nothing runs. */
static bool advance(struct sim *x)
{
    double dt = INFINITY;
    for (int k = 0; k < x->n_lanes; k++)
        if (x->lane[k].is_running && x->lane[k].left_s * x->lane[k].slow < dt)
            dt = x->lane[k].left_s * x->lane[k].slow;
    if (!isfinite(dt))
        return false;
    account(x, dt);
    x->now_s += dt;
    for (int k = 0; k < x->n_lanes; k++) {
        struct lane_state *st = &x->lane[k];
        if (!st->is_running)
            continue;
        if (st->left_s * st->slow > dt) {
            st->left_s -= dt / st->slow;
            continue;
        }
        if (x->spans)
            x->spans[st->next[-1].op].end_s = x->now_s;
        st->done++;
        st->is_running = false;
    }
    return true;
}

static double run_section(struct sim *x, const struct timeline_section *sec)
{
    x->now_s = 0;
    x->n_lanes = 0;
    memset(x->busy_s, 0, sizeof x->busy_s);
    memset(x->exposed_s, 0, sizeof x->exposed_s);
    for (int l = 0; l < LANE_COUNT; l++) {
        const struct segment *first = &x->t->segments[sec->lane[l].first];
        if (sec->lane[l].n == 0)
            continue;
        x->name[x->n_lanes] = (enum lane)l;
        x->lane[x->n_lanes++] = (struct lane_state){.next = first, .end = first + sec->lane[l].n};
    }
    if (x->n_lanes == 0)
        return 0;
    do {
        start_ready(x);
        set_rates(x);
    } while (advance(x));
    return x->now_s;
}

/* Seconds of every run, as if alone. */
static void price_runs(double *run_s, const struct timeline *t, const double *price)
{
    for (int32_t i = 0; i < t->n_runs; i++) {
        const int32_t *id = &t->ids[t->runs[i].first];
        run_s[i] = 0;
        for (int32_t k = 0; k < t->runs[i].n; k++)
            run_s[i] += price[id[k]];
    }
}

static double cores_of_rank(const struct hardware *hw)
{
    return hw->ranks_per_node > 0 && hw->vcpus > 0 ? (double)hw->vcpus / (double)hw->ranks_per_node
                                                   : 1;
}

/* A share of what compute covers costs its time all the same: it counts as exposed. Returns the
 * seconds by which the section just run grows. */
static double add_unhidden(struct sim *x)
{
    static const enum lane lanes[] = {LANE_GATHER, LANE_REDUCE};
    double added = 0;
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++) {
        double hidden = fmax(0, x->busy_s[lanes[i]] - x->exposed_s[lanes[i]]);
        x->exposed_s[lanes[i]] += x->m->unhidden * hidden;
        added += x->m->unhidden * hidden;
    }
    return added;
}

static void run_sections(struct simulation *out, struct sim *x)
{
    double busy_s[SCHEDULE_MAX_SECTIONS][LANE_COUNT], exposed_s[SCHEDULE_MAX_SECTIONS][LANE_COUNT];
    for (int i = 0; i < x->t->n_sections; i++) {
        const struct timeline_section *sec = &x->t->section[i];
        int like = sec->same_as >= 0 ? sec->same_as : i;
        if (like == i) {
            out->section_s[i] = run_section(x, sec);
            out->section_s[i] += add_unhidden(x);
            memcpy(busy_s[i], x->busy_s, sizeof busy_s[i]);
            memcpy(exposed_s[i], x->exposed_s, sizeof exposed_s[i]);
        }
        double times = (double)sec->repeat;
        out->section_s[i] = out->section_s[like];
        out->step_s += out->section_s[i] * times;
        if (sec->kind == SECTION_FLUSH)
            out->flush_s = out->section_s[i];
        for (int l = 0; l < LANE_COUNT; l++) {
            out->busy_s[l] += busy_s[like][l] * times;
            out->exposed_s[l] += exposed_s[like][l] * times;
        }
    }
}

double simulate_jitter(const struct machine *m, const struct strategy *s)
{
    double doublings = log2((double)s->ranks / 8);
    return 1 + m->jitter_per_doubling * (doublings > 0 ? doublings : 0);
}

void simulate_timeline(struct simulation *out, const struct timeline *t, const double *price,
    const struct prices *prices, const struct machine *m, struct op_span *spans)
{
    enum { SMALL = 128 }; /* whole schedules that are not merged have more */
    double small[SMALL];
    double *run_s = t->n_runs <= SMALL ? small : base_alloc((size_t)t->n_runs * sizeof *run_s);
    struct sim x = {.t = t, .run_s = run_s, .m = m, .spans = spans};
    memset(out, 0, sizeof *out);
    x.cores = cores_of_rank(&m->hw);
    price_runs(run_s, t, price);
    run_sections(out, &x);
    for (int32_t i = 0; i < t->n_times; i++)
        out->work_s[prices->keys[i].work] += t->times[i] * price[i];
    out->step_s += split_bubble(&t->strategy) * out->section_s[0];
    out->step_s += m->step_overhead_s;
    out->step_s *= simulate_jitter(m, &t->strategy);
    if (run_s != small)
        free(run_s);
}

void simulate(struct simulation *out, const struct schedule *s, const struct machine *m,
    struct op_span *spans)
{
    struct prices prices = {0};
    struct timeline *t = timeline_new(s, &prices, spans == NULL);
    double *price = base_alloc(((size_t)prices.n + 1) * sizeof *price);
    prices_fill(price, &prices, m);
    simulate_timeline(out, t, price, &prices, m, spans);
    free(price);
    timeline_free(t);
    prices_release(&prices);
}
