/* A training step as a list of operations on a few lanes, with the lifetime of every buffer known.
 *
 * The planner simulates the list, the engine executes it. The list is made of sections: the first,
 * middle and last micro step, the boundary (norm, clip, optimizer, parameter gather), and, where
 * the run evaluates, a forward pass of held-out text, which is no part of a step. Where the host
 * updates, it does so in the first micro step that follows, each unit ahead of its forward; a last
 * section, no part of a step either, updates all of them when nothing follows. All lanes
 * drain at the end of a section, so a section repeated n times costs n times its time, and folding
 * is exact. Inside a section the order of the list is one valid serial order; lanes run their own
 * operations in that order and wait for other lanes only where `waits` says so.
 *
 * Building happens in three steps, all pure and deterministic:
 *   schedule_build   operations and buffers, from model and strategy
 *   layout_assign    an offset for every buffer, from lifetimes in list order (planner/layout.h)
 *   schedule_link    waits: for every address an operation touches, the operations of other lanes
 *                    that touched it before (data dependencies and reuse of memory alike) */
#ifndef PLANNER_SCHEDULE_H
#define PLANNER_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/hash.h"
#include "planner/model.h"
#include "planner/strategy.h"

enum lane {
    LANE_COMPUTE,
    LANE_GATHER,
    LANE_REDUCE,
    LANE_COPY_DOWN,
    LANE_COPY_UP,
    LANE_HOST,
    LANE_DISK,
    LANE_COUNT
};

