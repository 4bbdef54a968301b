/* Sections, state, gathers and the boundary: what depends on the strategy. Reductions are in
 * schedule_reduce.c, the model's own operations in schedule_block.c. */
#include "planner/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/schedule_builder.h"
#include "planner/split.h"

/* One step of the way through the model: forward of a unit, backward of a unit, or both (head,
 * where the run trains). */
struct visit {
    int unit;
    bool is_backward; /* also true for the head of a training step */
};

/* --- arguments --- */

static void add_arg(struct op *op, struct ref r)
{
    op->arg[op->n_args++] = r;
}

void op_arg(struct builder *b, struct op *op, enum access access, int32_t buffer)
{
    add_arg(
        op, (struct ref){
                .buffer = buffer, .access = (uint8_t)access, .bytes = b->s->buffers[buffer].bytes});
}

void op_arg_part(struct op *op, enum access access, int32_t buffer, int64_t offset, int64_t bytes)
{
    add_arg(op, (struct ref){
                    .buffer = buffer, .access = (uint8_t)access, .offset = offset, .bytes = bytes});
}

void op_arg_own(struct op *op, enum access access, int32_t buffer, enum owner owner, int64_t bytes)
{
    add_arg(op,
        (struct ref){
            .buffer = buffer, .access = (uint8_t)access, .owner = (uint8_t)owner, .bytes = bytes});
}

/* --- what the strategy holds --- */

bool shards_parameters(const struct builder *b)
{
    return strategy_parameter_shards(&b->s->strategy) > 1 ||
           b->s->strategy.kind == STRATEGY_ZERO3 || b->s->strategy.kind == STRATEGY_HSDP;
}

bool shards_gradients(const struct builder *b)
{
    return b->s->strategy.kind >= STRATEGY_ZERO2;
}

bool shards_optimizer(const struct builder *b)
{
    return b->s->strategy.kind >= STRATEGY_ZERO1;
}

bool splits_over_replicas(const struct builder *b)
{
    return b->s->parts > b->s->shards;
}

int64_t written_grad_bytes(const struct builder *b)
{
    return shards_gradients(b) ? b->profile->unit_grad_bytes : b->grad_bytes;
}

static int32_t full_param(const struct builder *b, int unit)
{
    return shards_parameters(b) ? b->gathered[unit] : b->s->state[unit].param;
}

bool unit_has(const struct builder *b, int unit, enum tensor_role role)
{
    return unit_tensor(&b->s->unit[unit], role) != NULL;
}

/* Elements from the start of the unit to the first tensor, and of first..last together. */
static void span(const struct builder *b, int unit, enum tensor_role first, enum tensor_role last,
    int64_t *offset, int64_t *elems)
{
    const struct tensor *t = unit_tensor(&b->s->unit[unit], first);
    const struct tensor *u = unit_tensor(&b->s->unit[unit], last);
    *offset = t->offset;
    *elems = u->offset + u->rows * u->cols - t->offset;
}

void op_param(
    struct builder *b, struct op *op, int unit, enum tensor_role first, enum tensor_role last)
{
    int64_t offset, elems;
    int32_t full = model_is_quantised(&b->s->model, unit) ? b->dense : full_param(b, unit);
    span(b, unit, first, last, &offset, &elems);
    op_arg_part(op, ACCESS_READ, full, offset * b->param_bytes, elems * b->param_bytes);
}

/* Gathered adapters follow the frozen parameters they were gathered with. */
void op_adapter(struct builder *b, struct op *op, int unit, int64_t offset, int64_t elems)
{
    int32_t full = shards_parameters(b) ? b->gathered[unit] : b->s->state[unit].adapter;
    int64_t at = shards_parameters(b) ? b->frozen[unit].bytes : 0;
    op_arg_part(op, ACCESS_READ, full, at + offset * b->param_bytes, elems * b->param_bytes);
}

void arg_unit_grad(const struct builder *b, struct op *op, enum access access, int unit,
    int64_t offset, int64_t elems)
{
    int64_t bytes = written_grad_bytes(b);
    op_arg_part(
        op, access, b->unit_grad[unit], (b->buckets[unit].at + offset) * bytes, elems * bytes);
}

