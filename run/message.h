/* agent/1: JSON objects, one per line, at most 64 KiB each, between client, agents and ranks.
 *
 * Client and agent speak it over agent.sock, agents over TCP, agent and rank over descriptor 3. A
 * peer that sends anything else is cut off. Messages carry "type" between client and agents,
 * "event" from a rank to its agent, "cmd" the other way:
 *
 *   rank -> agent   {"event":"listening","rank":r,"port":p}
 *                   {"event":"step", ...members of a metrics record...}             (rank 0)
 *                   {"event":"resumed","step":n,"message":"..."}                    (rank 0)
 *                   {"event":"checkpoint","step":n,"survives_host_loss":bool,"bytes":n,
 *                    "seconds":s,"stall_seconds":s,"merged_requests":n}   durable   (rank 0)
 *                   {"event":"failed","rank":r,"code":"...","message":"...","is_consequence":bool}
 *                   {"event":"finished","step":n} or {"event":"stopped","step":n}, then exit 0
 *   agent -> rank   {"cmd":"peers","first":r,"peers":["host:port",...]}     of ranks r, r+1, ...;
 *                   several such messages when there are more than MSG_PEERS ranks
 *                   {"cmd":"stop"}         finish the step, save, exit 0
 *                   {"cmd":"checkpoint"}   save after the step
 *                   end of file            the agent is gone: exit
 *
 *   client -> agent hello{protocol,version} first; then start{coordinator} status follow{from}
 *                   stop{grace_s} checkpoint verify-gone purge
 *   agent -> client hello{protocol,version,...}, then one answer per request; follow streams */
#ifndef RUN_MESSAGE_H
#define RUN_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

struct json;

#define MSG_PROTOCOL "agent/1"
enum { MSG_MAX_BYTES = 64 << 10, MSG_PEERS = 512, MSG_CONTROL_FD = 3 };

/* Bytes of a stream on their way to being messages. */
struct msg_reader {
    struct str buf;
    size_t scanned; /* bytes already searched for the end of a line */
};

void msg_reader_init(struct msg_reader *r);
void msg_reader_release(struct msg_reader *r);
void msg_reader_feed(struct msg_reader *r, const char *bytes, size_t n);

/* Take the next whole message: *out is an object the caller frees, or NULL when more bytes are
 * needed. RC_INVALID for a line that is too long or not a JSON object; the stream is then useless.
 */
enum rc msg_take(struct msg_reader *r, struct json **out, struct err *e);

/* Append v as one line to a buffer. What would be longer than MSG_MAX_BYTES becomes an error
 * message, since the other side would cut the stream off. */
void msg_put(struct str *out, const struct json *v);

/* {"type":type}; the caller frees it. */
struct json *msg_new(const char *type);
/* {"type":"hello","protocol":"agent/1","version":...}. */
struct json *msg_hello(void);
/* First message of a peer: must be hello with our protocol, else a sentence with both versions. */
enum rc msg_check_hello(const struct json *v, struct err *e);
bool msg_is(const struct json *v, const char *type);

#endif
