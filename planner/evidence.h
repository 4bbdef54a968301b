/* Published training runs: rows of a CSV turned into what the planner predicts from.
 *
 * Columns as in planner/facts/measured.csv. A row keeps what its source says; what the source
 * leaves out is assumed, and the row remembers that it was. Rows that cannot be predicted are
 * listed with one of a closed list of reasons. Pure. */
#ifndef PLANNER_EVIDENCE_H
#define PLANNER_EVIDENCE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "planner/model.h"
#include "planner/rates.h"
#include "planner/strategy.h"

struct csv;

enum { EVIDENCE_ID = 64, EVIDENCE_GROUP = 192 };

/* Stack of software that is not known by name. */
#define EVIDENCE_NO_STACK "other"

/* Why a row is not predicted. */
#define SKIP_MAP(X)                                                                                \
    X(SKIP_NOT_FULL, "not-full-training", "LoRA, QLoRA or partly frozen")                          \
    X(SKIP_STATUS, "status", "the source or its checker marks the row as doubtful")                \
    X(SKIP_CHART, "chart", "read off a chart")                                                     \
    X(SKIP_NOTHING_MEASURED, "nothing-measured", "neither throughput, step time nor memory")       \
    X(SKIP_NO_MODEL, "model-unknown", "layers, width or vocabulary are not stated")                \
    X(SKIP_NO_GPU, "gpu-unknown", "the GPU is not stated or not known")                            \
    X(SKIP_NO_GPUS, "gpus-unknown", "the number of GPUs is not stated")                            \
    X(SKIP_NO_SEQ, "sequence-unknown", "the sequence length is not stated")                        \
    X(SKIP_LAYOUT, "layout-impossible", "degrees that do not multiply or divide")                  \
    X(SKIP_CONTRADICTION, "contradictory", "its cells, or rows of the same id, contradict")        \
    X(SKIP_BAD_CELL, "bad-cell", "a cell that is not a number, or out of range")                   \
    X(SKIP_UNSUPPORTED, "unsupported", "a way of training that is not modelled")                   \
    X(SKIP_REPEATED, "repeated", "the same row stands further up")

enum skip {
#define X(name, word, help) name,
    SKIP_MAP(X)
#undef X
        SKIP_COUNT
};

enum mem_kind { MEM_UNSAID, MEM_ALLOCATED, MEM_ACTIVE, MEM_RESERVED, MEM_NVIDIA_SMI, MEM_KINDS };

/* What a row does not say, or says loosely; MODEL: heads or MLP width filled in; LOSS: taken to be
 * computed in pieces, which no column says. */
#define UNSTATED_MAP(X)                                                                            \
    X(UNSTATED_RECOMPUTE, 1, "recompute")                                                          \
    X(UNSTATED_NETWORK, 2, "network")                                                              \
    X(UNSTATED_PRECISION, 4, "precision")                                                          \
    X(UNSTATED_BATCH, 8, "batch")                                                                  \
    X(UNSTATED_OPTIMIZER, 16, "optimizer")                                                         \
    X(UNSTATED_MODEL, 32, "model")                                                                 \
    X(UNSTATED_STRATEGY, 64, "strategy")                                                           \
    X(UNSTATED_MEMORY_KIND, 128, "memory kind")                                                    \
    X(UNSTATED_ATTENTION, 256, "attention")                                                        \
    X(UNSTATED_LOSS, 512, "loss")

enum unstated {
#define X(name, bit, word) name = bit,
    UNSTATED_MAP(X)
#undef X
    /* memory does not hang on the network */
    UNSTATED_FOR_MEMORY = 1023 & ~UNSTATED_NETWORK
};

/* One run. Value type. */
struct evidence_row {
    char id[EVIDENCE_ID];
    char group[EVIDENCE_GROUP]; /* id up to its number, model, GPU: they share one vote */
    char stack[RATES_NAME];
    size_t line; /* in the source */
    struct model model;
    struct strategy strategy;
    struct hardware hw;
    double tokens_per_s; /* per GPU; 0: not measured */
    double peak_bytes;   /* of a GPU; 0: not measured */
    enum mem_kind mem_kind;
    bool is_oom; /* it ran out of memory */
    unsigned unstated;
    bool is_inferred; /* something unstated is taken as the run must have had it, to fit at all */
    double again;     /* share of blocks taken to be computed again in full, as few as fit; memory
                         is then the strategy's, whole_blocks, and seconds are those of both */
};

struct evidence_skip {
    char id[EVIDENCE_ID];
    size_t line;
    enum skip why;
    bool is_full_and_ok; /* counts among the rows that should have been predicted */
};

struct evidence {
    struct evidence_row *rows;
    size_t n_rows;
    struct evidence_skip *skipped;
    size_t n_skipped;
    size_t n_full_and_ok; /* predicted or not */
};

/* A column of such a table. The i-th, NULL name at the end. */
struct evidence_column {
    const char *name, *help;
};
const struct evidence_column *evidence_column_at(int i);

/* RC_INVALID only when a column that everything hangs on is missing. Release with
 * evidence_release. */
enum rc evidence_read(struct evidence *out, const struct csv *table, struct err *e);
/* The rows of adapters beside a frozen model (LoRA, QLoRA) alone, which the other leaves out; no
 * constant is ever fitted to them. Rows do not say which matrices are adapted, at which rank, nor
 * how a frozen model of few bits is kept: what each software does by itself is assumed. All others
 * are among the skipped, without counting there. */
enum rc evidence_read_adapted(struct evidence *out, const struct csv *table, struct err *e);
void evidence_release(struct evidence *v);

const char *skip_word(enum skip s);
const char *skip_help(enum skip s);
const char *mem_kind_name(enum mem_kind k);

#endif
