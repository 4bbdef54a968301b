/* Following a run: one agentctl stream per node, over connections that come back by themselves. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "launcher/client_private.h"
#include "run/spec.h"

static const double SILENT_S = 20, RETRY_S = 2, UNREACHABLE_S = 600, CONNECT_S = 30;
static const double OFFSETS_EVERY_S = 1;

enum stream_state { STREAM_CONNECTED, STREAM_BROKEN, STREAM_CONNECTING, STREAM_OVER };

struct stream {
    enum stream_state state;
    struct exec exec;
    struct talk_stream messages;
    struct json *offsets; /* "metrics", "events", "logs": where to go on */
    double heard_s, retry_at_s, connect_s, broken_s;
    bool is_lost; /* broken since broken_s, and nothing heard since */
    struct err why;
    bool is_caught_up;
};

struct following {
    struct client *c;
    const struct client_follow *f;
    struct fan *fan;
    struct stream *v;
    struct str log_lines; /* scratch */
    struct json *sizes;   /* of the copies, by name; saved together with the offsets */
    int lock_fd;          /* -1: another process writes the files */
    double saved_s, start_s;
    double over_s;  /* when the coordinator's stream ended; 0: not yet */
    enum rc failed; /* of this machine, e.g. a full disk */
    struct err failed_why;
};

/* --- offsets --- */

static char *offsets_path(const struct client *c)
{
    char *logs = run_dir_file(&c->info, RUN_USER_LOGS), *path = path_join(logs, "offsets.json");
    free(logs);
    return path;
}

static void load_offsets(struct following *w)
{
    struct json *doc = NULL;
    char *path = offsets_path(w->c);
    struct err ignored;
    json_read(&doc, path, RUN_SPEC_MAX_BYTES, &ignored);
    for (size_t i = 0; i < w->fan->count; i++) {
        char key[24];
        snprintf(key, sizeof(key), "%lld", (long long)w->c->info.nodes[i].node);
        const struct json *known = json_get(doc, key);
        w->v[i].offsets = json_is_obj(known) ? json_clone(known) : json_obj();
    }
    const struct json *sizes = json_get(doc, "sizes");
    w->sizes = json_is_obj(sizes) ? json_clone(sizes) : json_obj();
    json_free(doc);
    free(path);
}

/* A process that was killed may have copied more than it noted: forget the rest, it comes again. */
static void cut_copies(struct following *w)
{
    const struct json *size;
    const char *name;
    void *cursor = NULL;
    while (w->lock_fd >= 0 && json_next(w->sizes, &cursor, &name, &size)) {
        char *path = run_dir_file(&w->c->info, name);
        int64_t noted = json_as_int(size, 0);
        if (file_size(path) > noted && truncate(path, noted) != 0)
            w->failed = err_sys(&w->failed_why, RC_IO, "cannot cut '%s'", path);
        free(path);
    }
}

static void save_offsets(struct following *w)
{
    struct json *doc = json_obj();
    char *path = offsets_path(w->c);
    if (w->lock_fd >= 0) {
        for (size_t i = 0; i < w->fan->count; i++) {
            char key[24];
            snprintf(key, sizeof(key), "%lld", (long long)w->c->info.nodes[i].node);
            json_add(doc, key, json_clone(w->v[i].offsets));
        }
        json_add(doc, "sizes", json_clone(w->sizes));
        char *text = json_print(doc, false);
        file_write(path, text, strlen(text), 0600, NULL);
        free(text);
    }
    w->saved_s = clock_now_s();
    free(path);
    json_free(doc);
}

/* Only one process copies into the folder; flock goes with the process, however it ends. */
static void take_lock(struct following *w)
{
    char *logs = run_dir_file(&w->c->info, RUN_USER_LOGS), *path = path_join(logs, ".lock");
    w->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (w->lock_fd >= 0 && flock(w->lock_fd, LOCK_EX | LOCK_NB) != 0) {
        close(w->lock_fd);
        w->lock_fd = -1;
    }
    free(path);
    free(logs);
}

/* --- messages --- */

