#include "planner/calibrate.h"

#include <cminpack-1/cminpack.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "planner/predict.h"

/* --- what may be turned --- */

enum knob {
    KNOB_PRODUCTS,
    KNOB_ATTENTION,
    KNOB_FABRIC,
    KNOB_FP8,
    KNOB_FP4,
    KNOB_STACK_PRODUCTS,
    KNOB_STACK_ATTENTION,
    KNOB_ELEMENTWISE,
    KNOB_LAUNCH,
    KNOB_STEP,
    KNOB_STACK_FABRIC,
    KNOB_LATENCY,
    KNOB_FABRIC_LATENCY,
    KNOB_HOST_ADAM,
    KNOB_TENSOR,
    KNOB_CONTEXT,
    KNOB_EXPERT,
    KNOB_MOE,
    KNOB_JITTER,
    KNOB_OVERLAP,
    KNOB_UNHIDDEN,
    KNOB_INNER,
    KNOB_COUNT
};

/* From wide to narrow. */
enum scope { SCOPE_ALL, SCOPE_CHIP, SCOPE_STACK, SCOPE_PAIR };

/* One thing that may be turned in one scope. log_sd: how far off the former value may well be. */
struct turn {
    enum knob knob;
    enum scope scope;
    double log_sd;
};
static const struct turn turns[] = {
    {KNOB_PRODUCTS, SCOPE_ALL, 0.20},
    {KNOB_ATTENTION, SCOPE_ALL, 0.30},
    {KNOB_FABRIC, SCOPE_ALL, 0.20},
    {KNOB_FP8, SCOPE_ALL, 0.15},
    {KNOB_LATENCY, SCOPE_ALL, 0.40},
    {KNOB_FABRIC_LATENCY, SCOPE_ALL, 0.40},
    {KNOB_ELEMENTWISE, SCOPE_ALL, 0.08},
    {KNOB_LAUNCH, SCOPE_ALL, 0.70},
    {KNOB_STEP, SCOPE_ALL, 0.70},
    {KNOB_TENSOR, SCOPE_ALL, 0.40},
    {KNOB_CONTEXT, SCOPE_ALL, 0.50},
    {KNOB_EXPERT, SCOPE_ALL, 0.40},
    {KNOB_MOE, SCOPE_ALL, 0.30},
    {KNOB_JITTER, SCOPE_ALL, 0.40},
    {KNOB_UNHIDDEN, SCOPE_ALL, 0.60},
    {KNOB_OVERLAP, SCOPE_ALL, 0.03},
    {KNOB_INNER, SCOPE_ALL, 0.40},
    {KNOB_PRODUCTS, SCOPE_CHIP, 0.12},
    {KNOB_ATTENTION, SCOPE_CHIP, 0.20},
    {KNOB_FABRIC, SCOPE_CHIP, 0.20},
    {KNOB_FP8, SCOPE_CHIP, 0.10},
    {KNOB_FP4, SCOPE_CHIP, 0.20},
    {KNOB_STACK_PRODUCTS, SCOPE_STACK, 0.15},
    {KNOB_STACK_ATTENTION, SCOPE_STACK, 0.25},
    {KNOB_STACK_FABRIC, SCOPE_STACK, 0.25},
    {KNOB_ELEMENTWISE, SCOPE_STACK, 0.20},
    {KNOB_LAUNCH, SCOPE_STACK, 0.80},
    {KNOB_TENSOR, SCOPE_STACK, 0.30},
    {KNOB_EXPERT, SCOPE_STACK, 0.40},
    {KNOB_MOE, SCOPE_STACK, 0.30},
    {KNOB_UNHIDDEN, SCOPE_STACK, 0.50},
    {KNOB_HOST_ADAM, SCOPE_STACK, 0.50},
    {KNOB_INNER, SCOPE_STACK, 0.60},
    {KNOB_STACK_PRODUCTS, SCOPE_PAIR, 0.13},
    {KNOB_STACK_ATTENTION, SCOPE_PAIR, 0.24},
};

