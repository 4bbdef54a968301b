#include "launcher/launch.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "launcher/launch_private.h"

const char *launch_workdir(const struct launch *l, size_t i)
{
    if (l->hosts.v[i].dir)
        return l->hosts.v[i].dir;
    return l->o->remote_dir ? l->o->remote_dir : "~/" RUN_DEFAULT_WORKDIR;
}

void launch_let_go(struct launch *l)
{
    if (l->hold_fd >= 0)
        close(l->hold_fd);
    l->hold_fd = -1;
}

static struct launch *launch_new(const struct launch_options *o)
{
    struct launch *l = base_calloc(1, sizeof(*l));
    l->o = o;
    l->hold_fd = -1;
    l->data.what = "data";
    l->data.sources = &l->spec.data;
    l->eval_data.what = "eval_data";
    l->eval_data.sources = &l->spec.evaluation.data;
    job_init(&l->plan.job);
    run_info_init(&l->info);
    run_spec_init(&l->spec);
    return l;
}

void launch_free(struct launch *l)
{
    if (!l)
        return;
    session_close(l->session);
    launch_let_go(l);
    plan_file_release(&l->plan);
    json_free(l->plan_doc);
    free(l->plan_text);
    hosts_release(&l->hosts);
    run_info_release(&l->info);
    run_spec_release(&l->spec);
    free(l->names);
    free(l->engine);
    launch_input_release(&l->data);
    launch_input_release(&l->eval_data);
    weight_files_release(&l->weights);
    free(l);
}

struct run_info *launch_info(struct launch *l)
{
    return &l->info;
}

/* --- the plan --- */

static enum rc read_plan(struct launch *l, const char *path, struct err *e)
{
    struct str text;
    str_init(&text, PLAN_FILE_MAX_BYTES);
    enum rc rc = err_input(e, file_read(&text, path, PLAN_FILE_MAX_BYTES, e));
    if (!rc) {
        rc = json_parse(&l->plan_doc, str_text(&text), text.len, e);
        if (!rc)
            rc = plan_file_from_json(&l->plan, l->plan_doc, e);
        if (rc)
            err_in(e, "'%s'", path);
    }
    if (!rc && !l->plan.is_launchable)
        rc = err_set(e, RC_INVALID, "'%s' cannot be launched: %s", path, l->plan.not_launchable);
    if (!rc)
        rc = plan_file_check_hash(&l->plan, e);
    l->plan_text = str_steal(&text);
    return rc;
}

/* --- hosts --- */

static void copy_hosts(struct hosts *out, const struct hosts *in)
{
    struct json *v = hosts_to_json(in);
    hosts_from_json(out, v, "host list", NULL); /* what we wrote we can read */
    json_free(v);
}

/* As many hosts as the plan has nodes, each with room for its ranks. */
static enum rc fit_hosts(struct launch *l, const struct hosts *hosts, struct err *e)
{
    int64_t per_node = l->plan.strategy.ranks_per_node;
    int64_t nodes = (l->plan.strategy.ranks + per_node - 1) / per_node;
    if ((int64_t)hosts->count < nodes)
        return err_set(e, RC_INVALID, "the plan needs %lld nodes, the host list has %zu",
            (long long)nodes, hosts->count);
    copy_hosts(&l->hosts, hosts);
    hosts_cut(&l->hosts, (size_t)nodes);
    l->spare_hosts = hosts->count - l->hosts.count;
    for (size_t i = 0; i < l->hosts.count; i++) {
        struct host *h = &l->hosts.v[i];
        if (!h->dir && l->o->remote_dir) /* kept, so that a resume finds it */
            h->dir = base_strdup(l->o->remote_dir);
        if (h->slots && h->slots < per_node)
            return err_set(e, RC_INVALID,
                "the plan puts %lld ranks on host '%s', which has %lld slots", (long long)per_node,
                h->name, (long long)h->slots);
    }
    return RC_OK;
}

/* The nodes of the last attempt become past ones; old: its hosts, in the same order. */
static void put_nodes_aside(struct run_info *r, const struct hosts *old)
{
    for (size_t i = 0; i < r->node_count && i < old->count; i++) {
        struct hosts one = {&old->v[i], 1};
        struct json *doc = hosts_to_json(&one);
        run_info_put_aside(r, i, json_clone(json_at(json_get(doc, "hosts"), 0)));
        json_free(doc);
    }
}

