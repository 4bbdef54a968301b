#include "engine/agent_coordinator.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "base/units.h"
#include "run/message.h"
#include "run/spec.h"

/* A closed connection (the agent's process is gone) counts as lost sooner than a silent one: the
 * other side is reachable, it would have come back. */
static const double CLOSED_LOST_S = 5, END_SLACK_S = 20, OURS_AFTER_S = 0.9;

enum phase { PHASE_JOINING, PHASE_RUNNING, PHASE_ENDING, PHASE_OVER };
enum node_state { NODE_WAITING, NODE_JOINED, NODE_DONE, NODE_LOST };

struct node {
    enum node_state state;
    double heard_s;
    double closed_s; /* when its connection closed; 0: open */
};

struct rank_info {
    int64_t port; /* 0: not listening yet */
    bool is_finished, is_stopped, is_failed, is_exited;
};

struct coord {
    const struct run_spec *spec;
    const struct coord_ops *ops;
    void *ctx;
    enum phase phase;
    struct node *nodes;
    struct rank_info *ranks;
    size_t rank_count;
    double started_s, started_wall_s, ended_s;
    double ending_since_s, end_deadline_s; /* in PHASE_ENDING */
    double first_finish_s;                 /* 0: nobody finished yet */
    enum run_state outcome;                /* RUN_RUNNING until decided */
    char reason[300];
    size_t killed_count; /* ranks that did not go by themselves in the time given */
    bool has_failure;
    struct record_failure failure;
    int64_t step, checkpoint_step;
    struct json *checkpoint; /* the newest, as status says it; NULL before */
    struct json *metrics;    /* last record */
    struct json *memory;     /* what rank 0 told of it; NULL before */
    struct json *evaluation; /* the last one; NULL before */
    struct json *paths;      /* ways of the collectives, as rank 0 told; NULL before */
    struct json *disk;       /* what rank 0 told of it; NULL where nothing is kept there */
};

struct coord *coord_new(const struct run_spec *spec, const struct coord_ops *ops, void *ctx,
    double now_s, double wall_s)
{
    struct coord *c = base_calloc(1, sizeof(*c));
    c->spec = spec;
    c->ops = ops;
    c->ctx = ctx;
    c->rank_count = (size_t)run_spec_ranks(spec);
    c->nodes = base_calloc(spec->host_count, sizeof(*c->nodes));
    c->ranks = base_calloc(c->rank_count, sizeof(*c->ranks));
    c->started_s = now_s;
    c->started_wall_s = wall_s;
    c->outcome = RUN_RUNNING;
    c->step = c->checkpoint_step = -1;
    for (size_t i = 0; i < spec->host_count; i++)
        c->nodes[i].heard_s = now_s;
    return c;
}

void coord_free(struct coord *c)
{
    if (!c)
        return;
    json_free(c->checkpoint);
    json_free(c->metrics);
    json_free(c->memory);
    json_free(c->evaluation);
    json_free(c->paths);
    json_free(c->disk);
    free(c->nodes);
    free(c->ranks);
    free(c);
}

/* --- saying --- */

static const char *host_name(const struct coord *c, size_t host)
{
    return c->spec->hosts[host].name;
}

static void log_event(struct coord *c, const char *name, const char *host, const char *text)
{
    struct json *v = json_obj();
    json_add_str(v, "event", name);
    if (host)
        json_add_str(v, "host", host);
    if (text)
        json_add_str(v, "message", text);
    c->ops->log(c->ctx, v);
    json_free(v);
}

static void send_all(struct coord *c, struct json *message)
{
    for (size_t i = 0; i < c->spec->host_count; i++)
        if (c->nodes[i].state == NODE_JOINED || c->nodes[i].state == NODE_DONE)
            c->ops->send(c->ctx, i, message);
    json_free(message);
}

static void send_one(struct coord *c, size_t host, struct json *message)
{
    c->ops->send(c->ctx, host, message);
    json_free(message);
}