void op_adapter_grad(struct builder *b, struct op *op, int unit, int64_t offset, int64_t elems)
{
    bool is_later_micro = b->kind == SECTION_MIDDLE || b->kind == SECTION_LAST;
    bool has_something = !shards_gradients(b) && is_later_micro;
    if (has_something)
        op->flags |= OP_ACCUMULATE;
    arg_unit_grad(b, op, has_something ? ACCESS_BOTH : ACCESS_WRITE, unit, offset, elems);
}

void op_grad(
    struct builder *b, struct op *op, int unit, enum tensor_role first, enum tensor_role last)
{
    int64_t offset, elems;
    span(b, unit, first, last, &offset, &elems);
    bool is_later_micro = b->kind == SECTION_MIDDLE || b->kind == SECTION_LAST;
    bool has_something =
        (b->written[unit] & 1u << first) || (!shards_gradients(b) && is_later_micro);
    b->written[unit] |= 1u << first;
    if (has_something)
        op->flags |= OP_ACCUMULATE;
    arg_unit_grad(b, op, has_something ? ACCESS_BOTH : ACCESS_WRITE, unit, offset, elems);
}

/* --- gathers --- */

static bool visit_needs(const struct builder *b, const struct visit *v, int unit)
{
    int head = b->s->n_units - 1;
    if (v->unit == 0 && v->is_backward)
        return false; /* the embedding's backward reads no parameters */
    return unit == v->unit || (v->unit == head && unit == 0 && b->s->model.is_tied);
}

static int64_t gathered_bytes(const struct builder *b, int unit)
{
    return b->trained[unit].elems * b->param_bytes + b->frozen[unit].bytes;
}

/* Is a unit used at visit i still there at its next use j? Kept when asked for, when only one visit
 * lies between (the last block, around the head), or when it would be gathered again before i. */
static bool stays_resident(const struct builder *b, int unit, int i, int j)
{
    const struct strategy *st = &b->s->strategy;
    return !strategy_reshards(st, gathered_bytes(b, unit)) || j - i <= 2 || j - i <= st->prefetch;
}

static int previous_use(const struct builder *b, const struct visit *visits, int at, int unit)
{
    for (int i = at - 1; i >= 0; i--)
        if (visit_needs(b, &visits[i], unit))
            return i;
    return -1;
}

static void emit_gather(struct builder *b, int unit)
{
    const struct unit_layout *u = &b->s->unit[unit];
    int64_t copies = b->profile->gathered_copies;
    int64_t bytes = gathered_bytes(b, unit);
    int32_t full = builder_unit_buffer(b, "gathered", PART_GATHERED, unit, bytes * copies);
    const struct unit_buffers *st = &b->s->state[unit];
    bool is_parked = strategy_parks_parameters(&b->s->strategy);
    int32_t shard = is_parked ? b->shard_up[unit] : st->param;
    b->gathered[unit] = full;
    if (gathers_in_blocks(b)) {
        emit_gather_in_blocks(b, unit, shard, full);
        return;
    }
    struct op *op = builder_op(b, OP_ALL_GATHER, LANE_GATHER, unit);
    op->group = GROUP_SHARD;
    op->dim[0] = u->elems;
    op->dim[1] = u->shard_elems;
    op_arg(b, op, ACCESS_READ, shard);
    if (st->adapter >= 0 && !is_parked)
        op_arg(b, op, ACCESS_READ, st->adapter);
    op_arg(b, op, ACCESS_WRITE, full);
    op->bytes = (double)bytes;
}

/* Emit for each unit that the visit needs and that is not there. */
static void for_missing(struct builder *b, const struct visit *visits, int at,
    void (*emit)(struct builder *b, int unit))
{
    for (int unit = 0; unit < b->s->n_units; unit++) {
        if (!visit_needs(b, &visits[at], unit))
            continue;
        int before = previous_use(b, visits, at, unit);
        if (before < 0 || !stays_resident(b, unit, before, at))
            emit(b, unit);
    }
}

/* --- micro steps --- */

