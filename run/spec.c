#include "run/spec.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "planner/job.h"

#define SCHEMA "run-spec/1"

void run_spec_init(struct run_spec *s)
{
    *s = (struct run_spec){
        .attempt = 1,
        .resume_step = RUN_RESUME_NONE,
        .saved_step = -1,
        .checkpoint = {.keep = JOB_CHECKPOINTS_KEPT, .is_async = true, .store = RUN_STORE_LOCAL},
        .deadlines =
            {
                .rendezvous_s = 120,
                .collective_s = 60,
                .finish_s = 300,
                .grace_s = 60,
                .heartbeat_s = 5,
                .lost_s = 15,
            },
        .limits = {.money = {.micro_usd_per_hour = -1}},
    };
}

void run_disk_release(struct run_disk *d)
{
    for (size_t i = 0; i < d->count; i++)
        free(d->dirs[i]);
    free(d->dirs);
    d->dirs = NULL;
    d->count = 0;
}

void run_spec_release(struct run_spec *s)
{
    run_disk_release(&s->disk);
    for (size_t i = 0; i < s->host_count; i++) {
        free(s->hosts[i].name);
        free(s->hosts[i].address);
    }
    free(s->hosts);
    data_sources_release(&s->data);
    data_sources_release(&s->evaluation.data);
    free(s->weights);
    free(s->checkpoint.shared_path);
    json_free(s->plan);
    json_free(s->training);
    json_free(s->env);
    *s = (struct run_spec){0};
}

int64_t run_spec_ranks(const struct run_spec *s)
{
    if (!s->host_count)
        return 0;
    const struct run_host *last = &s->hosts[s->host_count - 1];
    return last->first_rank + last->ranks;
}

void run_spec_add_host(
    struct run_spec *s, const char *name, const char *address, int64_t node, int64_t ranks)
{
    int64_t first = run_spec_ranks(s);
    s->hosts = base_realloc(s->hosts, (s->host_count + 1) * sizeof(*s->hosts));
    s->hosts[s->host_count++] = (struct run_host){
        .name = base_strdup(name),
        .address = base_strdup(address),
        .node = node,
        .first_rank = first,
        .ranks = ranks,
    };
}

size_t run_spec_host_of(const struct run_spec *s, int64_t rank)
{
    size_t i = 0;
    while (i + 1 < s->host_count && rank >= s->hosts[i + 1].first_rank)
        i++;
    return i;
}

char *run_checkpoint_dir(const struct run_spec *s, const char *node_dir)
{
    if (s->checkpoint.store != RUN_STORE_SHARED)
        return path_join(node_dir, RUN_DIR_CKPT);
    char *mine = run_shared_dir(s->checkpoint.shared_path, s->id);
    char *dir = path_join(mine, RUN_DIR_CKPT);
    free(mine);
    return dir;
}

static enum rc add_dir(struct run_disk *d, const char *dir, struct err *e)
{
    if (dir[0] != '/')
        return err_set(
            e, RC_USAGE, "folder '%s' for states on disk needs an absolute path on the nodes", dir);
    if (d->count == RUN_MAX_DISK_DIRS)
        return err_set(e, RC_USAGE, "states on disk can be striped over %d folders at most",
            RUN_MAX_DISK_DIRS);
    d->dirs = base_realloc(d->dirs, (d->count + 1) * sizeof(*d->dirs));
    d->dirs[d->count++] = base_strdup(dir);
    return RC_OK;
}

enum rc run_disk_parse(struct run_disk *out, const char *text, struct err *e)
{
    enum rc rc = RC_OK;
    run_disk_release(out);
    for (const char *p = text; *p && !rc; p += *p == ',') {
        size_t n = strcspn(p, ",");
        char *dir = base_strndup(p, n);
        rc = add_dir(out, dir, e);
        free(dir);
        p += n;
    }
    return rc;
}

static const char *const store_names[] = {"local", "local+partner", "shared"};

const char *run_store_name(enum run_store store)
{
    return store_names[store];
}

enum rc run_store_parse(struct run_checkpoint *out, const char *text, struct err *e)
{
    free(out->shared_path);
    out->shared_path = NULL;
    if (str_starts(text, "shared:")) {
        if (text[7] != '/')
            return err_set(e, RC_USAGE, "checkpoint store '%s' needs an absolute path", text);
        out->store = RUN_STORE_SHARED;
        out->shared_path = base_strdup(text + 7);
        return RC_OK;
    }
    for (int i = RUN_STORE_LOCAL; i <= RUN_STORE_PARTNER; i++) {
        if (strcmp(text, store_names[i]) == 0) {
            out->store = (enum run_store)i;
            return RC_OK;
        }
    }
    return err_set(e, RC_USAGE,
        "checkpoint store '%s' is unknown; use local, local+partner or shared:PATH", text);
}

