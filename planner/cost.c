#include "planner/cost.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/units.h"
#include "inventory/offer.h"

static const char *const line_names[] = {
#define X(name, word) word,
    BILL_MAP(X)
#undef X
};

static const char *const cost_names[] = {
#define X(name, word) word,
    COST_MAP(X)
#undef X
};

struct wear wear_make(const struct estimate *x, const struct bill *b)
{
    double steps_s = b->line_s[BILL_MID][BILL_STEPS], days = b->run_s[BILL_MID] / 86400;
    struct wear w = {.written_bytes = (double)x->disk_written_bytes * steps_s / x->step_s};
    w.drive_writes =
        x->disk_capacity_bytes > 0 ? w.written_bytes / (double)x->disk_capacity_bytes : NAN;
    w.drive_writes_per_day = w.drive_writes / days;
    return w;
}

const char *bill_line_name(enum bill_line l)
{
    return line_names[l];
}

const char *cost_line_name(enum cost_line l)
{
    return cost_names[l];
}

/* --- seconds --- */

/* Judged, not measured: minutes until a rented node answers, copying the program (GPU nodes also
 * get libraries), and the first execution of every shape and collective. */
static const double boot_s = 300, owned_boot_s = 0;
static const double staging_s[2] = {5, 60}, warm_up_s[2] = {2, 30}; /* CPU, GPU */

/* Of the products of a step a forward pass is a third; where activations are computed again it is
 * less, and this a little too long. */
static const double forward_share = 1.0 / 3;

static double evaluation_s(const struct job *j, double step_s, double update_s)
{
    double steps = (double)job_eval_tokens(j) / (double)j->global_batch_tokens;
    return (double)job_evaluations(j) * (steps * step_s * forward_share + update_s);
}

/* All but failures. interval_s: 0 for no save before the last. */
static void fill_seconds(double line[BILL_LINES], const struct job *j, const struct offer *o,
    double step_s, struct save_s save, double interval_s)
{
    bool is_gpu = o->device == DEVICE_GPU;
    double steps = (double)job_steps(j) * step_s;
    double saves = interval_s > 0 ? floor(steps / interval_s) : 0;
    memset(line, 0, BILL_LINES * sizeof *line);
    line[BILL_BOOT] = o->market == MARKET_OWNED ? owned_boot_s : boot_s;
    line[BILL_STAGING] = staging_s[is_gpu];
    line[BILL_DATA] = (double)j->data_bytes / j->upload_bytes_per_s;
    line[BILL_WEIGHTS] = (double)job_weights_bytes(j) / j->upload_bytes_per_s;
    line[BILL_TOKENISING] = j->tokenising_s;
    line[BILL_EVALUATION] = evaluation_s(j, step_s, save.update);
    line[BILL_WARM_UP] = warm_up_s[is_gpu] + step_s;
    line[BILL_STEPS] = steps;
    line[BILL_CHECKPOINTS] = (save.stall > 0 ? saves * save.stall : 0) + save.write;
}

static double sum(const double line[BILL_LINES])
{
    double s = 0;
    for (int i = 0; i < BILL_LINES; i++)
        s += line[i];
    return s;
}

double bill_run_s(const struct job *j, const struct offer *o, double step_s, struct save_s save)
{
    double line[BILL_LINES];
    fill_seconds(line, j, o, step_s, save, j->checkpoint_every_s);
    return sum(line);
}

/* --- failures --- */

/* Unexpected interruptions per GPU and second of Llama 3's training: 419 in 54 days on 16,384 H100
 * (arXiv 2407.21783, section 3.3.4), 1.97e-5 an hour. Rented fleets are worse, by how much is
 * judged. */
static const double failures_per_gpu_s = 419.0 / (54.0 * 86400 * 16384);
static const double fleet_factor[BILL_CASES] = {1, 3, 5};
/* There 58.7 % were the GPUs' own; a node without GPUs keeps the rest of what a node of eight had.
 */
static const double gpus_of_cpu_node = 8 * (1 - 0.587);
/* Saving more often loads disks and network in ways that no line here holds. */
static const double least_interval_s = 600;
/* Nor is more than this left to luck where the job does not say: judged. */
static const double most_interval_s = 7200;
/* The formula leaves out what is lost while making up for losses: at this share it is a tenth of
 * the run, and grows without bound soon after. */
