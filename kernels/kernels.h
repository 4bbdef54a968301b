/* The arithmetic of a training step on the CPU, behind one table of functions.
 *
 * There is one table per instruction set; all tables compute the same operations, those of
 * planner/schedule.h. Rules that hold for every function here:
 *
 * - Tensors are dense and row-major. "activation type" is fp32 or bf16 as the argument `type` says;
 *   bf16 is the upper half of a fp32, stored in uint16_t. bf16 operands are widened, all arithmetic
 *   and all sums are fp32 (double where said), and results are rounded once, to nearest even.
 *   Gradients of parameters, statistics and optimizer state are fp32 whatever the type.
 * - Pointers need the alignment of their element only; 64 bytes or more is faster.
 * - Arguments must not overlap unless their comment says so. Nothing is read or written outside the
 *   arguments, nothing is allocated, nothing is kept between calls.
 * - Results do not depend on the number of threads: work is split over independent outputs and each
 *   sum has one fixed order. They may differ between instruction sets in the last bits.
 * - Sizes are elements; zero tokens are allowed and do nothing (gradients that are to be
 * overwritten become zero).
 * - Every function takes the pool that shares the work; NULL means the calling thread alone. The
 *   caller needs 1 MiB of stack.
 * - Numbers that a step computes (units, sums, the norm) are taken and given by address, so that a
 *   table whose memory and time are a GPU's can have the same functions: there the pool is a stream
 *   (kernels/gpu_table.h), a call only submits, and addresses are the device's.
 *
 * Tolerances against exact arithmetic are stated and checked in tests/unit/kernels. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct pool;

/* Only where they are named, the latter two: eight bits that count units of their tensor (arXiv
 * 2209.05433). K_E4M3: four of exponent, three of fraction, no infinity, at most 448; K_E5M2: five
 * and two, at most 57,344. */
enum k_type { K_FP32, K_BF16, K_E4M3, K_E5M2 };
/* NT: C = A(m,k) B(n,k)^T; NN: C = A(m,k) B(k,n); TN: C = A(k,m)^T B(k,n). */
enum k_form { K_NT, K_NN, K_TN };
/* What becomes of a destination that is written once: past the caches is for much that nobody reads
 * soon. */
enum k_sum_way { K_SUM_STORE, K_SUM_PAST_CACHE, K_SUM_ADD };
enum k_rope_scaling { K_ROPE_PLAIN, K_ROPE_LINEAR, K_ROPE_LLAMA3 };

/* Elements that share a scale on the way between ranks. */
enum { K_WIRE_BLOCK = 256 };
enum { K_MAX_HEAD_DIM = 256, K_NORM_BLOCK = 4096, K_QK_NORM_PIECES = 64 };

/* Where documents are packed into sequences, positions[t] is how many tokens of its document, and
 * its sequence, stand before token t: embeddings, rotation and attention know no other place of a
 * token. NULL: it is t % seq, a sequence is one document. */

/* x[t] = wte[ids[t]] (+ wpe[position of t]) */
struct k_embed_fwd {
    enum k_type type;
    int64_t tokens, width, seq;
    const int32_t *ids;       /* each within wte's rows: the caller has checked */
    const int32_t *positions; /* or NULL */
    const void *wte;          /* (vocab, width) */
    const void *wpe;          /* (seq or more, width), or NULL */
    void *x;                  /* (tokens, width) */
};

/* dwte[ids[t]] += dx[t], dwpe[position of t] += dx[t], in the order of t */
struct k_embed_bwd {
    enum k_type type;
    int64_t tokens, width, seq;
    int64_t vocab, position_rows; /* of dwte and dwpe, for zeroing */
    bool accumulate;              /* false: dwte and dwpe are zeroed first */
    const void *dx;
    const int32_t *ids;       /* may be NULL when dwte is */
    const int32_t *positions; /* or NULL */
    float *dwte;              /* or NULL */
    float *dwpe;              /* or NULL */
};

/* Rows of width; RMSNorm y = w x rstd, LayerNorm y = w (x - mean) rstd + b. */
struct k_norm_fwd {
    enum k_type type;
    bool is_layernorm;
    int64_t rows, width;
    float eps;
    const void *x, *w;
    const void *b; /* LayerNorm: or NULL */
    void *y;       /* may be x */
    float *stats;  /* RMSNorm: rstd (rows); LayerNorm: mean (rows), then rstd (rows) */
};