/* Grace that is left for a stop under way. */
static struct json *stop_message(const struct coord *c, double now_s)
{
    struct json *message = msg_new("stop");
    double left_s = c->end_deadline_s - END_SLACK_S - now_s;
    json_add_num(message, "grace_s", left_s > 0 ? left_s : 0);
    return message;
}

static void send_peers_to(struct coord *c, size_t host)
{
    for (size_t first = 0; first < c->rank_count; first += MSG_PEERS) {
        struct json *message = msg_new("peers"), *peers = json_arr();
        json_add_int(message, "first", (int64_t)first);
        for (size_t r = first; r < c->rank_count && r < first + MSG_PEERS; r++) {
            const char *address = c->spec->hosts[run_spec_host_of(c->spec, (int64_t)r)].address;
            char *text = base_printf(strchr(address, ':') ? "[%s]:%lld" : "%s:%lld", address,
                (long long)c->ranks[r].port);
            json_push_str(peers, text);
            free(text);
        }
        json_add(message, "peers", peers);
        c->ops->send(c->ctx, host, message);
        json_free(message);
    }
}

static struct json *end_message(struct coord *c, double now_s)
{
    struct json *message = coord_status(c, now_s);
    json_add_str(message, "type", "end");
    return message;
}

/* --- ending --- */

static void begin_end(struct coord *c, double patience_s, double now_s)
{
    c->phase = PHASE_ENDING;
    c->ending_since_s = now_s;
    c->end_deadline_s = now_s + patience_s + END_SLACK_S;
}

static void note_failure(struct coord *c, const struct record_failure *f)
{
    struct json *v = record_failure_to_json(f);
    json_add_str(v, "event", "failure");
    c->ops->log(c->ctx, v);
    json_free(v);
    /* the first failure that follows from no other one is the cause */
    if (c->has_failure && (!c->failure.is_consequence || f->is_consequence))
        return;
    c->failure = *f;
    c->has_failure = true;
}

static void fail(struct coord *c, const struct record_failure *f, double now_s)
{
    note_failure(c, f);
    if (c->phase >= PHASE_ENDING)
        return;
    c->outcome = RUN_FAILED;
    begin_end(c, 0, now_s);
    send_all(c, msg_new("abort"));
}

static void fail_host(
    struct coord *c, size_t host, const char *code, double now_s, const char *message)
{
    struct record_failure f = {.rank = -1};
    str_copy(f.host, sizeof(f.host), host_name(c, host));
    str_copy(f.code, sizeof(f.code), code);
    str_copy(f.message, sizeof(f.message), message);
    fail(c, &f, now_s);
}

void coord_stop(struct coord *c, double grace_s, const char *reason, double now_s)
{
    if (c->phase >= PHASE_ENDING)
        return;
    c->outcome = RUN_CANCELLED;
    str_copy(c->reason, sizeof(c->reason), reason);
    log_event(c, "stop", NULL, reason);
    begin_end(c, grace_s, now_s);
    send_all(c, stop_message(c, now_s));
}

void coord_checkpoint(struct coord *c)
{
    if (c->phase == PHASE_RUNNING)
        send_all(c, msg_new("checkpoint"));
}

/* --- nodes --- */

void coord_heard(struct coord *c, size_t host, double now_s)
{
    c->nodes[host].heard_s = now_s;
}

void coord_joined(struct coord *c, size_t host, double now_s)
{
    struct node *n = &c->nodes[host];
    n->heard_s = now_s;
    n->closed_s = 0;
    if (n->state == NODE_LOST)
        return; /* too late: its ranks are given up; the end message tells it */
    bool is_back = n->state != NODE_WAITING;
    log_event(c, is_back ? "joined again" : "joined", host_name(c, host), NULL);
    if (!is_back)
        n->state = NODE_JOINED;
    if (c->phase == PHASE_RUNNING)
        send_peers_to(c, host);
    else if (c->phase == PHASE_ENDING) /* it may have missed the word to end */
        send_one(c, host, c->outcome == RUN_FAILED ? msg_new("abort") : stop_message(c, now_s));
}

void coord_closed(struct coord *c, size_t host, double now_s)
{
    if (!c->nodes[host].closed_s)
        c->nodes[host].closed_s = now_s;
}