static void copy_to(struct following *w, const char *name, const char *text, bool adds_newline)
{
    struct err e = ERR_INIT;
    if (w->lock_fd < 0 || w->failed)
        return;
    char *path = run_dir_file(&w->c->info, name);
    int64_t size = json_int(w->sizes, name, 0);
    if (size == 0)
        unlink(path); /* nothing of it was noted: begin anew */
    str_reset(&w->log_lines);
    str_add(&w->log_lines, text);
    if (adds_newline)
        str_addc(&w->log_lines, '\n');
    w->failed = file_append(path, str_text(&w->log_lines), w->log_lines.len, 0600, &e);
    w->failed_why = e;
    json_add_int(w->sizes, name, size + (int64_t)w->log_lines.len);
    free(path);
}

static void took_metrics(struct following *w, struct stream *s, const struct json *v)
{
    const char *line = json_str(v, "line", "");
    struct record_metrics m;
    struct json *record = NULL;
    struct err ignored;
    copy_to(w, RUN_FILE_METRICS, line, true);
    json_add_int(s->offsets, "metrics", json_int(v, "offset", 0));
    if (w->f->sink->metrics && !json_parse(&record, line, strlen(line), &ignored) &&
        !record_metrics_from_json(&m, record, &ignored))
        w->f->sink->metrics(w->f->sink->ctx, &m, line);
    json_free(record);
}

static void took_event(struct following *w, struct stream *s, const struct json *v)
{
    const char *line = json_str(v, "line", "");
    struct json *record = NULL;
    struct err ignored;
    copy_to(w, RUN_FILE_EVENTS, line, true);
    json_add_int(s->offsets, "events", json_int(v, "offset", 0));
    if (w->f->sink->event && !json_parse(&record, line, strlen(line), &ignored))
        w->f->sink->event(w->f->sink->ctx, record);
    json_free(record);
}

static void took_log(struct following *w, size_t i, const struct json *v)
{
    struct stream *s = &w->v[i];
    const char *text = json_str(v, "text", "");
    int64_t rank = json_int(v, "rank", -1);
    char key[24], name[64];
    if (rank < 0 || rank > RUN_MAX_RANKS)
        return;
    snprintf(key, sizeof(key), "%lld", (long long)rank);
    snprintf(name, sizeof(name), RUN_USER_LOGS "/rank-%lld.log", (long long)rank);
    copy_to(w, name, text, false);
    const struct json *logs = json_get(s->offsets, "logs");
    struct json *mine = logs ? json_clone(logs) : json_obj();
    json_add_int(mine, key, json_int(v, "offset", 0));
    json_add(s->offsets, "logs", mine);
    if (w->f->sink->log)
        w->f->sink->log(w->f->sink->ctx, rank, w->c->info.nodes[i].host, text);
}

static void took_state(struct following *w, size_t i, const struct json *v)
{
    struct err e = ERR_INIT;
    if (i != 0)
        return;
    enum rc rc = client_note(w->c, v, &e);
    if (rc) {
        w->failed = rc;
        w->failed_why = e;
    }
    if (w->f->sink->status)
        w->f->sink->status(w->f->sink->ctx, v);
}

static void took_message(struct following *w, size_t i, const struct json *v)
{
    struct stream *s = &w->v[i];
    if (msg_is(v, "log")) {
        took_log(w, i, v);
    } else if (msg_is(v, "metrics")) {
        took_metrics(w, s, v);
    } else if (msg_is(v, "event")) {
        took_event(w, s, v);
    } else if (msg_is(v, "state")) {
        took_state(w, i, v);
    } else if (msg_is(v, "beat")) {
        s->is_caught_up = true; /* the first one comes behind all there was */
    } else if (msg_is(v, "end")) {
        s->state = STREAM_OVER;
        s->is_caught_up = true;
        if (i == 0)
            w->over_s = clock_now_s();
    }
}

/* --- streams --- */

static struct json *follow_request(const struct following *w, size_t i)
{
    struct json *v = msg_new("follow"), *from = json_clone(w->v[i].offsets);
    if (i != 0) { /* the coordinator's tell of the run; the others' of their node only */
        json_add_null(from, "metrics");
        json_add_null(from, "events");
    }
    if (!w->f->wants_logs)
        json_add_null(from, "logs");
    json_add(v, "from", from);
    return v;
}