static int make_visits(const struct builder *b, struct visit *v)
{
    int head = b->s->n_units - 1;
    int n = 0;
    for (int u = 0; u < head; u++)
        v[n++] = (struct visit){u, false};
    v[n++] = (struct visit){head, b->kind != SECTION_EVALUATION};
    for (int u = head - 1; u >= 0 && b->kind != SECTION_EVALUATION; u--)
        v[n++] = (struct visit){u, true};
    return n;
}

static void emit_visit(struct builder *b, const struct visit *v)
{
    int head = b->s->n_units - 1;
    emit_dequantise(b, v->unit);
    if (v->is_backward)
        begin_unit_grad(b, v->unit);
    if (v->unit == head) {
        if (b->s->model.is_tied && v->is_backward)
            begin_unit_grad(b, 0);
        emit_head(b);
    } else if (v->unit == 0) {
        v->is_backward ? emit_embed_bwd(b) : emit_embed_fwd(b);
    } else {
        v->is_backward ? emit_block_bwd(b, v->unit) : emit_block_fwd(b, v->unit);
    }
}

static void reset_micro(struct builder *b)
{
    for (int u = 0; u < b->s->n_units; u++) {
        b->gathered[u] = b->unit_grad[u] = b->shard_up[u] = b->param_host[u] = -1;
        b->written[u] = 0;
    }
    b->x = b->dx = b->parked = -1;
}

static void begin_section(struct builder *b, enum section_kind kind, int64_t repeat)
{
    b->section = b->s->n_sections;
    b->kind = kind;
    b->s->section[b->s->n_sections++] =
        (struct section){.kind = kind, .first_op = b->s->n_ops, .repeat = repeat};
    reset_micro(b);
}

static void end_section(struct builder *b)
{
    struct section *sec = &b->s->section[b->section];
    sec->n_ops = b->s->n_ops - sec->first_op;
}

static void emit_scalars(struct builder *b, enum op_group group, int first, int count)
{
    struct op *op = builder_op(b, OP_SCALARS, LANE_COMPUTE, -1);
    op->group = (uint8_t)group;
    op->dim[0] = first;
    op->dim[1] = count;
    op_arg(b, op, ACCESS_BOTH, b->s->scalars);
    op->bytes = 8.0 * count;
}

/* How far a micro step is: visits for which units were gathered, and copied up to be, and read from
 * disk; units of which the host made the update of the step before. */
struct progress {
    const struct visit *visits;
    int n, read, copied, gathered;
    struct host_updates updates;
};

/* Copies up run a visit ahead of the gathers that they feed, reads from disk ahead of these,
 * updates ahead of all. (Unit u is visited u-th.) */
static void bring_parameters(struct builder *b, struct progress *p, int at)
{
    int last = at + b->s->strategy.prefetch;
    bool copies = strategy_parks_parameters(&b->s->strategy);
    bool reads = strategy_streams_parameters(&b->s->strategy);
    while (p->updates.next < p->updates.end && p->updates.next <= last + copies + reads) {
        emit_host_update(b, &p->updates);
        if (copies) /* where the host has them at hand */
            emit_unit_amax(b, p->updates.next - 1);
    }
    for (; reads && p->read < p->n && p->read <= last + 2; p->read++)
        for_missing(b, p->visits, p->read, emit_param_read);
    for (; copies && p->copied < p->n && p->copied <= last + 1; p->copied++)
        for_missing(b, p->visits, p->copied, emit_param_up);
    for (; shards_parameters(b) && p->gathered < p->n && p->gathered <= last; p->gathered++)
        for_missing(b, p->visits, p->gathered, emit_gather);
}

/* Of weights that the host has just updated; it takes those itself that it keeps. */
static void take_updated_amax(struct builder *b, int unit)
{
    if (!strategy_parks_parameters(&b->s->strategy))
        emit_unit_amax(b, unit);
    emit_amax_over_shards(b, unit, unit);
}

/* What the block visited before keeps goes down while this one computes, and what the next one
 * needs comes up. */