static void lose(struct coord *c, size_t host, double now_s, const char *how)
{
    char *text = base_printf("host '%s' was lost: %s", host_name(c, host), how);
    c->nodes[host].state = NODE_LOST;
    log_event(c, "lost", host_name(c, host), how);
    fail_host(c, host, "host-lost", now_s, text);
    free(text);
}

static void check_nodes(struct coord *c, double now_s)
{
    const struct run_deadlines *d = &c->spec->deadlines;
    for (size_t i = 0; i < c->spec->host_count; i++) {
        const struct node *n = &c->nodes[i];
        char how[80];
        if (n->state != NODE_JOINED)
            continue;
        double closed_s = CLOSED_LOST_S < d->lost_s ? CLOSED_LOST_S : d->lost_s;
        if (n->closed_s && now_s - n->closed_s > closed_s) {
            lose(c, i, now_s, "its agent closed the connection and did not come back");
        } else if (now_s - n->heard_s > d->lost_s) {
            snprintf(how, sizeof(how), "nothing was heard of it for %.0f s", now_s - n->heard_s);
            lose(c, i, now_s, how);
        }
    }
}

/* --- ranks --- */

static void begin_running(struct coord *c)
{
    for (size_t r = 0; r < c->rank_count; r++)
        if (!c->ranks[r].port)
            return;
    c->phase = PHASE_RUNNING;
    log_event(c, "running", NULL, NULL);
    for (size_t i = 0; i < c->spec->host_count; i++)
        if (c->nodes[i].state == NODE_JOINED)
            send_peers_to(c, i);
}

static void rank_listens(struct coord *c, struct rank_info *rank, const struct json *event)
{
    int64_t port = json_int(event, "port", 0);
    if (port < 1 || port > 65535)
        return;
    rank->port = port;
    if (c->phase == PHASE_JOINING)
        begin_running(c);
}

static void rank_fails(
    struct coord *c, size_t host, int64_t number, const struct json *event, double now_s)
{
    struct record_failure f;
    c->ranks[number].is_failed = true;
    record_failure_from_json(&f, event);
    f.rank = number;
    str_copy(f.host, sizeof(f.host), host_name(c, host));
    if (!f.code[0])
        str_copy(f.code, sizeof(f.code), "failed");
    if (!f.message[0])
        snprintf(f.message, sizeof(f.message), "rank %lld on host '%s' failed without saying why",
            (long long)number, host_name(c, host));
    fail(c, &f, now_s);
}

/* A rank is gone that had not said goodbye. */
static void rank_vanished(
    struct coord *c, size_t host, int64_t number, const struct json *event, double now_s)
{
    struct record_failure f = {.rank = number};
    int64_t signal = json_int(event, "signal", 0);
    struct record_failure foreign; /* only for its safe text */
    struct json *line = json_obj();
    json_add_str(line, "message", json_str(event, "last_line", ""));
    record_failure_from_json(&foreign, line);
    json_free(line);
    str_copy(f.host, sizeof(f.host), host_name(c, host));
    str_copy(f.code, sizeof(f.code), signal ? "killed" : "exited");
    if (signal)
        snprintf(f.message, sizeof(f.message),
            "rank %lld on host '%s' was killed by signal %lld%s%.300s", (long long)number,
            host_name(c, host), (long long)signal, foreign.message[0] ? "; its last line: " : "",
            foreign.message);
    else
        snprintf(f.message, sizeof(f.message),
            "rank %lld on host '%s' exited with status %lld%s%.300s", (long long)number,
            host_name(c, host), (long long)json_int(event, "exit_code", -1),
            foreign.message[0] ? "; its last line: " : "", foreign.message);
    fail(c, &f, now_s);
}

