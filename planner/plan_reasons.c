#include "planner/plan_reasons.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/explain.h"
#include "planner/plan_json.h"
#include "planner/search.h"

enum { SHOWN_REJECTED = 8, ASPECT_TEXT = SEARCH_TEXT + 64 };

/* --- into the file --- */

/* What two plans may differ in, in words. */
enum aspect {
    ASPECT_OFFER,
    ASPECT_HARDWARE,
    ASPECT_MARKET,
    ASPECT_NODES,
    ASPECT_STRATEGY,
    ASPECT_COUNT
};
static const char *const ASPECTS[] = {"offer", "hardware", "market", "nodes", "strategy"};

static void say_aspect(
    char out[ASPECT_TEXT], enum aspect a, const struct plan *p, const struct offer *o)
{
    const char *market = offer_market_name(o->market);
    switch (a) {
    case ASPECT_OFFER:
        snprintf(out, ASPECT_TEXT, "%s %s%s%s", o->provider, o->id, o->region[0] ? " in " : "",
            o->region);
        break;
    case ASPECT_HARDWARE:
        snprintf(out, ASPECT_TEXT, "%lld x %s a node", (long long)p->hw.ranks_per_node,
            p->hw.is_gpu ? p->hw.gpu : "cpu");
        break;
    case ASPECT_MARKET:
        snprintf(out, ASPECT_TEXT, "%s", market ? market : "unknown");
        break;
    case ASPECT_NODES:
        snprintf(out, ASPECT_TEXT, "%lld", (long long)p->nodes);
        break;
    default:
        explain_strategy(&p->strategy, out);
    }
}

static struct json *differences_json(const struct plan *chosen, const struct offer *chosen_offer,
    const struct plan *other, const struct offer *other_offer)
{
    struct json *list = json_arr();
    char a[ASPECT_TEXT], b[ASPECT_TEXT];
    for (int i = 0; i < ASPECT_COUNT; i++) {
        say_aspect(a, (enum aspect)i, chosen, chosen_offer);
        say_aspect(b, (enum aspect)i, other, other_offer);
        if (strcmp(a, b) == 0)
            continue;
        struct json *v = json_obj();
        json_add_str(v, "what", ASPECTS[i]);
        json_add_str(v, "plan", a);
        json_add_str(v, "runner_up", b);
        json_push(list, v);
    }
    return list;
}

static double usd_of(const struct bill *b)
{
    return b->is_priced ? (double)b->total_micro_usd[BILL_MID] / (double)USD_MICRO : NAN;
}

/* What the objective weighs; NAN without a price. */
static double merit_of(const struct job *j, const struct bill *b)
{
    double s = b->run_s[BILL_MID];
    return j->objective == OBJECTIVE_TIME   ? s
           : j->objective == OBJECTIVE_COST ? usd_of(b)
                                            : usd_of(b) * s;
}

/* Other minus chosen; ratio: of what the objective weighs. */
static struct json *margin_json(
    const struct job *j, const struct plan *chosen, const struct plan *other)
{
    const struct bill *a = &chosen->bill, *b = &other->bill;
    struct json *v = json_obj();
    json_add_str(v, "objective", objective_name(j->objective));
    json_add_num(v, "ratio", merit_of(j, b) / merit_of(j, a) - 1);
    json_add_num(v, "cost_usd", usd_of(b) - usd_of(a));
    json_add_num(v, "hours", (b->run_s[BILL_MID] - a->run_s[BILL_MID]) / 3600);
    json_add_num(v, "step_seconds", other->estimate.step_s - chosen->estimate.step_s);
    return v;
}

static struct json *runner_up_json(
    const struct search *s, size_t index, const struct job *j, const struct offers *offers)
{
    size_t second = index == 0 ? 1 : 0;
    if (index >= s->n_plans || second >= s->n_plans)
        return NULL;
    const struct plan *chosen = &s->plans[index], *other = &s->plans[second];
    const struct offer *o = offers_at(offers, other->offer);
    struct json *v = json_obj();
    json_add_int(v, "rank", (int64_t)second + 1);
    json_add_int(v, "rank_of_this_plan", (int64_t)index + 1);
    json_add_str(v, "provider", o->provider);
    json_add_str(v, "id", o->id);
    json_add_int(v, "nodes", other->nodes);
    plan_json_add_strategy(v, &other->strategy);
    json_add_num(v, "hours", other->bill.run_s[BILL_MID] / 3600);
    json_add_num(v, "cost_usd", usd_of(&other->bill));
    json_add_num(v, "step_seconds", other->estimate.step_s);
    json_add(v, "margin", margin_json(j, chosen, other));
    json_add(v, "differs", differences_json(chosen, offers_at(offers, chosen->offer), other, o));
    return v;
}

