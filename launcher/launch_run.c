/* Doing what launch.c settled: connect, preflight, stage, start; each step over all hosts. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "base/units.h"
#include "launcher/launch_private.h"
#include "launcher/reach.h"
#include "launcher/script.h"
#include "launcher/talk.h"

enum { SHORT_TIMEOUT_S = 60, GONE_WAIT_S = 10, STATE_BYTES_PER_PARAM = 12 };

__attribute__((format(printf, 3, 4))) static void say(
    struct launch *l, bool is_change, const char *fmt, ...)
{
    char line[256];
    va_list args;
    if (!l->o->say)
        return;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    l->o->say(l->o->ctx, line, is_change);
}

static struct fan *fan_of(struct launch *l)
{
    return session_fan(l->session);
}

/* --- the user's side --- */

static enum rc write_file(const struct launch *l, const char *name, const char *text, struct err *e)
{
    char *path = run_dir_file(&l->info, name);
    enum rc rc = file_write(path, text, strlen(text), 0600, e);
    free(path);
    return rc;
}

/* What is to be done. A resumed run keeps what is known of its last attempt until agents are about
 * to start: an attempt that fails before must not hide where the checkpoints are. */
static enum rc write_folder(struct launch *l, struct err *e)
{
    struct json *hosts = hosts_to_json(&l->hosts);
    char *text = json_print(hosts, true);
    enum rc rc = write_file(l, RUN_USER_HOSTS, text, e);
    if (!rc)
        rc = write_file(l, RUN_USER_PLAN, l->plan_text, e);
    free(text);
    json_free(hosts);
    l->info.attempt = l->spec.attempt;
    l->info.state = RUN_STAGING;
    l->info.is_cleaned = false;
    l->info.ended_wall_s = l->info.attempt_wall_s = 0;
    l->info.has_failure = false;
    free(l->info.reason);
    l->info.reason = NULL;
    json_free(l->info.status);
    l->info.status = NULL;
    l->is_written = true;
    return rc ? rc : run_dir_save(&l->info, e);
}

/* --- connect, preflight --- */

static enum rc connect_hosts(struct launch *l, struct err *e)
{
    struct session_options o = l->o->connect;
    char *known = run_dir_file(&l->info, RUN_USER_KNOWN_HOSTS);
    say(l, true, "connecting to %zu host%s", l->hosts.count, l->hosts.count == 1 ? "" : "s");
    o.run_known_hosts = known;
    o.identity = l->info.identity;
    o.known_hosts = l->info.known_hosts;
    o.ssh_config = l->info.ssh_config;
    enum rc rc = session_open(&l->session, &l->hosts, &o, false, e);
    free(known);
    return rc;
}

/* Memory and disk the plan wants of a node. Checkpoints: master copy and two moments in fp32 (as
 * planner/estimate.c counts), each kept one and the one being written. */
static struct preflight_need need_of(const struct launch *l)
{
    const struct plan_file *p = &l->plan;
    int64_t nodes = (int64_t)l->hosts.count;
    int64_t state = STATE_BYTES_PER_PARAM * model_params(&p->job.model) / nodes;
    struct preflight_need need = {
        .ram_bytes = (p->peak_bytes + p->host_slab_bytes) * p->strategy.ranks_per_node,
        .disk_bytes = state * (l->spec.checkpoint.keep + 1) + l->engine_file.bytes,
        .ranks = p->strategy.ranks_per_node,
        .needs_gpu = p->offer.device == DEVICE_GPU,
        .gpu = p->offer.device == DEVICE_GPU ? p->offer.gpu : NULL,
    };
    /* where nobody asked for it, a host without the memory does without */
    if (l->o->checkpoint_mode && l->spec.checkpoint.is_async)
        need.ram_bytes += p->snapshot_bytes;
    need.disk_bytes += launch_input_bytes(&l->data) + launch_input_bytes(&l->eval_data);
    if (l->spec.disk.count == 0)
        need.disk_bytes += p->disk_bytes;
    need.disk_bytes += l->weights.bytes;
    if (l->spec.checkpoint.store == RUN_STORE_PARTNER)
        need.disk_bytes += state * (l->spec.checkpoint.keep + 1);
    return need;
}

