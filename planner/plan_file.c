#include "planner/plan_file.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "planner/hardware.h"
#include "planner/plan_json.h"
#include "planner/schedule.h"
#include "planner/search.h"

static const char schema[] = "plan/1";

/* --- writing --- */

static struct json *program_json(const char *version)
{
    struct json *v = json_obj();
    json_add_str(v, "name", "berth");
    json_add_str(v, "version", version);
    return v;
}

static struct json *constants_json(const struct plan *p, const struct rates *rates)
{
    struct machine mc;
    if (machine_make(&mc, rates, &p->hw, p->stack, NULL))
        return json_obj();
    return machine_constants_json(&mc);
}

static struct json *schedule_json(const struct plan *p)
{
    char hex[HASH128_HEX];
    struct json *v = json_obj();
    hash128_hex(p->estimate.hash, hex);
    json_add(v, "strategy", strategy_to_json(&p->strategy));
    json_add_str(v, "hash", hex);
    return v;
}

struct json *plan_file_make(const struct plan *p, const struct job *j, const struct offer *o,
    const struct rates *rates, const char *version, const char *generated_at)
{
    struct job own = *j; /* borrows; what a launch does is written down */
    own.checkpoint_every_s = p->bill.interval_s;
    struct json *v = json_obj();
    json_add_str(v, "schema", schema);
    json_add_str(v, "generated_at", generated_at);
    json_add(v, "program", program_json(version));
    json_add(v, "job", job_to_json(&own));
    json_add(v, "offer", offer_to_json(o));
    json_add_int(v, "nodes", p->nodes);
    json_add_int(v, "gpus", p->strategy.ranks);
    json_add_int(v, "steps", job_steps(j));
    json_add(v, "schedule", schedule_json(p));
    json_add_bool(v, "launchable", p->is_launchable);
    json_add_str(v, "not_launchable", p->is_launchable ? NULL : p->not_launchable);
    json_add_str(v, "why", p->why);
    json_add_str(v, "limits", p->limits);
    json_add(v, "prediction", plan_prediction_json(p, rates));
    json_add(v, "constants", constants_json(p, rates));
    return v;
}

/* --- reading --- */

void plan_file_release(struct plan_file *p)
{
    job_release(&p->job);
    json_free(p->prediction);
    json_free(p->constants);
    json_free(p->break_even);
    json_free(p->reasons);
    memset(p, 0, sizeof *p);
}

static enum rc read_schedule(struct plan_file *p, const struct json *v, struct err *e)
{
    const struct json *schedule, *strategy;
    const char *hex;
    enum rc rc = json_need_obj(v, "schedule", &schedule, e);
    if (!rc)
        rc = json_need_obj(schedule, "strategy", &strategy, e);
    if (!rc)
        rc = strategy_from_json(&p->strategy, strategy, e);
    if (!rc)
        rc = json_need_str(schedule, "hash", &hex, e);
    if (!rc && !hash128_from_hex(&p->schedule_hash, hex))
        rc = err_set(e, RC_INVALID, "the schedule's hash is not 32 hex digits");
    return rc;
}

static enum rc read_job(struct plan_file *p, const struct json *v, struct err *e)
{
    const struct json *job;
    enum rc rc = json_need_obj(v, "job", &job, e);
    if (!rc)
        rc = job_read_json(&p->job, job, e);
    if (!rc)
        rc = job_finish(&p->job, e);
    if (!rc && p->job.checkpoint_every_s <= 0)
        rc = err_set(e, RC_INVALID, "the job does not say 'checkpoint_every'");
    return rc;
}

static enum rc read_offer(struct plan_file *p, const struct json *v, struct err *e)
{
    const struct json *offer;
    enum rc rc = json_need_obj(v, "offer", &offer, e);
    if (!rc)
        rc = offer_from_json(&p->offer, offer, e);
    if (!rc && p->offer.problem[0])
        rc = err_set(e, RC_INVALID, "its offer cannot be used: %s", p->offer.problem);
    return rc;
}

static int64_t micro_or_unknown(const struct json *cost, const char *which)
{
    double usd = json_num(cost, which, NAN);
    double micro = usd * (double)USD_MICRO;
    return micro >= 0 && micro < 9e18 ? llround(micro) : -1;
}

/* Of a node: its host memory without what is there beside the slabs. */
static int64_t host_slab_bytes(const struct json *prediction)
{
    const struct json *parts = json_get(json_get(prediction, "host"), "parts"), *v;
    int64_t bytes = 0;
    const char *key;
    void *cursor = NULL;
    while (json_next(parts, &cursor, &key, &v))
        if (strcmp(key, "checkpoint_snapshot") != 0 && strcmp(key, "processes") != 0)
            bytes += json_as_int(v, 0);
    return bytes;
}

