/* Cells times offers, ranked: the plans, the Pareto front, and why each has its place. */
#include <math.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/hardware.h"
#include "planner/launchable.h"
#include "planner/search_cells.h"

enum { MAX_PARETO = 200 };
#define NO_CANDIDATE SIZE_MAX

/* One offer with the best strategy of one of its cells. */
struct candidate {
    const struct cell *cell;
    size_t offer;
    struct bill bill;
    double merit;
    size_t next;       /* of the same group, NO_CANDIDATE at the end */
    bool is_allowed;   /* by budget and deadline */
    bool is_too_large; /* as a whole, although the quick estimate fits */
};

struct ranking {
    struct finder *f;
    struct candidate *all;
    size_t n, cap;
    size_t n_updated; /* candidates that front and merits know already */
    size_t *front;    /* candidates that none beats in both money and time, by rising cost */
    size_t n_front, front_cap;
    size_t *of_group; /* by group: its first candidate, when all are ranked */
    double *merit;    /* by offer: the best allowed candidate's, INFINITY for none */
    bool *can_run;    /* by offer: some candidate ends, and before the offer does */
    double *over;     /* by group: the least miss of its candidates that can run */
    size_t *best;     /* offers with the least merits, by merit; at most max_plans */
    size_t n_best;
    size_t wanted;    /* plans asked for */
    size_t max_plans; /* plans found: at least two, the first is explained against the second */
    int64_t checkpoint_bytes;
};

struct ranking *ranking_new(struct finder *f)
{
    struct ranking *r = base_calloc(1, sizeof *r);
    size_t offers = offers_count(f->in->offers);
    r->f = f;
    struct strategy any = strategy_default(STRATEGY_DDP, 1, 1);
    strategy_take_optimizer(&any, job_optimizer(f->in->job));
    r->checkpoint_bytes = (int64_t)estimate_checkpoint_bytes(&f->in->job->model, &any);
    r->wanted = f->in->max_plans ? f->in->max_plans : SEARCH_PLANS;
    r->max_plans = r->wanted > 2 ? r->wanted : 2;
    r->best = base_alloc((r->max_plans + 1) * sizeof *r->best);
    r->merit = base_calloc(offers + 1, sizeof *r->merit);
    r->can_run = base_calloc(offers + 1, sizeof *r->can_run);
    for (size_t i = 0; i < offers; i++)
        r->merit[i] = INFINITY;
    return r;
}

void ranking_free(struct ranking *r)
{
    if (!r)
        return;
    free(r->all);
    free(r->front);
    free(r->of_group);
    free(r->merit);
    free(r->can_run);
    free(r->over);
    free(r->best);
    free(r);
}

bool ranking_is_empty(const struct ranking *r)
{
    return r->n == 0;
}

/* --- comparing --- */

/* Is the offer gone before the run ends? */
static bool outlasts(const struct offer *o, const struct bill *b)
{
    return b->run_s[BILL_MID] > offer_seconds_left(o); /* false when it is not known */
}

/* How far a bill is beyond the deadline and the budget, as ratios; the larger one counts. */
struct miss {
    const struct candidate *candidate;
    double over;
    bool is_late;
};

static struct miss miss_of(const struct job *j, const struct bill *b)
{
    double late = j->deadline_s > 0 ? b->run_s[BILL_MID] / j->deadline_s : 0;
    bool counts = j->budget_micro_usd > 0 && b->is_priced;
    double usd = (double)b->total_micro_usd[BILL_MID];
    double dear = counts ? usd / (double)j->budget_micro_usd : 0;
    return (struct miss){NULL, fmax(late, dear), late >= dear && late > 0};
}

static bool within_limits(const struct job *j, const struct offer *o, const struct bill *b)
{
    if (bill_is_absurd(b) || b->never_ends || outlasts(o, b))
        return false;
    if (j->deadline_s > 0 && b->run_s[BILL_MID] > j->deadline_s)
        return false;
    if (j->budget_micro_usd <= 0)
        return true;
    return b->is_priced && b->total_micro_usd[BILL_MID] <= j->budget_micro_usd;
}

