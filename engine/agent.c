#include "engine/agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/agent_main.h"
#include "engine/agent_proc.h"

enum { SPARE_BYTES = 256 << 10 };
static const double STATE_EVERY_S = 1, UNKILLABLE_S = 60, FOLDER_EVERY_S = 2;

/* --- what it writes down --- */

/* Room on the disk for the last words: how the run ended must be told on a full disk as well. */
static void make_spare(void)
{
    int fd = open(RUN_FILE_SPARE, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    bool is_reserved = posix_fallocate(fd, 0, SPARE_BYTES) == 0;
    close(fd);
    if (!is_reserved)
        unlink(RUN_FILE_SPARE);
}

static bool use_spare(void)
{
    return unlink(RUN_FILE_SPARE) == 0;
}

void agent_log(struct agent *a, const struct json *event)
{
    char at[CLOCK_TEXT];
    struct json *v = json_obj(), *value;
    const struct json *member;
    const char *key;
    void *cursor = NULL;
    json_add_str(v, "at", clock_rfc3339(at, clock_wall_s()));
    while (json_next(event, &cursor, &key, &member)) {
        value = json_clone(member);
        json_add(v, key, value);
    }
    json_add_int(v, "attempt", a->spec.attempt);
    struct str line = STR_INIT;
    struct err ignored = ERR_INIT;
    msg_put(&line, v);
    if (file_append(RUN_FILE_EVENTS, str_text(&line), line.len, 0600, &ignored) && use_spare())
        file_append(RUN_FILE_EVENTS, str_text(&line), line.len, 0600, &ignored);
    str_release(&line);
    json_free(v);
    a->is_state_dirty = true;
}

static void log_text(struct agent *a, const char *name, const char *text)
{
    struct json *v = json_obj();
    json_add_str(v, "event", name);
    json_add_str(v, "message", text);
    agent_log(a, v);
    json_free(v);
}

struct json *agent_status(const struct agent *a, double now_s)
{
    char at[CLOCK_TEXT];
    struct json *v = a->end     ? json_clone(a->end)
                     : a->coord ? coord_status(a->coord, now_s)
                                : json_obj();
    bool is_final = run_state_is_final(run_state_parse(json_str(v, "state", "")));
    if (!is_final)
        json_add_str(v, "state", a->is_started ? "running" : "staging");
    json_add_str(v, "schema", "state/1");
    json_add_str(v, "id", a->spec.id);
    json_add_int(v, "attempt", a->spec.attempt);
    json_add_int(v, "node", a->spec.hosts[a->spec.self].node);
    json_add_str(v, "role", a->is_coordinator ? "coordinator" : "member");
    json_add_str(v, "updated_at", clock_rfc3339(at, clock_wall_s()));
    if (a->is_coordinator)
        json_add_int(v, "coordinator_port", a->tcp_port);
    if (a->ranks && a->spec.hosts[a->spec.self].ranks <= 256)
        json_add(v, "ranks", ranks_to_json(a->ranks));
    return v;
}

static void write_state(struct agent *a, double now_s)
{
    struct json *v = agent_status(a, now_s);
    char *text = json_print(v, true);
    struct err ignored = ERR_INIT;
    enum rc rc = file_write(RUN_FILE_STATE, text, strlen(text), 0600, &ignored);
    if (rc && a->end && use_spare())
        rc = file_write(RUN_FILE_STATE, text, strlen(text), 0600, &ignored);
    free(text);
    json_free(v);
    a->is_state_dirty = rc != RC_OK; /* tried again in a while */
    a->state_at_s = now_s;
}

/* A metrics record without the words of the protocol around it. */
static void write_metrics(const struct json *event)
{
    struct record_metrics m;
    if (record_metrics_from_json(&m, event, NULL))
        return;
    char line[RECORD_METRICS_TEXT];
    file_append(RUN_FILE_METRICS, line, record_metrics_line(line, &m, false), 0600, NULL);
}

/* --- what happens to the ranks --- */

static void take_event(void *ctx, const struct json *event)
{
    struct agent *a = ctx;
    const char *name = json_str(event, "event", "");
    if (strcmp(name, "step") == 0 && json_int(event, "rank", -1) == 0)
        write_metrics(event);
    else if (!a->coord) /* the coordinator logs what concerns the run itself */
        agent_log(a, event);
    a->is_state_dirty = true;
    if (a->coord)
        coord_event(a->coord, a->spec.self, event, clock_now_s());
    else
        link_send_up(a, event);
}

enum rc agent_start(struct agent *a, const char *coordinator, double now_s, struct err *e)
{
    if (a->is_started)
        return RC_OK;
    if (a->end)
        return err_set(e, RC_INVALID, "the run is over on this node");
    if (!a->coord) {
        if (!coordinator)
            return err_set(e, RC_INVALID, "start needs the address of the coordinator");
        enum rc rc = link_want(a, coordinator, now_s, e);
        if (rc)
            return rc;
    } else {
        coord_joined(a->coord, a->spec.self, now_s);
    }
    a->is_started = true;
    a->is_state_dirty = true;
    return ranks_start(a->ranks, now_s, e);
}

void agent_fail(struct agent *a, const char *code, const char *message, double now_s)
{
    struct record_failure f = {.rank = -1};
    snprintf(f.host, sizeof(f.host), "%s", a->spec.hosts[a->spec.self].name);
    snprintf(f.code, sizeof(f.code), "%s", code);
    snprintf(f.message, sizeof(f.message), "%s", message);
    a->is_failed = true;
    json_free(a->end);
    a->end = json_obj();
    json_add_str(a->end, "state", "failed");
    json_add(a->end, "failure", record_failure_to_json(&f));
    log_text(a, "failed", message);
    ranks_abort(a->ranks, now_s);
}

static void take_end(struct agent *a, const struct json *message, double now_s)
{
    json_free(a->end);
    a->end = json_clone(message);
    json_add_null(a->end, "type");
    a->is_state_dirty = true;
    ranks_abort(a->ranks, now_s);
}

static void pass_peers(struct agent *a, const struct json *message)
{
    struct json *command = json_obj();
    json_add_str(command, "cmd", "peers");
    json_add_int(command, "first", json_int(message, "first", 0));
    json_add(command, "peers", json_clone(json_get(message, "peers")));
    ranks_command(a->ranks, command);
    json_free(command);
}

void agent_command(struct agent *a, const struct json *message, double now_s)
{
    if (msg_is(message, "peers")) {
        pass_peers(a, message);
    } else if (msg_is(message, "checkpoint")) {
        struct json *command = json_obj();
        json_add_str(command, "cmd", "checkpoint");
        ranks_command(a->ranks, command);
        json_free(command);
    } else if (msg_is(message, "stop")) {
        ranks_stop(a->ranks, json_num(message, "grace_s", 0), now_s);
    } else if (msg_is(message, "abort")) {
        ranks_abort(a->ranks, now_s);
    } else if (msg_is(message, "end")) {
        take_end(a, message, now_s);
    }
}

void agent_stop(struct agent *a, double grace_s, const char *reason, double now_s)
{
    if (a->end)
        return;
    if (a->coord && a->is_started) {
        coord_stop(a->coord, grace_s, reason, now_s);
    } else if (a->uplink.state == UPLINK_UP) {
        struct json *v = msg_new("stop");
        json_add_num(v, "grace_s", grace_s);
        json_add_str(v, "reason", reason);
        link_send_up(a, v);
        json_free(v);
    } else { /* never started, or nobody to ask */
        a->end = json_obj();
        json_add_str(a->end, "state", "cancelled");
        json_add_str(a->end, "reason", reason);
        log_text(a, "cancelled", reason);
        a->end_grace_s = grace_s;
        ranks_stop(a->ranks, grace_s, now_s);
    }
}

static void send_to_node(void *ctx, size_t host, const struct json *message)
{
    struct agent *a = ctx;
    if (host == a->spec.self)
        agent_command(a, message, clock_now_s());
    else
        link_send_member(a, host, message);
}

static void log_coord(void *ctx, const struct json *event)
{
    agent_log(ctx, event);
}

/* --- the loop --- */

static void take_signals(struct agent *a, double now_s)
{
    struct signalfd_siginfo info;
    while (read(a->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo != SIGTERM && info.ssi_signo != SIGINT)
            continue;
        char *reason = base_printf("the agent on host '%s' was told to end (%s)",
            a->spec.hosts[a->spec.self].name, info.ssi_signo == SIGTERM ? "SIGTERM" : "SIGINT");
        agent_stop(a, a->spec.deadlines.grace_s, reason, now_s);
        free(reason);
    }
    ranks_reap(a->ranks, now_s);
}

static void send_beats(struct agent *a, double now_s)
{
    if (now_s < a->beat_at_s)
        return;
    a->beat_at_s = now_s + a->spec.deadlines.heartbeat_s;
    struct json *beat = msg_new("beat");
    for (size_t i = 0; i < a->member_count; i++)
        if (a->members[i].is_in)
            peer_send(&a->members[i].peer, json_clone(beat));
    link_send_up(a, beat);
    json_free(beat);
}

/* Fill fds with everything that may wake the loop; the caller frees it. */
static struct pollfd *collect(const struct agent *a, nfds_t *count)
{
    size_t room =
               4 + AGENT_MAX_CLIENTS + a->member_count + (size_t)a->spec.hosts[a->spec.self].ranks,
           n = 0;
    struct pollfd *fds = base_calloc(room, sizeof(*fds));
    fds[n++] = (struct pollfd){.fd = a->signal_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = a->unix_fd, .events = POLLIN};
    fds[n++] = (struct pollfd){.fd = a->tcp_fd, .events = POLLIN}; /* -1 is ignored */
    for (size_t i = 0; i < AGENT_MAX_CLIENTS; i++)
        if (a->clients[i].peer.fd >= 0)
            fds[n++] = peer_pollfd(&a->clients[i].peer);
    for (size_t i = 0; i < a->member_count; i++)
        fds[n++] = peer_pollfd(&a->members[i].peer);
    if (a->uplink.state != UPLINK_NONE) {
        fds[n] = peer_pollfd(&a->uplink.peer);
        if (a->uplink.state == UPLINK_CONNECTING)
            fds[n].events = POLLOUT;
        n++;
    }
    n += ranks_poll(a->ranks, fds + n);
    *count = (nfds_t)n;
    return fds;
}

static double time_until_due(struct agent *a, double now_s)
{
    double next = ranks_tick(a->ranks, now_s);
    if (a->coord && a->is_started) {
        double due = coord_tick(a->coord, now_s);
        next = due < next ? due : next;
    }
    if (a->uplink.host[0] && next > 0.25)
        next = 0.25;
    return next > 0.01 ? next : 0.01;
}

/* An agent nobody starts would wait for ever. */
static void check_unstarted(struct agent *a, double now_s)
{
    if (!a->is_started && !a->end && now_s - a->started_s > a->spec.deadlines.rendezvous_s)
        agent_fail(a, "rendezvous", "the launcher never said start", now_s);
}

/* Without its folder nobody could find this agent again: end rather than run unseen. */
static void check_folder(struct agent *a, double now_s)
{
    if (now_s < a->folder_at_s)
        return;
    a->folder_at_s = now_s + FOLDER_EVERY_S;
    if (!a->end && access(RUN_FILE_PID, F_OK) != 0 && errno == ENOENT)
        agent_fail(a, "folder-lost", "the run folder on the node was deleted", now_s);
}

/* Over when nothing is left, or when what is left cannot even be killed (stuck in the kernel). */
static void check_over(struct agent *a, double now_s)
{
    if (!a->end || (a->coord && a->is_started && !coord_is_over(a->coord) && !a->is_failed))
        return;
    if (!a->end_s)
        a->end_s = now_s;
    a->is_over = ranks_is_empty(a->ranks) || now_s - a->end_s > UNKILLABLE_S + a->end_grace_s;
}

static void turn(struct agent *a)
{
    nfds_t count;
    double due = time_until_due(a, clock_now_s());
    if (a->is_state_dirty && clock_now_s() - a->state_at_s < STATE_EVERY_S && due > 0.25)
        due = 0.25;
    struct pollfd *fds = collect(a, &count);
    poll(fds, count, (int)(due * 1000) + 1);
    free(fds);
    double now_s = clock_now_s();
    take_signals(a, now_s);
    ranks_read(a->ranks, now_s);
    if (a->coord) {
        link_accept(a, now_s);
        link_serve(a, now_s);
        if (a->is_started)
            coord_heard(a->coord, a->spec.self, now_s);
    } else {
        link_follow(a, now_s);
    }
    client_accept(a, now_s);
    client_serve(a, now_s);
    send_beats(a, now_s);
    check_unstarted(a, now_s);
    check_folder(a, now_s);
    check_over(a, now_s);
    if (a->is_state_dirty && now_s - a->state_at_s >= STATE_EVERY_S)
        write_state(a, now_s);
}

/* Give members and clients the last messages; bounded. */
static void say_goodbye(struct agent *a)
{
    double until_s = clock_now_s() + 2;
    bool is_pending = true;
    while (is_pending && clock_now_s() < until_s) {
        is_pending = false;
        for (size_t i = 0; i < a->member_count; i++)
            if (!peer_flush(&a->members[i].peer, NULL) && a->members[i].peer.out.len)
                is_pending = true;
        if (is_pending)
            clock_sleep_s(0.02);
    }
    client_serve(a, clock_now_s());
}

/* --- becoming the agent --- */

static void agent_release(struct agent *a)
{
    link_close(a);
    client_close(a);
    ranks_free(a->ranks);
    coord_free(a->coord);
    json_free(a->end);
    run_spec_release(&a->spec);
    free(a->dir);
    free(a->program);
}

/* agent.pid is locked as long as the agent lives, so a second one for the folder is refused. */
static enum rc take_pid_file(const struct agent *a, struct err *e)
{
    struct proc_id self;
    int fd = open(RUN_FILE_PID, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_sys(e, RC_IO, "cannot create '%s/%s'", a->dir, RUN_FILE_PID);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return err_set(e, RC_FAILED, "an agent of this run is already running in '%s'", a->dir);
    }
    proc_id_of(&self, getpid());
    struct json *v = proc_id_to_json(&self);
    char *text = json_print(v, false);
    enum rc rc = RC_OK;
    if (ftruncate(fd, 0) != 0)
        rc = err_sys(e, RC_IO, "cannot write '%s/%s'", a->dir, RUN_FILE_PID);
    if (!rc)
        rc = file_write_fd(fd, text, strlen(text), RUN_FILE_PID, e);
    free(text);
    json_free(v);
    return rc; /* fd stays open on purpose: it is the lock */
}

static enum rc prepare(struct agent *a, struct err *e)
{
    static const struct coord_ops ops = {send_to_node, log_coord};
    sigset_t set;
    a->started_s = clock_now_s();
    a->is_coordinator = a->spec.self == 0;
    enum rc rc = take_pid_file(a, e);
    if (rc)
        return rc;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    a->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (a->signal_fd < 0)
        return err_sys(e, RC_IO, "cannot watch for signals");
    a->ranks = ranks_new(&a->spec, a->dir, a->program, take_event, a);
    rc = client_listen(a, e);
    if (!rc && a->is_coordinator) {
        a->coord = coord_new(&a->spec, &ops, a, a->started_s, clock_wall_s());
        rc = link_listen(a, e);
    }
    return rc;
}

static void say_ready(const struct agent *a, int ready_fd)
{
    struct json *v = msg_hello();
    struct str line = STR_INIT;
    json_add_int(v, "pid", getpid());
    if (a->is_coordinator)
        json_add_int(v, "coordinator_port", a->tcp_port);
    msg_put(&line, v);
    file_write_fd(ready_fd, str_text(&line), line.len, "pipe", NULL);
    str_release(&line);
    json_free(v);
    close(ready_fd);
}

static void say_failed(const struct err *e, int ready_fd)
{
    struct json *v = msg_new("error");
    struct str line = STR_INIT;
    json_add_str(v, "code", rc_word(e->code));
    json_add_str(v, "message", e->msg);
    msg_put(&line, v);
    file_write_fd(ready_fd, str_text(&line), line.len, "pipe", NULL);
    str_release(&line);
    json_free(v);
}

/* In the background process, from here to its end. */
static int run(struct agent *a, int ready_fd)
{
    struct err e = ERR_INIT;
    enum rc rc = prepare(a, &e);
    if (rc) {
        say_failed(&e, ready_fd);
        agent_release(a);
        return rc_exit_code(rc);
    }
    make_spare();
    log_text(a, "agent", "started");
    write_state(a, clock_now_s());
    say_ready(a, ready_fd);
    while (!a->is_over)
        turn(a);
    say_goodbye(a);
    write_state(a, clock_now_s());
    unlink(RUN_FILE_SPARE);
    agent_release(a);
    return 0;
}

static int detach(struct agent *a)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0)
        return 1;
    pid_t pid = fork();
    if (pid < 0)
        return 1;
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR);
        int log = open(RUN_FILE_AGENT, O_WRONLY | O_CREAT | O_APPEND, 0600);
        setsid();
        dup2(null, 0);
        dup2(log >= 0 ? log : null, 1);
        dup2(log >= 0 ? log : null, 2);
        close(null);
        close(log);
        close(ready[0]);
        _exit(run(a, ready[1]));
    }
    close(ready[1]);
    char buf[4096] = "";
    ssize_t n = 0, got;
    while ((got = read(ready[0], buf + n, sizeof(buf) - 1 - (size_t)n)) > 0)
        n += got;
    fputs(buf, stdout);
    return n > 0 && strstr(buf, "\"hello\"") ? 0 : 1;
}