static const double most_lost = 0.5;

/* How often all nodes together stop, and what that costs. */
struct stops {
    double failures_per_s, interruptions_per_s;
    double restart_s;     /* with replace_s */
    double replace_s;     /* until a bare node is as far as the others were */
    double notice_save_s; /* INFINITY: none fits into the notice */
};

/* A rented replacement is bare; an owned node is restarted. */
static struct stops stops_of(const double line[BILL_LINES], const struct job *j,
    const struct offer *o, int64_t nodes, struct save_s save, enum bill_case c)
{
    double per_node =
        o->device == DEVICE_CPU ? gpus_of_cpu_node : fmax(1, (double)o->gpus_per_node);
    double times = fleet_factor[c] * (j->failures_times > 0 ? j->failures_times : 1);
    bool is_owned = o->market == MARKET_OWNED, is_known = o->interruptions_per_hour > 0;
    double bare = line[BILL_BOOT] + line[BILL_STAGING] + line[BILL_DATA];
    double save_s = save.stall + save.write;
    return (struct stops){.failures_per_s = (double)nodes * per_node * failures_per_gpu_s * times,
        .interruptions_per_s = is_known ? (double)nodes * o->interruptions_per_hour / 3600 : 0,
        .replace_s = is_owned ? 0 : bare,
        .restart_s = (is_owned ? 0 : bare) + line[BILL_WARM_UP] + save.write,
        .notice_save_s = save_s < o->notice_s ? save_s : INFINITY};
}

/* Of every second of steps, when a failure undoes so many seconds. */
static double lost_share(const struct stops *s, double undone_s)
{
    return s->failures_per_s * (undone_s + s->restart_s) +
           s->interruptions_per_s * (fmin(undone_s, s->notice_save_s) + s->restart_s);
}

double bill_optimal_interval_s(double stall_s, double between_stops_s, double restart_s)
{
    double m = between_stops_s + restart_s;
    return stall_s + sqrt(2 * m * stall_s + stall_s * stall_s);
}

/* By the stops that undo work. A save is over before the next one begins. */
static double optimal_interval_s(const struct stops *s, struct save_s save, double step_s)
{
    double per_s = s->failures_per_s + (isinf(s->notice_save_s) ? s->interruptions_per_s : 0);
    double optimal = bill_optimal_interval_s(save.stall, 1 / per_s, s->restart_s);
    return fmax(fmax(optimal, least_interval_s), fmax(step_s, save.stall + save.write));
}

static void set_interval(
    struct bill *b, const struct job *j, const struct stops *mid, struct save_s save, double step_s)
{
    b->optimal_interval_s = optimal_interval_s(mid, save, step_s);
    double most = fmax(most_interval_s, fmax(step_s, save.stall + save.write));
    b->interval_s =
        j->checkpoint_every_s > 0 ? j->checkpoint_every_s : ceil(fmin(b->optimal_interval_s, most));
    b->between_stops_s = 1 / (mid->failures_per_s + mid->interruptions_per_s);
    b->restart_s = mid->restart_s;
    b->saves_in_notice = isfinite(mid->notice_save_s);
    b->never_ends = lost_share(mid, fmin(b->interval_s, (double)job_steps(j) * step_s)) > most_lost;
}

static void add_failures(struct bill *b, int c, const struct stops *s)
{
    double steps = b->line_s[c][BILL_STEPS];
    b->stops[c] = steps * (s->failures_per_s + s->interruptions_per_s);
    b->line_s[c][BILL_REPLACEMENTS] = b->stops[c] * s->replace_s;
    b->line_s[c][BILL_FAILURES] =
        steps * lost_share(s, fmin(b->interval_s, steps) / 2) - b->line_s[c][BILL_REPLACEMENTS];
}

/* Paid seconds: whole billing units, at least the minimum. */
static double billed_s(const struct offer *o, double run_s)
{
    double unit = o->granularity_s > 0 ? o->granularity_s : 1;
    double billed = ceil(run_s / unit - 1e-9) * unit;
    if (o->minimum_s > 0)
        billed = fmax(billed, o->minimum_s);
    if (o->min_hours > 0)
        billed = fmax(billed, o->min_hours * 3600);
    return billed;
}

/* --- money --- */

