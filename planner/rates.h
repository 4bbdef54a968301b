/* What hardware does per second: everything the simulator needs of a cluster.
 *
 * A machine is made from what an offer says (struct hardware) and from calibration constants, each
 * with its source, date, number of rows behind it and residual. Constants are keyed by (device, GPU
 * or instruction set, stack), because software decides as much as silicon does. The functions below
 * price one operation running alone; what runs side by side is the simulator's business. */
#ifndef PLANNER_RATES_H
#define PLANNER_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/range.h"
#include "planner/schedule.h"
#include "planner/strategy.h"

struct json;

enum { RATES_NAME = 32, RAMP_POINTS = 12 };

/* --- what is rented --- */

/* Value type. Rates are per second and one way; 0 = there is none, or unknown. */
struct hardware {
    bool is_gpu;
    char gpu[RATES_NAME];               /* gpu_id, "" on CPU */
    char isa[RATES_NAME];               /* CPU: "x86-64-v4"; "" unknown */
    char cpu[RATES_NAME];               /* CPU: "amd-epyc-9654" (hardware_cpu); "" unknown */
    int64_t nodes, ranks_per_node;      /* ranks are GPUs, or worker processes on a CPU node */
    double peak_flops[PRECISION_KINDS]; /* per GPU, dense, by enum precision */
    double measured_flops;     /* per GPU, bf16: best large product anybody measured; 0 unknown */
    double memory_bytes_per_s; /* per GPU */
    int64_t memory_bytes;      /* per rank, as the driver reports */
    double link_bytes_per_s;   /* per GPU inside a node (NVLink, xGMI, or PCIe) */
    bool is_link_pcie;         /* no direct links: traffic goes through host memory */
    double pcie_bytes_per_s;   /* per GPU to host memory */
    double fabric_bytes_per_s; /* per node, line rate of all NICs; 0: no fabric */
    bool is_fabric_rdma;       /* InfiniBand, RoCE, EFA; else TCP */
    int64_t vcpus;             /* per node; 0 unknown */
    int64_t ram_bytes;         /* per node; 0 unknown */
    int64_t nvme_bytes;        /* per node; 0 unknown or none */
};

/* --- calibration --- */

/* Where constants come from: one entry of calibration.json. Strings live as long as the rates. */
struct rates_entry {
    const char *device, *chip, *stack; /* "*" matches all; chip: gpu_id, instruction set or CPU */
    const char *source, *date;
    int64_t rows;
    double residual; /* mean absolute relative error over the rows; negative: none known */
    bool is_prior;   /* judged, not fitted to rows of this hardware and stack */
    const struct json *values;
    struct ranges ranges; /* sizes of the runs behind it */
};

/* One number or table of an entry. */
struct rates_constant {
    const char *name;
    size_t entry; /* index */
    const struct json *value;
};

/* What if hardware reached more or less than its constants say? Factors of rates; patterns as those
 * of an entry. */
struct rates_scale {
    const char *device, *chip;
    double compute;   /* of products, attention and memory traffic */
    double link;      /* between the GPUs of a node */
    double host_link; /* between a GPU and its host; where GPUs meet over it, theirs too */
};

struct rates {
    struct json *root;
    struct rates_entry *entries;
    size_t n;
    struct rates_constant *constants; /* by name, then entry */
    size_t n_constants;
    const char **seen; /* ids of the measured runs that constants were fitted to, sorted */
    size_t n_seen;
    const struct rates_scale *scales; /* borrowed; NULL: constants are taken as they are */
    size_t n_scales;
};

/* The constants built in: judged ones, and those fitted to published runs. On success release with
 * rates_free. */
enum rc rates_builtin(struct rates **out, struct err *e);
/* The judged ones alone: what a fit starts from. */
enum rc rates_judged(struct rates **out, struct err *e);
/* Built-in constants with those of a calibration/1 file on top. Release with rates_free. */
enum rc rates_with_file(struct rates **out, const char *path, struct err *e);
/* From a document of the same form; takes root, also on failure. */
enum rc rates_from_json(struct rates **out, struct json *root, struct err *e);
void rates_free(struct rates *r);
/* The constants of r with the entries of a calibration/1 document on top. */
enum rc rates_with(
    struct rates **out, const struct rates *r, const struct json *more, struct err *e);
