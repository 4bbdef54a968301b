#include "engine/executor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/comm.h"
#include "engine/disk.h"
#include "engine/memory_use.h"
#include "kernels/kernels.h"

struct executor {
    const struct schedule *s;
    struct executor_options o;
    struct op_context context;
    struct device *device;
    char *slab[MEMORY_COUNT];
    int shard_rank, replica_rank; /* places in the groups */
    struct task_log *log;         /* of one section */
    int32_t n_log;
    int64_t micro; /* running, for the observer */
    double disk_bytes_per_s;
    int32_t fetched; /* buffer on disk whose contents are in its unit's swap buffer, -1 */
    bool is_pending; /* the update of the last step is still to be made */
};

/* --- addresses --- */

void *executor_buffer(struct executor *x, int32_t buffer)
{
    const struct buffer *b = &x->s->buffers[buffer];
    return x->slab[b->memory] + b->offset;
}

static void *address(struct executor *x, const struct ref *r)
{
    const int64_t place[] = {[OWNER_SHARD] = x->shard_rank, [OWNER_REPLICA] = x->replica_rank};
    return (char *)executor_buffer(x, r->buffer) + r->offset + r->bytes * place[r->owner];
}

const struct schedule *executor_schedule(const struct executor *x)
{
    return x->s;
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
        if (t->lane == LANE_COMPUTE)
            continue;
        if (x->log[i - 1].lane != t->lane)
            c = 0;
        while (c < n_compute && x->log[c].end_s <= t->start_s)
            c++;
        for (int32_t j = c; j < n_compute && x->log[j].start_s < t->end_s; j++)
            hidden += overlap(t, &x->log[j]);
        out->exposed_s[t->lane] += t->end_s - t->start_s - hidden;
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

static enum rc run_section(
    struct executor *x, const struct section *sec, struct step_result *out, struct err *e)
{
    for (int32_t i = 0; i < sec->n_ops; i++) {
        const struct op *op = &x->s->ops[sec->first_op + i];
        struct task t = {.op = op, .index = sec->first_op + i};
        t.is_idle = (op->flags & OP_UPDATE) && !x->is_pending;
        for (int a = 0; a < op->n_args; a++)
            t.arg[a] = address(x, &op->arg[a]);
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
    enum rc rc = RC_OK;
    for (int64_t i = 0; i < times && !rc; i++, x->micro++) {
        rc = fill(
            arg, x->micro, executor_buffer(x, x->s->tokens), executor_buffer(x, x->s->targets), e);
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
                 : run_micro_steps(x, sec, sec->repeat, fill, arg, out, e);
    }
    if (rc)
        return rc;
    out->step_s = clock_now_s() - start;
    out->targets = scalars[SCALAR_TARGETS];
    out->loss = scalars[SCALAR_LOSS_SUM] / out->targets;
    out->grad_norm = sqrt(scalars[SCALAR_SQUARES]);
    out->is_stop = scalars[SCALAR_STOP] > 0;
    out->is_save = scalars[SCALAR_SAVE] > 0;
    out->is_skipped = !isfinite(out->grad_norm) || out->grad_norm > x->context.max_grad_norm ||
                      out->loss > x->context.max_loss;
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

static enum rc fill_counted(
    void *arg, int64_t micro, int32_t *tokens, int32_t *targets, struct err *e)
{
    struct counted_fill *c = arg;
    enum rc rc = c->fill(c->arg, micro, tokens, targets, e);
    for (int64_t i = 0; i < c->elems && !rc; i++)
        c->targets += targets[i] >= 0;
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

static enum rc fill_zero(void *arg, int64_t micro, int32_t *tokens, int32_t *targets, struct err *e)
{
    const struct schedule *s = arg;
    size_t bytes = (size_t)(s->strategy.seq * s->strategy.micro_batch) * sizeof(*tokens);
    memset(tokens, 0, bytes);
    memset(targets, 0xff, bytes); /* all ignored: every gradient is zero */
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

/* --- state --- */

bool state_exists(const struct schedule *s, enum state_kind kind)
{
    return kind != STATE_V || strategy_moments(&s->strategy) > 1;
}

static int32_t state_buffer(const struct unit_buffers *b, enum state_kind kind)
{
    if (kind == STATE_MASTER)
        return b->master >= 0 ? b->master : b->param;
    return kind == STATE_M ? b->m : b->v;
}

/* Of a unit: the first element of the rank's part. */
static int64_t first_of_part(const struct executor *x, int unit)
{
    return schedule_part_of(x->s, comm_rank(x->o.comm)) * schedule_part_elems(x->s, unit);
}

/* Where the rank's part begins in what it holds of a unit: the whole, its shard, or its part. */
static int64_t place_in(const struct executor *x, int unit, int64_t shards)
{
    int64_t first = first_of_part(x, unit);
    if (shards == 1)
        return first;
    return shards == x->s->shards ? first - x->shard_rank * x->s->unit[unit].shard_elems : 0;
}

/* Ranks over which that kind of state is split. */
static int64_t shards_of(const struct schedule *s, int unit, enum state_kind kind)
{
    bool is_param = kind == STATE_MASTER && s->state[unit].master < 0;
    return is_param ? strategy_parameter_shards(&s->strategy)
                    : strategy_optimizer_shards(&s->strategy);
}

/* Where its norm is taken; on the host when it is kept there. */
static struct state_view gradient_of(struct executor *x, int unit)
{
    const struct schedule *s = x->s;
    void *data = executor_buffer(x, s->state[unit].grad);
    for (int32_t i = 0; i < s->n_ops && !strategy_parks_gradients(&s->strategy); i++)
        if (s->ops[i].kind == OP_GRAD_NORM && s->ops[i].unit == unit)
            data = address(x, &s->ops[i].arg[0]);
    return (struct state_view){data, first_of_part(x, unit), schedule_part_elems(s, unit)};
}

/* Where in its unit's swap buffer a buffer on disk goes: after those of the kinds before. */
static char *swap_place(struct executor *x, const struct unit_buffers *b, int32_t id)
{
    const int32_t order[] = {b->master, b->m, b->v};
    char *at = executor_buffer(x, b->swap);
    for (int i = 0; order[i] != id; i++)
        at += order[i] >= 0 ? x->s->buffers[order[i]].bytes : 0;
    return at;
}

struct state_view executor_state(struct executor *x, int unit, enum state_kind kind)
{
    if (kind == STATE_GRADIENT)
        return gradient_of(x, unit);
    const struct unit_buffers *b = &x->s->state[unit];
    int32_t id = state_buffer(b, kind);
    bool is_on_disk = x->s->buffers[id].memory == MEMORY_DISK;
    void *data = is_on_disk ? swap_place(x, b, id) : executor_buffer(x, id);
    return (struct state_view){(float *)data + place_in(x, unit, shards_of(x->s, unit, kind)),
        first_of_part(x, unit), schedule_part_elems(x->s, unit)};
}

void executor_on_update(struct executor *x, update_fn *fn, void *arg)
{
    x->context.before_update = fn;
    x->context.update_arg = arg;
}

static enum rc move_state(
    struct executor *x, int unit, enum state_kind kind, bool is_write, struct err *e)
{
    const struct unit_buffers *b = &x->s->state[unit];
    int32_t id = state_buffer(b, kind);
    if (x->s->buffers[id].memory != MEMORY_DISK || (!is_write && x->fetched == id))
        return RC_OK;
    struct disk_part part = {
        executor_buffer(x, id), swap_place(x, b, id), x->s->buffers[id].bytes, is_write};
    x->fetched = -1;
    enum rc rc = disk_move(x->context.disk, &part, 1, e);
    x->fetched = rc ? -1 : id;
    return rc;
}

enum rc executor_fetch_state(struct executor *x, int unit, enum state_kind kind, struct err *e)
{
    return move_state(x, unit, kind, false, e);
}

enum rc executor_store_state(struct executor *x, int unit, enum state_kind kind, struct err *e)
{
    return move_state(x, unit, kind, true, e);
}

/* The parts of the peers in a group. */
static enum rc gather_parts(
    struct executor *x, enum op_group group, char *whole, size_t bytes, struct err *e)
{
    size_t part = bytes / (size_t)comm_group_size(x->o.comm, group);
    char *own = whole + part * (size_t)comm_group_rank(x->o.comm, group);
    return comm_all_gather(x->o.comm, CHANNEL_GATHER, group, own, whole, part, e);
}

/* A replicated optimizer: its other parts come from the peers. */
static enum rc publish_states(struct executor *x, int unit, struct err *e)
{
    static const enum state_kind kinds[] = {STATE_M, STATE_V, STATE_MASTER};
    const struct unit_buffers *b = &x->s->state[unit];
    size_t bytes = (size_t)x->s->unit[unit].elems * sizeof(float);
    enum rc rc = RC_OK;
    if (x->s->shards == 1 || shards_of(x->s, unit, STATE_M) > 1)
        return RC_OK;
    for (size_t i = 0; i < BASE_COUNT(kinds) && !rc; i++) {
        bool is_param = kinds[i] == STATE_MASTER && b->master < 0;
        if (is_param || !state_exists(x->s, kinds[i]))
            continue;
        rc = executor_fetch_state(x, unit, kinds[i], e);
        struct state_view v = executor_state(x, unit, kinds[i]);
        if (!rc)
            rc = gather_parts(x, GROUP_SHARD, (char *)(v.data - v.first), bytes, e);
        if (!rc)
            rc = executor_store_state(x, unit, kinds[i], e);
    }
    return rc;
}

/* The own part of the parameters, rounded from the master values; then those of the peers. */
static enum rc publish_params(struct executor *x, int unit, struct err *e)
{
    const struct unit_layout *u = &x->s->unit[unit];
    const struct unit_buffers *b = &x->s->state[unit];
    int64_t bytes = precision_bytes(x->s->strategy.precision);
    bool has_all = strategy_parameter_shards(&x->s->strategy) == 1;
    char *param = executor_buffer(x, b->param);
    char *own = param + place_in(x, unit, strategy_parameter_shards(&x->s->strategy)) * bytes;
    enum rc rc = executor_fetch_state(x, unit, STATE_MASTER, e);
    if (rc)
        return rc;
    struct state_view v = executor_state(x, unit, STATE_MASTER);
    if (b->master >= 0 && x->s->strategy.precision == PRECISION_BF16)
        x->o.kernels->fp32_to_bf16(NULL, (uint16_t *)(void *)own, v.data, v.count);
    else if (b->master >= 0)
        memcpy(own, v.data, (size_t)v.count * sizeof(float));
    if (x->s->parts > x->s->shards)
        rc = gather_parts(x, GROUP_REPLICA, param, (size_t)(u->shard_elems * bytes), e);
    else if (has_all && x->s->shards > 1)
        rc = gather_parts(x, GROUP_SHARD, param, (size_t)(u->elems * bytes), e);
    return rc;
}

enum rc executor_publish(struct executor *x, struct err *e)
{
    enum rc rc = RC_OK;
    x->is_pending = false; /* it was of other values */
    for (int u = 0; u < x->s->n_units && !rc; u++) {
        rc = publish_states(x, u, e);
        if (!rc)
            rc = publish_params(x, u, e);
    }
    return rc;
}
