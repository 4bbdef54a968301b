/* How an engine keeps state and moves it: what the builder and the simulator need to know of each.
 *
 * The bundled engine and others are entries of one table. A schedule of another engine is built by
 * the same code from its entry; only the bundled one's is ever executed. How fast an engine's
 * software is does not belong here but in the calibration, keyed by stack (planner/rates.h). */
#ifndef PLANNER_PROFILE_H
#define PLANNER_PROFILE_H

#include <stdbool.h>

#include "base/err.h"

/* What "selective" recompute drops. */
enum selective {
    SELECTIVE_CHEAP,     /* norm outputs and the activation function's */
    SELECTIVE_ATTENTION, /* stored attention scores: nothing where attention is fused */
    SELECTIVE_MATMULS    /* every second product too, as torchtitan's per-operation mode */
};

enum engine {
    ENGINE_BERTH,     /* bundled */
    ENGINE_FSDP1,     /* torch.distributed.fsdp, flat parameters; ZeRO-3, ZeRO-2 and hybrid */
    ENGINE_FSDP2,     /* fully_shard, per-parameter */
    ENGINE_DEEPSPEED, /* ZeRO-1/2/3 */
    ENGINE_ACCELERATE_ZERO3,   /* DeepSpeed below, with accelerate's defaults */
    ENGINE_MEGATRON,           /* distributed optimizer */
    ENGINE_MEGATRON_DEEPSPEED, /* Megatron's layers and splits under DeepSpeed's ZeRO */
    ENGINE_DDP,                /* plain replication, mixed precision by autocast */
    ENGINE_COUNT
};

/* Their names in this order, separated by '|'. */
extern const char ENGINE_CHOICES[];

/* Bytes per element unless said. Sources stand beside the table. */
struct engine_profile {
    const char *name;  /* as --engine takes it */
    const char *stack; /* calibration key when nothing closer is known */
    const char *help;  /* half a line */
    bool is_bundled;
    bool has_fp32_shard; /* the parameters kept are fp32 and cast when gathered: no master copy */
    int grad_bytes;      /* of gradients kept between micro steps */
    int unit_grad_bytes; /* of a whole unit's gradient before it is reduced */
    int reduce_bytes;    /* on the wire when gradients are reduced */
    int gathered_copies; /* of a gathered unit: the flat buffer, and parameters copied out of it */
    int logit_bytes;     /* of all copies of the logits alive at the loss; 0: one, in place */
    int fused_logit_bytes;      /* the same where elementwise work is fused */
    double activation_factor;   /* of what a block keeps, over the list in engine_memory.c */
    double fused_factor;        /* where elementwise work is fused */
    double bucket_bytes;        /* reduce and prefetch buffers, whole */
    double unpiped_bytes;       /* more of them below ZeRO-3, outside pipelines */
    double live_params;         /* gathered at once; 0: units are, one by one */
    int step_grad_bytes;        /* fp32 copies of a rank's gradients, below ZeRO-3 */
    int bf16_accumulator_bytes; /* beside gradients of 16 bits, in a pipeline that computes in bf16
                                 */
    int stage_outputs;          /* outputs of its stage that a pipeline keeps of a micro batch */
    bool fuses_split_loss;      /* also where the vocabulary is split */
    bool keeps_gradients;       /* their memory is never given back */
    bool defers_update; /* the host updates a unit while the next step's forward runs before it */
    bool keeps_8bit_inputs; /* inputs of 8-bit products are kept as such */
    int disk_grad_bytes;    /* of gradients that go to disk and back with offloaded states */
    int prefetch;           /* units gathered ahead */
    enum selective selective;
};

const struct engine_profile *profile_of(enum engine g);
const char *engine_name(enum engine g);
/* Is elementwise work of a calibration key's stack fused, by a compiler or by hand? */
bool stack_is_fused(const char *stack);
/* RC_USAGE naming the ones there are. */
enum rc engine_parse(const char *name, enum engine *out, struct err *e);

#endif