static enum rc find_addresses(struct launch *l, struct err *e)
{
    char **addresses = base_calloc(l->hosts.count, sizeof(*addresses));
    enum rc rc = reach_addresses(fan_of(l), &l->hosts, l->names, addresses, e);
    for (size_t i = 0; i < l->hosts.count; i++) {
        free(l->info.nodes[i].address);
        l->info.nodes[i].address = addresses[i];
    }
    free(addresses);
    return rc;
}

static void say_unequal(struct launch *l, const struct preflight *p)
{
    struct str s = STR_INIT;
    preflight_describe_unequal(p, l->names, &s);
    if (s.len)
        say(l, true, "hosts differ: %s; every step waits for the slowest", str_text(&s));
    str_release(&s);
}

/* A copy of the states is worth its memory wherever there is room for it. */
static void choose_checkpoints(struct launch *l, const struct preflight *p, int64_t ram_bytes)
{
    char text[UNITS_TEXT];
    if (l->o->checkpoint_mode || !l->spec.checkpoint.is_async)
        return;
    int host = preflight_short_of_memory(p, ram_bytes + l->plan.snapshot_bytes);
    if (host < 0)
        return;
    l->spec.checkpoint.is_async = false;
    say(l, true,
        "training will wait for checkpoints: host '%s' lacks memory for a copy of the state (%s)",
        l->names[host], units_bytes(text, (double)l->plan.snapshot_bytes));
}

static enum rc check_hosts(struct launch *l, struct err *e)
{
    struct preflight p;
    struct preflight_need need = need_of(l);
    const char **workdirs = base_calloc(l->hosts.count, sizeof(*workdirs));
    for (size_t i = 0; i < l->hosts.count; i++)
        workdirs[i] = launch_workdir(l, i);
    struct str disk = STR_INIT;
    launch_describe_disk(l, &disk);
    if (disk.len)
        say(l, true, "%s", str_text(&disk));
    str_release(&disk);
    say(l, true, "checking hosts");
    enum rc rc = preflight_run(&p, fan_of(l), workdirs, &need, e);
    if (!rc)
        rc = preflight_verdict(&p, l->names, e);
    if (!rc) {
        say_unequal(l, &p);
        choose_checkpoints(l, &p, need.ram_bytes);
    }
    for (size_t i = 0; !rc && i < l->hosts.count; i++) {
        struct run_node *n = &l->info.nodes[i];
        char *engine = run_engine_dir(p.v[i].workdir, l->engine_file.sha256);
        free(n->workdir);
        free(n->engine);
        free(n->dir);
        n->workdir = base_strdup(p.v[i].workdir);
        n->engine = path_join(engine, "berth-engine");
        n->dir = run_node_dir(n->workdir, l->info.id, n->node);
        free(engine);
    }
    preflight_release(&p);
    free(workdirs);
    return rc ? rc : find_addresses(l, e);
}

/* --- stage --- */

static void say_staging(void *ctx, const struct stage_progress *p)
{
    struct launch *l = ctx;
    char sent[UNITS_TEXT], total[UNITS_TEXT];
    say(l, false, "sending files: %s of %s", units_bytes(sent, (double)p->sent_bytes),
        units_bytes(total, (double)p->total_bytes));
}

/* An engine that does not start there (another libc) is told now, not by the first rank. */
static enum rc try_engine(struct launch *l, struct err *e)
{
    struct exec *exec = base_calloc(l->hosts.count, sizeof(*exec));
    for (size_t i = 0; i < l->hosts.count; i++) {
        struct str s = STR_INIT;
        str_add_shell_quoted(&s, l->info.nodes[i].engine);
        str_add(&s, " version");
        char *command = shell_wrap(str_text(&s));
        exec_init(&exec[i], command);
        free(command);
        str_release(&s);
    }
    enum rc rc = fan_exec(fan_of(l), "trying the engine", exec, SHORT_TIMEOUT_S, e);
    for (size_t i = 0; i < l->hosts.count; i++) {
        if (!rc && exec[i].status != 0) {
            char *said = text_safe(str_text(&exec[i].err));
            said[strcspn(said, "\n")] = '\0';
            rc = err_set(
                e, RC_NODE, "host '%s': the engine does not run there: %.300s", l->names[i], said);
            free(said);
        }
        exec_release(&exec[i]);
    }
    free(exec);
    return rc;
}