static enum rc read_prediction(struct plan_file *p, const struct json *v, struct err *e)
{
    const struct json *prediction, *step, *memory, *constants;
    enum rc rc = json_need_obj(v, "prediction", &prediction, e);
    if (!rc)
        rc = json_need_obj(prediction, "step", &step, e);
    if (!rc)
        rc = json_need_num(step, "seconds", &p->step_s, e);
    if (!rc)
        rc = json_need_obj(prediction, "memory", &memory, e);
    if (!rc)
        rc = json_need_int(memory, "peak_bytes", 1, INT64_MAX, &p->peak_bytes, e);
    if (!rc && json_get(memory, "external_bytes"))
        rc = json_need_int(memory, "external_bytes", 0, 1LL << 50, &p->external_bytes, e);
    if (!rc)
        rc = json_need_obj(v, "constants", &constants, e);
    if (rc)
        return rc;
    if (!(p->step_s > 0))
        return err_set(e, RC_INVALID, "its predicted step takes %g seconds", p->step_s);
    p->step_low_s = json_num(step, "seconds_low", p->step_s);
    p->step_high_s = json_num(step, "seconds_high", p->step_s);
    p->tokens_per_s_per_rank = json_num(step, "tokens_per_second_per_gpu", 0);
    p->mfu = json_num(step, "mfu", 0);
    p->host_ram_bytes = json_int(json_get(prediction, "host"), "ram_bytes", 0);
    p->snapshot_bytes =
        json_int(json_get(json_get(prediction, "host"), "parts"), "checkpoint_snapshot", 0);
    p->host_slab_bytes = host_slab_bytes(prediction) / p->strategy.ranks_per_node;
    const struct json *disk = json_get(prediction, "disk");
    p->disk_bytes = json_int(json_get(disk, "parts"), "optimizer", 0) +
                    json_int(json_get(disk, "parts"), "parameters", 0);
    p->disk_written_bytes = json_int(disk, "written_bytes_per_step", 0);
    p->run_s = json_num(json_get(prediction, "hours"), "mid", 0) * 3600;
    p->cost_micro_usd = micro_or_unknown(json_get(prediction, "cost_usd"), "mid");
    p->cost_high_micro_usd = micro_or_unknown(json_get(prediction, "cost_usd"), "high");
    p->prediction = json_clone(prediction);
    p->constants = json_clone(constants);
    const struct json *break_even = json_get(v, "break_even");
    p->break_even = json_is_arr(break_even) ? json_clone(break_even) : NULL;
    return RC_OK;
}

static void read_reasons(struct plan_file *p, const struct json *v)
{
    static const char *const keys[] = {"runner_up", "rejected", "rejected_more"};
    if (!json_is_arr(json_get(v, "rejected")))
        return;
    p->reasons = json_obj();
    for (size_t i = 0; i < BASE_COUNT(keys); i++) {
        const struct json *one = json_get(v, keys[i]);
        json_add(p->reasons, keys[i], one ? json_clone(one) : NULL);
    }
}

/* The parts must tell one story. */
static enum rc check(const struct plan_file *p, struct err *e)
{
    const struct strategy *s = &p->strategy;
    enum rc rc = strategy_check(s, &p->job.model, e);
    if (rc)
        return rc;
    if (s->ranks_per_node != p->offer.gpus_per_node || s->ranks != p->nodes * s->ranks_per_node)
        return err_set(e, RC_INVALID,
            "its strategy is for %lld ranks, %lld on a node, but its offer has %lld nodes of %lld",
            (long long)s->ranks, (long long)s->ranks_per_node, (long long)p->nodes,
            (long long)p->offer.gpus_per_node);
    if (s->optimizer != job_optimizer(&p->job))
        return err_set(e, RC_INVALID, "its strategy updates by %s, the training of its job by %s",
            optimizer_name(s->optimizer), optimizer_name(job_optimizer(&p->job)));
    if (s->seq != p->job.seq ||
        s->micro_batch > INT64_MAX / 4 / s->grad_accum / s->ranks / s->seq ||
        strategy_tokens_per_step(s) != p->job.global_batch_tokens)
        return err_set(e, RC_INVALID, "its strategy does not take the job's batch in one step");
    if (p->steps != job_steps(&p->job))
        return err_set(e, RC_INVALID, "its %lld steps are not those of its job, %lld",
            (long long)p->steps, (long long)job_steps(&p->job));
    return RC_OK;
}