/* Saturates at what no bill may hold; all lines together do not overflow. */
static int64_t to_micro(double micro)
{
    const double most = (double)BILL_MAX_MICRO_USD;
    return micro < most ? llround(micro) : (int64_t)most;
}

static double kept_gib(
    const struct bill *b, int c, const struct job *j, int64_t nodes, const struct estimate *x)
{
    bool has_partner = j->store[0] ? strcmp(j->store, "local+partner") == 0 : nodes > 1;
    double saves = b->interval_s > 0 ? floor(b->line_s[c][BILL_STEPS] / b->interval_s) : 0;
    double kept = fmin(JOB_CHECKPOINTS_KEPT, saves + 1);
    return kept * (has_partner ? 2 : 1) * (double)x->checkpoint_bytes / (double)(1 << 30);
}

/* What is billed beside hours of nodes. */
static void price_extras(struct bill *b, int c, const struct job *j, const struct offer *o,
    int64_t nodes, const struct estimate *x)
{
    const double hours_of_month = 730;
    double home_gib = (double)x->checkpoint_bytes / (double)(1 << 30);
    double gib_months = kept_gib(b, c, j, nodes, x) * b->run_s[c] / 3600 / hours_of_month;
    int64_t *line = b->line_micro_usd[c];
    line[COST_SETUP] = to_micro(fmax(0, (double)o->setup_usd_micro) * (double)nodes);
    line[COST_STORAGE] = to_micro(fmax(0, (double)o->storage_usd_micro_per_gib_month) * gib_months);
    line[COST_EGRESS] = to_micro(fmax(0, (double)o->egress_usd_micro_per_gib) * home_gib);
}

/* Rounding up to whole units and minimums may take more from one case than from the next, so what
 * is left for training and the lines that grow with it is shared by its growth: all rise, and sum
 * to it. */
static void share_rest(struct bill *b, int c, int64_t rest, double rate)
{
    static const struct {
        enum cost_line cost;
        enum bill_line time;
    } growing[] = {{COST_EVALUATION, BILL_EVALUATION}, {COST_FAILURES, BILL_FAILURES},
        {COST_REPLACEMENTS, BILL_REPLACEMENTS}};
    const int64_t *low = c > 0 ? b->line_micro_usd[c - 1] : NULL;
    int64_t *line = b->line_micro_usd[c], growth = rest - (low ? low[COST_TRAINING] : 0);
    for (size_t i = 0; i < BASE_COUNT(growing); i++)
        growth -= low ? low[growing[i].cost] : 0;
    line[COST_TRAINING] = rest;
    for (size_t i = 0; i < BASE_COUNT(growing); i++) {
        int64_t least = low ? low[growing[i].cost] : 0;
        int64_t wanted = to_micro(b->line_s[c][growing[i].time] * rate) - least;
        int64_t more = wanted < 0 ? 0 : wanted < growth ? wanted : growth;
        line[growing[i].cost] = least + more;
        line[COST_TRAINING] -= least + more;
        growth -= more;
    }
}

static void price_hours(struct bill *b, int c, const struct offer *o, int64_t nodes)
{
    static const struct {
        enum cost_line cost;
        enum bill_line time;
    } same[] = {{COST_BOOT, BILL_BOOT}, {COST_STAGING, BILL_STAGING}, {COST_DATA, BILL_DATA},
        {COST_WEIGHTS, BILL_WEIGHTS}, {COST_TOKENISING, BILL_TOKENISING}};
    double rate = (double)o->price_usd_micro_per_hour * (double)nodes / 3600;
    int64_t *line = b->line_micro_usd[c], rest = to_micro(b->billed_s[c] * rate);
    for (size_t i = 0; i < BASE_COUNT(same); i++) {
        int64_t part = to_micro(b->line_s[c][same[i].time] * rate);
        line[same[i].cost] = part < rest ? part : rest;
        rest -= line[same[i].cost];
    }
    share_rest(b, c, rest, rate);
}

static void price_all(struct bill *b, const struct job *j, const struct offer *o, int64_t nodes,
    const struct estimate *x)
{
    for (int c = 0; c < BILL_CASES; c++) {
        price_hours(b, c, o, nodes);
        price_extras(b, c, j, o, nodes, x);
    }
    for (int c = 0; c < BILL_CASES; c++) {
        /* a replacement is set up as the node it replaces was */
        b->line_micro_usd[c][COST_REPLACEMENTS] +=
            to_micro(fmax(0, (double)o->setup_usd_micro) * b->stops[c]);
        for (int l = 0; l < COST_LINES; l++)
            b->total_micro_usd[c] += b->line_micro_usd[c][l];
    }
}

