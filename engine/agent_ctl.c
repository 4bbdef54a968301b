/* agentctl: agent/1 on standard input and output, reached through SSH. Requests that concern the
 * living agent are passed to agent.sock; the others, and all when it is dead, are answered from
 * the run folder and /proc. Beside the answers `follow` streams until the agent is gone. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/agent_follow.h"
#include "engine/agent_main.h"
#include "engine/agent_peer.h"
#include "engine/agent_proc.h"
#include "run/record.h"
#include "run/spec.h"

enum { STATE_MAX_BYTES = 4 << 20, ANSWER_MS = 10000, FOLLOW_MS = 100 };
static const double KILL_WAIT_S = 10;

struct ctl {
    char *dir;
    struct run_spec spec;
    struct msg_reader in;
    struct str out;
    struct peer agent; /* fd -1: not connected */
    struct follow *follow;
    struct timespec state_time; /* of the state.json sent last */
    bool is_greeted, is_over;
    bool is_gone; /* no run folder, or none with a spec: only what needs none is answered */
};

/* --- the agent --- */

static bool read_agent_id(struct proc_id *id)
{
    struct json *v = NULL;
    struct err ignored;
    bool is_known =
        !json_read(&v, RUN_FILE_PID, 4096, &ignored) && !proc_id_from_json(id, v, &ignored);
    json_free(v);
    return is_known;
}

static bool is_agent_alive(void)
{
    struct proc_id id;
    return read_agent_id(&id) && proc_id_is_alive(&id);
}

static bool ask_agent(struct ctl *c, struct json *request, struct json **answer)
{
    struct err e;
    *answer = NULL;
    peer_send(&c->agent, request);
    double until_s = clock_now_s() + ANSWER_MS / 1000.0;
    while (!*answer && clock_now_s() < until_s) {
        struct pollfd p = peer_pollfd(&c->agent);
        if (peer_flush(&c->agent, &e))
            break;
        poll(&p, 1, 200);
        enum rc rc = peer_read(&c->agent, clock_now_s(), &e);
        if (peer_take(&c->agent, answer, &e) || (rc && !*answer))
            break;
    }
    if (!*answer)
        peer_close(&c->agent);
    return *answer != NULL;
}

/* True when the agent lives and speaks our protocol; connects on first use. */
static bool reach_agent(struct ctl *c)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX, .sun_path = RUN_FILE_SOCKET};
    struct json *hello;
    struct err ignored;
    if (c->agent.fd >= 0)
        return true;
    if (!is_agent_alive())
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    peer_init(&c->agent, fd, clock_now_s());
    bool is_good = ask_agent(c, msg_hello(), &hello) && !msg_check_hello(hello, &ignored);
    json_free(hello);
    return is_good;
}

/* --- answers --- */

static void say(struct ctl *c, struct json *v)
{
    msg_put(&c->out, v);
    json_free(v);
}

static void say_error(struct ctl *c, const struct err *e)
{
    struct json *v = msg_new("error");
    json_add_str(v, "code", rc_word(e->code));
    json_add_str(v, "message", e->msg);
    say(c, v);
}

