/* What a model is: its dimensions, its parameters, and how they lie in flat units.
 *
 * A unit is what is gathered and reduced at once: unit 0 is the embedding, units 1..layers are the
 * blocks, unit layers+1 is the head (final norm, and the output matrix unless it is tied to the
 * embedding). A unit's parameters are one flat buffer: tensors in a fixed order, each starting at a
 * multiple of MODEL_ALIGN elements (parts of a fused product follow each other without a gap), the
 * whole padded to a multiple of shards * MODEL_ALIGN. Rank r of a shard group owns the r-th equal
 * part, so the output of an all-gather is the parameters themselves. */
#ifndef PLANNER_MODEL_H
#define PLANNER_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct json;

enum { MODEL_MAX_EXPERTS = 1 << 16 };
enum { MODEL_ALIGN = 128, MODEL_MAX_TENSORS = 24, MODEL_NAME = 64 };

enum model_family { MODEL_LLAMA, MODEL_GPT2, MODEL_FAMILIES };
enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_KINDS };

/* What is trained instead of the whole model; see planner/adapter.h. */
struct adapter {
    int64_t rank;     /* 0: the whole model is trained */
    unsigned targets; /* matrices: a set of ADAPT_ bits */
    int base_bits;    /* of frozen matrices of blocks: 16 (the type of activations), 8 or 4 */
};

/* Value type. Dimensions are elements; checked by model_check before anything uses them. */
struct model {
    char name[MODEL_NAME];
    enum model_family family;
    int64_t layers, width, heads, kv_heads, head_dim, ffn, vocab, max_positions;
    bool is_windowed; /* max_positions is the length of a sliding window, which we do not compute */
    bool is_tied;     /* output matrix is the token embedding */
    bool has_qkv_bias; /* Qwen2; GPT-2 always has all biases */
    bool has_qk_norm;  /* Qwen3 */
    /* for prediction only: what the bundled engine cannot train */
    bool has_plain_mlp;    /* llama with up and down alone: Nemotron's squared ReLU */
    int64_t expert_params; /* of the routed experts of a block, all together; 0: dense. ffn is then
                              the width of those that a token passes through */
    int64_t expert_top;    /* routed experts of a token */
    int64_t experts;       /* routed experts of a block; 0: not known */
    int64_t expert_ranks;  /* set by split_model: ranks that hold different experts */
    struct adapter adapter;
    double norm_eps, rope_theta;
    enum rope_scaling rope;
    double rope_factor, rope_low_freq, rope_high_freq;
    int64_t rope_original_positions;
};

/* Where a tensor is used; the schedule looks tensors up by role. */
enum tensor_role {
    T_TOKEN_EMBED,    /* [vocab, width] */
    T_POSITION_EMBED, /* [max_positions, width], GPT-2 */
    T_NORM1_W,
    T_NORM1_B,
    T_Q_W, /* q, k, v follow each other: one product [(heads + 2 kv_heads) head_dim, width] */
    T_K_W,
    T_V_W,
    T_Q_B,
    T_K_B,
    T_V_B,
    T_Q_NORM_W, /* [head_dim] */
    T_K_NORM_W,
    T_O_W, /* [width, heads head_dim] */
    T_O_B,
    T_NORM2_W,
    T_NORM2_B,
    T_GATE_W, /* gate and up follow each other: one product [2 ffn, width] */
    T_UP_W,   /* without a gate the only one, [ffn, width] */
    T_UP_B,
    T_DOWN_W, /* [width, ffn] */
    T_DOWN_B,
    T_FINAL_NORM_W,
    T_FINAL_NORM_B,
    T_HEAD_W, /* [vocab, width], absent when tied */
    T_ROLE_COUNT
};

struct tensor {
    enum tensor_role role;
    int64_t rows, cols; /* a vector has cols 1 */
    int64_t offset;     /* elements from the start of the unit */
    bool is_vector;
    bool is_decayed; /* weight decay applies: matrices yes, vectors no */
};

struct unit_layout {
    int n;
    struct tensor tensor[MODEL_MAX_TENSORS];
    int64_t params; /* without gaps and padding */
    int64_t elems;  /* padded to shards * MODEL_ALIGN */
    int64_t shard_elems;
};

/* --- finding one --- */

/* A preset by name, or a Hugging Face config.json by path. */
enum rc model_find(struct model *out, const char *name_or_path, struct err *e);
enum rc model_from_config(struct model *out, const struct json *config, struct err *e);
/* The config.json of a model, its weights being of a type ("bfloat16"); read back it gives the same
 * model. RC_INVALID for what transformers has no class for. Caller frees *out. */
enum rc model_to_config(
    struct json **out, const struct model *m, const char *torch_dtype, struct err *e);
/* Dimensions as JSON, and back: what plan/1 stores. Caller frees. Unknown fields are refused. */
struct json *model_to_json(const struct model *m);
enum rc model_from_json(struct model *out, const struct json *v, struct err *e);
/* One field of that object, as `berth help job` shows it: the i-th, NULL name at the end. */
struct model_field {
    const char *name, *form, *help;
};
const struct model_field *model_field_at(int i);
/* RC_INVALID when the model cannot take sequences of so many tokens. */
enum rc model_check_seq(const struct model *m, int64_t seq, struct err *e);
/* Positive, dividing, not absurd: one sentence naming the field otherwise. */
enum rc model_check(const struct model *m, struct err *e);
/* Would the same weights mean something else? how: "norm_eps is 1e-5, not 1e-6", of theirs and
 * ours. Names may differ, and in the Llama family the longest sequence. */
enum { MODEL_DIFFERENCE = 128 };
bool model_differs(
    const struct model *theirs, const struct model *ours, char how[MODEL_DIFFERENCE]);
/* Names of the presets: i-th, NULL at the end. */
const char *model_preset_name(int i);

/* --- parameters --- */

int model_units(const struct model *m);
/* Exact, equal to the published counts (tests/unit/planner/model.c). */
int64_t model_params(const struct model *m);
/* Of them, what a token passes through; without routers. All of them but for experts. */
int64_t model_active_params(const struct model *m);
/* Layout of one unit when its parameters are split over shards ranks. */
void model_unit_layout(const struct model *m, int unit, int64_t shards, struct unit_layout *out);
/* Tensor of a role in the unit, NULL when the model has none. Borrowed from u. */
const struct tensor *unit_tensor(const struct unit_layout *u, enum tensor_role role);
/* Hugging Face name of a tensor, e.g. "model.layers.3.self_attn.q_proj.weight". */
char *model_tensor_name(const struct model *m, int unit, enum tensor_role role, char buf[128]);

#endif
