/* Names a run has on disk: its id, its folder on the user's machine, its folder on a node.
 *
 *   user side   $STATE/runs/ID/    plan.json run.json hosts.json known_hosts events.jsonl
 *                                  metrics.jsonl logs/
 *   node side   WORKDIR/engine/HASH/berth-engine      WORKDIR/data/HASH/NAME
 *               WORKDIR/runs/ID/node-K/   spec.json agent.pid agent.sock state.json events.jsonl
 *                                         rank-N.log metrics.jsonl ckpt/
 *   checkpoints   CKPT/step-00000100/   manifest.json and the files it lists
 *
 * K is the node number of the host in the run, so that hosts that share a home do not collide. */
#ifndef RUN_NAMES_H
#define RUN_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct json;

enum { RUN_ID_TEXT = 24 };

#define RUN_DEFAULT_WORKDIR ".berth" /* below the home of the node's user */

/* Environment variable that agent and ranks carry: the absolute run folder of the node. Whoever
 * asks "is anything of this run left here?" looks for it in /proc. */
#define RUN_DIR_ENV "BERTH_RUN_DIR"

/* Files of the node's run folder. */
#define RUN_FILE_SPEC    "spec.json"
#define RUN_FILE_PID     "agent.pid"
#define RUN_FILE_SOCKET  "agent.sock"
#define RUN_FILE_STATE   "state.json"
#define RUN_FILE_EVENTS  "events.jsonl"
#define RUN_FILE_METRICS "metrics.jsonl"
#define RUN_FILE_AGENT   "agent.log"
#define RUN_FILE_SPARE   "spare" /* reserved for state and events on a full disk */
#define RUN_DIR_CKPT     "ckpt"

/* Files of the user's run folder beside RUN_FILE_EVENTS and RUN_FILE_METRICS. */
#define RUN_USER_PLAN        "plan.json"
#define RUN_USER_RUN         "run.json"
#define RUN_USER_HOSTS       "hosts.json"
#define RUN_USER_KNOWN_HOSTS "known_hosts"
#define RUN_USER_LOGS        "logs"

/* "20261130-083000-abcd": UTC time, two letters for the part of the second (1/676), so that ids
 * sort by time, and two drawn from random. */
char *run_id_make(char out[RUN_ID_TEXT], double wall_s, const unsigned char random[2]);
/* Exactly that form; anything else could name a path outside the folder of runs. */
bool run_id_is_valid(const char *id);
/* Member "id" of a document. */
enum rc run_id_read(char out[RUN_ID_TEXT], const struct json *v, struct err *e);

/* A checkpoint: its folder's name, and the file without which it is none. */
#define RUN_STEP_PREFIX   "step-"
#define RUN_FILE_MANIFEST "manifest.json"
enum { RUN_STEP_TEXT = 32 };
char *run_step_name(char out[RUN_STEP_TEXT], int64_t step); /* "step-00000100" */
/* The step of such a name; -1 for any other. */
int64_t run_step_of(const char *name);

/* Paths; the caller frees them. */
char *run_node_dir(const char *workdir, const char *id, int64_t node); /* WORKDIR/runs/ID/node-K */
char *run_engine_dir(const char *workdir, const char *hash);           /* WORKDIR/engine/HASH */
char *run_data_dir(const char *workdir, const char *hash);             /* WORKDIR/data/HASH */
char *run_tokens_dir(const char *node_dir); /* WORKDIR/data/tokens of WORKDIR/runs/ID/node-K */
char *run_shared_dir(const char *shared, const char *id); /* SHARED/berth-ID */
char *run_rank_log(const char *dir, int64_t rank);        /* DIR/rank-N.log */
char *run_user_runs(void);                                /* $STATE/runs */
char *run_user_dir(const char *id);                       /* $STATE/runs/ID */

#endif
