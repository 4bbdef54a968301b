/* A run shown on a terminal or in a log: following it, and its state in words. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"
#include "launcher/run_dir.h"

/* Without a terminal a line per step would drown everything else. */
static const double STEP_LINE_EVERY_S = 10;

struct showing {
    struct out *out;
    struct client *client;
    bool shows_logs;
    double line_at_s;
    struct str partial; /* log text behind the last line end */
    int64_t partial_rank;
};

/* --- following --- */

static void add_number(struct str *s, const char *fmt, double x)
{
    if (isfinite(x))
        str_addf(s, fmt, x);
}

static void show_metrics(void *ctx, const struct record_metrics *m, const char *line)
{
    struct showing *w = ctx;
    struct str s = STR_INIT;
    char text[UNITS_TEXT];
    const struct run_info *r = client_info(w->client);
    (void)line;
    double now_s = clock_now_s();
    if (!out_err_is_terminal(w->out) && now_s < w->line_at_s && m->step != r->steps)
        return;
    w->line_at_s = now_s + STEP_LINE_EVERY_S;
    str_addf(&s, "step %lld of %lld", (long long)m->step, (long long)r->steps);
    add_number(&s, "  loss %.4f", m->loss);
    if (isfinite(m->step_seconds))
        str_addf(&s, "  %s a step", units_seconds(text, m->step_seconds));
    if (isfinite(m->tokens_per_second))
        str_addf(&s, "  %s tokens/s", units_count(text, m->tokens_per_second));
    if (isfinite(m->mfu))
        str_addf(&s, "  MFU %.1f %%", 100 * m->mfu);
    if (isfinite(m->step_seconds) && m->step < r->steps)
        str_addf(
            &s, "  %s to go", units_seconds(text, m->step_seconds * (double)(r->steps - m->step)));
    out_progress(w->out, "%s", str_text(&s));
    str_release(&s);
}

static void show_checkpoint(struct out *out, const struct json *event)
{
    struct str s = STR_INIT;
    char a[UNITS_TEXT], b[UNITS_TEXT];
    double seconds = json_num(event, "seconds", NAN), stall = json_num(event, "stall_seconds", NAN);
    str_addf(&s, "checkpoint of step %lld (survives host loss: %s)",
        (long long)json_int(event, "step", 0),
        json_bool(event, "survives_host_loss", false) ? "yes" : "no");
    if (isfinite(seconds) && isfinite(stall))
        str_addf(&s, ", written in %s, training waited %s", units_seconds(a, seconds),
            units_seconds(b, stall));
    out_note(out, "%s", str_text(&s));
    str_release(&s);
}

static void show_event(void *ctx, const struct json *event)
{
    struct showing *w = ctx;
    const char *name = json_str(event, "event", "");
    if (json_int(event, "attempt", INT64_MAX) < client_info(w->client)->attempt)
        return; /* of an earlier attempt, copied only now */
    char *safe = text_safe(json_str(event, "message", ""));
    if (strcmp(name, "checkpoint") == 0)
        show_checkpoint(w->out, event);
    else if (strcmp(name, "resumed") == 0 && *safe)
        out_note(w->out, "%s", safe);
    else if (strcmp(name, "evaluation") == 0)
        out_note(w->out, "validation loss %.4f at step %lld", json_num(event, "loss", NAN),
            (long long)json_int(event, "step", 0));
    else if (strcmp(name, "rollback") == 0)
        out_note(w->out,
            "diverged at step %lld; back to the checkpoint of step %lld, with new data",
            (long long)json_int(event, "from_step", 0), (long long)json_int(event, "step", 0));
    else if (strcmp(name, "failure") == 0)
        out_note(w->out, "%s%s",
            json_bool(event, "is_consequence", false) ? "as a consequence: " : "", safe);
    else if (strcmp(name, "lost") == 0 || strcmp(name, "stop") == 0)
        out_note(w->out, "%s: %s", name, safe);
    free(safe);
}

