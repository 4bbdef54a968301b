/* A run on the user's machine: $STATE/runs/ID/ with run.json, which says everything needed to find
 * the run on its nodes again. Written before each act, so that any later command can pick up. */
#ifndef LAUNCHER_RUN_DIR_H
#define LAUNCHER_RUN_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "run/money.h"
#include "run/names.h"
#include "run/record.h"

struct json;

/* Where one node's part lies. All strings owned. */
struct run_node {
    char *host;    /* label of the host in hosts.json, same order */
    char *address; /* where the other nodes reach it */
    char *workdir; /* absolute; NULL before preflight */
    char *engine;  /* absolute path of berth-engine there */
    char *dir;     /* absolute run folder of the node */
    int64_t node;  /* number in folder names */
    int64_t ranks;
    struct json *entry; /* of earlier attempts only: the host as hosts.json had it */
};

struct run_info {
    char id[RUN_ID_TEXT];
    char *path; /* folder on this machine; not in the document */
    enum run_state state;
    int64_t attempt;
    /* launched: by the first attempt; ended: of the newest; 0: not yet */
    double created_wall_s, launched_wall_s, ended_wall_s;
    double attempt_wall_s; /* when the ranks of the newest attempt were started; 0: not yet */
    double spent_s;        /* what earlier attempts took */
    char *reason;          /* why it was cancelled; NULL */
    struct record_failure failure;
    bool has_failure;
    int64_t steps;
    char *model; /* for lists */
    struct run_money money;
    double predicted_step_s, predicted_tokens_per_s, predicted_mfu; /* NaN: unknown */
    struct json *predicted_parts;  /* of a step, by name, as in the plan; NULL: unknown */
    double predicted_off_device_s; /* of a step, waiting for the host, its disk and copies; NaN:
                                      nothing leaves the device, or unknown */
    int64_t predicted_bytes;       /* of a rank: slabs and what lies outside them; -1: unknown */
    char *identity, *known_hosts, *ssh_config; /* how to connect; NULL: not said */
    struct run_node *nodes;
    size_t node_count;
    /* Of earlier attempts, on hosts that are not among nodes: what lies there is still the run's.
     */
    struct run_node *past;
    size_t past_count;
    int64_t next_node;   /* number for the next new host */
    struct json *spec;   /* run-spec/1 without what differs between nodes; resume starts from it */
    struct json *status; /* last status of the coordinator; NULL */
    bool is_cleaned;     /* nothing of it lies on its nodes any more */
};

void run_info_init(struct run_info *r);
void run_info_release(struct run_info *r);
/* {step, survives_host_loss} of the newest checkpoint; NULL when there is none, or none any more.
 */
const struct json *run_info_checkpoint(const struct run_info *r);
void run_info_set_nodes(struct run_info *r, size_t count); /* empty ones in place of the old */
/* Put node i among the past ones, unless nothing of the run ever came to its host. Takes entry;
 * nodes[i] is empty afterwards. */
void run_info_put_aside(struct run_info *r, size_t i, struct json *entry);
/* Move the past node of this host to *out; false when there is none. */
bool run_info_take_back(struct run_info *r, const char *host, struct run_node *out);

/* Make the folder of a new run (state "planned"), and `latest`. Sets id and path. */
enum rc run_dir_create(struct run_info *r, double wall_s, struct err *e);
/* Write run.json. */
enum rc run_dir_save(const struct run_info *r, struct err *e);
/* "latest", an id, or an ending of one that only one run has. RC_NOT_FOUND with what there is. */
enum rc run_dir_open(struct run_info *out, const char *name, struct err *e);
/* Ids of all runs, newest first; release them with run_dir_list_free, also after a failure. No
 * folder yet is no run. */
enum rc run_dir_list(char ***ids, size_t *count, struct err *e);
void run_dir_list_free(char **ids, size_t count);
/* Who starts the run holds it alone until it runs; who ends or removes it meanwhile would not see
 * what is about to be started, so they may only share it among themselves. RC_INVALID when it is
 * held otherwise. *fd keeps it until closed (however the process ends); -1 where nothing can be
 * locked, which is no error. */
enum rc run_dir_hold(const struct run_info *r, bool is_alone, int *fd, struct err *e);
/* Path of a file in the run's folder; the caller frees it. */
char *run_dir_file(const struct run_info *r, const char *name);

#endif