static void move_activations(struct builder *b, const struct progress *p, int at)
{
    if (b->kind == SECTION_EVALUATION)
        return;
    const struct visit *before = at > 0 ? &p->visits[at - 1] : NULL;
    const struct visit *next = at + 1 < p->n ? &p->visits[at + 1] : NULL;
    if (before && !before->is_backward && offloads_block(b, before->unit))
        emit_acts_down(b, before->unit);
    if (next && next->is_backward && offloads_block(b, next->unit))
        emit_acts_up(b, next->unit);
}

/* List order decides when memory may be used again: gathers are listed prefetch visits ahead of
 * their use, and a unit's reduction one visit after its backward, so that each overlaps with the
 * products in between. */
static void emit_micro(struct builder *b, enum section_kind kind, int64_t repeat)
{
    bool is_first = kind == SECTION_FIRST || kind == SECTION_ONLY;
    begin_section(b, kind, repeat);
    if (is_first)
        emit_scalars(b, GROUP_WORLD, SCALAR_TARGETS, 1);
    struct visit *visits = base_alloc(sizeof(*visits) * 2 * (size_t)b->s->n_units);
    struct progress p = {.visits = visits, .n = make_visits(b, visits)};
    bool is_updated = is_first && strategy_defers_update(&b->s->strategy);
    bool is_evaluation = kind == SECTION_EVALUATION;
    /* weights are found one unit after the other */
    bool is_by_unit = is_updated || (is_evaluation && strategy_streams_parameters(&b->s->strategy));
    if (is_updated)
        p.updates = begin_host_updates(b);
    else if ((is_first || is_evaluation) && !is_by_unit)
        emit_weight_amax(b);
    int to_reduce = -1;
    for (int i = 0; i < p.n; i++) {
        bring_parameters(b, &p, i);
        if (is_by_unit && !visits[i].is_backward)
            take_updated_amax(b, visits[i].unit);
        emit_visit(b, &visits[i]);
        move_activations(b, &p, i);
        reduce_unit(b, to_reduce);
        to_reduce = visits[i].is_backward ? visits[i].unit : -1;
    }
    if (to_reduce >= 0)
        reduce_unit(b, to_reduce);
    emit_parked_down(b);
    free(visits);
    end_section(b);
}

/* --- boundary --- */

/* Of a unit that a rank answers for, whether or not the others hold it too. */
static int64_t part_elems(const struct builder *b, int unit)
{
    const struct trained_unit *u = &b->trained[unit];
    return splits_over_replicas(b) ? u->elems / b->s->parts : u->shard_elems;
}

int64_t own_elems(const struct builder *b, int unit)
{
    return shards_optimizer(b) ? part_elems(b, unit) : b->trained[unit].elems;
}

/* The parameters that are trained. */
int32_t trained_param(const struct builder *b, int unit)
{
    const struct unit_buffers *st = &b->s->state[unit];
    return trains_all(b) ? st->param : st->adapter;
}

/* Whose part of a buffer the rank answers for, when the buffer is a shard or the whole unit. */
static enum owner owner_in(const struct builder *b, bool is_sharded)
{
    if (!is_sharded)
        return OWNER_SHARD;
    return splits_over_replicas(b) ? OWNER_REPLICA : OWNER_NONE;
}

void arg_own_param(struct builder *b, struct op *op, enum access access, int unit, int32_t buffer)
{
    enum owner owner = shards_optimizer(b) ? owner_in(b, shards_parameters(b)) : OWNER_NONE;
    if (owner == OWNER_NONE)
        op_arg(b, op, access, buffer);
    else
        op_arg_own(op, access, buffer, owner, own_elems(b, unit) * b->shard_bytes);
}

/* So many elements of a unit's gradient, of the whole of it or of the rank's part. */
static void arg_grad(struct builder *b, struct op *op, int unit, enum owner owner, int64_t elems)
{
    const struct bucket *k = &b->buckets[unit];
    int64_t at = shards_gradients(b) ? k->shard_at : k->at;
    add_arg(op, (struct ref){.buffer = b->s->state[unit].grad,
                    .access = ACCESS_READ,
                    .owner = (uint8_t)owner,
                    .offset = at * b->grad_bytes,
                    .bytes = elems * b->grad_bytes});
}