/* Kind, lane, word. dim[] and arg[] of each kind:
 * T tokens of the micro step, d width, dtype = activation type of the schedule unless said;
 * positions (int32 T) where documents are packed.
 *
 * embed_fwd      dim T d seq           arg R tokens(int32 T) R wte W x(T,d), or
 *                                      R tokens R wte R wpe W x [R positions]
 * norm_fwd       dim T d               arg R x R w [R b] W y W stats(fp32: rstd T | mean T, rstd T)
 *                flag LAYERNORM, else RMSNorm
 * matmul         dim m n k form        arg R A R B RW|W C W workspace [R bias(n)] [R residual(m,n)]
 *                form NT: C = A(m,k) B(n,k)^T; NN: C = A(m,k) B(k,n); TN: C = A(k,m)^T B(k,n)
 *                flags ACCUMULATE (C += ...), BIAS, RESIDUAL, OUT_FP32 (C is a fp32 gradient)
 *                form FP8: as NT, of fp8 tensors in E4M3; FP8_GRAD: A in E5M2
 * bias_bwd       dim T n               arg R dy(T,n) RW|W db(n, fp32)            flag ACCUMULATE
 * rope_fwd/bwd   dim T seq             arg RW qkv(T,(h+2k)hd) R table [R positions]: rotates q and
 *                                      k in place;
 *                table(fp32) is (seq, head_dim/2) cosines, then as many sines
 * attn_fwd       dim T seq             arg R qkv W out(T,h hd) W lse(fp32 T,h) W workspace
 *                                      [R positions]; causal, within documents
 * attn_bwd       dim T seq             arg R dout R qkv R out R lse W dqkv W scratch(fp32 T,h)
 *                W workspace [R positions]
 * swiglu_fwd     dim T ffn             arg R gate_up(T,2f) W y(T,f)      y = silu(gate) * up
 * swiglu_bwd     dim T ffn             arg R dy R gate_up W dgate_up
 * gelu_fwd       dim T ffn             arg R x(T,f) W y(T,f)             tanh approximation
 * gelu_bwd       dim T ffn             arg R dy R x W dx
 * norm_bwd       dim T d               arg R dy R x R w R stats RW dx(T,d) RW|W dw(fp32) [RW|W db]
 *                dx += ...; flags LAYERNORM, ACCUMULATE (dw, db), OVERWRITE (dx = ...)
 * qk_norm_fwd    dim T                 arg R x(T,(h+2k)hd) R wq R wk W qkv(as x)
 *                W stats(fp32: rstd (T,h+k)); each head of q and k by itself, v is copied
 * qk_norm_bwd    dim T                 arg RW dqkv R x R wq R wk R stats W scratch
 *                [RW|W dwq RW|W dwk]                                             flag ACCUMULATE
 * cross_entropy  dim T vocab           arg RW logits(T,vocab) -> dlogits, R targets(int32 T)
 *                                      RW scalars(double): adds to SCALAR_LOSS_SUM
 *                gradient scaled by 1/SCALAR_TARGETS; a target < 0 is ignored
 * embed_bwd      dim T d seq           arg R dx R tokens RW|W dwte               flag ACCUMULATE
 *                without it dwte is zeroed first
 * position_bwd   dim T d seq           arg R dx RW|W dwpe [R positions]          flag ACCUMULATE
 * zero_gaps      dim -                 arg W grad(unit, fp32): the gaps between tensors and the pad
 * all_gather     dim elems shard_elems arg R shard W full   dtype = parameter type
 *                flag IN_PLACE: the rank's own shard already lies in full; arg RW full only
 *                dim[2] = 1: of bytes (elems and shard_elems are)
 * reduce_scatter dim elems shard_elems n  arg R full(fp32) RW|W shard(fp32) W scratch
 *                sum over ranks in rank order; flag ACCUMULATE. n > 1: of so many units from the
 *                operation's on, which follow each other in full and in shard, each split by
 *                itself; flag IN_PLACE: the own part of each stays where it is in full
 * all_reduce     dim elems             arg RW data(fp32) W scratch
 * all_to_all     dim bytes piece_bytes 1   arg R from W to: piece i goes to rank i of the group,
 *                that of rank i comes to place i
 * quantise       dim elems piece_elems count format   arg R x W wire: the first count elements of
 *                each rank's piece of x (the last may be short), as they travel (wire.h), one rank
 *                after the other. dtype = parameter type, flag OUT_FP32: x is a fp32 gradient;
 *                IN_PLACE: the own piece alone; where elems = piece_elems there is but one
 * dequantise     dim as quantise       arg R wire W x: of all ranks
 * sum_pieces     dim as quantise       arg R wire RW|W sum(fp32): the same elements by all ranks,
 *                in rank order; flags ACCUMULATE, IN_PLACE (sum is x: into the own piece of it)
 * scalars        dim first count       arg RW scalars: sums count doubles from index first on over
 *                                      the group, in rank order
 * grad_norm      dim elems             arg R grad(fp32, own part) RW scalars: adds the square sum,
 *                                      in double over blocks of 4,096 elements
 * adamw          dim elems             arg R grad(fp32) RW master RW m RW v R scalars (clip, skip)
 *                                      [W param: bf16 or fp32 copy]   all the own part of the unit;
 *                                      with update_scalars, of the step before. Of a split master
 *                                      its lower half, and RW param; pure: RW param for master
 * sgd            as adamw, without v
 * update_8bit    either, with moments in 8 bits
 * copy_down/up   dim elems elem_bytes  arg R from W to
 * disk_read      dim elems elem_bytes  arg R [master] R m R v (on disk) W swap: the own part of a
 *                unit, one after the other; or R param [R adapter] W host
 * disk_write     dim elems elem_bytes  arg R swap W [master] W m W v; or R host W param
 * cast_fp8       dim rows cols format orders  arg R x(rows,cols) [R amax(double)] [W q(rows,cols)]
 *                [W q(cols,rows)]: fp8 tensors, in the orders asked for, with the unit of x's
 *                largest magnitude, or of the one given (k_fp8_unit)
 * weight_amax    dim elems             arg R param(unit, whole or own shard) W amax(double): the
 *                largest magnitude of each product's matrix, 0 where the rank has none of it
 * max            dim count             arg RW x(double) W scratch: the largest over the group
 * grad_amax      dim elems             arg R grad(fp32, own part) W amax(double): the largest
 *                magnitude of each tensor of the unit, 0 where the rank has none of it
 * grad_to_fp8    dim elems             arg R grad(fp32, own part) R amax W grad(E4M3)
 * grad_from_fp8  dim elems             arg R grad(E4M3) R amax W grad(fp32): each tensor in units
 *                of its own largest magnitude
 *
 * An fp8 tensor is its bytes, padded to BUFFER_ALIGN, then its unit (fp32), then room for a
 * magnitude (double) while it is cast.
 *
 * For prediction only, of what the bundled engine does not run:
 * all_to_all     over GROUP_EXPERT on the compute lane: tokens to their experts, and back
 * scores         softmax and mask over stored attention scores
 * dequantise     on the compute lane: frozen matrices from few bits to the type of activations
 * all_gather, all_reduce   over GROUP_TENSOR and GROUP_CONTEXT on the compute lane
 */