static enum rc read_all(struct plan_file *p, const struct json *v, struct err *e)
{
    if (strcmp(json_str(v, "schema", ""), schema) != 0)
        return err_set(e, RC_INVALID, "not a %s document", schema);
    enum rc rc = read_job(p, v, e);
    if (!rc)
        rc = read_offer(p, v, e);
    if (!rc)
        rc = json_need_int(v, "nodes", 1, 1 << 20, &p->nodes, e);
    if (!rc)
        rc = json_need_int(v, "steps", 1, INT64_MAX, &p->steps, e);
    if (!rc)
        rc = read_schedule(p, v, e);
    if (!rc)
        rc = read_prediction(p, v, e);
    if (rc)
        return rc;
    read_reasons(p, v);
    str_copy(p->program, sizeof p->program, json_str(json_get(v, "program"), "version", "unknown"));
    p->is_launchable = is_launchable(
        &p->strategy, &p->job.model, p->offer.device == DEVICE_GPU, p->not_launchable);
    return check(p, e);
}

enum rc plan_file_from_json(struct plan_file *out, const struct json *v, struct err *e)
{
    struct plan_file p;
    memset(&p, 0, sizeof p);
    job_init(&p.job);
    enum rc rc = read_all(&p, v, e);
    if (rc) {
        plan_file_release(&p);
        return err_in(e, "plan");
    }
    *out = p;
    return RC_OK;
}

enum rc plan_file_read(struct plan_file *out, const char *path, struct err *e)
{
    struct json *v = NULL;
    enum rc rc = err_input(e, json_read(&v, path, PLAN_FILE_MAX_BYTES, e));
    if (!rc)
        rc = plan_file_from_json(out, v, e);
    if (rc && v)
        err_in(e, "'%s'", path);
    json_free(v);
    return rc;
}

enum rc plan_file_check_hash(const struct plan_file *p, struct err *e)
{
    struct schedule *s = NULL;
    enum rc rc = schedule_make(&s, &p->job.model, &p->strategy, e);
    if (rc)
        return rc;
    struct hash128 h = schedule_hash(s);
    schedule_free(s);
    if (h.hi == p->schedule_hash.hi && h.lo == p->schedule_hash.lo)
        return RC_OK;
    return err_set(e, RC_INVALID,
        "the plan's schedule is not what this program makes of it: the file was changed after it "
        "was made, or another version (%s) made it; plan again",
        p->program);
}

/* Numbers may differ by what two compilers round differently. */
static bool same_json(const struct json *a, const struct json *b)
{
    if (json_is_obj(a)) {
        void *cursor = NULL;
        const char *key;
        const struct json *v;
        size_t n = 0, m = 0;
        while (json_next(a, &cursor, &key, &v) && ++n)
            if (!same_json(json_get(a, key), json_get(b, key)))
                return false;
        for (cursor = NULL; json_next(b, &cursor, &key, &v);)
            m++;
        return n == m;
    }
    if (json_is_arr(a)) {
        bool is_same = json_is_arr(b) && json_len(a) == json_len(b);
        for (size_t i = 0; is_same && i < json_len(a); i++)
            is_same = same_json(json_at(a, i), json_at(b, i));
        return is_same;
    }
    if (json_is_num(a) && json_is_num(b)) {
        double x = json_as_num(a, 0), y = json_as_num(b, 0);
        return fabs(x - y) <= 1e-9 * fmax(fabs(x), fabs(y));
    }
    if (!a || !b)
        return a == b; /* json_get gives NULL for null */
    char *one = json_print(a, false), *two = json_print(b, false);
    bool is_same = strcmp(one, two) == 0;
    free(one);
    free(two);
    return is_same;
}

enum rc plan_file_check_figures(
    bool *agree, const struct plan_file *p, const struct rates *rates, struct err *e)
{
    struct plan again = {.nodes = p->nodes, .strategy = p->strategy};
    struct machine mc;
    str_copy(again.stack, sizeof again.stack, job_stack(&p->job));
    enum rc rc = hardware_from_offer(&again.hw, &p->offer, p->nodes, e);
    if (!rc)
        rc = machine_make(&mc, rates, &again.hw, job_stack(&p->job), e);
    if (!rc)
        rc = estimate_make(&again.estimate, &p->job.model, &p->strategy, &mc, e);
    if (rc)
        return rc;
    bill_make(&again.bill, &p->job, &p->offer, p->nodes, &again.estimate);
    again.ignores_interruptions = bill_ignores_interruptions(&p->offer);
    struct json *prediction = plan_prediction_json(&again, rates);
    struct json *constants = machine_constants_json(&mc);
    *agree = same_json(prediction, p->prediction) && same_json(constants, p->constants);
    json_free(prediction);
    json_free(constants);
    return RC_OK;
}