void arg_own_grad(struct builder *b, struct op *op, int unit)
{
    enum owner owner = shards_optimizer(b) ? owner_in(b, shards_gradients(b)) : OWNER_NONE;
    arg_grad(b, op, unit, owner, own_elems(b, unit));
}

void emit_grad_norm(struct builder *b, int unit, int32_t parked)
{
    struct op *op = builder_op(b, OP_GRAD_NORM, LANE_COMPUTE, unit);
    op->dim[0] = part_elems(b, unit);
    /* replicated gradients are split as sharded ones are, so that the sum has the same order */
    if (parked >= 0)
        op_arg(b, op, ACCESS_READ, parked);
    else
        arg_grad(b, op, unit, owner_in(b, shards_gradients(b)), op->dim[0]);
    op_arg(b, op, ACCESS_BOTH, b->s->scalars);
    op->flops = 2.0 * (double)op->dim[0];
}

/* Parameters that lie on the host are written into a buffer on their way down. */
static int32_t begin_param_update(struct builder *b, int unit)
{
    const struct unit_buffers *st = &b->s->state[unit];
    if (!strategy_parks_parameters(&b->s->strategy))
        return trained_param(b, unit);
    if (st->master < 0) {
        emit_param_up(b, unit);
        return b->shard_up[unit];
    }
    return builder_unit_buffer(
        b, "param_new", PART_PARAMETERS, unit, own_elems(b, unit) * b->shard_bytes);
}

struct op *emit_update(struct builder *b, enum lane lane, int unit)
{
    bool is_sgd = b->s->strategy.optimizer == OPTIMIZER_SGD;
    struct op *op = builder_op(b, op_of_update(&b->s->strategy), lane, unit);
    op->dim[0] = own_elems(b, unit);
    op->flops = (is_sgd ? 6.0 : 12.0) * (double)op->dim[0];
    return op;
}

static void emit_update_device(struct builder *b, int unit)
{
    const struct unit_buffers *st = &b->s->state[unit];
    int32_t param = begin_param_update(b, unit);
    int32_t grad = b->s->strategy.fp8_gradients ? emit_grad_from_fp8(b, unit) : -1;
    struct op *op = emit_update(b, LANE_COMPUTE, unit);
    if (grad >= 0)
        op_arg(b, op, ACCESS_READ, grad);
    else
        arg_own_grad(b, op, unit);
    if (st->master >= 0)
        op_arg(b, op, ACCESS_BOTH, st->master);
    else
        arg_own_param(b, op, ACCESS_BOTH, unit, param);
    op_arg(b, op, ACCESS_BOTH, st->m);
    if (st->v >= 0)
        op_arg(b, op, ACCESS_BOTH, st->v);
    op_arg(b, op, ACCESS_READ, b->s->scalars);
    bool is_split = b->s->strategy.master_bytes == MASTER_SPLIT;
    if (st->master >= 0)
        arg_own_param(b, op, is_split ? ACCESS_BOTH : ACCESS_WRITE, unit, param);
    if (param != trained_param(b, unit))
        emit_param_down(b, unit, param);
}

/* What others updated of the parameters that the rank holds. */
static void emit_param_gather(struct builder *b, int unit, enum op_group group)
{
    const struct trained_unit *u = &b->trained[unit];
    struct op *op = builder_op(b, OP_ALL_GATHER, LANE_GATHER, unit);
    op->group = (uint8_t)group;
    op->flags |= OP_IN_PLACE;
    op->dim[0] = group == GROUP_REPLICA ? u->shard_elems : u->elems;
    op->dim[1] = own_elems(b, unit);
    op_arg(b, op, ACCESS_BOTH, trained_param(b, unit));
    op->bytes = (double)(op->dim[0] * b->param_bytes);
}

/* Embedding and head have nothing to update where adapters of blocks are trained. */
static void find_trained(const struct builder *b, int *first, int *end)
{
    *first = 0;
    *end = b->s->n_units;
    while (*first < *end && b->trained[*first].elems == 0)
        ++*first;
    while (*end > *first && b->trained[*end - 1].elems == 0)
        --*end;
}