/* Was a constant fitted to the run with this id (struct evidence_row)? */
bool rates_have_seen(const struct rates *r, const char *id);
/* One constant as a machine would find it, chip and stack as patterns allow; NAN when there is
 * none. */
double rates_number(const struct rates *r, const char *device, const char *chip, const char *stack,
    const char *name);

/* --- a machine --- */

/* How much longer than at full rate a collective of a payload takes: from the fraction of the rate
 * that was reached where it was measured, interpolated in log size. The seconds lost carry over to
 * faster and slower links, for they are latency; the fraction does not. */
struct ramp {
    int n;
    double bytes[RAMP_POINTS], fraction[RAMP_POINTS];
    double reference_bytes_per_s; /* full rate where it was measured */
};

/* One constant as used, for explanations and plan files. */
struct machine_constant {
    const char *name; /* constant, never freed */
    const struct rates_entry *entry;
};
enum { MACHINE_CONSTANTS = 64 };

/* How close the constants are to the hardware and the stack: on how many runs they rest. Constants
 * of a GPU that fewer stand behind are used, but do not count. */
enum { BASIS_ROWS = 4 };
enum basis {
    BASIS_CALIBRATED, /* runs of this chip and stack */
    BASIS_SIBLING,    /* of this stack, most on other chips */
    BASIS_PRIOR       /* neither */
};

/* Value type; borrows from the rates it was made with. All rates are what is achieved, not what a
 * data sheet says, except peak_flops. Seconds are for one operation alone on the machine. */
struct machine {
    struct hardware hw;
    char stack[RATES_NAME];
    bool is_shared; /* CPU: all lanes of all ranks of a node share cores and memory bandwidth */

    /* products: seconds = flops / (peak * efficiency * shape) */
    double peak_flops[PRECISION_KINDS]; /* per rank; 0: the hardware lacks the number type */
    double matmul_efficiency[PRECISION_KINDS];
    double stack_matmul, stack_attention; /* of a stack's products and attention, over the chip's */
    double matmul_half_k;                 /* inner dimension at which half of that is reached */
    double matmul_lanes;                  /* SMs or cores that share the tiles of a product */
    double matmul_tile_m, matmul_tile_n;
    double attention_efficiency;          /* of peak, forward */
    double attention_backward_efficiency; /* of peak, over its 2.5 times the forward's flops */

    double memory_bytes_per_s;         /* per rank, streaming operations */
    double lane_bytes_per_s;           /* of them, on the lane of a collective */
    double elementwise[OP_KIND_COUNT]; /* share of it that an operation reaches: those with
                                          exponentials are bound by arithmetic on a CPU, small ones
                                          stay in its caches (more than 1) */
    double moe_efficiency;             /* of products with experts, over those without */
    double tensor_exposed;             /* share of a tensor-parallel sum that nothing hides */
    double context_exposed;            /* of the exchange of keys and values */
    double expert_exposed;             /* of the exchange of tokens */
    double op_floor_s; /* no operation of the compute lane is shorter: launches, one after
                          the other, while the device works */

    double link_bytes_per_s; /* bus bandwidth per rank inside a node, large payload */
    double link_hop_s;
    struct ramp link_ramp;
    double fabric_bytes_per_s; /* per node over all NICs; 0: no fabric */
    double fabric_hop_s;
    struct ramp fabric_ramp;
    double unhidden;         /* share of the collectives beside compute that costs its time all the
                                same: launches, ordering, uneven ranks */
    double overlap_slowdown; /* compute takes this much longer while a collective runs; >= 1 */

