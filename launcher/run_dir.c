#include "launcher/run_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "run/spec.h"

#define SCHEMA "run/1"
enum { INFO_MAX_BYTES = 64 << 20, LIST_SHOWN = 5 };

void run_info_init(struct run_info *r)
{
    *r = (struct run_info){
        .state = RUN_PLANNED,
        .money = {.micro_usd_per_hour = -1},
        .predicted_step_s = NAN,
        .predicted_tokens_per_s = NAN,
        .predicted_mfu = NAN,
        .predicted_off_device_s = NAN,
        .predicted_bytes = -1,
    };
}

static void release_node(struct run_node *n)
{
    free(n->host);
    free(n->address);
    free(n->workdir);
    free(n->engine);
    free(n->dir);
    json_free(n->entry);
    *n = (struct run_node){0};
}

static void release_nodes(struct run_node **nodes, size_t *count)
{
    for (size_t i = 0; i < *count; i++)
        release_node(&(*nodes)[i]);
    free(*nodes);
    *nodes = NULL;
    *count = 0;
}

void run_info_release(struct run_info *r)
{
    release_nodes(&r->nodes, &r->node_count);
    release_nodes(&r->past, &r->past_count);
    free(r->path);
    free(r->reason);
    free(r->model);
    free(r->identity);
    free(r->known_hosts);
    free(r->ssh_config);
    json_free(r->spec);
    json_free(r->predicted_parts);
    json_free(r->status);
    run_info_init(r);
}

void run_info_set_nodes(struct run_info *r, size_t count)
{
    release_nodes(&r->nodes, &r->node_count);
    r->nodes = base_calloc(count ? count : 1, sizeof(*r->nodes));
    r->node_count = count;
}

void run_info_put_aside(struct run_info *r, size_t i, struct json *entry)
{
    struct run_node *n = &r->nodes[i];
    json_free(n->entry);
    n->entry = entry;
    if (!n->dir || !n->engine) {
        release_node(n);
        return;
    }
    r->past = base_realloc(r->past, (r->past_count + 1) * sizeof(*r->past));
    r->past[r->past_count++] = *n;
    *n = (struct run_node){0};
}

bool run_info_take_back(struct run_info *r, const char *host, struct run_node *out)
{
    for (size_t i = 0; i < r->past_count; i++) {
        if (strcmp(r->past[i].host, host) != 0)
            continue;
        *out = r->past[i];
        json_free(out->entry);
        out->entry = NULL;
        r->past[i] = r->past[--r->past_count];
        return true;
    }
    return false;
}

char *run_dir_file(const struct run_info *r, const char *name)
{
    return path_join(r->path, name);
}

/* --- writing --- */

static void add_time(struct json *o, const char *key, double wall_s)
{
    char buf[CLOCK_TEXT];
    json_add_str(o, key, wall_s > 0 ? clock_rfc3339(buf, wall_s) : NULL);
}

static struct json *nodes_to_json(const struct run_node *nodes, size_t count)
{
    struct json *arr = json_arr();
    for (size_t i = 0; i < count; i++) {
        const struct run_node *n = &nodes[i];
        struct json *o = json_obj();
        json_add_str(o, "host", n->host);
        json_add_str(o, "address", n->address);
        json_add_str(o, "workdir", n->workdir);
        json_add_str(o, "engine", n->engine);
        json_add_str(o, "dir", n->dir);
        json_add_int(o, "node", n->node);
        json_add_int(o, "ranks", n->ranks);
        if (n->entry)
            json_add(o, "entry", json_clone(n->entry));
        json_push(arr, o);
    }
    return arr;
}

static struct json *predicted_to_json(const struct run_info *r)
{
    struct json *o = json_obj();
    json_add_num(o, "step_seconds", r->predicted_step_s);
    json_add_num(o, "tokens_per_second", r->predicted_tokens_per_s);
    json_add_num(o, "mfu", r->predicted_mfu);
    if (isfinite(r->predicted_off_device_s))
        json_add_num(o, "off_device_exposed_seconds", r->predicted_off_device_s);
    if (r->predicted_parts)
        json_add(o, "parts", json_clone(r->predicted_parts));
    if (r->predicted_bytes >= 0)
        json_add_int(o, "memory_bytes", r->predicted_bytes);
    return o;
}