struct host_updates begin_host_updates(const struct builder *b)
{
    struct host_updates h = {0};
    find_trained(b, &h.next, &h.end);
    h.fetched = h.next;
    return h;
}

void finish_update(struct builder *b, int unit)
{
    if (splits_over_replicas(b))
        emit_param_gather(b, unit, GROUP_REPLICA);
    else if (shards_optimizer(b) && !shards_parameters(b))
        emit_param_gather(b, unit, GROUP_SHARD);
}

static void emit_host_updates(struct builder *b)
{
    struct host_updates updates = begin_host_updates(b);
    while (updates.next < updates.end)
        emit_host_update(b, &updates);
}

static void emit_boundary(struct builder *b)
{
    struct schedule *s = b->s;
    int first, end;
    find_trained(b, &first, &end);
    begin_section(b, SECTION_BOUNDARY, 1);
    /* from the last unit on, as those that leave the device are taken: sums of the same order */
    for (int u = end - 1; u >= first && !strategy_takes_norms_early(&s->strategy); u--)
        emit_grad_norm(b, u, -1);
    emit_scalars(b, GROUP_WORLD, SCALAR_LOSS_SUM, 3);
    emit_scalars(b, splits_over_replicas(b) ? GROUP_WORLD : GROUP_SHARD, SCALAR_SQUARES, 1);
    if (strategy_defers_update(&s->strategy))
        emit_keep_scalars(b);
    else if (s->strategy.offload & OFFLOAD_OPTIMIZER)
        emit_host_updates(b);
    for (int u = first; u < end && !(s->strategy.offload & OFFLOAD_OPTIMIZER); u++) {
        emit_update_device(b, u);
        finish_update(b, u);
    }
    end_section(b);
}

/* What the next step would have begun with. */
static void emit_flush(struct builder *b)
{
    begin_section(b, SECTION_FLUSH, 0);
    emit_host_updates(b);
    end_section(b);
}

/* --- state --- */

static int32_t state_buffer(
    struct builder *b, const char *what, enum part part, int unit, int64_t bytes)
{
    return builder_unit_buffer(b, what, part, unit, bytes);
}

static int32_t placed_buffer(struct builder *b, const char *what, enum part part, int unit,
    int64_t bytes, enum memory memory)
{
    int32_t id = state_buffer(b, what, part, unit, bytes);
    b->s->buffers[id].memory = (uint8_t)memory;
    if (memory == MEMORY_DISK)
        builder_align(b, id, DISK_ALIGN);
    return id;
}

static int32_t optimizer_buffer(struct builder *b, const char *what, int unit, int64_t bytes)
{
    unsigned offload = b->s->strategy.offload;
    return placed_buffer(b, what, PART_OPTIMIZER, unit, bytes,
        offload & OFFLOAD_DISK        ? MEMORY_DISK
        : offload & OFFLOAD_OPTIMIZER ? MEMORY_HOST
                                      : MEMORY_DEVICE);
}

/* The host updates a copy in fp32; parameters that are kept so, and there, are that copy. */
static bool has_master(const struct builder *b)
{
    const struct strategy *st = &b->s->strategy;
    bool is_mixed = st->precision != PRECISION_FP32 && !b->profile->has_fp32_shard;
    return (is_mixed && st->master_bytes > 0) ||
           ((st->offload & OFFLOAD_OPTIMIZER) && !strategy_parks_parameters(st));
}

/* Of one moment of what a rank updates of a unit. */
static int64_t moment_bytes(const struct builder *b, int unit)
{
    const struct strategy *s = &b->s->strategy;
    int64_t own = own_elems(b, unit), part = part_elems(b, unit);
    int64_t bytes = own * s->moment_bytes / strategy_moments(s);
    if (s->moment_form == MOMENT_FP32 || part == 0)
        return bytes;
    return bytes + own / part * 4 * schedule_moment_scales(s->moment_form, &b->s->unit[unit], part);
}