/* --- command line --- */

static char *own_path(void)
{
    char buf[4096];
    ssize_t n = readlink("/proc/self/exe", buf, sizeof(buf) - 1);
    return base_strndup(buf, n > 0 ? (size_t)n : 0);
}

static enum rc parse(struct agent *a, int argc, char **argv, struct err *e)
{
    const char *dir = NULL, *program = NULL;
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (has_value && strcmp(argv[i], "--dir") == 0)
            dir = argv[++i];
        else if (has_value && strcmp(argv[i], "--rank-program") == 0) /* for tests */
            program = argv[++i];
        else
            return err_set(e, RC_USAGE, "agent: unexpected argument '%s'", argv[i]);
    }
    if (!dir)
        return err_set(e, RC_USAGE, "agent: --dir is missing");
    a->dir = realpath(dir, NULL);
    if (!a->dir)
        return err_sys(e, RC_NOT_FOUND, "cannot open folder '%s'", dir);
    a->program = program ? base_strdup(program) : own_path();
    if (chdir(a->dir) != 0)
        return err_sys(e, RC_IO, "cannot enter '%s'", a->dir);
    return run_spec_read(&a->spec, a->dir, e);
}

int agent_main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct agent a = {.signal_fd = -1, .unix_fd = -1, .tcp_fd = -1};
    a.uplink.peer.fd = -1;
    for (size_t i = 0; i < AGENT_MAX_CLIENTS; i++)
        a.clients[i].peer.fd = -1;
    umask(077);
    enum rc rc = parse(&a, argc, argv, &e);
    if (rc) {
        fprintf(stderr, "berth-engine: %s\n", e.msg);
        agent_release(&a);
        return rc_exit_code(rc);
    }
    int status = detach(&a);
    fflush(stdout);
    _exit(status); /* the child owns what a holds */
}