/* Hosts that took part in any attempt keep their node number and folders, new ones get the next. */
static void number_nodes(struct launch *l)
{
    struct run_info *r = &l->info;
    run_info_set_nodes(r, l->hosts.count);
    l->names = base_calloc(l->hosts.count, sizeof(*l->names));
    int64_t left = l->plan.strategy.ranks, per_node = l->plan.strategy.ranks_per_node;
    for (size_t i = 0; i < r->node_count; i++) {
        struct run_node *n = &r->nodes[i];
        char *label = host_label(&l->hosts.v[i]);
        if (run_info_take_back(r, label, n)) {
            free(label);
        } else {
            n->host = label;
            n->node = r->next_node++;
        }
        n->ranks = left < per_node ? left : per_node;
        left -= n->ranks;
        l->names[i] = n->host;
    }
}

static void price_hosts(struct launch *l)
{
    const struct offer *o = &l->plan.offer;
    l->micro_usd_per_hour = 0;
    for (size_t i = 0; i < l->hosts.count; i++) {
        int64_t price = l->hosts.v[i].micro_usd_per_hour;
        if (price < 0)
            price = o->price_usd_micro_per_hour;
        if (price < 0) {
            l->micro_usd_per_hour = -1;
            return;
        }
        l->micro_usd_per_hour += price;
    }
}

/* --- the spec --- */

static enum rc set_env(struct launch *l, struct err *e)
{
    for (size_t i = 0; i < l->o->env_count; i++) {
        const char *text = l->o->env[i], *eq = strchr(text, '=');
        if (!eq || eq == text)
            return err_set(e, RC_USAGE, "--env '%s' is not NAME=VALUE", text);
        char *name = base_strndup(text, (size_t)(eq - text));
        json_add_str(l->spec.env, name, eq + 1);
        free(name);
    }
    return RC_OK;
}

static const char *data_kind_of(const struct launch *l)
{
    return l->o->data_kind ? l->o->data_kind : data_kind_name(l->plan.job.data_kind);
}

static enum rc set_data(struct launch *l, const char *data, struct err *e)
{
    return launch_input_set(&l->data, data, data_kind_of(l), e);
}

/* A resumed run reads what it read before, by another kind when one is said. */
static enum rc keep_data(struct launch *l, struct err *e)
{
    enum rc rc = RC_OK;
    for (size_t i = 0; i < l->spec.data.n && l->o->data_kind && !rc; i++)
        if (!l->spec.data.v[i].tokenizer)
            rc = data_kind_parse(l->o->data_kind, &l->spec.data.v[i].kind, e);
    return rc;
}

/* Held-out text is of the plan, with its kind; a resumed run keeps it. */
/* What to start from: the launch, else the run that is resumed, else the job says. */
static enum rc set_weights(struct launch *l, struct err *e)
{
    const char *text = l->o->weights, *local;
    if (!text && !l->is_resume && l->plan.job.weights[0])
        text = l->plan.job.weights;
    if (!text)
        return RC_OK;
    enum rc rc = weight_files_place(&local, &l->spec.weights, text, e);
    if (rc || !local)
        return rc;
    rc = weight_files_open(&l->weights, local, e);
    if (!rc)
        rc = weight_files_check(&l->weights, &l->plan.job.model, e);
    return rc ? err_in(e, "weights") : RC_OK;
}

static enum rc set_eval_data(struct launch *l, struct err *e)
{
    const struct job *j = &l->plan.job;
    struct run_evaluation *v = &l->spec.evaluation;
    if (!j->eval_data[0] || (l->is_resume && v->data.n > 0))
        return RC_OK;
    v->every_steps = job_eval_every_steps(j);
    v->tokens = job_eval_tokens(j);
    return launch_input_set(&l->eval_data, j->eval_data, data_kind_name(j->data_kind), e);
}

