#include "planner/estimate.h"

#include <math.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/adapter.h"
#include "planner/checkpoint_room.h"
#include "planner/engine_memory.h"
#include "planner/layout.h"
#include "planner/space.h"
#include "planner/timeline.h"

/* The last one, and the one being written. */
enum { CHECKPOINTS_ON_DISK = 2 };
/* A rank's process and the node's agent and system, beside what is planned. */
static const double host_process_bytes = 1.5e9, host_system_bytes = 4e9;
static const double cpu_process_bytes = 64e6, cpu_system_bytes = 512e6;
/* 90 % of a normal distribution lie within so many standard deviations. */
static const double z90 = 1.6449;
/* Seconds with tensor, pipeline or expert parallelism spread so much more around groups of
 * published runs left out of the fit than their stacks do alone (98 groups, recompute stated or
 * not). */
static const double split_log_sd = 0.08;

/* What is estimated. */
struct subject {
    const struct model *model;
    const struct strategy *strategy;
    double params, trained; /* of the model: counting them takes longer than the rest */
    double active;          /* of params, what a token passes through */
    double snapshot;        /* bytes of a node, as estimate_snapshot_bytes */
};

/* --- memory --- */

/* Standard normal distribution function. */
static double normal_cdf(double z)
{
    return 0.5 * erfc(-z / sqrt(2));
}

double estimate_fit_probability(const struct machine *machine, int64_t slab_bytes)
{
    double room = (double)machine->hw.memory_bytes - (double)slab_bytes;
    return normal_cdf((room - machine->external_bytes) / machine->external_sd_bytes);
}

bool estimate_fits(const struct estimate *x)
{
    enum memory where;
    return estimate_short_by(x, &where) == 0;
}

int64_t estimate_short_by(const struct estimate *x, enum memory *where)
{
    *where = MEMORY_DEVICE;
    if (x->peak_bytes > x->capacity_bytes)
        return x->peak_bytes - x->capacity_bytes;
    *where = MEMORY_HOST;
    if (x->host_capacity_bytes > 0 && x->host_ram_bytes > x->host_capacity_bytes)
        return x->host_ram_bytes - x->host_capacity_bytes;
    *where = MEMORY_DISK;
    return x->disk_bytes > x->disk_capacity_bytes ? x->disk_bytes - x->disk_capacity_bytes : 0;
}

double estimate_disk_share(const struct estimate *x)
{
    const struct simulation *s = &x->simulation;
    if (x->disk_bytes == 0)
        return 0;
    return (s->exposed_s[LANE_DISK] + s->exposed_s[LANE_HOST] + s->exposed_s[LANE_COPY_DOWN] +
               s->exposed_s[LANE_COPY_UP]) /
           s->step_s;
}

/* A node of a million ranks has more bytes than there are numbers for: the largest stands for all.
 */
static int64_t whole_bytes(double bytes)
{
    return bytes < 9e18 ? (int64_t)bytes : INT64_MAX;
}

static int64_t of_node(int64_t rank_bytes, const struct strategy *s)
{
    bool is_exact = rank_bytes < INT64_MAX / s->ranks_per_node;
    return is_exact ? rank_bytes * s->ranks_per_node : INT64_MAX;
}

/* Ranks that hold different parts of the optimizer's states. */
static double state_shares(const struct strategy *s)
{
    const struct parallel *p = &s->parallel;
    return (double)(strategy_optimizer_shards(s) * p->tensor * p->pipeline);
}

/* Ranks that write different parts of a checkpoint. Under the bundled engine that is every rank of
 * a replica, also where each of them holds all of it. */
static double writing_shares(const struct strategy *s)
{
    bool is_whole = s->kind == STRATEGY_DDP;
    return is_whole && profile_of(s->engine)->is_bundled ? (double)s->ranks : state_shares(s);
}

/* Of a checkpoint, what the ranks of a node write. */
static double node_share(double checkpoint_bytes, const struct strategy *s)
{
    double shares = writing_shares(s);
    return checkpoint_bytes / shares * fmin(shares, (double)s->ranks_per_node);
}

/* Asynchronous saving copies the states first; from those on disk, a few buffers at a time. What
 * the bundled engine takes is known to the byte. */
double estimate_snapshot_of(
    const struct unit_elems *elems, double checkpoint_bytes, const struct strategy *s)
{
    bool is_copied = checkpoint_can_copy(s);
    if (!profile_of(s->engine)->is_bundled || !strategy_is_data_parallel(s))
        return is_copied ? node_share(checkpoint_bytes, s) : 0;
    int64_t ranks = s->ranks_per_node, parts = space_unit_parts(s);
    int64_t file = checkpoint_file_room(elems->part, elems->tensors, s, is_copied);
    return (double)ranks * CHECKPOINT_TRANSFER_BYTES +
           (double)(parts < ranks ? parts : ranks) * (double)file;
}