#define OP_MAP(X)                                                                                  \
    X(OP_EMBED_FWD, "embed_fwd")                                                                   \
    X(OP_NORM_FWD, "norm_fwd")                                                                     \
    X(OP_MATMUL, "matmul")                                                                         \
    X(OP_BIAS_BWD, "bias_bwd")                                                                     \
    X(OP_ROPE_FWD, "rope_fwd")                                                                     \
    X(OP_ROPE_BWD, "rope_bwd")                                                                     \
    X(OP_ATTN_FWD, "attn_fwd")                                                                     \
    X(OP_ATTN_BWD, "attn_bwd")                                                                     \
    X(OP_SWIGLU_FWD, "swiglu_fwd")                                                                 \
    X(OP_SWIGLU_BWD, "swiglu_bwd")                                                                 \
    X(OP_GELU_FWD, "gelu_fwd")                                                                     \
    X(OP_GELU_BWD, "gelu_bwd")                                                                     \
    X(OP_NORM_BWD, "norm_bwd")                                                                     \
    X(OP_CROSS_ENTROPY, "cross_entropy")                                                           \
    X(OP_EMBED_BWD, "embed_bwd")                                                                   \
    X(OP_POSITION_BWD, "position_bwd")                                                             \
    X(OP_ZERO_GAPS, "zero_gaps")                                                                   \
    X(OP_ALL_GATHER, "all_gather")                                                                 \
    X(OP_REDUCE_SCATTER, "reduce_scatter")                                                         \
    X(OP_ALL_REDUCE, "all_reduce")                                                                 \
    X(OP_SCALARS, "scalars")                                                                       \
    X(OP_GRAD_NORM, "grad_norm")                                                                   \
    X(OP_ADAMW, "adamw")                                                                           \
    X(OP_COPY_DOWN, "copy_down")                                                                   \
    X(OP_COPY_UP, "copy_up")                                                                       \
    X(OP_ALL_TO_ALL, "all_to_all")                                                                 \
    X(OP_SCORES, "scores")                                                                         \
    X(OP_DEQUANTISE, "dequantise")                                                                 \
    X(OP_DISK_READ, "disk_read")                                                                   \
    X(OP_DISK_WRITE, "disk_write")                                                                 \
    X(OP_QK_NORM_FWD, "qk_norm_fwd")                                                               \
    X(OP_QK_NORM_BWD, "qk_norm_bwd")                                                               \
    X(OP_SGD, "sgd")                                                                               \
    X(OP_QUANTISE, "quantise")                                                                     \
    X(OP_SUM_PIECES, "sum_pieces")                                                                 \
    X(OP_UPDATE_8BIT, "update_8bit")                                                               \
    X(OP_CAST_FP8, "cast_fp8")                                                                     \
    X(OP_WEIGHT_AMAX, "weight_amax")                                                               \
    X(OP_MAX, "max")                                                                               \
    X(OP_GRAD_AMAX, "grad_amax")                                                                   \
    X(OP_GRAD_TO_FP8, "grad_to_fp8")                                                               \
    X(OP_GRAD_FROM_FP8, "grad_from_fp8")

enum op_kind {
#define X(name, word) name,
    OP_MAP(X)
#undef X
        OP_KIND_COUNT
};

enum op_flag {
    OP_ACCUMULATE = 1,
    OP_BIAS = 2,
    OP_RESIDUAL = 4,
    OP_OUT_FP32 = 8,
    OP_LAYERNORM = 16,
    OP_OVERWRITE = 32,
    OP_IN_PLACE = 64,
    OP_RECOMPUTED = 128, /* second execution of a forward operation, in the backward pass */
    OP_UPDATE = 256,     /* of the update of the step before: idle when there is none to be made */
    OP_UNLESS_UPDATE = 512 /* in place of what it makes: idle when there is one, as in most steps */
};

enum matmul_form { MATMUL_NT, MATMUL_NN, MATMUL_TN, MATMUL_FP8, MATMUL_FP8_GRAD };
enum fp8_format { FP8_E4M3, FP8_E5M2 };
/* Of cast_fp8, a set. Products read both operands along their rows. */
enum fp8_order { FP8_PLAIN = 1, FP8_TRANSPOSED = 2, FP8_KNOWN_AMAX = 4 };
enum op_group {
    GROUP_NONE,
    GROUP_WORLD,
    GROUP_SHARD,
    GROUP_REPLICA,
    /* prediction only */
    GROUP_TENSOR,
    GROUP_CONTEXT,
    GROUP_EXPERT
};
enum access { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_BOTH = 3 };