static void begin_stream(struct following *w, size_t i)
{
    struct stream *s = &w->v[i];
    struct json *hello = msg_hello(), *request = follow_request(w, i);
    char *command = talk_command(&w->c->nodes[i]);
    exec_init(&s->exec, command);
    s->exec.keeps_in_open = true; /* its end would end the stream */
    talk_stream_init(&s->messages);
    msg_put(&s->exec.in, hello);
    msg_put(&s->exec.in, request);
    s->heard_s = clock_now_s();
    json_free(hello);
    json_free(request);
    free(command);
}

static void end_stream(struct stream *s)
{
    if (s->exec.command) {
        exec_release(&s->exec);
        talk_stream_release(&s->messages);
    }
}

static void break_stream(struct following *w, size_t i, const struct err *why)
{
    struct stream *s = &w->v[i];
    struct transport *t = w->fan->v[i].t;
    end_stream(s);
    t->ops->drop(t);
    /* a host that takes the connection and then says nothing is as lost as one that does not */
    if (!s->is_lost) {
        s->is_lost = true;
        s->broken_s = clock_now_s();
        if (w->f->sink->link)
            w->f->sink->link(w->f->sink->ctx, w->fan->v[i].label, false, why->msg);
    }
    s->why = *why;
    s->state = STREAM_BROKEN;
    s->retry_at_s = clock_now_s() + RETRY_S;
}

/* It speaks. */
static void find_again(struct following *w, size_t i)
{
    if (w->v[i].is_lost && w->f->sink->link)
        w->f->sink->link(w->f->sink->ctx, w->fan->v[i].label, true, "");
    w->v[i].is_lost = false;
}

/* What the command printed since the last step. */
static enum rc take_messages(struct following *w, size_t i, struct err *e)
{
    struct stream *s = &w->v[i];
    struct json *v;
    while (s->exec.out.len) {
        size_t n = s->exec.out.len < (32 << 10) ? s->exec.out.len : (32 << 10);
        talk_stream_feed(&s->messages, str_text(&s->exec.out), n);
        str_drop(&s->exec.out, n);
        s->heard_s = clock_now_s();
        find_again(w, i);
        for (;;) {
            enum rc rc = talk_stream_take(&s->messages, &v, e);
            if (rc)
                return rc;
            if (!v)
                break;
            if (msg_is(v, "error"))
                rc = err_set(e, RC_NODE, "%.400s", json_str(v, "message", "the agent failed"));
            else
                took_message(w, i, v);
            json_free(v);
            if (rc)
                return rc;
        }
    }
    return RC_OK;
}

static void step_connected(struct following *w, size_t i)
{
    struct stream *s = &w->v[i];
    struct transport *t = w->fan->v[i].t;
    struct err e = ERR_INIT;
    if (!s->exec.command)
        begin_stream(w, i);
    enum progress p = t->ops->exec(t, &s->exec, &e);
    enum rc rc = take_messages(w, i, &e);
    if (s->state == STREAM_OVER) {
        end_stream(s);
        t->ops->drop(t);
        return;
    }
    if (p == PROGRESS_DONE && !rc)
        rc = err_set(&e, RC_NODE, "the stream ended (status %d)", s->exec.status);
    if (p == PROGRESS_WAIT && !rc && clock_now_s() - s->heard_s > SILENT_S)
        rc = err_set(&e, RC_NETWORK, "nothing was heard for %.0f s", SILENT_S);
    if (rc || p == PROGRESS_FAILED)
        break_stream(w, i, &e);
}

static void step_connecting(struct following *w, size_t i)
{
    struct stream *s = &w->v[i];
    struct transport *t = w->fan->v[i].t;
    struct err e = ERR_INIT;
    enum progress p = t->ops->connect(t, &e);
    if (p == PROGRESS_WAIT && clock_now_s() - s->connect_s > CONNECT_S) {
        err_set(&e, RC_NODE, "no answer");
        p = PROGRESS_FAILED;
    }
    if (p == PROGRESS_FAILED) {
        break_stream(w, i, &e);
    } else if (p == PROGRESS_DONE) {
        s->state = STREAM_CONNECTED;
    }
}