double estimate_snapshot_bytes(const struct model *m, const struct strategy *s)
{
    struct unit_elems elems = space_unit_elems(m, s);
    return estimate_snapshot_of(&elems, estimate_checkpoint_bytes(m, s), s);
}

int64_t estimate_disk_bytes(
    const struct live_bytes *live, double checkpoint_bytes, const struct strategy *s)
{
    if (!(s->offload & OFFLOAD_DISK))
        return 0;
    double states = (double)live->of[MEMORY_DISK] * (double)s->ranks_per_node;
    return whole_bytes(states + CHECKPOINTS_ON_DISK * node_share(checkpoint_bytes, s));
}

int64_t estimate_host_ram_bytes(
    const struct live_bytes *live, double snapshot, const struct strategy *s, bool is_gpu)
{
    double ranks = (double)s->ranks_per_node, host = (double)live->of[MEMORY_HOST];
    if (is_gpu)
        return whole_bytes(
            host * ranks + snapshot + host_process_bytes * ranks + host_system_bytes);
    return whole_bytes(((double)live->of[MEMORY_DEVICE] + host) * ranks + snapshot +
                       cpu_process_bytes * ranks + cpu_system_bytes);
}

static void fill_host(struct estimate *x, const struct subject *of, const struct machine *mc)
{
    const struct strategy *s = of->strategy;
    double checkpoint = (double)x->checkpoint_bytes;
    struct live_bytes slabs = {.of = {[MEMORY_DEVICE] = x->peak_bytes,
                                   [MEMORY_HOST] = x->host_slab_bytes / s->ranks_per_node,
                                   [MEMORY_DISK] = x->disk_state_bytes / s->ranks_per_node}};
    x->host_ram_bytes = estimate_host_ram_bytes(&slabs, of->snapshot, s, mc->hw.is_gpu);
    x->host_snapshot_bytes = whole_bytes(of->snapshot);
    x->host_capacity_bytes = mc->hw.ram_bytes;
    x->disk_bytes = estimate_disk_bytes(&slabs, checkpoint, s);
    x->disk_capacity_bytes = mc->hw.nvme_bytes;
}

static void fill_capacity(struct estimate *x, const struct machine *mc)
{
    x->external_bytes = (int64_t)mc->external_bytes;
    x->capacity_bytes = mc->hw.memory_bytes - x->external_bytes;
    x->fit_probability = estimate_fit_probability(mc, x->peak_bytes);
}

int64_t estimate_needed_bytes(const struct estimate *x, const struct machine *mc)
{
    double allocated = (double)(x->peak_bytes - x->packing_bytes);
    return x->is_allocated ? (int64_t)(allocated * sqrt(mc->reserved_of_allocated)) : x->peak_bytes;
}

/* What an engine's allocator holds beyond its tensors: what it usually takes, less when memory runs
 * short, since it then gives back half of that, say. */
static void add_allocator(struct estimate *x, const struct machine *mc)
{
    x->is_allocated = true;
    double allocated = (double)(x->peak_bytes - x->packing_bytes);
    double room = (double)mc->hw.memory_bytes - mc->external_bytes;
    double needed = (double)estimate_needed_bytes(x, mc);
    double held = fmax(needed, fmin(allocated * mc->reserved_of_allocated, room));
    x->peak_bytes = (int64_t)held;
    x->packing_bytes = x->peak_bytes - (int64_t)allocated;
    x->fit_probability = room > 0 ? normal_cdf(log(room / needed) / mc->memory_log_sd) : 0;
}

/* --- time --- */

/* All products and both halves of attention, forward and backward: the convention of llm-foundry
 * and many others. */
static double model_flops(const struct subject *of)
{
    const struct model *m = of->model;
    double keys = strategy_mean_document(of->strategy);
    double attention = 12.0 * (double)m->layers * (double)(m->heads * m->head_dim) * keys;
    /* a frozen matrix takes part forward, and backward in the gradient of its input */
    double products = m->adapter.rank > 0 ? 4.0 * of->active + 6.0 * of->trained : 6.0 * of->active;
    return products + attention;
}

double estimate_model_flops(const struct model *m, const struct strategy *s)
{
    struct subject of = {m, s, (double)model_params(m), (double)model_trained_params(m),
        (double)model_active_params(m), 0};
    return model_flops(&of);
}