static void rank_exited(
    struct coord *c, size_t host, int64_t number, const struct json *event, double now_s)
{
    struct rank_info *rank = &c->ranks[number];
    bool is_known = rank->is_exited || rank->is_failed; /* repeated, or it said why before */
    bool is_clean =
        (rank->is_finished || rank->is_stopped) && json_int(event, "exit_code", -1) == 0;
    rank->is_exited = true;
    /* from a second behind the word to end, it is us who end ranks */
    bool is_ours = c->phase >= PHASE_ENDING && now_s - c->ending_since_s > OURS_AFTER_S;
    if (!is_clean && !is_known && !is_ours)
        rank_vanished(c, host, number, event, now_s);
    if (!is_clean && !is_known && is_ours)
        c->killed_count++;
}

static void rank_ended(
    struct coord *c, struct rank_info *rank, const struct json *event, bool is_finish, double now_s)
{
    int64_t step = json_int(event, "step", -1);
    rank->is_finished |= is_finish;
    rank->is_stopped |= !is_finish;
    if (step > c->step)
        c->step = step;
    if (is_finish && !c->first_finish_s)
        c->first_finish_s = now_s;
}

static void took_step(struct coord *c, const struct json *event)
{
    struct record_metrics m;
    if (record_metrics_from_json(&m, event, NULL))
        return;
    c->step = m.step;
    json_free(c->metrics);
    c->metrics = record_metrics_to_json(&m);
}

static void took_checkpoint(struct coord *c, const struct json *event)
{
    int64_t step = json_int(event, "step", -1);
    if (step < c->checkpoint_step)
        return;
    c->checkpoint_step = step;
    json_free(c->checkpoint);
    c->checkpoint = json_obj();
    json_add_int(c->checkpoint, "step", step);
    json_add_bool(
        c->checkpoint, "survives_host_loss", json_bool(event, "survives_host_loss", false));
    static const char *const keys[] = {"bytes", "seconds", "stall_seconds", "merged_requests"};
    for (size_t i = 0; i < BASE_COUNT(keys); i++)
        if (json_num(event, keys[i], -1) >= 0)
            json_add(c->checkpoint, keys[i], json_clone(json_get(event, keys[i])));
    struct json *v = json_clone(c->checkpoint);
    json_add_str(v, "event", "checkpoint");
    c->ops->log(c->ctx, v);
    json_free(v);
}

/* Where an attempt begins, and what was wrong with a newer checkpoint, if anything. */
static void took_resumed(struct coord *c, const struct json *event)
{
    struct json *v = json_obj();
    json_add_str(v, "event", "resumed");
    json_add_int(v, "step", json_int(event, "step", 0));
    const char *message = json_str(event, "message", NULL);
    char *safe = message ? text_safe(message) : NULL;
    if (safe)
        json_add_str(v, "message", safe);
    free(safe);
    c->ops->log(c->ctx, v);
    json_free(v);
}

static void took_evaluation(struct coord *c, const struct json *event)
{
    static const char *const keys[] = {"loss", "tokens", "seconds"};
    json_free(c->evaluation);
    c->evaluation = json_obj();
    json_add_int(c->evaluation, "step", json_int(event, "step", -1));
    for (size_t i = 0; i < BASE_COUNT(keys); i++)
        json_add_num(c->evaluation, keys[i], json_num(event, keys[i], NAN));
    struct json *v = json_clone(c->evaluation);
    json_add_str(v, "event", "evaluation");
    c->ops->log(c->ctx, v);
    json_free(v);
}

static void took_rollback(struct coord *c, const struct json *event)
{
    struct json *v = json_obj();
    c->step = json_int(event, "step", c->step);
    json_add_str(v, "event", "rollback");
    json_add_int(v, "step", c->step);
    json_add_int(v, "from_step", json_int(event, "from_step", -1));
    c->ops->log(c->ctx, v);
    json_free(v);
}

/* Every rank tells its memory once; rank 0's is shown, that of each is in its log. */
static void took_memory(struct coord *c, const struct json *event)
{
    static const char *const keys[] = {"slab_bytes", "host_slab_bytes", "external_bytes",
        "planned_external_bytes", "checkpoint_bytes", "planned_checkpoint_bytes"};
    json_free(c->memory);
    c->memory = json_obj();
    for (size_t i = 0; i < BASE_COUNT(keys); i++) {
        int64_t bytes = json_int(event, keys[i], -1);
        if (bytes >= 0)
            json_add_int(c->memory, keys[i], bytes);
    }
    struct json *v = json_clone(c->memory);
    json_add_str(v, "event", "memory");
    json_add_int(v, "rank", 0);
    c->ops->log(c->ctx, v);
    json_free(v);
}

