#include "engine/agent_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "engine/agent_peer.h"
#include "engine/agent_proc.h"
#include "run/spec.h"

static const double TERM_AFTER_S = 1, KILL_AFTER_S = 4;

enum rank_state {
    RANK_NEW,
    RANK_STARTED,
    RANK_LISTENING,
    RANK_FINISHED,
    RANK_STOPPED,
    RANK_FAILED
};

struct rank {
    int64_t number;
    enum rank_state state;
    pid_t pid; /* 0: not started or reaped */
    bool is_reaped;
    int wait_status;
    int64_t port;
    int64_t end_step; /* of finished or stopped */
    struct peer control;
};

struct ranks {
    const struct run_spec *spec;
    const char *dir, *program;
    ranks_sink sink;
    void *ctx;
    struct rank *v;
    size_t count;
    bool is_started, is_empty_told;
    double term_at_s, kill_at_s; /* 0: not planned */
    bool is_term_sent;
};

struct ranks *ranks_new(
    const struct run_spec *spec, const char *dir, const char *program, ranks_sink sink, void *ctx)
{
    struct ranks *r = base_calloc(1, sizeof(*r));
    const struct run_host *self = &spec->hosts[spec->self];
    *r = (struct ranks){
        spec, dir, program, sink, ctx, NULL, (size_t)self->ranks, false, false, 0, 0, false};
    r->v = base_calloc(r->count, sizeof(*r->v));
    for (size_t i = 0; i < r->count; i++) {
        r->v[i].number = self->first_rank + (int64_t)i;
        r->v[i].control.fd = -1;
    }
    return r;
}

void ranks_free(struct ranks *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++)
        peer_close(&r->v[i].control);
    free(r->v);
    free(r);
}

/* --- starting --- */

static void set_env(const struct run_spec *spec, const char *dir)
{
    const struct json *value;
    const char *key;
    void *cursor = NULL;
    while (json_next(spec->env, &cursor, &key, &value))
        setenv(key, json_as_str(value, ""), 1);
    setenv(RUN_DIR_ENV, dir, 1);
}

/* In the child: never returns. */
static void become_rank(const struct ranks *r, const struct rank *rank, int control, pid_t agent)
{
    char *log = run_rank_log(r->dir, rank->number);
    char number[24];
    sigset_t none;
    snprintf(number, sizeof(number), "%lld", (long long)rank->number);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != agent)
        _exit(126); /* the agent died before the signal was set up */
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    int null = open("/dev/null", O_RDONLY);
    if (out < 0 || null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
        _exit(126);
    if (control == MSG_CONTROL_FD)
        fcntl(control, F_SETFD, 0);
    else if (dup2(control, MSG_CONTROL_FD) < 0)
        _exit(126);
    close_range(MSG_CONTROL_FD + 1, ~0U, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGHUP, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    set_env(r->spec, r->dir);
    execl(r->program, r->program, "rank", "--dir", r->dir, "--rank", number, (char *)NULL);
    dprintf(2, "cannot run '%s': %s\n", r->program, strerror(errno));
    _exit(127);
}

static enum rc start_rank(struct ranks *r, struct rank *rank, double now_s, struct err *e)
{
    int pair[2];
    pid_t agent = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return err_sys(
            e, RC_FAILED, "cannot make a socket pair for rank %lld", (long long)rank->number);
    rank->pid = fork();
    if (rank->pid == 0)
        become_rank(r, rank, pair[1], agent);
    close(pair[1]);
    if (rank->pid < 0) {
        rank->pid = 0;
        close(pair[0]);
        return err_sys(e, RC_FAILED, "cannot start rank %lld", (long long)rank->number);
    }
    setpgid(rank->pid, rank->pid);
    peer_init(&rank->control, pair[0], now_s);
    rank->state = RANK_STARTED;
    return RC_OK;
}

enum rc ranks_start(struct ranks *r, double now_s, struct err *e)
{
    enum rc rc = RC_OK;
    if (r->is_started)
        return RC_OK;
    r->is_started = true;
    for (size_t i = 0; !rc && i < r->count; i++)
        rc = start_rank(r, &r->v[i], now_s, e);
    return rc;
}

/* --- talking --- */

void ranks_command(struct ranks *r, const struct json *command)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->v[i].control.fd >= 0)
            peer_send(&r->v[i].control, json_clone(command));
}

static void send_simple(struct ranks *r, const char *cmd)
{
    struct json *v = json_obj();
    json_add_str(v, "cmd", cmd);
    ranks_command(r, v);
    json_free(v);
}