const char *estimate_flops_definition(const struct model *m, const struct strategy *s)
{
    static const char *const of_experts[2] = {
        "6 N + 12 L h hd s per token (N parameters that a token passes through, full attention "
        "matrix), over dense peak",
        "6 N + 12 L h hd d per token (N parameters that a token passes through, d the mean of "
        "squares of document lengths over s), over dense peak"};
    static const char *const words[2][2] = {
        {"6 N + 12 L h hd s per token (N all parameters, full attention matrix), over dense peak",
            "6 N + 12 L h hd d per token (N all parameters, d the mean of squares of document "
            "lengths over s), over dense peak"},
        {"4 N + 6 A + 12 L h hd s per token (N frozen parameters, A of adapters, full attention "
         "matrix), over dense peak",
            "4 N + 6 A + 12 L h hd d per token (N frozen parameters, A of adapters, d the mean of "
            "squares of document lengths over s), over dense peak"}};
    if (m->expert_params > 0 && m->adapter.rank == 0)
        return of_experts[s->doc_tokens > 0];
    return words[m->adapter.rank > 0][s->doc_tokens > 0];
}

static void fill_step(struct estimate *x, const struct subject *of, const struct machine *mc)
{
    const struct strategy *s = of->strategy;
    x->step_s = x->simulation.step_s;
    bool is_split = !strategy_is_data_parallel(s) || of->model->expert_params > 0;
    double log_sd = hypot(mc->time_log_sd, is_split ? split_log_sd : 0);
    if (x->outside)
        log_sd = hypot(log_sd, ranges_log_sd(&x->evidence->ranges, &x->sizes, x->outside));
    x->step_low_s = x->step_s * exp(-z90 * log_sd);
    x->step_high_s = x->step_s * exp(z90 * log_sd);
    x->tokens_per_s_per_rank = (double)strategy_tokens_per_step(s) / (double)s->ranks / x->step_s;
    x->mfu = x->tokens_per_s_per_rank * model_flops(of) / mc->peak_flops[s->precision];
    x->flops_definition = estimate_flops_definition(of->model, s);
}

double estimate_checkpoint_bytes(const struct model *m, const struct strategy *s)
{
    return (double)strategy_saved_bytes(s) * (double)model_trained_params(m);
}

struct save_s estimate_save_s(double bytes, const struct strategy *s, const struct machine *mc)
{
    double nodes = (double)s->ranks / (double)s->ranks_per_node;
    double shares = writing_shares(s);
    double writers = fmin(nodes, fmax(1, shares / (double)s->ranks_per_node));
    bool is_on_host = s->offload & OFFLOAD_OPTIMIZER, is_on_disk = s->offload & OFFLOAD_DISK;
    bool is_bundled = profile_of(s->engine)->is_bundled;
    /* what lies on the disk is read first; there is no snapshot to train on beside */
    double write = bytes / writers / mc->disk_bytes_per_s * (is_on_disk ? 2 : 1);
    /* a copy in host memory is read and written; engines that keep states there write from them */
    double host_copy = bytes / shares * 2 * (double)s->ranks_per_node / mc->host_bytes_per_s;
    double snapshot = bytes / shares / mc->copy_bytes_per_s;
    if (is_on_host)
        snapshot = is_bundled ? host_copy : 0;
    return (struct save_s){.write = write, .stall = is_on_disk ? write : snapshot};
}

/* A save finds the update made: what of it would have hidden behind the next forward shows. */
static double hidden_update_s(const struct simulation *s)
{
    return fmax(0, s->flush_s - s->exposed_s[LANE_HOST] - s->exposed_s[LANE_DISK]);
}

static void fill_checkpoint(struct estimate *x, const struct subject *of, const struct machine *mc)
{
    double bytes = (double)strategy_saved_bytes(of->strategy) * of->trained;
    struct save_s save = estimate_save_s(bytes, of->strategy, mc);
    x->checkpoint_bytes = (int64_t)bytes;
    x->checkpoint_s = save.write;
    x->hidden_update_s = hidden_update_s(&x->simulation);
    x->checkpoint_stall_s = save.stall + x->hidden_update_s;
}

struct save_s estimate_saves(const struct estimate *x)
{
    return (struct save_s){
        .write = x->checkpoint_s, .stall = x->checkpoint_stall_s, .update = x->hidden_update_s};
}

/* --- whole and folded --- */

/* Another engine lays nothing out: its memory comes from closed forms. */
static void fill_engine_memory(struct estimate *x, const struct model *m, const struct strategy *s)
{
    if (profile_of(s->engine)->is_bundled)
        return;
    struct engine_memory memory = engine_memory(m, s);
    for (int i = 0; i < PART_COUNT; i++)
        x->part_bytes[i] = (int64_t)memory.part[i];
    x->peak_bytes = (int64_t)memory.total;
    x->packing_bytes = 0;
}

