#include "launcher/client.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "base/units.h"
#include "launcher/client_private.h"
#include "run/spec.h"

enum { ASK_TIMEOUT_S = 30, STOP_SLACK_S = 30 };

/* --- opening --- */

static enum rc load_hosts(struct client *c, struct err *e)
{
    struct json *v = NULL;
    char *path = run_dir_file(&c->info, RUN_USER_HOSTS);
    enum rc rc = json_read(&v, path, HOSTS_FILE_MAX_BYTES, e);
    if (!rc)
        rc = hosts_from_json(&c->hosts, v, path, e);
    if (!rc && c->hosts.count != c->info.node_count)
        rc = err_set(e, RC_INVALID, "'%s' does not list the hosts of run.json", path);
    json_free(v);
    free(path);
    return rc;
}

enum rc client_open(
    struct client **out, const char *run, const struct session_options *connect, struct err *e)
{
    struct client *c = base_calloc(1, sizeof(*c));
    *out = NULL;
    enum rc rc = run_dir_open(&c->info, run, e);
    if (!rc)
        rc = load_hosts(c, e);
    if (rc) {
        client_close(c);
        return rc;
    }
    c->connect = *connect;
    c->known = run_dir_file(&c->info, RUN_USER_KNOWN_HOSTS);
    c->connect.run_known_hosts = c->known;
    if (!c->connect.identity)
        c->connect.identity = c->info.identity;
    if (!c->connect.known_hosts)
        c->connect.known_hosts = c->info.known_hosts;
    if (!c->connect.ssh_config)
        c->connect.ssh_config = c->info.ssh_config;
    c->nodes = base_calloc(c->info.node_count, sizeof(*c->nodes));
    for (size_t i = 0; i < c->info.node_count; i++)
        c->nodes[i] = (struct talk_node){c->info.nodes[i].engine, c->info.nodes[i].dir};
    *out = c;
    return RC_OK;
}

void client_close(struct client *c)
{
    if (!c)
        return;
    session_close(c->session);
    session_close(c->all);
    hosts_release(&c->hosts);
    hosts_release(&c->all_hosts);
    free(c->all_nodes);
    run_info_release(&c->info);
    free(c->nodes);
    free(c->known);
    free(c);
}

struct run_info *client_info(struct client *c)
{
    return &c->info;
}

/* Its launcher got far enough for something to be on the nodes. */
static bool has_nodes(const struct client *c)
{
    for (size_t i = 0; i < c->info.node_count; i++)
        if (!c->info.nodes[i].engine || !c->info.nodes[i].dir)
            return false;
    return true;
}

static enum rc check_nodes_known(const struct client *c, struct err *e)
{
    if (has_nodes(c))
        return RC_OK;
    return err_set(e, RC_INVALID, "run %s never got as far as its nodes", c->info.id);
}

enum rc client_connect(struct client *c, struct err *e)
{
    enum rc rc = check_nodes_known(c, e);
    if (rc || c->session)
        return rc;
    return session_open(&c->session, &c->hosts, &c->connect, true, e);
}

static enum rc gather_all(struct client *c, struct err *e)
{
    const struct run_info *r = &c->info;
    struct json *doc = hosts_to_json(&c->hosts), *list = json_clone(json_get(doc, "hosts"));
    for (size_t i = 0; i < r->past_count; i++)
        json_push(list, json_clone(r->past[i].entry));
    enum rc rc = hosts_from_json(&c->all_hosts, list, RUN_USER_RUN, e);
    json_free(list);
    json_free(doc);
    if (rc)
        return rc;
    c->all_nodes = base_calloc(c->all_hosts.count, sizeof(*c->all_nodes));
    for (size_t i = 0; i < r->node_count; i++)
        c->all_nodes[i] = c->nodes[i];
    for (size_t i = 0; i < r->past_count; i++)
        c->all_nodes[r->node_count + i] = (struct talk_node){r->past[i].engine, r->past[i].dir};
    return RC_OK;
}

enum rc client_connect_all(struct client *c, struct everywhere *out, struct err *e)
{
    enum rc rc;
    if (!c->info.past_count) {
        rc = client_connect(c, e);
        if (!rc)
            *out = (struct everywhere){session_fan(c->session), c->nodes};
        return rc;
    }
    rc = check_nodes_known(c, e);
    if (!rc && !c->all_nodes)
        rc = gather_all(c, e);
    if (!rc && !c->all)
        rc = session_open(&c->all, &c->all_hosts, &c->connect, true, e);
    if (!rc)
        *out = (struct everywhere){session_fan(c->all), c->all_nodes};
    return rc;
}

/* --- what the run says of itself --- */

static char *dup_safe(const char *s)
{
    return s ? text_safe(s) : NULL;
}

