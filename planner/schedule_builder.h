/* Shared by the files that build a schedule (schedule_*.c); not for others.
 */
#ifndef PLANNER_SCHEDULE_BUILDER_H
#define PLANNER_SCHEDULE_BUILDER_H

#include "planner/adapter.h"
#include "planner/schedule.h"

/* What backward needs of a block; buffer ids, -1 when not kept. Shapes: T tokens, d width. */
struct block_acts {
    int32_t x_in;          /* (T,d) block input, the previous unit's output */
    int32_t xn1, st1;      /* (T,d) first norm's output; its statistics */
    int32_t qkv, att, lse; /* (T,(h+2k)hd), (T,h hd), fp32 (T,h) */
    int32_t raw, st_qk;    /* q/k norm: qkv before it; its statistics, fp32 (T,h+k) */
    int32_t scores;        /* plain attention: (T,s) of each head, as scores, softmax and mask */
    int32_t mid;           /* (T,d) after attention and residual */
    int32_t half;          /* SELECTIVE_MATMULS: the half of up that is kept */
    int32_t xn2, st2;      /* second norm */
    int32_t up, act;       /* (T,2f) or (T,f) before, (T,f) after the activation function */
    int32_t low;           /* (T,rank) of each adapted matrix: its input times A */
};

/* Units first to last, whose gradients are reduced together. Where the gradient of one of them lies
 * among theirs, in elements: whole, and the own shard. */
struct bucket {
    int first, last;
    int64_t at, shard_at;
};

struct builder {
    struct schedule *s;
    int32_t ops_cap, buffers_cap;
    int section; /* being built */
    enum section_kind kind;
    int64_t tokens;      /* T */
    int64_t act_bytes;   /* bytes of an activation or parameter element */
    int64_t param_bytes; /* of an element of gathered parameters, as products read them */
    int64_t shard_bytes; /* of an element of parameters as they are kept */
    int64_t grad_bytes;  /* of an element of gradients as they are kept */
    const struct engine_profile *profile;
    int32_t workspace, reduce_scratch;
    int32_t wire_param, wire_grad, wire_pieces; /* a round of what travels in blocks */
    int32_t weight_amax;     /* doubles, of each block's products; -1 without fp8 */
    int32_t grad_amax;       /* doubles, of each unit's tensors; -1 unless gradients are in fp8 */
    int32_t *gathered;       /* per unit: buffer with the full parameters now, -1 */
    int32_t *unit_grad;      /* per unit: buffer its full gradient goes to in this section, -1 */
    struct bucket *buckets;  /* per unit: the one it is reduced with */
    uint32_t *written;       /* per unit: roles whose gradient was written in this micro step */
    struct block_acts *acts; /* per unit: kept for backward */
    struct trained_unit *trained; /* per unit */
    struct frozen_unit *frozen;   /* per unit */
    int32_t dense;       /* frozen matrices of the block being visited, as products read them; -1 */
    int32_t low;         /* block_acts.low of the block being visited; -1 */
    int32_t *shard_up;   /* per unit: its own parameters, copied up for the next gather, -1 */
    int32_t *param_host; /* per unit: they are there for the next copy up, from disk, -1 */
    int32_t parked;      /* unit whose reduced gradients go down next, -1 */
    int32_t parked_grad; /* where they are */
    bool is_parked_whole; /* they are those of the whole step */
    int32_t x;            /* output of the last unit visited */
    int32_t dx;           /* gradient of the residual stream */
};

/* --- containers --- */

int32_t builder_buffer(
    struct builder *b, const char *name, enum part part, int unit, int64_t bytes);
/* The same, named WHAT.UNIT. */
int32_t builder_unit_buffer(
    struct builder *b, const char *what, enum part part, int unit, int64_t bytes);
/* Place the buffer, and round its bytes, to multiples of align. */
void builder_align(struct builder *b, int32_t buffer, int32_t align);
struct op *builder_op(struct builder *b, enum op_kind kind, enum lane lane, int unit);
/* Append an argument: the whole buffer, or a piece. */
void op_arg(struct builder *b, struct op *op, enum access access, int32_t buffer);
void op_arg_part(struct op *op, enum access access, int32_t buffer, int64_t offset, int64_t bytes);
/* The rank's part of a buffer of so many bytes for each rank. */
void op_arg_own(struct op *op, enum access access, int32_t buffer, enum owner owner, int64_t bytes);

/* --- parameters and gradients of a unit as the strategy holds them --- */

/* Append the tensor as a read argument. role2..: the argument spans up to and including role2. */
void op_param(
    struct builder *b, struct op *op, int unit, enum tensor_role first, enum tensor_role last);
/* Append the tensor's gradient as an argument, set ACCUMULATE when something is already there. */
void op_grad(
    struct builder *b, struct op *op, int unit, enum tensor_role first, enum tensor_role last);
bool unit_has(const struct builder *b, int unit, enum tensor_role role);