/* dx += d/dx; dw, db are sums over rows. Either of dx and dw may be NULL. */
struct k_norm_bwd {
    enum k_type type;
    bool is_layernorm;
    bool overwrite_dx;  /* dx = instead of dx +=; then dx may be dy */
    bool accumulate_dw; /* dw, db += instead of = */
    int64_t rows, width;
    const void *dy, *x, *w;
    const float *stats; /* of the forward pass */
    void *dx;
    float *dw, *db; /* db: LayerNorm, or NULL */
};

/* RMSNorm of each head of queries and keys: y = w x rstd over head_dim, with one weight for all
 * query heads and one for all key heads. Values are copied. head_dim <= K_MAX_HEAD_DIM. */
struct k_qk_norm_fwd {
    enum k_type type;
    int64_t tokens, heads, kv_heads, head_dim;
    float eps;
    const void *x;       /* (tokens, (heads + 2 kv_heads) head_dim) */
    const void *wq, *wk; /* (head_dim) */
    void *qkv;           /* as x; may be x */
    float *stats;        /* rstd (tokens, heads + kv_heads) */
};

struct k_qk_norm_bwd {
    enum k_type type;
    bool accumulate_dw; /* dwq, dwk += instead of = */
    int64_t tokens, heads, kv_heads, head_dim;
    const void *x, *wq, *wk;
    const float *stats; /* of the forward pass */
    void *dqkv;         /* in place: of the outputs, then of x */
    float *dwq, *dwk;   /* both, or both NULL */
    float *scratch;     /* K_QK_NORM_PIECES * 2 head_dim */
};

/* C = product (+ bias per column) (+ residual) (+ C). The products of one element of C are summed
 * in the order of k, in fp32, in pieces of fixed length. */
struct k_matmul {
    enum k_type type; /* of A, B, bias, residual, and of C unless out_fp32 */
    enum k_form form;
    bool is_fp8;                  /* A is of this format and B of K_E4M3 instead; form is NT */
    enum k_type a_format;         /* K_E4M3, K_E5M2 */
    const float *a_unit, *b_unit; /* what elements count */
    bool accumulate;              /* C += */
    bool out_fp32;                /* C is fp32 */
    int64_t m, n, k;
    const void *a, *b;
    const void *bias;     /* (n), or NULL */
    const void *residual; /* (m, n), or NULL; may be c when the types agree and accumulate is off */
    void *c;
    void *workspace; /* kernels_matmul_workspace_bytes */
};

/* db[j] (+)= sum over rows of dy[., j] */
struct k_bias_bwd {
    enum k_type type;
    int64_t rows, width;
    bool accumulate;
    const void *dy;
    float *db;
};

/* Rotary embedding in Hugging Face's layout: element i of a head is paired with i + head_dim/2. */
struct k_rope_table {
    enum k_rope_scaling scaling;
    int64_t positions, head_dim;
    double theta;
    double factor;              /* linear, llama3 */
    double low_freq, high_freq; /* llama3: low_freq_factor, high_freq_factor */
    int64_t original_positions; /* llama3 */
};

/* Rotates the heads + kv_heads first heads of every row of qkv in place. */
struct k_rope {
    enum k_type type;
    int64_t tokens, seq, heads, kv_heads, head_dim;
    const float *table;       /* kernels_rope_table, for at least seq positions */
    const int32_t *positions; /* or NULL */
    void *qkv;                /* (tokens, (heads + 2 kv_heads) head_dim) */
};

/* Causal attention inside sequences of seq tokens, and inside documents of theirs; query head h
 * uses key head h / (heads / kv_heads). Scores are scaled by 1/sqrt(head_dim). head_dim <=
 * K_MAX_HEAD_DIM. */
struct k_attn_fwd {
    enum k_type type;
    int64_t tokens, seq, heads, kv_heads, head_dim;
    const void *qkv;
    const int32_t *positions; /* or NULL */
    void *out;                /* (tokens, heads head_dim) */
    float *lse; /* (tokens, heads): log of the sum of exponentials of the scaled scores */
};

