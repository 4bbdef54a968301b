/* A run as its user sees it: asking its agents, following it, stopping it with proof, bringing
 * results home, taking the node side away. All of it from run.json alone, from any process. */
#ifndef LAUNCHER_CLIENT_H
#define LAUNCHER_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "launcher/run_dir.h"
#include "launcher/session.h"

struct client;
struct json;
struct str;

/* connect: what of it run.json does not say (asking, timeouts, fan-out, interruption); borrowed
 * until client_close. Opens no connection. */
enum rc client_open(
    struct client **out, const char *run, const struct session_options *connect, struct err *e);
void client_close(struct client *c);
/* Borrowed, valid until client_close. */
struct run_info *client_info(struct client *c);

/* Ask the coordinator, or where that cannot be reached the other nodes, and note the answer in
 * run.json. A run nobody can be asked about is RUN_UNKNOWN; *why then says so. Only failures of
 * this machine are errors. */
enum rc client_refresh(struct client *c, struct str *why, struct err *e);

/* What comes while following. Any may be NULL. All pointers are borrowed for the call. */
struct client_sink {
    void (*log)(void *ctx, int64_t rank, const char *host, const char *text);
    void (*metrics)(void *ctx, const struct record_metrics *m, const char *line);
    void (*event)(void *ctx, const struct json *event);
    void (*status)(void *ctx, const struct json *status);
    /* The connection to a host broke, or is back. */
    void (*link)(void *ctx, const char *host, bool is_up, const char *why);
    void *ctx;
};

struct client_follow {
    const struct client_sink *sink;
    bool wants_logs;           /* else only the coordinator's events and metrics */
    bool stops_when_caught_up; /* do not wait for what is still to come */
    double timeout_s;          /* give up after that: RC_NOT_FINISHED; 0: never */
    double unreachable_s; /* give up when the coordinator cannot be reached so long; 0: 600 s */
};

/* Follow until the run is over (RC_OK: info says how) or RC_INTERRUPTED. Copies metrics, events and
 * logs into the run's folder on the way, from where an earlier call left off; when another process
 * does so at the same time, this one only shows. */
enum rc client_follow(struct client *c, const struct client_follow *f, struct err *e);

/* End the run with a checkpoint and prove on every host that nothing of it is left. *report lists
 * hosts that could not be asked, with the command to run there. RC_NODE when there are any. */
enum rc client_stop(struct client *c, double grace_s, struct str *report, struct err *e);

/* Remove the node side of a run that is over. RC_NODE when a host could not be reached. */
enum rc client_clean(struct client *c, struct err *e);

/* Exit code class for how the run stands: RC_OK finished, RC_RUN_FAILED, RC_CANCELLED, else
 * RC_NOT_FINISHED; fills e with the reason. */
enum rc client_outcome(const struct run_info *r, struct err *e);

/* Cost so far in micro-dollars, -1 when no price is known. */
int64_t client_cost_micro_usd(const struct run_info *r, double now_wall_s);

#endif