static void make_state(struct builder *b)
{
    struct schedule *s = b->s;
    bool is_mastered = has_master(b);
    int moments = strategy_moments(&s->strategy);
    enum memory params = strategy_streams_parameters(&s->strategy) ? MEMORY_DISK
                         : strategy_parks_parameters(&s->strategy) ? MEMORY_HOST
                                                                   : MEMORY_DEVICE;
    enum memory grads = strategy_parks_gradients(&s->strategy) ? MEMORY_HOST : MEMORY_DEVICE;
    for (int u = 0; u < s->n_units; u++) {
        const struct trained_unit *l = &b->trained[u];
        struct unit_buffers *st = &s->state[u];
        int64_t own = own_elems(b, u), moment = moment_bytes(b, u);
        int64_t bytes = (shards_parameters(b) ? l->shard_elems : l->elems) * b->shard_bytes;
        *st = (struct unit_buffers){-1, -1, -1, -1, -1, -1, -1, -1};
        if (trains_all(b)) {
            st->param = placed_buffer(b, "param", PART_PARAMETERS, u, bytes, params);
        } else {
            st->param = placed_buffer(b, "frozen", PART_PARAMETERS, u,
                shards_parameters(b) ? b->frozen[u].shard_bytes : b->frozen[u].bytes, params);
            if (l->elems == 0)
                continue;
            st->adapter = placed_buffer(b, "adapter", PART_PARAMETERS, u, bytes, params);
        }
        const struct bucket *k = &b->buckets[u];
        int64_t elems = shards_gradients(b) ? bucket_shard_elems(b, u) : bucket_elems(b, u);
        int64_t kept = s->strategy.fp8_gradients ? 1 : b->grad_bytes;
        st->grad = u > k->first ? s->state[k->first].grad
                                : placed_buffer(b, "grad", PART_GRADIENTS, u, elems * kept, grads);
        bool is_split = s->strategy.master_bytes == MASTER_SPLIT;
        st->master = is_mastered ? optimizer_buffer(b, is_split ? "low" : "master", u,
                                       own * s->strategy.master_bytes)
                                 : -1;
        st->m = optimizer_buffer(b, moments > 1 ? "m" : "momentum", u, moment);
        st->v = moments > 1 ? optimizer_buffer(b, "v", u, moment) : -1;
    }
    s->tokens = builder_buffer(b, "tokens", PART_DATA, -1, b->tokens * 4);
    s->targets = builder_buffer(b, "targets", PART_DATA, -1, b->tokens * 4);
    s->positions = strategy_has_positions(&s->strategy)
                       ? builder_buffer(b, "positions", PART_DATA, -1, b->tokens * 4)
                       : -1;
    s->scalars = builder_buffer(b, "scalars", PART_DATA, -1, SCALAR_COUNT * 8);
    s->update_scalars = strategy_defers_update(&s->strategy)
                            ? host_buffer(b, "update_scalars", PART_DATA, -1, SCALAR_COUNT * 8)
                            : -1;
    s->rope = -1;
    if (s->model.family == MODEL_LLAMA)
        s->rope =
            builder_buffer(b, "rope", PART_SCRATCH, -1, s->strategy.seq * s->model.head_dim * 4);
    b->workspace = builder_buffer(b, "workspace", PART_SCRATCH, -1, SCHEDULE_WORKSPACE_BYTES);
    b->reduce_scratch = builder_buffer(
        b, "reduce_scratch", PART_SCRATCH, -1, schedule_sum_scratch_bytes(s->strategy.ranks));
    make_wire_buffers(b);
    make_amax(b);
}

/* First and last use of every buffer in list order, and memory traffic of compute operations. */
static void finish(struct builder *b)
{
    struct schedule *s = b->s;
    for (int32_t i = 0; i < s->n_ops; i++) {
        struct op *op = &s->ops[i];
        double traffic = 0;
        for (int a = 0; a < op->n_args; a++) {
            struct buffer *buf = &s->buffers[op->arg[a].buffer];
            if (buf->first_op < 0)
                buf->first_op = i;
            buf->last_op = i;
            int passes = op->arg[a].access == ACCESS_BOTH ? 2 : 1;
            if (op->arg[a].buffer != b->workspace)
                traffic += (double)(op->arg[a].bytes * passes);
        }
        if (op->bytes <= 0)
            op->bytes = traffic;
    }
}