/* What a job's objective compares; unpriced offers come last unless only time counts. */
static double merit(const struct job *j, const struct bill *b)
{
    double usd = (double)b->total_micro_usd[BILL_MID], s = b->run_s[BILL_MID];
    if (j->objective == OBJECTIVE_TIME)
        return s;
    if (!b->is_priced)
        return INFINITY;
    return j->objective == OBJECTIVE_COST ? usd : usd * s;
}

static int compare_num(double a, double b)
{
    return (a > b) - (a < b);
}

static int compare_bills(const struct bill *a, const struct bill *b)
{
    int d = (a->is_priced ? 0 : 1) - (b->is_priced ? 0 : 1);
    if (!d)
        d = compare_num((double)a->total_micro_usd[BILL_MID], (double)b->total_micro_usd[BILL_MID]);
    return d ? d : compare_num(a->run_s[BILL_MID], b->run_s[BILL_MID]);
}

/* By the objective, then money, time, number of ranks, and place in the list: a total order. */
static int compare_candidates(const struct candidate *a, const struct candidate *b)
{
    int d = compare_num(a->merit, b->merit);
    if (!d)
        d = compare_bills(&a->bill, &b->bill);
    if (!d)
        d = compare_num((double)a->cell->nodes, (double)b->cell->nodes);
    if (!d)
        d = (a->offer > b->offer) - (a->offer < b->offer);
    return d;
}

/* The same order of plans. */
static int compare_plans(const struct job *j, const struct plan *a, const struct plan *b)
{
    int d = compare_num(merit(j, &a->bill), merit(j, &b->bill));
    if (!d)
        d = compare_bills(&a->bill, &b->bill);
    if (!d)
        d = compare_num((double)a->nodes, (double)b->nodes);
    if (!d)
        d = (a->offer > b->offer) - (a->offer < b->offer);
    return d;
}

static double usd_of(const struct candidate *x)
{
    return (double)x->bill.total_micro_usd[BILL_MID];
}

static double seconds_of(const struct candidate *x)
{
    return x->bill.run_s[BILL_MID];
}

/* --- adding --- */

void ranking_add(struct ranking *r, const struct cell *c)
{
    const struct job *j = r->f->in->job;
    const struct group *g = &r->f->groups[c->group];
    for (size_t k = 0; c->best && k < g->n_offers; k++) {
        const struct offer *o = offers_at(r->f->in->offers, g->offers[k]);
        if (hardware_max_nodes(o) < c->nodes)
            continue;
        BASE_GROW(r->all, r->cap, r->n + 1);
        struct candidate *x = &r->all[r->n++];
        *x = (struct candidate){.cell = c, .offer = g->offers[k]};
        bill_make(&x->bill, j, o, c->nodes, &c->best->estimate);
        x->merit = merit(j, &x->bill);
        x->is_allowed = within_limits(j, o, &x->bill);
    }
}

/* a is at least as good in money and time, and better in one of them or in the total order. */
static bool beats(const struct candidate *a, const struct candidate *b)
{
    if (usd_of(a) > usd_of(b) || seconds_of(a) > seconds_of(b))
        return false;
    bool is_better = usd_of(a) < usd_of(b) || seconds_of(a) < seconds_of(b);
    return is_better || compare_candidates(a, b) < 0;
}

static void add_to_front(struct ranking *r, size_t candidate)
{
    const struct candidate *x = &r->all[candidate];
    size_t kept = 0;
    for (size_t i = 0; i < r->n_front; i++)
        if (beats(&r->all[r->front[i]], x))
            return;
    for (size_t i = 0; i < r->n_front; i++)
        if (!beats(x, &r->all[r->front[i]]))
            r->front[kept++] = r->front[i];
    BASE_GROW(r->front, r->front_cap, kept + 1);
    size_t at = kept;
    for (; at > 0 && usd_of(&r->all[r->front[at - 1]]) > usd_of(x); at--)
        r->front[at] = r->front[at - 1];
    r->front[at] = candidate;
    r->n_front = kept + 1;
}

