#include "planner/plan_json.h"

#include <math.h>

#include "base/json.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/estimate.h"
#include "planner/plan_reasons.h"
#include "planner/predict.h"
#include "planner/search.h"

/* --- estimate/1 --- */

/* NULL where phases are not told apart. */
static struct json *phases_json(const struct estimate *x)
{
    if (x->phase_bytes[PHASE_UPDATE] <= 0)
        return NULL;
    struct json *v = json_obj();
    for (int i = 0; i < PHASE_COUNT; i++)
        json_add_int(v, phase_name((enum phase)i), x->phase_bytes[i]);
    return v;
}

static struct json *memory_json(const struct estimate *x)
{
    struct json *v = json_obj(), *parts = json_obj();
    json_add_int(v, "peak_bytes", x->peak_bytes);
    json_add_int(v, "capacity_bytes", x->capacity_bytes);
    json_add_int(v, "external_bytes", x->external_bytes);
    json_add_num(v, "fit_probability", x->fit_probability);
    json_add_bool(v, "fits", estimate_fits(x));
    for (int i = 0; i < PART_COUNT; i++)
        json_add_int(parts, part_name((enum part)i), x->part_bytes[i]);
    json_add_int(parts, "packing", x->packing_bytes);
    json_add(v, "parts", parts);
    json_add(v, "phases", phases_json(x));
    if (x->is_allocated) {
        json_add_int(v, "allocated_bytes", x->peak_bytes - x->packing_bytes);
        json_add_int(v, "reserved_bytes", x->peak_bytes);
        json_add_int(v, "nvidia_smi_bytes", x->peak_bytes + x->external_bytes);
    }
    return v;
}

/* They sum to ram_bytes. */
static struct json *host_parts_json(const struct estimate *x)
{
    struct json *parts = json_obj();
    int64_t pinned = 0;
    if (x->host_slab_bytes > INT64_MAX / 16) /* not to be counted */
        return parts;
    for (int i = 0; i < PART_COUNT; i++) {
        pinned += x->host_part_bytes[i];
        if (x->host_part_bytes[i] > 0)
            json_add_int(parts, part_name((enum part)i), x->host_part_bytes[i]);
    }
    json_add_int(parts, "packing", x->host_slab_bytes - pinned);
    json_add_int(parts, "checkpoint_snapshot", x->host_snapshot_bytes);
    json_add_int(
        parts, "processes", x->host_ram_bytes - x->host_slab_bytes - x->host_snapshot_bytes);
    return parts;
}

static struct json *host_json(const struct estimate *x)
{
    struct json *v = json_obj();
    json_add_int(v, "ram_bytes", x->host_ram_bytes);
    if (x->host_capacity_bytes > 0)
        json_add_int(v, "capacity_bytes", x->host_capacity_bytes);
    else
        json_add_null(v, "capacity_bytes");
    json_add(v, "parts", host_parts_json(x));
    return v;
}

/* b: NULL without a run. */
static struct json *disk_json(const struct estimate *x, const struct bill *b)
{
    struct json *v = json_obj();
    json_add_int(v, "nvme_bytes", x->disk_bytes);
    if (x->disk_bytes == 0)
        return v;
    struct json *parts = json_obj();
    json_add_int(parts, "optimizer", x->disk_state_bytes - x->disk_param_bytes);
    if (x->disk_param_bytes > 0)
        json_add_int(parts, "parameters", x->disk_param_bytes);
    json_add_int(parts, "checkpoints", x->disk_bytes - x->disk_state_bytes);
    json_add(v, "parts", parts);
    if (x->disk_capacity_bytes > 0)
        json_add_int(v, "capacity_bytes", x->disk_capacity_bytes);
    else
        json_add_null(v, "capacity_bytes");
    json_add_int(v, "written_bytes_per_step", x->disk_written_bytes);
    if (b) {
        struct wear w = wear_make(x, b);
        json_add_num(v, "written_bytes", w.written_bytes);
        json_add_num(v, "drive_writes", w.drive_writes);
        json_add_num(v, "drive_writes_per_day", w.drive_writes_per_day);
    }
    return v;
}

/* Seconds that follow each other: they sum to the step. */
static struct json *step_parts_json(const struct simulation *s)
{
    static const struct {
        enum lane lane;
        const char *name;
    } exposed[] = {
        {LANE_GATHER, "exposed_gather"},
        {LANE_REDUCE, "exposed_reduce"},
        {LANE_COPY_DOWN, "exposed_copy_down"},
        {LANE_COPY_UP, "exposed_copy_up"},
        {LANE_HOST, "exposed_host_compute"},
        {LANE_DISK, "exposed_disk"},
    };
    struct json *v = json_obj();
    double rest = s->step_s - s->busy_s[LANE_COMPUTE];
    json_add_num(v, "compute", s->busy_s[LANE_COMPUTE]);
    for (size_t i = 0; i < sizeof exposed / sizeof exposed[0]; i++) {
        json_add_num(v, exposed[i].name, s->exposed_s[exposed[i].lane]);
        rest -= s->exposed_s[exposed[i].lane];
    }
    json_add_num(v, "overhead_and_stragglers", fmax(0, rest));
    return v;
}

