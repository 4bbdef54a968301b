/* Which tensors a Hugging Face checkpoint of a model has, and where ours lie in them.
 *
 * Names and shapes are those of transformers. Most tensors are the same in both; GPT-2's blocks
 * keep q, k and v in one tensor, and matrices as [in, out] where ours are [out, in]. A tied output
 * matrix is not listed: it is the embedding. */
#ifndef ENGINE_HF_LAYOUT_H
#define ENGINE_HF_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "planner/model.h"

enum { HF_NAME = 128, HF_MAX_PARTS = 3 };

struct hf_tensor {
    char name[HF_NAME];
    int dims;
    int64_t shape[2];
    bool is_transposed; /* [in, out] */
    int n_parts;        /* tensors of ours, one after the other along the outputs */
    struct tensor part[HF_MAX_PARTS];
};

/* The tensors of a unit, in its order; returns how many. */
int hf_unit_tensors(const struct model *m, int unit, struct hf_tensor out[MODEL_MAX_TENSORS]);
int64_t hf_elems(const struct hf_tensor *t);
/* Outputs of the tensor that come before a part of it. */
int64_t hf_outputs_before(const struct hf_tensor *t, int part);

#endif