enum { OP_MAX_ARGS = 8 };

/* Indexes into the scalars buffer (doubles). */
enum {
    SCALAR_TARGETS,  /* target tokens of the step */
    SCALAR_LOSS_SUM, /* from here three are summed together at the boundary */
    SCALAR_STOP,     /* ranks that were told to stop, and to save: all act on the sums alike */
    SCALAR_SAVE,
    SCALAR_SQUARES,
    SCALAR_COUNT
};

/* Whose piece of a buffer: its offset grows by bytes times the rank's place in a group. */
enum owner { OWNER_NONE, OWNER_SHARD, OWNER_REPLICA };

/* A piece of a buffer. */
struct ref {
    int32_t buffer;
    uint8_t access; /* enum access */
    uint8_t owner;  /* enum owner */
    int64_t offset; /* bytes */
    int64_t bytes;
};

struct op {
    uint8_t kind, lane, group;
    uint8_t n_args;
    uint16_t flags;
    int16_t unit; /* -1: none */
    int64_t dim[4];
    struct ref arg[OP_MAX_ARGS];
    int32_t waits[LANE_COUNT]; /* per lane: index in the list of the last operation there that must
                                  be finished first, -1 for none; set by schedule_link */
    double flops;              /* multiply-adds count as two */
    double bytes;              /* memory traffic; payload of the full vector for collectives */
};

enum memory { MEMORY_DEVICE, MEMORY_HOST, MEMORY_DISK, MEMORY_COUNT };
enum lifetime { LIFETIME_RUN, LIFETIME_OP }; /* RUN: persistent; OP: inside one section */

/* What a buffer is for; the named parts of every memory report. */
#define PART_MAP(X)                                                                                \
    X(PART_PARAMETERS, "parameters")                                                               \
    X(PART_GRADIENTS, "gradients")                                                                 \
    X(PART_OPTIMIZER, "optimizer")                                                                 \
    X(PART_GATHERED, "gathered_parameters")                                                        \
    X(PART_UNIT_GRADIENTS, "unit_gradients")                                                       \
    X(PART_ACTIVATIONS, "activations")                                                             \
    X(PART_LOGITS, "logits")                                                                       \
    X(PART_SCRATCH, "scratch")                                                                     \
    X(PART_DATA, "data")

enum part {
#define X(name, word) name,
    PART_MAP(X)
#undef X
        PART_COUNT
};

struct buffer {
    char name[32];
    uint8_t memory, lifetime, part;
    int16_t unit;              /* -1: none */
    int16_t section;           /* section it lives in; -1 for LIFETIME_RUN */
    int64_t bytes;             /* a multiple of align */
    int32_t align;             /* of its offset: BUFFER_ALIGN, or DISK_ALIGN */
    int32_t first_op, last_op; /* list indexes of the first and last use; RUN: whole list */
    int64_t offset;            /* bytes in the slab of its memory, by layout_assign; -1 before */
};

/* DISK_ALIGN: of what lies on disk, and of what is read from there and written to it, so that the
 * system need not copy it. */
enum { BUFFER_ALIGN = 256, DISK_ALIGN = 4096, SLAB_PAGE = 4096 };

/* Work space of matrix products and attention; an algorithm that needs more is not chosen. */
enum { SCHEDULE_WORKSPACE_BYTES = 32 << 20 };

/* Scratch of qk_norm_bwd in the work space, per element of a head: fp32 sums of q and of k for each
 * of 64 pieces of the tokens. */
enum { SCHEDULE_QK_NORM_SCRATCH = 64 * 2 * 4 };

/* What travels in blocks of few bits goes in rounds of so many bytes, of all ranks together. */
enum { WIRE_ROUND_BYTES = 128 << 20 };

/* Scratch in which sums over so many ranks receive: 64 KiB a rank, and for few of them half of a
 * second-level cache in all. */
int64_t schedule_sum_scratch_bytes(int ranks);

enum section_kind {
    SECTION_FIRST,
    SECTION_MIDDLE,
    SECTION_LAST,
    SECTION_ONLY,
    SECTION_BOUNDARY,
    SECTION_EVALUATION, /* repeat 0: between steps, as often as the run wants */
    SECTION_FLUSH       /* repeat 0: the updates that the next step would have begun with */
};

struct section {
    enum section_kind kind;
    int32_t first_op, n_ops;
    int64_t repeat; /* how often it runs in a step */
};