    double copy_bytes_per_s;      /* per rank, device to host and back each */
    double host_bytes_per_s;      /* DRAM of a node */
    double host_adam_bytes_per_s; /* of a node: parameters' states updated on the host */
    double disk_bytes_per_s;      /* of a node, sustained: writing, or reading, or both together */
    double step_overhead_s;       /* per optimizer step, not otherwise accounted for */
    double jitter_per_doubling;   /* step grows by this for each doubling beyond 8 ranks */

    double external_bytes; /* per rank: context, communicators, code, stacks */
    double external_sd_bytes;
    double time_log_sd;           /* step seconds are log-normal around the estimate */
    double memory_log_sd;         /* and so is memory of engines that allocate as they go */
    double reserved_of_allocated; /* what an allocator takes from the driver, over what is in use */
    enum basis basis;             /* how close the constants are to this hardware and stack */
    const struct rates_entry
        *evidence; /* closest with ranges of so many runs; NULL: there is none */

    int n_constants;
    struct machine_constant constant[MACHINE_CONSTANTS];
};

/* Constants of later entries win over earlier ones. RC_INVALID when a needed one is missing or the
 * hardware makes no sense (no memory, no peak). */
enum rc machine_make(struct machine *out, const struct rates *r, const struct hardware *hw,
    const char *stack, struct err *e);
/* The hardware without what no rate depends on: machines of hardware with equal paces differ in hw
 * alone, so that one of them can price the operations of all. */
struct hardware machine_pace(const struct hardware *hw);
struct json *machine_constants_json(const struct machine *m);
/* Has it a rate for the precision? fp32 always, bf16 not on older GPUs. */
bool machine_computes(const struct machine *m, enum precision p);
/* The same as a sentence: RC_INVALID. */
enum rc machine_check_precision(const struct machine *m, enum precision p, struct err *e);

/* log2 of the threads of a rank; 0 on a GPU. */
double machine_thread_doublings(const struct machine *m);

/* --- seconds of one operation --- */

double machine_matmul_s(
    const struct machine *m, enum precision p, int64_t rows, int64_t cols, int64_t inner);
/* The same with the small matrices of an adapter, whose rank is one of the dimensions; bytes: all
 * traffic. */
double machine_low_rank_s(
    const struct machine *m, enum precision p, const int64_t dim[3], double bytes);
double machine_attention_s(
    const struct machine *m, enum precision p, double flops, bool is_backward);
/* An operation bound by memory traffic of so many bytes, or nearly so. */
double machine_stream_s(const struct machine *m, enum op_kind kind, double bytes);
/* The same on the lane of a collective, which on a CPU has one core. */
double machine_lane_stream_s(const struct machine *m, enum op_kind kind, double bytes);
/* Between device and host memory, one direction. */
double machine_copy_s(const struct machine *m, double bytes);
/* AdamW over so many elements of one rank in host memory, all ranks of the node at once. */
double machine_host_adam_s(const struct machine *m, double elems);
/* So many bytes of one rank in host memory, all ranks of the node at once. */
double machine_host_stream_s(const struct machine *m, double bytes);
/* So many bytes of one rank from or to the disk of its node, all ranks of the node at once. */
double machine_disk_s(const struct machine *m, double bytes);

/* Ranks of one collective: how many, and over how many nodes they are spread evenly. */
struct rank_group {
    int64_t ranks, nodes;
};
struct rank_group machine_world(const struct strategy *s);
struct rank_group machine_shard_group(const struct strategy *s);
struct rank_group machine_replica_group(const struct strategy *s);
/* Of so many ranks that lie stride ranks apart, on nodes of hw. */
struct rank_group machine_strided_group(const struct hardware *hw, int64_t ranks, int64_t stride);

enum collective {
    COLLECTIVE_ALL_GATHER,
    COLLECTIVE_REDUCE_SCATTER,
    COLLECTIVE_ALL_REDUCE,
    COLLECTIVE_ALL_TO_ALL
};
/* bytes: of the full vector. All groups of the same shape run at the same time, as they do in a
 * step. Hierarchical: inside a node over the links, between nodes over all NICs. */
double machine_collective_s(
    const struct machine *m, enum collective kind, struct rank_group g, double bytes);

#endif
