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
    bool is_collective;
    int wait_lane; /* the next one waits for so many segments of that lane, or for something else */
    int32_t wait_for;
    double left_s; /* of the running one, as if alone */
    double slow;   /* it takes so many times as long beside the others */
    double wall_s; /* until it ends, if nothing else changes */
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
    unsigned running; /* lanes */
    int collectives;  /* of them */
    double now_s;
    double set_s[1 << LANE_COUNT];                    /* so long such a set of lanes was running */
    double busy_s[LANE_COUNT], exposed_s[LANE_COUNT]; /* of the section, by name */
    struct op_span *spans;
};

/* Lanes of a set, one after the other. */
#define EACH_LANE(k, set)                                                                          \
    for (unsigned left_ = (set), k; left_ && (k = (unsigned)__builtin_ctz(left_), true);           \
         left_ &= left_ - 1)

static bool is_ready(const struct sim *x, struct lane_state *st)
{
    if (x->lane[st->wait_lane].done < st->wait_for)
        return false;
    for (int k = 0; k < x->n_lanes; k++) {
        int32_t wanted = st->next->waits[x->name[k]];
        if (wanted <= x->lane[k].done)
            continue;
        st->wait_lane = k;
        st->wait_for = wanted;
        return false;
    }
    return true;
}

static void start_ready(struct sim *x)
{
    for (int k = 0; k < x->n_lanes; k++) {
        struct lane_state *st = &x->lane[k];
        if (x->running & 1u << k || st->next == st->end || !is_ready(x, st))
            continue;
        x->running |= 1u << k;
        st->is_collective = x->t->runs[st->next->run].is_collective;
        x->collectives += st->is_collective;
        st->left_s = x->run_s[st->next->run];
        if (x->spans)
            x->spans[st->next->op].start_s = x->now_s;
        st->next++;
    }
}

/* CPU: products and updates want all cores of a rank, waiting for the disk none, others one. */
static double cores_wanted(const struct sim *x, enum lane name)
{
    if (name == LANE_DISK)
        return 0;
    return name == LANE_COMPUTE || name == LANE_HOST ? x->cores : 1;
}

/* How much slower every operation progresses for want of cores. */
static double share_of_cores(const struct sim *x)
{
    double demand = 0;
    if (!x->m->is_shared)
        return 1;
    EACH_LANE(k, x->running)
    demand += cores_wanted(x, x->name[k]);
    return demand > x->cores ? demand / x->cores : 1;
}

/* How much slower each running operation progresses beside the others than alone, and when the
 * first of them ends. */
static double set_rates(struct sim *x)
{
    double share = share_of_cores(x), first_s = INFINITY;
    EACH_LANE(k, x->running)
    {
        struct lane_state *st = &x->lane[k];
        st->slow = share;
        if (st->is_collective)
            st->slow *= x->collectives;
        else if (x->name[k] == LANE_COMPUTE && x->collectives > 0)
            st->slow *= x->m->overlap_slowdown;
        st->wall_s = st->left_s * st->slow;
        first_s = st->wall_s < first_s ? st->wall_s : first_s;
    }
    return first_s;
}

/* Let time pass until the first running operation ends. */
static void advance(struct sim *x, double dt)
{
    x->set_s[x->running] += dt;
    x->now_s += dt;
    EACH_LANE(k, x->running)
    {
        struct lane_state *st = &x->lane[k];
        if (st->wall_s > dt) {
            st->left_s -= st->slow > 1 || st->slow < 1 ? dt / st->slow : dt;
            continue;
        }
        if (x->spans)
            x->spans[st->next[-1].op].end_s = x->now_s;
        st->done++;
        x->running &= ~(1u << k);
        x->collectives -= st->is_collective;
    }
}

/* A lane is exposed while computing does not run; lanes beside each other share that. */
static void account(struct sim *x)
{
    memset(x->busy_s, 0, sizeof x->busy_s);
    memset(x->exposed_s, 0, sizeof x->exposed_s);
    for (unsigned set = 1; set < 1u << x->n_lanes; set++) {
        bool has_compute = x->name[0] == LANE_COMPUTE && set & 1;
        EACH_LANE(k, set)
        {
            x->busy_s[x->name[k]] += x->set_s[set];
            if (!has_compute)
                x->exposed_s[x->name[k]] += x->set_s[set] / __builtin_popcount(set);
        }
    }
}

static double run_section(struct sim *x, const struct timeline_section *sec)
{
    x->now_s = 0;
    x->n_lanes = 0;
    x->running = 0;
    x->collectives = 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        const struct segment *first = &x->t->segments[sec->lane[l].first];
        if (sec->lane[l].n == 0)
            continue;
        x->name[x->n_lanes] = (enum lane)l;
        x->lane[x->n_lanes++] = (struct lane_state){.next = first, .end = first + sec->lane[l].n};
    }
    memset(x->set_s, 0, sizeof *x->set_s << x->n_lanes);
    for (start_ready(x); x->running; start_ready(x))
        advance(x, set_rates(x));
    account(x);
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