/* --- writing --- */

static struct json *hosts_to_json(const struct run_spec *s)
{
    struct json *arr = json_arr();
    for (size_t i = 0; i < s->host_count; i++) {
        const struct run_host *h = &s->hosts[i];
        struct json *o = json_obj();
        json_add_str(o, "name", h->name);
        json_add_str(o, "address", h->address);
        json_add_int(o, "node", h->node);
        json_add_int(o, "first_rank", h->first_rank);
        json_add_int(o, "ranks", h->ranks);
        json_push(arr, o);
    }
    return arr;
}

static struct json *data_to_json(const struct data_sources *d)
{
    struct json *o = json_obj();
    json_add(o, "sources", data_sources_to_json(d));
    return o;
}

static struct json *evaluation_to_json(const struct run_evaluation *v)
{
    struct json *o = data_to_json(&v->data);
    json_add_int(o, "every_steps", v->every_steps);
    json_add_int(o, "tokens", v->tokens);
    return o;
}

static struct json *checkpoint_to_json(const struct run_checkpoint *c)
{
    struct json *o = json_obj();
    char *store = c->store == RUN_STORE_SHARED ? base_printf("shared:%s", c->shared_path)
                                               : base_strdup(run_store_name(c->store));
    json_add_int(o, "every_steps", c->every_steps);
    json_add_num(o, "every_s", c->every_s);
    json_add_int(o, "keep", c->keep);
    json_add_bool(o, "async", c->is_async);
    json_add_str(o, "store", store);
    free(store);
    return o;
}

static struct json *disk_to_json(const struct run_disk *d)
{
    struct json *o = json_obj(), *dirs = json_arr();
    for (size_t i = 0; i < d->count; i++)
        json_push_str(dirs, d->dirs[i]);
    json_add(o, "dirs", dirs);
    json_add_int(o, "endurance_bytes", d->endurance_bytes);
    return o;
}

static struct json *deadlines_to_json(const struct run_deadlines *d)
{
    struct json *o = json_obj();
    json_add_num(o, "rendezvous_s", d->rendezvous_s);
    json_add_num(o, "collective_s", d->collective_s);
    json_add_num(o, "finish_s", d->finish_s);
    json_add_num(o, "grace_s", d->grace_s);
    json_add_num(o, "heartbeat_s", d->heartbeat_s);
    json_add_num(o, "lost_s", d->lost_s);
    return o;
}

static struct json *limits_to_json(const struct run_limits *l)
{
    struct json *o = json_obj();
    json_add_int(o, "max_micro_usd", l->max_micro_usd);
    json_add_num(o, "max_s", l->max_s);
    json_add_num(o, "spent_s", l->spent_s);
    run_money_put(o, &l->money);
    return o;
}

struct json *run_spec_to_json(const struct run_spec *s)
{
    struct json *o = json_obj();
    json_add_str(o, "schema", SCHEMA);
    json_add_str(o, "id", s->id);
    json_add_int(o, "attempt", s->attempt);
    json_add(o, "hosts", hosts_to_json(s));
    json_add_int(o, "self", (int64_t)s->self);
    json_add_int(o, "steps", s->steps);
    json_add_int(o, "resume_step", s->resume_step);
    json_add_int(o, "saved_step", s->saved_step);
    json_add(o, "data", data_to_json(&s->data));
    if (s->evaluation.data.n > 0)
        json_add(o, "evaluation", evaluation_to_json(&s->evaluation));
    json_add_str(o, "weights", s->weights);
    json_add(o, "checkpoint", checkpoint_to_json(&s->checkpoint));
    json_add(o, "disk", disk_to_json(&s->disk));
    json_add(o, "deadlines", deadlines_to_json(&s->deadlines));
    json_add(o, "limits", limits_to_json(&s->limits));
    json_add_str(o, "token", s->token);
    json_add(o, "plan", s->plan ? json_clone(s->plan) : json_obj());
    json_add(o, "training", s->training ? json_clone(s->training) : json_obj());
    json_add(o, "env", s->env ? json_clone(s->env) : json_obj());
    return o;
}

/* --- reading --- */

