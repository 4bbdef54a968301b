#include "planner/what_if.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"

/* --- what may be changed --- */

/* Amounts beside factors: how they are written, and their unit. */
enum amount { AMOUNT_NONE, AMOUNT_USD, AMOUNT_BYTES, AMOUNT_NUMBER };

struct quantity {
    const char *name;
    const char *help;
    enum amount amount;
    const char *forms;      /* of an amount, with its unit; NULL: none */
    double most;            /* of an amount: what offers may say */
    enum offer_field field; /* of an offer, or OFFER_FIELD_COUNT */
    ptrdiff_t rate;         /* offset in struct rates_scale, or -1 */
    bool is_per_gpu;        /* an amount is for one GPU, the field for a node */
    bool is_of_gpus;        /* may be said of one GPU */
};

#define NO_FIELD     OFFER_FIELD_COUNT, -1
#define RATE(member) AMOUNT_NONE, NULL, 0, OFFER_FIELD_COUNT, offsetof(struct rates_scale, member)
static const struct quantity QUANTITIES[] = {
    {"network", "rate between nodes, of all NICs of a node", AMOUNT_NUMBER,
        "400 (gigabit/s of a node)", 1e6, OFFER_INTER_GBPS, -1, false, true},
    {"link", "rate between the GPUs of a node", RATE(link), false, true},
    {"host-link", "rate between a GPU and its host (PCIe), and what runs over it", RATE(host_link),
        false, true},
    {"price", "of an hour of a node, and so of a GPU", AMOUNT_USD, "2.49 (dollars per GPU-hour)",
        1e6, OFFER_PRICE, -1, true, true},
    {"mfu", "speed reached in products, attention and memory traffic", RATE(compute), false, true},
    {"memory", "of a GPU (on CPU: of a rank)", AMOUNT_BYTES, "80GiB", 1LL << 44, OFFER_GPU_MEMORY,
        -1, false, true},
    {"interruptions", "of a spot node, how often", AMOUNT_NUMBER, "0.05 (an hour)", 3600,
        OFFER_INTERRUPTIONS, -1, false, true},
    {"failures", "of nodes, how often", AMOUNT_NONE, NULL, 0, NO_FIELD, false, false},
};

static const struct quantity *quantity_of(const struct what_if_change *c)
{
    return &QUANTITIES[c->quantity];
}

void what_if_help(struct str *out)
{
    for (size_t i = 0; i < BASE_COUNT(QUANTITIES); i++) {
        const struct quantity *q = &QUANTITIES[i];
        str_addf(out, "  %-14s %s\n", q->name, q->help);
        if (q->forms)
            str_addf(out, "  %-14s also as an amount: %s\n", "", q->forms);
    }
}

/* --- reading --- */

static enum rc find_quantity(struct what_if_change *c, const char *name, struct err *e)
{
    struct str all = STR_INIT;
    for (size_t i = 0; i < BASE_COUNT(QUANTITIES); i++) {
        c->quantity = (int)i;
        if (strcmp(QUANTITIES[i].name, name) == 0) {
            str_release(&all);
            return RC_OK;
        }
        str_addf(&all, "%s%s",
            i == 0                           ? ""
            : i + 1 < BASE_COUNT(QUANTITIES) ? ", "
                                             : " and ",
            QUANTITIES[i].name);
    }
    enum rc rc =
        err_set(e, RC_USAGE, "nothing called '%s' can be changed; %s can", name, str_text(&all));
    str_release(&all);
    return rc;
}

static enum rc find_gpus(struct what_if_change *c, const char *name, struct err *e)
{
    char list[JOB_LIST];
    if (!quantity_of(c)->is_of_gpus)
        return err_set(e, RC_USAGE, "%s cannot be changed for one GPU alone", quantity_of(c)->name);
    if (!*name || strchr(name, ',') || !str_copy(list, sizeof list, name))
        return err_set(e, RC_USAGE, "'%s' names no GPU", name);
    enum rc rc = job_settle_gpus(list, e);
    if (rc)
        return rc;
    str_copy(c->gpu, sizeof c->gpu, list);
    for (size_t i = 0; i < gpu_count() && c->n_ids < WHAT_IF_GPUS; i++)
        if (strcmp(gpu_at(i)->id, list) == 0 || strcmp(gpu_at(i)->family, list) == 0)
            c->ids[c->n_ids++] = gpu_at(i)->id;
    return RC_OK;
}