enum rc client_note(struct client *c, const struct json *status, struct err *e)
{
    struct run_info *r = &c->info;
    enum run_state state = run_state_parse(json_str(status, "state", ""));
    if (run_state_is_final(r->state) && !run_state_is_final(state))
        return RC_OK; /* the end is written once and wins */
    r->state = state;
    free(r->reason);
    r->reason = dup_safe(json_str(status, "reason", NULL));
    r->has_failure = json_get(status, "failure") != NULL;
    record_failure_from_json(&r->failure, json_get(status, "failure"));
    double ended_s = clock_parse_rfc3339(json_str(status, "ended_at", ""));
    if (run_state_is_final(state))
        r->ended_wall_s = ended_s > 0 ? ended_s : clock_wall_s();
    json_free(r->status);
    r->status = json_clone(status);
    return run_dir_save(r, e);
}

/* An answer of the coordinator settles it; without one, a member that knows the end does. */
static const struct json *best_answer(struct json *const *answers, size_t count)
{
    if (answers[0] && json_bool(answers[0], "is_alive", false))
        return answers[0];
    for (size_t i = 0; i < count; i++)
        if (answers[i] && run_state_is_final(run_state_parse(json_str(answers[i], "state", ""))))
            return answers[i];
    return answers[0];
}

static void describe_silence(const struct client *c, struct str *why)
{
    const struct fan *fan = session_fan(c->session);
    for (size_t i = 0; i < fan->count; i++)
        if (fan->v[i].err.code)
            str_addf(
                why, "%shost '%s': %s", why->len ? "; " : "", fan->v[i].label, fan->v[i].err.msg);
}

static struct json *request_of(const char *type)
{
    return msg_new(type);
}

enum rc client_refresh(struct client *c, struct str *why, struct err *e)
{
    struct run_info *r = &c->info;
    if (run_state_is_final(r->state) || !has_nodes(c))
        return RC_OK;
    enum rc rc = client_connect(c, e);
    if (rc)
        return rc;
    struct json **answers = base_calloc(r->node_count, sizeof(*answers));
    struct json *request = request_of("status");
    struct err asked = ERR_INIT;
    rc = talk_ask_all(session_fan(c->session), c->nodes, "asking for the state", request, answers,
        ASK_TIMEOUT_S, &asked);
    const struct json *best = best_answer(answers, r->node_count);
    if (rc == RC_INTERRUPTED) {
        *e = asked;
    } else if (best) {
        rc = client_note(c, best, e);
    } else {
        describe_silence(c, why);
        r->state = RUN_UNKNOWN;
        rc = RC_OK;
    }
    for (size_t i = 0; i < r->node_count; i++)
        json_free(answers[i]);
    free(answers);
    json_free(request);
    return rc;
}

enum rc client_outcome(const struct run_info *r, struct err *e)
{
    switch (r->state) {
    case RUN_FINISHED:
        return RC_OK;
    case RUN_FAILED:
        return err_set(e, RC_RUN_FAILED, "run %s failed: %s", r->id,
            r->has_failure ? r->failure.message : "nobody said why");
    case RUN_CANCELLED:
        return err_set(e, RC_CANCELLED, "run %s was cancelled: %s", r->id,
            r->reason ? r->reason : "nobody said why");
    default:
        return err_set(
            e, RC_NOT_FINISHED, "run %s is not finished (%s)", r->id, run_state_name(r->state));
    }
}

int64_t client_cost_micro_usd(const struct run_info *r, double now_wall_s)
{
    return run_money_cost(&r->money, r->ended_wall_s > 0 ? r->ended_wall_s : now_wall_s);
}

/* --- stopping --- */

/* Send stop to the coordinator, so that all ranks end in the same step; then to the others: those
 * it does not know yet would wait for it, and without it each has to end by itself. */
static enum rc send_stop(struct client *c, double grace_s, struct err *e)
{
    struct fan *fan = session_fan(c->session);
    struct json **answers = base_calloc(fan->count, sizeof(*answers));
    struct json **requests = base_calloc(fan->count, sizeof(*requests));
    struct json *request = request_of("stop");
    enum rc rc = RC_OK;
    json_add_num(request, "grace_s", grace_s);
    for (int pass = 0; pass < 2 && rc != RC_INTERRUPTED; pass++) {
        for (size_t i = 0; i < fan->count; i++)
            requests[i] = (i > 0) == (pass > 0) ? request : NULL;
        rc = talk_ask(fan, c->nodes, "asking the run to stop", requests, answers, ASK_TIMEOUT_S, e);
        for (size_t i = 0; i < fan->count; i++)
            json_free(answers[i]);
    }
    free(answers);
    free(requests);
    json_free(request);
    return rc == RC_INTERRUPTED ? rc : RC_OK;
}

