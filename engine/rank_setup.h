/* What a rank needs before it can train: spec, schedule checked against the plan, connections,
 * executor, data. */
#ifndef ENGINE_RANK_SETUP_H
#define ENGINE_RANK_SETUP_H

#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "run/spec.h"

struct control;
struct data;
struct offer;

struct rank_setup {
    char *dir;
    const char *run_dir; /* the same, borrowed */
    int rank;
    struct run_spec spec;
    char **peers;            /* "host:port" by rank */
    const char **host_names; /* by rank, borrowed from the spec */
    int *host_of;            /* index in the spec's hosts by rank */
    struct schedule *schedule;
    struct comm *comm;
    struct executor *x;
    struct data *data;
    FILE *trace;
    int64_t planned_external_bytes;   /* 0: the plan does not say */
    int64_t planned_checkpoint_bytes; /* likewise, for the copy that checkpoints are written from */
    int planned_threads;              /* cores of a rank in the plan; 0: it does not say */
    double mfu_per_token_rate;        /* MFU at one token per second of all ranks; NaN: unknown */
};

/* Up to and including the warm-up. s->rank is set; release with rank_setup_close also on failure.
 */
enum rc rank_setup_open(struct rank_setup *s, const char *dir, int rank, const char *trace,
    struct control *control, struct err *e);
/* Open data that all ranks read: *out must be closed with data_close, also on failure. Collective;
 * RC_INVALID when the hosts do not see the same. */
enum rc rank_setup_open_data(const struct rank_setup *s, const struct data_sources *sources,
    uint64_t seed, struct data **out, struct err *e);
enum rc rank_setup_data(struct rank_setup *s, uint64_t seed, struct err *e);
void rank_setup_close(struct rank_setup *s);

/* Cores of a rank in the plan; 0: its offer does not say. */
int rank_setup_planned_threads(const struct offer *o);
/* Threads of a rank: as many as the plan counted on, and no more than this host has for each of its
 * ranks. */
int rank_setup_threads(int64_t ranks_here, int planned);

/* Model FLOPs utilisation by the plan's definition and peak; NaN when the plan predicts none. */
double rank_setup_mfu(const struct rank_setup *s, double tokens_per_second);

#endif
