#include "cli/run_options.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "launcher/client.h"
#include "launcher/hosts.h"
#include "launcher/launch.h"
#include "launcher/run_dir.h"
#include "planner/data_kind.h"
#include "planner/data_source.h"
#include "run/spec.h"

static const struct option CONNECT[] = {
    {.name = "identity",
        .letter = 'i',
        .kind = OPTION_FILE,
        .is_setting = true,
        .help = "log in with this private key only",
        .detail = "Else the SSH agent's keys, those of ssh_config and the usual files are offered, "
                  "ed25519 first.",
        .example = "--identity ~/.ssh/id_ed25519"},
    {.name = "known-hosts",
        .kind = OPTION_FILE,
        .is_setting = true,
        .help = "host keys to trust, in place of the user's and the system's files",
        .example = "--known-hosts ./known_hosts"},
    {.name = "ssh-config",
        .kind = OPTION_FILE,
        .is_setting = true,
        .help = "ssh configuration in place of ~/.ssh/config; none for no configuration",
        .example = "--ssh-config none"},
    {.name = "accept-new-host-keys",
        .kind = OPTION_FLAG,
        .help = "trust hosts seen for the first time and keep their keys with the run",
        .detail = "A host whose key is known and differs is refused all the same."},
    {.name = "fanout",
        .kind = OPTION_COUNT,
        .is_setting = true,
        .def = "8",
        .help = "hosts to work on at the same time",
        .detail = "SSH servers drop connections when more than ten begin at once.",
        .example = "--fanout 16"},
    {.name = "connect-timeout",
        .kind = OPTION_SECONDS,
        .is_setting = true,
        .def = "20s",
        .help = "give a host up when it has not let us in after this time",
        .example = "--connect-timeout 40s"},
    {0},
};
const struct option_group CONNECT_OPTIONS = {"Connecting", CONNECT};