/* Ctrl-C cut the connections, and what was half sent may be large: go back and take it away. */
static void undo_staging(struct launch *l, const struct stage_file *f, const char *const *targets)
{
    struct err ignored = ERR_INIT;
    fan_of(l)->interrupt_fd = -1;
    session_reconnect(l->session, &ignored);
    stage_undo(fan_of(l), f, targets);
}

static enum rc stage_file(
    struct launch *l, const struct stage_file *f, const char *const *targets, struct err *e)
{
    enum rc rc = stage_run(fan_of(l), f, targets, say_staging, l, e);
    if (rc == RC_INTERRUPTED)
        undo_staging(l, f, targets);
    return rc;
}

static enum rc stage_one(
    struct launch *l, const struct launch_input *in, size_t file, struct err *e)
{
    char **targets = base_calloc(l->hosts.count, sizeof(*targets));
    for (size_t i = 0; i < l->hosts.count; i++)
        targets[i] = launch_input_node_path(in, file, l->info.nodes[i].workdir);
    if (file == 0)
        say(l, true, "staging %s", in->what);
    enum rc rc = stage_file(l, &in->files[file].stage, (const char *const *)targets, e);
    for (size_t i = 0; i < l->hosts.count; i++)
        free(targets[i]);
    free(targets);
    return rc;
}

static enum rc stage_input(struct launch *l, const struct launch_input *in, struct err *e)
{
    enum rc rc = RC_OK;
    for (size_t i = 0; i < in->n_files && !rc; i++)
        rc = stage_one(l, in, i, e);
    return rc;
}

static enum rc stage_weights(struct launch *l, struct err *e)
{
    const struct weight_files *w = &l->weights;
    char **targets = base_calloc(l->hosts.count, sizeof(*targets));
    enum rc rc = RC_OK;
    if (w->count > 0)
        say(l, true, "staging weights");
    for (size_t f = 0; f < w->count && !rc; f++) {
        for (size_t i = 0; i < l->hosts.count; i++)
            targets[i] =
                weight_files_node_path(w, l->info.nodes[i].workdir, weight_files_name(w, f));
        rc = stage_file(l, &w->file[f], (const char *const *)targets, e);
        for (size_t i = 0; i < l->hosts.count; i++)
            free(targets[i]);
    }
    free(targets);
    return rc;
}

static enum rc stage_all(struct launch *l, struct err *e)
{
    const char **targets = base_calloc(l->hosts.count, sizeof(*targets));
    for (size_t i = 0; i < l->hosts.count; i++)
        targets[i] = l->info.nodes[i].engine;
    say(l, true, "staging the engine");
    enum rc rc = stage_file(l, &l->engine_file, targets, e);
    free(targets);
    if (!rc)
        rc = try_engine(l, e);
    if (!rc)
        rc = stage_input(l, &l->data, e);
    if (!rc)
        rc = stage_input(l, &l->eval_data, e);
    if (!rc)
        rc = stage_weights(l, e);
    return rc;
}

/* --- shared store --- */

/* Run text on hosts from .. to - 1; *missing: the first that did not answer seen=yes, else to. */
static enum rc probe_store(
    struct launch *l, size_t from, size_t to, const char *text, size_t *missing, struct err *e)
{
    struct script *s = scripts_new(l->hosts.count);
    char *dir = run_shared_dir(l->spec.checkpoint.shared_path, l->info.id);
    for (size_t i = from; i < to; i++) {
        script_set(&s[i].text, "dir", dir);
        str_add(&s[i].text, text);
    }
    enum rc rc = scripts_run(fan_of(l), "looking at the shared store", s, SHORT_TIMEOUT_S, e);
    *missing = to;
    for (size_t i = to; i-- > from;) {
        char *seen = script_value(&s[i].out, "seen");
        if (!seen)
            *missing = i;
        free(seen);
    }
    scripts_free(s, l->hosts.count);
    free(dir);
    return rc;
}

