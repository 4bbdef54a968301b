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
    struct str in;
    bool is_gone;
};

struct control *control_new(int fd)
{
    struct control *c = base_calloc(1, sizeof(*c));
    c->fd = fd;
    str_init(&c->in, 4 * MSG_MAX_BYTES);
    return c;
}

void control_free(struct control *c)
{
    if (!c)
        return;
    str_release(&c->in);
    free(c);
}

void control_send(struct control *c, struct json *event)
{
    char *text = json_print(event, false);
    struct str line = STR_INIT;
    struct err ignored;
    str_addf(&line, "%s\n", text);
    file_write_fd(c->fd >= 0 ? c->fd : 1, line.p, line.len, "control line", &ignored);
    str_release(&line);
    free(text);
    json_free(event);
}

static void receive(struct control *c)
{
    char buf[4096];
    for (;;) {
        ssize_t n = recv(c->fd, buf, sizeof(buf), MSG_DONTWAIT);
        if (n > 0)
            str_addn(&c->in, buf, (size_t)n);
        else if (n < 0 && errno == EINTR)
            continue;
        else {
            c->is_gone = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
            return;
        }
    }
}

struct json *control_poll(struct control *c)
{
    if (c->fd < 0)
        return NULL;
    receive(c);
    char *end = c->in.len ? memchr(c->in.p, '\n', c->in.len) : NULL;
    if (!end)
        return NULL;
    struct json *v = NULL;
    struct err ignored;
    size_t len = (size_t)(end - c->in.p);
    json_parse(&v, c->in.p, len, &ignored);
    str_drop(&c->in, len + 1);
    return v;
}

enum rc control_wait(
    struct control *c, const char *cmd, double timeout_s, struct json **out, struct err *e)
{
    double deadline = clock_now_s() + timeout_s;
    struct str kept = STR_INIT;
    *out = NULL;
    while (!*out && !c->is_gone && clock_now_s() < deadline) {
        struct json *v = control_poll(c);
        if (v && strcmp(json_str(v, "cmd", ""), cmd) == 0) {
            *out = v;
        } else if (v) {
            char *text = json_print(v, false);
            str_addf(&kept, "%s\n", text);
            free(text);
            json_free(v);
        } else {
            struct pollfd p = {c->fd, POLLIN, 0};
            poll(&p, 1, 100);
        }
    }
    str_addn(&kept, str_text(&c->in), c->in.len);
    str_reset(&c->in);
    str_addn(&c->in, str_text(&kept), kept.len);
    str_release(&kept);
    if (*out)
        return RC_OK;
    if (c->is_gone)
        return err_set(e, RC_INTERRUPTED, "the agent is gone");
    return err_set(e, RC_NETWORK, "no '%s' from the agent within %.0f s", cmd, timeout_s);
}

bool control_is_gone(const struct control *c)
{
    return c->is_gone;
}
