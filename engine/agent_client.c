/* Clients of the agent: agent/1 over agent.sock. What can be answered from files alone (follow,
 * verify-gone, purge) is answered by agentctl without the agent (engine/agent_ctl.c). */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "engine/agent.h"

enum rc client_listen(struct agent *a, struct err *e)
{
    /* the agent's working folder is the run folder: a short relative name fits sun_path whatever
     * the length of the folder's */
    struct sockaddr_un addr = {.sun_family = AF_UNIX, .sun_path = RUN_FILE_SOCKET};
    unlink(RUN_FILE_SOCKET);
    a->unix_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (a->unix_fd < 0)
        return err_sys(e, RC_IO, "cannot make a socket");
    mode_t mask = umask(0177);
    int bound = bind(a->unix_fd, (struct sockaddr *)&addr, sizeof(addr));
    umask(mask);
    if (bound != 0 || listen(a->unix_fd, 16) != 0)
        return err_sys(e, RC_IO, "cannot listen on '%s/%s'", a->dir, RUN_FILE_SOCKET);
    return RC_OK;
}

void client_accept(struct agent *a, double now_s)
{
    int fd;
    while ((fd = accept4(a->unix_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        size_t i = 0;
        while (i < AGENT_MAX_CLIENTS && a->clients[i].peer.fd >= 0)
            i++;
        if (i == AGENT_MAX_CLIENTS) {
            close(fd);
            continue;
        }
        a->clients[i].is_greeted = false;
        peer_init(&a->clients[i].peer, fd, now_s);
    }
}

static struct json *error_message(const struct err *e)
{
    struct json *v = msg_new("error");
    json_add_str(v, "code", rc_word(e->code));
    json_add_str(v, "message", e->msg);
    return v;
}

static struct json *answer_start(struct agent *a, const struct json *v, double now_s)
{
    struct err e = ERR_INIT;
    if (agent_start(a, json_str(v, "coordinator", NULL), now_s, &e))
        return error_message(&e);
    return msg_new("ok");
}

static struct json *answer_status(struct agent *a, double now_s)
{
    struct json *v = agent_status(a, now_s);
    json_add_str(v, "type", "status");
    return v;
}

static struct json *answer_stop(struct agent *a, const struct json *v, double now_s)
{
    double grace_s = json_num(v, "grace_s", a->spec.deadlines.grace_s);
    if (grace_s < 0 || grace_s > 86400)
        grace_s = a->spec.deadlines.grace_s;
    agent_stop(a, grace_s, "it was stopped", now_s);
    return msg_new("ok");
}

static struct json *answer_checkpoint(struct agent *a)
{
    struct err e = ERR_INIT;
    if (!a->coord) {
        err_set(&e, RC_INVALID, "ask the coordinator on host '%s'", a->spec.hosts[0].name);
        return error_message(&e);
    }
    coord_checkpoint(a->coord);
    return msg_new("ok");
}

static struct json *answer(struct agent *a, const struct json *v, double now_s)
{
    struct err e = ERR_INIT;
    if (msg_is(v, "start"))
        return answer_start(a, v, now_s);
    if (msg_is(v, "status"))
        return answer_status(a, now_s);
    if (msg_is(v, "stop"))
        return answer_stop(a, v, now_s);
    if (msg_is(v, "checkpoint"))
        return answer_checkpoint(a);
    err_set(&e, RC_INVALID, "request '%.64s' is unknown", json_str(v, "type", ""));
    return error_message(&e);
}

static bool serve_one(struct agent *a, struct client *c, double now_s)
{
    struct err e = ERR_INIT;
    struct json *v;
    enum rc rc = peer_read(&c->peer, now_s, &e);
    for (;;) {
        if (peer_take(&c->peer, &v, &e))
            return false;
        if (!v)
            break;
        if (c->is_greeted)
            peer_send(&c->peer, answer(a, v, now_s));
        else if (msg_check_hello(v, &e))
            peer_send(&c->peer, error_message(&e));
        else
            peer_send(&c->peer, msg_hello());
        bool is_refused = !c->is_greeted && e.code;
        c->is_greeted = true;
        json_free(v);
        if (is_refused) {
            peer_flush(&c->peer, &e);
            return false;
        }
    }
    return !peer_flush(&c->peer, &e) && !rc;
}

void client_serve(struct agent *a, double now_s)
{
    for (size_t i = 0; i < AGENT_MAX_CLIENTS; i++)
        if (a->clients[i].peer.fd >= 0 && !serve_one(a, &a->clients[i], now_s))
            peer_close(&a->clients[i].peer);
}

void client_close(struct agent *a)
{
    for (size_t i = 0; i < AGENT_MAX_CLIENTS; i++)
        if (a->clients[i].peer.fd >= 0)
            peer_close(&a->clients[i].peer);
    if (a->unix_fd >= 0) {
        close(a->unix_fd);
        unlink(RUN_FILE_SOCKET);
    }
    a->unix_fd = -1;
}