static enum rc read_host(struct run_spec *s, const struct json *v, struct err *e)
{
    const char *name, *address;
    int64_t node, first, ranks;
    enum rc rc = json_need_str(v, "name", &name, e);
    if (!rc)
        rc = json_need_str(v, "address", &address, e);
    if (!rc)
        rc = json_need_int(v, "node", 0, RUN_MAX_HOSTS * 16, &node, e);
    if (!rc)
        rc = json_need_int(v, "first_rank", 0, RUN_MAX_RANKS, &first, e);
    if (!rc)
        rc = json_need_int(v, "ranks", 1, RUN_MAX_RANKS, &ranks, e);
    if (rc)
        return rc;
    if (first != run_spec_ranks(s) || first + ranks > RUN_MAX_RANKS)
        return err_set(
            e, RC_INVALID, "host '%s' does not continue the ranks of its predecessor", name);
    for (size_t i = 0; i < s->host_count; i++)
        if (s->hosts[i].node == node)
            return err_set(e, RC_INVALID, "hosts '%s' and '%s' have the same node number %lld",
                s->hosts[i].name, name, (long long)node);
    run_spec_add_host(s, name, address, node, ranks);
    return RC_OK;
}

static enum rc read_hosts(struct run_spec *s, const struct json *v, struct err *e)
{
    const struct json *hosts;
    enum rc rc = json_need_arr(v, "hosts", &hosts, e);
    if (rc)
        return rc;
    if (json_len(hosts) < 1 || json_len(hosts) > RUN_MAX_HOSTS)
        return err_set(e, RC_INVALID, "'hosts' must list 1 to %d hosts", RUN_MAX_HOSTS);
    for (size_t i = 0; !rc && i < json_len(hosts); i++)
        rc = read_host(s, json_at(hosts, i), e);
    return rc;
}

static enum rc read_data(
    struct data_sources *d, const struct json *v, const char *key, struct err *e)
{
    const struct json *o;
    enum rc rc = json_need_obj(v, key, &o, e);
    return rc ? rc : data_sources_from_json(d, json_get(o, "sources"), e);
}

static enum rc read_evaluation(struct run_evaluation *out, const struct json *v, struct err *e)
{
    const struct json *o = json_get(v, "evaluation");
    if (!o)
        return RC_OK;
    enum rc rc = read_data(&out->data, v, "evaluation", e);
    if (!rc)
        rc = json_need_int(o, "every_steps", 1, INT64_MAX, &out->every_steps, e);
    if (!rc)
        rc = json_need_int(o, "tokens", 1, INT64_MAX, &out->tokens, e);
    return rc ? err_in(e, "evaluation") : RC_OK;
}

/* Absent in what earlier versions wrote. */
static enum rc read_weights(struct run_spec *s, const struct json *v, struct err *e)
{
    const char *path;
    if (!json_get(v, "weights"))
        return RC_OK;
    enum rc rc = json_need_str(v, "weights", &path, e);
    if (!rc)
        s->weights = base_strdup(path);
    return rc;
}

static enum rc read_seconds(
    const struct json *o, const char *key, double min, double *out, struct err *e)
{
    double x;
    enum rc rc = json_need_num(o, key, &x, e);
    if (!rc && !(x >= min && x <= 1e9))
        rc = err_set(e, RC_INVALID, "'%s' must lie in %g to 1e9 seconds", key, min);
    if (!rc)
        *out = x;
    return rc;
}

static enum rc read_checkpoint(struct run_checkpoint *c, const struct json *v, struct err *e)
{
    const struct json *o;
    const char *store;
    enum rc rc = json_need_obj(v, "checkpoint", &o, e);
    if (!rc)
        rc = json_need_int(o, "every_steps", 0, INT64_MAX, &c->every_steps, e);
    if (!rc)
        rc = read_seconds(o, "every_s", 0, &c->every_s, e);
    if (!rc)
        rc = json_need_int(o, "keep", 1, 1000000, &c->keep, e);
    if (!rc)
        c->is_async = json_bool(o, "async", true);
    if (!rc)
        rc = json_need_str(o, "store", &store, e);
    if (!rc)
        rc = run_store_parse(c, store, e);
    return rc;
}

/* Specs of runs that were started before there was one have none. */
static enum rc read_disk(struct run_disk *d, const struct json *v, struct err *e)
{
    const struct json *o = json_get(v, "disk"), *dirs = NULL;
    if (!o)
        return RC_OK;
    enum rc rc = json_need_arr(o, "dirs", &dirs, e);
    for (size_t i = 0; i < json_len(dirs) && !rc; i++)
        rc = add_dir(d, json_as_str(json_at(dirs, i), ""), e);
    return rc ? rc : json_need_int(o, "endurance_bytes", 0, INT64_MAX, &d->endurance_bytes, e);
}

static enum rc read_deadlines(struct run_deadlines *d, const struct json *v, struct err *e)
{
    const struct json *o;
    enum rc rc = json_need_obj(v, "deadlines", &o, e);
    if (!rc)
        rc = read_seconds(o, "rendezvous_s", 0.1, &d->rendezvous_s, e);
    if (!rc)
        rc = read_seconds(o, "collective_s", 0.1, &d->collective_s, e);
    if (!rc)
        rc = read_seconds(o, "finish_s", 0.1, &d->finish_s, e);
    if (!rc)
        rc = read_seconds(o, "grace_s", 0, &d->grace_s, e);
    if (!rc)
        rc = read_seconds(o, "heartbeat_s", 0.1, &d->heartbeat_s, e);
    if (!rc)
        rc = read_seconds(o, "lost_s", 0.1, &d->lost_s, e);
    return rc;
}