/* Constants that a knob stands for, all multiplied alike. */
static const char *const knob_constants[KNOB_COUNT][3] = {
    [KNOB_PRODUCTS] = {"matmul_of_measured", "matmul_of_peak"},
    [KNOB_ATTENTION] = {"attention_efficiency", "attention_backward_efficiency"},
    [KNOB_FABRIC] = {"fabric_rdma_efficiency"},
    [KNOB_FP8] = {"matmul_fp8_speedup"},
    [KNOB_FP4] = {"matmul_fp4_speedup"},
    [KNOB_STACK_PRODUCTS] = {"stack_matmul"},
    [KNOB_STACK_ATTENTION] = {"stack_attention"},
    [KNOB_ELEMENTWISE] = {"memory_efficiency"},
    [KNOB_LAUNCH] = {"op_floor_s"},
    [KNOB_STEP] = {"step_overhead_s"},
    [KNOB_STACK_FABRIC] = {"stack_fabric"},
    [KNOB_LATENCY] = {"link_ramp_bytes_per_s"},
    [KNOB_FABRIC_LATENCY] = {"fabric_ramp_bytes_per_s"},
    [KNOB_HOST_ADAM] = {"host_adam_bytes_per_param"},
    [KNOB_TENSOR] = {"tensor_exposed"},
    [KNOB_CONTEXT] = {"context_exposed"},
    [KNOB_EXPERT] = {"expert_exposed"},
    [KNOB_MOE] = {"moe_efficiency"},
    [KNOB_JITTER] = {"jitter_per_doubling"},
    [KNOB_OVERLAP] = {"overlap_slowdown"},
    [KNOB_UNHIDDEN] = {"unhidden"},
    [KNOB_INNER] = {"matmul_half_k"},
};

/* The same on a machine already made. */
static void turn_knob(struct machine *m, enum knob k, double factor)
{
    double *const fields[KNOB_COUNT] = {
        [KNOB_FABRIC] = &m->fabric_bytes_per_s,
        [KNOB_FP8] = &m->matmul_efficiency[PRECISION_FP8],
        [KNOB_FP4] = &m->matmul_efficiency[PRECISION_FP4],
        [KNOB_ELEMENTWISE] = &m->memory_bytes_per_s,
        [KNOB_LAUNCH] = &m->op_floor_s,
        [KNOB_STEP] = &m->step_overhead_s,
        [KNOB_STACK_FABRIC] = &m->fabric_bytes_per_s,
        [KNOB_LATENCY] = &m->link_ramp.reference_bytes_per_s,
        [KNOB_FABRIC_LATENCY] = &m->fabric_ramp.reference_bytes_per_s,
        [KNOB_TENSOR] = &m->tensor_exposed,
        [KNOB_CONTEXT] = &m->context_exposed,
        [KNOB_EXPERT] = &m->expert_exposed,
        [KNOB_MOE] = &m->moe_efficiency,
        [KNOB_JITTER] = &m->jitter_per_doubling,
        [KNOB_OVERLAP] = &m->overlap_slowdown,
        [KNOB_UNHIDDEN] = &m->unhidden,
        [KNOB_INNER] = &m->matmul_half_k,
    };
    if (k == KNOB_PRODUCTS || k == KNOB_STACK_PRODUCTS) {
        for (int p = 0; p < PRECISION_KINDS; p++)
            m->matmul_efficiency[p] *= factor;
    } else if (k == KNOB_ATTENTION || k == KNOB_STACK_ATTENTION) {
        m->attention_efficiency *= factor;
        m->attention_backward_efficiency *= factor;
    } else if (k == KNOB_HOST_ADAM) {
        m->host_adam_bytes_per_s /= factor;
    } else {
        *fields[k] *= factor;
    }
}

/* --- parameters and runs --- */

/* A turn of one chip, stack or pair: the logarithm of its factor is fitted. */
struct parameter {
    const struct turn *turn;
    char chip[RATES_NAME], stack[RATES_NAME]; /* "*" where the scope is wider */
};