static struct json *info_to_json(const struct run_info *r)
{
    struct json *o = json_obj();
    json_add_str(o, "schema", SCHEMA);
    json_add_str(o, "id", r->id);
    json_add_str(o, "state", run_state_name(r->state));
    json_add_int(o, "attempt", r->attempt);
    add_time(o, "created_at", r->created_wall_s);
    add_time(o, "launched_at", r->launched_wall_s);
    add_time(o, "ended_at", r->ended_wall_s);
    add_time(o, "attempt_at", r->attempt_wall_s);
    json_add_num(o, "spent_s", r->spent_s);
    json_add_str(o, "reason", r->reason);
    json_add(o, "failure", r->has_failure ? record_failure_to_json(&r->failure) : NULL);
    json_add_int(o, "steps", r->steps);
    json_add_str(o, "model", r->model);
    run_money_put(o, &r->money);
    json_add(o, "predicted", predicted_to_json(r));
    json_add_str(o, "identity", r->identity);
    json_add_str(o, "known_hosts", r->known_hosts);
    json_add_str(o, "ssh_config", r->ssh_config);
    json_add(o, "nodes", nodes_to_json(r->nodes, r->node_count));
    json_add(o, "past_nodes", nodes_to_json(r->past, r->past_count));
    json_add_int(o, "next_node", r->next_node);
    json_add(o, "status", r->status ? json_clone(r->status) : NULL);
    json_add_bool(o, "cleaned", r->is_cleaned);
    json_add(o, "spec", r->spec ? json_clone(r->spec) : NULL);
    return o;
}

enum rc run_dir_save(const struct run_info *r, struct err *e)
{
    struct json *v = info_to_json(r);
    char *text = json_print(v, true), *path = run_dir_file(r, RUN_USER_RUN);
    enum rc rc = file_write(path, text, strlen(text), 0600, e); /* the spec holds the token */
    free(path);
    free(text);
    json_free(v);
    return rc;
}

const struct json *run_info_checkpoint(const struct run_info *r)
{
    return r->is_cleaned ? NULL : json_get(r->status, "checkpoint");
}

/* `latest` names the newest run; a failure to set it must not stop a launch. */
static void set_latest(const struct run_info *r)
{
    char *runs = base_strdup(r->path), *slash = strrchr(runs, '/');
    *slash = '\0';
    char *link = path_join(runs, "latest"), *temp = base_printf("%s.%ld", link, (long)getpid());
    unlink(temp);
    if (symlink(r->id, temp) == 0 && rename(temp, link) != 0)
        unlink(temp);
    free(temp);
    free(link);
    free(runs);
}

enum rc run_dir_create(struct run_info *r, double wall_s, struct err *e)
{
    unsigned char letters[2];
    char *runs = run_user_runs();
    enum rc rc = dir_make(runs, 0700, e);
    for (int i = 0; !rc && i < 16; i++) { /* a taken id is a coincidence of time and letters */
        rc = hash_random(letters, sizeof(letters), e);
        run_id_make(r->id, wall_s, letters);
        free(r->path);
        r->path = path_join(runs, r->id);
        if (rc || mkdir(r->path, 0700) == 0)
            break;
        if (errno != EEXIST || i == 15)
            rc = err_sys(e, RC_IO, "cannot create folder '%s'", r->path);
    }
    free(runs);
    if (rc)
        return rc;
    char *logs = run_dir_file(r, RUN_USER_LOGS);
    r->created_wall_s = wall_s;
    rc = dir_make(logs, 0700, e);
    free(logs);
    if (!rc)
        rc = run_dir_save(r, e);
    if (!rc)
        set_latest(r);
    else
        dir_remove(r->path, NULL);
    return rc;
}