static void fill_evidence(struct estimate *x, const struct subject *of, const struct machine *mc)
{
    x->sizes = sizes_of(of->model, of->params, of->strategy);
    x->evidence = mc->evidence;
    x->outside = mc->evidence ? ranges_outside(&mc->evidence->ranges, &x->sizes) : 0;
    x->is_extrapolated = x->outside || (!mc->evidence && mc->basis == BASIS_PRIOR);
}

static void fill_rest(struct estimate *x, const struct subject *of, const struct machine *mc)
{
    const struct strategy *s = of->strategy;
    fill_checkpoint(x, of, mc);
    fill_capacity(x, mc);
    if (!profile_of(s->engine)->is_bundled)
        add_allocator(x, mc);
    fill_host(x, of, mc);
    fill_evidence(x, of, mc);
    fill_step(x, of, mc);
}

/* --- continued from a few blocks --- */

/* Live bytes continue, the gaps between them do not: how well buffers pack goes up and down with
 * the number of blocks, so the line through two of them would end anywhere. The larger is kept, so
 * that what is said to fit does. */
static int64_t larger_gap(int64_t gap, struct layout_peak of)
{
    int64_t other = of.slab_bytes - of.live_bytes;
    return gap > other ? gap : other;
}

/* Where the whole model lies, seen from the first list: so many times towards each other one. */
struct place {
    double t[2];
};

static int64_t add_int(int64_t sum, int64_t a, int64_t b, double t)
{
    return sum + (int64_t)llround((double)(b - a) * t);
}

static double add_num(double sum, double a, double b, double t)
{
    return sum + (b - a) * t;
}

/* The straight line from a (at 0) through b (at 1), at t, where sum is a. */
static void add_simulation(
    struct simulation *sum, const struct simulation *a, const struct simulation *b, double t)
{
    sum->step_s = add_num(sum->step_s, a->step_s, b->step_s, t);
    sum->flush_s = add_num(sum->flush_s, a->flush_s, b->flush_s, t);
    for (int i = 0; i < SCHEDULE_MAX_SECTIONS; i++)
        sum->section_s[i] = add_num(sum->section_s[i], a->section_s[i], b->section_s[i], t);
    for (int i = 0; i < LANE_COUNT; i++) {
        sum->busy_s[i] = add_num(sum->busy_s[i], a->busy_s[i], b->busy_s[i], t);
        sum->exposed_s[i] = add_num(sum->exposed_s[i], a->exposed_s[i], b->exposed_s[i], t);
    }
    for (int i = 0; i < WORK_COUNT; i++)
        sum->work_s[i] = add_num(sum->work_s[i], a->work_s[i], b->work_s[i], t);
}

enum { MAX_LISTS = 3 };

/* What no machine changes, and timelines: of the model, or of it with two small numbers of blocks;
 * where blocks are of two kinds, with more of either. */
struct prepared {
    struct model model;
    struct strategy strategy;
    double params, trained, active, snapshot;
    bool is_whole;
    int n;                                /* of lists */
    struct schedule *schedule[MAX_LISTS]; /* until prepared_finish */
    struct layout_peak peak[MAX_LISTS][MEMORY_COUNT];
    double disk_bytes[MAX_LISTS]; /* that a step writes */
    int64_t full, other;          /* blocks of the first list, where they are of two kinds */
    struct place place;           /* unless the number of blocks in full is open */
    struct estimate memory;       /* the fields of fill_memory, and the hash */
    struct prices prices;
    struct timeline *timeline[MAX_LISTS];
    struct timeline *hidden[MAX_LISTS]; /* first sections in which the head's deferred update takes
                                           no time; NULL: none */
};

/* So many blocks on each pipeline rank. */
static struct model with_layers(const struct model *m, const struct strategy *s, int64_t layers)
{
    struct model cut = *m;
    cut.layers = layers * s->parallel.pipeline;
    return cut;
}

/* Enough blocks for the pipeline of gathers to be in its steady state, and that of updates ahead of
 * them. */
static int64_t few_layers(const struct strategy *s)
{
    return (strategy_defers_update(s) ? 5 : 3) + 2 * (int64_t)s->prefetch;
}

static double line_position(const struct model *m, const struct strategy *s)
{
    double layers = (double)m->layers / (double)s->parallel.pipeline;
    return (layers - (double)few_layers(s)) / 2;
}

/* Where buckets hold several blocks, few say nothing of many; nor where the disk may be done before
 * the backward pass of as many blocks as there are. */
static bool can_be_cut(const struct strategy *s)
{
    return s->bucket_bytes == 0 && !(strategy_defers_update(s) && (s->offload & OFFLOAD_DISK));
}

