/* What a strategy keeps off the device, and its ways down and up: states that the host updates,
 * parameters and gradients, activations, states on disk. */
#include "planner/schedule_builder.h"

/* --- copies --- */

int32_t host_buffer(struct builder *b, const char *what, enum part part, int unit, int64_t bytes)
{
    int32_t id = builder_buffer(b, what, part, unit, bytes);
    b->s->buffers[id].memory = MEMORY_HOST;
    return id;
}

struct op *emit_copy(
    struct builder *b, enum op_kind kind, int unit, int64_t elems, int64_t elem_bytes)
{
    struct op *op = builder_op(b, kind, kind == OP_COPY_DOWN ? LANE_COPY_DOWN : LANE_COPY_UP, unit);
    op->dim[0] = elems;
    op->dim[1] = elem_bytes;
    op->bytes = (double)(elems * elem_bytes);
    return op;
}

/* Tensor ranks that split sequences keep a part of a block's input each. */
static void copy_acts(struct builder *b, enum op_kind kind, int unit, int32_t from, int32_t to)
{
    const struct strategy *s = &b->s->strategy;
    int64_t elems = b->s->buffers[from].bytes / b->act_bytes;
    if (s->memory.has_sequence_parallel)
        elems /= s->parallel.tensor;
    struct op *op = emit_copy(b, kind, unit, elems, b->act_bytes);
    op_arg(b, op, ACCESS_READ, from);
    op_arg(b, op, ACCESS_WRITE, to);
}

/* --- parameters --- */

static bool streams_parameters(const struct builder *b)
{
    return strategy_streams_parameters(&b->s->strategy);
}

/* Host memory that the disk reads into and writes from. */
static int32_t disk_buffer(
    struct builder *b, const char *what, enum part part, int unit, int64_t bytes)
{
    int32_t id = builder_unit_buffer(b, what, part, unit, bytes);
    b->s->buffers[id].memory = MEMORY_HOST;
    builder_align(b, id, DISK_ALIGN);
    return id;
}

static struct op *emit_param_disk(struct builder *b, enum op_kind kind, int unit, int64_t bytes)
{
    struct op *op = builder_op(b, kind, LANE_DISK, unit);
    op->dim[0] = bytes / b->shard_bytes;
    op->dim[1] = b->shard_bytes;
    op->bytes = (double)bytes;
    return op;
}

/* Frozen ones first, as they are gathered. */
static struct op *read_param(struct builder *b, int unit, int32_t to)
{
    const struct unit_buffers *st = &b->s->state[unit];
    struct op *op = emit_param_disk(b, OP_DISK_READ, unit, b->s->buffers[to].bytes);
    op_arg(b, op, ACCESS_READ, st->param);
    if (st->adapter >= 0)
        op_arg(b, op, ACCESS_READ, st->adapter);
    op_arg(b, op, ACCESS_WRITE, to);
    return op;
}

/* Of what is kept of a unit, in a slab where it is aligned to so many bytes. */
static int64_t kept_bytes(const struct builder *b, int unit)
{
    const struct unit_buffers *st = &b->s->state[unit];
    return b->s->buffers[st->param].bytes +
           (st->adapter >= 0 ? b->s->buffers[st->adapter].bytes : 0);
}

void emit_param_read(struct builder *b, int unit)
{
    if (b->param_host[unit] >= 0)
        return;
    int32_t to = disk_buffer(b, "param_read", PART_PARAMETERS, unit, kept_bytes(b, unit));
    read_param(b, unit, to);
    b->param_host[unit] = to;
    if (b->kind == SECTION_EVALUATION)
        emit_unit_amax(b, unit);
}