/* A path that is another folder on each host would be found out by the first resume: the first host
 * writes there, the others must see it. Network file systems may lag, so they look for a while. */
static enum rc check_store(struct launch *l, struct err *e)
{
    unsigned char bytes[8];
    char nonce[2 * sizeof(bytes) + 1];
    const char *path = l->spec.checkpoint.shared_path;
    size_t missing, count = l->hosts.count;
    if (l->spec.checkpoint.store != RUN_STORE_SHARED)
        return RC_OK;
    enum rc rc = hash_random(bytes, sizeof(bytes), e);
    if (rc)
        return rc;
    hash_hex(bytes, sizeof(bytes), nonce);
    say(l, true, "checking that '%s' is the same folder everywhere", path);
    char *write =
        base_printf("mkdir -p \"$dir\" && echo %s >\"$dir/.probe\" && echo seen=yes\n", nonce);
    char *read = base_printf("for try in 1 2 3 4 5; do\n"
                             "  grep -qx %s \"$dir/.probe\" 2>/dev/null && echo seen=yes && break\n"
                             "  sleep 1\ndone\n",
        nonce);
    rc = probe_store(l, 0, 1, write, &missing, e);
    if (!rc && missing == 0)
        rc = err_set(e, RC_NODE, "host '%s': the store '%s' cannot be written", l->names[0], path);
    if (!rc)
        rc = probe_store(l, 1, count, read, &missing, e);
    if (!rc && missing < count)
        rc = err_set(e, RC_NODE,
            "host '%s' does not see in '%s' what host '%s' writes there; --store shared:PATH needs "
            "one folder that all hosts have in common",
            l->names[missing], path, l->names[0]);
    if (!rc || rc == RC_NODE)
        probe_store(l, 0, 1, "rm -f \"$dir/.probe\"; rmdir \"$dir\" 2>/dev/null\n", &missing,
            &(struct err)ERR_INIT);
    free(write);
    free(read);
    return rc;
}

/* --- network --- */

static enum rc check_network(struct launch *l, struct err *e)
{
    size_t n = l->hosts.count;
    const char **engines = base_calloc(n, sizeof(*engines));
    const char **addresses = base_calloc(n, sizeof(*addresses));
    char **problems = base_calloc(n, sizeof(*problems));
    enum rc rc = RC_OK;
    for (size_t i = 0; i < n; i++) {
        engines[i] = l->info.nodes[i].engine;
        addresses[i] = l->info.nodes[i].address;
    }
    if (n > 1) {
        say(l, true, "checking the network between hosts");
        rc = reach_run(fan_of(l), engines, addresses, l->names, problems, e);
    }
    for (size_t i = 0; i < n; i++) {
        if (!rc && problems[i])
            rc = err_set(e, RC_NODE, "%s", problems[i]);
        free(problems[i]);
    }
    free(engines);
    free(addresses);
    free(problems);
    return rc;
}

/* --- spec --- */

static void fill_spec_hosts(struct launch *l)
{
    for (size_t i = 0; i < l->hosts.count; i++) {
        const struct run_node *n = &l->info.nodes[i];
        run_spec_add_host(&l->spec, n->host, n->address, n->node, n->ranks);
    }
}

/* Spec of node i as one text; paths of inputs differ by work folder. Caller frees. */
static char *spec_text(struct launch *l, size_t i)
{
    l->spec.self = i;
    launch_input_place(&l->data, l->info.nodes[i].workdir);
    launch_input_place(&l->eval_data, l->info.nodes[i].workdir);
    if (l->weights.local) {
        free(l->spec.weights);
        l->spec.weights =
            weight_files_node_path(&l->weights, l->info.nodes[i].workdir, l->weights.name);
    }
    struct json *v = run_spec_to_json(&l->spec);
    char *text = json_print(v, true);
    json_free(v);
    return text;
}