static const struct option START[] = {
    {.name = "hosts",
        .kind = OPTION_FILE,
        .argument = "FILE|LIST",
        .help = "machines to run on: a file, or a list such as node[01-04]",
        .detail = "A file holds one host per line, [user@]host[:port] with ranges and KEY=VALUE, "
                  "or is a DeepSpeed hostfile, or JSON; `berth help hosts` has it all.",
        .example = "--hosts cluster.txt"},
    {.name = "here", .kind = OPTION_FLAG, .help = "run on this machine, without SSH"},
    {.name = "remote-dir",
        .kind = OPTION_TEXT,
        .is_setting = true,
        .argument = "DIR",
        .def = "~/.berth",
        .help = "work folder on the nodes",
        .example = "--remote-dir /scratch/berth"},
    {.name = "data",
        .kind = OPTION_TEXT,
        .argument = "local:PATH|host:PATH",
        .is_repeatable = true,
        .takes_pairs = true,
        .help = "what to train on: a file to send along, or one that is on every node",
        .detail = "Words behind it belong to it: kind=KIND, tokenizer=FILE for text, mask=FILE for "
                  "which tokens to learn, weight=NUMBER for its share where --data is given more "
                  "than once. `berth help formats` has it all.",
        .example = "--data local:web.txt tokenizer=tokenizer.json weight=0.7 "
                   "--data host:/data/code.tok weight=0.3"},
    {.name = "weights",
        .kind = OPTION_TEXT,
        .argument = "local:PATH|host:PATH",
        .help = "start from these, not from initial values by the seed",
        .detail = "A folder as Hugging Face has it (model.safetensors, or several files with an "
                  "index), or one file; in F32, BF16 or F16. A config.json beside must describe "
                  "the plan's model. A resumed run goes on from its checkpoint.",
        .example = "--weights local:Qwen3-0.6B"},
    {.name = "data-kind",
        .kind = OPTION_CHOICE,
        .argument = "KIND",
        .choices = DATA_KIND_CHOICES,
        .help = "how those files hold tokens; default what the job says, else auto",
        .detail = "`berth help formats` says what the kinds are.",
        .example = "--data-kind uint16"},
    {.name = "store",
        .kind = OPTION_TEXT,
        .argument = "WHERE",
        .help = "checkpoints: local, local+partner or shared:PATH",
        .detail = "With local+partner each host's part also lies on the next host, so that any "
                  "one of them may be lost. That is the default for several hosts.",
        .example = "--store shared:/mnt/run7"},
    {.name = "nvme-dir",
        .kind = OPTION_TEXT,
        .argument = "DIR[,DIR...]",
        .help = "where nodes keep states that the plan has on disk",
        .detail = "One folder on each drive: states are striped over them, in scratch files "
                  "without a name. Default the run's folder in the work folder.",
        .example = "--nvme-dir /nvme0,/nvme1"},
    {.name = "nvme-endurance",
        .kind = OPTION_BYTES,
        .help = "what its drives are rated to have written; the run's share is said",
        .example = "--nvme-endurance 600TB"},
    {.name = "checkpoint-steps",
        .kind = OPTION_COUNT,
        .help = "save every so many steps",
        .example = "--checkpoint-steps 500"},
    {.name = "checkpoint-every",
        .kind = OPTION_SECONDS,
        .help = "save at least this often; default as the plan says",
        .example = "--checkpoint-every 30m"},
    {.name = "checkpoint",
        .kind = OPTION_CHOICE,
        .argument = "HOW",
        .choices = "async|sync",
        .help = "does training go on while a checkpoint is written?",
        .detail =
            "async takes memory for a copy of the states a rank answers for (12 bytes of each "
            "of its parameters, 8 with SGD) from the start, which the plan counts; training waits "
            "for "
            "that copy at most. sync takes none, and training waits for the disk. Default: "
            "async where every host has the memory, and the states lie in memory.",
        .example = "--checkpoint sync"},
    {.name = "keep",
        .kind = OPTION_COUNT,
        .help = "checkpoints that stay, the newest ones; default 2",
        .example = "--keep 3"},
    {.name = "max-usd",
        .kind = OPTION_USD,
        .help = "end the run with a checkpoint when it has cost this much",
        .detail = "All attempts count, and a resumed run keeps its limit. The coordinator on the "
                  "nodes watches it, attached or not. Needed with --yes for nodes that cost money.",
        .example = "--max-usd 500"},
    {.name = "max-hours",
        .kind = OPTION_NUMBER,
        .help = "end the run with a checkpoint after this many hours",
        .detail = "All attempts count, the time between them does not. A resumed run keeps its "
                  "limits.",
        .example = "--max-hours 12"},
    {.name = "rented-since",
        .kind = OPTION_TEXT,
        .argument = "TIME",
        .help = "count money from this time on, not from the launch",
        .detail = "With resume: these nodes are paid since then; what the run cost on its earlier "
                  "ones until it ended is kept. Without it, they are taken to be paid all along.",
        .example = "--rented-since 2026-11-30T08:00:00Z"},
    {.name = "env",
        .kind = OPTION_TEXT,
        .argument = "NAME=VALUE",
        .is_repeatable = true,
        .help = "set a variable for the ranks",
        .example = "--env OMP_NUM_THREADS=4"},
    {.name = "rendezvous-timeout",
        .kind = OPTION_SECONDS,
        .help = "longest from starting agents until all ranks are ready; default 2m",
        .example = "--rendezvous-timeout 5m"},
    {.name = "collective-timeout",
        .kind = OPTION_SECONDS,
        .help = "longest that a rank waits for another; default 1m",
        .example = "--collective-timeout 3m"},
    {.name = "lost-after",
        .kind = OPTION_SECONDS,
        .help = "silence after which a node counts as lost; default 15s",
        .example = "--lost-after 30s"},
    {.name = "engine-file",
        .kind = OPTION_FILE,
        .help = "berth-engine to send, in place of the one beside this program",
        .example = "--engine-file build/berth-engine"},
    {.name = "rank-program",
        .kind = OPTION_TEXT,
        .argument = "PATH",
        .help = "program on the nodes to start as a rank, in place of berth-engine",
        .detail = "It must speak the rank's side of agent/1; used to test launching by itself.",
        .example = "--rank-program /opt/berth/fake_rank"},
    {.name = "detach", .letter = 'd', .kind = OPTION_FLAG, .help = "return once the ranks run"},
    {.name = "dry-run",
        .letter = 'n',
        .kind = OPTION_FLAG,
        .help = "print every host, file, command and rank; do nothing"},
    {0},
};
const struct option_group START_OPTIONS = {"Starting", START};

/* --- connecting --- */

static bool ask_about_keys(void *ctx, const char *text)
{
    struct connect_ask *ask = ctx;
    struct err e = ERR_INIT;
    out_progress_end(ask->out);
    out_note(ask->out, "hosts seen for the first time:");
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        out_note(ask->out, "%.*s", (int)n, p);
        p += n + (p[n] == '\n');
    }
    return !ask->is_yes && out_confirm(ask->out, "trust these keys", &e) == RC_OK;
}

