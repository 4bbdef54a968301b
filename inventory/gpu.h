/* What is known about GPU models: facts/gpus.csv, and the many names sellers have for them. */
#ifndef INVENTORY_GPU_H
#define INVENTORY_GPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum gpu_vendor { GPU_NVIDIA, GPU_AMD };
/* How far the direct links of a GPU reach inside a node. */
enum gpu_link_scope {
    GPU_LINK_NONE, /* PCIe only */
    GPU_LINK_PAIR, /* bridged pairs */
    GPU_LINK_QUAD, /* bridged groups of up to four */
    GPU_LINK_MESH, /* some pairs directly, others through a neighbour */
    GPU_LINK_ALL,  /* all-to-all at full rate */
    GPU_LINK_RACK  /* all-to-all beyond the node */
};

/* Value type; texts live as long as the program. Rates are per second, dense, and 0 where the
 * hardware lacks the number type or where nobody published the figure. */
struct str;

struct gpu {
    const char *id;      /* "h100-sxm" */
    const char *family;  /* models that differ in memory or form only: "h100" */
    const char *form;    /* sxm, pcie, nvl, oam, superchip, rack */
    const char *aliases; /* other names, separated by ';' */
    enum gpu_vendor vendor;
    double memory_gb_sold; /* decimal GB on the price list */
    int64_t memory_bytes;  /* as the driver reports it; 0: unknown */
    double memory_bytes_per_s;
    double bf16_flops_per_s, fp16_flops_per_s, fp8_flops_per_s, fp32_flops_per_s;
    double bf16_measured_flops_per_s; /* best published matrix product; 0: none published */
    const char *link;                 /* "nvlink4", "nvlink-bridge", "xgmi", "none" */
    double link_bytes_per_s;          /* one way, all links of a GPU */
    enum gpu_link_scope link_scope;
    int pcie_gen;
    double pcie_bytes_per_s; /* one way */
    double tdp_w;
    double capability; /* CUDA compute capability, 9.0; 0 for other vendors */
    const char *host_arch;
    const char *source;
};

/* Replace or add the models of a file with the columns of facts/gpus.csv, of which only id must be
 * there. RC_INVALID names line and column. At most once, before anything uses a model. */
enum rc gpu_load_user(const char *path, struct err *e);

/* Number of models, and the i-th in the order of the file. */
size_t gpu_count(void);
const struct gpu *gpu_at(size_t i);

/* Model for a seller's name ("NVIDIA H100 80GB HBM3", "A100-SXM4-80GB", "h100-sxm"), NULL when it
 * is none of ours. memory_bytes (0: unknown) as reported picks between variants of one family. */
const struct gpu *gpu_find(const char *name, int64_t memory_bytes);

/* Family that a name stands for ("a100", "NVIDIA A100"), whose models it all means; NULL when it is
 * none. */
const char *gpu_family(const char *name);
/* Add "a100-40-sxm, a100-80-sxm" when the models of the family differ in memory, so that a name of
 * it leaves open which is meant; false when they do not. */
bool gpu_family_is_open(const char *family, struct str *models);

/* A memory size, decimal as sold or as the driver reports, is that of the model (7 % of slack). */
bool gpu_has_memory(const struct gpu *g, int64_t memory_bytes);
/* A name of a MIG slice ("H100 MIG 1g.10gb"), which Berth cannot plan. */
bool gpu_is_slice(const char *name);
/* Nearest known id to a mistyped name, NULL when nothing is near. */
const char *gpu_nearest(const char *name);

#endif