enum { MAX_RUNS = 20000, MAX_PARAMETERS = 2000, MAX_OF_ROW = 48, LEAST_RUNS = 4 };

struct run {
    const struct evidence_row *row;
    struct case_of_run *c;
    struct machine machine; /* with the former constants */
    int parameter[MAX_OF_ROW];
    int n_parameters;
    int of_chip, of_stack, of_pair; /* runs of its chip, its stack, and that on its chip */
    double weight;                  /* in the fit */
    double share;                   /* of its group's one vote */
};

struct fit {
    struct parameter *parameters;
    int n_parameters;
    struct run *runs;
    int n_runs;
};

/* Throughput within so much counts fully. */
static const double row_log_sd = 0.035, outlier_log = 0.15;

static bool uses(const struct evidence_row *r, enum knob k)
{
    const struct parallel *p = &r->strategy.parallel;
    switch (k) {
    case KNOB_HOST_ADAM:
        return r->strategy.offload & OFFLOAD_OPTIMIZER;
    case KNOB_LATENCY:
        return r->hw.ranks_per_node > 1;
    case KNOB_STACK_FABRIC:
    case KNOB_FABRIC_LATENCY:
    case KNOB_FABRIC:
        return r->hw.nodes > 1;
    case KNOB_FP8:
        return r->strategy.precision == PRECISION_FP8;
    case KNOB_FP4:
        return r->strategy.precision == PRECISION_FP4;
    case KNOB_TENSOR:
        return p->tensor > 1;
    case KNOB_CONTEXT:
        return p->context > 1;
    case KNOB_EXPERT:
        return p->expert > 1;
    case KNOB_MOE:
        return r->model.expert_params > 0;
    case KNOB_UNHIDDEN:
        return r->strategy.ranks > 1;
    case KNOB_JITTER:
        return r->strategy.ranks > 8;
    default:
        return true;
    }
}

static int parameter_of(struct fit *f, const struct turn *t, const struct evidence_row *r)
{
    const char *chip = t->scope == SCOPE_CHIP || t->scope == SCOPE_PAIR ? r->hw.gpu : "*";
    const char *stack = t->scope >= SCOPE_STACK ? r->stack : "*";
    for (int i = 0; i < f->n_parameters; i++) {
        struct parameter *p = &f->parameters[i];
        if (p->turn == t && strcmp(p->chip, chip) == 0 && strcmp(p->stack, stack) == 0)
            return i;
    }
    if (f->n_parameters == MAX_PARAMETERS)
        return -1;
    struct parameter *p = &f->parameters[f->n_parameters];
    p->turn = t;
    str_copy(p->chip, sizeof p->chip, chip);
    str_copy(p->stack, sizeof p->stack, stack);
    return f->n_parameters++;
}

static bool is_products(enum knob k)
{
    return k == KNOB_PRODUCTS || k == KNOB_STACK_PRODUCTS;
}

/* How fast products are shows in a single run, and is believed no further than its standard
 * deviation goes; all else takes several. Software without a name has nothing in common. */
static bool is_shown(const struct turn *t, const struct run *run)
{
    int runs = t->scope == SCOPE_CHIP    ? run->of_chip
               : t->scope == SCOPE_STACK ? run->of_stack
               : t->scope == SCOPE_PAIR  ? run->of_pair
                                         : LEAST_RUNS;
    if (t->scope >= SCOPE_STACK && strcmp(run->row->stack, EVIDENCE_NO_STACK) == 0)
        return false;
    return is_products(t->knob) || runs >= LEAST_RUNS;
}

static void add_parameters(struct fit *f, struct run *run)
{
    for (size_t i = 0; i < BASE_COUNT(turns) && run->n_parameters < MAX_OF_ROW; i++) {
        if (!uses(run->row, turns[i].knob) || !is_shown(&turns[i], run))
            continue;
        int p = parameter_of(f, &turns[i], run->row);
        if (p >= 0)
            run->parameter[run->n_parameters++] = p;
    }
}