/* A candidate with more does not make the list of plans. */
static double threshold(const struct ranking *r)
{
    return r->n_best < r->max_plans ? INFINITY : r->merit[r->best[r->n_best - 1]];
}

/* The merit of an offer fell: move or insert it among the best. */
static void update_best(struct ranking *r, size_t offer)
{
    size_t at = 0;
    while (at < r->n_best && r->best[at] != offer)
        at++;
    if (at == r->n_best && !(r->merit[offer] < threshold(r)))
        return;
    if (at == r->max_plans)
        at--; /* the last one leaves */
    r->n_best = at < r->n_best ? r->n_best : at + 1;
    r->best[at] = offer;
    for (; at > 0 && r->merit[r->best[at - 1]] > r->merit[r->best[at]]; at--) {
        size_t other = r->best[at - 1];
        r->best[at - 1] = r->best[at];
        r->best[at] = other;
    }
}

/* What misses limits least is known by groups, whose number is known when there are candidates. */
static void update_miss(struct ranking *r, const struct candidate *x)
{
    const struct finder *f = r->f;
    if (!r->over) {
        r->over = base_alloc((f->n_groups + 1) * sizeof *r->over);
        for (size_t i = 0; i < f->n_groups; i++)
            r->over[i] = INFINITY;
    }
    if (x->bill.never_ends || outlasts(offers_at(f->in->offers, x->offer), &x->bill))
        return;
    r->can_run[x->offer] = true;
    double *over = &r->over[x->cell->group];
    *over = fmin(*over, miss_of(f->in->job, &x->bill).over);
}

void ranking_update(struct ranking *r)
{
    for (; r->n_updated < r->n; r->n_updated++) {
        const struct candidate *x = &r->all[r->n_updated];
        update_miss(r, x);
        if (!x->is_allowed)
            continue;
        if (x->merit < r->merit[x->offer]) {
            r->merit[x->offer] = x->merit;
            update_best(r, x->offer);
        }
        if (x->bill.is_priced)
            add_to_front(r, r->n_updated);
    }
}

/* --- what need not be tried --- */

static bool is_behind_front(const struct ranking *r, const struct bill *least)
{
    double usd = (double)least->total_micro_usd[BILL_MID], s = least->run_s[BILL_MID];
    for (size_t i = 0; i < r->n_front; i++) {
        const struct candidate *x = &r->all[r->front[i]];
        if (usd_of(x) <= usd && seconds_of(x) <= s && (usd_of(x) < usd || seconds_of(x) < s))
            return true;
    }
    return false;
}

/* The least that the offer can cost and last on the cell. */
static struct bill least_bill(
    const struct ranking *r, const struct offer *o, const struct cell *c, const struct least *least)
{
    const struct job *job = r->f->in->job;
    struct estimate x = {.step_s = least->step_s,
        .step_low_s = least->step_s,
        .step_high_s = least->step_s,
        .checkpoint_s = least->save.write,
        .checkpoint_stall_s = least->save.stall,
        .checkpoint_bytes = r->checkpoint_bytes};
    struct bill b;
    bill_make_least(&b, job, o, c->nodes, &x);
    return b;
}

/* With limits, what misses them least must be known for groups that have nothing better. */
static bool needs_a_miss(const struct ranking *r, const struct group *g)
{
    const struct job *j = r->f->in->job;
    bool has_allowed = false;
    for (size_t k = 0; k < g->n_offers; k++)
        has_allowed = has_allowed || isfinite(r->merit[g->offers[k]]);
    return (j->budget_micro_usd > 0 || j->deadline_s > 0) && !has_allowed;
}

/* The cell may miss them less than what is known of the group, or tell that an offer can run. */
static bool can_miss_least(const struct ranking *r, const struct cell *c, const struct least *least)
{
    const struct group *g = &r->f->groups[c->group];
    for (size_t k = 0; k < g->n_offers; k++) {
        const struct offer *o = offers_at(r->f->in->offers, g->offers[k]);
        if (hardware_max_nodes(o) < c->nodes)
            continue;
        if (!r->over || !r->can_run[g->offers[k]])
            return true;
        struct bill bill = least_bill(r, o, c, least);
        if (miss_of(r->f->in->job, &bill).over <= r->over[c->group])
            return true;
    }
    return false;
}