static bool is_worth_cutting(const struct model *m, const struct strategy *s)
{
    return can_be_cut(s) && m->layers > s->parallel.pipeline * (few_layers(s) + 2);
}

static enum rc add_list(struct prepared *p, const struct model *m, int full_blocks, struct err *e)
{
    int i = p->n++;
    struct strategy s = p->strategy;
    s.full_blocks = full_blocks;
    enum rc rc = schedule_build(&p->schedule[i], m, &s, e);
    for (int k = 0; !rc && k < MEMORY_COUNT; k++)
        p->peak[i][k] = layout_peak(p->schedule[i], (enum memory)k);
    return rc;
}

/* --- blocks of two kinds --- */

static bool is_open(const struct prepared *p)
{
    return p->strategy.full_blocks == STRATEGY_FILL;
}

/* All blocks, or as many of either kind as otherwise of all. */
static enum rc add_mixed_lists(struct prepared *p, struct err *e)
{
    int64_t few = few_layers(&p->strategy), layers = p->model.layers;
    bool is_cut = can_be_cut(&p->strategy) && layers > 2 * few + 2;
    p->full = is_cut ? few : 1;
    p->other = is_cut ? few : layers - 1;
    const int64_t more[MAX_LISTS][2] = {
        {0, 0}, {is_cut ? 2 : layers - 3, is_cut ? 0 : 3 - layers}, {0, 2}};
    int lists = is_cut ? 3 : layers > 3 ? 2 : 1;
    enum rc rc = RC_OK;
    for (int i = 0; !rc && i < lists; i++) {
        int64_t full = p->full + more[i][0], other = p->other + more[i][1];
        struct model cut = with_layers(&p->model, &p->strategy, full + other);
        rc = add_list(p, &cut, (int)full, e);
    }
    return rc;
}

static struct place place_with(const struct prepared *p, int64_t full)
{
    double more_full = (double)(full - p->full);
    double more_other = (double)(p->model.layers - full - p->other);
    if (p->n == MAX_LISTS)
        return (struct place){{more_full / 2, more_other / 2}};
    return (struct place){{p->n > 1 ? more_full / (double)(p->model.layers - 3) : 0, 0}};
}

static int64_t live_at(const struct prepared *p, const struct place *at, int memory)
{
    int64_t first = p->peak[0][memory].live_bytes, live = first;
    for (int i = 1; i < p->n; i++)
        live = add_int(live, first, p->peak[i][memory].live_bytes, at->t[i - 1]);
    return live;
}

static int64_t gap_of(const struct prepared *p, int memory)
{
    int64_t gap = 0;
    for (int i = 0; i < p->n; i++)
        gap = larger_gap(gap, p->peak[i][memory]);
    return gap;
}

/* Ranks of a CPU node share its memory with what else it holds. */
static bool has_room(const struct machine *mc, const struct strategy *s, double snapshot,
    const struct live_bytes *slabs)
{
    if (slabs->of[MEMORY_DEVICE] > mc->hw.memory_bytes - (int64_t)mc->external_bytes)
        return false;
    return mc->hw.is_gpu || mc->hw.ram_bytes == 0 ||
           estimate_host_ram_bytes(slabs, snapshot, s, false) <= mc->hw.ram_bytes;
}

/* All but two: with one left its backward may need most, which the others do not show. */
static int64_t most_in_full(const struct model *m)
{
    return m->layers > 3 ? m->layers - 2 : 1;
}

