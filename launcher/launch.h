/* Starting a run: from a plan and a list of hosts to running ranks, or resuming one elsewhere.
 *
 * prepare (no network) -> describe, confirm -> run: resolve, connect, preflight, stage, start. Each
 * step is finished on all hosts before the next begins; when one fails, whatever was started is
 * ended and verified to be gone. */
#ifndef LAUNCHER_LAUNCH_H
#define LAUNCHER_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "launcher/session.h"

struct hosts;
struct launch;
struct run_info;
struct str;

/* Everything borrowed until launch_free; NULL, 0 or negative: not said. */
struct launch_options {
    const char *plan_path;        /* plan/1; for resume NULL: the run's own */
    const struct hosts *hosts;    /* for resume NULL: the run's own */
    const char *engine_path;      /* berth-engine to stage; NULL: found beside this program */
    const char *data;             /* "local:PATH" (staged), "host:PATH"; NULL: the plan's job */
    const char *weights;          /* to start from, as data; NULL: the plan's job */
    const char *data_kind;        /* word of a data_kind; NULL: what plan or run say */
    const char *remote_dir;       /* work folder on the nodes */
    const char *store;            /* "local", "local+partner", "shared:PATH"; NULL: by the hosts */
    const char *nvme_dirs;        /* "DIR,DIR" on the nodes; NULL: not said */
    int64_t nvme_endurance_bytes; /* 0: not said */
    int64_t checkpoint_steps;     /* 0: by time only; -1: not said */
    double checkpoint_s;          /* -1: not said */
    const char *checkpoint_mode;  /* "async" or "sync"; NULL: by the memory there is */
    int64_t keep;                 /* checkpoints; 0: not said */
    int64_t max_micro_usd;
    double max_s;
    double rented_since_wall_s;
    const char *const *env; /* "NAME=VALUE" for the ranks */
    size_t env_count;
    int64_t resume_step;      /* resume only: RUN_RESUME_NEWEST or a step */
    const char *rank_program; /* path on the nodes; for tests of the launcher itself */
    double rendezvous_s, collective_s, lost_s; /* 0: not said */
    struct session_options connect;
    /* One line about what goes on now; NULL: silent. is_change: a new phase, not a new number. */
    void (*say)(void *ctx, const char *line, bool is_change);
    void *ctx;
};

/* Read plan and hosts, fit them together, settle everything that needs no network. RC_INVALID when
 * hosts and plan do not fit. */
enum rc launch_prepare(struct launch **out, const struct launch_options *o, struct err *e);
/* The same for a run that is over, maybe on other hosts; run is its id or name. */
enum rc launch_prepare_resume(
    struct launch **out, const char *run, const struct launch_options *o, struct err *e);
void launch_free(struct launch *l);

/* What it costs, in one sentence for the question before: "2 nodes, $4.20 an hour, ..." */
void launch_describe_cost(const struct launch *l, struct str *out);
/* Price of all nodes; 0: free, -1: unknown. */
int64_t launch_micro_usd_per_hour(const struct launch *l);
/* Spending limit in force, also from an earlier attempt; 0: none. */
int64_t launch_max_micro_usd(const struct launch *l);
/* Hosts of the list that the plan has no use for. */
size_t launch_spare_hosts(const struct launch *l);
/* Every host, file, command and rank, for --dry-run. */
void launch_describe(const struct launch *l, struct str *out);
struct json *launch_to_json(const struct launch *l);

/* Do it. Afterwards the run goes on by itself, whatever becomes of this process. On failure nothing
 * is left running, or the sentence says where. */
enum rc launch_run(struct launch *l, struct err *e);
/* Borrowed, valid until launch_free; has an id from launch_run on. */
struct run_info *launch_info(struct launch *l);

#endif
