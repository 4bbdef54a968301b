#include "tui/plan_data.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "tui/show.h"

enum { ROWS_MAX = 10000 };

static void copy_text(char *out, size_t cap, const struct json *obj, const char *key)
{
    str_copy(out, cap, json_str(obj, key, ""));
}

/* One sentence, or several in an array joined by "; ". */
static void copy_sentences(char *out, size_t cap, const struct json *v)
{
    struct str s = STR_INIT;
    if (json_is_str(v))
        str_add(&s, json_as_str(v, ""));
    for (size_t i = 0; i < json_len(v); i++) {
        const struct json *item = json_at(v, i);
        const char *text = json_is_obj(item) ? json_str(item, "text", "") : json_as_str(item, "");
        if (*text)
            str_addf(&s, "%s%s", s.len ? "; " : "", text);
    }
    str_copy(out, cap, str_text(&s));
    str_release(&s);
}

static struct plan_range range_of(const struct json *v)
{
    return (struct plan_range){
        json_num(v, "low", NAN), json_num(v, "mid", NAN), json_num(v, "high", NAN)};
}

/* Number of a part: itself, or its member mid, bytes, seconds, busy_seconds or usd. */
static double amount_of(const struct json *v)
{
    static const char *const keys[] = {"mid", "bytes", "busy_seconds", "seconds", "usd", "hours"};
    if (json_is_num(v))
        return json_as_num(v, NAN);
    for (size_t i = 0; i < BASE_COUNT(keys); i++) {
        if (json_is_num(json_get(v, keys[i])))
            return json_num(v, keys[i], NAN);
    }
    return NAN;
}

static void add_part(struct plan_parts *out, const char *name, const struct json *v)
{
    if (out->n == PLAN_PARTS || !name)
        return;
    struct plan_part *p = &out->part[out->n++];
    str_copy(p->name, sizeof(p->name), name);
    for (char *c = p->name; *c; c++)
        *c = *c == '_' ? ' ' : *c;
    p->value = amount_of(v);
    p->exposed = json_num(v, "exposed_seconds", NAN);
}

/* Parts come as an object of names, or as an array of objects that have a name. */
static void read_parts(struct plan_parts *out, const struct json *v)
{
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    while (json_is_obj(v) && json_next(v, &cursor, &key, &value))
        add_part(out, key, value);
    for (size_t i = 0; i < json_len(v); i++)
        add_part(out, json_str(json_at(v, i), "name", NULL), json_at(v, i));
}

static void read_offer(struct plan_row *r, const struct json *plan)
{
    const struct json *offer = json_get(plan, "offer");
    copy_text(r->provider, sizeof(r->provider), offer, "provider");
    copy_text(r->region, sizeof(r->region), offer, "region");
    copy_text(r->offer_id, sizeof(r->offer_id), offer, "id");
    copy_text(r->gpu, sizeof(r->gpu), offer, "gpu");
    copy_text(r->market, sizeof(r->market), offer, "market");
}

static void read_strategy(struct plan_row *r, const struct json *plan)
{
    copy_text(r->strategy, sizeof(r->strategy), plan, "strategy");
    copy_text(r->recompute, sizeof(r->recompute), plan, "recompute");
    copy_text(r->offload, sizeof(r->offload), plan, "offload");
    copy_text(r->precision, sizeof(r->precision), plan, "precision");
    r->nodes = json_int(plan, "nodes", 0);
    r->gpus = json_int(plan, "gpus", 0);
    r->shard_degree = json_int(plan, "shard_degree", 0);
    r->micro_batch = json_int(plan, "micro_batch", 0);
    r->grad_accum = json_int(plan, "grad_accum", 0);
}

static void read_step(struct plan_row *r, const struct json *step)
{
    r->step_s.mid = json_num(step, "seconds", NAN);
    r->step_s.low = json_num(step, "seconds_low", NAN);
    r->step_s.high = json_num(step, "seconds_high", NAN);
    r->tokens_per_second_per_gpu = json_num(step, "tokens_per_second_per_gpu", NAN);
    r->mfu = json_num(step, "mfu", NAN);
    r->overlap = json_num(step, "overlap", NAN);
    const struct json *lanes = json_get(step, "lanes");
    read_parts(&r->lanes, lanes ? lanes : json_get(step, "parts"));
}