/* Memory falls with each block that is recomputed in full: the fewest that fit. */
static int64_t fewest_in_full(const struct prepared *p, const struct machine *mc)
{
    int64_t low = 1, high = most_in_full(&p->model);
    while (low < high) {
        int64_t middle = (low + high) / 2;
        struct place at = place_with(p, middle);
        struct live_bytes slabs = {{0}};
        for (int k = MEMORY_DEVICE; k <= MEMORY_HOST; k++)
            slabs.of[k] = live_at(p, &at, k) + gap_of(p, k);
        if (has_room(mc, &p->strategy, p->snapshot, &slabs))
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* --- preparing --- */

enum rc prepared_begin(struct prepared **out, const struct model *m, const struct strategy *s,
    bool is_whole, struct err *e)
{
    struct prepared *p = base_calloc(1, sizeof *p);
    bool is_mixed = s->full_blocks != 0 && !is_whole;
    bool is_cut = !is_whole && !is_mixed && is_worth_cutting(m, s);
    struct model few = is_cut ? with_layers(m, s, few_layers(s)) : *m;
    struct model more = with_layers(m, s, few_layers(s) + 2);
    p->model = *m;
    p->strategy = *s;
    p->is_whole = is_whole;
    p->params = (double)model_params(m);
    p->active = m->expert_params > 0 ? (double)model_active_params(m) : p->params;
    p->trained = m->adapter.rank > 0 ? (double)model_trained_params(m) : p->params;
    p->snapshot = estimate_snapshot_bytes(m, s);
    p->place.t[0] = is_cut ? line_position(m, s) : 0;
    enum rc rc = is_mixed ? add_mixed_lists(p, e) : add_list(p, &few, s->full_blocks, e);
    if (!rc && is_cut)
        rc = add_list(p, &more, 0, e);
    if (!rc && is_mixed) /* or with the least memory, until there is a machine */
        p->place = place_with(p, is_open(p) ? most_in_full(m) : s->full_blocks);
    if (rc) {
        prepared_free(p);
        return rc;
    }
    *out = p;
    return RC_OK;
}

struct live_bytes prepared_live_bytes(const struct prepared *p)
{
    struct live_bytes live;
    for (int i = 0; i < MEMORY_COUNT; i++)
        live.of[i] = live_at(p, &p->place, i);
    return live;
}

/* From offsets of the lists, which are then no longer needed for it. */
static void keep_slabs(struct prepared *p)
{
    for (int i = 0; i < p->n; i++) {
        for (int k = 0; k < MEMORY_COUNT; k++)
            p->peak[i][k].slab_bytes = p->schedule[i]->slab_bytes[k];
        p->disk_bytes[i] = schedule_written_bytes(p->schedule[i]);
    }
}

static int64_t part_at(const struct prepared *p, const struct place *at, int memory, int part)
{
    int64_t first = p->peak[0][memory].part_bytes[part], bytes = first;
    for (int i = 1; i < p->n; i++)
        bytes = add_int(bytes, first, p->peak[i][memory].part_bytes[part], at->t[i - 1]);
    return bytes;
}

static void fill_memory(struct estimate *x, const struct prepared *p, const struct place *at)
{
    double written = p->disk_bytes[0];
    for (int i = 0; i < PART_COUNT; i++) {
        x->part_bytes[i] = part_at(p, at, MEMORY_DEVICE, i);
        x->host_part_bytes[i] = of_node(part_at(p, at, MEMORY_HOST, i), &p->strategy);
    }
    x->packing_bytes = gap_of(p, MEMORY_DEVICE);
    x->peak_bytes = live_at(p, at, MEMORY_DEVICE) + x->packing_bytes;
    x->host_slab_bytes =
        of_node(live_at(p, at, MEMORY_HOST) + gap_of(p, MEMORY_HOST), &p->strategy);
    x->disk_state_bytes = of_node(live_at(p, at, MEMORY_DISK), &p->strategy);
    x->disk_param_bytes = of_node(part_at(p, at, MEMORY_DISK, PART_PARAMETERS), &p->strategy);
    /* gradients that go there are written beside the states */
    for (int i = 1; i < p->n; i++)
        written = add_num(written, p->disk_bytes[0], p->disk_bytes[i], at->t[i - 1]);
    x->disk_written_bytes = whole_bytes(written * (double)p->strategy.ranks_per_node);
}

static void release_schedules(struct prepared *p)
{
    for (int i = 0; i < p->n; i++) {
        schedule_free(p->schedule[i]);
        p->schedule[i] = NULL;
    }
}

static void hide_update_of_head(struct schedule *s)
{
    for (int32_t i = 0; i < s->section[0].n_ops; i++) {
        struct op *op = &s->ops[s->section[0].first_op + i];
        if ((op->flags & OP_UPDATE) && op->unit == s->n_units - 1)
            op->dim[0] = op->bytes = 0;
    }
}

/* Of the first so many sections, linked. */
static struct timeline *timeline_of(struct prepared *p, int list, int n_sections)
{
    struct schedule *s = p->schedule[list];
    int all = s->n_sections;
    s->n_sections = n_sections;
    if (!p->timeline[list])
        schedule_link(s);
    struct timeline *t = timeline_new(s, &p->prices, true);
    s->n_sections = all;
    return t;
}

/* Sections that are no part of a step come last. */
static int step_sections(const struct schedule *s)
{
    int n = s->n_sections;
    while (n > 0 && s->section[n - 1].repeat == 0)
        n--;
    return n;
}

void prepared_finish(struct prepared *p)
{
    bool has_hidden = p->n > 1 && strategy_defers_update(&p->strategy);
    for (int i = 0; i < p->n; i++) {
        struct schedule *s = p->schedule[i];
        layout_assign(s);
        p->timeline[i] = timeline_of(p, i, p->is_whole ? s->n_sections : step_sections(s));
        if (!has_hidden)
            continue;
        hide_update_of_head(s);
        p->hidden[i] = timeline_of(p, i, 1);
    }
    keep_slabs(p);
    fill_memory(&p->memory, p, &p->place);
    fill_engine_memory(&p->memory, &p->model, &p->strategy);
    p->memory.full_blocks = p->strategy.full_blocks;
    if (p->is_whole)
        p->memory.hash = schedule_hash(p->schedule[0]);
    if (p->is_whole && profile_of(p->strategy.engine)->is_bundled)
        phase_peaks(p->memory.phase_bytes, p->schedule[0], MEMORY_DEVICE);
    p->memory.has_hash = p->is_whole;
    release_schedules(p);
}

enum rc prepared_make(struct prepared **out, const struct model *m, const struct strategy *s,
    bool is_whole, struct err *e)
{
    enum rc rc = prepared_begin(out, m, s, is_whole, e);
    if (rc)
        return rc;
    prepared_finish(*out);
    return RC_OK;
}

void prepared_free(struct prepared *p)
{
    if (!p)
        return;
    release_schedules(p);
    for (int i = 0; i < p->n; i++) {
        timeline_free(p->timeline[i]);
        timeline_free(p->hidden[i]);
    }
    prices_release(&p->prices);
    free(p);
}

/* As many blocks in full as it takes on the machine. */
static struct place fill_blocks(
    struct estimate *x, const struct prepared *p, const struct machine *mc)
{
    x->full_blocks = (int)fewest_in_full(p, mc);
    struct place at = place_with(p, x->full_blocks);
    fill_memory(x, p, &at);
    return at;
}

/* What a line through few blocks needs beside them. */
struct pricing {
    const struct prepared *p;
    const struct machine *mc;
    const double *price;
    struct place at;
};

static void simulate_lists(
    struct simulation of[MAX_LISTS], const struct pricing *x, struct timeline *const *list)
{
    for (int i = 0; i < x->p->n; i++)
        simulate_timeline(&of[i], list[i], x->price, &x->p->prices, x->mc, NULL);
}

static struct simulation line_through(
    const struct simulation of[MAX_LISTS], const struct pricing *x)
{
    struct simulation sum = of[0];
    for (int i = 1; i < x->p->n; i++)
        add_simulation(&sum, &of[0], &of[i], x->at.t[i - 1]);
    return sum;
}

/* Do updates of blocks take longer than their forward pass, at most a third of their computing? The
 * head's then waits for all of them, however many there are. */
static bool is_host_behind(const struct simulation of[MAX_LISTS], const struct strategy *s)
{
    double update = of[1].busy_s[LANE_HOST] - of[0].busy_s[LANE_HOST];
    double compute = of[1].busy_s[LANE_COMPUTE] - of[0].busy_s[LANE_COMPUTE];
    return update * (double)s->grad_accum > 0.4 * compute;
}

/* A step waits for the head's update or, with more blocks to hide it behind, does not: the longer
 * of two lines, of which that through few blocks may be below both. */
static void simulate_prepared(struct simulation *out, const struct pricing *x)
{
    const struct strategy *s = &x->p->strategy;
    struct simulation few[MAX_LISTS];
    simulate_lists(few, x, x->p->timeline);
    *out = line_through(few, x);
    if (!x->p->is_whole && strategy_defers_update(s)) /* without a forward pass beside it, about */
        out->flush_s = fmax(out->busy_s[LANE_HOST], out->busy_s[LANE_DISK]);
    if (!x->p->hidden[0] || is_host_behind(few, s))
        return;
    simulate_lists(few, x, x->p->hidden);
    double first_s = line_through(few, x).section_s[0];
    if (first_s <= out->section_s[0])
        return;
    out->step_s += (first_s - out->section_s[0]) * simulate_jitter(x->mc, s);
    out->section_s[0] = first_s;
}

void prepared_estimate(struct estimate *out, const struct prepared *p, const struct machine *mc)
{
    enum { SMALL = 256 };
    double small[SMALL];
    bool is_small = p->prices.n <= SMALL;
    double *price = is_small ? small : base_alloc((size_t)p->prices.n * sizeof *price);
    struct subject of = {&p->model, &p->strategy, p->params, p->trained, p->active, p->snapshot};
    struct place at = p->place;
    *out = p->memory;
    if (is_open(p))
        at = fill_blocks(out, p, mc);
    prices_fill(price, &p->prices, mc);
    simulate_prepared(&out->simulation, &(struct pricing){p, mc, price, at});
    fill_rest(out, &of, mc);
    if (!is_small)
        free(price);
}

void estimate_raise_step(struct estimate *x, double step_s)
{
    double times = step_s / x->step_s;
    if (!(times > 1))
        return;
    x->step_s = step_s;
    x->step_low_s *= times;
    x->step_high_s *= times;
    x->tokens_per_s_per_rank /= times;
    x->mfu /= times;
}

void estimate_raise_bytes(struct estimate *x, const struct machine *mc, int64_t peak_bytes)
{
    if (peak_bytes <= x->peak_bytes)
        return;
    x->packing_bytes += peak_bytes - x->peak_bytes;
    x->peak_bytes = peak_bytes;
    x->fit_probability = estimate_fit_probability(mc, peak_bytes);
}

/* --- in one go --- */

static enum rc estimate(struct estimate *out, const struct model *m, const struct strategy *s,
    const struct machine *machine, bool is_whole, struct err *e)
{
    struct prepared *p = NULL;
    enum rc rc = prepared_make(&p, m, s, is_whole, e);
    if (!rc)
        prepared_estimate(out, p, machine);
    prepared_free(p);
    return rc;
}

enum rc estimate_make(struct estimate *out, const struct model *m, const struct strategy *s,
    const struct machine *machine, struct err *e)
{
    enum rc rc = machine_check_precision(machine, s->precision, e);
    return rc ? rc : estimate(out, m, s, machine, true, e);
}

enum rc estimate_quick(struct estimate *out, const struct model *m, const struct strategy *s,
    const struct machine *machine, struct err *e)
{
    return estimate(out, m, s, machine, false, e);
}

/* Does the whole schedule fit? */
static enum rc fits_whole(bool *out, const struct model *m, const struct strategy *s,
    const struct machine *mc, struct err *e)
{
    struct schedule *whole = NULL;
    enum rc rc = schedule_build(&whole, m, s, e);
    if (rc)
        return rc;
    layout_assign(whole);
    struct live_bytes slabs;
    memcpy(slabs.of, whole->slab_bytes, sizeof slabs.of);
    *out = has_room(mc, s, estimate_snapshot_bytes(m, s), &slabs);
    schedule_free(whole);
    return RC_OK;
}

enum rc estimate_fill(
    struct strategy *s, const struct model *m, const struct machine *machine, struct err *e)
{
    if (s->full_blocks != STRATEGY_FILL)
        return RC_OK;
    int low = 1, high = (int)most_in_full(m);
    enum rc rc = m->layers < 2 ? strategy_check(s, m, e) : RC_OK;
    while (!rc && low < high) {
        bool fits = false;
        s->full_blocks = (low + high) / 2;
        rc = fits_whole(&fits, m, s, machine, e);
        if (fits)
            high = s->full_blocks;
        else
            low = s->full_blocks + 1;
    }
    s->full_blocks = low;
    return rc;
}

struct strategy estimate_least(const struct strategy *s, const struct model *m)
{
    struct strategy least = *s;
    if (s->full_blocks == STRATEGY_FILL)
        least.full_blocks = (int)most_in_full(m);
    return least;
}

enum rc estimate_bytes(struct estimate *out, const struct model *m, const struct strategy *s,
    const struct machine *machine, struct err *e)
{
    struct prepared *p = NULL;
    enum rc rc = prepared_begin(&p, m, s, false, e);
    if (rc)
        return rc;
    struct subject of = {m, s, p->params, p->trained, p->active, p->snapshot};
    for (int i = 0; i < p->n; i++)
        layout_assign(p->schedule[i]);
    keep_slabs(p);
    *out = p->memory;
    fill_memory(out, p, &p->place);
    fill_checkpoint(out, &of, machine);
    fill_capacity(out, machine);
    fill_host(out, &of, machine);
    prepared_free(p);
    return RC_OK;
}

enum rc estimate_live_bytes(
    struct live_bytes *out, const struct model *m, const struct strategy *s, struct err *e)
{
    struct prepared *p = NULL;
    enum rc rc = prepared_begin(&p, m, s, false, e);
    if (!rc)
        *out = prepared_live_bytes(p);
    prepared_free(p);
    return rc;
}

void estimate_memory(struct estimate *out, const struct live_bytes *live, const struct model *m,
    const struct strategy *s, const struct machine *machine)
{
    struct subject of = {m, s, (double)model_params(m), (double)model_trained_params(m), 0,
        estimate_snapshot_bytes(m, s)};
    memset(out, 0, sizeof *out);
    out->peak_bytes = live->of[MEMORY_DEVICE];
    out->host_slab_bytes = of_node(live->of[MEMORY_HOST], s);
    out->disk_state_bytes = of_node(live->of[MEMORY_DISK], s);
    fill_engine_memory(out, m, s);
    fill_checkpoint(out, &of, machine);
    fill_capacity(out, machine);
    if (!profile_of(s->engine)->is_bundled)
        add_allocator(out, machine);
    fill_host(out, &of, machine);
}