void connect_from_args(
    struct session_options *o, struct connect_ask *ask, const struct args *args, struct out *out)
{
    *ask = (struct connect_ask){out, args_flag(args, "yes")};
    *o = (struct session_options){
        .identity = args_text(args, "identity"),
        .known_hosts = args_text(args, "known-hosts"),
        .ssh_config = args_text(args, "ssh-config"),
        .accepts_new_keys = args_flag(args, "accept-new-host-keys"),
        .timeout_s = args_num(args, "connect-timeout", 20),
        .fanout = (int)args_int(args, "fanout", 8),
        .interrupt_fd = interrupt_watch(),
        .ask = ask_about_keys,
        .ctx = ask,
    };
    if (o->fanout < 1 || o->fanout > 1024)
        o->fanout = FAN_DEFAULT;
}

const char *run_operand(const struct args *args)
{
    return args_operands(args) ? args_operand(args, 0) : "latest";
}

/* --- starting --- */

static void say(void *ctx, const char *line, bool is_change)
{
    struct start_args *s = ctx;
    if (is_change || out_err_is_terminal(s->out))
        out_progress(s->out, "%s", line);
}

enum rc remote_dir_check(const struct args *args, struct err *e)
{
    const char *dir = args_text(args, "remote-dir");
    return dir && hosts_check_dir(dir, e) ? err_in(e, "--remote-dir") : RC_OK;
}

static enum rc check_start(const struct args *args, struct start_args *s, struct err *e)
{
    const char *since = args_text(args, "rented-since");
    if (args_num(args, "max-hours", 1) <= 0)
        return err_set(e, RC_USAGE, "--max-hours must be more than 0");
    if (args_int(args, "keep", 1) < 1)
        return err_set(e, RC_USAGE, "--keep must be at least 1");
    if (args_num(args, "lost-after", 15) < 1)
        return err_set(e, RC_USAGE, "--lost-after must be at least 1s");
    if (args_num(args, "collective-timeout", 60) < 0.1)
        return err_set(e, RC_USAGE, "--collective-timeout must be at least 100ms");
    if (since) {
        s->options.rented_since_wall_s = clock_parse_rfc3339(since);
        if (s->options.rented_since_wall_s <= 0)
            return err_set(e, RC_USAGE,
                "--rented-since '%s' is not a time such as 2026-11-30T08:00:00Z", since);
        if (s->options.rented_since_wall_s > clock_wall_s())
            return err_set(e, RC_USAGE, "--rented-since '%s' lies in the future", since);
    }
    return remote_dir_check(args, e);
}

enum rc start_from_args(
    struct start_args *s, const struct args *args, struct out *out, struct err *e)
{
    size_t env_count = args_times(args, "env");
    *s = (struct start_args){.out = out};
    s->env = base_calloc(env_count + 1, sizeof(*s->env));
    for (size_t i = 0; i < env_count; i++)
        s->env[i] = args_nth(args, "env", i);
    for (size_t i = 0; i < args_times(args, "data"); i++)
        str_addf(&s->data, "%s%s", i ? DATA_SEPARATOR : "", args_nth(args, "data", i));
    s->options = (struct launch_options){
        .engine_path = args_text(args, "engine-file"),
        .data = s->data.len ? str_text(&s->data) : NULL,
        .weights = args_text(args, "weights"),
        .data_kind = args_text(args, "data-kind"),
        .remote_dir = args_text(args, "remote-dir"),
        .store = args_text(args, "store"),
        .checkpoint_steps = args_int(args, "checkpoint-steps", -1),
        .checkpoint_s = args_num(args, "checkpoint-every", -1),
        .checkpoint_mode = args_text(args, "checkpoint"),
        .keep = args_int(args, "keep", 0),
        .nvme_dirs = args_text(args, "nvme-dir"),
        .nvme_endurance_bytes = args_int(args, "nvme-endurance", 0),
        .max_micro_usd = args_int(args, "max-usd", 0),
        .max_s = args_num(args, "max-hours", 0) * 3600,
        .env = s->env,
        .env_count = env_count,
        .rank_program = args_text(args, "rank-program"),
        .rendezvous_s = args_num(args, "rendezvous-timeout", 0),
        .collective_s = args_num(args, "collective-timeout", 0),
        .lost_s = args_num(args, "lost-after", 0),
        .resume_step = RUN_RESUME_NEWEST,
        .say = say,
        .ctx = s,
    };
    connect_from_args(&s->options.connect, &s->ask, args, out);
    return check_start(args, s, e);
}