static enum rc set_checkpoints(struct launch *l, const char *store, struct err *e)
{
    const struct launch_options *o = l->o;
    struct run_checkpoint *c = &l->spec.checkpoint;
    if (o->checkpoint_steps >= 0)
        c->every_steps = o->checkpoint_steps;
    if (o->checkpoint_s >= 0)
        c->every_s = o->checkpoint_s;
    else if (!l->is_resume)
        c->every_s = l->plan.job.checkpoint_every_s;
    if (o->keep > 0)
        c->keep = o->keep;
    bool is_on_disk = l->plan.strategy.offload & OFFLOAD_DISK;
    if (o->checkpoint_mode)
        c->is_async = strcmp(o->checkpoint_mode, "async") == 0;
    else if (is_on_disk)
        c->is_async = false;
    if (c->is_async && is_on_disk)
        return err_set(e, RC_INVALID,
            "states that lie on disk cannot be copied while training goes on; use '--checkpoint "
            "sync'");
    if (store)
        return run_store_parse(c, store, e);
    if (c->store == RUN_STORE_SHARED)
        return RC_OK;
    /* one host has no partner; several keep a copy of each other's shards */
    return run_store_parse(c, l->hosts.count > 1 ? "local+partner" : "local", e);
}

static enum rc set_disk(struct launch *l, struct err *e)
{
    const struct launch_options *o = l->o;
    bool is_used = l->plan.strategy.offload & OFFLOAD_DISK;
    if ((o->nvme_dirs || o->nvme_endurance_bytes) && !is_used)
        return err_set(e, RC_USAGE,
            "the plan keeps nothing on disk; `berth plan --offload nvme` makes one that does");
    if (o->nvme_endurance_bytes)
        l->spec.disk.endurance_bytes = o->nvme_endurance_bytes;
    return o->nvme_dirs ? run_disk_parse(&l->spec.disk, o->nvme_dirs, e) : RC_OK;
}

static enum rc make_token(struct run_spec *s, struct err *e)
{
    unsigned char bytes[32];
    enum rc rc = hash_random(bytes, sizeof(bytes), e);
    if (!rc)
        hash_hex(bytes, sizeof(bytes), s->token);
    return rc;
}

static enum rc set_money_limit(struct launch *l, struct err *e)
{
    struct run_limits *m = &l->spec.limits;
    struct run_money *money = &l->info.money;
    double now_s = clock_wall_s();
    if (l->o->max_micro_usd > 0)
        m->max_micro_usd = l->o->max_micro_usd;
    if (m->max_micro_usd && l->micro_usd_per_hour < 0)
        return err_set(e, RC_USAGE,
            "a spending limit needs the price of every node; add price=USD_PER_HOUR to the host "
            "list");
    run_money_go_on(
        money, l->micro_usd_per_hour, l->info.ended_wall_s, l->o->rented_since_wall_s, now_s);
    m->money = *money;
    if (m->max_micro_usd && run_money_cost(money, now_s) >= m->max_micro_usd) {
        char cost[UNITS_TEXT], limit[UNITS_TEXT];
        return err_set(e, RC_USAGE,
            "the run has cost %s already and its limit is %s; raise --max-usd (or say with "
            "--rented-since from when on these nodes are paid)",
            units_usd(cost, run_money_cost(money, now_s)), units_usd(limit, m->max_micro_usd));
    }
    return RC_OK;
}

static const double whole_seconds_slack_s = 2;

static enum rc set_time_limit(struct launch *l, struct err *e)
{
    struct run_limits *m = &l->spec.limits;
    struct run_info *r = &l->info;
    if (l->o->max_s > 0)
        m->max_s = l->o->max_s;
    if (r->attempt_wall_s > 0 && r->ended_wall_s > r->attempt_wall_s)
        r->spent_s += r->ended_wall_s - r->attempt_wall_s;
    m->spent_s = r->spent_s;
    /* times are kept in whole seconds, and every attempt may lose one by it */
    if (m->max_s > 0 && m->spent_s > 0 && m->spent_s + whole_seconds_slack_s >= m->max_s) {
        char spent[UNITS_TEXT], limit[UNITS_TEXT];
        return err_set(e, RC_USAGE,
            "the run has taken %s already and its limit is %s; raise --max-hours",
            units_seconds(spent, m->spent_s), units_seconds(limit, m->max_s));
    }
    return RC_OK;
}

static void set_deadlines(struct launch *l)
{
    struct run_deadlines *d = &l->spec.deadlines;
    if (l->o->rendezvous_s > 0)
        d->rendezvous_s = l->o->rendezvous_s;
    if (l->o->collective_s > 0)
        d->collective_s = l->o->collective_s;
    if (l->o->lost_s > 0) {
        d->lost_s = l->o->lost_s;
        d->heartbeat_s = l->o->lost_s / 3;
    }
}