enum rc run_dir_hold(const struct run_info *r, bool is_alone, int *fd, struct err *e)
{
    char *path = run_dir_file(r, ".lock");
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    free(path);
    if (*fd < 0 || flock(*fd, (is_alone ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0 ||
        errno != EWOULDBLOCK)
        return RC_OK;
    close(*fd);
    *fd = -1;
    return err_set(e, RC_INVALID,
        is_alone
            ? "run %s is just being started, stopped or removed by another berth"
            : "run %s is just being started by another berth; press Ctrl-C there, or try again "
              "when it runs",
        r->id);
}

/* --- reading --- */

static char *dup_str(const struct json *v, const char *key)
{
    const char *s = json_str(v, key, NULL);
    return s ? base_strdup(s) : NULL;
}

static double get_time(const struct json *v, const char *key)
{
    double t = clock_parse_rfc3339(json_str(v, key, ""));
    return t > 0 ? t : 0;
}

static void read_node(struct run_node *n, const struct json *o, size_t i)
{
    n->host = base_strdup(json_str(o, "host", "?"));
    n->address = dup_str(o, "address");
    n->workdir = dup_str(o, "workdir");
    n->engine = dup_str(o, "engine");
    n->dir = dup_str(o, "dir");
    n->node = json_int(o, "node", (int64_t)i);
    n->ranks = json_int(o, "ranks", 1);
    n->entry = json_is_obj(json_get(o, "entry")) ? json_clone(json_get(o, "entry")) : NULL;
}

static enum rc read_nodes(struct run_info *r, const struct json *v, struct err *e)
{
    const struct json *arr, *past = json_get(v, "past_nodes");
    enum rc rc = json_need_arr(v, "nodes", &arr, e);
    if (rc)
        return rc;
    if (json_len(arr) > RUN_MAX_HOSTS || json_len(past) > RUN_MAX_HOSTS)
        return err_set(e, RC_INVALID, "'nodes' lists more than %d hosts", RUN_MAX_HOSTS);
    run_info_set_nodes(r, json_len(arr));
    for (size_t i = 0; i < r->node_count; i++)
        read_node(&r->nodes[i], json_at(arr, i), i);
    r->past = base_calloc(json_len(past) + 1, sizeof(*r->past));
    for (size_t i = 0; i < json_len(past); i++) {
        struct run_node *n = &r->past[r->past_count++];
        read_node(n, json_at(past, i), i);
        if (!n->dir || !n->engine || !n->entry)
            return err_set(e, RC_INVALID, "'past_nodes' entry %zu is incomplete", i + 1);
    }
    return RC_OK;
}

static enum rc read_info(struct run_info *r, const struct json *v, struct err *e)
{
    enum rc rc = json_need_schema(v, SCHEMA, e);
    if (!rc)
        rc = run_id_read(r->id, v, e);
    if (!rc)
        rc = run_money_read(&r->money, v, e);
    if (!rc)
        rc = read_nodes(r, v, e);
    if (rc)
        return rc;
    const struct json *predicted = json_get(v, "predicted");
    r->state = run_state_parse(json_str(v, "state", ""));
    r->attempt = json_int(v, "attempt", 0);
    r->created_wall_s = get_time(v, "created_at");
    r->launched_wall_s = get_time(v, "launched_at");
    r->ended_wall_s = get_time(v, "ended_at");
    r->attempt_wall_s = get_time(v, "attempt_at");
    r->spent_s = json_num(v, "spent_s", 0);
    r->reason = dup_str(v, "reason");
    r->has_failure = json_get(v, "failure") != NULL;
    record_failure_from_json(&r->failure, json_get(v, "failure"));
    r->steps = json_int(v, "steps", 0);
    r->model = dup_str(v, "model");
    r->predicted_step_s = json_num(predicted, "step_seconds", NAN);
    r->predicted_tokens_per_s = json_num(predicted, "tokens_per_second", NAN);
    r->predicted_mfu = json_num(predicted, "mfu", NAN);
    r->predicted_off_device_s = json_num(predicted, "off_device_exposed_seconds", NAN);
    const struct json *parts = json_get(predicted, "parts");
    r->predicted_parts = parts ? json_clone(parts) : NULL;
    r->predicted_bytes = json_int(predicted, "memory_bytes", -1);
    r->identity = dup_str(v, "identity");
    r->known_hosts = dup_str(v, "known_hosts");
    r->ssh_config = dup_str(v, "ssh_config");
    r->next_node = json_int(v, "next_node", (int64_t)r->node_count);
    r->status = json_get(v, "status") ? json_clone(json_get(v, "status")) : NULL;
    r->is_cleaned = json_bool(v, "cleaned", false);
    r->spec = json_get(v, "spec") ? json_clone(json_get(v, "spec")) : NULL;
    return RC_OK;
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(*(char *const *)b, *(char *const *)a);
}

/* A launch may have been killed between making the folder and its first file. */
static bool is_run_folder(const char *runs, const char *id)
{
    char *dir = path_join(runs, id), *path = path_join(dir, RUN_USER_RUN);
    bool is_one = file_exists(path);
    free(path);
    free(dir);
    return is_one;
}

enum rc run_dir_list(char ***ids, size_t *count, struct err *e)
{
    char *runs = run_user_runs();
    DIR *dir = opendir(runs);
    const struct dirent *entry;
    size_t cap = 0;
    enum rc rc = RC_OK;
    if (!dir && errno != ENOENT)
        rc = err_sys(e, RC_IO, "cannot read folder '%s'", runs);
    *ids = NULL;
    *count = 0;
    while (dir && (entry = readdir(dir))) {
        if (!run_id_is_valid(entry->d_name) || !is_run_folder(runs, entry->d_name))
            continue;
        BASE_GROW(*ids, cap, *count + 1);
        (*ids)[(*count)++] = base_strdup(entry->d_name);
    }
    if (dir)
        closedir(dir);
    if (*count)
        qsort(*ids, *count, sizeof(**ids), newest_first);
    free(runs);
    return rc;
}

void run_dir_list_free(char **ids, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(ids[i]);
    free(ids);
}

static enum rc not_found(char *const *ids, size_t count, const char *name, struct err *e)
{
    struct str known = STR_INIT;
    for (size_t i = 0; i < count && i < LIST_SHOWN; i++)
        str_addf(&known, "%s%s", i ? ", " : "", ids[i]);
    enum rc rc = count ? err_set(e, RC_NOT_FOUND, "no run is called '%s'; newest: %s", name,
                             str_text(&known))
                       : err_set(e, RC_NOT_FOUND, "there is no run yet");
    str_release(&known);
    return rc;
}

/* The run launched last, also where a clock was set back in between. Where its link leads nowhere,
 * the newest by its id. */
static const char *latest_id(char *const *ids, size_t count)
{
    char *runs = run_user_runs(), *link = path_join(runs, "latest"), id[RUN_ID_TEXT] = "";
    ssize_t n = readlink(link, id, sizeof(id) - 1);
    id[n > 0 ? n : 0] = '\0';
    free(link);
    free(runs);
    for (size_t i = 0; i < count; i++)
        if (strcmp(ids[i], id) == 0)
            return ids[i];
    return ids[0];
}

/* Id that name means, owned by ids. */
static enum rc find_id(
    char *const *ids, size_t count, const char *name, const char **out, struct err *e)
{
    *out = NULL;
    if (strcmp(name, "latest") == 0 && count)
        *out = latest_id(ids, count);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(ids[i], name) == 0) {
            *out = ids[i];
            return RC_OK;
        }
        if (!*name || !str_ends(ids[i], name))
            continue;
        if (*out)
            return err_set(e, RC_USAGE, "'%s' may be %s or %s", name, *out, ids[i]);
        *out = ids[i];
    }
    return *out ? RC_OK : not_found(ids, count, name, e);
}

enum rc run_dir_open(struct run_info *out, const char *name, struct err *e)
{
    size_t count;
    char **ids, *path = NULL;
    const char *id;
    struct json *v = NULL;
    run_info_init(out);
    enum rc rc = run_dir_list(&ids, &count, e);
    if (!rc)
        rc = find_id(ids, count, name, &id, e);
    if (!rc) {
        out->path = run_user_dir(id);
        path = run_dir_file(out, RUN_USER_RUN);
        rc = json_read(&v, path, INFO_MAX_BYTES, e);
    }
    if (!rc) {
        rc = read_info(out, v, e);
        if (rc)
            err_in(e, "'%s'", path);
    }
    if (rc)
        run_info_release(out);
    run_dir_list_free(ids, count);
    free(path);
    json_free(v);
    return rc;
}