/* How many runs share stack, pair and group; runs of a long table say less each. */
static void count_alike(struct fit *f)
{
    for (int i = 0; i < f->n_runs; i++) {
        struct run *run = &f->runs[i];
        int of_group = 0;
        for (int k = 0; k < f->n_runs; k++) {
            const struct evidence_row *other = f->runs[k].row;
            bool is_stack = strcmp(other->stack, run->row->stack) == 0;
            bool is_chip = strcmp(other->hw.gpu, run->row->hw.gpu) == 0;
            run->of_chip += is_chip;
            run->of_stack += is_stack;
            run->of_pair += is_stack && is_chip;
            of_group += strcmp(other->group, run->row->group) == 0;
        }
        run->weight = pow(of_group, -0.1) / row_log_sd;
        run->share = 1.0 / of_group;
    }
}

static enum rc add_runs(struct fit *f, const struct calibrate_input *in, struct err *e)
{
    const struct evidence *ev = in->evidence;
    enum rc rc = RC_OK;
    if (ev->n_rows > MAX_RUNS)
        return err_set(e, RC_LIMIT,
            "%zu runs are more than the %d that a fit takes; leave some out", ev->n_rows, MAX_RUNS);
    for (size_t i = 0; !rc && i < ev->n_rows; i++) {
        const struct evidence_row *row = &ev->rows[i];
        if ((in->is_used && !in->is_used[i]) || row->is_oom || row->tokens_per_s <= 0)
            continue;
        struct run *run = &f->runs[f->n_runs];
        run->row = row;
        rc = case_make(&run->c, row, e);
        if (!rc)
            f->n_runs++;
        if (!rc)
            rc = case_machine(&run->machine, run->c, in->base, e);
    }
    count_alike(f);
    for (int i = 0; !rc && i < f->n_runs; i++)
        add_parameters(f, &f->runs[i]);
    return rc;
}

static void fit_release(struct fit *f)
{
    for (int i = 0; i < f->n_runs; i++)
        case_free(f->runs[i].c);
    free(f->runs);
    free(f->parameters);
}

/* --- least squares --- */

/* How far each knob is turned for a run, all scopes together. */
static void sum_turns(double turned[KNOB_COUNT], const struct run *run, const struct fit *f,
    const double *x, enum scope narrowest)
{
    memset(turned, 0, KNOB_COUNT * sizeof *turned);
    for (int i = 0; i < run->n_parameters; i++) {
        const struct turn *t = f->parameters[run->parameter[i]].turn;
        if (t->scope <= narrowest)
            turned[t->knob] += x[run->parameter[i]];
    }
}

/* Logarithm of predicted over measured. */
static double log_error_turned(const struct run *run, const double turned[KNOB_COUNT])
{
    struct machine m = run->machine;
    struct prediction p;
    for (int k = 0; k < KNOB_COUNT; k++)
        if (turned[k] != 0)
            turn_knob(&m, (enum knob)k, exp(turned[k]));
    case_predict(&p, run->c, &m);
    double r = log(p.tokens_per_s / run->row->tokens_per_s);
    return isfinite(r) ? r : 3;
}

/* With the constants that would be there if nothing narrower than the scope had been measured. */
static double log_error_as(
    const struct run *run, const struct fit *f, const double *x, enum scope narrowest)
{
    double turned[KNOB_COUNT];
    sum_turns(turned, run, f, x, narrowest);
    return log_error_turned(run, turned);
}

/* Grows as the root of large errors: one wild row does not bend the rest. */
static double soften(double r, double *slope)
{
    double z = r / outlier_log, root = sqrt(1 + z * z);
    double soft = outlier_log * sqrt(2 * (root - 1));
    if (fabs(z) < 1e-4) {
        *slope = 1;
        return r;
    }
    *slope = fabs(r) / (soft * root);
    return copysign(soft, r);
}

