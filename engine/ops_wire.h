/* Operations on what travels in blocks of few bits: encoding, decoding, sums of pieces
 * (planner/schedule.h has their arguments). */
#ifndef ENGINE_OPS_WIRE_H
#define ENGINE_OPS_WIRE_H

#include "engine/device.h"
#include "kernels/kernels.h"

struct pool;

struct wire_op {
    const struct op_context *x;
    const struct op *op;
    void *const *arg;
    struct pool *pool;
    enum k_type type; /* of what is encoded */
};

/* One of quantise, dequantise and sum_pieces. */
void wire_run(const struct wire_op *w);

#endif