static void show_link(void *ctx, const char *host, bool is_up, const char *why)
{
    struct showing *w = ctx;
    if (is_up)
        out_note(w->out, "host '%s' is back", host);
    else
        out_note(w->out, "lost the connection to host '%s' (%s); the run goes on, trying again",
            host, why);
}

static void print_log_line(struct out *out, int64_t rank, const char *text, size_t n)
{
    if (n && text[n - 1] == '\r')
        n--;
    char *line = strndup(text, n);
    if (!line)
        return;
    /* only what was drawn last on a line that redraws itself */
    const char *last = strrchr(line, '\r');
    out_printf(out, "rank %lld: ", (long long)rank);
    out_text(out, last ? last + 1 : line);
    out_printf(out, "\n");
    free(line);
}

static void show_log(void *ctx, int64_t rank, const char *host, const char *text)
{
    struct showing *w = ctx;
    (void)host;
    if (!w->shows_logs)
        return;
    out_progress_end(w->out);
    if (w->partial.len && w->partial_rank != rank) {
        print_log_line(w->out, w->partial_rank, str_text(&w->partial), w->partial.len);
        str_reset(&w->partial);
    }
    str_add(&w->partial, text);
    w->partial_rank = rank;
    for (;;) {
        const char *p = str_text(&w->partial), *nl = strchr(p, '\n');
        if (!nl)
            break;
        print_log_line(w->out, rank, p, (size_t)(nl - p));
        str_drop(&w->partial, (size_t)(nl + 1 - p));
    }
    out_flush(w->out);
}

static void say_goes_on(struct out *out, const struct run_info *r)
{
    out_progress_end(out);
    out_note(out,
        "run %s goes on on %zu node%s; `berth attach %s` shows it, `berth stop %s` ends it", r->id,
        r->node_count, r->node_count == 1 ? "" : "s", r->id, r->id);
}

enum rc run_show(struct client *c, const struct show_run *show, struct err *e)
{
    struct showing w = {.out = show->out, .client = c, .shows_logs = show->shows_logs};
    struct client_sink sink = {.log = show_log,
        .metrics = show_metrics,
        .event = show_event,
        .link = show_link,
        .ctx = &w};
    struct client_follow f = {.sink = &sink, .wants_logs = true, .timeout_s = show->timeout_s};
    enum rc rc = RC_OK;
    if (!run_state_is_final(client_info(c)->state))
        rc = client_follow(c, &f, e);
    if (w.partial.len)
        print_log_line(w.out, w.partial_rank, str_text(&w.partial), w.partial.len);
    str_release(&w.partial);
    out_progress_end(show->out);
    if (rc == RC_INTERRUPTED) {
        say_goes_on(show->out, client_info(c));
        e->msg[0] = '\0'; /* all was said */
        return rc;
    }
    if (rc)
        return rc;
    if (!out_is_json(show->out) && !out_is_quiet(show->out))
        run_summary(show->out, client_info(c));
    return client_outcome(client_info(c), e);
}

/* --- state --- */

/* Newest metrics: the coordinator's last word, else the last line that was copied. Caller frees. */
static struct json *last_metrics(const struct run_info *r)
{
    const struct json *known = json_get(r->status, "metrics");
    if (known)
        return json_clone(known);
    struct str s = STR_INIT;
    struct json *v = NULL;
    struct err ignored;
    char *path = run_dir_file(r, RUN_FILE_METRICS);
    if (!file_read(&s, path, STR_DEFAULT_MAX, &ignored) && s.len) {
        while (s.len && s.p[s.len - 1] == '\n')
            s.p[--s.len] = '\0';
        const char *line = strrchr(str_text(&s), '\n');
        line = line ? line + 1 : str_text(&s);
        json_parse(&v, line, strlen(line), &ignored);
    }
    str_release(&s);
    free(path);
    return v;
}

static void add_time(struct json *doc, const char *key, double wall_s)
{
    char buf[CLOCK_TEXT];
    json_add_str(doc, key, wall_s > 0 ? clock_rfc3339(buf, wall_s) : NULL);
}