void ranks_stop(struct ranks *r, double grace_s, double now_s)
{
    send_simple(r, "stop");
    double at = now_s + grace_s;
    if (!r->term_at_s || at < r->term_at_s) {
        r->term_at_s = at;
        r->kill_at_s = at + KILL_AFTER_S - TERM_AFTER_S;
    }
}

void ranks_abort(struct ranks *r, double now_s)
{
    if (!r->term_at_s || r->term_at_s > now_s + TERM_AFTER_S) {
        r->term_at_s = now_s + TERM_AFTER_S;
        r->kill_at_s = now_s + KILL_AFTER_S;
    }
}

static void emit(struct ranks *r, const struct rank *rank, struct json *event)
{
    if (rank)
        json_add_int(event, "rank", rank->number);
    r->sink(r->ctx, event);
    json_free(event);
}

static struct json *event_new(const char *name)
{
    struct json *v = json_obj();
    json_add_str(v, "event", name);
    return v;
}

/* Note what an event says about the rank itself, then pass it on. */
static void take_event(struct ranks *r, struct rank *rank, struct json *event)
{
    const char *name = json_str(event, "event", "");
    if (strcmp(name, "listening") == 0 && rank->state == RANK_STARTED) {
        rank->state = RANK_LISTENING;
        rank->port = json_int(event, "port", 0);
    } else if (strcmp(name, "finished") == 0) {
        rank->state = RANK_FINISHED;
        rank->end_step = json_int(event, "step", 0);
    } else if (strcmp(name, "stopped") == 0) {
        rank->state = RANK_STOPPED;
        rank->end_step = json_int(event, "step", 0);
    } else if (strcmp(name, "failed") == 0) {
        rank->state = RANK_FAILED;
    }
    emit(r, rank, event);
}

/* A rank that breaks the protocol is treated as failed; what it says is not trusted further. */
static void take_nonsense(struct ranks *r, struct rank *rank, const struct err *why)
{
    struct json *v = event_new("failed");
    char *text =
        base_printf("rank %lld sent nonsense to its agent: %s", (long long)rank->number, why->msg);
    json_add_str(v, "code", "protocol");
    json_add_str(v, "message", text);
    free(text);
    rank->state = RANK_FAILED;
    emit(r, rank, v);
    peer_close(&rank->control);
}

static void take_all(struct ranks *r, struct rank *rank)
{
    struct err e = ERR_INIT;
    struct json *v;
    while (rank->control.fd >= 0) {
        if (peer_take(&rank->control, &v, &e)) {
            take_nonsense(r, rank, &e);
            return;
        }
        if (!v)
            return;
        take_event(r, rank, v);
    }
}

void ranks_read(struct ranks *r, double now_s)
{
    for (size_t i = 0; i < r->count; i++) {
        struct rank *rank = &r->v[i];
        struct err e = ERR_INIT;
        if (rank->control.fd < 0)
            continue;
        enum rc rc = peer_read(&rank->control, now_s, &e);
        take_all(r, rank);
        if (!rc)
            rc = peer_flush(&rank->control, &e);
        if (rc)
            peer_close(&rank->control); /* its exit tells the rest */
    }
}

size_t ranks_poll(struct ranks *r, struct pollfd *fds)
{
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++)
        if (r->v[i].control.fd >= 0)
            fds[n++] = peer_pollfd(&r->v[i].control);
    return n;
}

/* --- ending --- */

/* Last line with text in it of a rank's log; the caller frees it. */
static char *last_line(const struct ranks *r, int64_t number)
{
    char *path = run_rank_log(r->dir, number), buf[4097];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    free(path);
    if (fd >= 0) {
        off_t size = lseek(fd, 0, SEEK_END);
        off_t from = size > (off_t)sizeof(buf) - 1 ? size - ((off_t)sizeof(buf) - 1) : 0;
        n = pread(fd, buf, sizeof(buf) - 1, from);
        close(fd);
    }
    buf[n > 0 ? n : 0] = '\0';
    for (ssize_t i = n; i > 0 && (buf[i - 1] == '\n' || buf[i - 1] == '\r' || buf[i - 1] == ' ');
         i--)
        buf[i - 1] = '\0';
    const char *line = strrchr(buf, '\n');
    char *safe = text_safe(line ? line + 1 : buf);
    if (strlen(safe) > 300)
        safe[300] = '\0';
    return safe;
}