static enum rc find_engine(struct launch *l, struct err *e)
{
    enum rc rc = RC_OK;
    if (l->o->engine_path)
        l->engine = base_strdup(l->o->engine_path);
    else
        rc = stage_find_engine(&l->engine, e);
    if (!rc)
        rc = stage_file_init(&l->engine_file, l->engine, 0700, e);
    return rc;
}

/* What a step waits for the host, its disk and copies; NaN where no lane of these works. */
static double off_device_s(const struct plan_file *p)
{
    const struct json *lanes = json_get(json_get(p->prediction, "step"), "lanes");
    double sum = NAN;
    for (int l = LANE_COPY_DOWN; l < LANE_COUNT; l++) {
        double s = json_num(json_get(lanes, lane_name((enum lane)l)), "exposed_seconds", NAN);
        sum = isfinite(s) ? s + (isfinite(sum) ? sum : 0) : sum;
    }
    return sum;
}

/* Seconds that follow each other in a step, and of them the optimizer's; how much of the
 * collectives nothing waits for. NULL where the plan does not say. */
static struct json *step_parts(const struct plan_file *p)
{
    const struct json *step = json_get(p->prediction, "step"), *parts = json_get(step, "parts");
    if (!json_is_obj(parts))
        return NULL;
    struct json *v = json_clone(parts);
    json_add_num(v, "optimizer", json_num(json_get(step, "work"), "optimizer", NAN));
    json_add_num(v, "overlap", json_num(step, "overlap", NAN));
    return v;
}

static void set_predictions(struct launch *l)
{
    struct run_info *r = &l->info;
    const struct plan_file *p = &l->plan;
    free(r->model);
    r->model = base_strdup(p->job.model.name);
    r->steps = p->steps;
    r->predicted_step_s = p->step_s;
    r->predicted_tokens_per_s = p->tokens_per_s_per_rank * (double)p->strategy.ranks;
    r->predicted_mfu = p->mfu;
    r->predicted_off_device_s = off_device_s(p);
    json_free(r->predicted_parts);
    r->predicted_parts = step_parts(p);
    r->predicted_bytes = p->peak_bytes + p->host_slab_bytes + p->external_bytes;
}

static char *dup_or_null(const char *s)
{
    return s ? base_strdup(s) : NULL;
}

/* How to connect must be found again by later commands, from whatever folder they start. */
static char *absolute_or_null(const char *path)
{
    if (!path || path[0] == '/' || strcmp(path, "none") == 0)
        return dup_or_null(path);
    char *full = realpath(path, NULL);
    return full ? full : base_strdup(path);
}

static void keep_connection(struct launch *l)
{
    const struct session_options *c = &l->o->connect;
    struct run_info *r = &l->info;
    if (c->identity) {
        free(r->identity);
        r->identity = absolute_or_null(c->identity);
    }
    if (c->known_hosts) {
        free(r->known_hosts);
        r->known_hosts = absolute_or_null(c->known_hosts);
    }
    if (c->ssh_config) {
        free(r->ssh_config);
        r->ssh_config = absolute_or_null(c->ssh_config);
    }
}

/* Everything behind plan and hosts, the same for a new run and a resumed one. */
static enum rc settle(struct launch *l, struct err *e)
{
    const char *data = l->o->data, *store = l->o->store;
    enum rc rc = RC_OK;
    if (!data && !l->is_resume)
        data = l->plan.job.data[0] ? l->plan.job.data : NULL;
    if (!store && !l->is_resume)
        store = l->plan.job.store[0] ? l->plan.job.store : NULL;
    if (data)
        rc = set_data(l, data, e);
    else if (l->spec.data.n > 0)
        rc = keep_data(l, e);
    else
        rc = err_set(e, RC_USAGE, "neither the plan nor --data says what to train on");
    if (!rc)
        rc = data_sources_check_packing(&l->spec.data, l->plan.strategy.doc_tokens, e);
    if (!rc)
        rc = set_eval_data(l, e);
    if (!rc)
        rc = set_weights(l, e);
    if (!rc)
        rc = set_checkpoints(l, store, e);
    if (!rc)
        rc = set_disk(l, e);
    if (!rc)
        rc = make_token(&l->spec, e);
    if (!rc)
        rc = set_env(l, e);
    if (!rc) {
        price_hosts(l);
        rc = set_money_limit(l, e);
    }
    if (!rc)
        rc = set_time_limit(l, e);
    if (!rc)
        rc = find_engine(l, e);
    if (rc)
        return rc;
    set_deadlines(l);
    set_predictions(l);
    keep_connection(l);
    number_nodes(l);
    l->spec.steps = l->plan.steps;
    json_free(l->spec.plan);
    l->spec.plan = json_clone(l->plan_doc);
    return RC_OK;
}

