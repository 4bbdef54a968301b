#include "planner/rates.h"

#include <math.h>

#include "base/alloc.h"
#include "base/embed.h"
#include "base/json.h"
#include "base/str.h"
#include "planner/constants.h"

EMBED(calibration_json);
EMBED(fitted_json);

enum { MAX_ENTRIES = 10000, MAX_FILE_BYTES = 16 << 20 };

/* --- calibration --- */

/* A pattern is a word, "*", or a word ending in '*'. */
static bool matches(const char *pattern, const char *word)
{
    size_t n = strlen(pattern);
    if (n > 0 && pattern[n - 1] == '*')
        return strncmp(pattern, word, n - 1) == 0;
    return strcmp(pattern, word) == 0;
}

static enum rc read_entry(struct rates_entry *out, const struct json *v, struct err *e)
{
    const struct {
        const char *key;
        const char **field;
    } words[] = {
        {"device", &out->device},
        {"chip", &out->chip},
        {"stack", &out->stack},
        {"source", &out->source},
        {"date", &out->date},
    };
    enum rc rc = RC_OK;
    for (size_t i = 0; !rc && i < BASE_COUNT(words); i++)
        rc = json_need_str(v, words[i].key, words[i].field, e);
    if (!rc)
        rc = json_need_int(v, "rows", 0, INT32_MAX, &out->rows, e);
    if (!rc)
        rc = json_need_obj(v, "values", &out->values, e);
    if (!rc)
        rc = constants_check(out->values, e);
    if (!rc)
        rc = ranges_from_json(&out->ranges, json_get(v, "ranges"), e);
    out->residual = json_num(v, "residual", -1);
    out->is_prior = json_bool(v, "prior", true);
    return rc;
}

static enum rc read_entries(struct rates *r, struct err *e)
{
    const struct json *list;
    enum rc rc = json_need_arr(r->root, "entries", &list, e);
    if (rc)
        return rc;
    if (json_len(list) > MAX_ENTRIES)
        return err_set(e, RC_LIMIT, "more than %d calibration entries", MAX_ENTRIES);
    r->entries = base_calloc(json_len(list) + 1, sizeof *r->entries);
    for (; !rc && r->n < json_len(list); r->n++) {
        rc = read_entry(&r->entries[r->n], json_at(list, r->n), e);
        if (rc)
            err_in(e, "calibration entry %zu", r->n + 1);
    }
    return rc;
}

static int by_name(const void *pa, const void *pb)
{
    const struct rates_constant *a = pa, *b = pb;
    int c = strcmp(a->name, b->name);
    return c ? c : (a->entry > b->entry) - (a->entry < b->entry);
}

