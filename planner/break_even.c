#include "planner/break_even.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/explain.h"
#include "planner/limits.h"

enum { MOST_TRIES = 32 }; /* a handful in practice: each changes the number of nodes */

/* A search among those beside the list, under the limits of the job other than its budget: what
 * costs too much now may be in it at another price. */
struct beside {
    const struct search_input *in;
    const struct search *s;
    const struct plan *first;
    struct job job; /* borrows what the job owns */
    struct break_even *all;
    size_t n, cap;
};

static const struct offer *offer_of(const struct beside *b, size_t i)
{
    return offers_at(b->in->offers, i);
}

static bool same_kind(const struct offer *a, const struct offer *b)
{
    return a->device == b->device && a->market == b->market &&
           (a->device == DEVICE_CPU || strcmp(a->gpu, b->gpu) == 0);
}

static double merit_of(const struct job *j, const struct bill *b)
{
    double usd = (double)b->total_micro_usd[BILL_MID];
    return j->objective == OBJECTIVE_BALANCED ? usd * b->run_s[BILL_MID] : usd;
}

/* Price of a node-hour at which the plan would be as good as the first: what it costs is a line in
 * the price. */
static double tie_of(const struct beside *b, const struct plan *p, int64_t price_micro)
{
    const struct bill *bill = &p->bill;
    double node_hours = bill->billed_s[BILL_MID] / 3600 * (double)p->nodes;
    double fees = (double)bill->total_micro_usd[BILL_MID] - (double)price_micro * node_hours;
    double usd = merit_of(&b->job, &b->first->bill);
    if (b->job.objective == OBJECTIVE_BALANCED)
        usd /= bill->run_s[BILL_MID];
    return (usd - fees) / node_hours;
}

/* Plans of the offers that the list holds; *s is NULL when it fails. */
static enum rc search_list(
    struct search **s, const struct beside *b, const struct offers *list, struct err *e)
{
    struct search_input in = {.job = &b->job,
        .offers = list,
        .rates = b->in->rates,
        .max_plans = 1,
        .is_cancelled = b->in->is_cancelled};
    *s = NULL;
    return search_run(s, &in, e);
}

/* The best plan of the offer at a price, or why there is none. */
static enum rc plan_at(struct plan *out, bool *has_plan, char why[SEARCH_TEXT],
    const struct beside *b, struct offer o, struct err *e)
{
    struct offers *list = offers_new();
    struct search *s = NULL;
    enum rc rc = offers_add(list, &o, e);
    if (!rc)
        rc = search_list(&s, b, list, e);
    *has_plan = !rc && s->n_plans > 0;
    if (*has_plan)
        *out = s->plans[0];
    else if (!rc && s->n_rejected > 0)
        str_copy(why, SEARCH_TEXT, s->rejected[0].why);
    search_free(s);
    offers_free(list);
    return rc;
}

/* The cost of the best plan is the least of lines in the price, so the price at which it ties is
 * approached from below and never passed (Newton's method on a concave function). */
static enum rc find_tie(struct break_even *t, const struct beside *b, struct err *e)
{
    struct offer o = *offer_of(b, t->offer);
    int64_t price = t->price_usd_micro >= 0 ? t->price_usd_micro : USD_MICRO, best = -1;
    for (int i = 0; i < MOST_TRIES; i++) {
        struct plan p;
        bool has_plan;
        o.price_usd_micro_per_hour = price;
        enum rc rc = plan_at(&p, &has_plan, t->why_never, b, o, e);
        if (rc || !has_plan)
            return rc;
        double tie = floor(tie_of(b, &p, price));
        if (tie < 0 && price == 0) {
            str_copy(t->why_never, sizeof t->why_never, "would cost more even for nothing an hour");
            return RC_OK;
        }
        price = (int64_t)fmin(fmax(tie, 0), (double)OFFER_MAX_USD_MICRO);
        if (price <= best)
            break;
        best = price;
        t->nodes = p.nodes;
    }
    t->tie_usd_micro = best;
    return RC_OK;
}

static struct break_even *add(struct beside *b, size_t offer, int rank)
{
    const struct offer *o = offer_of(b, offer);
    BASE_GROW(b->all, b->cap, b->n + 1);
    struct break_even *t = &b->all[b->n++];
    *t = (struct break_even){.offer = offer,
        .rank = rank,
        .price_usd_micro = o->price_usd_micro_per_hour,
        .tie_usd_micro = -1,
        .gpus_per_node = (double)o->gpus_per_node,
        .decides = b->job.objective != OBJECTIVE_TIME};
    return t;
}

/* The kind of the plan set against, or one that is there already. */
static bool is_known(const struct beside *b, const struct offer *o)
{
    if (same_kind(o, offer_of(b, b->first->offer)))
        return true;
    for (size_t i = 0; i < b->n; i++)
        if (same_kind(o, offer_of(b, b->all[i].offer)))
            return true;
    return false;
}

static enum rc add_listed(struct beside *b, struct err *e)
{
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < b->s->n_plans; i++)
        if (!is_known(b, offer_of(b, b->s->plans[i].offer)))
            rc = find_tie(add(b, b->s->plans[i].offer, (int)i + 1), b, e);
    return rc;
}