static struct json *exited_event(const struct ranks *r, const struct rank *rank)
{
    struct json *v = event_new("exited");
    char *line = last_line(r, rank->number);
    if (WIFEXITED(rank->wait_status))
        json_add_int(v, "exit_code", WEXITSTATUS(rank->wait_status));
    else
        json_add_int(v, "signal", WTERMSIG(rank->wait_status));
    json_add_str(v, "last_line", line);
    free(line);
    return v;
}

static void took_leave(struct ranks *r, struct rank *rank, int status, double now_s)
{
    ranks_read(r, now_s);      /* its last words came before its death */
    kill(-rank->pid, SIGKILL); /* whatever it started in its group */
    rank->pid = 0;
    rank->is_reaped = true;
    rank->wait_status = status;
    peer_close(&rank->control);
    emit(r, rank, exited_event(r, rank));
}

static bool are_all_reaped(const struct ranks *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->v[i].pid)
            return false;
    return true;
}

/* Orphans of ranks have become our children: end them, they belong to nobody else. */
static bool kill_orphans(void)
{
    pid_t left[256];
    size_t n = proc_children(left, BASE_COUNT(left));
    for (size_t i = 0; i < n; i++)
        kill(left[i], SIGKILL);
    return n == 0;
}

static struct rank *rank_of(struct ranks *r, pid_t pid)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->v[i].pid == pid)
            return &r->v[i];
    return NULL;
}

void ranks_reap(struct ranks *r, double now_s)
{
    siginfo_t info = {0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid) {
        struct rank *rank = rank_of(r, info.si_pid);
        int status;
        if (rank)
            kill(-rank->pid, SIGKILL); /* its group, while the pid cannot be given away yet */
        waitpid(info.si_pid, &status, 0);
        if (rank)
            took_leave(r, rank, status, now_s);
        info.si_pid = 0;
    }
    if (r->is_started && !r->is_empty_told && are_all_reaped(r) && kill_orphans()) {
        r->is_empty_told = true;
        emit(r, NULL, event_new("empty"));
    }
}

static void signal_all(const struct ranks *r, int number)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->v[i].pid)
            kill(-r->v[i].pid, number);
}

double ranks_tick(struct ranks *r, double now_s)
{
    double next = 1;
    if (!r->is_started || r->is_empty_told)
        return next;
    ranks_reap(r, now_s);
    if (!r->term_at_s)
        return next;
    if (now_s >= r->kill_at_s) {
        signal_all(r, SIGKILL);
        return 0.1;
    }
    if (now_s >= r->term_at_s && !r->is_term_sent) {
        signal_all(r, SIGTERM);
        r->is_term_sent = true;
    }
    double due = r->is_term_sent ? r->kill_at_s : r->term_at_s;
    return due - now_s < next ? due - now_s : next;
}

/* --- telling --- */

void ranks_repeat(struct ranks *r)
{
    static const char *const ends[] = {[RANK_FINISHED] = "finished", [RANK_STOPPED] = "stopped"};
    for (size_t i = 0; i < r->count; i++) {
        const struct rank *rank = &r->v[i];
        if (rank->port) {
            struct json *v = event_new("listening");
            json_add_int(v, "port", rank->port);
            emit(r, rank, v);
        }
        if (rank->state == RANK_FINISHED || rank->state == RANK_STOPPED) {
            struct json *v = event_new(ends[rank->state]);
            json_add_int(v, "step", rank->end_step);
            emit(r, rank, v);
        }
        if (rank->is_reaped)
            emit(r, rank, exited_event(r, rank));
    }
    if (r->is_empty_told)
        emit(r, NULL, event_new("empty"));
}

bool ranks_is_empty(const struct ranks *r)
{
    return !r->is_started || r->is_empty_told;
}

struct json *ranks_to_json(const struct ranks *r)
{
    static const char *const words[] = {
        "waiting", "starting", "running", "finished", "stopped", "failed"};
    struct json *arr = json_arr();
    for (size_t i = 0; i < r->count; i++) {
        const struct rank *rank = &r->v[i];
        struct json *o = json_obj();
        bool is_bad = rank->is_reaped && rank->state < RANK_FINISHED;
        json_add_int(o, "rank", rank->number);
        json_add_str(o, "state", is_bad ? "failed" : words[rank->state]);
        if (rank->pid)
            json_add_int(o, "pid", rank->pid);
        if (rank->is_reaped && WIFEXITED(rank->wait_status))
            json_add_int(o, "exit_code", WEXITSTATUS(rank->wait_status));
        if (rank->is_reaped && WIFSIGNALED(rank->wait_status))
            json_add_int(o, "signal", WTERMSIG(rank->wait_status));
        json_push(arr, o);
    }
    return arr;
}