/* Room for all operations, so that the list need not move while it grows. */
static void reserve_operations(struct builder *b)
{
    enum { PER_UNIT = 80 }; /* in a micro step: more than any model has */
    int64_t sections = b->s->strategy.grad_accum < 3 ? b->s->strategy.grad_accum : 3;
    sections += b->s->strategy.evaluates;
    BASE_GROW(b->s->ops, b->ops_cap, (int32_t)(b->s->n_units * sections * PER_UNIT));
}

static void build_sections(struct builder *b)
{
    int64_t accum = b->s->strategy.grad_accum;
    reserve_operations(b);
    if (accum == 1) {
        emit_micro(b, SECTION_ONLY, 1);
    } else {
        emit_micro(b, SECTION_FIRST, 1);
        if (accum > 2)
            emit_micro(b, SECTION_MIDDLE, accum - 2);
        emit_micro(b, SECTION_LAST, 1);
    }
    emit_boundary(b);
    if (strategy_defers_update(&b->s->strategy))
        emit_flush(b);
    if (b->s->strategy.evaluates)
        emit_micro(b, SECTION_EVALUATION, 0);
}

static void lay_out_unit(struct builder *b, int unit)
{
    struct schedule *s = b->s;
    struct unit_layout *u = &s->unit[unit];
    b->trained[unit] = model_split_unit(&s->model, unit, s->shards, s->parts, u);
    b->frozen[unit] = model_frozen_unit(&s->model, unit, u, b->act_bytes);
}

enum rc schedule_build(
    struct schedule **out, const struct model *m, const struct strategy *st, struct err *e)
{
    *out = NULL;
    enum rc rc = model_check(m, e);
    if (!rc)
        rc = strategy_check(st, m, e);
    if (rc)
        return rc;
    struct schedule *s = base_calloc(1, sizeof(*s));
    s->model = split_model(m, st);
    s->strategy = split_strategy(st);
    s->n_units = model_units(&s->model);
    s->shards = st->kind == STRATEGY_HSDP ? st->shard_degree : s->strategy.ranks;
    s->parts = st->splits_over_replicas ? s->strategy.ranks : s->shards;
    size_t units = (size_t)s->n_units;
    s->unit = base_calloc(units, sizeof(*s->unit));
    s->state = base_calloc(units, sizeof(*s->state));
    struct builder b = {.s = s,
        .section = -1,
        .tokens = s->strategy.seq * st->micro_batch,
        .act_bytes = precision_bytes(st->precision),
        .param_bytes = precision_bytes(st->precision),
        .shard_bytes = precision_bytes(st->precision),
        .profile = profile_of(st->engine)};
    /* without a master copy everything is kept in the type of the activations */
    if (b.profile->has_fp32_shard && st->master_bytes > 0)
        b.shard_bytes = 4;
    bool keeps_grads = st->master_bytes > 0 || b.profile->is_bundled;
    b.grad_bytes = keeps_grads ? b.profile->grad_bytes : b.act_bytes;
    b.gathered = base_calloc(units, sizeof(*b.gathered));
    b.shard_up = base_calloc(units, sizeof(*b.shard_up));
    b.param_host = base_calloc(units, sizeof(*b.param_host));
    b.unit_grad = base_calloc(units, sizeof(*b.unit_grad));
    b.buckets = base_calloc(units, sizeof(*b.buckets));
    b.written = base_calloc(units, sizeof(*b.written));
    b.acts = base_calloc(units, sizeof(*b.acts));
    b.trained = base_calloc(units, sizeof(*b.trained));
    b.frozen = base_calloc(units, sizeof(*b.frozen));
    for (int u = 0; u < s->n_units; u++)
        lay_out_unit(&b, u);
    make_buckets(&b);
    make_state(&b);
    build_sections(&b);
    finish(&b);
    free(b.gathered);
    free(b.shard_up);
    free(b.param_host);
    free(b.unit_grad);
    free(b.buckets);
    free(b.written);
    free(b.acts);
    free(b.trained);
    free(b.frozen);
    *out = s;
    return RC_OK;
}
