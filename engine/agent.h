/* The node agent: one detached process per node and run. It starts the ranks, keeps their logs,
 * answers clients on agent.sock, and is the coordinator of the run or follows it.
 *
 * One thread, one poll loop. The parts below share struct agent; nobody else includes this. */
#ifndef ENGINE_AGENT_H
#define ENGINE_AGENT_H

#include <stdbool.h>

#include "engine/agent_coordinator.h"
#include "engine/agent_peer.h"
#include "engine/agent_ranks.h"
#include "run/spec.h"

enum { AGENT_MAX_CLIENTS = 16, AGENT_MAX_PENDING = 64 };

struct client {
    struct peer peer;
    bool is_greeted;
};

/* Connection of another node's agent, at the coordinator. */
struct member {
    struct peer peer;
    char nonce[33];
    double since_s;
    bool is_in;  /* proved the token */
    size_t host; /* once in */
};

enum uplink_state { UPLINK_NONE, UPLINK_CONNECTING, UPLINK_PROVING, UPLINK_UP };

/* Connection to the coordinator, at the other nodes. */
struct uplink {
    enum uplink_state state;
    struct peer peer;
    char host[128]; /* numeric address and port of the coordinator */
    char port[8];
    char nonce[33], their_nonce[33];
    double retry_at_s;
    double up_s; /* when it was last up or first wanted */
    bool was_up;
    char error[200]; /* of the last try */
};

struct agent {
    char *dir, *program;
    struct run_spec spec;
    bool is_coordinator;
    bool is_started;
    bool is_over;   /* end is known and all ranks are gone: leave the loop */
    bool is_failed; /* for a reason of its own: it does not wait for the others */
    double started_s, folder_at_s;
    int signal_fd, unix_fd, tcp_fd;
    int tcp_port;
    struct ranks *ranks;
    struct coord *coord; /* coordinator only */
    struct client clients[AGENT_MAX_CLIENTS];
    struct member *members; /* coordinator only */
    size_t member_count, member_cap;
    struct uplink uplink;
    double beat_at_s;
    double end_s, end_grace_s; /* when the end was seen, and what the ranks were given then */
    struct json *end;          /* the final record, NULL before */
    bool is_state_dirty;
    double state_at_s; /* when state.json was written last */
};

/* --- agent.c --- */

/* Append to events.jsonl with the time; borrowed. */
void agent_log(struct agent *a, const struct json *event);
/* This node's record: of the run at the coordinator, of the node elsewhere. Caller frees. */
struct json *agent_status(const struct agent *a, double now_s);
/* A message of the coordinator to this node, whether it came over TCP or not. */
void agent_command(struct agent *a, const struct json *message, double now_s);
/* End this node's part as failed, for a reason of its own. */
void agent_fail(struct agent *a, const char *code, const char *message, double now_s);
/* Start ranks and the uplink. */
enum rc agent_start(struct agent *a, const char *coordinator, double now_s, struct err *e);
/* End with a checkpoint: the run if this is the coordinator, else ask it, else the own ranks. */
void agent_stop(struct agent *a, double grace_s, const char *reason, double now_s);

/* --- agent_link.c: agents among each other --- */

/* Coordinator: listen on any port. */
enum rc link_listen(struct agent *a, struct err *e);
void link_accept(struct agent *a, double now_s);
/* Coordinator: read and flush all members. */
void link_serve(struct agent *a, double now_s);
void link_send_member(struct agent *a, size_t host, const struct json *message);
/* Others: keep the uplink alive and read it. */
enum rc link_want(struct agent *a, const char *coordinator, double now_s, struct err *e);
void link_follow(struct agent *a, double now_s);
void link_send_up(struct agent *a, const struct json *message);
void link_close(struct agent *a);

/* --- agent_client.c --- */

enum rc client_listen(struct agent *a, struct err *e);
void client_accept(struct agent *a, double now_s);
void client_serve(struct agent *a, double now_s);
void client_close(struct agent *a);

#endif