bool ranking_can_matter(const struct ranking *r, const struct cell *c, const struct least *least)
{
    const struct group *g = &r->f->groups[c->group];
    if (needs_a_miss(r, g) && can_miss_least(r, c, least))
        return true;
    for (size_t k = 0; k < g->n_offers; k++) {
        const struct offer *o = offers_at(r->f->in->offers, g->offers[k]);
        if (hardware_max_nodes(o) < c->nodes)
            continue;
        struct bill bill = least_bill(r, o, c, least);
        double m = merit(r->f->in->job, &bill);
        bool can_be_plan = !(m > r->merit[g->offers[k]]) && !(m > threshold(r));
        bool can_be_front = bill.is_priced && !is_behind_front(r, &bill);
        if (can_be_plan || can_be_front)
            return true;
    }
    return false;
}

/* --- reasons --- */

static const char *const best_words[] = {"cheapest", "fastest", "best product of cost and time"};
static const char *const worse_words[][2] = {
    {"dear", "dearer"}, {"slow", "slower"}, {"bad", "worse in cost times time"}};

/* The first plan against the runner-up. */
static void explain_first(char *why, const struct job *j, double mine, double next)
{
    const char *word = best_words[j->objective];
    double margin = 100 * (next / mine - 1);
    if (isnan(next))
        snprintf(why, SEARCH_TEXT, "the only plan there is");
    else if (isinf(next))
        snprintf(why, SEARCH_TEXT, "%s; the runner-up has no price", word);
    else if (!(mine > 0))
        snprintf(
            why, SEARCH_TEXT, next > 0 ? "it costs nothing" : "it and the runner-up cost nothing");
    else if (!(margin >= 0.05))
        snprintf(why, SEARCH_TEXT, "%s; the runner-up comes to the same", word);
    else if (margin >= 100)
        snprintf(
            why, SEARCH_TEXT, "%s; the runner-up comes to %.1f times as much", word, next / mine);
    else
        snprintf(why, SEARCH_TEXT, "%s, by %.1f %% before the runner-up", word, margin);
}

static void explain_later(char *why, const struct job *j, double mine, double first)
{
    double margin = 100 * (mine / first - 1);
    if (!(first > 0))
        snprintf(why, SEARCH_TEXT, "the first costs nothing");
    else if (!(margin >= 0.05))
        snprintf(why, SEARCH_TEXT, "comes to the same as the first");
    else if (margin >= 100)
        snprintf(why, SEARCH_TEXT, "%.1f times as %s as the first", mine / first,
            worse_words[j->objective][0]);
    else
        snprintf(
            why, SEARCH_TEXT, "%.1f %% %s than the first", margin, worse_words[j->objective][1]);
}

static void warn_of_limits(char *why, const struct job *j, const struct bill *b)
{
    size_t n = strlen(why);
    if (j->budget_micro_usd > 0 && b->total_micro_usd[BILL_HIGH] > j->budget_micro_usd)
        snprintf(why + n, SEARCH_TEXT - n, "; the high estimate is over the budget");
    else if (j->deadline_s > 0 && b->run_s[BILL_HIGH] > j->deadline_s)
        snprintf(why + n, SEARCH_TEXT - n, "; the high estimate misses the deadline");
}

/* The rate is that of one node. */
static void warn_of_interruptions(struct plan *p, const struct job *j, const struct offer *o)
{
    size_t n = strlen(p->why);
    double expected = o->interruptions_per_hour * (double)p->nodes * p->bill.run_s[BILL_MID] / 3600;
    if (p->ignores_interruptions)
        snprintf(p->why + n, sizeof p->why - n, "; interruptions are not counted");
    else if (expected > 0)
        snprintf(p->why + n, sizeof p->why - n, "; about %.2g interruptions are to be expected, %s",
            expected, p->bill.saves_in_notice ? "with time to save" : "without time to save");
    n = strlen(p->why);
    bool may_go = p->ignores_interruptions || expected > 0;
    if (may_go && p->nodes == 1 && !str_starts(j->store, "shared:"))
        snprintf(
            p->why + n, sizeof p->why - n, "; needs a shared store, or all goes with the node");
}

