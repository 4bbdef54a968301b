/* A model on so many GPUs, described by options alone, without offers. */
#ifndef CLI_WHAT_OPTIONS_H
#define CLI_WHAT_OPTIONS_H

#include "cli/options.h"

struct offer;

/* --model, --seq, --gpu, --gpus, --gpus-per-node, --inter-gbps-per-gpu, --cores-per-rank. */
extern const struct option_group WHAT_OPTIONS;

struct gpu_counts {
    int64_t gpus, per_node; /* on CPU: ranks */
};
enum rc gpu_counts_from_args(struct gpu_counts *c, const struct args *args, struct err *e);
/* A node as described, settled like any offer so that gaps are filled the same way. No price. */
enum rc offer_from_args(
    struct offer *out, const struct args *args, const struct gpu_counts *c, struct err *e);

#endif