static enum rc read_limits(struct run_limits *l, const struct json *v, struct err *e)
{
    const struct json *o;
    enum rc rc = json_need_obj(v, "limits", &o, e);
    if (!rc)
        rc = json_need_int(o, "max_micro_usd", 0, INT64_MAX, &l->max_micro_usd, e);
    if (!rc)
        rc = read_seconds(o, "max_s", 0, &l->max_s, e);
    if (!rc)
        rc = read_seconds(o, "spent_s", 0, &l->spent_s, e);
    if (!rc)
        rc = run_money_read(&l->money, o, e);
    return rc;
}

static enum rc read_token(struct run_spec *s, const struct json *v, struct err *e)
{
    const char *token;
    enum rc rc = json_need_str(v, "token", &token, e);
    if (rc)
        return rc;
    if (strlen(token) != RUN_TOKEN_TEXT - 1 ||
        strspn(token, "0123456789abcdef") != RUN_TOKEN_TEXT - 1)
        return err_set(e, RC_INVALID, "'token' is not 64 hex digits");
    str_copy(s->token, sizeof(s->token), token);
    return RC_OK;
}

static enum rc read_env(struct run_spec *s, const struct json *v, struct err *e)
{
    const struct json *env, *value;
    const char *key;
    void *cursor = NULL;
    enum rc rc = json_need_obj(v, "env", &env, e);
    if (rc)
        return rc;
    while (json_next(env, &cursor, &key, &value))
        if (!*key || strchr(key, '=') || !json_is_str(value))
            return err_set(e, RC_INVALID, "environment variable '%s' is not NAME with a text", key);
    s->env = json_clone(env);
    return RC_OK;
}

static enum rc read_documents(struct run_spec *s, const struct json *v, struct err *e)
{
    const struct json *plan, *training;
    enum rc rc = json_need_obj(v, "plan", &plan, e);
    if (!rc)
        rc = json_need_obj(v, "training", &training, e);
    if (rc)
        return rc;
    s->plan = json_clone(plan);
    s->training = json_clone(training);
    return read_env(s, v, e);
}

static enum rc read_head(struct run_spec *s, const struct json *v, struct err *e)
{
    enum rc rc = json_need_schema(v, SCHEMA, e);
    if (!rc)
        rc = run_id_read(s->id, v, e);
    if (!rc)
        rc = json_need_int(v, "attempt", 1, 1000000, &s->attempt, e);
    if (!rc)
        rc = json_need_int(v, "steps", 0, INT64_MAX, &s->steps, e);
    if (!rc)
        rc = json_need_int(v, "resume_step", RUN_RESUME_NEWEST, INT64_MAX, &s->resume_step, e);
    s->saved_step = json_int(v, "saved_step", -1);
    return rc;
}

enum rc run_spec_from_json(struct run_spec *out, const struct json *v, struct err *e)
{
    int64_t self = 0;
    run_spec_init(out);
    enum rc rc = read_head(out, v, e);
    if (!rc)
        rc = read_hosts(out, v, e);
    if (!rc)
        rc = json_need_int(v, "self", 0, (int64_t)out->host_count - 1, &self, e);
    if (!rc)
        rc = read_data(&out->data, v, "data", e);
    if (!rc)
        rc = read_evaluation(&out->evaluation, v, e);
    if (!rc)
        rc = read_weights(out, v, e);
    if (!rc)
        rc = read_checkpoint(&out->checkpoint, v, e);
    if (!rc)
        rc = read_disk(&out->disk, v, e);
    if (!rc)
        rc = read_deadlines(&out->deadlines, v, e);
    if (!rc)
        rc = read_limits(&out->limits, v, e);
    if (!rc)
        rc = read_token(out, v, e);
    if (!rc)
        rc = read_documents(out, v, e);
    if (rc)
        run_spec_release(out);
    else
        out->self = (size_t)self;
    return rc;
}

enum rc run_spec_read(struct run_spec *out, const char *dir, struct err *e)
{
    struct json *v = NULL;
    char *path = path_join(dir, RUN_FILE_SPEC);
    *out = (struct run_spec){0};
    enum rc rc = json_read(&v, path, RUN_SPEC_MAX_BYTES, e);
    if (!rc) {
        rc = run_spec_from_json(out, v, e);
        if (rc)
            err_in(e, "'%s'", path);
    }
    json_free(v);
    free(path);
    return rc;
}