static void warn_of_end(struct plan *p, const struct offer *o)
{
    size_t n = strlen(p->why);
    if (o->available_until[0])
        snprintf(p->why + n, sizeof p->why - n, "; the offer ends at %s", o->available_until);
}

static void explain_rank(const struct finder *f, size_t i)
{
    struct search *s = f->out;
    struct plan *p = &s->plans[i];
    const struct job *j = f->in->job;
    double mine = merit(j, &p->bill);
    if (isinf(mine))
        snprintf(p->why, sizeof p->why, "no price is known, so it cannot be compared");
    else if (i == 0)
        explain_first(p->why, j, mine, s->n_plans > 1 ? merit(j, &s->plans[1].bill) : NAN);
    else
        explain_later(p->why, j, mine, merit(j, &s->plans[0].bill));
    warn_of_limits(p->why, j, &p->bill);
    warn_of_interruptions(p, j, offers_at(f->in->offers, p->offer));
    warn_of_end(p, offers_at(f->in->offers, p->offer));
}

/* --- what bounds the speed --- */

void search_describe_limits(
    const struct estimate *x, const struct strategy *s, char buf[SEARCH_TEXT])
{
    const struct simulation *sim = &x->simulation;
    double compute = sim->busy_s[LANE_COMPUTE];
    double wire = sim->exposed_s[LANE_GATHER] + sim->exposed_s[LANE_REDUCE];
    double host =
        sim->exposed_s[LANE_COPY_DOWN] + sim->exposed_s[LANE_COPY_UP] + sim->exposed_s[LANE_HOST];
    double disk = sim->exposed_s[LANE_DISK];
    const struct {
        const char *what;
        double s;
    } shares[] = {
        {"computing", compute},
        {s->ranks > s->ranks_per_node ? "waiting for the network" : "waiting for other ranks",
            wire},
        {s->offload == OFFLOAD_OPTIMIZER ? "waiting for the optimizer on the host"
                                         : "waiting for what is kept on the host",
            host},
        {"waiting for states on disk", disk},
        {"fixed overhead", sim->step_s - compute - wire - host - disk},
    };
    size_t most = 0;
    for (size_t i = 1; i < BASE_COUNT(shares); i++)
        if (shares[i].s > shares[most].s)
            most = i;
    snprintf(buf, SEARCH_TEXT, "%s takes %.0f %% of a step; memory is %.0f %% full",
        shares[most].what, 100 * shares[most].s / sim->step_s,
        100.0 * (double)x->peak_bytes / (double)x->capacity_bytes);
}

/* --- results --- */

static bool has_plan_of(const struct search *s, size_t offer)
{
    for (size_t i = 0; i < s->n_plans; i++)
        if (s->plans[i].offer == offer)
            return true;
    return false;
}

/* The front was made from quick estimates; this point of it does not hold. */
static void drop_from_pareto(struct search *s, const struct candidate *x)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->n_pareto; i++)
        if (s->pareto[i].offer != x->offer || s->pareto[i].nodes != x->cell->nodes)
            s->pareto[kept++] = s->pareto[i];
    s->n_pareto = kept;
}

static void reject_whole(struct finder *f, const struct candidate *x, const struct plan *p)
{
    char what[64], why[SEARCH_TEXT], miss[UNITS_TEXT];
    enum memory where;
    int64_t short_by = estimate_short_by(&p->estimate, &where);
    snprintf(why, sizeof why,
        "does not fit: laid out as a whole, %s needs %s more %s than there is",
        strategy_kind_name(p->strategy.kind), units_bytes(miss, (double)short_by),
        shortage_word(where));
    struct hardware hw = cell_hardware(f, x->cell);
    struct rejection *r = reject(f, hardware_text(&hw, what), why);
    r->shortage = shortage_of(where);
    r->short_by = (double)short_by;
}

/* Candidates rest on a few blocks of the schedule, plans on all of it, which may take a little more
 * memory or time: at the edge it no longer holds, and there is no plan. */
