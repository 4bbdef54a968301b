#include "run/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/json_line.h"
#include "base/str.h"
#include "base/text.h"

static const enum op_kind collective_kinds[COLLECTIVE_TIMES] = {
    OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_REDUCE, OP_ALL_TO_ALL, OP_SCALARS};

int record_collective(enum op_kind kind)
{
    for (int i = 0; i < COLLECTIVE_TIMES; i++)
        if (collective_kinds[i] == kind)
            return i;
    return -1;
}

void record_metrics_init(struct record_metrics *m)
{
    *m = (struct record_metrics){
        .wall_s = NAN,
        .loss = NAN,
        .lr = NAN,
        .grad_norm = NAN,
        .step_seconds = NAN,
        .tokens = -1,
        .tokens_per_second = NAN,
        .mfu = NAN,
        .overlap = NAN,
        .optimizer_s = NAN,
        .memory_bytes = -1,
    };
    for (int i = 0; i < COLLECTIVE_TIMES; i++)
        m->collective[i] = (struct collective_time){NAN, NAN};
    for (int l = 0; l < LANE_COUNT; l++)
        m->busy_s[l] = m->exposed_s[l] = NAN;
}

static void put_lanes(struct json_line *l, const char *key, const double *seconds)
{
    json_line_open(l, key);
    for (int i = 0; i < LANE_COUNT; i++)
        if (isfinite(seconds[i]))
            json_line_num(l, lane_name((enum lane)i), seconds[i]);
    json_line_close(l);
}

static void put_collectives(struct json_line *l, const struct collective_time *times)
{
    json_line_open(l, "collectives");
    for (int i = 0; i < COLLECTIVE_TIMES; i++) {
        if (!isfinite(times[i].seconds))
            continue;
        json_line_open(l, op_kind_name(collective_kinds[i]));
        json_line_num(l, "seconds", times[i].seconds);
        json_line_num(l, "exposed_seconds", times[i].exposed_s);
        json_line_close(l);
    }
    json_line_close(l);
}

static void put_known_int(struct json_line *l, const char *key, int64_t x)
{
    if (x < 0)
        json_line_null(l, key);
    else
        json_line_int(l, key, x);
}

static void collectives_from_json(struct collective_time *times, const struct json *v)
{
    for (int i = 0; i < COLLECTIVE_TIMES; i++) {
        const struct json *one = json_get(v, op_kind_name(collective_kinds[i]));
        times[i].seconds = json_num(one, "seconds", NAN);
        times[i].exposed_s = json_num(one, "exposed_seconds", NAN);
    }
}

static void lanes_from_json(double *seconds, const struct json *v)
{
    for (int l = 0; l < LANE_COUNT; l++)
        seconds[l] = json_num(v, lane_name((enum lane)l), NAN);
}

size_t record_metrics_line(
    char text[RECORD_METRICS_TEXT], const struct record_metrics *m, bool is_event)
{
    struct json_line l;
    json_line_begin(&l, text, RECORD_METRICS_TEXT);
    if (is_event)
        json_line_word(&l, "event", "step");
    json_line_int(&l, "step", m->step);
    json_line_num(&l, "wall_s", m->wall_s);
    json_line_num(&l, "loss", m->loss);
    json_line_num(&l, "lr", m->lr);
    json_line_num(&l, "grad_norm", m->grad_norm);
    json_line_num(&l, "step_seconds", m->step_seconds);
    put_lanes(&l, "busy_seconds", m->busy_s);
    put_lanes(&l, "exposed_seconds", m->exposed_s);
    put_collectives(&l, m->collective);
    json_line_num(&l, "overlap", m->overlap);
    json_line_num(&l, "optimizer_seconds", m->optimizer_s);
    put_known_int(&l, "tokens", m->tokens);
    json_line_num(&l, "tokens_per_second", m->tokens_per_second);
    json_line_num(&l, "mfu", m->mfu);
    put_known_int(&l, "memory_bytes", m->memory_bytes);
    json_line_bool(&l, "is_skipped", m->is_skipped);
    json_line_bool(&l, "is_spike", m->is_spike);
    return json_line_end(&l);
}

struct json *record_metrics_to_json(const struct record_metrics *m)
{
    char text[RECORD_METRICS_TEXT];
    struct json *v = NULL;
    json_parse(&v, text, record_metrics_line(text, m, false), NULL);
    return v;
}

enum rc record_metrics_from_json(struct record_metrics *out, const struct json *v, struct err *e)
{
    record_metrics_init(out);
    enum rc rc = json_need_int(v, "step", 0, INT64_MAX, &out->step, e);
    if (rc)
        return rc;
    out->is_skipped = json_bool(v, "is_skipped", false);
    out->is_spike = json_bool(v, "is_spike", false);
    out->wall_s = json_num(v, "wall_s", NAN);
    out->loss = json_num(v, "loss", NAN);
    out->lr = json_num(v, "lr", NAN);
    out->grad_norm = json_num(v, "grad_norm", NAN);
    out->step_seconds = json_num(v, "step_seconds", NAN);
    lanes_from_json(out->busy_s, json_get(v, "busy_seconds"));
    lanes_from_json(out->exposed_s, json_get(v, "exposed_seconds"));
    collectives_from_json(out->collective, json_get(v, "collectives"));
    out->overlap = json_num(v, "overlap", NAN);
    out->optimizer_s = json_num(v, "optimizer_seconds", NAN);
    out->tokens = json_int(v, "tokens", -1);
    out->tokens_per_second = json_num(v, "tokens_per_second", NAN);
    out->mfu = json_num(v, "mfu", NAN);
    out->memory_bytes = json_int(v, "memory_bytes", -1);
    return RC_OK;
}

static const char *const state_words[] = {
#define X(name, word) word,
    RUN_STATE_MAP(X)
#undef X
};

const char *run_state_name(enum run_state s)
{
    return state_words[s];
}

enum run_state run_state_parse(const char *word)
{
    for (int i = RUN_PLANNED; i < RUN_UNKNOWN; i++)
        if (strcmp(word, state_words[i]) == 0)
            return (enum run_state)i;
    return RUN_UNKNOWN;
}

bool run_state_is_final(enum run_state s)
{
    return s == RUN_FINISHED || s == RUN_FAILED || s == RUN_CANCELLED;
}

struct json *record_failure_to_json(const struct record_failure *f)
{
    struct json *o = json_obj();
    if (f->rank >= 0)
        json_add_int(o, "rank", f->rank);
    else
        json_add_null(o, "rank");
    json_add_str(o, "host", f->host);
    json_add_str(o, "code", f->code);
    json_add_str(o, "message", f->message);
    json_add_bool(o, "is_consequence", f->is_consequence);
    return o;
}

static void copy_safe(char *dst, size_t cap, const char *foreign)
{
    char *safe = text_safe(foreign);
    str_copy(dst, cap, safe);
    free(safe);
}

void record_failure_from_json(struct record_failure *out, const struct json *v)
{
    *out = (struct record_failure){0};
    out->rank = json_int(v, "rank", -1);
    copy_safe(out->host, sizeof(out->host), json_str(v, "host", ""));
    copy_safe(out->code, sizeof(out->code), json_str(v, "code", ""));
    copy_safe(out->message, sizeof(out->message), json_str(v, "message", ""));
    out->is_consequence = json_bool(v, "is_consequence", false);
}