struct k_attn_bwd {
    enum k_type type;
    int64_t tokens, seq, heads, kv_heads, head_dim;
    const void *dout, *qkv, *out;
    const int32_t *positions; /* or NULL */
    const float *lse;
    void *dqkv;     /* overwritten, every element */
    float *scratch; /* (tokens, heads) */
};

/* y = silu(gate) * up; a row of gate_up is gate (width), then up (width). */
struct k_swiglu_fwd {
    enum k_type type;
    int64_t rows, width;
    const void *gate_up;
    void *y;
};
struct k_swiglu_bwd {
    enum k_type type;
    int64_t rows, width;
    const void *dy, *gate_up;
    void *dgate_up; /* may be gate_up */
};

/* GPT-2's tanh approximation, element by element. */
struct k_gelu_fwd {
    enum k_type type;
    int64_t elems;
    const void *x;
    void *y; /* may be x */
};
struct k_gelu_bwd {
    enum k_type type;
    int64_t elems;
    const void *dy, *x;
    void *dx; /* may be dy or x */
};

/* Row by row: *loss_sum += -log softmax(logits)[target] in the order of rows; logits become
 * (softmax - one_hot(target)) / *divisor. A row with a target < 0 becomes zero and does not count;
 * with a divisor of zero all do. */
struct k_cross_entropy {
    enum k_type type;
    int64_t tokens, vocab;
    const double *divisor;  /* targets of the whole step */
    void *logits;           /* (tokens, vocab) */
    const int32_t *targets; /* below vocab: the caller has checked */
    double *loss_sum;
};

/* dst[i] = (float)(scale * counter_normal(key, first + i)), to the bit (kernels/counter.h) */
struct k_normal {
    float *dst;
    int64_t n;
    uint64_t key, first;
    double scale;
};

/* How weights are kept that an optimizer updates in fp32. */
enum k_weights_form {
    K_WEIGHTS_MASTER, /* master in fp32, and a copy in bf16 or none */
    K_WEIGHTS_SPLIT,  /* master in two halves: param is what is computed with, the upper one rounded
                         to nearest, ties away from zero; low is the lower one. Nothing is lost */
    K_WEIGHTS_PURE    /* param alone, in bf16: an update rounds up or down at random, with the
                         probabilities that leave the mean where it was */
};
struct k_weights {
    enum k_weights_form form;
    float *master;   /* MASTER */
    uint16_t *param; /* bf16; MASTER: or NULL */
    uint16_t *low;   /* SPLIT */
    /* PURE: the random bits of element i are those of key and first + i, so that ranges, ranks and
     * a resumed run draw alike */
    uint64_t key;
    int64_t first;
};

/* How a moment is kept. In 8 bits it is a code for each element and a scale for those that share
 * one (kernels/moment_codes.h); an update rounds to a neighbour at random, so that what changes by
 * less than a code moves on all the same. What has no sign is kept as its root. */
enum k_moment_form {
    K_MOMENT_FP32,
    K_MOMENT_BLOCKS, /* a scale for each block, which is the largest of it */
    K_MOMENT_FP8     /* E4M3, one scale for all */
};
enum { K_MOMENT_BLOCK = 128 };
struct k_moment {
    enum k_moment_form form;
    bool is_square; /* AdamW's second */
    float *fp32;    /* FP32 */
    uint8_t *code;
    float *scale; /* of the first element's block, or of all */
    /* number of the first element: blocks end at multiples of K_MOMENT_BLOCK, and random bits are
     * those of key and number */
    int64_t first;
    uint64_t key;
};

struct k_moment_range {
    struct k_moment moment;
    int64_t elems; /* of all of it */
    int64_t at, n;
};

/* q = round(x / unit), to nearest even, and likewise its transpose; what is beyond the largest
 * number of the format becomes that, NaN stays NaN. The unit is that of *amax (kernels/both.h), a
 * power of two, so that dividing by it is exact but where results vanish. */
struct k_quantise {
    enum k_type type;   /* of x */
    enum k_type format; /* K_E4M3, K_E5M2 */
    int64_t rows, cols;
    const double *amax;
    float *unit[2];      /* become the unit; either may be NULL */
    const void *x;       /* (rows, cols) */
    uint8_t *q;          /* (rows, cols), or NULL */
    uint8_t *transposed; /* (cols, rows), or NULL */
};

