/* How a model is sharded over ranks: everything the schedule of a step depends on beside the model.
 */
#ifndef PLANNER_STRATEGY_H
#define PLANNER_STRATEGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/profile.h"
#include "planner/wire.h"

struct json;
struct model;

enum strategy_kind {
    STRATEGY_DDP,   /* everything replicated, gradients all-reduced */
    STRATEGY_ZERO1, /* optimizer sharded */
    STRATEGY_ZERO2, /* and gradients */
    STRATEGY_ZERO3, /* and parameters */
    STRATEGY_HSDP   /* as zero3 inside groups of shard_degree ranks, replicated over the groups */
};
/* What a block computes again in its backward pass, from least to most. */
enum recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE,     /* elementwise work: the outputs of norms and of the activation
                                function; of other engines what their profile says */
    RECOMPUTE_SELECTIVE_FFN, /* and the first products of the FFN; of the bundled engine alone */
    RECOMPUTE_FULL           /* all but the block's input */
};
/* What leaves the device: a set of these, of which offload_name has words for some. */
enum offload {
    OFFLOAD_NONE = 0,
    OFFLOAD_OPTIMIZER = 1,   /* its states, which the host updates */
    OFFLOAD_PARAMETERS = 2,  /* of zero3 and hsdp: the own ones, copied up for each gather; with the
                                optimizer gradients too */
    OFFLOAD_ACTIVATIONS = 4, /* what blocks keep for backward */
    OFFLOAD_DISK = 8         /* the optimizer's states, from the host on to its disk; with
                                parameters these too, read for each gather; gradients are not */
};
enum { STRATEGY_FILL = -1 };
enum { STRATEGY_LEAST_BUCKET = 16 << 20 };
enum { STRATEGY_MAX_ACCUM = 1 << 24 }; /* micro steps of a step */
enum { STRATEGY_MAX_DOCUMENT = INT32_MAX };
enum precision {
    PRECISION_FP32,
    PRECISION_BF16, /* with fp32 master and fp32 gradients */
    PRECISION_FP16, /* prediction only */
    PRECISION_FP8,  /* products of blocks of 8-bit numbers; all else as bf16. The bundled engine has
                       one scale a tensor, from its largest magnitude; others it may be of blocks */
    PRECISION_FP4,  /* prediction only: products of 4-bit numbers in blocks */
    PRECISION_KINDS
};

/* How weights are updated, after clipping. SGD is PyTorch's, with momentum, without dampening or
 * Nesterov's step; its weight decay is added to the gradient, AdamW's is not. */
enum optimizer { OPTIMIZER_ADAMW, OPTIMIZER_SGD };

/* How moments are kept; in 8 bits with scales in fp32. Of the bundled engine. */
enum moment_form {
    MOMENT_FP32,
    MOMENT_BLOCKS, /* codes and a scale for each block of 128 */
    MOMENT_FP8     /* E4M3, a scale for each tensor of a rank's part of a unit */
};

enum { MASTER_NONE = 0, MASTER_SPLIT = 2, MASTER_FP32 = 4 };

/* Ways of splitting beside data parallelism, for prediction only; 1: not split. */
struct parallel {
    int64_t tensor, pipeline, context, expert;
    int64_t virtual_stages; /* of one pipeline rank (interleaved schedule) */
    bool splits_experts;    /* tensor ranks split each expert too; else an expert is whole on its
                               rank, and tensor ranks are among those that experts are spread over */
};

/* How an engine computes the loss: on all logits at once, in pieces of whole logits, or without
 * ever having them whole. */
enum loss { LOSS_WHOLE, LOSS_CHUNKED, LOSS_FUSED };

/* What decides over memory beside the strategy; for prediction only. */
struct memory_options {
    enum loss loss;
    double whole_blocks; /* selective recompute by blocks: so many keep all; 0: within blocks */
    bool is_fused;       /* elementwise work, by a compiler or by hand */
    bool has_sequence_parallel; /* tensor ranks split the residual stream too (arXiv 2205.05198) */
    bool frees_gradients;       /* the optimizer runs inside the backward pass */
    bool pages_optimizer;       /* its states lie in managed memory, which may be the host's */
    bool reduces_in_16bit;      /* gradients are kept in the type of activations */
    bool shards_tables;         /* zero3: embedding and head are units as blocks are */
    bool absorbs_copies; /* a published run: constants of its stack were fitted without copies
                            of parameters and activations, and contain them */
};