enum rc launch_prepare(struct launch **out, const struct launch_options *o, struct err *e)
{
    struct launch *l = launch_new(o);
    *out = NULL;
    l->spec.env = json_obj();
    enum rc rc = read_plan(l, o->plan_path, e);
    if (!rc)
        rc = fit_hosts(l, o->hosts, e);
    if (!rc) {
        l->spec.training = l->plan.job.training ? json_clone(l->plan.job.training) : json_obj();
        rc = settle(l, e);
    }
    if (rc)
        launch_free(l);
    else
        *out = l;
    return rc;
}

/* --- resuming --- */

static enum rc load_old_hosts(struct launch *l, struct hosts *out, struct err *e)
{
    struct json *v = NULL;
    char *path = run_dir_file(&l->info, RUN_USER_HOSTS);
    enum rc rc = json_read(&v, path, HOSTS_FILE_MAX_BYTES, e);
    if (!rc)
        rc = hosts_from_json(out, v, path, e);
    json_free(v);
    free(path);
    return rc;
}

static enum rc load_old_run(struct launch *l, const char *run, struct err *e)
{
    enum rc rc = run_dir_open(&l->info, run, e);
    if (!rc)
        rc = run_dir_hold(&l->info, true, &l->hold_fd, e);
    if (!rc) { /* what it says now that nobody else changes it */
        char *id = base_strdup(l->info.id);
        run_info_release(&l->info);
        rc = run_dir_open(&l->info, id, e);
        free(id);
    }
    if (rc)
        return rc;
    if (!l->info.spec)
        return err_set(e, RC_INVALID, "run %s was never started; launch it again", l->info.id);
    if (l->info.state == RUN_RUNNING || l->info.state == RUN_STAGING)
        return err_set(e, RC_INVALID,
            "run %s is not over as far as known here; `berth status` or `berth stop` it first",
            l->info.id);
    rc = run_spec_from_json(&l->spec, l->info.spec, e);
    return rc ? err_in(e, "run %s", l->info.id) : RC_OK;
}

static bool is_same_model(const struct model *a, const struct model *b)
{
    struct model x = *a, y = *b;
    str_copy(x.name, sizeof(x.name), y.name); /* what it is called does not matter */
    struct json *xv = model_to_json(&x), *yv = model_to_json(&y);
    char *xt = json_print(xv, false), *yt = json_print(yv, false);
    bool is_same = strcmp(xt, yt) == 0;
    free(xt);
    free(yt);
    json_free(xv);
    json_free(yv);
    return is_same;
}

static enum rc differs(const char *what, const char *path, int64_t has, int64_t had, struct err *e)
{
    if (has == had)
        return RC_OK;
    return err_set(e, RC_USAGE,
        "the plan '%s' has %s %lld, the run has %lld; nodes and strategy "
        "may change with a resume, the training may not",
        path, what, (long long)has, (long long)had);
}

/* Only how the work is shared may change: a checkpoint of other steps, or of another model, would
 * be gone on with as if nothing were the matter. */
static enum rc check_same_training(struct launch *l, const char *path, struct err *e)
{
    struct plan_file old;
    job_init(&old.job);
    enum rc rc = plan_file_from_json(&old, l->spec.plan, e);
    if (rc)
        return err_in(e, "the plan of run %s", l->info.id);
    const struct job *has = &l->plan.job, *had = &old.job;
    if (!is_same_model(&has->model, &had->model))
        rc = err_set(e, RC_USAGE, "the plan '%s' is of another model (%s) than the run (%s)", path,
            has->model.name, had->model.name);
    if (!rc)
        rc = differs("sequence length", path, has->seq, had->seq, e);
    if (!rc)
        rc = differs("a global batch (in tokens) of", path, has->global_batch_tokens,
            had->global_batch_tokens, e);
    if (!rc)
        rc = differs("a number of steps of", path, l->plan.steps, old.steps, e);
    plan_file_release(&old);
    return rc;
}

