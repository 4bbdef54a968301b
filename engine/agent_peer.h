/* One end of an agent/1 stream on a non-blocking socket: whole messages in, whole messages out. */
#ifndef ENGINE_AGENT_PEER_H
#define ENGINE_AGENT_PEER_H

#include <poll.h>
#include <stdbool.h>

#include "base/err.h"
#include "run/message.h"

struct json;

struct peer {
    int fd; /* -1: closed */
    struct msg_reader in;
    struct str out;
    double heard_s; /* when bytes came last, monotonic */
};

/* Takes fd and makes it non-blocking. */
void peer_init(struct peer *p, int fd, double now_s);
/* Closes; safe on a closed one. */
void peer_close(struct peer *p);

/* Queue a message; takes v. Sent by peer_flush. */
void peer_send(struct peer *p, struct json *v);
/* Send what the socket takes. RC_NETWORK when it is broken. */
enum rc peer_flush(struct peer *p, struct err *e);
/* Read what is there. RC_NETWORK at the end of the stream or when it broke; messages that came
 * before can still be taken. */
enum rc peer_read(struct peer *p, double now_s, struct err *e);
/* As msg_take. */
enum rc peer_take(struct peer *p, struct json **out, struct err *e);

/* What to poll for. */
struct pollfd peer_pollfd(const struct peer *p);

#endif