static void took_disk(struct coord *c, const struct json *event)
{
    json_free(c->disk);
    c->disk = json_obj();
    json_add_int(c->disk, "bytes", json_int(event, "bytes", 0));
    json_add_int(c->disk, "written_bytes_per_step", json_int(event, "written_bytes_per_step", 0));
    json_add_num(c->disk, "bytes_per_s", json_num(event, "bytes_per_s", NAN));
    json_add_str(c->disk, "way", json_str(event, "way", ""));
    struct json *v = json_clone(c->disk);
    json_add_str(v, "event", "disk");
    json_add_int(v, "rank", 0);
    c->ops->log(c->ctx, v);
    json_free(v);
}

static void took_paths(struct coord *c, const struct json *event)
{
    static const char *const keys[] = {"world", "shard", "replica", "note"};
    json_free(c->paths);
    c->paths = json_obj();
    for (size_t i = 0; i < BASE_COUNT(keys); i++)
        json_add_str(c->paths, keys[i], json_str(event, keys[i], ""));
    struct json *v = json_clone(c->paths);
    json_add_str(v, "event", "paths");
    json_add_int(v, "rank", 0);
    c->ops->log(c->ctx, v);
    json_free(v);
}

static void took_empty(struct coord *c, size_t host)
{
    if (c->nodes[host].state == NODE_JOINED)
        c->nodes[host].state = NODE_DONE;
}

void coord_event(struct coord *c, size_t host, const struct json *event, double now_s)
{
    const char *name = json_str(event, "event", "");
    int64_t number = json_int(event, "rank", -1);
    coord_heard(c, host, now_s);
    if (strcmp(name, "empty") == 0) {
        took_empty(c, host);
        return;
    }
    const struct run_host *h = &c->spec->hosts[host];
    if (number < h->first_rank || number >= h->first_rank + h->ranks)
        return; /* a node speaks for its own ranks only */
    struct rank_info *rank = &c->ranks[number];
    if (strcmp(name, "listening") == 0)
        rank_listens(c, rank, event);
    else if (strcmp(name, "step") == 0)
        took_step(c, event);
    else if (strcmp(name, "checkpoint") == 0)
        took_checkpoint(c, event);
    else if (strcmp(name, "rollback") == 0 && number == 0)
        took_rollback(c, event);
    else if (strcmp(name, "resumed") == 0 && number == 0)
        took_resumed(c, event);
    else if (strcmp(name, "evaluation") == 0 && number == 0)
        took_evaluation(c, event);
    else if (strcmp(name, "memory") == 0 && number == 0)
        took_memory(c, event);
    else if (strcmp(name, "disk") == 0 && number == 0)
        took_disk(c, event);
    else if (strcmp(name, "paths") == 0 && number == 0)
        took_paths(c, event);
    else if (strcmp(name, "failed") == 0)
        rank_fails(c, host, number, event, now_s);
    else if (strcmp(name, "finished") == 0)
        rank_ended(c, rank, event, true, now_s);
    else if (strcmp(name, "stopped") == 0)
        rank_ended(c, rank, event, false, now_s);
    else if (strcmp(name, "exited") == 0)
        rank_exited(c, host, number, event, now_s);
}

/* --- time --- */

static void check_rendezvous(struct coord *c, double now_s)
{
    if (c->phase != PHASE_JOINING || now_s - c->started_s < c->spec->deadlines.rendezvous_s)
        return;
    for (size_t i = 0; i < c->spec->host_count; i++) {
        if (c->nodes[i].state != NODE_WAITING)
            continue;
        char *text = base_printf("host '%s' did not reach the coordinator on host '%s' (%s) within "
                                 "%.0f s; a firewall between them?",
            host_name(c, i), host_name(c, 0), c->spec->hosts[0].address,
            c->spec->deadlines.rendezvous_s);
        fail_host(c, i, "rendezvous", now_s, text);
        free(text);
        return;
    }
    for (size_t r = 0; r < c->rank_count; r++) {
        if (c->ranks[r].port)
            continue;
        size_t host = run_spec_host_of(c->spec, (int64_t)r);
        char *text = base_printf("rank %zu on host '%s' was not ready within %.0f s", r,
            host_name(c, host), c->spec->deadlines.rendezvous_s);
        fail_host(c, host, "rendezvous", now_s, text);
        free(text);
        return;
    }
}

