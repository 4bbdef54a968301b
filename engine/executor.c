#include "engine/executor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/comm.h"
#include "engine/disk.h"
#include "engine/executor_inside.h"
#include "engine/memory_use.h"
#include "kernels/kernels.h"
#include "planner/price.h"

/* --- addresses --- */

void *executor_buffer(struct executor *x, int32_t buffer)
{
    const struct buffer *b = &x->s->buffers[buffer];
    return x->slab[b->memory] + b->offset;
}

void *executor_address(struct executor *x, const struct ref *r)
{
    const int64_t place[] = {[OWNER_SHARD] = x->shard_rank, [OWNER_REPLICA] = x->replica_rank};
    return (char *)executor_buffer(x, r->buffer) + r->offset + r->bytes * place[r->owner];
}

const struct schedule *executor_schedule(const struct executor *x)
{
    return x->s;
}

int executor_threads(const struct executor *x)
{
    return x->o.device_options.threads;
}

struct comm *executor_comm(const struct executor *x)
{
    return x->o.comm;
}

int64_t executor_external_bytes(const struct executor *x)
{
    struct memory_range slabs[MEMORY_COUNT];
    for (int m = 0; m < MEMORY_COUNT; m++)
        slabs[m] = (struct memory_range){x->slab[m], x->slab[m] ? x->s->slab_bytes[m] : 0};
    int64_t all = memory_anonymous_bytes(), in_slabs = memory_resident_bytes(slabs, MEMORY_COUNT);
    if (all < 0 || in_slabs < 0 || in_slabs > all)
        return -1;
    return all - in_slabs + (int64_t)comm_control_bytes(x->o.comm);
}

bool executor_writes_part(const struct executor *x)
{
    return comm_rank(x->o.comm) < x->s->parts;
}

struct disk *executor_disk(const struct executor *x, double *bytes_per_s)
{
    *bytes_per_s = x->disk_bytes_per_s;
    return x->context.disk;
}

/* --- life cycle --- */

static void fill_rope(struct executor *x)
{
    const struct model *m = &x->s->model;
    if (x->s->rope < 0)
        return;
    struct k_rope_table t = {.positions = x->s->strategy.seq,
        .head_dim = m->head_dim,
        .theta = m->rope_theta,
        .factor = m->rope_factor,
        .low_freq = m->rope_low_freq,
        .high_freq = m->rope_high_freq,
        .original_positions = m->rope_original_positions,
        .scaling = m->rope == ROPE_LLAMA3   ? K_ROPE_LLAMA3
                   : m->rope == ROPE_LINEAR ? K_ROPE_LINEAR
                                            : K_ROPE_PLAIN};
    kernels_rope_table(&t, executor_buffer(x, x->s->rope));
}

_Static_assert(SCHEDULE_QK_NORM_SCRATCH == K_QK_NORM_PIECES * 2 * sizeof(float),
    "the planner counts what the kernel writes");

static enum rc check_workspace(const struct schedule *s, struct err *e)
{
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct op *op = &s->ops[i];
        if (op->kind == OP_MATMUL && kernels_matmul_workspace_bytes(op->dim[0], op->dim[1],
                                         op->dim[2]) > SCHEDULE_WORKSPACE_BYTES)
            return err_set(e, RC_LIMIT,
                "a %lld x %lld x %lld product needs more work space than "
                "the schedule plans",
                (long long)op->dim[0], (long long)op->dim[1], (long long)op->dim[2]);
    }
    return RC_OK;
}

/* What can be planned but not computed here is refused, never computed as something else. */
static enum rc check_model(const struct model *m, struct err *e)
{
    if (m->adapter.rank > 0)
        return err_set(e, RC_LIMIT,
            "adapters beside a frozen model '%s', which this engine does not train", m->name);
    if (m->head_dim > K_MAX_HEAD_DIM)
        return err_set(e, RC_LIMIT, "model '%s' has head_dim %lld; the engine takes at most %d",
            m->name, (long long)m->head_dim, K_MAX_HEAD_DIM);
    return RC_OK;
}