void run_status_json(struct json *doc, const struct run_info *r)
{
    int64_t cost = client_cost_micro_usd(r, clock_wall_s());
    struct json *measured = last_metrics(r), *predicted = json_obj(), *hosts = json_arr();
    json_add_str(doc, "id", r->id);
    json_add_str(doc, "state", run_state_name(r->state));
    json_add_int(doc, "attempt", r->attempt);
    json_add_str(doc, "model", r->model);
    json_add_str(doc, "reason", r->reason);
    json_add(doc, "failure", r->has_failure ? record_failure_to_json(&r->failure) : NULL);
    add_time(doc, "created_at", r->created_wall_s);
    add_time(doc, "launched_at", r->launched_wall_s);
    add_time(doc, "ended_at", r->ended_wall_s);
    if (json_get(measured, "step"))
        json_add_int(doc, "step", json_int(measured, "step", 0));
    else
        json_add_null(doc, "step");
    json_add_int(doc, "steps", r->steps);
    const struct json *checkpoint = run_info_checkpoint(r);
    json_add(doc, "checkpoint", checkpoint ? json_clone(checkpoint) : NULL);
    json_add_bool(doc, "cleaned", r->is_cleaned);
    json_add(doc, "measured", measured);
    const struct json *memory = json_get(r->status, "memory");
    json_add(doc, "memory", memory ? json_clone(memory) : NULL);
    const struct json *evaluation = json_get(r->status, "evaluation");
    json_add(doc, "evaluation", evaluation ? json_clone(evaluation) : NULL);
    const struct json *disk = json_get(r->status, "disk");
    if (disk)
        json_add(doc, "disk", json_clone(disk));
    const struct json *paths = json_get(r->status, "paths");
    if (paths)
        json_add(doc, "paths", json_clone(paths));
    json_add_num(predicted, "step_seconds", r->predicted_step_s);
    json_add_num(predicted, "tokens_per_second", r->predicted_tokens_per_s);
    json_add_num(predicted, "mfu", r->predicted_mfu);
    if (isfinite(r->predicted_off_device_s))
        json_add_num(predicted, "off_device_exposed_seconds", r->predicted_off_device_s);
    if (r->predicted_parts)
        json_add(predicted, "parts", json_clone(r->predicted_parts));
    if (r->predicted_bytes >= 0)
        json_add_int(predicted, "memory_bytes", r->predicted_bytes);
    json_add(doc, "predicted", predicted);
    json_add_num(doc, "cost_usd", cost < 0 ? NAN : (double)cost / USD_MICRO);
    for (size_t i = 0; i < r->node_count; i++)
        json_push_str(hosts, r->nodes[i].host);
    json_add(doc, "hosts", hosts);
}

static void pair(struct out *out, const char *name, const char *measured, const char *predicted)
{
    out_printf(out, "  %-14s %14s %14s\n", name, measured, predicted);
}

/* The two parts of it: what the plan laid out, and what lies outside (libraries, buffers). */
static void print_memory(struct out *out, const struct run_info *r)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    const struct json *memory = json_get(r->status, "memory");
    int64_t external = json_int(memory, "external_bytes", -1);
    int64_t planned = json_int(memory, "planned_external_bytes", -1);
    if (!memory)
        return;
    double slab =
        (double)(json_int(memory, "slab_bytes", 0) + json_int(memory, "host_slab_bytes", 0));
    int64_t rest = r->predicted_bytes - (planned > 0 ? planned : 0);
    pair(out, "  slabs", units_bytes(a, slab), rest >= 0 ? units_bytes(b, (double)rest) : "-");
    pair(out, "  external", external >= 0 ? units_bytes(a, (double)external) : "-",
        planned >= 0 ? units_bytes(b, (double)planned) : "-");
    int64_t copy = json_int(memory, "checkpoint_bytes", -1);
    int64_t planned_copy = json_int(memory, "planned_checkpoint_bytes", -1);
    if (copy >= 0) /* beside the above */
        pair(out, "for checkpoints", units_bytes(a, (double)copy),
            planned_copy >= 0 ? units_bytes(b, (double)planned_copy) : "-");
}

