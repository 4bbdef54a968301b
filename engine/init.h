/* Initial parameters: by counters, or from a checkpoint of Hugging Face's. Either way the value of
 * an element depends on its tensor and its place in it alone, so every sharding starts from the
 * same bits. */
#ifndef ENGINE_INIT_H
#define ENGINE_INIT_H

#include <stdint.h>

#include "base/err.h"

struct executor;

/* Normal(0, 0.02) matrices, the two that write to the residual stream divided by sqrt(2 layers)
 * (Radford et al. 2019); norms 1, biases 0; moments 0. Publishes. */
enum rc init_state(struct executor *x, uint64_t seed, struct err *e);

/* Weights as engine/weights.h reads them, on every rank its own elements; moments 0. Publishes.
 * Collective. */
enum rc init_from_weights(struct executor *x, const char *path, struct err *e);

#endif
