#include "engine/ops_wire.h"

#include "engine/comm.h"

_Static_assert((int)WIRE_BLOCK == (int)K_WIRE_BLOCK, "the planner counts what the kernels write");

/* Of a rank's piece, what the operation is about. */
static int64_t piece_len(const struct wire_op *w, int64_t rank)
{
    int64_t left = w->op->dim[0] - w->op->dim[1] * rank, count = w->op->dim[2];
    return left < 0 ? 0 : left < count ? left : count;
}

static void *piece(const struct wire_op *w, void *x, int64_t rank)
{
    return (char *)x + w->op->dim[1] * rank * (w->type == K_BF16 ? 2 : 4);
}

static char *wire_of(const struct wire_op *w, void *wire, int64_t rank)
{
    return (char *)wire + wire_bytes(w->op->dim[2]) * rank;
}

static enum k_wire format_of(const struct wire_op *w)
{
    return w->op->dim[3] == WIRE_FP8 ? K_WIRE_FP8 : K_WIRE_INT8;
}

static int64_t ranks_of(const struct wire_op *w)
{
    return comm_group_size(w->x->comm, (enum op_group)w->op->group);
}

static int64_t own_rank(const struct wire_op *w)
{
    return comm_group_rank(w->x->comm, (enum op_group)w->op->group);
}

static void encode(const struct wire_op *w, int64_t rank, char *wire)
{
    struct k_encode a = {.format = format_of(w),
        .type = w->type,
        .elems = piece_len(w, rank),
        .x = piece(w, w->arg[0], rank),
        .wire = wire};
    w->x->kernels->encode(w->pool, &a);
}

static void quantise(const struct wire_op *w)
{
    bool is_one = w->op->dim[0] == w->op->dim[1];
    if (w->op->flags & OP_IN_PLACE) {
        encode(w, own_rank(w), w->arg[1]);
        return;
    }
    for (int64_t r = 0; r < (is_one ? 1 : ranks_of(w)); r++)
        encode(w, r, wire_of(w, w->arg[1], r));
}

static void dequantise(const struct wire_op *w)
{
    for (int64_t r = 0; r < ranks_of(w); r++) {
        struct k_decode a = {.format = format_of(w),
            .type = w->type,
            .elems = piece_len(w, r),
            .wire = wire_of(w, w->arg[0], r),
            .x = piece(w, w->arg[1], r)};
        w->x->kernels->decode(w->pool, &a);
    }
}

static void sum_pieces(const struct wire_op *w)
{
    const void *wire[COMM_MAX_RANKS];
    bool stays = w->op->flags & OP_IN_PLACE;
    for (int64_t r = 0; r < ranks_of(w); r++)
        wire[r] = wire_of(w, w->arg[0], r);
    struct k_sum_wires a = {.format = format_of(w),
        .elems = piece_len(w, own_rank(w)),
        .count = (int)ranks_of(w),
        .wire = wire,
        .y = stays ? piece(w, w->arg[1], own_rank(w)) : w->arg[1],
        .accumulate = w->op->flags & OP_ACCUMULATE};
    w->x->kernels->sum_wires(w->pool, &a);
}

void wire_run(const struct wire_op *w)
{
    switch (w->op->kind) {
    case OP_QUANTISE:
        quantise(w);
        break;
    case OP_DEQUANTISE:
        dequantise(w);
        break;
    default:
        sum_pieces(w);
    }
}
