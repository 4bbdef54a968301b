/* What is to be trained and within which limits: from a JSON file, from flags, or both.
 *
 * A job file is an object with the fields of job_fields (`berth help job` prints them). Quantities
 * are numbers in base units or texts as people write them ("10B", "7d"). Unknown fields are
 * refused, so that a typing error is not a silent default. */
#ifndef PLANNER_JOB_H
#define PLANNER_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/data_kind.h"
#include "planner/model.h"
#include "planner/strategy.h"

struct json;

enum objective { OBJECTIVE_COST, OBJECTIVE_TIME, OBJECTIVE_BALANCED };
enum spot { SPOT_NO, SPOT_ALLOW, SPOT_ONLY };

enum { JOB_LIST = 256, JOB_TEXT = 1024, JOB_DATA = 8192, JOB_STACK = 32, JOB_WORD = 32 };
enum { JOB_CHECKPOINTS_KEPT = 2 }; /* the newest, unless a launch says otherwise */

/* Holds memory of its own: job_init, job_release. Zero and "" mean: not said, no limit. */
struct job {
    bool has_model;
    struct model model;
    struct adapter lora;         /* taken into the model by job_finish; zero: as the model says */
    int64_t tokens;              /* to train on */
    int64_t seq;                 /* tokens of a sequence */
    int64_t doc_tokens;          /* mean of documents packed into it */
    int64_t global_batch_tokens; /* of an optimizer step */
    enum precision precision;
    int master_bytes; /* of what is in 16 bits, as strategies have it */
    bool fp8_gradients;
    enum moment_form moment_form;
    enum engine engine;
    char stack[JOB_STACK]; /* whose constants predict another engine; "" its own name's */
    bool allow_fp32, allow_bf16, allow_fp8; /* precisions the search may also try */
    enum objective objective;
    int64_t budget_micro_usd;
    double deadline_s; /* from renting to the last checkpoint */
    int64_t max_gpus;  /* ranks */
    char provider[JOB_LIST], region[JOB_LIST], gpu[JOB_LIST], fabric[JOB_LIST]; /* "a,b" */
    char strategy[JOB_LIST];  /* "zero2,zero3": only these are searched */
    char offload[JOB_LIST];   /* "none,nvme": only these are, on CPUs too */
    char recompute[JOB_LIST]; /* likewise; "" for none, selective and full */
    char reshard[JOB_WORD];   /* "always", "never" or a size: only that; "" for always and never */
    char bucket[JOB_WORD];    /* a size or "unlimited": gradients are reduced so; "" by unit */
    char gather_format[JOB_WORD], reduce_format[JOB_WORD]; /* of planner/wire.h; "" for plain */
    enum spot spot;
    char data[JOB_DATA]; /* sources: planner/data_source.h */
    enum data_kind data_kind;
    char weights[JOB_TEXT];   /* to start from; "": initial values by the seed */
    char eval_data[JOB_TEXT]; /* held-out text, of the same kind; "": none */
    int64_t eval_every_steps; /* 0: job_eval_every_steps says */
    int64_t eval_tokens;      /* of each evaluation; 0: job_eval_tokens says */
    int64_t data_bytes;       /* to upload before the run */
    int64_t weights_bytes;    /* to start from, likewise */
    double upload_bytes_per_s;
    double tokenising_s;       /* on the nodes, before the run */
    double checkpoint_every_s; /* 0: what wastes the least time; a plan's job has it */
    char store[JOB_TEXT];
    struct json *training; /* see planner/training.h; passed to the engine as it is */
    /* set by job_finish */
    bool is_seq_assumed, is_batch_assumed;
    /* of a question, not of the job (planner/what_if.h): nodes fail so many times as often as is
     * taken otherwise; 0: as often */
    double failures_times;
};

/* One field of a job file. */
struct job_field {
    const char *name;
    const char *form; /* "count", "text", ... as `berth help job` shows it */
    const char *help;
};
/* The i-th, NULL name at the end. */
const struct job_field *job_field_at(int i);

void job_init(struct job *j);
void job_release(struct job *j);
/* Independent copy; *out is overwritten, not released. */
void job_copy(struct job *out, const struct job *j);

/* Fields of the object replace those already in j; j is unchanged on failure. */
enum rc job_read_json(struct job *j, const struct json *v, struct err *e);
/* The same from a file; "-" is standard input. */
enum rc job_read_file(struct job *j, const char *path, struct err *e);
/* Whole job, readable by job_read_json. Caller frees. */
struct json *job_to_json(const struct job *j);

/* Fill sequence and batch when they were not given, turn sellers' GPU names into ids, and check
 * everything together: RC_USAGE or
 * RC_INVALID with one sentence. Planning starts from a finished job. */
enum rc job_finish(struct job *j, struct err *e);

/* Part of job_finish: names in the lists of gpus, fabrics and strategies are known ones, spelled as
 * in offers/1. */
enum rc job_settle_lists(struct job *j, struct err *e);
/* Part of it: names of GPUs in a list, as sellers write them, become ids and families. */
enum rc job_settle_gpus(char list[JOB_LIST], struct err *e);
/* A limit of nothing is a mistake, not the absence of a limit: the sentence for a field, by its
 * name in job files, whose value is 0. */
enum rc job_refuse_zero(const char *field, double value, struct err *e);

/* RC_INVALID when documents of so many tokens cannot be planned. */
enum rc job_check_documents(int64_t tokens, struct err *e);

/* The stack whose constants predict it. */
const char *job_stack(const struct job *j);

/* That its training names. */
enum optimizer job_optimizer(const struct job *j);
/* Sequences of an optimizer step, and steps of the whole run (the last one counts whole). */
int64_t job_step_sequences(const struct job *j);
int64_t job_steps(const struct job *j);
/* Weights that go to the nodes before the run. */
int64_t job_weights_bytes(const struct job *j);
/* Validations of the whole run (0 without eval_data), steps between them, tokens of each. */
int64_t job_evaluations(const struct job *j);
int64_t job_eval_every_steps(const struct job *j);
int64_t job_eval_tokens(const struct job *j);
/* "" allows every word; else one of the comma-separated words, case-insensitive. */
bool job_allows(const char *list, const char *word);

const char *objective_name(enum objective o);
const char *spot_name(enum spot s);
enum rc objective_parse(const char *word, enum objective *out, struct err *e);
enum rc spot_parse(const char *word, enum spot *out, struct err *e);
enum rc job_parse_master(struct job *j, const char *word, struct err *e);
enum rc job_parse_gradients(struct job *j, const char *word, struct err *e);
/* "fp32" or "bf16": add to what the search may try. */
enum rc job_allow(struct job *j, const char *word, struct err *e);

#endif