/* The best plan of all offers that wanted lets through; kind: as wanted says. */
static enum rc add_best(struct beside *b, const struct offer *kind, bool is_of_kind, struct err *e)
{
    struct offers *list = offers_new();
    struct search *s = NULL;
    enum rc rc = RC_OK;
    size_t n = offers_count(b->in->offers), *from = base_alloc((n + 1) * sizeof *from), first = n;
    for (size_t i = 0; !rc && i < n; i++) {
        const struct offer *o = offer_of(b, i);
        if (!limits_allow(&b->job, o) || same_kind(o, kind) != is_of_kind)
            continue;
        first = first < n ? first : i;
        from[offers_count(list)] = i;
        rc = offers_add(list, o, e);
    }
    if (!rc && first < n)
        rc = search_list(&s, b, list, e);
    if (s && s->n_plans > 0)
        rc = find_tie(add(b, from[s->plans[0].offer], 0), b, e);
    else if (s && is_of_kind)
        str_copy(add(b, first, 0)->why_never, SEARCH_TEXT,
            s->n_rejected > 0 ? s->rejected[0].why : "has no plan");
    search_free(s);
    offers_free(list);
    free(from);
    return rc;
}

/* Kinds that no plan is listed of although the list has room. */
static enum rc add_without_plan(struct beside *b, struct err *e)
{
    enum rc rc = RC_OK;
    size_t most = b->n + BREAK_EVEN_MOST_WITHOUT;
    for (size_t i = 0; !rc && b->n < most && i < offers_count(b->in->offers); i++) {
        const struct offer *o = offer_of(b, i);
        if (limits_allow(&b->job, o) && !is_known(b, o))
            rc = add_best(b, o, true, e);
    }
    return rc;
}

enum rc break_even_find(struct break_even **out, size_t *n, const struct search_input *in,
    const struct search *s, size_t against, struct err *e)
{
    struct beside b = {.in = in, .s = s, .first = &s->plans[against], .job = *in->job};
    size_t listed = in->max_plans ? in->max_plans : SEARCH_PLANS;
    b.job.budget_micro_usd = 0;
    *out = NULL;
    *n = 0;
    if (!b.first->bill.is_priced)
        return RC_OK;
    enum rc rc = add_listed(&b, e);
    if (!rc && s->n_plans < listed)
        rc = add_without_plan(&b, e);
    else if (!rc && b.n == 0)
        rc = add_best(&b, offer_of(&b, b.first->offer), false, e);
    if (rc) {
        free(b.all);
        return rc;
    }
    *out = b.all;
    *n = b.n;
    return RC_OK;
}

/* --- in words --- */

static double usd(int64_t micro)
{
    return micro >= 0 ? (double)micro / (double)USD_MICRO : NAN;
}

static struct json *tie_json(const struct break_even *t, const struct offer *o)
{
    struct json *v = json_obj();
    json_add_str(v, "provider", o->provider);
    json_add_str(v, "id", o->id);
    json_add_str(v, "gpu", o->device == DEVICE_CPU ? "cpu" : o->gpu);
    json_add_str(v, "market", offer_market_name(o->market));
    if (t->rank > 0)
        json_add_int(v, "rank", t->rank);
    else
        json_add_null(v, "rank");
    if (t->nodes > 0)
        json_add_int(v, "nodes", t->nodes);
    else
        json_add_null(v, "nodes");
    json_add_num(v, "price_usd_per_node_hour", usd(t->price_usd_micro));
    json_add_num(v, "price_usd_per_gpu_hour", usd(t->price_usd_micro) / t->gpus_per_node);
    json_add_num(v, "break_even_usd_per_node_hour", usd(t->tie_usd_micro));
    json_add_num(v, "break_even_usd_per_gpu_hour", usd(t->tie_usd_micro) / t->gpus_per_node);
    json_add_bool(v, "wins_below", t->decides && t->tie_usd_micro >= 0);
    json_add_str(v, "why_never", t->tie_usd_micro < 0 ? t->why_never : NULL);
    return v;
}

struct json *break_even_json(const struct break_even *all, size_t n, const struct search_input *in)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < n; i++)
        json_push(list, tie_json(&all[i], offers_at(in->offers, all[i].offer)));
    return list;
}

enum rc break_even_find_json(struct json **out, const struct search_input *in,
    const struct search *s, size_t against, struct err *e)
{
    struct break_even *all;
    size_t n;
    enum rc rc = break_even_find(&all, &n, in, s, against, e);
    *out = n > 0 ? break_even_json(all, n, in) : NULL;
    free(all);
    return rc;
}

static void describe_tie(struct str *out, const struct json *t)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    double tie = json_num(t, "break_even_usd_per_gpu_hour", NAN);
    double now = json_num(t, "price_usd_per_gpu_hour", NAN);
    str_addf(out, "  %s of %s %s, %s:\n", json_str(t, "gpu", "?"), json_str(t, "provider", "?"),
        json_str(t, "id", "?"), json_str(t, "market", "market unknown"));
    if (!(tie >= 0)) {
        char why[SEARCH_TEXT + 16];
        snprintf(why, sizeof why, "at no price: %.230s", json_str(t, "why_never", "unknown"));
        explain_wrapped(out, 4, why);
        return;
    }
    /* rounded down: below what is said it does win */
    int64_t cents = (int64_t)floor(fmin(tie, 1e9) * 100 + 1e-7);
    str_addf(out, "    %s %s per GPU-hour",
        json_bool(t, "wins_below", false) ? "would win below" : "would cost the same at",
        units_usd(a, cents * (USD_MICRO / 100)));
    if (now >= 0)
        str_addf(out, "; it is %s now", units_usd(b, llround(fmin(now, 1e9) * USD_MICRO)));
    str_addf(out, "\n");
}

void break_even_describe(struct str *out, const struct json *list, size_t max)
{
    for (size_t i = 0; i < json_len(list) && i < max; i++)
        describe_tie(out, json_at(list, i));
}