static enum rc bad_value(const struct what_if_change *c, const char *text, struct err *e)
{
    const char *forms = quantity_of(c)->forms;
    return err_set(e, RC_USAGE, "'%s' says no change of %s; write it like 0.5x, +10%%%s%s", text,
        quantity_of(c)->name, forms ? " or " : " or -20%", forms ? forms : "");
}

/* A number and a last character, "0.5x". */
static bool read_scaled(const char *text, double *out)
{
    size_t n = strlen(text);
    char *number = base_strndup(text, n > 0 ? n - 1 : 0);
    bool is_good = n > 1 && !units_parse_number(number, out, NULL);
    free(number);
    return is_good;
}

static enum rc read_factor(struct what_if_change *c, const char *text, struct err *e)
{
    bool is_share = str_ends(text, "%");
    double x;
    if (!read_scaled(text, &x))
        return bad_value(c, text, e);
    if (is_share && text[0] != '+' && text[0] != '-')
        return err_set(e, RC_USAGE, "'%s' needs a sign: +%s or -%s", text, text, text);
    c->how = WHAT_IF_TIMES;
    c->value = is_share ? 1 + x / 100 : x;
    bool may_be_zero = quantity_of(c)->rate < 0 && quantity_of(c)->field != OFFER_GPU_MEMORY;
    if (!(c->value >= 0) || c->value > 1e6 || (!may_be_zero && !(c->value >= 1e-6)))
        return err_set(e, RC_USAGE, "'%s' leaves nothing of %s, or more than there can be", text,
            quantity_of(c)->name);
    return RC_OK;
}

static enum rc read_amount(struct what_if_change *c, const char *text, struct err *e)
{
    const char *amount = text + (text[0] == '+' || text[0] == '-');
    int64_t whole = 0;
    enum rc rc = RC_USAGE;
    if (quantity_of(c)->amount == AMOUNT_USD) {
        rc = units_parse_usd(amount, &whole, NULL);
        c->value = (double)whole / (double)USD_MICRO;
    } else if (quantity_of(c)->amount == AMOUNT_BYTES &&
               isalpha((unsigned char)text[strlen(text) - 1])) {
        rc = units_parse_bytes(amount, &whole, NULL);
        c->value = (double)whole;
    } else if (quantity_of(c)->amount == AMOUNT_NUMBER && isdigit((unsigned char)*amount)) {
        rc = units_parse_number(amount, &c->value, NULL);
    }
    if (rc || !isfinite(c->value))
        return bad_value(c, text, e);
    if (c->value > quantity_of(c)->most)
        return err_set(
            e, RC_USAGE, "'%s' is more of %s than there can be", text, quantity_of(c)->name);
    c->how = amount > text ? WHAT_IF_PLUS : WHAT_IF_SET;
    c->value *= text[0] == '-' ? -1 : 1;
    return RC_OK;
}

/* "price.h100-sxm=+10%" */
static enum rc read_change(struct what_if_change *c, const char *text, struct err *e)
{
    const char *equals = strchr(text, '=');
    if (!equals || !equals[1])
        return err_set(e, RC_USAGE, "'%s' is no change; write it like network=0.5x", text);
    char *name = base_strndup(text, (size_t)(equals - text));
    char *dot = strchr(name, '.');
    if (dot)
        *dot = '\0';
    memset(c, 0, sizeof *c);
    enum rc rc = find_quantity(c, name, e);
    if (!rc && dot)
        rc = find_gpus(c, dot + 1, e);
    free(name);
    const char *value = equals + 1;
    bool is_factor = str_ends(value, "x") || str_ends(value, "X") || str_ends(value, "%");
    if (!rc)
        rc = is_factor ? read_factor(c, value, e) : read_amount(c, value, e);
    return rc;
}