void emit_param_up(struct builder *b, int unit)
{
    const struct unit_buffers *st = &b->s->state[unit];
    int64_t bytes = kept_bytes(b, unit);
    if (streams_parameters(b)) {
        if (trains_all(b)) /* without the gap up to DISK_ALIGN */
            bytes = b->trained[unit].shard_elems * b->shard_bytes;
        emit_param_read(b, unit); /* where two uses come so soon that one read was listed */
    }
    int32_t up = builder_unit_buffer(b, "shard_up", PART_PARAMETERS, unit, bytes);
    bytes = b->s->buffers[up].bytes;
    struct op *op = emit_copy(b, OP_COPY_UP, unit, bytes / b->shard_bytes, b->shard_bytes);
    if (streams_parameters(b))
        op_arg_part(op, ACCESS_READ, b->param_host[unit], 0, bytes);
    else
        op_arg(b, op, ACCESS_READ, st->param);
    if (st->adapter >= 0 && !streams_parameters(b))
        op_arg(b, op, ACCESS_READ, st->adapter);
    op_arg(b, op, ACCESS_WRITE, up);
    b->param_host[unit] = -1;
    b->shard_up[unit] = up;
}

void emit_param_down(struct builder *b, int unit, int32_t from)
{
    int64_t n = own_elems(b, unit), bytes = b->s->buffers[trained_param(b, unit)].bytes;
    struct op *op = emit_copy(b, OP_COPY_DOWN, unit, n, b->shard_bytes);
    op_arg_part(op, ACCESS_READ, from, b->s->buffers[from].bytes - bytes, bytes);
    op_arg(b, op, ACCESS_WRITE, trained_param(b, unit));
}

/* --- gradients that stay on the host --- */

int32_t begin_parked_grad(struct builder *b, int unit, bool is_first)
{
    int64_t n = own_elems(b, unit);
    int32_t grad = builder_unit_buffer(b, "shard_grad", PART_GRADIENTS, unit, n * b->grad_bytes);
    if (is_first)
        return grad;
    struct op *op = emit_copy(b, OP_COPY_UP, unit, n, b->grad_bytes);
    op_arg(b, op, ACCESS_READ, b->s->state[unit].grad);
    op_arg(b, op, ACCESS_WRITE, grad);
    return grad;
}

void park_grad(struct builder *b, int unit, int32_t grad, bool is_whole)
{
    b->parked = unit;
    b->parked_grad = grad;
    b->is_parked_whole = is_whole;
}

/* A visit after the reduction: products need not wait for it to take the norm. */
void emit_parked_down(struct builder *b)
{
    int unit = b->parked;
    if (unit < 0)
        return;
    b->parked = -1;
    if (b->s->strategy.fp8_gradients) {
        emit_grad_to_fp8(b, unit, b->parked_grad);
        return;
    }
    struct op *op = emit_copy(b, OP_COPY_DOWN, unit, own_elems(b, unit), b->grad_bytes);
    op_arg(b, op, ACCESS_READ, b->parked_grad);
    op_arg(b, op, ACCESS_WRITE, b->s->state[unit].grad);
    if (b->is_parked_whole)
        emit_grad_norm(b, unit, b->parked_grad);
}

/* --- activations --- */

/* The last block's backward follows at once, around the head. */
bool offloads_block(const struct builder *b, int unit)
{
    const struct strategy *s = &b->s->strategy;
    return (s->offload & OFFLOAD_ACTIVATIONS) && !s->memory.absorbs_copies && unit > 0 &&
           unit < b->s->n_units - 2;
}

/* What is worth a copy: statistics are a few bytes of a token. */
enum { MOVED_ACTS = 11 };
static void moved_acts(struct block_acts *a, int32_t *out[MOVED_ACTS])
{
    int32_t *const all[MOVED_ACTS] = {&a->x_in, &a->xn1, &a->raw, &a->qkv, &a->att, &a->scores,
        &a->mid, &a->half, &a->xn2, &a->up, &a->act};
    for (int i = 0; i < MOVED_ACTS; i++)
        out[i] = all[i];
}

/* From here on the block's activations are those on the host. */
void emit_acts_down(struct builder *b, int unit)
{
    int32_t *act[MOVED_ACTS];
    moved_acts(&b->acts[unit], act);
    for (int i = 0; i < MOVED_ACTS; i++) {
        if (*act[i] < 0)
            continue;
        int32_t from = *act[i];
        *act[i] = host_buffer(b, "acts_down", PART_ACTIVATIONS, unit, b->s->buffers[from].bytes);
        copy_acts(b, OP_COPY_DOWN, unit, from, *act[i]);
    }
}