bool bill_is_absurd(const struct bill *b)
{
    return !(b->billed_s[BILL_HIGH] < BILL_MAX_S) ||
           (b->is_priced && b->total_micro_usd[BILL_HIGH] >= BILL_MAX_MICRO_USD);
}

static void make(struct bill *out, const struct job *j, const struct offer *o, int64_t nodes,
    const struct estimate *x, bool is_least)
{
    const double step_s[BILL_CASES] = {x->step_low_s, x->step_s, x->step_high_s};
    const struct save_s save = estimate_saves(x);
    struct stops stops[BILL_CASES];
    memset(out, 0, sizeof *out);
    out->is_priced = o->price_usd_micro_per_hour >= 0;
    out->interval_s = j->checkpoint_every_s;
    for (int c = 0; c < BILL_CASES; c++) {
        fill_seconds(out->line_s[c], j, o, step_s[c], save, 0);
        stops[c] = stops_of(out->line_s[c], j, o, nodes, save, (enum bill_case)c);
    }
    if (!is_least)
        set_interval(out, j, &stops[BILL_MID], save, x->step_s);
    for (int c = 0; c < BILL_CASES; c++) {
        fill_seconds(out->line_s[c], j, o, step_s[c], save, out->interval_s);
        if (!is_least)
            add_failures(out, c, &stops[c]);
        out->run_s[c] = sum(out->line_s[c]);
        out->billed_s[c] = billed_s(o, out->run_s[c]);
    }
    if (out->is_priced)
        price_all(out, j, o, nodes, x);
}

void bill_make(struct bill *out, const struct job *j, const struct offer *o, int64_t nodes,
    const struct estimate *x)
{
    make(out, j, o, nodes, x, false);
}

void bill_make_least(struct bill *out, const struct job *j, const struct offer *o, int64_t nodes,
    const struct estimate *x)
{
    make(out, j, o, nodes, x, true);
}

bool bill_ignores_interruptions(const struct offer *o)
{
    return o->market == MARKET_SPOT && o->interruptions_per_hour < 0;
}

/* --- JSON --- */

static const char *const case_names[] = {"low", "mid", "high"};

static struct json *hours_json(const double s[BILL_CASES])
{
    struct json *v = json_obj();
    for (int c = 0; c < BILL_CASES; c++)
        json_add_num(v, case_names[c], s[c] / 3600);
    return v;
}

struct json *bill_hours_json(const struct bill *b)
{
    struct json *v = hours_json(b->run_s), *lines = json_obj();
    for (int l = 0; l < BILL_LINES; l++) {
        double s[BILL_CASES];
        for (int c = 0; c < BILL_CASES; c++)
            s[c] = b->line_s[c][l];
        json_add(lines, line_names[l], hours_json(s));
    }
    json_add(v, "lines", lines);
    json_add(v, "billed", hours_json(b->billed_s));
    return v;
}

struct json *bill_cost_json(const struct bill *b)
{
    if (!b->is_priced)
        return NULL;
    struct json *v = json_obj(), *lines = json_obj();
    for (int c = 0; c < BILL_CASES; c++)
        json_add_num(v, case_names[c], (double)b->total_micro_usd[c] / (double)USD_MICRO);
    for (int l = 0; l < COST_LINES; l++) {
        struct json *line = json_obj();
        for (int c = 0; c < BILL_CASES; c++)
            json_add_num(line, case_names[c], (double)b->line_micro_usd[c][l] / (double)USD_MICRO);
        json_add(lines, cost_names[l], line);
    }
    json_add(v, "lines", lines);
    return v;
}

struct json *bill_stops_json(const struct bill *b)
{
    struct json *v = json_obj(), *expected = json_obj();
    for (int c = 0; c < BILL_CASES; c++)
        json_add_num(expected, case_names[c], b->stops[c]);
    json_add(v, "expected", expected);
    json_add_num(v, "mean_seconds_between", b->between_stops_s);
    json_add_num(v, "restart_seconds", b->restart_s);
    json_add_bool(v, "saved_in_notice", b->saves_in_notice);
    return v;
}