/* Whether a step's update counts, and the factor on its gradients: by the sums of that step. */
struct k_gate {
    const double *squares; /* of the gradient's norm; NULL: counts, factor 1 */
    const double *loss_sum, *targets;
    double clip_norm;          /* longer gradients are made that long; 0: none are */
    double max_norm, max_loss; /* above them, or where the norm is not finite or there were no
                                  targets, nothing counts */
};

/* One AdamW step (decoupled decay) on a range with one weight decay:
 *   g = clip * grad (clip: of the gate);  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   w = w (1 - lr wd) - lr (m / (1 - b1^step)) / (sqrt(v / (1 - b2^step)) + eps)
 * An element's result depends on that element and the constants alone, so any split into ranges
 * gives the same bits; with moments in 8 bits, on those that share its scale: a range holds them
 * whole. */
struct k_adamw {
    int64_t elems;
    const float *grad;
    struct k_moment m, v;
    struct k_weights weights;
    double lr, beta1, beta2, eps, weight_decay;
    struct k_gate gate;
    int64_t step; /* of this update, from 1 */
    bool skip;    /* as if the gate were closed: weights, m and v stay; a copy is still written */
};

/* One step of SGD with momentum, as PyTorch's: m = momentum m + (clip * grad + wd w);  w -= lr m.
 * As independent of ranges as k_adamw. */
struct k_sgd {
    int64_t elems;
    const float *grad;
    struct k_moment m;
    struct k_weights weights;
    double lr, momentum, weight_decay;
    struct k_gate gate;
    bool skip;
};

/* How a vector travels: its codes, of a byte each, padded to 4 bytes, then a fp32 scale for each
 * K_WIRE_BLOCK of them; kernels_wire_bytes in all. Aligned to 4 bytes. Of a block with the largest
 * magnitude amax an element x comes back within
 *   int8   amax / 254 (scale amax / 127; codes -127 to 127, to nearest even) and roundings of the
 *          fp32 arithmetic; of a block with amax below 2^-100 as zero
 *   fp8    |x| / 16, or unit / 1024 where that is more (codes K_E4M3; scale unit =
 *          kernels/both.h, a power of two, so that amax lies between 224 and 448 of it)
 * A block with anything not finite comes back as NaN throughout. The same bits on every table. */
enum k_wire { K_WIRE_INT8, K_WIRE_FP8 };
struct k_encode {
    enum k_wire format;
    enum k_type type; /* of x */
    int64_t elems;
    const void *x;
    void *wire;
};
struct k_decode {
    enum k_wire format;
    enum k_type type; /* of x: rounded to it */
    int64_t elems;
    const void *wire;
    void *x;
};
/* y (+)= ((wire[0] + wire[1]) + wire[2]) + ..., in fp32, count >= 1 */
struct k_sum_wires {
    enum k_wire format;
    int64_t elems;
    int count;
    const void *const *wire;
    float *y;
    bool accumulate;
};

struct kernels {
    const char *name; /* "v2", "v3", "v4" (x86-64 levels) or "base" */

    void (*embed_fwd)(struct pool *p, const struct k_embed_fwd *a);
    void (*embed_bwd)(struct pool *p, const struct k_embed_bwd *a);
    void (*norm_fwd)(struct pool *p, const struct k_norm_fwd *a);
    void (*norm_bwd)(struct pool *p, const struct k_norm_bwd *a);
    void (*qk_norm_fwd)(struct pool *p, const struct k_qk_norm_fwd *a);
    void (*qk_norm_bwd)(struct pool *p, const struct k_qk_norm_bwd *a);
    void (*matmul)(struct pool *p, const struct k_matmul *a);
    void (*bias_bwd)(struct pool *p, const struct k_bias_bwd *a);
    void (*rope_fwd)(struct pool *p, const struct k_rope *a);
    void (*rope_bwd)(struct pool *p, const struct k_rope *a); /* the inverse rotation */
    void (*attn_fwd)(struct pool *p, const struct k_attn_fwd *a);
    void (*attn_bwd)(struct pool *p, const struct k_attn_bwd *a);
    void (*swiglu_fwd)(struct pool *p, const struct k_swiglu_fwd *a);
    void (*swiglu_bwd)(struct pool *p, const struct k_swiglu_bwd *a);
    void (*gelu_fwd)(struct pool *p, const struct k_gelu_fwd *a);
    void (*gelu_bwd)(struct pool *p, const struct k_gelu_bwd *a);
    void (*cross_entropy)(struct pool *p, const struct k_cross_entropy *a);