static enum rc add_plan(struct finder *f, struct candidate *x, struct err *e)
{
    const struct cell *c = x->cell;
    const struct model *m = &f->in->job->model;
    struct plan *p = &f->out->plans[f->out->n_plans];
    memset(p, 0, sizeof *p);
    p->hw = cell_hardware(f, c);
    str_copy(p->stack, sizeof p->stack, f->tracks[c->track].machine.stack);
    p->offer = x->offer;
    p->nodes = c->nodes;
    enum rc rc = cell_whole_estimate(&p->estimate, f, c, e);
    if (rc)
        return rc;
    p->strategy = c->best->strategy; /* which may have been settled by it */
    const struct offer *o = offers_at(f->in->offers, x->offer);
    bill_make(&p->bill, f->in->job, o, c->nodes, &p->estimate);
    p->ignores_interruptions = bill_ignores_interruptions(o);
    x->bill = p->bill;
    x->is_too_large = !estimate_fits(&p->estimate);
    x->is_allowed = !x->is_too_large && within_limits(f->in->job, o, &x->bill);
    if (x->is_too_large)
        reject_whole(f, x, p);
    if (!x->is_allowed) {
        drop_from_pareto(f->out, x);
        return RC_OK;
    }
    p->is_launchable = is_launchable(&p->strategy, m, p->hw.is_gpu, p->not_launchable);
    search_describe_limits(&p->estimate, &p->strategy, p->limits);
    f->out->n_plans++;
    return RC_OK;
}

static int by_merit(const void *a, const void *b)
{
    return compare_candidates(a, b);
}

/* The best candidate of each offer, best offers first. Sorts: indexes of the front are void then.
 */
static enum rc add_plans(struct ranking *r, struct err *e)
{
    struct search *s = r->f->out;
    s->plans = base_calloc(r->max_plans, sizeof *s->plans);
    if (r->n > 0)
        qsort(r->all, r->n, sizeof *r->all, by_merit);
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < r->n && s->n_plans < r->max_plans; i++) {
        if (finder_is_cancelled(r->f))
            rc = err_set(e, RC_CANCELLED, "planning was cancelled");
        else if (r->all[i].is_allowed && !has_plan_of(s, r->all[i].offer))
            rc = add_plan(r->f, &r->all[i], e);
    }
    return rc;
}

/* Candidates are in the order of quick estimates, plans in that of the figures they show. */
static void sort_plans(const struct finder *f)
{
    struct search *s = f->out;
    for (size_t i = 1; i < s->n_plans; i++) {
        struct plan p = s->plans[i];
        size_t at = i;
        for (; at > 0 && compare_plans(f->in->job, &p, &s->plans[at - 1]) < 0; at--)
            s->plans[at] = s->plans[at - 1];
        s->plans[at] = p;
    }
}

static void add_pareto(struct ranking *r)
{
    struct search *s = r->f->out;
    s->pareto = base_calloc(r->n_front + 1, sizeof *s->pareto);
    for (size_t i = 0; i < r->n_front && i < MAX_PARETO; i++) {
        const struct candidate *x = &r->all[r->front[i]];
        s->pareto[s->n_pareto++] = (struct pareto_point){x->offer, x->cell->nodes,
            x->cell->best->strategy, seconds_of(x), x->bill.total_micro_usd[BILL_MID], -1};
    }
}

static void link_pareto(struct search *s)
{
    for (size_t i = 0; i < s->n_pareto; i++)
        for (size_t k = 0; k < s->n_plans; k++)
            if (s->plans[k].offer == s->pareto[i].offer && s->plans[k].nodes == s->pareto[i].nodes)
                s->pareto[i].plan = (int)k;
}

/* Chains the candidates of each group in the order of the list. */
static void chain_groups(struct ranking *r)
{
    size_t n = r->f->n_groups;
    r->of_group = base_alloc((n + 1) * sizeof *r->of_group);
    for (size_t i = 0; i < n; i++)
        r->of_group[i] = NO_CANDIDATE;
    for (size_t i = r->n; i-- > 0;) {
        size_t *first = &r->of_group[r->all[i].cell->group];
        r->all[i].next = *first;
        *first = i;
    }
}