static enum rc open_slabs(struct executor *x, struct err *e)
{
    enum rc rc = RC_OK;
    for (int m = 0; m < MEMORY_DISK && !rc; m++) {
        void *base = NULL;
        rc = x->o.device->slab(x->device, (enum memory)m, x->s->slab_bytes[m], &base, e);
        x->slab[m] = base;
    }
    if (rc || x->s->slab_bytes[MEMORY_DISK] == 0)
        return rc;
    struct disk_options o = {
        .dirs = x->o.disk_dirs, .n_dirs = x->o.n_disk_dirs, .bytes = x->s->slab_bytes[MEMORY_DISK]};
    rc = disk_open(&x->context.disk, &o, e);
    if (rc)
        return rc;
    x->slab[MEMORY_DISK] = disk_base(x->context.disk);
    /* states are not there yet */
    return disk_measure(x->context.disk, x->slab[MEMORY_HOST], x->s->slab_bytes[MEMORY_HOST],
        &x->disk_bytes_per_s, e);
}

enum rc executor_open(struct executor **out, const struct schedule *s,
    const struct executor_options *o, struct err *e)
{
    *out = NULL;
    enum rc rc = check_model(&s->model, e);
    if (!rc)
        rc = check_workspace(s, e);
    if (rc)
        return rc;
    struct executor *x = base_calloc(1, sizeof(*x));
    x->s = s;
    x->o = *o;
    x->shard_rank = comm_group_rank(o->comm, GROUP_SHARD);
    x->fetched = -1;
    x->replica_rank = comm_group_rank(o->comm, GROUP_REPLICA);
    x->context = (struct op_context){.schedule = s, .kernels = o->kernels, .comm = o->comm};
    int32_t longest = 0;
    for (int i = 0; i < s->n_sections; i++)
        longest = s->section[i].n_ops > longest ? s->section[i].n_ops : longest;
    x->log = base_calloc((size_t)longest, sizeof(*x->log));
    rc = o->device->open(&x->device, &o->device_options, &x->context, e);
    if (!rc)
        rc = open_slabs(x, e);
    if (rc) {
        executor_close(x);
        return rc;
    }
    fill_rope(x);
    *out = x;
    return RC_OK;
}

void executor_close(struct executor *x)
{
    if (!x)
        return;
    if (x->device)
        x->o.device->close(x->device);
    disk_close(x->context.disk);
    free(x->log);
    free(x);
}

/* --- a section --- */

static double overlap(const struct task_log *a, const struct task_log *b)
{
    double start = a->start_s > b->start_s ? a->start_s : b->start_s;
    double end = a->end_s < b->end_s ? a->end_s : b->end_s;
    return end > start ? end - start : 0;
}

/* What of a step is told by kind: collectives, of which so much ran beside computing, and the
 * optimizer. */
static void account_kind(struct step_result *out, const struct task_log *t, double hidden)
{
    int kind = record_collective((enum op_kind)t->kind);
    double seconds = t->end_s - t->start_s;
    if (kind >= 0) {
        out->collective[kind].seconds += seconds;
        out->collective[kind].exposed_s += seconds - hidden;
    }
    if (op_work((enum op_kind)t->kind) == WORK_OPTIMIZER)
        out->optimizer_s += seconds;
}

/* Busy time of each lane, and of it what lies outside the compute lane's operations. The log has
 * lane after lane, the compute lane first, each in order: one cursor over the latter is enough. */
static void account(struct executor *x, struct step_result *out)
{
    int32_t n_compute = 0, c = 0;
    while (n_compute < x->n_log && x->log[n_compute].lane == LANE_COMPUTE)
        n_compute++;
    for (int32_t i = 0; i < x->n_log; i++) {
        const struct task_log *t = &x->log[i];
        double hidden = 0;
        out->busy_s[t->lane] += t->end_s - t->start_s;
        if (t->lane == LANE_COMPUTE) {
            account_kind(out, t, 0);
            continue;
        }
        if (i == 0 || x->log[i - 1].lane != t->lane)
            c = 0;
        while (c < n_compute && x->log[c].end_s <= t->start_s)
            c++;
        for (int32_t j = c; j < n_compute && x->log[j].start_s < t->end_s; j++)
            hidden += overlap(t, &x->log[j]);
        out->exposed_s[t->lane] += t->end_s - t->start_s - hidden;
        account_kind(out, t, hidden);
    }
}