/* The spec of the last attempt without what belongs to its nodes. */
static void renew_spec(struct launch *l)
{
    struct run_spec *s = &l->spec;
    for (size_t i = 0; i < s->host_count; i++) {
        free(s->hosts[i].name);
        free(s->hosts[i].address);
    }
    free(s->hosts);
    s->hosts = NULL;
    s->host_count = 0;
    s->attempt = l->info.attempt + 1;
    s->resume_step = l->o->resume_step;
    /* an attempt that saved nothing tells of nothing: what was told before holds */
    s->saved_step = l->info.is_cleaned ? -1 : s->saved_step;
    s->saved_step = json_int(run_info_checkpoint(&l->info), "step", s->saved_step);
}

enum rc launch_prepare_resume(
    struct launch **out, const char *run, const struct launch_options *o, struct err *e)
{
    struct launch *l = launch_new(o);
    struct hosts old = {0};
    char *plan = NULL;
    *out = NULL;
    l->is_resume = true;
    enum rc rc = load_old_run(l, run, e);
    if (!rc) {
        plan = o->plan_path ? base_strdup(o->plan_path) : run_dir_file(&l->info, RUN_USER_PLAN);
        rc = read_plan(l, plan, e);
    }
    if (!rc)
        rc = check_same_training(l, plan, e);
    if (!rc)
        rc = load_old_hosts(l, &old, e);
    if (!rc)
        rc = fit_hosts(l, o->hosts ? o->hosts : &old, e);
    if (!rc) {
        renew_spec(l);
        put_nodes_aside(&l->info, &old);
        rc = settle(l, e);
    }
    hosts_release(&old);
    free(plan);
    if (rc)
        launch_free(l);
    else
        *out = l;
    return rc;
}

/* --- describing --- */

int64_t launch_micro_usd_per_hour(const struct launch *l)
{
    return l->micro_usd_per_hour;
}

int64_t launch_max_micro_usd(const struct launch *l)
{
    return l->spec.limits.max_micro_usd;
}

size_t launch_spare_hosts(const struct launch *l)
{
    return l->spare_hosts;
}

void launch_describe_cost(const struct launch *l, struct str *out)
{
    char text[UNITS_TEXT];
    const struct plan_file *p = &l->plan;
    str_addf(out, "%zu node%s", l->hosts.count, l->hosts.count == 1 ? "" : "s");
    if (l->micro_usd_per_hour > 0)
        str_addf(out, ", %s an hour", units_usd(text, l->micro_usd_per_hour));
    else
        str_add(out, l->micro_usd_per_hour ? ", price unknown" : ", free");
    if (p->run_s > 0 && isfinite(p->run_s))
        str_addf(out, ", about %s", units_seconds(text, p->run_s));
    if (l->micro_usd_per_hour > 0 && p->cost_micro_usd > 0)
        str_addf(out, ", about %s", units_usd(text, p->cost_micro_usd));
    if (l->micro_usd_per_hour > 0 && p->cost_high_micro_usd > 0)
        str_addf(
            out, " (at most %s with 95 %% certainty)", units_usd(text, p->cost_high_micro_usd));
    if (l->spec.limits.max_micro_usd)
        str_addf(out, "; stops at %s", units_usd(text, l->spec.limits.max_micro_usd));
    if (l->spec.limits.max_s > 0)
        str_addf(out, "; stops after %s", units_seconds(text, l->spec.limits.max_s));
}

static void describe_weights(const struct launch *l, const char *workdir, struct str *out)
{
    if (l->weights.local) {
        char *path = weight_files_node_path(&l->weights, workdir, l->weights.name);
        str_addf(out, "  weights  %s%s (%zu files from %s)\n", path, *l->weights.name ? "" : "/",
            l->weights.count, l->weights.local);
        free(path);
    } else if (l->spec.weights) {
        str_addf(out, "  weights  %s (must be there)\n", l->spec.weights);
    }
}