void emit_acts_up(struct builder *b, int unit)
{
    int32_t *act[MOVED_ACTS];
    moved_acts(&b->acts[unit], act);
    for (int i = 0; i < MOVED_ACTS; i++) {
        if (*act[i] < 0)
            continue;
        int32_t from = *act[i];
        *act[i] =
            builder_unit_buffer(b, "acts_up", PART_ACTIVATIONS, unit, b->s->buffers[from].bytes);
        copy_acts(b, OP_COPY_UP, unit, from, *act[i]);
    }
}

/* --- updates on the host --- */

static void find_states(struct builder *b, int unit, struct host_unit *out)
{
    const struct unit_buffers *st = &b->s->state[unit];
    const int32_t all[] = {st->master, st->m, st->v};
    out->n_states = 0;
    out->swap = -1;
    for (int i = 0; i < 3; i++)
        if (all[i] >= 0)
            out->state[out->n_states++] =
                (struct ref){.buffer = all[i], .bytes = b->s->buffers[all[i]].bytes};
}

static struct op *emit_disk(
    struct builder *b, enum op_kind kind, int unit, const struct host_unit *h)
{
    int64_t n = own_elems(b, unit), bytes = n * b->profile->disk_grad_bytes;
    for (int i = 0; i < h->n_states; i++)
        bytes += h->state[i].bytes;
    struct op *op = builder_op(b, kind, LANE_DISK, unit);
    op->dim[0] = n;
    op->dim[1] = n > 0 ? bytes / n : 0;
    op->bytes = (double)bytes;
    return op;
}

/* Parameters that are their own master copy are read for the update and for the gather at once. */
static void fetch_own_master(struct builder *b, int unit, struct host_unit *h)
{
    struct unit_buffers *st = &b->s->state[unit];
    h->param = -1;
    if (st->master >= 0 || !streams_parameters(b))
        return;
    h->param = disk_buffer(
        b, "param_host", PART_PARAMETERS, unit, b->s->buffers[trained_param(b, unit)].bytes);
    struct op *op = emit_param_disk(b, OP_DISK_READ, unit, b->s->buffers[h->param].bytes);
    op_arg(b, op, ACCESS_READ, trained_param(b, unit));
    op_arg(b, op, ACCESS_WRITE, h->param);
}

/* From disk, when they lie there. */
static void fetch_states(struct builder *b, int unit, struct host_unit *h)
{
    int64_t bytes = 0;
    find_states(b, unit, h);
    fetch_own_master(b, unit, h);
    if (!(b->s->strategy.offload & OFFLOAD_DISK))
        return;
    for (int i = 0; i < h->n_states; i++)
        bytes += h->state[i].bytes;
    h->swap = disk_buffer(b, "swap", PART_OPTIMIZER, unit, bytes);
    b->s->state[unit].swap = h->swap;
    struct op *op = emit_disk(b, OP_DISK_READ, unit, h);
    for (int i = 0; i < h->n_states; i++)
        op_arg(b, op, ACCESS_READ, h->state[i].buffer);
    op_arg(b, op, ACCESS_WRITE, h->swap);
}

static void store_states(struct builder *b, int unit, const struct host_unit *h)
{
    if (h->swap < 0)
        return;
    struct op *op = emit_disk(b, OP_DISK_WRITE, unit, h);
    op_arg(b, op, ACCESS_READ, h->swap);
    for (int i = 0; i < h->n_states; i++)
        op_arg(b, op, ACCESS_WRITE, h->state[i].buffer);
}

/* New parameters go to disk, and stay for the copy up. Before a first step, and after a flush, they
 * come from there, as their own master copies always do. */
static void store_param(struct builder *b, int unit, const struct host_unit *h, int32_t up)
{
    struct unit_buffers *st = &b->s->state[unit];
    struct op *op = emit_param_disk(b, OP_DISK_WRITE, unit, b->s->buffers[up].bytes);
    op_arg(b, op, ACCESS_READ, up);
    op_arg(b, op, ACCESS_WRITE, trained_param(b, unit));
    st->param_host = up;
    bool is_gathered_next = b->kind == SECTION_FIRST || b->kind == SECTION_ONLY;
    if (!is_gathered_next || !trains_all(b))
        return;
    b->param_host[unit] = up;
    if (h->param < 0)
        read_param(b, unit, up)->flags |= OP_UNLESS_UPDATE;
}