/* Value type; strategy_check says whether it makes sense. */
struct strategy {
    enum strategy_kind kind;
    enum recompute recompute;
    unsigned offload; /* enum offload */
    enum precision precision;
    int64_t ranks; /* all; data-parallel ones where nothing else is split */
    int64_t ranks_per_node;
    int64_t shard_degree; /* ranks a unit is split over: ranks, or fewer for hsdp; 1 for ddp */
    int64_t seq;          /* tokens of one sequence */
    int64_t doc_tokens;   /* packed documents of so many tokens on average, which do not attend to
                             each other; 0: a sequence is one text */
    int64_t micro_batch;  /* sequences per rank and micro step */
    int64_t grad_accum;   /* micro steps per optimizer step */
    int prefetch;         /* units gathered ahead, 1 or more */
    bool reshard_after_forward;  /* zero3, hsdp: free a unit's parameters after its forward */
    int64_t reshard_above_bytes; /* but only of units whose parameters, gathered, are more bytes */
    bool splits_over_replicas;   /* hsdp: optimizer states over all ranks, not within groups alone;
                                    what they update is gathered across replicas */
    int64_t bucket_bytes;        /* ddp, zero1, zero2: gradients of consecutive units are reduced
                                    together until they are so many; 0: each unit's alone */
    enum wire gather_format;     /* zero3, hsdp: how parameters travel to where they are used */
    enum wire reduce_format;     /* how gradients do to where they are summed, and back */
    int full_blocks; /* mixed recompute: so many first blocks in full, the others as recompute says;
                        0: all alike. STRATEGY_FILL: as few as fit the machine, which an estimate
                        finds (estimate_fill); no schedule has it */
    int loss_chunks; /* the head works on the tokens in this many pieces */
    enum optimizer optimizer;     /* strategy_take_optimizer */
    enum moment_form moment_form; /* strategy_take_moments */
    bool fp8_gradients; /* reduced ones wait for the update in E4M3, each tensor with a unit of its
                           own (schedule_fp8.c); of the bundled engine */
    int master_bytes;   /* of the master copy of weights in 16 bits: 4 in fp32; MASTER_SPLIT, its
                           lower half beside the weights, which are the upper one; 0: weights are all
                           there is, and rounded at random when they are updated */
    bool evaluates;     /* the run also computes the loss of held-out text, forward only */
    /* for prediction only; the bundled engine runs none of it */
    enum engine engine;
    struct parallel parallel;
    bool has_plain_attention; /* scores are stored: no fused kernel */
    int moment_bytes;         /* of all moments of a parameter, without scales: in fp32 8, or 4 of
                                 SGD's one */
    struct memory_options memory;
};

const char *strategy_kind_name(enum strategy_kind k);
const char *recompute_name(enum recompute r);
/* "mixed" where blocks differ, else as recompute_name. */
const char *strategy_recompute_name(const struct strategy *s);
const char *offload_name(unsigned offload);
/* The i-th set that there is a word for, below OFFLOAD_SETS. */
enum { OFFLOAD_SETS = 10 };
unsigned offload_at(size_t i);
const char *precision_name(enum precision p);
const char *optimizer_name(enum optimizer o);
const char *moment_form_name(enum moment_form f);
enum rc strategy_kind_parse(const char *name, enum strategy_kind *out, struct err *e);
enum rc recompute_parse(const char *name, enum recompute *out, struct err *e);
enum rc offload_parse(const char *name, unsigned *out, struct err *e);
enum rc precision_parse(const char *name, enum precision *out, struct err *e);
enum rc moment_form_parse(const char *name, enum moment_form *out, struct err *e);
/* "fp32", "split" or "pure". */
const char *strategy_master_name(const struct strategy *s);
enum rc optimizer_parse(const char *name, enum optimizer *out, struct err *e);
/* Those that the bundled engine computes in. */
bool precision_is_trainable(enum precision p);
enum rc precision_parse_trainable(const char *name, enum precision *out, struct err *e);

/* "always", "never", or the size above which units are freed after their forward ("64MiB"). */
enum rc strategy_parse_reshard(struct strategy *s, const char *text, struct err *e);
/* A size of at least STRATEGY_LEAST_BUCKET, or "unlimited": one bucket for all. */
enum rc strategy_parse_bucket(struct strategy *s, const char *text, struct err *e);
/* "none" to "full", or "mixed" with the number of blocks open (STRATEGY_FILL), the others
 * selective. */
