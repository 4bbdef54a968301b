/* agent/1 with the nodes of a run: `berth-engine agentctl` on each host, through the fan. */
#ifndef LAUNCHER_TALK_H
#define LAUNCHER_TALK_H

#include <stdbool.h>

#include "base/err.h"
#include "run/message.h"

struct exec;
struct fan;
struct json;

/* Where a node's part of the run lies on its host. */
struct talk_node {
    const char *engine; /* absolute path of berth-engine */
    const char *dir;    /* absolute run folder of the node */
};

/* The shell command that runs agentctl of a node; the caller frees it. */
char *talk_command(const struct talk_node *node);

/* Messages out of what a host printed, behind whatever its login files print first. */
struct talk_stream {
    struct msg_reader in;
    bool is_greeted;
};
void talk_stream_init(struct talk_stream *s);
void talk_stream_release(struct talk_stream *s);
void talk_stream_feed(struct talk_stream *s, const char *bytes, size_t n);
/* Next message behind the hello; *out is NULL when more bytes are needed. Caller frees. RC_NODE for
 * an agent of another protocol or for what is no agent. */
enum rc talk_stream_take(struct talk_stream *s, struct json **out, struct err *e);

/* Send request[i] (borrowed; NULL: skip the host) to each host and wait for its one answer;
 * answers[i] is NULL or owned by the caller. An error answer is a failure of its host. */
enum rc talk_ask(struct fan *fan, const struct talk_node *nodes, const char *doing,
    struct json *const *requests, struct json **answers, double timeout_s, struct err *e);
/* The same request to all. */
enum rc talk_ask_all(struct fan *fan, const struct talk_node *nodes, const char *doing,
    const struct json *request, struct json **answers, double timeout_s, struct err *e);

#endif