/* Each lane that works at all: how long, and how much of it nothing hides. */
static struct json *lanes_json(const struct simulation *s)
{
    struct json *v = json_obj();
    for (int i = 0; i < LANE_COUNT; i++) {
        if (!(s->busy_s[i] > 0))
            continue;
        struct json *lane = json_obj();
        json_add_num(lane, "busy_seconds", s->busy_s[i]);
        json_add_num(lane, "exposed_seconds", i == LANE_COMPUTE ? s->busy_s[i] : s->exposed_s[i]);
        json_add(v, lane_name((enum lane)i), lane);
    }
    return v;
}

static struct json *work_json(const struct simulation *s)
{
    struct json *v = json_obj();
    for (int i = 0; i < WORK_COUNT; i++)
        json_add_num(v, work_name((enum work)i), s->work_s[i]);
    return v;
}

/* Share of the collectives' seconds that hides behind computing; nothing to hide gives NAN. */
static double overlap(const struct simulation *s)
{
    double busy = s->busy_s[LANE_GATHER] + s->busy_s[LANE_REDUCE];
    double exposed = s->exposed_s[LANE_GATHER] + s->exposed_s[LANE_REDUCE];
    return busy > 0 ? 1 - fmin(1, exposed / busy) : NAN;
}

static struct json *step_json(const struct estimate *x)
{
    struct json *v = json_obj();
    json_add_num(v, "seconds", x->step_s);
    json_add_num(v, "seconds_low", x->step_low_s);
    json_add_num(v, "seconds_high", x->step_high_s);
    json_add_num(v, "tokens_per_second_per_gpu", x->tokens_per_s_per_rank);
    json_add_num(v, "mfu", x->mfu);
    json_add_str(v, "flops_definition", x->flops_definition);
    json_add_num(v, "overlap", overlap(&x->simulation));
    json_add(v, "parts", step_parts_json(&x->simulation));
    json_add(v, "lanes", lanes_json(&x->simulation));
    if (x->simulation.flush_s > 0)
        json_add_num(v, "update_alone_seconds", x->simulation.flush_s);
    json_add(v, "work", work_json(&x->simulation));
    return v;
}

/* The runs whose sizes say what is outside. */
static struct json *evidence_json(const struct rates_entry *en)
{
    if (!en)
        return NULL;
    struct json *v = json_obj();
    json_add_str(v, "chip", en->chip);
    json_add_str(v, "stack", en->stack);
    json_add_int(v, "rows", en->rows);
    json_add(v, "ranges", ranges_json(&en->ranges));
    return v;
}

static struct json *basis_json(const struct estimate *x, const struct machine *mc)
{
    struct json *v = json_obj(), *calibration = json_obj(), *priors = json_arr();
    json_add_str(calibration, "device", mc->hw.is_gpu ? "gpu" : "cpu");
    json_add_str(calibration, "chip", mc->hw.is_gpu ? mc->hw.gpu : mc->hw.isa);
    json_add_str(calibration, "stack", mc->stack);
    json_add(v, "calibration", calibration);
    json_add_str(v, "nearest", basis_name(mc->basis));
    json_add_bool(v, "extrapolated", x->is_extrapolated);
    json_add(v, "outside",
        x->evidence ? ranges_outside_json(&x->evidence->ranges, &x->sizes, x->outside)
                    : json_arr());
    json_add(v, "evidence", evidence_json(x->evidence));
    for (int i = 0; i < mc->n_constants; i++)
        if (mc->constant[i].entry->is_prior)
            json_push_str(priors, mc->constant[i].name);
    json_add(v, "priors", priors);
    return v;
}

/* b: NULL without a run. */
static struct json *checkpoint_json(const struct estimate *x, const struct bill *b)
{
    struct json *v = json_obj();
    json_add_int(v, "bytes", x->checkpoint_bytes);
    json_add_num(v, "seconds", x->checkpoint_s);
    json_add_num(v, "stall_seconds", x->checkpoint_stall_s);
    if (b) {
        json_add_num(v, "interval_seconds", b->interval_s);
        json_add_num(v, "optimal_interval_seconds", b->optimal_interval_s);
    }
    return v;
}

static struct json *sections_json(
    const struct estimate *x, const struct machine *machine, const struct bill *b)
{
    struct json *v = json_obj();
    json_add(v, "memory", memory_json(x));
    json_add(v, "host", host_json(x));
    json_add(v, "disk", disk_json(x, b));
    json_add(v, "step", step_json(x));
    json_add(v, "checkpoint", checkpoint_json(x, b));
    json_add(v, "basis", basis_json(x, machine));
    return v;
}