static int32_t emit_grad_down(struct builder *b, int unit)
{
    int64_t n = own_elems(b, unit);
    int64_t bytes = b->grad_bytes;
    if (strategy_parks_gradients(&b->s->strategy))
        return b->s->state[unit].grad;
    int32_t down = host_buffer(b, "grad_down", PART_GRADIENTS, unit, n * bytes);
    struct op *op = emit_copy(b, OP_COPY_DOWN, unit, n, bytes);
    arg_own_grad(b, op, unit);
    op_arg(b, op, ACCESS_WRITE, down);
    return down;
}

static void arg_states(struct builder *b, struct op *op, const struct host_unit *h)
{
    int64_t at = 0;
    for (int i = 0; i < h->n_states; i++) {
        if (h->swap < 0)
            op_arg(b, op, ACCESS_BOTH, h->state[i].buffer);
        else
            op_arg_part(op, ACCESS_BOTH, h->swap, at, h->state[i].bytes);
        at += h->state[i].bytes;
    }
}

/* New parameters go where they are kept. */
static void emit_update_of_host(struct builder *b, int unit, const struct host_unit *h)
{
    const struct unit_buffers *st = &b->s->state[unit];
    int64_t n = own_elems(b, unit);
    bool is_parked = strategy_parks_parameters(&b->s->strategy);
    int32_t up = h->param;
    if (streams_parameters(b) && up < 0)
        up = disk_buffer(
            b, "param_host", PART_PARAMETERS, unit, b->s->buffers[trained_param(b, unit)].bytes);
    else if (up < 0)
        up = is_parked ? trained_param(b, unit)
                       : host_buffer(b, "param_up", PART_PARAMETERS, unit, n * b->shard_bytes);
    struct op *op = emit_update(b, LANE_HOST, unit);
    op_arg(b, op, ACCESS_READ, h->grad);
    if (st->master < 0)
        op_arg(b, op, ACCESS_BOTH, up);
    arg_states(b, op, h);
    op_arg(b, op, ACCESS_READ, b->s->update_scalars >= 0 ? b->s->update_scalars : b->s->scalars);
    if (st->master >= 0)
        op_arg(b, op, ACCESS_WRITE, up);
    if (streams_parameters(b))
        store_param(b, unit, h, up);
    if (is_parked)
        return;
    op = emit_copy(b, OP_COPY_UP, unit, n, b->shard_bytes);
    op_arg(b, op, ACCESS_READ, up);
    arg_own_param(b, op, ACCESS_WRITE, unit, trained_param(b, unit));
}

/* For the gather too, whether or not there is an update. */
static bool reads_param(const struct builder *b, const struct op *op)
{
    return op->kind == OP_DISK_READ && op->arg[0].buffer == trained_param(b, op->unit);
}

/* Gradients and states of the next unit come while the host works on this one, and go while it
 * works on the next. On disk one is read, one updated and one written at a time. */
void emit_host_update(struct builder *b, struct host_updates *h)
{
    int ahead = b->s->strategy.offload & OFFLOAD_DISK ? HOST_UNITS - 1 : 1;
    int32_t first = b->s->n_ops;
    for (; h->fetched < h->end && h->fetched <= h->next + ahead; h->fetched++) {
        struct host_unit *coming = &h->unit[h->fetched % HOST_UNITS];
        coming->grad = emit_grad_down(b, h->fetched);
        fetch_states(b, h->fetched, coming);
    }
    const struct host_unit *unit = &h->unit[h->next % HOST_UNITS];
    emit_update_of_host(b, h->next, unit);
    store_states(b, h->next, unit);
    finish_update(b, h->next);
    h->next++;
    for (int32_t i = first; i < b->s->n_ops && strategy_defers_update(&b->s->strategy); i++)
        if (!reads_param(b, &b->s->ops[i]))
            b->s->ops[i].flags |= OP_UPDATE;
}

void emit_keep_scalars(struct builder *b)
{
    struct op *op = emit_copy(b, OP_COPY_DOWN, -1, SCALAR_COUNT, sizeof(double));
    op_arg(b, op, ACCESS_READ, b->s->scalars);
    op_arg(b, op, ACCESS_WRITE, b->s->update_scalars);
}