/* --- adapters beside a frozen model --- */

bool trains_all(const struct builder *b);
/* Is one of the matrices adapted? */
bool adapts_any(const struct builder *b, int unit, enum tensor_role first, enum tensor_role last);
/* What backward reads the input of these matrices for, if for anything: their gradients, or those
 * of their adapters. */
bool needs_input(const struct builder *b, int unit, enum tensor_role first, enum tensor_role last);
/* Frozen matrices of the unit as products read them, where they are kept in fewer bits. */
void emit_dequantise(struct builder *b, int unit);
/* (T, rank of each adapted matrix), -1 without any. */
int32_t builder_low(struct builder *b, int unit);
/* y(T,n) += x A^T B^T for the adapted ones of these matrices. */
void emit_adapters(struct builder *b, int unit, enum tensor_role first, enum tensor_role last,
    int32_t x, int32_t y);
/* x A^T alone, written again for backward. */
void emit_adapter_low(struct builder *b, int unit, enum tensor_role role, int32_t x);
/* Gradients of A and B from dy and x, and dx += dy B A. */
void emit_adapters_bwd(struct builder *b, int unit, enum tensor_role first, enum tensor_role last,
    int32_t dy, int32_t x, int32_t dx);
/* Append a unit's trained adapters, as they are held, or their gradient. */
void op_adapter(struct builder *b, struct op *op, int unit, int64_t offset, int64_t elems);
void op_adapter_grad(struct builder *b, struct op *op, int unit, int64_t offset, int64_t elems);
struct op *emit_matmul(
    struct builder *b, int unit, enum matmul_form form, int64_t m, int64_t n, int64_t k);
/* What the strategy shards. */
bool shards_parameters(const struct builder *b);
bool shards_gradients(const struct builder *b);
bool shards_optimizer(const struct builder *b);
/* The parameters of a unit that training changes: all of them, or its adapters. */
int32_t trained_param(const struct builder *b, int unit);
/* Elements of a unit that the rank updates. */
int64_t own_elems(const struct builder *b, int unit);
/* The part that the rank updates of parameters, in a buffer that may hold the whole unit. */
void arg_own_param(struct builder *b, struct op *op, enum access access, int unit, int32_t buffer);
/* The same of the unit's reduced gradient. */
void arg_own_grad(struct builder *b, struct op *op, int unit);
/* The optimizer's operation on the rank's part of a unit; its arguments are the caller's. */
struct op *emit_update(struct builder *b, enum lane lane, int unit);
/* Squares of the own part of a unit's gradient; parked: the buffer it is in before it goes to the
 * host, else -1. */
void emit_grad_norm(struct builder *b, int unit, int32_t parked);

/* --- gradients and their reduction (schedule_reduce.c) --- */

/* Optimizer states are split over more ranks than gradients are. */
bool splits_over_replicas(const struct builder *b);
/* Of an element of what backward writes gradients into. */
int64_t written_grad_bytes(const struct builder *b);
/* Append elements of a unit's gradient as backward writes it. */
void arg_unit_grad(const struct builder *b, struct op *op, enum access access, int unit,
    int64_t offset, int64_t elems);
/* Units from the head down, in the order in which backward is done with them, until there are
 * enough bytes. */
void make_buckets(struct builder *b);
/* Of all units of the bucket that the unit is in: whole, and the own shards. */
int64_t bucket_elems(const struct builder *b, int unit);
int64_t bucket_shard_elems(const struct builder *b, int unit);
/* Before backward of the unit. */
void begin_unit_grad(struct builder *b, int unit);
/* Reduce a unit whose gradient is complete, as the strategy wants it in this section; a bucket when
 * its first unit is, which is the last to be. unit -1: none is. */
void reduce_unit(struct builder *b, int unit);
void emit_all_reduce(struct builder *b, int unit, enum op_group group, int32_t buffer);

/* --- what travels in blocks of few bits (schedule_wire.c) --- */

bool gathers_in_blocks(const struct builder *b);
bool reduces_in_blocks(const struct builder *b, enum op_group group);
void make_wire_buffers(struct builder *b);
/* From the own part of a unit's parameters to the whole of it. */
void emit_gather_in_blocks(struct builder *b, int unit, int32_t shard, int32_t full);
/* Each rank of the group sums its part of so many elements from `from` on; to: where the sums go,
 * on top of what is there where its access is BOTH; NULL: to their place in the whole. */
void emit_scatter_in_blocks(struct builder *b, int unit, enum op_group group,
    const struct ref *from, int64_t elems, const struct ref *to);
/* The same, and the sums to all ranks. */
void emit_all_reduce_in_blocks(
    struct builder *b, int unit, enum op_group group, const struct ref *data, int64_t elems);

/* --- what is kept off the device (schedule_offload.c) --- */