enum rc ranking_finish(struct ranking *r, struct err *e)
{
    add_pareto(r);
    enum rc rc = add_plans(r, e);
    if (rc)
        return rc;
    sort_plans(r->f);
    for (size_t i = 0; i < r->f->out->n_plans; i++)
        explain_rank(r->f, i);
    if (r->f->out->n_plans > r->wanted)
        r->f->out->n_plans = r->wanted;
    link_pareto(r->f->out);
    chain_groups(r);
    return RC_OK;
}

bool ranking_fastest(
    const struct ranking *r, const struct offer *o, struct bill *bill, int64_t *ranks)
{
    const struct candidate *best = NULL;
    for (size_t i = 0; i < r->n; i++) {
        const struct candidate *x = &r->all[i];
        if (offers_at(r->f->in->offers, x->offer) != o || x->is_too_large || x->bill.never_ends)
            continue;
        if (!best || seconds_of(x) < seconds_of(best))
            best = x;
    }
    if (!best)
        return false;
    if (bill)
        *bill = best->bill;
    if (ranks)
        *ranks = best->cell->nodes * r->f->groups[best->cell->group].hw.ranks_per_node;
    return true;
}

/* The candidate of a group that misses the limits least; none when one keeps them. */
static struct miss least_miss(const struct ranking *r, size_t group)
{
    struct miss best = {NULL, INFINITY, false};
    for (size_t i = r->of_group[group]; i != NO_CANDIDATE; i = r->all[i].next) {
        if (r->all[i].is_allowed)
            return (struct miss){NULL, 0, false};
        const struct offer *o = offers_at(r->f->in->offers, r->all[i].offer);
        if (r->all[i].is_too_large || r->all[i].bill.never_ends || outlasts(o, &r->all[i].bill))
            continue;
        struct miss m = miss_of(r->f->in->job, &r->all[i].bill);
        if (m.over < best.over)
            best = (struct miss){&r->all[i], m.over, m.is_late};
    }
    return best;
}

/* What would do is rounded up, so that it does. */
static void describe_miss(
    struct rejection *r, const struct job *j, const struct bill *b, bool is_late)
{
    char whole[UNITS_TEXT];
    double over = is_late ? b->run_s[BILL_MID] - j->deadline_s
                          : (double)(b->total_micro_usd[BILL_MID] - j->budget_micro_usd);
    r->shortage = is_late ? SHORT_SECONDS : SHORT_USD;
    r->short_by = is_late ? over : over / (double)USD_MICRO;
    snprintf(r->nearest_change, sizeof r->nearest_change, "a %s of %s",
        is_late ? "deadline" : "budget",
        is_late ? units_seconds_up(whole, b->run_s[BILL_MID])
                : units_usd(whole, b->total_micro_usd[BILL_MID]));
}

/* The bill of all of the schedule, as a plan would have it, not of a few blocks. */
static struct bill whole_bill(struct finder *f, const struct candidate *x)
{
    struct bill b = x->bill;
    struct estimate whole;
    if (!cell_whole_estimate(&whole, f, x->cell, NULL))
        bill_make(&b, f->in->job, offers_at(f->in->offers, x->offer), x->cell->nodes, &whole);
    return b;
}

void reject_for_limits(struct finder *f, size_t group)
{
    const struct job *j = f->in->job;
    struct miss m = least_miss(f->ranking, group);
    if (!m.candidate)
        return;
    struct hardware hw = f->groups[group].hw;
    hw.nodes = m.candidate->cell->nodes;
    struct bill b = whole_bill(f, m.candidate);
    char what[64], miss[UNITS_TEXT], why[SEARCH_TEXT];
    bool is_absurd = bill_is_absurd(&b);
    if (is_absurd)
        snprintf(why, sizeof why,
            "too large to be planned: the run would take more than ten thousand years or cost more "
            "than a trillion dollars");
    else if (m.is_late)
        snprintf(why, sizeof why, "misses the deadline by %s",
            units_seconds(miss, b.run_s[BILL_MID] - j->deadline_s));
    else if (b.is_priced)
        snprintf(why, sizeof why, "over the budget by %s",
            units_usd(miss, b.total_micro_usd[BILL_MID] - j->budget_micro_usd));
    else
        snprintf(why, sizeof why, "has no price, so no budget can be promised");
    struct rejection *r = reject(f, hardware_text(&hw, what), why);
    r->offers += f->groups[group].n_offers - 1;
    if (!is_absurd && (m.is_late || b.is_priced))
        describe_miss(r, j, &b, m.is_late);
}