    /* *square_sum += sum of squares, in double: within blocks of K_NORM_BLOCK elements counted from
     * grad, then over the blocks in order. */
    void (*grad_norm)(struct pool *p, const float *grad, int64_t n, double *square_sum);
    void (*adamw)(struct pool *p, const struct k_adamw *a);
    void (*sgd)(struct pool *p, const struct k_sgd *a);

    /* Weights as fp32, and back; PURE and copies are rounded to nearest even. */
    void (*weights_read)(struct pool *p, float *dst, const struct k_weights *w, int64_t n);
    void (*weights_write)(struct pool *p, const struct k_weights *w, const float *src, int64_t n);

    /* Moments in 8 bits as fp32, and back to the nearest. What is written is elements at .. at + n
     * - 1 of so many that m is of, whose scales begin there or are fp8's: one that is too small for
     * them grows, for all. */
    void (*moment_read)(struct pool *p, float *dst, const struct k_moment *m, int64_t n);
    void (*moment_write)(struct pool *p, const struct k_moment_range *to, const float *src);

    /* Exact widening, and rounding to nearest even; NaN stays NaN. */
    void (*fp32_to_bf16)(struct pool *p, uint16_t *dst, const float *src, int64_t n);
    void (*bf16_to_fp32)(struct pool *p, float *dst, const uint16_t *src, int64_t n);
    /* *amax = the largest of it and all |x|; NaN when there is one */
    void (*amax)(struct pool *p, enum k_type type, const void *x, int64_t n, double *amax);
    void (*quantise)(struct pool *p, const struct k_quantise *a);
    /* dst = src times the unit of *amax, exact */
    void (*fp8_to_fp32)(struct pool *p, enum k_type format, float *dst, const uint8_t *src,
        const double *amax, int64_t n);
    /* NULL on a GPU, where hosts draw */
    void (*normal)(struct pool *p, const struct k_normal *a);
    /* dst += src; dst *= factor */
    void (*sum_f32)(struct pool *p, float *dst, const float *src, int64_t n);
    void (*scale_f32)(struct pool *p, float *dst, float factor, int64_t n);
    /* dst = or += ((src[0] + src[1]) + src[2]) + ..., count >= 1; dst may be any of src. */
    void (*sum_ranks_f32)(struct pool *p, float *dst, const float *const *src, int count, int64_t n,
        enum k_sum_way way);

    /* Neither overlaps. */
    void (*zero)(struct pool *p, void *x, int64_t bytes);
    void (*copy)(struct pool *p, void *dst, const void *src, int64_t bytes);

    void (*encode)(struct pool *p, const struct k_encode *a);
    void (*decode)(struct pool *p, const struct k_decode *a);
    void (*sum_wires)(struct pool *p, const struct k_sum_wires *a);
};

/* The best table this processor can run; and one by name, NULL when unknown or not runnable here.
 * Both valid for ever. */
const struct kernels *kernels_best(void);
const struct kernels *kernels_by_name(const char *name);
/* For people: "x86-64-v3 (AVX2)". */
const char *kernels_isa_name(const struct kernels *k);

/* Enough for every product with these dimensions, whatever form, type, table and threads; at most
 * KERNELS_MATMUL_WORKSPACE_MAX. Rounded up to 256; 64-byte alignment is faster. */
enum { KERNELS_MATMUL_WORKSPACE_MAX = 16 << 20 };
size_t kernels_matmul_workspace_bytes(int64_t m, int64_t n, int64_t k);

/* Of so many elements on the way between ranks. */
int64_t kernels_wire_bytes(int64_t elems);

/* Elements of a rope table, and its values: for every position cosines (head_dim/2), then sines
 * (head_dim/2), computed in double. */
int64_t kernels_rope_table_elems(const struct k_rope_table *r);
void kernels_rope_table(const struct k_rope_table *r, float *table);

#ifdef __cplusplus
}
#endif

#endif