static void report_left(
    const struct client *c, size_t i, const struct json *answer, struct str *out)
{
    const struct fan_host *h = &session_fan(c->session)->v[i];
    const struct run_node *n = &c->info.nodes[i];
    if (answer) {
        const struct json *left = json_get(answer, "left");
        str_addf(out, "host '%s': still there:", n->host);
        for (size_t k = 0; k < json_len(left); k++)
            str_addf(out, " %lld", (long long)json_int(json_at(left, k), "pid", 0));
        str_add(out, "\n");
        return;
    }
    struct talk_node node = {n->engine, n->dir};
    char *command = talk_command(&node);
    str_addf(out,
        "host '%s' may still be running it (%s); there: printf "
        "'{\"type\":\"hello\",\"protocol\":\"agent/1\"}\\n"
        "{\"type\":\"verify-gone\",\"kill\":true}\\n' | %s\n",
        n->host, h->err.code ? h->err.msg : "no answer", command);
    free(command);
}

/* Prove it. Whatever is left behind the grace time is killed. */
static enum rc verify_gone(struct client *c, double wait_s, struct str *report, struct err *e)
{
    struct fan *fan = session_fan(c->session);
    struct json **answers = base_calloc(fan->count, sizeof(*answers));
    struct json *request = request_of("verify-gone");
    struct err ignored = ERR_INIT;
    size_t bad = 0;
    json_add_num(request, "wait_s", wait_s);
    json_add_bool(request, "kill", true);
    enum rc rc = talk_ask_all(fan, c->nodes, "verifying that nothing is left", request, answers,
        wait_s + STOP_SLACK_S, &ignored);
    for (size_t i = 0; i < fan->count; i++) {
        if (!answers[i] || !json_bool(answers[i], "is_gone", false)) {
            report_left(c, i, answers[i], report);
            bad++;
        }
        json_free(answers[i]);
    }
    free(answers);
    json_free(request);
    if (rc == RC_INTERRUPTED)
        return err_set(
            e, RC_INTERRUPTED, "interrupted before it was proven that run %s is gone", c->info.id);
    if (bad)
        return err_set(e, RC_NODE, "run %s could not be proven to be gone on %zu of %zu hosts",
            c->info.id, bad, fan->count);
    return RC_OK;
}

static enum rc note_cancelled(struct run_info *r, const char *reason, struct err *e)
{
    r->state = RUN_CANCELLED;
    free(r->reason);
    r->reason = base_strdup(reason);
    r->ended_wall_s = clock_wall_s();
    return run_dir_save(r, e);
}

/* The nodes are quiet, but nobody told how it ended: the agents were dead already. */
static enum rc note_gone(struct client *c, struct err *e)
{
    struct run_info *r = &c->info;
    struct str why = STR_INIT;
    if (!run_state_is_final(r->state))
        client_refresh(c, &why, NULL);
    str_release(&why);
    if (!run_state_is_final(r->state))
        return note_cancelled(r, "it was stopped", e);
    return run_dir_save(r, e);
}

static enum rc stop(struct client *c, double grace_s, struct str *report, struct err *e)
{
    if (!has_nodes(c))
        return run_state_is_final(c->info.state)
                   ? RC_OK
                   : note_cancelled(&c->info, "it was stopped before it reached its nodes", e);
    enum rc rc = client_connect(c, e);
    if (rc)
        return rc;
    if (!run_state_is_final(c->info.state))
        rc = send_stop(c, grace_s, e);
    if (rc)
        return rc;
    /* the agents kill what overstays the grace; this waits a little longer than they do */
    rc = verify_gone(c, grace_s + 10, report, e);
    if (rc)
        return rc;
    return note_gone(c, e);
}

enum rc client_stop(struct client *c, double grace_s, struct str *report, struct err *e)
{
    int hold_fd;
    enum rc rc = run_dir_hold(&c->info, false, &hold_fd, e);
    if (!rc)
        rc = stop(c, grace_s, report, e);
    if (hold_fd >= 0)
        close(hold_fd);
    return rc;
}

/* --- cleaning --- */

static enum rc clean(struct client *c, struct err *e)
{
    struct everywhere w;
    if (!has_nodes(c) && !c->info.past_count)
        return RC_OK; /* nothing ever came there */
    enum rc rc = client_connect_all(c, &w, e);
    if (rc)
        return rc;
    struct json **answers = base_calloc(w.fan->count, sizeof(*answers));
    struct json *request = request_of("purge");
    rc = talk_ask_all(w.fan, w.nodes, "removing the run", request, answers, ASK_TIMEOUT_S, e);
    for (size_t i = 0; i < w.fan->count; i++) {
        json_free(answers[i]);
        if (w.fan->v[i].err.code == RC_NOT_FOUND) /* nothing is left there: as wanted */
            w.fan->v[i].err = (struct err)ERR_INIT;
    }
    free(answers);
    json_free(request);
    if (rc == RC_INTERRUPTED)
        return rc;
    *e = (struct err)ERR_INIT;
    return fan_first_error(w.fan, e);
}

enum rc client_clean(struct client *c, struct err *e)
{
    int hold_fd;
    enum rc rc = run_dir_hold(&c->info, false, &hold_fd, e);
    if (!rc)
        rc = clean(c, e);
    if (!rc) {
        c->info.is_cleaned = true;
        rc = run_dir_save(&c->info, e);
    }
    if (hold_fd >= 0)
        close(hold_fd);
    return rc;
}
