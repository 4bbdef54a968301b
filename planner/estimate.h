/* What a model under a strategy needs and does on a machine: memory by name, seconds, and how sure.
 *
 * Everything comes from the schedule that the engine would run: bytes from its layout, seconds from
 * simulating it. estimate_quick builds a few blocks only and continues linearly, at a tenth of the
 * work. Live bytes come out the same. Seconds do in most cases; where one lane falls behind another
 * little by little, until after more blocks than were built it is the one that all wait for, the
 * line misses the bend. The slab is live bytes and the gaps of the few blocks. Of 10,000 random
 * strategies and machines 1.4 % were off by more than 0.1 % of the seconds, 0.2 % by more than 1 %,
 * none by 6 %; 2 % were off in the slab, none by more than 4 %. So a choice may rest on it, and
 * what is said of the chosen one rests on estimate_make. */
#ifndef PLANNER_ESTIMATE_H
#define PLANNER_ESTIMATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/hash.h"
#include "planner/phase.h"
#include "planner/rates.h"
#include "planner/schedule.h"
#include "planner/simulate.h"

struct json;
struct unit_elems;

/* Value type; bytes per rank unless said. */
struct estimate {
    /* device memory (on CPU: a rank's share of RAM) */
    int64_t part_bytes[PART_COUNT];   /* live at the worst moment */
    int64_t phase_bytes[PHASE_COUNT]; /* most that is live in each phase of a step; all 0 where
                                         they are not told apart: estimate_quick, other engines */
    int64_t packing_bytes;            /* slab beyond what is live; what another engine's allocator
                                         holds beyond its tensors */
    int64_t peak_bytes;               /* the slab: all of the above; of another engine, reserved */
    bool is_allocated;                /* by another engine as it goes, not laid out */
    int64_t external_bytes;           /* context, communicators, code: not in the slab */
    int64_t capacity_bytes;           /* what the driver reports, minus external */
    double fit_probability;
    /* host memory of a node */
    int64_t host_slab_bytes;     /* pinned, of all ranks; on CPU 0 */
    int64_t host_ram_bytes;      /* with the snapshot for a checkpoint and what processes need */
    int64_t host_capacity_bytes; /* 0: unknown */
    int64_t host_part_bytes[PART_COUNT]; /* of host_slab_bytes, live at the worst moment */
    int64_t host_snapshot_bytes;         /* of host_ram_bytes, for a checkpoint */
    /* disk of a node, for states that lie there; 0 without */
    int64_t disk_bytes;          /* states, and two checkpoints of the node's part of them */
    int64_t disk_state_bytes;    /* of it */
    int64_t disk_param_bytes;    /* of these: parameters */
    int64_t disk_capacity_bytes; /* 0: unknown or none */
    int64_t disk_written_bytes;  /* by a step */
    int full_blocks; /* of the strategy, or how many it takes on the machine (STRATEGY_FILL) */
    /* an optimizer step */
    struct simulation simulation;
    double step_s, step_low_s, step_high_s; /* low, high: 90 % band */
    double tokens_per_s_per_rank;
    double mfu; /* model flops by flops_definition over peak_flops of the precision */
    const char *flops_definition; /* static */
    /* a checkpoint */
    int64_t checkpoint_bytes;  /* whole, all ranks */
    double checkpoint_s;       /* writing it */
    double checkpoint_stall_s; /* training waits this long at most: until the states are copied; for
                                  states on disk, until all is written */
    double hidden_update_s;    /* see struct save_s */
    struct sizes sizes;        /* beside those of the runs behind the constants */
    const struct rates_entry *evidence; /* of the machine, lives as long as its rates; NULL: none */
    unsigned outside;                   /* bits of sizes (enum range_kind) beyond any of its runs */
    bool is_extrapolated;               /* outside in any, or nobody ran anything like it */
    bool has_hash;
    struct hash128 hash; /* of the schedule; not by estimate_quick */
};

/* From the whole schedule, exactly as the engine lays it out. */
enum rc estimate_make(struct estimate *out, const struct model *m, const struct strategy *s,
    const struct machine *machine, struct err *e);
/* Close to it, from a few blocks. No hash. */
enum rc estimate_quick(struct estimate *out, const struct model *m, const struct strategy *s,
    const struct machine *machine, struct err *e);

/* full_blocks of a strategy that leaves them open, STRATEGY_FILL: the fewest with which its whole
 * schedule fits the machine; all but two where none does. Other strategies stay as they are. */