enum rc strategy_parse_recompute(struct strategy *s, const char *text, struct err *e);

/* Defaults for a kind over ranks: prefetch 1, reshard, whole loss, shard degree by kind. */
struct strategy strategy_default(enum strategy_kind kind, int64_t ranks, int64_t ranks_per_node);
/* "fp32" or "fp8". */
enum rc strategy_parse_gradients(struct strategy *s, const char *text, struct err *e);
/* By the words of strategy_master_name. */
enum rc strategy_parse_master(struct strategy *s, const char *text, struct err *e);
/* With its states in fp32; their form is taken after it. */
void strategy_take_optimizer(struct strategy *s, enum optimizer o);
void strategy_take_moments(struct strategy *s, enum moment_form f);
enum rc strategy_check(const struct strategy *s, const struct model *m, struct err *e);
/* Part of it: bytes and tokens of a micro step are below what 64 bits count exactly. */
bool strategy_is_countable(const struct strategy *s, const struct model *m);
/* The largest micro batch up to most with which it is; 0 for none. */
int64_t strategy_countable_batch(const struct strategy *s, const struct model *m, int64_t most);
struct json *strategy_to_json(const struct strategy *s);
/* Members for what is varied beside kind, ranks, batch and recompute; unusual choices alone. */
void strategy_add_variants(struct json *v, const struct strategy *s);
enum rc strategy_from_json(struct strategy *out, const struct json *v, struct err *e);

int64_t strategy_tokens_per_step(const struct strategy *s);
/* Tokens that a token shares a document with, on average: the square of a document's tokens, summed
 * over a sequence and divided by it; the sequence itself without packing. Lengths are spread
 * geometrically (a text ends after a token as likely as after any other), and documents are cut at
 * the end of a sequence: two tokens d apart share a document with probability (1 - 1/doc_tokens)^d.
 * Checked against random documents in tests/unit/planner/documents.c. */
double strategy_mean_document(const struct strategy *s);
/* The engine is given the place of every token in its document. */
bool strategy_has_positions(const struct strategy *s);
/* Ranks that hold different data: all of them divided by tensor, pipeline and context. */
int64_t strategy_data_ranks(const struct strategy *s);
bool strategy_is_data_parallel(const struct strategy *s);
/* Ranks the optimizer state of a unit is split over, and likewise gradients and parameters. */
int64_t strategy_optimizer_shards(const struct strategy *s);
int64_t strategy_gradient_shards(const struct strategy *s);
int64_t strategy_parameter_shards(const struct strategy *s);
/* Groups of ranks that each hold the parameters; 1 but for hsdp. */
int64_t strategy_replicas(const struct strategy *s);
/* Is a unit of so many bytes freed after its forward? */
bool strategy_reshards(const struct strategy *s, int64_t gathered_bytes);
/* Own parameters lie in host memory or on disk, and own gradients in host memory. */
bool strategy_parks_parameters(const struct strategy *s);
bool strategy_parks_gradients(const struct strategy *s);
/* Own parameters lie on disk. */
bool strategy_streams_parameters(const struct strategy *s);
/* Norms of gradients are taken when these are whole, before they go where they are kept. */
bool strategy_takes_norms_early(const struct strategy *s);
/* How many moments the optimizer keeps of a parameter. */
int strategy_moments(const struct strategy *s);
/* What is kept of it beside the parameter in use: moments without their scales, and the master
 * copy. Of the bundled engine. */
int64_t strategy_state_bytes(const struct strategy *s);
/* Weights in 16 bits are kept without a master copy in fp32. */
bool strategy_converts_master(const struct strategy *s);
/* What a checkpoint holds of it: master value and moments in fp32. */
int64_t strategy_saved_bytes(const struct strategy *s);
/* The host's update of a step runs beside the next step's forward, not at its own end. */
bool strategy_defers_update(const struct strategy *s);
/* Bytes of an element of parameters and activations. */
int64_t precision_bytes(enum precision p);
/* Which models the bundled engine computes in the precision: RC_INVALID. */
enum rc precision_check_model(enum precision p, const struct model *m, struct err *e);

#endif
