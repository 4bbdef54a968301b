/* A job and a strategy as the configuration of other software: DeepSpeed JSON, accelerate YAML,
 * torchtitan TOML, a Slurm script, an environment. Pure text makers.
 *
 * Names of keys were checked with the software itself: DeepSpeed 0.16.9 (runtime/zero/config.py,
 * runtime/constants.py, runtime/lr_schedules.py), accelerate 1.15 (commands/config, utils/launch),
 * torchtitan 0.2.2 (config/job_config.py; 0.3 no longer reads TOML), torchrun's PET_
 * variables, Megatron-LM's arguments, sbatch. Texts of the user's are quoted for each format and
 * can neither end a string nor add a line. */
#ifndef PLANNER_EXPORT_H
#define PLANNER_EXPORT_H

#include "planner/model.h"
#include "planner/strategy.h"
#include "planner/training.h"

struct json;
struct str;

enum export_target {
    EXPORT_DEEPSPEED,
    EXPORT_FSDP2,
    EXPORT_ACCELERATE,
    EXPORT_TORCHTITAN,
    EXPORT_SLURM,
    EXPORT_ENV,
    EXPORT_COUNT
};

/* Borrowed for the call. 0 and NULL: unknown, left out. */
struct export_input {
    const struct model *model;
    const struct strategy *strategy;
    const struct training *training; /* NULL: not said */
    int64_t steps;                   /* optimizer steps of the run */
    double limit_s;                  /* the run ends by itself before that */
    double checkpoint_every_steps;
    int64_t cores_per_node;
    bool is_gpu;
    const char *data;
};

const char *export_name(enum export_target t);
/* Append the file to out; what it cannot say goes to left_out, one sentence a line, and is up to
 * the training script. RC_INVALID: the target has no such way of sharding at all. */
enum rc export_make(struct str *out, struct str *left_out, enum export_target t,
    const struct export_input *in, struct err *e);

/* --- for the files of the export (export*.c) --- */

/* What a target's file can say beside kind, batch and precision. */
struct export_ability {
    bool full_recompute, selective_recompute;
    unsigned offload; /* enum offload */
    bool reshard;     /* keeping parameters after forward */
    bool micro;       /* the micro batch */
    bool batch;       /* accumulation, or the global batch */
    bool sequence;    /* its length */
    bool optimizer;   /* learning rate and so on, and clipping */
    bool clipping;    /* it alone */
    bool tensor, pipeline, context, expert;
};

/* In full, also where the plan drops less but the target could only keep too much. */
bool export_full_recompute(const struct strategy *s);
/* What FSDP's offloading says of a strategy: parameters, gradients and optimizer, or nothing. */
unsigned export_fsdp_offload(const struct strategy *s);

/* "text" with all but printable ASCII escaped: good for YAML, TOML and JSON. */
void export_quote(struct str *out, const char *text);
/* A comment's worth: one line of printable ASCII. */
void export_plain(struct str *out, const char *text);
/* One sentence to left_out. */
void export_lost(struct str *left_out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int64_t export_nodes(const struct export_input *in);
int64_t export_sequences(const struct export_input *in); /* of an optimizer step */

/* The targets; as export_make. */
enum rc export_deepspeed(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e);
enum rc export_fsdp2(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e);
enum rc export_accelerate(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e);
/* It writes files for DeepSpeed and for FSDP, which say different things. */
struct export_ability export_accelerate_can(const struct strategy *s);
enum rc export_torchtitan(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e);
enum rc export_slurm(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e);
enum rc export_env(
    struct str *out, struct str *left_out, const struct export_input *in, struct err *e);

#endif