void executor_write_trace(
    void *file, const struct section *sec, int64_t micro, const struct task_log *log, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        const struct task_log *t = &log[i];
        fprintf(file,
            "{\"section\":\"%s\",\"micro\":%lld,\"op\":%d,\"order\":%d,\"kind\":\"%s\","
            "\"lane\":\"%s\",\"start_s\":%.9f,\"end_s\":%.9f}\n",
            section_name(sec->kind), (long long)micro, t->index, t->order,
            op_kind_name((enum op_kind)t->kind), lane_name((enum lane)t->lane), t->start_s,
            t->end_s);
    }
}

/* Blocks are alike: a warm-up that has computed the first one has nothing new in the others. What
 * ranks do together they all do. */
static bool is_warm(const struct executor *x, const struct op *op)
{
    return x->context.is_warm_up && op->lane == LANE_COMPUTE && op->unit > 1 &&
           op->unit < x->s->n_units - 1;
}

static enum rc run_section(
    struct executor *x, const struct section *sec, struct step_result *out, struct err *e)
{
    for (int32_t i = 0; i < sec->n_ops; i++) {
        const struct op *op = &x->s->ops[sec->first_op + i];
        struct task t = {.op = op, .index = sec->first_op + i};
        t.is_idle = is_warm(x, op) || (op->flags & (x->is_pending ? OP_UNLESS_UPDATE : OP_UPDATE));
        for (int a = 0; a < op->n_args; a++)
            t.arg[a] = executor_address(x, &op->arg[a]);
        x->o.device->submit(x->device, &t);
    }
    enum rc rc = x->o.device->sync(x->device, x->log, &x->n_log, e);
    if (rc)
        return rc;
    x->is_pending = false;
    account(x, out);
    if (x->o.observe)
        x->o.observe(x->o.observe_arg, sec, x->micro, x->log, x->n_log);
    return RC_OK;
}

enum rc executor_flush(struct executor *x, struct err *e)
{
    struct step_result lanes = {0};
    if (!x->is_pending)
        return RC_OK;
    x->fetched = -1;
    return run_section(x, schedule_section(x->s, SECTION_FLUSH), &lanes, e);
}

/* --- a step --- */

static void set_context(struct executor *x, const struct step_params *p)
{
    struct op_context *c = &x->context;
    c->step = p->step;
    c->seed = p->seed;
    c->lr = p->lr;
    c->beta1 = p->beta1;
    c->beta2 = p->beta2;
    c->eps = p->eps;
    c->momentum = p->momentum;
    c->weight_decay = p->weight_decay;
    c->clip_norm = p->clip_norm;
    c->max_loss = p->max_loss > 0 ? p->max_loss : INFINITY;
    c->max_grad_norm = p->max_grad_norm > 0 ? p->max_grad_norm : INFINITY;
}

static enum rc run_micro_steps(struct executor *x, const struct section *sec, int64_t times,
    fill_fn *fill, void *arg, struct step_result *out, struct err *e)
{
    const struct schedule *s = x->s;
    struct micro_data data = {executor_buffer(x, s->tokens), executor_buffer(x, s->targets),
        s->positions >= 0 ? executor_buffer(x, s->positions) : NULL};
    enum rc rc = RC_OK;
    for (int64_t i = 0; i < times && !rc; i++, x->micro++) {
        rc = fill(arg, x->micro, &data, e);
        if (!rc)
            rc = run_section(x, sec, out, e);
    }
    return rc;
}