static void describe_host(const struct launch *l, size_t i, struct str *out)
{
    const struct run_node *n = &l->info.nodes[i];
    const char *workdir = launch_workdir(l, i);
    const char *id = l->info.id[0] ? l->info.id : "RUN";
    int64_t first = (int64_t)i * l->plan.strategy.ranks_per_node;
    char *engine = run_engine_dir(workdir, l->engine_file.sha256);
    char *dir = run_node_dir(workdir, id, n->node);
    str_addf(
        out, "host %s (node %lld%s)\n", n->host, (long long)n->node, i == 0 ? ", coordinator" : "");
    str_addf(out, "  ranks    %lld to %lld\n", (long long)first, (long long)(first + n->ranks - 1));
    str_addf(out, "  engine   %s/berth-engine (from %s)\n", engine, l->engine);
    launch_input_describe(&l->data, "data", workdir, out);
    launch_input_describe(&l->eval_data, "validate", workdir, out);
    describe_weights(l, workdir, out);
    str_addf(out, "  write    %s/%s\n", dir, RUN_FILE_SPEC);
    str_addf(out, "  run      %s/berth-engine agent --dir %s\n", engine, dir);
    for (int64_t r = first; r < first + n->ranks; r++)
        str_addf(out, "  start    %s/berth-engine rank --dir %s --rank %lld\n", engine, dir,
            (long long)r);
    free(engine);
    free(dir);
}

void launch_describe_disk(const struct launch *l, struct str *out)
{
    char room[UNITS_TEXT], step[UNITS_TEXT], run[UNITS_TEXT], rated[UNITS_TEXT];
    const struct plan_file *p = &l->plan;
    const struct run_disk *d = &l->spec.disk;
    double written = (double)p->disk_written_bytes * (double)p->steps;
    if (!(p->strategy.offload & OFFLOAD_DISK))
        return;
    str_addf(out, "on disk: %s of states per node in ", units_bytes(room, (double)p->disk_bytes));
    for (size_t i = 0; i < d->count; i++)
        str_addf(out, "%s%s", i ? ", " : "", d->dirs[i]);
    str_addf(out, "%s; a step writes %s, the run %s", d->count ? "" : "the run folder",
        units_bytes(step, (double)p->disk_written_bytes), units_bytes(run, written));
    if (d->endurance_bytes)
        str_addf(out, ", %.3g %% of the %s they are rated for",
            100 * written / (double)d->endurance_bytes,
            units_bytes(rated, (double)d->endurance_bytes));
}

void launch_describe(const struct launch *l, struct str *out)
{
    struct str cost = STR_INIT, disk = STR_INIT;
    const struct json *value;
    const char *key;
    void *cursor = NULL;
    launch_describe_cost(l, &cost);
    str_addf(out, "%s: %s, %lld steps\n", l->info.model, str_text(&cost), (long long)l->info.steps);
    str_release(&cost);
    str_addf(out, "checkpoints: store %s, every %.0f s", run_store_name(l->spec.checkpoint.store),
        l->spec.checkpoint.every_s);
    if (l->spec.checkpoint.every_steps)
        str_addf(out, " or %lld steps", (long long)l->spec.checkpoint.every_steps);
    str_addf(out, ", %lld kept, %s\n", (long long)l->spec.checkpoint.keep,
        l->spec.checkpoint.is_async ? "written while training goes on" : "training waits");
    launch_describe_disk(l, &disk);
    if (disk.len)
        str_addf(out, "%s\n", str_text(&disk));
    str_release(&disk);
    while (json_next(l->spec.env, &cursor, &key, &value))
        str_addf(out, "env %s=%s\n", key, json_as_str(value, ""));
    for (size_t i = 0; i < l->hosts.count; i++)
        describe_host(l, i, out);
}

struct json *launch_to_json(const struct launch *l)
{
    struct json *o = json_obj(), *hosts = json_arr();
    for (size_t i = 0; i < l->hosts.count; i++) {
        const struct run_node *n = &l->info.nodes[i];
        struct json *h = json_obj();
        json_add_str(h, "host", n->host);
        json_add_int(h, "node", n->node);
        json_add_int(h, "first_rank", (int64_t)i * l->plan.strategy.ranks_per_node);
        json_add_int(h, "ranks", n->ranks);
        json_add_str(h, "workdir", launch_workdir(l, i));
        json_push(hosts, h);
    }
    json_add_str(o, "model", l->info.model);
    json_add_int(o, "steps", l->info.steps);
    json_add_str(o, "store", run_store_name(l->spec.checkpoint.store));
    json_add_str(o, "engine_sha256", l->engine_file.sha256);
    json_add_num(o, "usd_per_hour",
        l->micro_usd_per_hour < 0 ? NAN : (double)l->micro_usd_per_hour / USD_MICRO);
    json_add(o, "hosts", hosts);
    return o;
}