/* Derivatives of a run's residual by its parameters: those of one knob in all scopes are equal. */
static void differentiate(double *fjac, int ldfjac, const struct fit *f, int i, const double *x)
{
    const double step = 1e-4;
    const struct run *run = &f->runs[i];
    double turned[KNOB_COUNT], by_knob[KNOB_COUNT], slope;
    bool is_known[KNOB_COUNT] = {false};
    sum_turns(turned, run, f, x, SCOPE_PAIR);
    double r = log_error_turned(run, turned);
    soften(r, &slope);
    for (int k = 0; k < run->n_parameters; k++) {
        enum knob knob = f->parameters[run->parameter[k]].turn->knob;
        if (!is_known[knob]) {
            double before = turned[knob];
            turned[knob] += step;
            by_knob[knob] = (log_error_turned(run, turned) - r) / step;
            turned[knob] = before;
            is_known[knob] = true;
        }
        fjac[i + run->parameter[k] * ldfjac] = run->weight * slope * by_knob[knob];
    }
}

/* m residuals: one per run, then one per parameter. */
static int residuals(
    void *arg, int m, int n, const double *x, double *fvec, double *fjac, int ldfjac, int iflag)
{
    const struct fit *f = arg;
    double slope;
    if (iflag == 2)
        memset(fjac, 0, sizeof *fjac * (size_t)ldfjac * (size_t)n);
    for (int i = 0; i < f->n_runs; i++) {
        if (iflag == 1)
            fvec[i] =
                f->runs[i].weight * soften(log_error_as(&f->runs[i], f, x, SCOPE_PAIR), &slope);
        else
            differentiate(fjac, ldfjac, f, i, x);
    }
    for (int j = 0; j < n; j++) {
        double sd = f->parameters[j].turn->log_sd;
        if (iflag == 1)
            fvec[f->n_runs + j] = x[j] / sd;
        else
            fjac[f->n_runs + j + j * ldfjac] = 1 / sd;
    }
    (void)m;
    return 0;
}

static void solve(const struct fit *f, double *x, int evaluations)
{
    int n = f->n_parameters, m = f->n_runs + n, nfev, njev;
    size_t un = (size_t)n, um = (size_t)m;
    double *fvec = base_calloc(um, sizeof *fvec), *fjac = base_calloc(um * un, sizeof *fjac);
    double *diag = base_calloc(un, sizeof *diag), *work = base_calloc(4 * un + um, sizeof *work);
    int *ipvt = base_calloc(un, sizeof *ipvt);
    lmder(residuals, (void *)(uintptr_t)f, m, n, x, fvec, fjac, m, 1e-5, 1e-4, 0, evaluations, diag,
        1, 10, 0, &nfev, &njev, ipvt, work, work + un, work + 2 * un, work + 3 * un, work + 4 * un);
    free(fvec);
    free(fjac);
    free(diag);
    free(work);
    free(ipvt);
}

/* A constant that the runs move by less than 1 % from its former value is none: the fit is made
 * again without it. That of products says that there were runs, and stays. */
static void drop_idle(struct fit *f, double *x)
{
    const double hardly = 0.01;
    int *place = base_alloc(((size_t)f->n_parameters + 1) * sizeof *place), n = 0;
    for (int j = 0; j < f->n_parameters; j++) {
        const struct turn *t = f->parameters[j].turn;
        bool is_kept = is_products(t->knob) || fabs(x[j]) > hardly;
        place[j] = is_kept ? n : -1;
        if (!is_kept)
            continue;
        f->parameters[n] = f->parameters[j];
        x[n++] = x[j];
    }
    f->n_parameters = n;
    for (int i = 0; i < f->n_runs; i++) {
        struct run *run = &f->runs[i];
        int kept = 0;
        for (int k = 0; k < run->n_parameters; k++)
            if (place[run->parameter[k]] >= 0)
                run->parameter[kept++] = place[run->parameter[k]];
        run->n_parameters = kept;
    }
    free(place);
}

/* --- entries --- */

struct tally {
    size_t rows;
    double sum;             /* of absolute logarithms, over rows */
    double bias;            /* sum of logarithms, over votes */
    double groups, squares; /* of votes; a wild row does not widen all bands */
    struct ranges ranges;   /* of their sizes */
};
static const double OUTLIER_SQUARE = 0.25;