static bool is_done(struct following *w)
{
    bool is_caught_up = true;
    for (size_t i = 0; i < w->fan->count; i++) {
        const struct stream *s = &w->v[i];
        is_caught_up &= s->is_caught_up || s->state == STREAM_BROKEN;
    }
    if (w->failed || (w->f->stops_when_caught_up && is_caught_up && w->v[0].is_caught_up))
        return true;
    /* members end a moment later than the coordinator; those that cannot be reached are left */
    bool are_over = w->over_s > 0;
    for (size_t i = 1; i < w->fan->count; i++)
        are_over &= w->v[i].state == STREAM_OVER || clock_now_s() - w->over_s > 5;
    return are_over;
}

static bool has_given_up(struct following *w, struct err *e)
{
    double now_s = clock_now_s();
    double patience_s = w->f->unreachable_s > 0 ? w->f->unreachable_s : UNREACHABLE_S;
    const struct stream *s = &w->v[0];
    if (s->is_lost && now_s - s->broken_s > patience_s) {
        err_set(e, RC_NODE, "host '%s' could not be reached for %.0f s (%s); the run may go on",
            w->fan->v[0].label, patience_s, s->why.msg);
        return true;
    }
    if (w->f->timeout_s > 0 && now_s - w->start_s > w->f->timeout_s) {
        err_set(e, RC_NOT_FINISHED, "run %s is not finished after %.0f s", w->c->info.id,
            w->f->timeout_s);
        return true;
    }
    return false;
}

static enum progress step(void *ctx, size_t i, struct err *e)
{
    struct following *w = ctx;
    struct stream *s = &w->v[i];
    if (i == 0 && has_given_up(w, e))
        w->failed = e->code, w->failed_why = *e;
    if (is_done(w))
        return PROGRESS_DONE;
    switch (s->state) {
    case STREAM_CONNECTED:
        step_connected(w, i);
        break;
    case STREAM_BROKEN:
        if (clock_now_s() >= s->retry_at_s) {
            s->state = STREAM_CONNECTING;
            s->connect_s = clock_now_s();
        }
        break;
    case STREAM_CONNECTING:
        step_connecting(w, i);
        break;
    case STREAM_OVER:
        break;
    }
    if (clock_now_s() - w->saved_s > OFFSETS_EVERY_S)
        save_offsets(w);
    return is_done(w) ? PROGRESS_DONE : PROGRESS_WAIT;
}

/* Hosts that could not be reached at first are tried again like broken ones. */
static void begin(struct following *w)
{
    for (size_t i = 0; i < w->fan->count; i++) {
        struct err why = w->fan->v[i].err;
        w->fan->v[i].err = (struct err)ERR_INIT;
        if (why.code)
            break_stream(w, i, &why);
    }
}

enum rc client_follow(struct client *c, const struct client_follow *f, struct err *e)
{
    enum rc rc = client_connect(c, e);
    if (rc)
        return rc;
    struct following w = {.c = c, .f = f, .fan = session_fan(c->session), .lock_fd = -1};
    struct err ignored = ERR_INIT;
    int fanout = w.fan->fanout;
    w.v = base_calloc(w.fan->count, sizeof(*w.v));
    w.start_s = clock_now_s();
    take_lock(&w);
    load_offsets(&w);
    cut_copies(&w);
    begin(&w);
    w.fan->fanout = (int)w.fan->count; /* they are connected already: all at once */
    rc = fan_run(w.fan, "following the run", step, &w, 0, &ignored);
    w.fan->fanout = fanout;
    save_offsets(&w);
    for (size_t i = 0; i < w.fan->count; i++) {
        end_stream(&w.v[i]);
        json_free(w.v[i].offsets);
    }
    free(w.v);
    str_release(&w.log_lines);
    json_free(w.sizes);
    if (w.lock_fd >= 0)
        close(w.lock_fd);
    session_close(c->session); /* streams may still be in the middle of it */
    c->session = NULL;
    if (w.failed) {
        *e = w.failed_why;
        return w.failed;
    }
    if (rc == RC_INTERRUPTED)
        *e = ignored;
    return rc == RC_INTERRUPTED ? rc : RC_OK;
}
