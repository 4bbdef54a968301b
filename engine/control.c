#include "engine/control.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "run/message.h"

struct control {
    int fd;
    struct msg_reader in;
    struct json **kept; /* commands that came while another was awaited */
    size_t n_kept, cap_kept;
    bool is_gone;
};

struct control *control_new(int fd)
{
    struct control *c = base_calloc(1, sizeof(*c));
    c->fd = fd;
    msg_reader_init(&c->in);
    return c;
}

void control_free(struct control *c)
{
    if (!c)
        return;
    msg_reader_release(&c->in);
    for (size_t i = 0; i < c->n_kept; i++)
        json_free(c->kept[i]);
    free(c->kept);
    free(c);
}

void control_send(struct control *c, struct json *event)
{
    struct str line = STR_INIT;
    msg_put(&line, event);
    control_send_line(c, line.p, line.len);
    str_release(&line);
    json_free(event);
}

void control_send_line(struct control *c, const char *line, size_t len)
{
    struct err ignored;
    file_write_fd(c->fd >= 0 ? c->fd : 1, line, len, "control line", &ignored);
}

static void receive(struct control *c)
{
    char buf[4096];
    for (;;) {
        ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n > 0)
            msg_reader_feed(&c->in, buf, (size_t)n);
        else if (n < 0 && errno == EINTR)
            continue;
        else {
            c->is_gone = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
            return;
        }
    }
}

/* The next command from the wire; nonsense ends the line. */
static struct json *take(struct control *c)
{
    struct json *v = NULL;
    struct err ignored;
    if (c->fd < 0)
        return NULL;
    receive(c);
    if (msg_take(&c->in, &v, &ignored) != RC_OK)
        c->is_gone = true;
    return v;
}

struct json *control_poll(struct control *c)
{
    if (c->n_kept == 0)
        return take(c);
    struct json *first = c->kept[0];
    memmove(c->kept, c->kept + 1, --c->n_kept * sizeof(struct json *));
    return first;
}

enum rc control_wait(
    struct control *c, const char *cmd, double timeout_s, struct json **out, struct err *e)
{
    double deadline = clock_now_s() + timeout_s;
    for (;;) {
        *out = take(c);
        if (*out && strcmp(json_str(*out, "cmd", ""), cmd) == 0)
            return RC_OK;
        if (*out) {
            BASE_GROW(c->kept, c->cap_kept, c->n_kept + 1);
            c->kept[c->n_kept++] = *out;
            *out = NULL;
            continue;
        }
        if (c->is_gone)
            return err_set(e, RC_INTERRUPTED, "the agent is gone");
        if (clock_now_s() >= deadline)
            return err_set(e, RC_NETWORK, "no '%s' from the agent within %.0f s", cmd, timeout_s);
        struct pollfd p = {c->fd, POLLIN, 0};
        poll(&p, 1, 100);
    }
}

bool control_is_gone(const struct control *c)
{
    return c->is_gone;
}