static bool covers(const char *pattern, const char *word)
{
    size_t n = strlen(pattern);
    if (n > 0 && pattern[n - 1] == '*')
        return strncmp(pattern, word, n - 1) == 0;
    return strcmp(pattern, word) == 0;
}

/* Over the runs of a chip and stack, "*" for all, each group of runs as one. */
static struct tally tally_of(
    const struct fit *f, const double *x, const char *chip, const char *stack, enum scope narrowest)
{
    struct tally t = {0};
    for (int i = 0; i < f->n_runs; i++) {
        const struct run *run = &f->runs[i];
        if (!covers(chip, run->row->hw.gpu) || !covers(stack, run->row->stack))
            continue;
        double r = log_error_as(run, f, x, narrowest);
        struct sizes sizes =
            sizes_of(&run->row->model, (double)model_params(&run->row->model), &run->row->strategy);
        ranges_add(&t.ranges, &sizes);
        t.rows++;
        t.sum += fabs(r);
        t.groups += run->share;
        t.bias += run->share * fmax(-0.5, fmin(0.5, r));
        t.squares += run->share * fmin(r * r, OUTLIER_SQUARE);
    }
    return t;
}

/* Spread of predictions around measurements of a group not seen yet: what the groups show, leaning
 * on what is usual when they are few, and wider the fewer they are, for the constants follow them.
 */
static double spread(struct tally t, double usual, double usual_groups)
{
    double n = t.groups + usual_groups;
    return sqrt((1 + 1 / n) * (t.squares + usual_groups * usual * usual) / n);
}

/* What is written down; more would be noise. */
static double four_digits(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.4g", x);
    return strtod(text, NULL);
}

static struct json *new_entry(const struct calibrate_input *in, const char *chip, const char *stack,
    struct tally t, struct json *values)
{
    struct json *en = json_obj();
    bool is_unknown = strcmp(chip, "*") == 0 && strcmp(stack, "*") == 0;
    json_add_str(en, "device", "gpu");
    json_add_str(en, "chip", chip);
    json_add_str(en, "stack", stack);
    json_add_str(en, "date", in->date);
    json_add_int(en, "rows", (int64_t)t.rows);
    json_add_num(en, "residual", t.rows ? four_digits(t.sum / (double)t.rows) : NAN);
    json_add_bool(en, "prior", is_unknown);
    json_add_bool(en, "fitted", true);
    json_add_str(en, "source", in->source);
    json_add(en, "ranges", ranges_json(&t.ranges));
    json_add(en, "values", values);
    return en;
}

/* What a constant is multiplied by where chip and stack are those of a parameter: its own factor
 * and those of wider scopes. */
static double log_factor_of(const struct fit *f, const double *x, const struct parameter *p)
{
    double sum = 0;
    for (int k = 0; k < f->n_parameters; k++) {
        const struct parameter *q = &f->parameters[k];
        bool is_wider = q->turn->scope <= p->turn->scope && covers(q->chip, p->chip) &&
                        covers(q->stack, p->stack);
        if (q->turn->knob == p->turn->knob && is_wider)
            sum += x[k];
    }
    return sum;
}

/* Spread of the predictions of a scope. Usual is what groups left out of the fit show; where few
 * runs are behind a scope's constants, what the next wider one shows. */
static double spread_of(struct tally t, enum scope scope)
{
    static const struct {
        double usual, groups;
    } lean[] = {{0.20, 4}, {0.20, 4}, {0.20, 6}, {0.065, 3}};
    enum scope shown = scope > SCOPE_CHIP && t.rows < BASIS_ROWS ? scope - 1 : scope;
    return four_digits(spread(t, lean[shown].usual, lean[shown].groups));
}

/* Products of a stack that nobody measured, over the chip's: such that its predictions are neither
 * fast nor slow on average. Products are about four fifths of a step. */
static double typical_stack(struct tally t)
{
    return exp(-t.bias / t.groups / 0.8);
}