static enum rc write_specs(struct launch *l, struct err *e)
{
    struct exec *exec = base_calloc(l->hosts.count, sizeof(*exec));
    fill_spec_hosts(l);
    for (size_t i = l->hosts.count; i-- > 0;) { /* ends with node 0's, which run.json keeps */
        struct str s = STR_INIT;
        str_add(&s, "umask 077; d=");
        str_add_shell_quoted(&s, l->info.nodes[i].dir);
        str_add(&s, "; mkdir -p \"$d\" && cat >\"$d/spec.json.new\" && "
                    "mv -f \"$d/spec.json.new\" \"$d/spec.json\"");
        char *command = shell_wrap(str_text(&s)), *text = spec_text(l, i);
        exec_init(&exec[i], command);
        str_add(&exec[i].in, text);
        free(text);
        free(command);
        str_release(&s);
    }
    enum rc rc = fan_exec(fan_of(l), "writing the run folder", exec, SHORT_TIMEOUT_S, e);
    for (size_t i = 0; i < l->hosts.count; i++) {
        if (!rc && exec[i].status != 0)
            rc = err_set(e, RC_NODE, "host '%s': cannot write '%s' (disk full?)", l->names[i],
                l->info.nodes[i].dir);
        exec_release(&exec[i]);
    }
    free(exec);
    json_free(l->info.spec);
    l->info.spec = run_spec_to_json(&l->spec);
    return rc;
}

/* --- start --- */

static struct talk_node *talk_nodes(const struct launch *l)
{
    struct talk_node *nodes = base_calloc(l->hosts.count, sizeof(*nodes));
    for (size_t i = 0; i < l->hosts.count; i++)
        nodes[i] = (struct talk_node){l->info.nodes[i].engine, l->info.nodes[i].dir};
    return nodes;
}

/* The line an agent prints when it is up, or why it is not. */
static enum rc take_ready(struct launch *l, size_t i, const struct exec *x, struct err *e)
{
    struct talk_stream s;
    struct json *v = NULL;
    enum rc rc = RC_OK;
    const char *line = strstr(str_text(&x->out), "{\"type\"");
    talk_stream_init(&s);
    s.is_greeted = true; /* the hello is the answer here */
    if (line)
        msg_reader_feed(&s.in, line, strlen(line));
    rc = talk_stream_take(&s, &v, e);
    if (!rc && v && msg_is(v, "hello")) {
        rc = msg_check_hello(v, e);
        if (i == 0)
            l->coordinator_port = (int)json_int(v, "coordinator_port", 0);
    } else if (!rc) {
        char *said = text_safe(v ? json_str(v, "message", "?") : str_text(&x->err));
        said[strcspn(said, "\n")] = '\0';
        rc = err_set(e, RC_NODE, "the agent does not start: %.300s", said);
        free(said);
    }
    json_free(v);
    talk_stream_release(&s);
    return rc ? err_in(e, "host '%s'", l->names[i]) : RC_OK;
}

static enum rc start_agents(struct launch *l, struct err *e)
{
    struct exec *exec = base_calloc(l->hosts.count, sizeof(*exec));
    say(l, true, "starting agents");
    for (size_t i = 0; i < l->hosts.count; i++) {
        struct str s = STR_INIT;
        str_add(&s, "exec ");
        str_add_shell_quoted(&s, l->info.nodes[i].engine);
        str_add(&s, " agent --dir ");
        str_add_shell_quoted(&s, l->info.nodes[i].dir);
        if (l->o->rank_program) {
            str_add(&s, " --rank-program ");
            str_add_shell_quoted(&s, l->o->rank_program);
        }
        char *command = shell_wrap(str_text(&s));
        exec_init(&exec[i], command);
        free(command);
        str_release(&s);
    }
    enum rc rc = fan_exec(fan_of(l), "starting the agent", exec, SHORT_TIMEOUT_S, e);
    for (size_t i = 0; i < l->hosts.count; i++) {
        if (!rc)
            rc = take_ready(l, i, &exec[i], e);
        exec_release(&exec[i]);
    }
    free(exec);
    return rc;
}