static void print_validation(struct out *out, const struct run_info *r)
{
    const struct json *v = json_get(r->status, "evaluation");
    if (v)
        out_printf(out, "  %-14s %14.4f   of step %lld\n", "validation", json_num(v, "loss", NAN),
            (long long)json_int(v, "step", -1));
}

static void print_disk(struct out *out, const struct run_info *r)
{
    char bytes[UNITS_TEXT], written[UNITS_TEXT], rate[UNITS_TEXT];
    const struct json *d = json_get(r->status, "disk");
    if (!d)
        return;
    out_printf(out, "  on disk: %s of states a rank, %s written a step; %s/s at the start, %s\n",
        units_bytes(bytes, json_num(d, "bytes", 0)),
        units_bytes(written, json_num(d, "written_bytes_per_step", 0)),
        units_bytes(rate, json_num(d, "bytes_per_s", 0)), json_str(d, "way", ""));
}

/* What a step waited for the host, its disk and copies, and what was planned of it. */
static void print_off_device(struct out *out, const struct run_info *r, const struct json *metrics)
{
    const struct json *exposed = json_get(metrics, "exposed_seconds");
    char a[UNITS_TEXT], b[UNITS_TEXT];
    double sum = 0;
    if (!isfinite(r->predicted_off_device_s))
        return;
    for (int l = LANE_COPY_DOWN; l < LANE_COUNT; l++)
        sum += json_num(exposed, lane_name((enum lane)l), 0);
    pair(out, "  off device", units_seconds(a, sum), units_seconds(b, r->predicted_off_device_s));
}

/* A part of a step, where there is any of it. */
static void pair_part(struct out *out, const char *name, double measured, double planned)
{
    char a[UNITS_TEXT], b[UNITS_TEXT];
    if (measured > 0 || planned > 0)
        pair(out, name, isfinite(measured) ? units_seconds(a, measured) : "-",
            isfinite(planned) ? units_seconds(b, planned) : "-");
}

/* What a step computed, of it the optimizer, and what it waited for. */
static void print_parts(struct out *out, const struct run_info *r, const struct json *metrics)
{
    const struct json *exposed = json_get(metrics, "exposed_seconds"), *p = r->predicted_parts;
    double overlap = json_num(metrics, "overlap", NAN), planned = json_num(p, "overlap", NAN);
    char a[UNITS_TEXT], b[UNITS_TEXT];
    pair_part(out, "  computing", json_num(json_get(metrics, "busy_seconds"), "compute", NAN),
        json_num(p, "compute", NAN));
    pair_part(out, "  optimizer", json_num(metrics, "optimizer_seconds", NAN),
        json_num(p, "optimizer", NAN));
    pair_part(
        out, "  gathers", json_num(exposed, "gather", NAN), json_num(p, "exposed_gather", NAN));
    pair_part(
        out, "  reductions", json_num(exposed, "reduce", NAN), json_num(p, "exposed_reduce", NAN));
    print_off_device(out, r, metrics);
    snprintf(a, sizeof(a), "%.0f %%", 100 * overlap);
    snprintf(b, sizeof(b), isfinite(planned) ? "%.0f %%" : "-", 100 * planned);
    if (isfinite(overlap))
        pair(out, "  overlap", a, b);
}

/* By which way the bytes of collectives go. */
static void print_paths(struct out *out, const struct run_info *r)
{
    static const struct {
        const char *key, *form;
    } lines[] = {{"world", "  collectives of all ranks over %s\n"},
        {"shard", "  collectives of a shard group over %s\n"},
        {"replica", "  collectives of replicas over %s\n"}, {"note", "  %s\n"}};
    const struct json *paths = json_get(r->status, "paths");
    bool has_groups = *json_str(paths, "shard", "") && *json_str(paths, "replica", "");
    for (size_t i = has_groups ? 1 : 0; i < BASE_COUNT(lines); i++) {
        char *word = text_safe(json_str(paths, lines[i].key, ""));
        bool is_told = i == 0 || i == 3 || has_groups;
        if (*word && is_told)
            out_printf(out, lines[i].form, word);
        free(word);
    }
}