struct json *estimate_to_json(const struct estimate *x, const struct machine *machine)
{
    return sections_json(x, machine, NULL);
}

/* --- plan-list/1 --- */

struct json *plan_prediction_json(const struct plan *p, const struct rates *rates)
{
    struct machine mc;
    if (machine_make(&mc, rates, &p->hw, p->stack, NULL))
        return json_obj();
    struct json *v = sections_json(&p->estimate, &mc, &p->bill);
    json_add(v, "hours", bill_hours_json(&p->bill));
    json_add(v, "cost_usd", bill_cost_json(&p->bill));
    json_add(v, "stops", bill_stops_json(&p->bill));
    json_add_bool(v, "ignores_interruptions", p->ignores_interruptions);
    return v;
}

void plan_json_add_strategy(struct json *v, const struct strategy *s)
{
    json_add_int(v, "gpus", s->ranks);
    json_add_str(v, "strategy", strategy_kind_name(s->kind));
    json_add_int(v, "shard_degree", s->shard_degree);
    json_add_int(v, "micro_batch", s->micro_batch);
    json_add_int(v, "grad_accum", s->grad_accum);
    json_add_str(v, "recompute", strategy_recompute_name(s));
    if (s->full_blocks > 0)
        json_add_int(v, "full_blocks", s->full_blocks);
    json_add_str(v, "offload", offload_name(s->offload));
    json_add_str(v, "precision", precision_name(s->precision));
    strategy_add_variants(v, s);
    json_add_str(v, "engine", engine_name(s->engine));
    if (strategy_is_data_parallel(s))
        return;
    json_add_int(v, "tensor", s->parallel.tensor);
    json_add_int(v, "pipeline", s->parallel.pipeline);
    json_add_int(v, "expert", s->parallel.expert);
}

static struct json *plan_json(
    const struct plan *p, size_t rank, const struct offers *offers, const struct rates *rates)
{
    struct json *v = json_obj();
    json_add_int(v, "rank", (int64_t)rank);
    json_add(v, "offer", offer_to_json(offers_at(offers, p->offer)));
    json_add_int(v, "nodes", p->nodes);
    plan_json_add_strategy(v, &p->strategy);
    json_add_bool(v, "launchable", p->is_launchable);
    json_add_str(v, "not_launchable", p->is_launchable ? NULL : p->not_launchable);
    json_add_members(v, plan_prediction_json(p, rates));
    json_add_str(v, "why", p->why);
    json_add_str(v, "limits", p->limits);
    if (p->knows_network)
        json_add(v, "network", network_needs_json(&p->network));
    return v;
}

static struct json *pareto_json(const struct search *s, const struct offers *offers)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < s->n_pareto; i++) {
        const struct pareto_point *p = &s->pareto[i];
        const struct offer *o = offers_at(offers, p->offer);
        struct json *v = json_obj();
        json_add_str(v, "provider", o->provider);
        json_add_str(v, "id", o->id);
        json_add_int(v, "nodes", p->nodes);
        plan_json_add_strategy(v, &p->strategy);
        json_add_num(v, "hours", p->run_s / 3600);
        json_add_num(v, "cost_usd", (double)p->micro_usd / (double)USD_MICRO);
        if (p->plan >= 0)
            json_add_int(v, "rank", p->plan + 1);
        else
            json_add_null(v, "rank");
        json_push(list, v);
    }
    return list;
}

static struct json *searched_json(const struct searched *s, double seconds)
{
    struct json *v = json_obj();
    json_add_int(v, "offers", s->offers);
    json_add_int(v, "hardware", s->hardware);
    json_add_int(v, "space", s->space);
    json_add_int(v, "pruned_by_memory", s->pruned_by_memory);
    json_add_int(v, "pruned_by_bound", s->pruned_by_bound);
    json_add_int(v, "simulated", s->simulated);
    json_add_int(v, "max_ranks", SEARCH_MAX_RANKS);
    json_add_int(v, "offers_beyond_max_ranks", s->beyond_max_ranks);
    json_add_num(v, "seconds", seconds >= 0 ? seconds : NAN);
    return v;
}

void plan_list_fill(struct json *doc, const struct search *s, const struct job *j,
    const struct offers *offers, const struct rates *rates, double seconds)
{
    struct json *plans = json_arr();
    for (size_t i = 0; i < s->n_plans; i++)
        json_push(plans, plan_json(&s->plans[i], i + 1, offers, rates));
    json_add(doc, "job", job_to_json(j));
    json_add(doc, "plans", plans);
    json_add(doc, "pareto", pareto_json(s, offers));
    json_add(doc, "rejected", rejected_json(s, s->n_rejected));
    json_add(doc, "searched", searched_json(&s->searched, seconds));
}