static enum rc say_start(struct launch *l, struct err *e)
{
    const char *address = l->info.nodes[0].address;
    struct talk_node *nodes = talk_nodes(l);
    struct json **answers = base_calloc(l->hosts.count, sizeof(*answers));
    struct json *request = msg_new("start");
    char *coordinator =
        base_printf(strchr(address, ':') ? "[%s]:%d" : "%s:%d", address, l->coordinator_port);
    json_add_str(request, "coordinator", coordinator);
    say(l, true, "starting ranks");
    enum rc rc =
        talk_ask_all(fan_of(l), nodes, "starting the ranks", request, answers, SHORT_TIMEOUT_S, e);
    for (size_t i = 0; i < l->hosts.count; i++)
        json_free(answers[i]);
    free(coordinator);
    free(answers);
    free(nodes);
    json_free(request);
    return rc;
}

/* Something failed behind the first agent's start: leave nothing behind. What cannot be proven goes
 * into the sentence. */
static void undo_start(struct launch *l, struct err *e)
{
    struct err why = ERR_INIT;
    struct talk_node *nodes = talk_nodes(l);
    struct json **answers = base_calloc(l->hosts.count, sizeof(*answers));
    struct json *request = msg_new("verify-gone");
    struct str left = STR_INIT;
    json_add_bool(request, "kill", true);
    fan_of(l)->interrupt_fd = -1; /* this must happen even after Ctrl-C */
    session_reconnect(l->session, &why);
    talk_ask_all(fan_of(l), nodes, "ending what was started", request, answers,
        SHORT_TIMEOUT_S + GONE_WAIT_S, &why);
    for (size_t i = 0; i < l->hosts.count; i++) {
        if (!answers[i] || !json_bool(answers[i], "is_gone", false))
            str_addf(&left, "%s%s", left.len ? ", " : "", l->names[i]);
        json_free(answers[i]);
    }
    if (left.len) {
        struct err first = *e;
        err_set(e, first.code, "%s; something may still run on: %s", first.msg, str_text(&left));
    }
    str_release(&left);
    free(answers);
    free(nodes);
    json_free(request);
}

static enum rc go(struct launch *l, struct err *e)
{
    enum rc rc = connect_hosts(l, e);
    if (!rc)
        rc = check_hosts(l, e);
    if (!rc)
        rc = check_store(l, e);
    if (!rc)
        rc = stage_all(l, e);
    if (!rc)
        rc = check_network(l, e);
    if (!rc) /* from here on the run has folders on the nodes: what finds them is on disk before */
        rc = write_folder(l, e);
    if (!rc)
        rc = write_specs(l, e);
    if (!rc)
        rc = run_dir_save(&l->info, e);
    if (rc)
        return rc;
    rc = start_agents(l, e);
    if (!rc)
        rc = say_start(l, e);
    if (rc)
        undo_start(l, e);
    return rc;
}

enum rc launch_run(struct launch *l, struct err *e)
{
    enum rc rc = l->is_resume ? RC_OK : run_dir_create(&l->info, clock_wall_s(), e);
    str_copy(l->spec.id, sizeof(l->spec.id), l->info.id);
    if (!rc && !l->is_resume)
        rc = run_dir_hold(&l->info, true, &l->hold_fd, e);
    if (!rc && !l->is_resume)
        rc = write_folder(l, e);
    if (rc)
        return rc;
    rc = go(l, e);
    if (rc && l->is_written) {
        struct record_failure f = {.rank = -1};
        str_copy(f.code, sizeof(f.code), rc_word(rc));
        str_copy(f.message, sizeof(f.message), e->msg);
        l->info.state = rc == RC_INTERRUPTED ? RUN_CANCELLED : RUN_FAILED;
        l->info.failure = f;
        l->info.has_failure = true;
        l->info.ended_wall_s = clock_wall_s();
        run_dir_save(&l->info, NULL);
    }
    if (rc)
        return rc;
    l->info.state = RUN_RUNNING;
    l->info.attempt_wall_s = clock_wall_s();
    if (!(l->info.launched_wall_s > 0))
        l->info.launched_wall_s = l->info.attempt_wall_s;
    say(l, true, "running");
    rc = run_dir_save(&l->info, e);
    launch_let_go(l);
    return rc;
}
