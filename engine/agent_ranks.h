/* The ranks of one node: start them, pass messages, see them end, end them.
 *
 * Ranks die with the agent (parent-death signal, end of descriptor 3); what they leave behind
 * becomes the agent's child (it is a subreaper) and is killed too. */
#ifndef ENGINE_AGENT_RANKS_H
#define ENGINE_AGENT_RANKS_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct json;
struct run_spec;
struct ranks;

/* Receives every event of a rank (owned by the caller of the sink, borrowed here), with "rank" in
 * it, and those made here:
 *   {"event":"exited","rank":r,"exit_code":n|null,"signal":n|null,"last_line":"..."}
 *   {"event":"empty"}   no process of this node's ranks is left */
typedef void (*ranks_sink)(void *ctx, const struct json *event);

/* program: what to run as `PROGRAM rank --dir DIR --rank N`. All borrowed until ranks_free. */
struct ranks *ranks_new(
    const struct run_spec *spec, const char *dir, const char *program, ranks_sink sink, void *ctx);
void ranks_free(struct ranks *r);

/* Start all ranks of this node, once. */
enum rc ranks_start(struct ranks *r, double now_s, struct err *e);
/* {"cmd":...} to every rank; borrowed. */
void ranks_command(struct ranks *r, const struct json *command);
/* Ask the ranks to finish their step and save; after grace_s they are ended as by ranks_abort. */
void ranks_stop(struct ranks *r, double grace_s, double now_s);
/* SIGTERM a second from now (time to write down what they saw), SIGKILL three seconds later. */
void ranks_abort(struct ranks *r, double now_s);

/* Repeat the events that a coordinator needs to know a rank by: listening, finished, exited. */
void ranks_repeat(struct ranks *r);

/* Polling: fill fds, at most one per rank; then handle what came. Messages go to the sink. */
size_t ranks_poll(struct ranks *r, struct pollfd *fds);
void ranks_read(struct ranks *r, double now_s);
/* Collect children that ended (on SIGCHLD, and now and then). */
void ranks_reap(struct ranks *r, double now_s);
/* Act on what is due; returns seconds until the next thing is due (at most 1). */
double ranks_tick(struct ranks *r, double now_s);

/* Nothing was started, or all of it is gone. */
bool ranks_is_empty(const struct ranks *r);
/* [{"rank","pid","state","exit_code","signal"}] for state.json. */
struct json *ranks_to_json(const struct ranks *r);

#endif