/* All fitted constants of one chip and stack as an entry. */
static struct json *entry_of(const struct fit *f, const double *x, const struct calibrate_input *in,
    const struct parameter *of)
{
    struct json *values = json_obj();
    enum scope scope = of->turn->scope;
    for (int j = 0; j < f->n_parameters; j++) {
        const struct parameter *p = &f->parameters[j];
        if (strcmp(p->chip, of->chip) != 0 || strcmp(p->stack, of->stack) != 0)
            continue;
        double factor = exp(log_factor_of(f, x, p));
        for (int k = 0; k < 3 && knob_constants[p->turn->knob][k]; k++) {
            const char *name = knob_constants[p->turn->knob][k];
            double base = rates_number(in->base, "gpu", p->chip, p->stack, name);
            json_add_num(values, name, four_digits(base * factor));
        }
    }
    /* a stack that nobody measured still runs on a known chip */
    enum scope known = scope == SCOPE_ALL ? SCOPE_CHIP : scope;
    struct tally t = tally_of(f, x, of->chip, of->stack, known);
    if (scope == SCOPE_ALL)
        json_add_num(values, "stack_matmul", four_digits(typical_stack(t)));
    if (scope != SCOPE_CHIP)
        json_add_num(values, "time_log_sd", spread_of(t, scope));
    return new_entry(in, of->chip, of->stack, t, values);
}

static bool has_entry(const struct json *list, const char *chip, const char *stack)
{
    for (size_t i = 0; i < json_len(list); i++)
        if (strcmp(json_str(json_at(list, i), "chip", ""), chip) == 0 &&
            strcmp(json_str(json_at(list, i), "stack", ""), stack) == 0 &&
            json_bool(json_at(list, i), "fitted", false))
            return true;
    return false;
}

static struct json *ids_of(const struct fit *f)
{
    struct json *ids = json_arr();
    for (int i = 0; i < f->n_runs; i++)
        json_push_str(ids, f->runs[i].row->id);
    return ids;
}

/* From wide to narrow, in the order in which the rows name them: later entries win. */
static struct json *document_of(
    const struct fit *f, const double *x, const struct calibrate_input *in)
{
    struct json *doc = json_obj(), *list = json_arr();
    json_add_str(doc, "schema", "calibration/1");
    for (int scope = SCOPE_ALL; scope <= SCOPE_PAIR; scope++)
        for (int j = 0; j < f->n_parameters; j++) {
            const struct parameter *p = &f->parameters[j];
            if ((int)p->turn->scope == scope && !has_entry(list, p->chip, p->stack))
                json_push(list, entry_of(f, x, in, p));
        }
    json_add(doc, "entries", list);
    json_add(doc, "seen", ids_of(f));
    return doc;
}

enum rc calibrate_fit(struct calibrate_result *out, const struct calibrate_input *in, struct err *e)
{
    struct fit f = {0};
    f.parameters = base_calloc(MAX_PARAMETERS, sizeof *f.parameters);
    f.runs = base_calloc(in->evidence->n_rows + 1, sizeof *f.runs);
    double *x = base_calloc(MAX_PARAMETERS, sizeof *x);
    memset(out, 0, sizeof *out);
    enum rc rc = add_runs(&f, in, e);
    if (!rc && f.n_runs == 0)
        rc = err_set(e, RC_INVALID, "no row says how fast it ran: nothing to calibrate with");
    if (!rc) {
        solve(&f, x, 12);
        drop_idle(&f, x);
        solve(&f, x, 45);
        struct tally t = tally_of(&f, x, "*", "*", SCOPE_PAIR);
        out->document = document_of(&f, x, in);
        out->rows = t.rows;
        out->residual = t.sum / (double)t.rows;
        out->constants = (size_t)f.n_parameters;
        rc = rates_with(&out->rates, in->base, out->document, e);
    }
    if (rc)
        calibrate_release(out);
    fit_release(&f);
    free(x);
    return rc;
}

void calibrate_release(struct calibrate_result *r)
{
    rates_free(r->rates);
    json_free(r->document);
    memset(r, 0, sizeof *r);
}