enum rc what_if_parse(struct what_if *out, const char *text, struct err *e)
{
    static const char between[] = ", \t\n";
    struct str said = STR_INIT;
    enum rc rc = RC_OK;
    memset(out, 0, sizeof *out);
    for (const char *p = text + strspn(text, between); *p && !rc; p += strspn(p, between)) {
        size_t n = strcspn(p, between);
        char *word = base_strndup(p, n);
        if (out->n == WHAT_IF_CHANGES)
            rc = err_set(e, RC_USAGE, "more than %d changes at once", WHAT_IF_CHANGES);
        else
            rc = read_change(&out->changes[out->n++], word, e);
        str_addf(&said, "%s%s", said.len ? " " : "", word);
        free(word);
        p += n;
    }
    if (!rc && out->n == 0)
        rc = err_set(e, RC_USAGE, "it changes nothing; write it like network=0.5x");
    if (!rc && !str_copy(out->text, sizeof out->text, str_text(&said)))
        rc = err_set(e, RC_USAGE, "it is longer than %d characters", WHAT_IF_TEXT - 1);
    str_release(&said);
    return rc;
}

/* --- making it so --- */

static bool is_about(const struct what_if_change *c, const struct offer *o)
{
    bool is_named = false;
    for (size_t i = 0; i < c->n_ids; i++)
        is_named = is_named || strcmp(c->ids[i], o->gpu) == 0;
    if (!c->gpu[0])
        return true;
    return strcmp(c->gpu, "cpu") == 0 ? o->device == DEVICE_CPU
                                      : o->device == DEVICE_GPU && is_named;
}

/* Has the offer the thing at all? A rate between nodes needs a fabric, only spot nodes are taken
 * away. */
static bool has_quantity(const struct quantity *q, const struct offer *o)
{
    if (q->field == OFFER_INTER_GBPS)
        return o->fabric != FABRIC_NONE && o->fabric != FABRIC_UNKNOWN;
    if (q->field == OFFER_INTERRUPTIONS)
        return o->market == MARKET_SPOT || offer_is_known(o, q->field);
    return true;
}

/* Is the offer another one then? */
static bool change_offer(struct offer *o, const struct what_if_change *c)
{
    const struct quantity *q = quantity_of(c);
    if (!is_about(c, o) || !has_quantity(q, o))
        return false;
    if (q->field == OFFER_FIELD_COUNT)
        return true;
    double was = offer_number(o, q->field), per = q->is_per_gpu ? (double)o->gpus_per_node : 1;
    double now = c->how == WHAT_IF_TIMES  ? was * c->value
                 : c->how == WHAT_IF_PLUS ? was + c->value * per
                                          : c->value * per;
    bool is_known = !isnan(now);
    if (!is_known || (now >= was && now <= was))
        return false;
    bool is_amiss = now < 0 || now > 1e18 || (q->field == OFFER_GPU_MEMORY && now < 1);
    if (is_amiss)
        offer_problem(o, "%s would be %s", q->name, now < 1 ? "less than nothing" : "too large");
    else
        offer_put_number(
            o, q->field, q->field == OFFER_GPU_MEMORY ? floor(now) : now, PROVENANCE_ASSUMED);
    return true;
}

struct changed {
    struct job job; /* borrows what the job owns */
    struct offers *offers;
    struct rates rates; /* borrows all but the scales */
    struct rates_scale *scales;
    size_t n_scales, scales_cap;
    struct search_input in;
};

static void release_changed(struct changed *x)
{
    offers_free(x->offers);
    free(x->scales);
}

static void add_scale(
    struct changed *x, const struct what_if_change *c, const char *device, const char *chip)
{
    struct rates_scale s = {device, chip, 1, 1, 1};
    *(double *)((char *)&s + quantity_of(c)->rate) = c->value;
    BASE_GROW(x->scales, x->scales_cap, x->n_scales + 1);
    x->scales[x->n_scales++] = s;
}

static void change_rates(struct changed *x, const struct what_if_change *c)
{
    if (!c->gpu[0])
        add_scale(x, c, "*", "*");
    else if (strcmp(c->gpu, "cpu") == 0)
        add_scale(x, c, "cpu", "*");
    for (size_t i = 0; i < c->n_ids; i++)
        add_scale(x, c, "gpu", c->ids[i]);
}