/* Read a unit's own parameters from disk, unless an update leaves them in host memory. */
void emit_param_read(struct builder *b, int unit);
/* Copy a unit's own parameters up, to be gathered from b->shard_up. */
void emit_param_up(struct builder *b, int unit);
/* Gradients of a unit that stay on the host: a device buffer for its reduced part, with what the
 * host has so far unless this is the first micro step; then its way down, with the norm when the
 * step's are whole. emit_parked_down sends what still waits. */
int32_t begin_parked_grad(struct builder *b, int unit, bool is_first);
void park_grad(struct builder *b, int unit, int32_t grad, bool is_whole);
void emit_parked_down(struct builder *b);
/* What a block keeps for backward, down after its forward and up before its backward. */
bool offloads_block(const struct builder *b, int unit);
void emit_acts_down(struct builder *b, int unit);
void emit_acts_up(struct builder *b, int unit);
/* A unit's master copy and both moments, where the host works on them, and its gradients. */
struct host_unit {
    struct ref state[3];
    int n_states;
    int32_t swap;  /* the buffer they are read into from disk; -1: they lie in host memory */
    int32_t param; /* likewise of parameters that are their own master copy */
    int32_t grad;
};
/* Updates of units next up to end on the host; gradients and states of those before fetched are
 * there or on their way. */
enum { HOST_UNITS = 3 };
struct host_updates {
    int next, fetched, end;
    struct host_unit unit[HOST_UNITS]; /* of unit u: u modulo HOST_UNITS */
};
/* The next one, and the gather of what it changed. */
void emit_host_update(struct builder *b, struct host_updates *h);
/* The scalars of the step, for updates that run beside the next one. */
void emit_keep_scalars(struct builder *b);
/* Gather what others updated of the parameters that the rank holds. */
void finish_update(struct builder *b, int unit);
/* Of all units, none of them yet. */
struct host_updates begin_host_updates(const struct builder *b);
/* After an update on the device of parameters that lie on the host. */
void emit_param_down(struct builder *b, int unit, int32_t from);
int32_t host_buffer(struct builder *b, const char *what, enum part part, int unit, int64_t bytes);
struct op *emit_copy(
    struct builder *b, enum op_kind kind, int unit, int64_t elems, int64_t elem_bytes);

/* --- products of fp8 tensors (schedule_fp8.c) --- */

/* Are the unit's products of fp8 tensors? */
bool has_fp8_products(const struct builder *b, int unit);
/* Buffers for the largest magnitudes of weights and of gradients. */
void make_amax(struct builder *b);
/* Find them: once a step, since weights change between steps alone. Of all units; or of one, where
 * the host updates them one after the other, and then of all shards of these. */
void emit_weight_amax(struct builder *b);
void emit_unit_amax(struct builder *b, int unit);
void emit_amax_over_shards(struct builder *b, int first, int last);
struct matrix {
    int32_t buffer; /* of activations */
    int64_t rows, cols;
};
/* -1 for an order that was not asked for. */
struct fp8_tensor {
    int32_t plain, transposed;
};
struct fp8_tensor emit_fp8_act(
    struct builder *b, int unit, struct matrix x, enum fp8_format format, unsigned orders);
/* The matrices from first to last as one. */
int32_t emit_fp8_weight(struct builder *b, int unit, enum tensor_role first, enum tensor_role last,
    enum fp8_order order);

/* The reduced gradient of a unit goes where it is kept, in eight bits; its norm is taken before. */
void emit_grad_to_fp8(struct builder *b, int unit, int32_t grad);
/* Back to fp32, for the update. */
int32_t emit_grad_from_fp8(struct builder *b, int unit);

/* --- products --- */

/* y(T,n) = x(T,k) W^T [+ bias] [+ residual]; residual -1 for none. */
void emit_linear(struct builder *b, int unit, enum tensor_role w_first, enum tensor_role w_last,
    int bias_first, int bias_last, int32_t x, int32_t residual, int32_t y);
/* Its backward: weight gradient from dy and x, bias gradient, and dx (dx -1: not wanted). */
void emit_linear_bwd(struct builder *b, int unit, enum tensor_role w_first, enum tensor_role w_last,
    int bias_first, int bias_last, int32_t dy, int32_t x, int32_t dx);
void emit_norm(struct builder *b, int unit, enum tensor_role w, enum tensor_role bias, int32_t x,
    int32_t y, int32_t stats);
void emit_norm_bwd(struct builder *b, int unit, enum tensor_role w, enum tensor_role bias,
    int32_t dy, int32_t x, int32_t stats, int32_t dx, bool is_overwrite);
int32_t builder_act(struct builder *b, const char *name, int unit, int64_t columns);
int32_t builder_stats(struct builder *b, const char *name, int unit);

/* --- blocks --- */

void emit_block_fwd(struct builder *b, int unit);
void emit_block_bwd(struct builder *b, int unit);
void emit_embed_fwd(struct builder *b);
void emit_embed_bwd(struct builder *b);
/* Final norm, logits, loss and the backward of all three. */
void emit_head(struct builder *b);

#endif
