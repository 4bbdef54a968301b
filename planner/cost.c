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

static void fill_seconds(double line[BILL_LINES], const struct job *j, const struct offer *o,
    double step_s, double stall_s, double write_s)
{
    bool is_gpu = o->device == DEVICE_GPU;
    double steps = (double)job_steps(j) * step_s;
    double saves = floor(steps / j->checkpoint_every_s);
    memset(line, 0, BILL_LINES * sizeof *line);
    line[BILL_BOOT] = o->market == MARKET_OWNED ? owned_boot_s : boot_s;
    line[BILL_STAGING] = staging_s[is_gpu];
    line[BILL_DATA] = (double)j->data_bytes / j->upload_bytes_per_s;
    line[BILL_WARM_UP] = warm_up_s[is_gpu] + step_s;
    line[BILL_STEPS] = steps;
    line[BILL_CHECKPOINTS] = (stall_s > 0 ? saves * stall_s : 0) + write_s;
}

static double sum(const double line[BILL_LINES])
{
    double s = 0;
    for (int i = 0; i < BILL_LINES; i++)
        s += line[i];
    return s;
}

double bill_run_s(
    const struct job *j, const struct offer *o, double step_s, double stall_s, double write_s)
{
    double line[BILL_LINES];
    fill_seconds(line, j, o, step_s, stall_s, write_s);
    return sum(line);
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

/* Saturates above what any bill may hold. */
static int64_t to_micro(double micro)
{
    const double most = 2.0 * (double)BILL_MAX_MICRO_USD;
    return micro < most ? llround(micro) : (int64_t)most;
}

static void price_case(struct bill *b, int c, const struct offer *o, int64_t nodes)
{
    static const struct {
        enum cost_line cost;
        enum bill_line time;
    } same[] = {{COST_BOOT, BILL_BOOT}, {COST_STAGING, BILL_STAGING}, {COST_DATA, BILL_DATA}};
    double rate = (double)o->price_usd_micro_per_hour * (double)nodes / 3600;
    double fee = o->setup_usd_micro > 0 ? (double)o->setup_usd_micro * (double)nodes : 0;
    int64_t *line = b->line_micro_usd[c], rest = to_micro(b->billed_s[c] * rate);
    b->total_micro_usd[c] = rest + to_micro(fee);
    line[COST_SETUP] = to_micro(fee);
    for (size_t i = 0; i < BASE_COUNT(same); i++) {
        int64_t part = to_micro(b->line_s[c][same[i].time] * rate);
        line[same[i].cost] = part < rest ? part : rest;
        rest -= line[same[i].cost];
    }
    line[COST_TRAINING] = rest;
}

bool bill_is_absurd(const struct bill *b)
{
    return !(b->billed_s[BILL_HIGH] < BILL_MAX_S) ||
           (b->is_priced && b->total_micro_usd[BILL_HIGH] >= BILL_MAX_MICRO_USD);
}

void bill_make(struct bill *out, const struct job *j, const struct offer *o, int64_t nodes,
    const struct estimate *x)
{
    const double step_s[BILL_CASES] = {x->step_low_s, x->step_s, x->step_high_s};
    memset(out, 0, sizeof *out);
    out->is_priced = o->price_usd_micro_per_hour >= 0;
    for (int c = 0; c < BILL_CASES; c++) {
        fill_seconds(out->line_s[c], j, o, step_s[c], x->checkpoint_stall_s, x->checkpoint_s);
        out->run_s[c] = sum(out->line_s[c]);
        out->billed_s[c] = billed_s(o, out->run_s[c]);
        if (out->is_priced)
            price_case(out, c, o, nodes);
    }
}

bool bill_ignores_interruptions(const struct offer *o)
{
    return o->market == MARKET_SPOT || o->interruptions_per_hour > 0;
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
