/* The transport of this machine: commands are children, files are copied. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "launcher/transport.h"

struct local {
    struct transport base;
    pid_t child;      /* 0: none */
    int in, out, err; /* our ends of its pipes, -1 when closed */
    int from, to;     /* copy in progress, -1 when none */
};

static struct local *local_of(struct transport *t)
{
    return (struct local *)t;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static enum progress local_connect(struct transport *t, struct err *e)
{
    (void)t;
    (void)e;
    return PROGRESS_DONE;
}

static void child_exec(const char *command, int in, int out, int err)
{
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0)
        _exit(126);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    setpgid(0, 0); /* Ctrl-C at our terminal is for us */
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

static enum rc spawn(struct local *l, const char *command, struct err *e)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    enum rc rc = RC_OK;
    if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC)) {
        rc = err_sys(e, RC_IO, "cannot make a pipe");
        goto out;
    }
    l->child = fork();
    if (l->child == 0)
        child_exec(command, in[0], out[1], err[1]);
    if (l->child < 0) {
        l->child = 0;
        rc = err_sys(e, RC_IO, "cannot start a process");
        goto out;
    }
    l->in = in[1];
    l->out = out[0];
    l->err = err[0];
    in[1] = out[0] = err[0] = -1;
    fcntl(l->in, F_SETFL, O_NONBLOCK);
    fcntl(l->out, F_SETFL, O_NONBLOCK);
    fcntl(l->err, F_SETFL, O_NONBLOCK);
out:
    for (int i = 0; i < 2; i++) {
        close_fd(&in[i]);
        close_fd(&out[i]);
        close_fd(&err[i]);
    }
    return rc;
}

static void pump_in(struct local *l, struct exec *x)
{
    while (l->in >= 0 && x->in.len) {
        ssize_t n = write(l->in, x->in.p, x->in.len);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            close_fd(&l->in); /* the command reads no more; its status tells */
            return;
        }
        str_drop(&x->in, (size_t)n);
    }
    if (!x->keeps_in_open && !x->in.len)
        close_fd(&l->in);
}

static void pump_out(int *fd, int stream, struct exec *x)
{
    char buf[1 << 16];
    while (*fd >= 0) {
        ssize_t n = read(*fd, buf, sizeof(buf));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n <= 0) {
            close_fd(fd);
            return;
        }
        if (x->sink)
            x->sink(x->ctx, stream, buf, (size_t)n);
        else
            str_addn(stream == 1 ? &x->out : &x->err, buf, (size_t)n);
    }
}

static enum progress local_exec(struct transport *t, struct exec *x, struct err *e)
{
    struct local *l = local_of(t);
    if (!l->child && spawn(l, x->command, e))
        return PROGRESS_FAILED;
    pump_in(l, x);
    pump_out(&l->out, 1, x);
    pump_out(&l->err, 2, x);
    if (l->out >= 0 || l->err >= 0)
        return PROGRESS_WAIT;
    int status;
    pid_t done = waitpid(l->child, &status, WNOHANG);
    if (done == 0)
        return PROGRESS_WAIT;
    close_fd(&l->in);
    l->child = 0;
    x->status = done < 0 ? -1 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return PROGRESS_DONE;
}

/* One chunk from l->from to l->to; *done counts. */
static enum progress copy_chunk(struct local *l, const char *to, int64_t *done, struct err *e)
{
    char buf[1 << 18];
    ssize_t n = read(l->from, buf, sizeof(buf)), at = 0;
    while (at < n) {
        ssize_t w = write(l->to, buf + at, (size_t)(n - at));
        if (w < 0 && errno != EINTR)
            break;
        at += w > 0 ? w : 0;
    }
    *done += at;
    if (n > 0 && at == n)
        return PROGRESS_WAIT;
    bool is_closed = close(l->to) == 0;
    l->to = -1;
    if (n != 0 || !is_closed) {
        err_sys(e, RC_IO, "cannot copy to '%s'", to);
        close_fd(&l->from);
        return PROGRESS_FAILED;
    }
    close_fd(&l->from);
    return PROGRESS_DONE;
}

static enum progress local_put(struct transport *t, struct put *p, struct err *e)
{
    struct local *l = local_of(t);
    if (l->from < 0) {
        l->from = open(p->local, O_RDONLY | O_CLOEXEC);
        if (l->from < 0)
            return err_sys(e, RC_NOT_FOUND, "cannot open '%s'", p->local), PROGRESS_FAILED;
        l->to = open(p->remote, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, p->mode);
        if (l->to < 0) {
            close_fd(&l->from);
            return err_sys(e, RC_IO, "cannot create '%s'", p->remote), PROGRESS_FAILED;
        }
        fchmod(l->to, p->mode);
    }
    return copy_chunk(l, p->remote, &p->sent_bytes, e);
}

static enum progress local_get(struct transport *t, struct get *g, struct err *e)
{
    struct local *l = local_of(t);
    if (l->from < 0) {
        l->from = open(g->remote, O_RDONLY | O_CLOEXEC);
        if (l->from < 0)
            return err_sys(e, RC_NOT_FOUND, "cannot open '%s'", g->remote), PROGRESS_FAILED;
        l->to = open(g->local, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (l->to < 0) {
            close_fd(&l->from);
            return err_sys(e, RC_IO, "cannot create '%s'", g->local), PROGRESS_FAILED;
        }
        g->got_bytes = lseek(l->to, 0, SEEK_END);
        lseek(l->from, g->got_bytes, SEEK_SET);
    }
    return copy_chunk(l, g->local, &g->got_bytes, e);
}

static void local_drop(struct transport *t)
{
    struct local *l = local_of(t);
    if (l->child > 0) {
        kill(-l->child, SIGKILL);
        waitpid(l->child, NULL, 0);
        l->child = 0;
    }
    close_fd(&l->in);
    close_fd(&l->out);
    close_fd(&l->err);
    close_fd(&l->from);
    close_fd(&l->to);
}

static int local_poll(struct transport *t, struct pollfd fds[TRANSPORT_FDS])
{
    struct local *l = local_of(t);
    int n = 0;
    if (l->out >= 0)
        fds[n++] = (struct pollfd){.fd = l->out, .events = POLLIN};
    if (l->err >= 0)
        fds[n++] = (struct pollfd){.fd = l->err, .events = POLLIN};
    return n;
}

static const char *local_address(struct transport *t)
{
    (void)t;
    return "127.0.0.1";
}

static const char *local_stage(struct transport *t)
{
    return local_of(t)->child ? "waiting for a command" : "copying";
}

static void local_free(struct transport *t)
{
    local_drop(t);
    free(t);
}

static const struct transport_ops local_ops = {
    .name = "local",
    .connect = local_connect,
    .exec = local_exec,
    .put = local_put,
    .get = local_get,
    .drop = local_drop,
    .poll = local_poll,
    .address = local_address,
    .stage = local_stage,
    .free = local_free,
};

struct transport *transport_local_new(void)
{
    struct local *l = base_calloc(1, sizeof(*l));
    l->base.ops = &local_ops;
    l->in = l->out = l->err = l->from = l->to = -1;
    return &l->base;
}
