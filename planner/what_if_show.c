/* Outcomes of what-if questions in words and as JSON. */
#include <math.h>

#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/explain.h"
#include "planner/plan_json.h"
#include "planner/what_if.h"

static double usd_of(const struct plan *p)
{
    return p->bill.is_priced ? (double)p->bill.total_micro_usd[BILL_MID] / (double)USD_MICRO : NAN;
}

static double seconds_of(const struct plan *p)
{
    return p->bill.run_s[BILL_MID];
}

/* " (+10.0 %)", " (2.4 times)", nothing when there is nothing to compare with. */
static void add_share(struct str *out, double now, double was)
{
    double times = now / was, share = 100 * (times - 1);
    if (isfinite(times) && times >= 2)
        str_addf(out, " (%.1f times)", times);
    else if (isfinite(times))
        str_addf(out, " (%+.1f %%)", fabs(share) < 0.05 ? 0 : share);
}

/* "$611.40 (+10.0 %), 34.9 h (+0.0 %), a step of 25.9 s (+0.0 %)" */
static void add_figures(struct str *out, const struct plan *p, const struct plan *stated)
{
    char text[UNITS_TEXT];
    str_add(
        out, p->bill.is_priced ? units_usd(text, p->bill.total_micro_usd[BILL_MID]) : "no price");
    add_share(out, usd_of(p), stated ? usd_of(stated) : NAN);
    str_addf(out, ", %s", units_seconds(text, seconds_of(p)));
    add_share(out, seconds_of(p), stated ? seconds_of(stated) : NAN);
    str_addf(out, ", a step of %s", units_seconds(text, p->estimate.step_s));
    add_share(out, p->estimate.step_s, stated ? stated->estimate.step_s : NAN);
}

static void add_where(struct str *out, const struct plan *p, const struct search_input *in)
{
    const struct offer *o = offers_at(in->offers, p->offer);
    str_addf(out, "%lld x %s %s", (long long)p->nodes, o->provider, o->id);
}

static void describe_kept(struct str *out, const struct what_if_outcome *x)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    if (!x->has_kept)
        str_add(out, "    the offer that was first has no plan then\n");
    else if (x->kept.bill.is_priced)
        str_addf(out, "    the offer that was first would cost %s and take %s\n",
            units_usd(a, x->kept.bill.total_micro_usd[BILL_MID]),
            units_seconds(b, seconds_of(&x->kept)));
    else
        str_addf(out, "    the offer that was first would take %s\n",
            units_seconds(b, seconds_of(&x->kept)));
}

void what_if_describe(struct str *out, const struct what_if *w, const struct what_if_outcome *x,
    const struct plan *stated, const struct search_input *in)
{
    char text[SEARCH_TEXT];
    str_addf(out, "  %s%s\n", w->text, x->offers_changed ? "" : " (changes no offer)");
    if (!x->has_plan) {
        snprintf(text, sizeof text, "no plan%s%.230s", x->why_none[0] ? ": " : "", x->why_none);
        explain_wrapped(out, 4, text);
        return;
    }
    if (x->flips && stated && x->plan.offer == stated->offer) {
        str_addf(out, "    the same offer, %lld node%s instead of %lld\n", (long long)x->plan.nodes,
            x->plan.nodes == 1 ? "" : "s", (long long)stated->nodes);
    } else if (x->flips) {
        str_add(out, stated ? "    another choice: " : "    there is a plan: ");
        add_where(out, &x->plan, in);
        str_add(out, "\n");
    }
    if (x->flips || x->is_other_strategy) {
        struct str s = STR_INIT;
        str_addf(&s, "%s%s", x->flips ? "" : "the same nodes, ",
            explain_strategy(&x->plan.strategy, text));
        explain_wrapped(out, 4, str_text(&s));
        str_release(&s);
    }
    str_add(out, x->flips || x->is_other_strategy ? "    " : "    the same plan: ");
    add_figures(out, &x->plan, stated);
    str_add(out, "\n");
    if (stated && x->plan.offer != stated->offer)
        describe_kept(out, x);
}

/* --- JSON --- */

static struct json *plan_json(
    const struct plan *p, const struct plan *stated, const struct search_input *in)
{
    const struct offer *o = offers_at(in->offers, p->offer);
    struct json *v = json_obj(), *change = json_obj();
    json_add_str(v, "provider", o->provider);
    json_add_str(v, "id", o->id);
    json_add_str(v, "region", o->region[0] ? o->region : NULL);
    json_add_str(v, "gpu", p->hw.is_gpu ? p->hw.gpu : "cpu");
    json_add_int(v, "nodes", p->nodes);
    plan_json_add_strategy(v, &p->strategy);
    json_add_num(v, "step_seconds", p->estimate.step_s);
    json_add_num(v, "hours", seconds_of(p) / 3600);
    json_add_num(v, "cost_usd", usd_of(p));
    json_add_num(change, "step", stated ? p->estimate.step_s / stated->estimate.step_s - 1 : NAN);
    json_add_num(change, "hours", stated ? seconds_of(p) / seconds_of(stated) - 1 : NAN);
    json_add_num(change, "cost", stated ? usd_of(p) / usd_of(stated) - 1 : NAN);
    json_add(v, "change", change);
    return v;
}

struct json *what_if_json(const struct what_if *w, const struct what_if_outcome *x,
    const struct plan *stated, const struct search_input *in)
{
    bool is_kept = x->has_plan && stated && x->plan.offer == stated->offer;
    struct json *v = json_obj();
    json_add_str(v, "change", w->text);
    json_add_int(v, "offers_changed", (int64_t)x->offers_changed);
    json_add_bool(v, "flips", x->flips);
    json_add_bool(v, "other_strategy", x->is_other_strategy);
    json_add(v, "plan", x->has_plan ? plan_json(&x->plan, stated, in) : NULL);
    json_add(v, "stated_offer",
        is_kept       ? plan_json(&x->plan, stated, in)
        : x->has_kept ? plan_json(&x->kept, stated, in)
                      : NULL);
    json_add_str(v, "why_none", x->has_plan || !x->why_none[0] ? NULL : x->why_none);
    return v;
}