struct json *rejected_json(const struct search *s, size_t max)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < s->n_rejected && i < max; i++) {
        const struct rejection *r = &s->rejected[i];
        struct json *v = json_obj();
        json_add_str(v, "what", r->what);
        json_add_int(v, "offers", (int64_t)r->offers);
        json_add_str(v, "why", r->why);
        json_add_num(v, "short_by", r->shortage ? r->short_by : NAN);
        json_add_str(v, "short_by_unit", shortage_unit(r->shortage));
        json_add_str(v, "nearest_change", r->nearest_change[0] ? r->nearest_change : NULL);
        json_push(list, v);
    }
    return list;
}

void plan_reasons_add(struct json *doc, const struct search *s, size_t index, const struct job *j,
    const struct offers *offers)
{
    size_t most = PLAN_REASONS_REJECTED;
    json_add(doc, "runner_up", runner_up_json(s, index, j, offers));
    json_add(doc, "rejected", rejected_json(s, most));
    json_add_int(doc, "rejected_more", s->n_rejected > most ? (int64_t)(s->n_rejected - most) : 0);
}

/* --- in words --- */

/* "$12.30 more (+8.1 %)" */
static void add_money(struct str *out, double usd)
{
    char a[UNITS_TEXT];
    if (isfinite(usd) && fabs(usd) < 1e12)
        str_addf(out, "%s %s, ", units_usd(a, llround(fabs(usd) * (double)USD_MICRO)),
            usd < 0 ? "less" : "more");
}

static void describe_margin(struct str *out, const struct json *v)
{
    const struct json *margin = json_get(v, "margin");
    struct str line = STR_INIT;
    char a[UNITS_TEXT];
    double hours = json_num(margin, "hours", 0), ratio = json_num(margin, "ratio", NAN);
    str_addf(&line, "margin: ");
    add_money(&line, json_num(margin, "cost_usd", NAN));
    str_addf(&line, "%s %s", units_seconds(a, 3600 * fabs(hours)), hours < 0 ? "sooner" : "later");
    if (isfinite(ratio))
        str_addf(&line, "; %+.1f %% of %s", 100 * ratio,
            strcmp(json_str(margin, "objective", ""), "balanced") == 0
                ? "cost times time"
                : json_str(margin, "objective", "the objective"));
    explain_wrapped(out, 2, str_text(&line));
    str_release(&line);
}

static void describe_differences(struct str *out, const struct json *list)
{
    struct str line = STR_INIT;
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *v = json_at(list, i);
        str_addf(&line, "%s: %s instead of %s", json_str(v, "what", "?"),
            json_str(v, "runner_up", "?"), json_str(v, "plan", "?"));
        explain_wrapped(out, 4, str_text(&line));
        str_reset(&line);
    }
    str_release(&line);
}

static void describe_runner_up(struct str *out, const struct json *doc)
{
    const struct json *v = json_get(doc, "runner_up");
    str_addf(out, "\nRunner-up\n");
    if (!v) {
        str_addf(out, "  none: no other offer was listed\n");
        return;
    }
    struct str line = STR_INIT;
    str_addf(&line, "plan %lld of the list, this being plan %lld: %s %s, %lld node%s",
        (long long)json_int(v, "rank", 0), (long long)json_int(v, "rank_of_this_plan", 1),
        json_str(v, "provider", "?"), json_str(v, "id", "?"), (long long)json_int(v, "nodes", 0),
        json_int(v, "nodes", 0) == 1 ? "" : "s");
    explain_wrapped(out, 2, str_text(&line));
    str_release(&line);
    describe_margin(out, v);
    describe_differences(out, json_get(v, "differs"));
}

static void describe_rejected(struct str *out, const struct json *doc)
{
    const struct json *list = json_get(doc, "rejected");
    struct str line = STR_INIT;
    size_t n = json_len(list);
    if (n == 0)
        return;
    str_addf(out, "\nRejected\n");
    for (size_t i = 0; i < n && i < SHOWN_REJECTED; i++) {
        const struct json *v = json_at(list, i);
        str_addf(&line, "%s", json_str(v, "what", "?"));
        if (json_int(v, "offers", 1) > 1)
            str_addf(&line, " (%lld offers)", (long long)json_int(v, "offers", 1));
        str_addf(&line, ": %s", json_str(v, "why", "?"));
        explain_wrapped(out, 2, str_text(&line));
        str_reset(&line);
        if (!json_get(v, "nearest_change"))
            continue;
        str_addf(&line, "would do: %s", json_str(v, "nearest_change", "?"));
        explain_wrapped(out, 4, str_text(&line));
        str_reset(&line);
    }
    int64_t more = json_int(doc, "rejected_more", 0);
    more = more < 0 || more > INT32_MAX ? 0 : more;
    if (n > SHOWN_REJECTED)
        more += (int64_t)(n - SHOWN_REJECTED);
    if (more > 0)
        str_addf(out, "  and %lld more; --json lists what the file holds\n", (long long)more);
    str_release(&line);
}

void plan_reasons_describe(struct str *out, const struct json *doc)
{
    if (!doc)
        return;
    describe_runner_up(out, doc);
    describe_rejected(out, doc);
}
