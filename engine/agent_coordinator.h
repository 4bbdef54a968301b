/* What the coordinator decides: rendezvous, who is lost, the first cause, when the run is over.
 *
 * Pure: no sockets, no processes, no clock. The agent feeds it what happened with the time, and
 * sends what it says to the nodes (index = position in the spec's hosts; its own node included).
 *
 * Messages it sends to nodes:
 *   {"type":"peers","first":r,"peers":[...]}   {"type":"checkpoint"}
 *   {"type":"stop","grace_s":x}                finish the step, save, end
 *   {"type":"abort"}                           end the ranks now
 *   {"type":"end","state":...}                 the run is over; the record is in it */
#ifndef ENGINE_AGENT_COORDINATOR_H
#define ENGINE_AGENT_COORDINATOR_H

#include <stdbool.h>
#include <stddef.h>

#include "run/record.h"

struct json;
struct run_spec;
struct coord;

struct coord_ops {
    void (*send)(void *ctx, size_t host, const struct json *message); /* borrowed */
    /* Something worth a line in events.jsonl; borrowed. */
    void (*log)(void *ctx, const struct json *event);
};

/* spec and ops are kept until coord_free. now_s is monotonic; wall_s seconds since 1970. */
struct coord *coord_new(const struct run_spec *spec, const struct coord_ops *ops, void *ctx,
    double now_s, double wall_s);
void coord_free(struct coord *c);

/* --- what happened --- */

/* A node proved the token; also after a break. */
void coord_joined(struct coord *c, size_t host, double now_s);
/* Bytes came from the node. */
void coord_heard(struct coord *c, size_t host, double now_s);
/* Its connection closed: its agent died, or only the connection did and it will join again. */
void coord_closed(struct coord *c, size_t host, double now_s);
/* An event of a node's ranks (engine/agent_ranks.h). Foreign input: anything may be missing. */
void coord_event(struct coord *c, size_t host, const struct json *event, double now_s);
/* Somebody wants the run to end with a checkpoint; reason completes "cancelled: ...". */
void coord_stop(struct coord *c, double grace_s, const char *reason, double now_s);
void coord_checkpoint(struct coord *c);

/* Act on time: deadlines, silence, limits. Returns seconds until it wants to be called again. */
double coord_tick(struct coord *c, double now_s);

/* --- what is --- */

/* Every node is done or given up, and was told the end. */
bool coord_is_over(const struct coord *c);
enum run_state coord_state(const struct coord *c);
/* Members of the status answer and of state.json: state, reason, failure, step, steps,
 * checkpoint, hosts, started_at, ended_at, elapsed_s, cost_usd, metrics. Caller frees. */
struct json *coord_status(const struct coord *c, double now_s);

#endif
