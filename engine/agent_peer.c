#include "engine/agent_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/json.h"

enum { PEER_MAX_QUEUED = 16 << 20 };

void peer_init(struct peer *p, int fd, double now_s)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
    *p = (struct peer){.fd = fd, .heard_s = now_s};
    msg_reader_init(&p->in);
    str_init(&p->out, PEER_MAX_QUEUED);
}

void peer_close(struct peer *p)
{
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
    msg_reader_release(&p->in);
    str_release(&p->out);
}

void peer_send(struct peer *p, struct json *v)
{
    if (p->fd >= 0)
        msg_put(&p->out, v);
    json_free(v);
}

enum rc peer_flush(struct peer *p, struct err *e)
{
    if (p->fd >= 0 && p->out.is_truncated)
        return err_set(e, RC_NETWORK, "peer takes no messages");
    while (p->fd >= 0 && p->out.len) {
        ssize_t n = send(p->fd, p->out.p, p->out.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return RC_OK;
        if (n < 0)
            return err_sys(e, RC_NETWORK, "cannot send");
        str_drop(&p->out, (size_t)n);
    }
    return RC_OK;
}

enum rc peer_read(struct peer *p, double now_s, struct err *e)
{
    char buf[1 << 14];
    for (int i = 0; i < 4; i++) { /* leave some for the next turn: others wait too */
        ssize_t n = recv(p->fd, buf, sizeof(buf), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return RC_OK;
        if (n < 0)
            return err_sys(e, RC_NETWORK, "cannot receive");
        if (n == 0)
            return err_set(e, RC_NETWORK, "the other side closed the connection");
        p->heard_s = now_s;
        msg_reader_feed(&p->in, buf, (size_t)n);
    }
    return RC_OK;
}

enum rc peer_take(struct peer *p, struct json **out, struct err *e)
{
    return msg_take(&p->in, out, e);
}

struct pollfd peer_pollfd(const struct peer *p)
{
    short events = POLLIN;
    if (p->out.len)
        events |= POLLOUT;
    return (struct pollfd){.fd = p->fd, .events = events};
}
