/* Adapters beside a frozen model: LoRA (arXiv 2106.09685), and QLoRA, whose frozen matrices are
 * kept in 8 or 4 bits (arXiv 2305.14314). For prediction only: the bundled engine trains whole
 * models.
 *
 * An adapted matrix W (out x in) is used as W + B A; A (rank x in) and B (out x rank) are trained,
 * all else is frozen: it has no gradient and no optimizer state. The adapters of a block are one
 * flat buffer, sharded as a unit's parameters are; embedding and head have none.
 *
 * Matrices of blocks that are kept in few bits lie in blocks of 64 numbers with a scale of 8 bits,
 * and a scale in fp32 for 256 of those ("double quantization", 2305.14314 section 3): 4.127 bits
 * and 8.127 bits a parameter. Embedding, head and norms stay in the type of the activations. */
#ifndef PLANNER_ADAPTER_H
#define PLANNER_ADAPTER_H

#include "planner/model.h"

struct str;

enum {
    ADAPT_Q = 1,
    ADAPT_K = 2,
    ADAPT_V = 4,
    ADAPT_O = 8,
    ADAPT_GATE = 16,
    ADAPT_UP = 32,
    ADAPT_DOWN = 64,
    ADAPT_ATTENTION = 15,
    ADAPT_MLP = 112,
    ADAPT_ALL = 127
};

/* "all", "attention", "mlp", or names of matrices: "q,v". RC_USAGE naming what there is. */
enum rc adapter_targets_parse(const char *text, unsigned *targets, struct err *e);
/* The shortest text that is parsed to the same. */
void adapter_targets_text(struct str *out, unsigned targets);
/* Put an adapter beside the model, with the default for what it leaves unsaid (all matrices, 16
 * bits); nothing when its rank is 0, but RC_USAGE when it says more. */
enum rc adapter_take(struct model *m, const struct adapter *a, struct err *e);
/* m->adapter fits the model; one sentence otherwise. Nothing to check without an adapter. */
enum rc adapter_check(const struct model *m, struct err *e);

/* What of a unit is trained: all of it, or its adapters. */
struct trained_unit {
    int64_t params; /* without padding */
    int64_t elems;  /* padded to shards * MODEL_ALIGN; 0: nothing */
    int64_t shard_elems;
};
struct trained_unit model_trained_unit(
    const struct model *m, int unit, const struct unit_layout *u, int64_t shards);
/* The unit padded so that parts are even, and split over shards, which hold equally many of them:
 * parts is a multiple of shards. */
struct trained_unit model_split_unit(
    const struct model *m, int unit, int64_t shards, int64_t parts, struct unit_layout *u);
/* Bytes of a unit's frozen parameters, of all and of a rank's share; 0 without an adapter.
 * element: bytes of an element of activations. */
struct frozen_unit {
    int64_t bytes, shard_bytes;
};
struct frozen_unit model_frozen_unit(
    const struct model *m, int unit, const struct unit_layout *u, int64_t element);
/* Bytes of a frozen parameter of a block's matrix. */
double adapter_base_bytes(const struct adapter *a, int64_t element);
/* Are matrices of the unit kept in fewer bits than they are computed with? */
bool model_is_quantised(const struct model *m, int unit);

/* Is the tensor's matrix adapted? Elements of A and B: rank x (in + out). */
bool model_adapts(const struct model *m, enum tensor_role role);
/* Adapted matrices of a block, and where role stands among them. */
int model_adapter_count(const struct model *m, const struct unit_layout *block);
int model_adapter_index(
    const struct model *m, const struct unit_layout *block, enum tensor_role role);

/* Parameters that are trained: all, or those of the adapters. */
int64_t model_trained_params(const struct model *m);

#endif
