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

const char *bill_line_name(enum bill_line l)
{
    return line_names[l];
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
    line[BILL_CHECKPOINTS] = saves * stall_s + write_s;
}

static double sum(const double line[BILL_LINES])
{
    double s = 0;
    for (int i = 0; i < BILL_SETUP; i++)
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

static int64_t to_micro(double micro)
{
    return micro < (double)BILL_HUGE_MICRO_USD ? llround(micro) : BILL_HUGE_MICRO_USD;
}

/* Rounds running totals, so that lines sum to the total to the micro-dollar. */
static void price_case(struct bill *b, int c, const struct offer *o, int64_t nodes)
{
    double rate = (double)o->price_usd_micro_per_hour * (double)nodes / 3600;
    double fee = o->setup_usd_micro > 0 ? (double)o->setup_usd_micro * (double)nodes : 0;
    double running = 0;
    int64_t before = 0;
    for (int l = 0; l < BILL_LINES; l++) {
        running += l == BILL_SETUP ? fee : b->line_s[c][l] * rate;
        int64_t now = to_micro(running);
        b->line_micro_usd[c][l] = now - before;
        before = now;
    }
    b->total_micro_usd[c] = before;
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
        out->line_s[c][BILL_ROUNDING] = fmax(0, billed_s(o, out->run_s[c]) - out->run_s[c]);
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

struct json *bill_hours_json(const struct bill *b)
{
    struct json *v = json_obj(), *lines = json_obj();
    for (int c = 0; c < BILL_CASES; c++)
        json_add_num(v, case_names[c], b->run_s[c] / 3600);
    for (int l = 0; l < BILL_SETUP; l++) {
        struct json *line = json_obj();
        for (int c = 0; c < BILL_CASES; c++)
            json_add_num(line, case_names[c], b->line_s[c][l] / 3600);
        json_add(lines, line_names[l], line);
    }
    json_add(v, "lines", lines);
    return v;
}

struct json *bill_cost_json(const struct bill *b)
{
    if (!b->is_priced)
        return NULL;
    struct json *v = json_obj(), *lines = json_obj();
    for (int c = 0; c < BILL_CASES; c++)
        json_add_num(v, case_names[c], (double)b->total_micro_usd[c] / (double)USD_MICRO);
    for (int l = 0; l < BILL_LINES; l++) {
        struct json *line = json_obj();
        for (int c = 0; c < BILL_CASES; c++)
            json_add_num(line, case_names[c], (double)b->line_micro_usd[c][l] / (double)USD_MICRO);
        json_add(lines, line_names[l], line);
    }
    json_add(v, "lines", lines);
    return v;
}