enum { SCHEDULE_MAX_SECTIONS = 6 };

/* Persistent buffers by unit; -1 where a strategy has none. The engine finds state through these.
 */
struct unit_buffers {
    int32_t param; /* full unit (ddp, zero1, zero2) or own shard (zero3, hsdp), parameter type */
    int32_t
        grad; /* fp32 or E4M3; full unit (ddp, zero1) or own shard, of all units of its bucket */
    int32_t master; /* own part, in fp32, or the lower half of a split one; -1 when it is the
                       parameter buffer itself (fp32, or pure) */
    int32_t m, v;   /* own part, in fp32 or as schedule_moment says; v -1 of SGD, whose only moment
                       is m */
    int32_t swap;   /* where the host has master, m and v, one after the other, while they are not
                       on disk; -1 when they never are */
    int32_t param_host; /* where the host has param at its update, which else lies on disk; -1 when
                           it does not */
    /* prediction only: where adapters are trained, grad, master, m and v are theirs (-1 without
     * any), param is frozen, and this is what is trained: as param, whole or own shard */
    int32_t adapter;
};

struct schedule {
    struct model model;
    struct strategy strategy;
    struct op *ops;
    int32_t n_ops;
    struct buffer *buffers;
    int32_t n_buffers;
    struct section section[SCHEDULE_MAX_SECTIONS];
    int n_sections;
    int n_units;
    struct unit_layout *unit;   /* n_units, laid out for the schedule's shard count */
    struct unit_buffers *state; /* n_units */
    int32_t tokens, targets;    /* int32 T, of the micro step that runs */
    int32_t positions;          /* int32 T: of each token in its document; -1: a sequence is one */
    int32_t scalars;        /* double[SCALAR_COUNT]: zeroed before every step, SCALAR_TARGETS set to
                               the rank's own count */
    int32_t update_scalars; /* where updates run beside the next step: the scalars of theirs, in
                               host memory; else -1 */
    int32_t rope;           /* rope table, -1 for GPT-2; filled once */
    int64_t shards;         /* ranks a unit's parameters and gradients are split over */
    int64_t parts; /* of a unit's states, by the ranks that answer for them: shards, or all ranks
                      where optimizer states are split over replicas too */
    int64_t slab_bytes[MEMORY_COUNT]; /* by layout_assign */
};

/* Build the list. On success *out must be released with schedule_free. */
enum rc schedule_build(
    struct schedule **out, const struct model *m, const struct strategy *s, struct err *e);
/* Build, lay out and link: what both the planner's final answer and the engine use. */
enum rc schedule_make(
    struct schedule **out, const struct model *m, const struct strategy *s, struct err *e);
void schedule_free(struct schedule *s);
void schedule_link(struct schedule *s);

/* Of everything that decides what runs and where it lies; plan/1 stores it, the engine compares. */
struct hash128 schedule_hash(const struct schedule *s);

/* Of moments in 8 bits: first a byte for each element, then of each part (schedule_part_elems) so
 * many scales: of blocks one for each 128 elements and one more for each tensor of the unit, so
 * that the scale of an element is that of its block in the part plus its tensor; of fp8 one for
 * each tensor. */
int64_t schedule_moment_scales(enum moment_form f, const struct unit_layout *u, int64_t part_elems);

/* Which part of a unit's states a rank answers for, and its elements. Ranks up to parts each have
 * another one; the rank that writes the part to a checkpoint is among them. */
int64_t schedule_part_of(const struct schedule *s, int64_t rank);
int64_t schedule_part_elems(const struct schedule *s, int unit);

/* Does it change weights? */
bool op_is_update(enum op_kind k);
/* The one that a strategy's optimizer is. */
enum op_kind op_of_update(const struct strategy *s);

/* Products of a block that may be of fp8 tensors, and which of them a matrix belongs to; -1: none.
 */
enum { SCHEDULE_LINEARS = 4 };
int schedule_linear_of(enum tensor_role role);
/* Where the unit of an fp8 tensor lies. */
int64_t schedule_fp8_unit_at(int64_t elems);

const char *op_kind_name(enum op_kind k);
const char *lane_name(enum lane l);
const char *part_name(enum part p);
const char *section_name(enum section_kind k);
/* Bytes that a step writes to disk. */
double schedule_written_bytes(const struct schedule *s);
/* NULL where there is none of the kind. */
const struct section *schedule_section(const struct schedule *s, enum section_kind k);

#endif