static void print_measured(struct out *out, const struct run_info *r)
{
    struct json *m = last_metrics(r);
    char a[UNITS_TEXT], b[UNITS_TEXT], loss[32];
    if (!m)
        return;
    double seconds = json_num(m, "step_seconds", NAN), rate = json_num(m, "tokens_per_second", NAN);
    double mfu = json_num(m, "mfu", NAN), bytes = json_num(m, "memory_bytes", NAN);
    snprintf(loss, sizeof(loss), "%.4f", json_num(m, "loss", NAN));
    pair(out, "", "measured", "planned");
    pair(out, "loss", loss, "-");
    print_validation(out, r);
    pair(out, "step", isfinite(seconds) ? units_seconds(a, seconds) : "-",
        isfinite(r->predicted_step_s) ? units_seconds(b, r->predicted_step_s) : "-");
    print_parts(out, r, m);
    pair(out, "tokens/s", isfinite(rate) ? units_count(a, rate) : "-",
        isfinite(r->predicted_tokens_per_s) ? units_count(b, r->predicted_tokens_per_s) : "-");
    snprintf(a, sizeof(a), isfinite(mfu) ? "%.1f %%" : "-", 100 * mfu);
    snprintf(b, sizeof(b), isfinite(r->predicted_mfu) ? "%.1f %%" : "-", 100 * r->predicted_mfu);
    pair(out, "MFU", a, b);
    pair(out, "memory", isfinite(bytes) ? units_bytes(a, bytes) : "-",
        r->predicted_bytes >= 0 ? units_bytes(b, (double)r->predicted_bytes) : "-");
    print_memory(out, r);
    json_free(m);
}

void run_status_text(struct out *out, const struct run_info *r)
{
    char text[UNITS_TEXT];
    const struct json *checkpoint = run_info_checkpoint(r);
    int64_t cost = client_cost_micro_usd(r, clock_wall_s());
    struct json *m = last_metrics(r);
    out_printf(out, "run %s: %s", r->id, run_state_name(r->state));
    if (json_get(m, "step"))
        out_printf(
            out, ", step %lld of %lld", (long long)json_int(m, "step", 0), (long long)r->steps);
    out_printf(out, "\n");
    if (r->has_failure)
        out_printf(out, "  cause: %s\n", r->failure.message);
    if (r->reason)
        out_printf(out, "  reason: %s\n", r->reason);
    out_printf(out, "  model: %s, %zu node%s, attempt %lld\n", r->model ? r->model : "-",
        r->node_count, r->node_count == 1 ? "" : "s", (long long)r->attempt);
    if (checkpoint)
        out_printf(out, "  checkpoint: step %lld, survives host loss: %s\n",
            (long long)json_int(checkpoint, "step", 0),
            json_bool(checkpoint, "survives_host_loss", false) ? "yes" : "no");
    if (r->is_cleaned)
        out_printf(out, "  its nodes hold nothing of it any more\n");
    if (cost >= 0)
        out_printf(out, "  cost so far: %s (%s an hour)\n", units_usd(text, cost),
            units_usd((char[UNITS_TEXT]){0}, r->money.micro_usd_per_hour));
    json_free(m);
    print_paths(out, r);
    print_disk(out, r);
    print_measured(out, r);
}

void run_summary(struct out *out, const struct run_info *r)
{
    struct json *m = last_metrics(r);
    char text[UNITS_TEXT];
    const struct json *checkpoint = run_info_checkpoint(r);
    out_printf(out, "run %s %s", r->id, run_state_name(r->state));
    if (r->ended_wall_s > r->launched_wall_s && r->launched_wall_s > 0)
        out_printf(out, " after %s", units_seconds(text, r->ended_wall_s - r->launched_wall_s));
    if (json_get(m, "step"))
        out_printf(out, ", step %lld of %lld, loss %.4f", (long long)json_int(m, "step", 0),
            (long long)r->steps, json_num(m, "loss", NAN));
    if (checkpoint)
        out_printf(out, ", checkpoint of step %lld", (long long)json_int(checkpoint, "step", 0));
    out_printf(out, "\n");
    json_free(m);
}