static void read_outside(struct plan_row *r, const struct json *list)
{
    struct str s = STR_INIT;
    for (size_t i = 0; i < json_len(list); i++)
        str_addf(&s, "%s%s", i ? ", " : "", json_str(json_at(list, i), "quantity", "?"));
    str_copy(r->outside, sizeof(r->outside), str_text(&s));
    str_release(&s);
}

static void read_row(struct plan_row *r, const struct json *plan)
{
    const struct json *memory = json_get(plan, "memory");
    r->rank = json_int(plan, "rank", 0);
    read_offer(r, plan);
    read_strategy(r, plan);
    r->is_launchable = json_bool(plan, "launchable", false);
    r->peak_bytes = json_num(memory, "peak_bytes", NAN);
    r->capacity_bytes = json_num(memory, "capacity_bytes", NAN);
    r->fit_probability = json_num(memory, "fit_probability", NAN);
    read_parts(&r->memory, json_get(memory, "parts"));
    read_step(r, json_get(plan, "step"));
    r->hours = range_of(json_get(plan, "hours"));
    r->cost_usd = range_of(json_get(plan, "cost_usd"));
    read_parts(&r->cost_lines, json_get(json_get(plan, "cost_usd"), "lines"));
    copy_sentences(r->why, sizeof(r->why), json_get(plan, "why"));
    copy_text(r->not_launchable, sizeof(r->not_launchable), plan, "not_launchable");
    const struct json *wires = json_get(json_get(plan, "network"), "between_nodes");
    r->offered_gbps = json_num(wires, "offered_gbps_per_node", NAN);
    r->required_gbps = json_num(wires, "required_gbps_per_node", NAN);
    read_outside(r, json_get(json_get(plan, "basis"), "outside"));
    r->priors = json_len(json_get(json_get(plan, "basis"), "priors"));
    copy_sentences(r->limits, sizeof(r->limits), json_get(plan, "limits"));
}

/* "3.2 GiB", "$120", "4.5 h". */
static void read_short_by(struct plan_rejected *r, const struct json *v)
{
    char text[SHOW_TEXT];
    const char *unit = json_str(v, "short_by_unit", "");
    double by = json_num(v, "short_by", NAN);
    if (isnan(by))
        return;
    if (strcmp(unit, "bytes") == 0)
        show_bytes(text, by);
    else if (strcmp(unit, "usd") == 0)
        show_usd(text, by);
    else
        show_seconds(text, by);
    str_copy(r->short_by, sizeof(r->short_by), text);
}

static void read_rejected(struct plan_rejected *r, const struct json *v)
{
    copy_sentences(r->what, sizeof(r->what), json_get(v, "what"));
    copy_sentences(r->why, sizeof(r->why), json_get(v, "why"));
    copy_sentences(r->nearest_change, sizeof(r->nearest_change), json_get(v, "nearest_change"));
    read_short_by(r, v);
}

struct plan_list *plan_list_from_json(const struct json *doc)
{
    struct plan_list *l = base_calloc(1, sizeof(*l));
    const struct json *plans = json_get(doc, "plans"), *rejected = json_get(doc, "rejected");
    l->n = json_len(plans) < ROWS_MAX ? json_len(plans) : ROWS_MAX;
    l->n_rejected = json_len(rejected) < ROWS_MAX ? json_len(rejected) : ROWS_MAX;
    l->row = base_calloc(l->n + 1, sizeof(*l->row));
    l->rejected = base_calloc(l->n_rejected + 1, sizeof(*l->rejected));
    for (size_t i = 0; i < l->n; i++)
        read_row(&l->row[i], json_at(plans, i));
    for (size_t i = 0; i < l->n_rejected; i++)
        read_rejected(&l->rejected[i], json_at(rejected, i));
    read_parts(&l->searched, json_get(doc, "searched"));
    return l;
}

void plan_list_free(void *list)
{
    struct plan_list *l = list;
    if (!l)
        return;
    free(l->row);
    free(l->rejected);
    free(l);
}