void start_release(struct start_args *s)
{
    free(s->env);
    s->env = NULL;
    str_release(&s->data);
}

enum rc start_hosts(struct hosts *out, bool *has_hosts, const struct args *args, struct err *e)
{
    const char *list = args_text(args, "hosts");
    bool is_here = args_flag(args, "here");
    *out = (struct hosts){0};
    *has_hosts = list || is_here;
    if (list && is_here)
        return err_set(e, RC_USAGE, "give --hosts or --here, not both");
    if (is_here)
        hosts_here(out);
    return list ? hosts_load(out, list, e) : RC_OK;
}

/* --- going --- */

static enum rc confirm(
    struct launch *l, struct start_args *s, const struct args *args, struct err *e)
{
    struct str question = STR_INIT;
    int64_t price = launch_micro_usd_per_hour(l);
    enum rc rc = RC_OK;
    if (price != 0 && args_flag(args, "yes") && !launch_max_micro_usd(l))
        rc = err_set(e, RC_USAGE,
            price > 0 ? "--yes on nodes that cost money needs --max-usd"
                      : "--yes on nodes without a known price needs --max-usd and price= in the "
                        "host list");
    if (!rc && price != 0) {
        str_add(&question, "launch on ");
        launch_describe_cost(l, &question);
        rc = out_confirm(s->out, str_text(&question), e);
    }
    str_release(&question);
    return rc;
}

static void print_plan(struct launch *l, struct out *out, const char *schema)
{
    struct str text = STR_INIT;
    if (out_is_json(out)) {
        struct json *doc = out_document(out, schema);
        json_add_bool(doc, "dry_run", true);
        json_add(doc, "launch", launch_to_json(l));
        out_json(out, doc);
    } else {
        launch_describe(l, &text);
        out_lines(out, str_text(&text));
    }
    str_release(&text);
}

static void print_started(struct out *out, const struct run_info *r, bool is_detached)
{
    if (out_is_quiet(out)) {
        out_printf(out, "%s\n", r->id);
        out_flush(out);
        return;
    }
    if (out_is_json(out))
        return;
    if (is_detached)
        out_printf(out, "run %s goes on on %zu node%s\n", r->id, r->node_count,
            r->node_count == 1 ? "" : "s");
    else
        out_note(out, "run %s on %zu node%s", r->id, r->node_count, r->node_count == 1 ? "" : "s");
}

static void print_document(struct out *out, const struct run_info *r, const char *schema)
{
    struct json *doc = out_document(out, schema);
    run_status_json(doc, r);
    out_json(out, doc);
}

/* Watch a run that was just started, as `berth attach` would. */
static enum rc watch(struct launch *l, struct start_args *s, const char *schema, struct err *e)
{
    struct client *c = NULL;
    struct show_run show = {.out = s->out};
    enum rc rc = client_open(&c, launch_info(l)->id, &s->options.connect, e);
    if (rc)
        return rc;
    rc = run_show(c, &show, e);
    if (out_is_json(s->out) && run_state_is_final(client_info(c)->state))
        print_document(s->out, client_info(c), schema);
    client_close(c);
    return rc;
}

enum rc start_go(struct launch *l, struct start_args *s, const struct args *args,
    const char *schema, struct err *e)
{
    if (args_flag(args, "dry-run")) {
        print_plan(l, s->out, schema);
        return RC_OK;
    }
    size_t spare = launch_spare_hosts(l);
    if (spare)
        out_note(s->out, "the last %zu host%s of the list will not be used", spare,
            spare == 1 ? "" : "s");
    enum rc rc = confirm(l, s, args, e);
    if (!rc)
        rc = launch_run(l, e);
    out_progress_end(s->out);
    if (rc) {
        const struct run_info *r = launch_info(l);
        if (rc == RC_INTERRUPTED)
            err_set(e, RC_INTERRUPTED, "interrupted; run %s was not started", r->id);
        return rc;
    }
    bool is_detached = args_flag(args, "detach");
    print_started(s->out, launch_info(l), is_detached);
    if (!is_detached)
        return watch(l, s, schema, e);
    if (out_is_json(s->out))
        print_document(s->out, launch_info(l), schema);
    return RC_OK;
}