enum rc estimate_fill(
    struct strategy *s, const struct model *m, const struct machine *machine, struct err *e);

/* The same with the least memory that its blocks can do with, on any machine. */
struct strategy estimate_least(const struct strategy *s, const struct model *m);

/* The bytes of estimate_quick alone; no time. Of the bundled engine. With STRATEGY_FILL the least
 * there can be. */
enum rc estimate_bytes(struct estimate *out, const struct model *m, const struct strategy *s,
    const struct machine *machine, struct err *e);

/* Both in two halves, for many machines: preparing once, then pricing each. is_whole: as
 * estimate_make, else as estimate_quick. */
struct prepared;
enum rc prepared_make(struct prepared **out, const struct model *m, const struct strategy *s,
    bool is_whole, struct err *e);
void prepared_free(struct prepared *p);
void prepared_estimate(struct estimate *out, const struct prepared *p, const struct machine *mc);

/* A quick estimate is at least this, which is known of all blocks: seconds of a step; bytes of the
 * slab. */
void estimate_raise_step(struct estimate *x, double step_s);
void estimate_raise_bytes(struct estimate *x, const struct machine *mc, int64_t peak_bytes);

/* Probability that so many bytes of slab fit beside what is external. */
double estimate_fit_probability(const struct machine *machine, int64_t slab_bytes);

/* Live bytes of a rank in each memory, exact, and a lower bound of the slabs: no offsets, no time.
 */
struct live_bytes {
    int64_t of[MEMORY_COUNT];
};
enum rc estimate_live_bytes(
    struct live_bytes *out, const struct model *m, const struct strategy *s, struct err *e);
/* prepared_make in two halves, since live bytes alone often rule a strategy out: a prepared_begin
 * is finished with prepared_finish before it is priced. */
enum rc prepared_begin(struct prepared **out, const struct model *m, const struct strategy *s,
    bool is_whole, struct err *e);
struct live_bytes prepared_live_bytes(const struct prepared *p);
void prepared_finish(struct prepared *p);
/* Memory alone, from live bytes: no parts, no packing, no time. The cheapest whole answer. */
void estimate_memory(struct estimate *out, const struct live_bytes *live, const struct model *m,
    const struct strategy *s, const struct machine *machine);

/* What checkpoints take of a node's host memory: host_snapshot_bytes. The first for whoever has
 * counted the model's elements already. */
double estimate_snapshot_of(
    const struct unit_elems *elems, double checkpoint_bytes, const struct strategy *s);
double estimate_snapshot_bytes(const struct model *m, const struct strategy *s);
/* Host memory that a node needs with so many live bytes of a rank: host_ram_bytes; and of its disk:
 * disk_bytes. */
int64_t estimate_host_ram_bytes(
    const struct live_bytes *live, double snapshot, const struct strategy *s, bool is_gpu);
int64_t estimate_disk_bytes(
    const struct live_bytes *live, double checkpoint_bytes, const struct strategy *s);
/* Share of a step in which nothing but the disk, the host and copies between them work, for states
 * on disk; 0 without. */
double estimate_disk_share(const struct estimate *x);

/* Seconds of writing a checkpoint of so many bytes, and of the snapshot that training waits for:
 * checkpoint_s and checkpoint_stall_s, without building anything. */
struct save_s {
    double write, stall;
    double update; /* of the stall, updates that would have hidden behind the next forward pass: an
                      evaluation waits for them, too */
};
struct save_s estimate_saves(const struct estimate *x);
double estimate_checkpoint_bytes(const struct model *m, const struct strategy *s);
struct save_s estimate_save_s(
    double checkpoint_bytes, const struct strategy *s, const struct machine *machine);

/* What must be free: the slab; of another engine its tensors, and what its allocator cannot give
 * back when memory runs short. */
int64_t estimate_needed_bytes(const struct estimate *x, const struct machine *machine);
/* Fits in device memory (probability at least a half) and, where it is known, in host memory;
 * states on disk need a disk that is known to be large enough. */
bool estimate_fits(const struct estimate *x);
/* Bytes that are missing, 0 when it fits; *where tells of which memory. */
int64_t estimate_short_by(const struct estimate *x, enum memory *where);

/* Flops of one token for MFU, and their definition in words (static). */
double estimate_model_flops(const struct model *m, const struct strategy *s);
const char *estimate_flops_definition(const struct model *m, const struct strategy *s);

/* Sections memory, host, disk, step, checkpoint and basis of estimate/1. Caller frees. */
struct json *estimate_to_json(const struct estimate *x, const struct machine *machine);

#endif