enum rc executor_step(struct executor *x, const struct step_params *p, fill_fn *fill, void *arg,
    struct step_result *out, struct err *e)
{
    memset(out, 0, sizeof(*out));
    x->fetched = -1;
    double *scalars = executor_buffer(x, x->s->scalars);
    memset(scalars, 0, SCALAR_COUNT * sizeof(*scalars));
    scalars[SCALAR_TARGETS] = p->local_targets;
    scalars[SCALAR_STOP] = p->wants_stop;
    scalars[SCALAR_SAVE] = p->wants_save;
    double start = clock_now_s();
    x->micro = 0;
    enum rc rc = RC_OK;
    for (int i = 0; i < x->s->n_sections && !rc; i++) {
        const struct section *sec = &x->s->section[i];
        if (sec->kind == SECTION_BOUNDARY)
            set_context(x, p); /* until here they are those of the update before */
        rc = sec->kind == SECTION_BOUNDARY
                 ? run_section(x, sec, out, e)
                 : run_micro_steps(
                       x, sec, x->context.is_warm_up ? 1 : sec->repeat, fill, arg, out, e);
    }
    if (rc)
        return rc;
    out->step_s = clock_now_s() - start;
    out->targets = scalars[SCALAR_TARGETS];
    out->loss = scalars[SCALAR_LOSS_SUM] / out->targets;
    out->grad_norm = sqrt(scalars[SCALAR_SQUARES]);
    out->is_stop = scalars[SCALAR_STOP] > 0;
    out->is_save = scalars[SCALAR_SAVE] > 0;
    out->is_skipped = !(out->targets > 0) || !isfinite(out->grad_norm) ||
                      out->grad_norm > x->context.max_grad_norm || out->loss > x->context.max_loss;
    x->is_pending = strategy_defers_update(&x->s->strategy) && !out->is_skipped;
    return RC_OK;
}

/* --- evaluation --- */

/* Counts the targets of what another function fills. */
struct counted_fill {
    fill_fn *fill;
    void *arg;
    int64_t elems;
    double targets;
};

static enum rc fill_counted(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    struct counted_fill *c = arg;
    enum rc rc = c->fill(c->arg, micro, out, e);
    for (int64_t i = 0; i < c->elems && !rc; i++)
        c->targets += out->targets[i] >= 0;
    return rc;
}

enum rc executor_evaluate(struct executor *x, int64_t micro_steps, fill_fn *fill, void *arg,
    struct evaluation *out, struct err *e)
{
    const struct strategy *s = &x->s->strategy;
    struct counted_fill c = {fill, arg, s->seq * s->micro_batch, 0};
    struct step_result lanes = {0};
    double *scalars = executor_buffer(x, x->s->scalars);
    enum rc rc = executor_flush(x, e);
    double start = clock_now_s();
    memset(scalars, 0, SCALAR_COUNT * sizeof(*scalars));
    scalars[SCALAR_TARGETS] = 1; /* scales gradients, of which there are none */
    x->micro = 0;
    if (!rc)
        rc = run_micro_steps(x, schedule_section(x->s, SECTION_EVALUATION), micro_steps,
            fill_counted, &c, &lanes, e);
    double sums[] = {scalars[SCALAR_LOSS_SUM], c.targets};
    if (!rc)
        rc = comm_sum(x->o.comm, CHANNEL_COMPUTE, GROUP_WORLD, sums, 2, e);
    if (!rc)
        *out = (struct evaluation){sums[0] / sums[1], sums[1], clock_now_s() - start};
    return rc;
}

static enum rc fill_zero(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    const struct schedule *s = arg;
    size_t bytes = (size_t)(s->strategy.seq * s->strategy.micro_batch) * sizeof(*out->tokens);
    memset(out->tokens, 0, bytes);
    memset(out->targets, 0xff, bytes); /* all ignored: every gradient is zero */
    if (out->positions)
        memset(out->positions, 0, bytes);
    return RC_OK;
}

enum rc executor_warm_up(struct executor *x, struct err *e)
{
    struct step_params p = {.step = 1};
    struct step_result r;
    struct evaluation ignored;
    void *arg = (void *)(uintptr_t)x->s;
    x->context.is_warm_up = true;
    x->is_pending = true; /* its operations are warmed up too */
    enum rc rc = executor_step(x, &p, fill_zero, arg, &r, e);
    x->is_pending = strategy_defers_update(&x->s->strategy);
    if (!rc)
        rc = executor_flush(x, e);
    if (!rc && schedule_section(x->s, SECTION_EVALUATION))
        rc = executor_evaluate(x, 1, fill_zero, arg, &ignored, e);
    x->context.is_warm_up = false;
    x->is_pending = false;
    return rc;
}