/* All constants of all entries, sorted: machines look up dozens each. */
static void index_constants(struct rates *r)
{
    size_t cap = 0;
    for (size_t i = 0; i < r->n; i++) {
        void *cursor = NULL;
        struct rates_constant c = {.entry = i};
        while (json_next(r->entries[i].values, &cursor, &c.name, &c.value)) {
            if (!json_get(r->entries[i].values, c.name))
                continue; /* null */
            BASE_GROW(r->constants, cap, r->n_constants + 1);
            r->constants[r->n_constants++] = c;
        }
    }
    if (r->n_constants)
        qsort(r->constants, r->n_constants, sizeof *r->constants, by_name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void index_seen(struct rates *r)
{
    const struct json *ids = json_get(r->root, "seen");
    r->seen = base_calloc(json_len(ids) + 1, sizeof *r->seen);
    for (; r->n_seen < json_len(ids); r->n_seen++)
        r->seen[r->n_seen] = json_as_str(json_at(ids, r->n_seen), "");
    if (r->n_seen)
        qsort(r->seen, r->n_seen, sizeof *r->seen, by_text);
}

bool rates_have_seen(const struct rates *r, const char *id)
{
    return r->n_seen && bsearch(&id, r->seen, r->n_seen, sizeof *r->seen, by_text);
}

enum rc rates_from_json(struct rates **out, struct json *root, struct err *e)
{
    struct rates *r = base_calloc(1, sizeof *r);
    r->root = root;
    enum rc rc = RC_OK;
    if (strcmp(json_str(root, "schema", ""), "calibration/1") != 0)
        rc = err_set(e, RC_INVALID, "not a calibration/1 document");
    if (!rc)
        rc = read_entries(r, e);
    if (rc) {
        rates_free(r);
        return rc;
    }
    index_constants(r);
    index_seen(r);
    *out = r;
    return RC_OK;
}

static void push_all(struct json *list, const struct json *document, const char *name)
{
    const struct json *from = json_get(document, name);
    for (size_t i = 0; i < json_len(from); i++)
        json_push(list, json_clone(json_at(from, i)));
}

enum rc rates_with(
    struct rates **out, const struct rates *r, const struct json *more, struct err *e)
{
    struct json *root = json_obj(), *list = json_arr(), *seen = json_arr();
    struct rates *checked = NULL;
    enum rc rc = rates_from_json(&checked, json_clone(more), e);
    push_all(list, r->root, "entries");
    push_all(list, more, "entries");
    push_all(seen, r->root, "seen");
    push_all(seen, more, "seen");
    json_add_str(root, "schema", "calibration/1");
    json_add(root, "entries", list);
    json_add(root, "seen", seen);
    rates_free(checked);
    if (rc) {
        json_free(root);
        return rc;
    }
    return rates_from_json(out, root, e);
}

enum rc rates_judged(struct rates **out, struct err *e)
{
    struct json *root = NULL;
    enum rc rc =
        json_parse(&root, (const char *)embed_calibration_json, embed_calibration_json_len, e);
    if (!rc)
        rc = rates_from_json(out, root, e);
    return rc ? err_in(e, "built-in calibration") : RC_OK;
}

enum rc rates_builtin(struct rates **out, struct err *e)
{
    struct rates *judged = NULL;
    struct json *fitted = NULL;
    enum rc rc = rates_judged(&judged, e);
    if (!rc)
        rc = json_parse(&fitted, (const char *)embed_fitted_json, embed_fitted_json_len, e);
    if (!rc)
        rc = rates_with(out, judged, fitted, e);
    json_free(fitted);
    rates_free(judged);
    return rc;
}

enum rc rates_with_file(struct rates **out, const char *path, struct err *e)
{
    struct rates *builtin = NULL;
    struct json *more = NULL;
    enum rc rc = json_read(&more, path, MAX_FILE_BYTES, e);
    if (!rc)
        rc = rates_builtin(&builtin, e);
    if (!rc)
        rc = rates_with(out, builtin, more, e);
    json_free(more);
    rates_free(builtin);
    return rc ? err_in(e, "calibration '%s'", path) : RC_OK;
}

void rates_free(struct rates *r)
{
    if (!r)
        return;
    json_free(r->root);
    free(r->entries);
    free(r->constants);
    free(r->seen);
    free(r);
}

/* --- looking constants up --- */

struct lookup {
    const struct rates *r;
    const char *device, *chip, *stack;
    const char *cpu; /* a second name of the chip; NULL none */
    struct machine *m;
    bool *applies;       /* by entry, for many lookups; NULL: look each time */
    const char *missing; /* first constant that was needed and not there */
};

static bool entry_applies(const struct lookup *l, size_t i)
{
    const struct rates_entry *en = &l->r->entries[i];
    if (l->applies)
        return l->applies[i];
    bool is_chip = matches(en->chip, l->chip) || (l->cpu && matches(en->chip, l->cpu));
    return is_chip && matches(en->stack, l->stack) && matches(en->device, l->device);
}

/* Release with free(l->applies). */
static void match_all(struct lookup *l)
{
    bool *applies = base_alloc((l->r->n + 1) * sizeof *applies);
    for (size_t i = 0; i < l->r->n; i++)
        applies[i] = entry_applies(l, i);
    l->applies = applies;
}

/* Behind the last constant of the name. */
static size_t end_of_name(const struct rates *r, const char *name)
{
    size_t low = 0, high = r->n_constants;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (strcmp(r->constants[middle].name, name) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The last entry that has the constant wins; it is noted as used. */
static const struct json *find(struct lookup *l, const char *name)
{
    const struct rates_constant *all = l->r->constants;
    for (size_t i = end_of_name(l->r, name); i-- > 0 && strcmp(all[i].name, name) == 0;) {
        const struct rates_entry *en = &l->r->entries[all[i].entry];
        if (!entry_applies(l, all[i].entry))
            continue;
        if (l->m->n_constants < MACHINE_CONSTANTS)
            l->m->constant[l->m->n_constants++] = (struct machine_constant){name, en};
        return all[i].value;
    }
    return NULL;
}

double rates_number(const struct rates *r, const char *device, const char *chip, const char *stack,
    const char *name)
{
    struct machine ignored = {.n_constants = MACHINE_CONSTANTS};
    struct lookup l = {.r = r, .device = device, .chip = chip, .stack = stack, .m = &ignored};
    return json_as_num(find(&l, name), NAN);
}

/* Beyond these a constant is a mistake, whoever wrote it. */
static double most_of(const char *name)
{
    static const struct {
        const char *pattern;
        double most;
    } LIMITS[] = {{"time_log_sd", 2}, {"memory_log_sd", 2}, {"external_*", 1e12}, {"stack_*", 100},
        {"matmul_of_*", 10}, {"matmul_fp32_of_*", 10}, {"attention_*", 10}, {"unhidden", 10},
        {"jitter_*", 1}, {"step_overhead_s", 1e4}, {"*", 1e18}};
    size_t i = 0;
    while (!matches(LIMITS[i].pattern, name))
        i++;
    return LIMITS[i].most;
}

/* A positive number, or 0 with the lookup marked as failed. */
static double need(struct lookup *l, const char *name)
{
    double x = json_as_num(find(l, name), NAN);
    if (x > 0 && x <= most_of(name))
        return x;
    if (!l->missing)
        l->missing = name;
    return 0;
}

static struct ramp need_ramp(struct lookup *l, const char *name, const char *reference)
{
    struct ramp ramp = {0};
    const struct json *points = find(l, name);
    for (size_t i = 0; i < json_len(points) && ramp.n < RAMP_POINTS; i++) {
        double bytes = json_as_num(json_at(json_at(points, i), 0), 0);
        double fraction = json_as_num(json_at(json_at(points, i), 1), 0);
        if (!(bytes > (ramp.n ? ramp.bytes[ramp.n - 1] : 0)) || !(fraction > 0 && fraction <= 1))
            break;
        ramp.bytes[ramp.n] = bytes;
        ramp.fraction[ramp.n++] = fraction;
    }
    if (ramp.n == 0 && !l->missing)
        l->missing = name;
    ramp.reference_bytes_per_s = need(l, reference);
    return ramp;
}

/* --- machines --- */

/* Where a table does not name the norms of queries and keys, those of the whole width tell most; of
 * the optimizers AdamW is named. */
static double share_of(const struct json *shares, enum op_kind k)
{
    enum op_kind like = k == OP_QK_NORM_FWD   ? OP_NORM_FWD
                        : k == OP_QK_NORM_BWD ? OP_NORM_BWD
                        : op_is_update(k)     ? OP_ADAMW
                                              : k;
    return json_num(shares, op_kind_name(k), json_num(shares, op_kind_name(like), 1));
}

/* Moments in 8 bits take arithmetic, not memory: 5 to 6.5 ns of a thread for a parameter, where the
 * bytes take 0.6 (own measurement, 8M parameters). */
static const double cpu_8bit_share = 0.1;

/* A table of shares by kind of operation; 1 for those it does not name. */
static void fill_elementwise(struct machine *m, struct lookup *l)
{
    const struct json *shares = find(l, "elementwise_of_memory");
    for (int k = 0; k < OP_KIND_COUNT; k++) {
        double x = shares ? share_of(shares, (enum op_kind)k) : 1;
        m->elementwise[k] = x > 0 && isfinite(x) ? x : 1;
    }
    if (!m->hw.is_gpu && !json_get(shares, op_kind_name(OP_UPDATE_8BIT)))
        m->elementwise[OP_UPDATE_8BIT] *= cpu_8bit_share;
}

static void fill_common(struct machine *m, struct lookup *l)
{
    m->matmul_half_k = need(l, "matmul_half_k");
    m->matmul_tile_m = need(l, "matmul_tile_m");
    m->matmul_tile_n = need(l, "matmul_tile_n");
    m->attention_efficiency = need(l, "attention_efficiency");
    m->attention_backward_efficiency = need(l, "attention_backward_efficiency");
    m->op_floor_s = need(l, "op_floor_s");
    fill_elementwise(m, l);
    m->link_hop_s = need(l, "link_hop_s");
    m->link_ramp = need_ramp(l, "link_ramp", "link_ramp_bytes_per_s");
    m->fabric_ramp = need_ramp(l, "fabric_ramp", "fabric_ramp_bytes_per_s");
    m->overlap_slowdown = need(l, "overlap_slowdown");
    m->unhidden = need(l, "unhidden");
    m->disk_bytes_per_s = need(l, "disk_bytes_per_s");
    m->step_overhead_s = need(l, "step_overhead_s");
    m->jitter_per_doubling = need(l, "jitter_per_doubling");
    m->external_bytes = need(l, "external_bytes");
    m->external_sd_bytes = need(l, "external_sd_bytes");
    m->time_log_sd = need(l, "time_log_sd");
    m->host_bytes_per_s = need(l, "host_bytes_per_s");
}

static void fill_fabric(struct machine *m, struct lookup *l)
{
    bool is_rdma = m->hw.is_fabric_rdma;
    if (m->hw.fabric_bytes_per_s <= 0)
        return;
    m->fabric_bytes_per_s = m->hw.fabric_bytes_per_s *
                            need(l, is_rdma ? "fabric_rdma_efficiency" : "fabric_tcp_efficiency");
    m->fabric_bytes_per_s *= m->hw.is_gpu ? need(l, "stack_fabric") : 1;
    m->fabric_hop_s = need(l, is_rdma ? "fabric_rdma_hop_s" : "fabric_tcp_hop_s");
}

/* From the constant's entries that name the stack and have so many runs behind them. */
static enum basis basis_of(const struct lookup *l, const char *constant, int64_t least_rows)
{
    const struct rates *r = l->r;
    enum basis basis = BASIS_PRIOR;
    for (size_t i = end_of_name(r, constant);
         i-- > 0 && strcmp(r->constants[i].name, constant) == 0;) {
        const struct rates_entry *en = &r->entries[r->constants[i].entry];
        size_t n = strlen(en->stack);
        bool is_named = n > 0 && en->stack[n - 1] != '*';
        if (!is_named || en->rows < least_rows || !entry_applies(l, r->constants[i].entry))
            continue;
        if (strcmp(en->chip, "*") != 0)
            return BASIS_CALIBRATED;
        basis = BASIS_SIBLING;
    }
    return basis;
}

/* Later entries are closer; a few runs of a GPU say little of how far its constants hold. */
static const struct rates_entry *evidence_of(const struct lookup *l, int64_t least_rows)
{
    for (size_t i = l->r->n; i-- > 0;) {
        const struct rates_entry *en = &l->r->entries[i];
        if (ranges_are_known(&en->ranges) && en->rows >= least_rows && entry_applies(l, i))
            return en;
    }
    return NULL;
}

/* Products of 16 bits run at a share of the best measured one; those of fewer bits so many times
 * as fast as these, which is what training runs report. */
static void fill_products(struct machine *m, struct lookup *l)
{
    const struct hardware *hw = &m->hw;
    for (int p = 0; p < PRECISION_KINDS; p++)
        m->peak_flops[p] = hw->peak_flops[p];
    double best = fmax(hw->peak_flops[PRECISION_BF16], hw->peak_flops[PRECISION_FP16]);
    double of_peak = hw->measured_flops > 0 && best > 0
                         ? need(l, "matmul_of_measured") * hw->measured_flops / best
                         : need(l, "matmul_of_peak");
    of_peak *= m->stack_matmul;
    double rate = of_peak * best;
    m->matmul_efficiency[PRECISION_FP32] = need(l, "matmul_fp32_of_peak");
    m->matmul_efficiency[PRECISION_BF16] = m->matmul_efficiency[PRECISION_FP16] = of_peak;
    if (hw->peak_flops[PRECISION_FP8] > 0)
        m->matmul_efficiency[PRECISION_FP8] =
            rate * need(l, "matmul_fp8_speedup") / hw->peak_flops[PRECISION_FP8];
    if (hw->peak_flops[PRECISION_FP4] > 0)
        m->matmul_efficiency[PRECISION_FP4] =
            rate * need(l, "matmul_fp4_speedup") / hw->peak_flops[PRECISION_FP4];
}

static void fill_gpu(struct machine *m, struct lookup *l)
{
    const struct hardware *hw = &m->hw;
    m->stack_matmul = need(l, "stack_matmul");
    m->basis = basis_of(l, "stack_matmul", BASIS_ROWS);
    m->evidence = evidence_of(l, BASIS_ROWS);
    m->stack_attention = need(l, "stack_attention");
    m->attention_efficiency *= m->stack_attention;
    m->attention_backward_efficiency *= m->stack_attention;
    m->memory_log_sd = need(l, "memory_log_sd");
    m->reserved_of_allocated = need(l, "reserved_of_allocated");
    fill_products(m, l);
    m->moe_efficiency = need(l, "moe_efficiency");
    m->tensor_exposed = need(l, "tensor_exposed");
    m->context_exposed = need(l, "context_exposed");
    m->expert_exposed = need(l, "expert_exposed");
    m->matmul_lanes = need(l, "matmul_lanes");
    m->memory_bytes_per_s = hw->memory_bytes_per_s * need(l, "memory_efficiency");
    m->lane_bytes_per_s = m->memory_bytes_per_s;
    m->link_bytes_per_s = hw->link_bytes_per_s *
                          need(l, hw->is_link_pcie ? "link_pcie_efficiency" : "link_efficiency");
    m->copy_bytes_per_s = hw->pcie_bytes_per_s * need(l, "copy_efficiency");
    fill_fabric(m, l);
}

double machine_thread_doublings(const struct machine *m)
{
    return m->is_shared ? log2(m->matmul_lanes) : 0;
}

/* Ranks of a CPU node share its cores and its memory; those that share a core also move bytes in
 * turn. */
static void fill_cpu(struct machine *m, struct lookup *l)
{
    double ranks = (double)m->hw.ranks_per_node;
    double cores = (double)m->hw.vcpus * need(l, "cores_per_vcpu");
    double per_rank = fmax(1, cores) / ranks;
    m->is_shared = true;
    m->peak_flops[PRECISION_FP32] = per_rank * need(l, "core_flops_fp32");
    m->peak_flops[PRECISION_BF16] = per_rank * need(l, "core_flops_bf16");
    m->matmul_lanes = fmax(1, per_rank);
    double lost = 1 + need(l, "matmul_thread_loss") * machine_thread_doublings(m);
    m->matmul_efficiency[PRECISION_FP32] = need(l, "matmul_fp32_of_peak") / lost;
    m->matmul_efficiency[PRECISION_BF16] = need(l, "matmul_of_peak") / lost;
    /* eight bits are widened on their way into a product of fp32 */
    m->peak_flops[PRECISION_FP8] = m->peak_flops[PRECISION_BF16];
    m->matmul_efficiency[PRECISION_FP8] =
        m->matmul_efficiency[PRECISION_BF16] * need(l, "matmul_fp8_speedup");
    m->basis = basis_of(l, "matmul_of_peak", 0); /* a probe measures, with few runs */
    m->evidence = evidence_of(l, 0);
    double core = need(l, "core_bytes_per_s"), dram = fmin(m->host_bytes_per_s, cores * core);
    m->host_bytes_per_s = dram;
    m->memory_bytes_per_s = dram / ranks * need(l, "memory_efficiency");
    m->lane_bytes_per_s = fmin(m->memory_bytes_per_s, core);
    m->link_bytes_per_s =
        fmin(need(l, "link_bytes_per_s"), m->memory_bytes_per_s) * fmin(1, per_rank);
    m->copy_bytes_per_s = m->memory_bytes_per_s / 2;
    fill_fabric(m, l);
    if (m->fabric_bytes_per_s > 0)
        m->fabric_bytes_per_s =
            fmin(m->fabric_bytes_per_s, ranks * need(l, "fabric_stream_bytes_per_s"));
}

/* The patterns are those of one model or of all. */
static void scale(struct machine *m, const struct lookup *l, const struct rates_scale *s)
{
    if (!matches(s->device, l->device) || !matches(s->chip, l->chip))
        return;
    for (int p = 0; p < PRECISION_KINDS; p++)
        m->matmul_efficiency[p] *= s->compute;
    m->attention_efficiency *= s->compute;
    m->attention_backward_efficiency *= s->compute;
    m->memory_bytes_per_s *= s->compute;
    m->lane_bytes_per_s *= s->compute;
    m->copy_bytes_per_s *= s->host_link;
    m->link_bytes_per_s *= s->link * (m->hw.is_link_pcie ? s->host_link : 1);
}

static enum rc check_hardware(const struct hardware *hw, struct err *e)
{
    const char *what = hw->is_gpu ? hw->gpu : "cpu";
    if (hw->nodes < 1 || hw->ranks_per_node < 1)
        return err_set(e, RC_INVALID, "hardware '%s' has no ranks", what);
    if (hw->memory_bytes <= 0)
        return err_set(e, RC_INVALID, "the memory of '%s' is unknown", what);
    if (!hw->is_gpu && hw->vcpus <= 0)
        return err_set(e, RC_INVALID, "how many cores a node has is unknown; give 'vcpus'");
    if (!hw->is_gpu)
        return RC_OK;
    if (!(hw->memory_bytes_per_s > 0) || !(hw->peak_flops[PRECISION_FP32] > 0))
        return err_set(e, RC_INVALID, "the memory bandwidth or fp32 rate of '%s' is unknown", what);
    if (hw->ranks_per_node > 1 && !(hw->link_bytes_per_s > 0))
        return err_set(e, RC_INVALID, "the links between the GPUs of '%s' are unknown", what);
    return RC_OK;
}

enum rc machine_make(struct machine *out, const struct rates *r, const struct hardware *hw,
    const char *stack, struct err *e)
{
    enum rc rc = check_hardware(hw, e);
    if (rc)
        return rc;
    memset(out, 0, sizeof *out);
    out->hw = *hw;
    str_copy(out->stack, sizeof out->stack, stack);
    struct lookup l = {.r = r,
        .device = hw->is_gpu ? "gpu" : "cpu",
        .chip = hw->is_gpu ? hw->gpu : hw->isa,
        .cpu = hw->is_gpu ? NULL : hw->cpu,
        .stack = out->stack,
        .m = out};
    match_all(&l);
    fill_common(out, &l);
    if (hw->is_gpu)
        fill_gpu(out, &l);
    else
        fill_cpu(out, &l);
    out->host_adam_bytes_per_s = out->host_bytes_per_s / need(&l, "host_adam_bytes_per_param");
    for (size_t i = 0; i < r->n_scales; i++)
        scale(out, &l, &r->scales[i]);
    free(l.applies);
    if (l.missing)
        return err_set(e, RC_INVALID,
            "calibration has no '%s' above 0 and up to %g for '%s' and stack '%s'", l.missing,
            most_of(l.missing), l.chip, stack);
    return RC_OK;
}

struct hardware machine_pace(const struct hardware *hw)
{
    struct hardware pace = *hw;
    pace.nvme_bytes = 0;
    if (hw->is_gpu) /* on a CPU ranks compute in it */
        pace.ram_bytes = pace.vcpus = 0;
    return pace;
}

bool machine_computes(const struct machine *m, enum precision p)
{
    return m->peak_flops[p] > 0;
}

enum rc machine_check_precision(const struct machine *m, enum precision p, struct err *e)
{
    if (machine_computes(m, p))
        return RC_OK;
    return err_set(e, RC_INVALID, "no rate of '%s' in %s is known; %s can be planned",
        m->hw.is_gpu ? m->hw.gpu : "cpu", precision_name(p),
        machine_computes(m, PRECISION_BF16) ? "bf16 and fp32" : "fp32");
}

struct json *machine_constants_json(const struct machine *m)
{
    struct json *all = json_obj();
    for (int i = 0; i < m->n_constants; i++) {
        const struct rates_entry *en = m->constant[i].entry;
        struct json *v = json_obj();
        json_add(v, "value", json_clone(json_get(en->values, m->constant[i].name)));
        json_add_str(v, "source", en->source);
        json_add_str(v, "date", en->date);
        json_add_int(v, "rows", en->rows);
        json_add_num(v, "residual", en->residual >= 0 ? en->residual : NAN);
        json_add_bool(v, "prior", en->is_prior);
        json_add(all, m->constant[i].name, v);
    }
    return all;
}

/* --- seconds of one operation --- */

static double ceil_div(double a, double b)
{
    return ceil(a / b);
}

/* Share of the lanes' work that is not padding of tiles or an idle last wave. Beyond ten waves the
 * tail no longer matters (arXiv 2401.14489). */
static double tile_efficiency(const struct machine *m, double rows, double cols)
{
    double tiles = ceil_div(rows, m->matmul_tile_m) * ceil_div(cols, m->matmul_tile_n);
    double area = tiles * m->matmul_tile_m * m->matmul_tile_n;
    double waves = ceil_div(tiles, m->matmul_lanes);
    double filled = waves > 10 ? 1 : tiles / (m->matmul_lanes * waves);
    return rows * cols / area * filled;
}

double machine_matmul_s(
    const struct machine *m, enum precision p, int64_t rows, int64_t cols, int64_t inner)
{
    double r = (double)rows, c = (double)cols, k = (double)inner;
    double depth = m->is_shared ? 1 : p == PRECISION_FP8 ? 2 : p == PRECISION_FP4 ? 4 : 1;
    double half_k = m->matmul_half_k * depth;
    double shape = tile_efficiency(m, r, c) * k / (k + half_k);
    double busy = 2 * r * c * k / (m->peak_flops[p] * m->matmul_efficiency[p] * shape);
    double traffic = (double)precision_bytes(p) * (r * k + c * k + r * c);
    return fmax(m->op_floor_s, fmax(busy, traffic / m->memory_bytes_per_s));
}

/* One dimension is small, and libraries split the longest one where tiles would not fill the lanes:
 * what is left is memory's, or the product's with the small one filled up to half a tile. */
double machine_low_rank_s(
    const struct machine *m, enum precision p, const int64_t dim[3], double bytes)
{
    double least = m->matmul_tile_n / 2, flops = 2;
    for (int i = 0; i < 3; i++)
        flops *= fmax((double)dim[i], least);
    return fmax(machine_stream_s(m, OP_MATMUL, bytes),
        flops / (m->peak_flops[p] * m->matmul_efficiency[p]));
}

/* Attention stays in 16 bits where products use fewer. */
double machine_attention_s(
    const struct machine *m, enum precision p, double flops, bool is_backward)
{
    if (p > PRECISION_FP16)
        p = PRECISION_BF16;
    double efficiency = is_backward ? m->attention_backward_efficiency : m->attention_efficiency;
    return fmax(m->op_floor_s, flops / (m->peak_flops[p] * efficiency));
}

double machine_stream_s(const struct machine *m, enum op_kind kind, double bytes)
{
    return fmax(m->op_floor_s, bytes / (m->memory_bytes_per_s * m->elementwise[kind]));
}

double machine_lane_stream_s(const struct machine *m, enum op_kind kind, double bytes)
{
    return fmax(m->op_floor_s, bytes / (m->lane_bytes_per_s * m->elementwise[kind]));
}

double machine_copy_s(const struct machine *m, double bytes)
{
    return m->op_floor_s + bytes / m->copy_bytes_per_s;
}

double machine_host_adam_s(const struct machine *m, double elems)
{
    return elems * (double)m->hw.ranks_per_node / m->host_adam_bytes_per_s;
}

double machine_host_stream_s(const struct machine *m, double bytes)
{
    return bytes * (double)m->hw.ranks_per_node / m->host_bytes_per_s;
}

double machine_disk_s(const struct machine *m, double bytes)
{
    return bytes * (double)m->hw.ranks_per_node / m->disk_bytes_per_s;
}

/* --- collectives --- */

static struct rank_group group_of(int64_t ranks, int64_t per_node)
{
    if (per_node < 1)
        per_node = 1;
    if (per_node > ranks)
        per_node = ranks;
    return (struct rank_group){.ranks = ranks, .nodes = (ranks + per_node - 1) / per_node};
}

struct rank_group machine_world(const struct strategy *s)
{
    return group_of(s->ranks, s->ranks_per_node);
}

/* Shard groups are consecutive ranks: inside a node as far as they fit. */
struct rank_group machine_shard_group(const struct strategy *s)
{
    return group_of(s->shard_degree, s->ranks_per_node);
}

struct rank_group machine_strided_group(const struct hardware *hw, int64_t ranks, int64_t stride)
{
    return group_of(ranks, hw->ranks_per_node / (stride > 0 ? stride : 1));
}

struct rank_group machine_replica_group(const struct strategy *s)
{
    return group_of(s->ranks / s->shard_degree, s->ranks_per_node / s->shard_degree);
}

static double ramp_at(const struct ramp *r, double bytes)
{
    if (bytes <= r->bytes[0])
        return fmax(r->fraction[0] * bytes / r->bytes[0], 1e-6);
    for (int i = 1; i < r->n; i++) {
        if (bytes > r->bytes[i])
            continue;
        double t = log(bytes / r->bytes[i - 1]) / log(r->bytes[i] / r->bytes[i - 1]);
        return r->fraction[i - 1] + t * (r->fraction[i] - r->fraction[i - 1]);
    }
    return r->fraction[r->n - 1];
}

/* Seconds that a payload loses to latency. */
static double ramp_lost_s(const struct ramp *r, double bytes)
{
    return bytes / r->reference_bytes_per_s * (1 / ramp_at(r, bytes) - 1);
}

/* A ring over nodes passes every rank; sums go up and down a tree where that takes fewer hops
 * (NCCL tuning.cc). One pass. */
static double ring_hops_s(const struct machine *m, enum collective kind, struct rank_group g)
{
    double nodes = (double)g.nodes, inside = (double)g.ranks / nodes - 1;
    double ring = nodes * inside * m->link_hop_s + (nodes - 1) * m->fabric_hop_s;
    double tree = inside * m->link_hop_s + ceil(log2(nodes)) * m->fabric_hop_s;
    return kind == COLLECTIVE_ALL_REDUCE ? fmin(ring, tree) : ring;
}

/* Ring terms (nccl-tests PERFORMANCE.md). A group over whole nodes uses all NICs of its nodes; the
 * node's rate is shared by the groups that run at once. */
double machine_collective_s(
    const struct machine *m, enum collective kind, struct rank_group g, double bytes)
{
    if (g.ranks <= 1 || bytes <= 0)
        return 0;
    double passes = kind == COLLECTIVE_ALL_REDUCE ? 2 : 1;
    double per_node = (double)g.ranks / (double)g.nodes;
    double seconds = 0, hops = 0;
    if (per_node > 1) {
        bool is_direct =
            m->is_shared && kind == COLLECTIVE_ALL_TO_ALL; /* the rest leaves the node */
        seconds = (per_node - 1) / (is_direct ? (double)g.ranks : per_node) *
                  (bytes / m->link_bytes_per_s + ramp_lost_s(&m->link_ramp, bytes));
        hops += (per_node - 1) * m->link_hop_s;
    }
    if (g.nodes > 1) {
        double n = (double)g.nodes, groups = fmax(1, (double)m->hw.ranks_per_node / per_node);
        if (kind == COLLECTIVE_ALL_TO_ALL) /* bytes are those of one rank */
            groups = (double)m->hw.ranks_per_node;
        double rate = m->fabric_bytes_per_s;
        double across =
            (n - 1) / n * (bytes * groups / rate + ramp_lost_s(&m->fabric_ramp, bytes * groups));
        across = rate > 0 ? across : INFINITY;
        /* the engine's own, between CPU hosts, does one after the other (engine/comm_levels.c) */
        seconds = m->is_shared ? seconds + across : fmax(seconds, across);
        hops = ring_hops_s(m, kind, g);
    }
    return m->op_floor_s + passes * (seconds + hops);
}