/* The last failure this attempt told that follows from no other one. */
static bool find_failure(const struct ctl *c, struct record_failure *out)
{
    struct str text = STR_INIT;
    struct err ignored = ERR_INIT;
    bool is_found = false;
    char *save = NULL;
    if (file_read(&text, RUN_FILE_EVENTS, STR_DEFAULT_MAX, &ignored) || !text.len) {
        str_release(&text);
        return false;
    }
    for (char *line = strtok_r(text.p, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct json *v = NULL;
        if (json_parse(&v, line, strlen(line), &ignored))
            continue;
        const char *name = json_str(v, "event", "");
        bool is_failure = strcmp(name, "failure") == 0 || strcmp(name, "failed") == 0;
        if (is_failure && json_int(v, "attempt", 0) == c->spec.attempt &&
            !json_bool(v, "is_consequence", false) && *json_str(v, "message", "")) {
            record_failure_from_json(out, v);
            is_found = true;
        }
        json_free(v);
    }
    str_release(&text);
    return is_found;
}

static void set_dead(struct ctl *c, struct json *v, const struct proc_id *id)
{
    struct record_failure f = {.rank = -1};
    struct proc_id now;
    const char *name = c->spec.hosts[c->spec.self].name;
    bool is_rebooted = proc_id_of(&now, getpid()) && strcmp(now.boot_id, id->boot_id) != 0;
    snprintf(f.host, sizeof(f.host), "%s", name);
    snprintf(f.code, sizeof(f.code), "agent-lost");
    snprintf(f.message, sizeof(f.message),
        is_rebooted ? "host '%s' was restarted while the run was on it"
                    : "the agent on host '%s' died (it was process %ld)",
        name, (long)id->pid);
    struct record_failure told;
    if (!is_rebooted && find_failure(c, &told))
        f = told; /* it died of it, or behind it */
    json_add_str(v, "state", "failed");
    json_add(v, "failure", record_failure_to_json(&f));
}

/* The node's record as its files tell it, corrected for a dead agent. Caller frees. */
static struct json *dead_status(struct ctl *c)
{
    struct json *v = NULL;
    struct proc_id id;
    struct err ignored;
    bool was_started = read_agent_id(&id);
    if (json_read(&v, RUN_FILE_STATE, STATE_MAX_BYTES, &ignored) || !json_is_obj(v)) {
        json_free(v);
        v = json_obj();
        json_add_str(v, "schema", "state/1");
        json_add_str(v, "id", c->spec.id);
        json_add_str(v, "state", "staging");
    }
    bool is_final = run_state_is_final(run_state_parse(json_str(v, "state", "")));
    bool is_older = json_int(v, "attempt", c->spec.attempt) < c->spec.attempt;
    if (is_older)
        json_add_str(v, "state", "staging");
    else if (was_started && !is_final)
        set_dead(c, v, &id);
    json_add_bool(v, "is_alive", false);
    return v;
}

static struct json *status(struct ctl *c, const char *type)
{
    struct json *v = NULL;
    if (reach_agent(c) && ask_agent(c, msg_new("status"), &v) && msg_is(v, "status")) {
        json_add_bool(v, "is_alive", true);
    } else {
        json_free(v);
        v = dead_status(c);
    }
    json_add_str(v, "type", type);
    return v;
}

static void answer_stop(struct ctl *c, const struct json *request)
{
    struct json *v = NULL;
    struct proc_found left[PROC_MAX_FOUND];
    if (reach_agent(c) && ask_agent(c, json_clone(request), &v)) {
        say(c, v);
        return;
    }
    proc_kill_run(c->dir, KILL_WAIT_S, left); /* ranks without an agent cannot end well */
    say(c, msg_new("ok"));
}

/* {"type":"verify-gone","wait_s":x,"kill":bool}: is anything of the run left on this node? */
static void answer_gone(struct ctl *c, const struct json *request)
{
    struct proc_found left[PROC_MAX_FOUND];
    double wait_s = json_num(request, "wait_s", 0);
    double until_s = clock_now_s() + (wait_s > 0 && wait_s < 86400 ? wait_s : 0);
    size_t n = proc_find_run(c->dir, left);
    while (n && clock_now_s() < until_s) {
        clock_sleep_s(0.1);
        n = proc_find_run(c->dir, left);
    }
    if (n && json_bool(request, "kill", false))
        n = proc_kill_run(c->dir, KILL_WAIT_S, left);
    struct json *v = msg_new("gone"), *list = json_arr();
    for (size_t i = 0; i < n && i < 64; i++) {
        struct json *o = json_obj();
        json_add_int(o, "pid", left[i].pid);
        json_add_str(o, "command", left[i].command);
        json_push(list, o);
    }
    json_add_bool(v, "is_gone", n == 0);
    json_add(v, "left", list);
    say(c, v);
}

/* The run's own folder in a shared store; every node may try, the first one finds it. */
static enum rc remove_shared(const struct ctl *c, struct err *e)
{
    if (c->spec.checkpoint.store != RUN_STORE_SHARED)
        return RC_OK;
    char *dir = run_shared_dir(c->spec.checkpoint.shared_path, c->spec.id);
    struct err why = ERR_INIT;
    enum rc rc = dir_remove(dir, &why);
    if (rc && !file_exists(dir)) /* another node was quicker */
        rc = RC_OK;
    if (rc)
        *e = why;
    free(dir);
    return rc;
}

static void remove_parents(const char *dir)
{
    char *parent = base_strdup(dir), *slash = strrchr(parent, '/');
    *slash = '\0';
    if (rmdir(parent) == 0) { /* the run's folder, unless another node shares it */
        slash = strrchr(parent, '/');
        *slash = '\0';
        rmdir(parent); /* the folder of runs, when this was the last one */
    }
    free(parent);
}

/* A launch ended before it had written the spec, the first file of the folder. */
static void remove_unwritten(const char *dir)
{
    char *spec = path_join(dir, RUN_FILE_SPEC ".new");
    unlink(spec);
    if (rmdir(dir) == 0)
        remove_parents(dir);
    free(spec);
}

static void answer_purge(struct ctl *c)
{
    struct proc_found left[PROC_MAX_FOUND];
    struct err e = ERR_INIT;
    if (proc_find_run(c->dir, left)) {
        err_set(&e, RC_INVALID, "the run still goes on in '%s'; stop it first", c->dir);
        say_error(c, &e);
        return;
    }
    if (remove_shared(c, &e) || dir_remove(c->dir, &e)) {
        say_error(c, &e);
        return;
    }
    remove_parents(c->dir);
    say(c, msg_new("ok"));
    c->is_over = true;
}

static void answer_forwarded(struct ctl *c, const struct json *request)
{
    struct json *v = NULL;
    struct err e = ERR_INIT;
    if (reach_agent(c) && ask_agent(c, json_clone(request), &v)) {
        say(c, v);
        return;
    }
    err_set(
        &e, RC_INVALID, "the agent on host '%s' is not running", c->spec.hosts[c->spec.self].name);
    say_error(c, &e);
}

static void answer_hello(struct ctl *c, const struct json *request)
{
    struct err e = ERR_INIT;
    if (msg_check_hello(request, &e)) {
        say_error(c, &e);
        c->is_over = true;
        return;
    }
    struct json *v = msg_hello();
    if (!c->is_gone) {
        json_add_str(v, "id", c->spec.id);
        json_add_int(v, "node", c->spec.hosts[c->spec.self].node);
        json_add_bool(v, "is_alive", is_agent_alive());
    }
    say(c, v);
    c->is_greeted = true;
}

/* Without a folder nothing is known of the run, but what is left of it can still be found. */
static void answer_without_folder(struct ctl *c, const struct json *v)
{
    struct err e = ERR_INIT;
    struct proc_found left[PROC_MAX_FOUND];
    if (msg_is(v, "verify-gone")) {
        answer_gone(c, v);
    } else if (msg_is(v, "stop")) {
        proc_kill_run(c->dir, KILL_WAIT_S, left);
        say(c, msg_new("ok"));
    } else if (msg_is(v, "purge") && !proc_find_run(c->dir, left)) {
        remove_unwritten(c->dir);
        say(c, msg_new("ok"));
    } else {
        err_set(&e, RC_NOT_FOUND, "run folder '%s' is gone", c->dir);
        say_error(c, &e);
    }
}

static void answer(struct ctl *c, const struct json *v)
{
    struct err e = ERR_INIT;
    if (!c->is_greeted)
        answer_hello(c, v);
    else if (c->is_gone)
        answer_without_folder(c, v);
    else if (msg_is(v, "status"))
        say(c, status(c, "status"));
    else if (msg_is(v, "stop"))
        answer_stop(c, v);
    else if (msg_is(v, "verify-gone"))
        answer_gone(c, v);
    else if (msg_is(v, "purge"))
        answer_purge(c);
    else if (msg_is(v, "start") || msg_is(v, "checkpoint"))
        answer_forwarded(c, v);
    else if (msg_is(v, "follow")) {
        follow_free(c->follow);
        c->follow = follow_new(&c->spec, json_get(v, "from"));
    } else {
        err_set(&e, RC_INVALID, "request '%.64s' is unknown", json_str(v, "type", ""));
        say_error(c, &e);
    }
}

/* --- the loop --- */

static bool flush(struct ctl *c)
{
    struct err e;
    bool is_sent = !file_write_fd(1, str_text(&c->out), c->out.len, "standard output", &e);
    str_reset(&c->out);
    return is_sent;
}

static void send_state(struct ctl *c)
{
    struct stat st;
    if (stat(RUN_FILE_STATE, &st) != 0)
        return;
    if (st.st_mtim.tv_sec == c->state_time.tv_sec && st.st_mtim.tv_nsec == c->state_time.tv_nsec)
        return;
    c->state_time = st.st_mtim;
    say(c, status(c, "state"));
}

static bool follow_on(struct ctl *c)
{
    bool is_alive = is_agent_alive();
    while (follow_step(c->follow, !is_alive, &c->out))
        if (!flush(c))
            return false;
    send_state(c);
    follow_beat(c->follow, &c->out, clock_now_s());
    if (!is_alive) { /* everything it wrote was sent above */
        say(c, status(c, "state"));
        say(c, msg_new("end"));
        follow_free(c->follow);
        c->follow = NULL;
    }
    return flush(c);
}

static void take_input(struct ctl *c)
{
    char buf[1 << 14];
    struct err e = ERR_INIT;
    struct json *v;
    ssize_t n = read(0, buf, sizeof(buf));
    if (n <= 0) {
        c->is_over = true;
        return;
    }
    msg_reader_feed(&c->in, buf, (size_t)n);
    while (!c->is_over) {
        if (msg_take(&c->in, &v, &e)) {
            say_error(c, &e);
            c->is_over = true;
            return;
        }
        if (!v)
            return;
        answer(c, v);
        json_free(v);
    }
}

static void loop(struct ctl *c)
{
    while (!c->is_over) {
        /* standard output is watched for the reader going away */
        struct pollfd p[2] = {{.fd = 0, .events = POLLIN}, {.fd = 1, .events = 0}};
        int ready = poll(p, 2, c->follow ? FOLLOW_MS : -1);
        if (ready > 0 && (p[1].revents & (POLLERR | POLLNVAL)))
            return;
        if (ready > 0 && p[0].revents)
            take_input(c);
        if (!flush(c))
            return;
        if (c->follow && !c->is_over && !follow_on(c))
            return;
    }
}

static enum rc enter_folder(struct ctl *c, const char *dir, struct err *e)
{
    c->dir = realpath(dir, NULL);
    bool is_there = c->dir && chdir(c->dir) == 0;
    if (is_there && (access(RUN_FILE_SPEC, F_OK) == 0 || errno != ENOENT))
        return run_spec_read(&c->spec, c->dir, e);
    if (errno != ENOENT)
        return err_sys(e, RC_IO, "cannot enter run folder '%s'", dir);
    free(c->dir);
    c->dir = base_strdup(dir);
    c->is_gone = true;
    return RC_OK;
}

int agentctl_main(int argc, char **argv)
{
    struct err e = ERR_INIT;
    struct ctl c = {.agent = {.fd = -1}};
    enum rc rc;
    signal(SIGPIPE, SIG_IGN);
    msg_reader_init(&c.in);
    if (argc == 3 && strcmp(argv[1], "--dir") == 0)
        rc = enter_folder(&c, argv[2], &e);
    else
        rc = err_set(&e, RC_USAGE, "agentctl: use agentctl --dir DIR");
    if (rc)
        say_error(&c, &e);
    else
        loop(&c);
    flush(&c);
    peer_close(&c.agent);
    follow_free(c.follow);
    msg_reader_release(&c.in);
    str_release(&c.out);
    run_spec_release(&c.spec);
    free(c.dir);
    return rc_exit_code(rc);
}