static void check_finish(struct coord *c, double now_s)
{
    size_t finished = 0, late = 0;
    for (size_t r = 0; r < c->rank_count; r++) {
        finished += c->ranks[r].is_finished;
        late = c->ranks[r].is_finished ? late : r;
    }
    if (c->phase != PHASE_RUNNING || !finished)
        return;
    if (finished == c->rank_count) {
        c->outcome = RUN_FINISHED;
        log_event(c, "all ranks finished", NULL, NULL);
        begin_end(c, 0, now_s);
    } else if (now_s - c->first_finish_s > c->spec->deadlines.finish_s) {
        size_t host = run_spec_host_of(c->spec, (int64_t)late);
        char *text = base_printf("rank %zu on host '%s' did not finish within %.0f s of the first",
            late, host_name(c, host), c->spec->deadlines.finish_s);
        fail_host(c, host, "timeout", now_s, text);
        free(text);
    }
}

static int64_t cost_micro_usd(const struct coord *c, double now_s)
{
    double wall_s = c->started_wall_s + ((c->ended_s ? c->ended_s : now_s) - c->started_s);
    return run_money_cost(&c->spec->limits.money, wall_s);
}

static void check_limits(struct coord *c, double now_s)
{
    const struct run_limits *l = &c->spec->limits;
    char text[UNITS_TEXT], reason[128];
    if (c->phase != PHASE_RUNNING)
        return;
    if (l->max_s > 0 && l->spent_s + now_s - c->started_s >= l->max_s) {
        snprintf(reason, sizeof(reason), "its time limit of %s was reached",
            units_seconds(text, l->max_s));
        coord_stop(c, c->spec->deadlines.grace_s, reason, now_s);
    } else if (l->max_micro_usd > 0 && cost_micro_usd(c, now_s) >= l->max_micro_usd) {
        snprintf(reason, sizeof(reason), "its spending limit of %s was reached",
            units_usd(text, l->max_micro_usd));
        coord_stop(c, c->spec->deadlines.grace_s, reason, now_s);
    }
}

static bool are_all_done(const struct coord *c)
{
    for (size_t i = 0; i < c->spec->host_count; i++)
        if (c->nodes[i].state == NODE_JOINED)
            return false;
    return true;
}

/* Ranks that all went without anybody asking, and none of them failed: stopped from outside. */
static void check_abandoned(struct coord *c, double now_s)
{
    if (c->phase != PHASE_RUNNING || !are_all_done(c))
        return;
    coord_stop(c, 0, "its ranks were stopped on the nodes", now_s);
}

/* The last event of an attempt: what came of it. */
static void log_summary(struct coord *c, double now_s)
{
    struct json *v = json_obj();
    int64_t cost = cost_micro_usd(c, now_s), tokens = json_int(c->metrics, "tokens", -1);
    json_add_str(v, "event", "summary");
    json_add_str(v, "outcome", run_state_name(c->outcome));
    if (c->step >= 0)
        json_add_int(v, "step", c->step);
    json_add_int(v, "steps", c->spec->steps);
    json_add_num(v, "loss", json_num(c->metrics, "loss", NAN));
    if (tokens >= 0)
        json_add_int(v, "tokens", tokens);
    json_add_num(v, "wall_seconds", c->ended_s - c->started_s);
    json_add_num(v, "cost_usd", cost < 0 ? NAN : (double)cost / USD_MICRO);
    c->ops->log(c->ctx, v);
    json_free(v);
}

