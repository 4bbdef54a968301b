/* The run specification: everything the node side of a run needs, one JSON file per node
 * (schema "run-spec/1", mode 0600 because it holds the token).
 *
 * The launcher writes it, the agent and the ranks read it. Plan and training hyper-parameters are
 * documents of others and pass through untouched. */
#ifndef RUN_SPEC_H
#define RUN_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/data_source.h"
#include "run/money.h"
#include "run/names.h"

struct json;

enum {
    RUN_MAX_HOSTS = 4096,
    RUN_MAX_RANKS = 65536,
    RUN_MAX_DISK_DIRS = 16,
    RUN_TOKEN_TEXT = 65, /* 32 random bytes as hex digits */
    RUN_SPEC_MAX_BYTES = 32 << 20
};

enum { RUN_RESUME_NONE = -1, RUN_RESUME_NEWEST = -2 }; /* beside a step >= 0 */

enum run_store {
    RUN_STORE_LOCAL,   /* each host keeps its own shards */
    RUN_STORE_PARTNER, /* and the next host keeps a copy of them: "local+partner" */
    RUN_STORE_SHARED   /* a folder all hosts see: "shared:PATH" */
};

/* One node of the run. Its ranks are first_rank .. first_rank + ranks - 1. */
struct run_host {
    char *name;         /* as the user wrote it; for sentences */
    char *address;      /* numeric address where the other hosts reach it */
    int64_t node;       /* its number in folder names, the same over all attempts of the run */
    int64_t first_rank; /* ranks are numbered in the order of the hosts */
    int64_t ranks;      /* at least 1 */
};

/* Validation; no sources: none. */
struct run_evaluation {
    struct data_sources data;
    int64_t every_steps; /* 1 or more */
    int64_t tokens;      /* of each, 1 or more */
};

struct run_checkpoint {
    int64_t every_steps; /* 0: only at the end and when stopped */
    double every_s;      /* whichever comes first; 0: no time limit */
    int64_t keep;        /* newest checkpoints that stay, at least 1 */
    bool is_async;       /* training goes on while one is written; needs memory for a copy */
    enum run_store store;
    char *shared_path; /* RUN_STORE_SHARED only, else NULL */
};

/* Where a plan that keeps states on disk puts them, on every node. */
struct run_disk {
    char **dirs; /* striped over these; none: the run folder */
    size_t count;
    int64_t endurance_bytes; /* that the drives of a node are rated to have written; 0: not said */
};

struct run_deadlines {
    double rendezvous_s; /* from the agents' start until all ranks listen */
    double collective_s; /* one collective; a peer later than that is dead */
    double finish_s;     /* from the first rank that finished until the last one */
    double grace_s;      /* default of stop: time to finish the step and save */
    double heartbeat_s;  /* between agents */
    double lost_s;       /* silence after which an agent counts as lost */
};

struct run_limits {
    int64_t max_micro_usd;  /* of the whole run, all attempts; 0: none */
    double max_s;           /* likewise; 0: none */
    double spent_s;         /* what earlier attempts took, from their start to their end */
    struct run_money money; /* of the whole run */
};

struct run_spec {
    char id[RUN_ID_TEXT];
    int64_t attempt; /* 1 for launch, one more with each resume */
    struct run_host *hosts;
    size_t host_count;
    size_t self;              /* index in hosts of the node this file is for */
    int64_t steps;            /* optimizer steps of the whole run */
    int64_t resume_step;      /* a step, or RUN_RESUME_NONE, or RUN_RESUME_NEWEST */
    int64_t saved_step;       /* newest checkpoint that an earlier attempt told of; -1: of none */
    struct data_sources data; /* on the node; the engine reads them there */
    struct run_evaluation evaluation;
    char *weights; /* on the node, what engine/weights.h reads; NULL: initial values by the seed */
    struct run_checkpoint checkpoint;
    struct run_disk disk;
    struct run_deadlines deadlines;
    struct run_limits limits;
    char token[RUN_TOKEN_TEXT]; /* ranks and agents prove to each other that they know it */
    struct json *plan;          /* plan/1 */
    struct json *training;      /* object: learning rate and its schedule, seed, ... */
    struct json *env;           /* object of strings set for the ranks; may be empty */
};

/* Empty, with the default deadlines, checkpoint policy (keep 2) and no limits. */
void run_spec_init(struct run_spec *s);
void run_spec_release(struct run_spec *s);

/* Append a host; first_rank is set, strings are copied. */
void run_spec_add_host(
    struct run_spec *s, const char *name, const char *address, int64_t node, int64_t ranks);
int64_t run_spec_ranks(const struct run_spec *s);
/* Index in hosts of the host a rank lives on; rank must be below run_spec_ranks. */
size_t run_spec_host_of(const struct run_spec *s, int64_t rank);

/* "DIR,DIR": absolute paths, in place of those there are. RC_USAGE otherwise. */
enum rc run_disk_parse(struct run_disk *out, const char *text, struct err *e);
void run_disk_release(struct run_disk *d);

/* Where the checkpoints of this run lie on a node with run folder node_dir; the caller frees it. */
char *run_checkpoint_dir(const struct run_spec *s, const char *node_dir);

const char *run_store_name(enum run_store store);
/* "local", "local+partner", "shared:PATH"; sets store and shared_path. */
enum rc run_store_parse(struct run_checkpoint *out, const char *text, struct err *e);

/* One document; the caller frees it. */
struct json *run_spec_to_json(const struct run_spec *s);
/* Every field is checked: bounds, contiguous ranks, distinct nodes, token form. */
enum rc run_spec_from_json(struct run_spec *out, const struct json *v, struct err *e);
/* Read spec.json of a node's run folder. */
enum rc run_spec_read(struct run_spec *out, const char *dir, struct err *e);

#endif