static void change_rest(struct changed *x, const struct what_if_change *c)
{
    if (quantity_of(c)->rate >= 0)
        change_rates(x, c);
    else if (quantity_of(c)->field == OFFER_FIELD_COUNT)
        x->job.failures_times =
            (x->job.failures_times > 0 ? x->job.failures_times : 1) * fmax(c->value, 1e-9);
}

static enum rc change_all(struct changed *x, size_t *n_changed, const struct what_if *w,
    const struct search_input *in, struct err *e)
{
    enum rc rc = RC_OK;
    *x = (struct changed){.job = *in->job, .offers = offers_new(), .rates = *in->rates, .in = *in};
    for (size_t i = 0; i < w->n; i++)
        change_rest(x, &w->changes[i]);
    for (size_t i = 0; !rc && i < offers_count(in->offers); i++) {
        struct offer o = *offers_at(in->offers, i);
        bool is_changed = false;
        for (size_t k = 0; k < w->n; k++)
            is_changed = change_offer(&o, &w->changes[k]) || is_changed;
        *n_changed += is_changed;
        rc = offers_add(x->offers, &o, e);
    }
    x->rates.scales = x->scales;
    x->rates.n_scales = x->n_scales;
    x->in.job = &x->job;
    x->in.offers = x->offers;
    x->in.rates = &x->rates;
    return rc;
}

/* --- planning --- */

static bool same_strategy(const struct strategy *a, const struct strategy *b)
{
    struct json *v = strategy_to_json(a), *w = strategy_to_json(b);
    char *one = json_print(v, false), *two = json_print(w, false);
    bool is_same = strcmp(one, two) == 0;
    free(one);
    free(two);
    json_free(v);
    json_free(w);
    return is_same;
}

static void compare(struct what_if_outcome *out, const struct plan *stated)
{
    const struct plan *p = &out->plan;
    bool is_both = out->has_plan && stated;
    out->flips = out->has_plan != (stated != NULL) ||
                 (is_both && (p->offer != stated->offer || p->nodes != stated->nodes));
    out->is_other_strategy =
        is_both && !out->flips && !same_strategy(&p->strategy, &stated->strategy);
}

/* What becomes of the offer that was the first. */
static enum rc plan_kept(
    struct what_if_outcome *out, const struct changed *x, const struct plan *stated, struct err *e)
{
    struct search_input in = x->in;
    struct offers *list = offers_new();
    struct search *s = NULL;
    enum rc rc = offers_add(list, offers_at(x->offers, stated->offer), e);
    in.offers = list;
    if (!rc)
        rc = search_run(&s, &in, e);
    out->has_kept = !rc && s->n_plans > 0;
    if (out->has_kept)
        out->kept = s->plans[0];
    out->kept.offer = stated->offer;
    search_free(s);
    offers_free(list);
    return rc;
}

/* The nearest miss, else what cannot be planned at all. */
static void say_why_none(struct what_if_outcome *out, const struct search *s)
{
    size_t i = 0;
    while (i < s->n_rejected && s->rejected[i].shortage == SHORT_NONE)
        i++;
    const struct rejection *r = i < s->n_rejected ? &s->rejected[i] : s->rejected;
    if (s->n_rejected > 0)
        snprintf(out->why_none, sizeof out->why_none, "%.80s: %.150s", r->what, r->why);
}

enum rc what_if_plan(struct what_if_outcome *out, const struct what_if *w,
    const struct search_input *in, const struct plan *stated, struct err *e)
{
    struct changed x;
    struct search *s = NULL;
    memset(out, 0, sizeof *out);
    enum rc rc = change_all(&x, &out->offers_changed, w, in, e);
    if (!rc)
        rc = search_run(&s, &x.in, e);
    if (!rc && s->n_plans > 0) {
        out->has_plan = true;
        out->plan = s->plans[0];
    } else if (!rc) {
        say_why_none(out, s);
    }
    compare(out, stated);
    if (!rc && stated && out->has_plan && out->plan.offer != stated->offer)
        rc = plan_kept(out, &x, stated, e);
    search_free(s);
    release_changed(&x);
    return rc;
}