static void check_end(struct coord *c, double now_s)
{
    if (c->phase != PHASE_ENDING)
        return;
    if (!are_all_done(c) && now_s < c->end_deadline_s)
        return;
    for (size_t i = 0; i < c->spec->host_count; i++)
        if (c->nodes[i].state == NODE_JOINED)
            log_event(c, "not ended", host_name(c, i), "its ranks may still be running");
    c->phase = PHASE_OVER;
    c->ended_s = now_s;
    if (c->outcome == RUN_CANCELLED && c->killed_count) {
        size_t n = strlen(c->reason);
        snprintf(c->reason + n, sizeof(c->reason) - n,
            "; %zu of its ranks did not save in the time given and were killed", c->killed_count);
    }
    const char *why = c->outcome == RUN_FAILED ? c->failure.message : c->reason;
    log_event(c, run_state_name(c->outcome), NULL, *why ? why : NULL);
    log_summary(c, now_s);
    send_all(c, end_message(c, now_s));
}

double coord_tick(struct coord *c, double now_s)
{
    if (c->phase == PHASE_OVER)
        return 1;
    check_nodes(c, now_s);
    check_rendezvous(c, now_s);
    check_finish(c, now_s);
    check_abandoned(c, now_s);
    check_limits(c, now_s);
    check_end(c, now_s);
    return 0.25;
}

/* --- telling --- */

bool coord_is_over(const struct coord *c)
{
    return c->phase == PHASE_OVER;
}

enum run_state coord_state(const struct coord *c)
{
    return c->phase == PHASE_OVER ? c->outcome : RUN_RUNNING;
}

static struct json *hosts_status(const struct coord *c, double now_s)
{
    static const char *const words[] = {"waiting", "joined", "done", "lost"};
    struct json *arr = json_arr();
    for (size_t i = 0; i < c->spec->host_count; i++) {
        struct json *o = json_obj();
        json_add_str(o, "name", host_name(c, i));
        json_add_int(o, "node", c->spec->hosts[i].node);
        json_add_str(o, "state", words[c->nodes[i].state]);
        json_add_num(o, "silent_s", now_s - c->nodes[i].heard_s);
        json_push(arr, o);
    }
    return arr;
}

static void add_time(struct json *o, const char *key, double wall_s)
{
    char buf[CLOCK_TEXT];
    json_add_str(o, key, clock_rfc3339(buf, wall_s));
}

struct json *coord_status(const struct coord *c, double now_s)
{
    static const char *const phases[] = {"joining", "running", "ending", "over"};
    struct json *o = json_obj();
    double end_s = c->ended_s ? c->ended_s : now_s;
    json_add_str(o, "state", run_state_name(coord_state(c)));
    json_add_str(o, "phase", phases[c->phase]);
    json_add_str(o, "reason", c->reason[0] ? c->reason : NULL);
    json_add(o, "failure",
        c->has_failure && c->outcome == RUN_FAILED ? record_failure_to_json(&c->failure) : NULL);
    if (c->step >= 0)
        json_add_int(o, "step", c->step);
    json_add_int(o, "steps", c->spec->steps);
    json_add(o, "checkpoint", c->checkpoint ? json_clone(c->checkpoint) : NULL);
    add_time(o, "started_at", c->started_wall_s);
    if (c->ended_s)
        add_time(o, "ended_at", c->started_wall_s + end_s - c->started_s);
    json_add_num(o, "elapsed_s", end_s - c->started_s);
    int64_t cost = cost_micro_usd(c, now_s);
    json_add_num(o, "cost_usd", cost < 0 ? NAN : (double)cost / USD_MICRO);
    json_add(o, "metrics", c->metrics ? json_clone(c->metrics) : NULL);
    json_add(o, "memory", c->memory ? json_clone(c->memory) : NULL);
    json_add(o, "evaluation", c->evaluation ? json_clone(c->evaluation) : NULL);
    if (c->disk)
        json_add(o, "disk", json_clone(c->disk));
    if (c->paths)
        json_add(o, "paths", json_clone(c->paths));
    if (c->spec->host_count <= 100) /* more would not fit into a message */
        json_add(o, "hosts", hosts_status(c, now_s));
    return o;
}