/* Would it end if it saved as often as is best? */
static bool ends_at_best(struct finder *f, const struct candidate *x, const struct bill *b)
{
    struct job j = *f->in->job; /* borrows what the job owns */
    struct bill best = *b;
    struct estimate estimate = cell_estimate(f, x->cell);
    j.checkpoint_every_s = floor(b->optimal_interval_s);
    if (f->in->job->checkpoint_every_s > 0)
        bill_make(&best, &j, offers_at(f->in->offers, x->offer), x->cell->nodes, &estimate);
    return !best.never_ends;
}

static void reject_endless(struct finder *f, const struct candidate *x)
{
    const struct offer *o = offers_at(f->in->offers, x->offer);
    const struct bill *b = &x->bill;
    char what[SEARCH_TEXT], why[SEARCH_TEXT], every[UNITS_TEXT], save[UNITS_TEXT], back[UNITS_TEXT];
    snprintf(what, sizeof what, "%s %s", o->provider, o->id);
    snprintf(why, sizeof why,
        "would never finish: %lld node%s stop%s every %s, too often for a checkpoint every %s and "
        "%s to restart",
        (long long)x->cell->nodes, x->cell->nodes == 1 ? "" : "s", x->cell->nodes == 1 ? "s" : "",
        units_seconds(every, b->between_stops_s), units_seconds(save, b->interval_s),
        units_seconds(back, b->restart_s));
    struct rejection *r = reject(f, what, why);
    if (ends_at_best(f, x, b))
        snprintf(r->nearest_change, sizeof r->nearest_change, "a checkpoint every %s",
            units_seconds(save, floor(b->optimal_interval_s)));
}

static void reject_gone(struct finder *f, const struct candidate *x)
{
    const struct offer *o = offers_at(f->in->offers, x->offer);
    double left_s = offer_seconds_left(o);
    char what[SEARCH_TEXT], why[SEARCH_TEXT], run[UNITS_TEXT], left[UNITS_TEXT];
    snprintf(what, sizeof what, "%s %s", o->provider, o->id);
    snprintf(why, sizeof why,
        "would be gone before the end: the run takes %s, the offer is there "
        "for %s, until %s",
        units_seconds(run, seconds_of(x)), units_seconds(left, left_s), o->available_until);
    struct rejection *r = reject(f, what, why);
    r->shortage = SHORT_SECONDS;
    r->short_by = seconds_of(x) - left_s;
}

/* What all candidates of an offer share: that none ever ends, or that it is gone before. */
static void reject_offer_for(struct finder *f, size_t group, size_t offer)
{
    const struct ranking *r = f->ranking;
    const struct offer *o = offers_at(f->in->offers, offer);
    const struct candidate *endless = NULL, *gone = NULL;
    bool has_other = false;
    for (size_t i = r->of_group[group]; i != NO_CANDIDATE; i = r->all[i].next) {
        const struct candidate *x = &r->all[i];
        if (x->offer != offer)
            continue;
        if (x->bill.never_ends)
            endless = !endless || x->cell->nodes < endless->cell->nodes ? x : endless;
        else if (outlasts(o, &x->bill))
            gone = !gone || seconds_of(x) < seconds_of(gone) ? x : gone;
        else
            has_other = true;
    }
    if (gone && !has_other)
        reject_gone(f, gone);
    else if (endless && !has_other)
        reject_endless(f, endless);
}

void reject_for_stops(struct finder *f, size_t group)
{
    const struct group *g = &f->groups[group];
    for (size_t k = 0; k < g->n_offers; k++)
        reject_offer_for(f, group, g->offers[k]);
}
