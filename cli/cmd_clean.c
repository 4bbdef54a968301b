/* `berth clean`: one run, by what run.json knows of it, or the whole work folder of hosts. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/clean.h"
#include "launcher/client.h"
#include "launcher/fetch.h"
#include "launcher/hosts.h"

static const struct option CLEAN[] = {
    {.name = "remote-dir",
        .kind = OPTION_TEXT,
        .is_setting = true,
        .argument = "DIR",
        .def = "~/.berth",
        .help = "work folder on the nodes",
        .example = "--remote-dir /scratch/berth"},
    {.name = "local", .kind = OPTION_FLAG, .help = "also remove the run's folder on this machine"},
    DRY_RUN_OPTION,
    {0},
};
static const struct option_group CLEAN_OPTIONS = {"Cleaning", CLEAN};

static void would_remove(struct json *steps, const struct run_info *r, const struct run_node *n)
{
    if (!n->engine || !n->dir)
        return; /* it never got there */
    char *checkpoints = fetch_folder(r, n->dir);
    dry_add(steps, n->host, "remove", "%s", n->dir);
    if (!str_starts(checkpoints, n->dir))
        dry_add(steps, n->host, "remove", "%s (shared)", checkpoints);
    free(checkpoints);
}

static void dry_run_of_run(struct out *out, const struct run_info *r, bool is_local)
{
    struct json *steps = json_arr();
    for (size_t i = 0; i < r->node_count; i++)
        would_remove(steps, r, &r->nodes[i]);
    for (size_t i = 0; i < r->past_count; i++)
        would_remove(steps, r, &r->past[i]);
    if (is_local)
        dry_add(steps, DRY_HERE, "remove", "%s", r->path);
    char *title = base_printf("remove run %s, unless it still goes on", r->id);
    dry_print(out, "clean/1", title, steps);
    free(title);
}

static void dry_run_of_hosts(struct out *out, const struct hosts *hosts, const char *remote_dir)
{
    static const char *const FOLDERS[] = {"runs", "engine", "data"};
    struct json *steps = json_arr();
    for (size_t i = 0; i < hosts->count; i++) {
        const char *dir = hosts->v[i].dir ? hosts->v[i].dir : remote_dir;
        char *label = host_label(&hosts->v[i]);
        for (size_t k = 0; k < BASE_COUNT(FOLDERS); k++)
            dry_add(steps, label, "remove", "%s/%s", dir, FOLDERS[k]);
        free(label);
    }
    dry_print(out, "clean/1", "remove everything of Berth, unless a run still goes on", steps);
}

static enum rc clean_run(
    const struct args *args, const struct session_options *connect, struct out *out, struct err *e)
{
    struct client *c = NULL;
    enum rc rc = client_open(&c, args_operand(args, 0), connect, e);
    if (rc)
        return rc;
    const struct run_info *r = client_info(c);
    if (args_flag(args, "dry-run")) {
        dry_run_of_run(out, r, args_flag(args, "local"));
        client_close(c);
        return RC_OK;
    }
    size_t nodes = r->node_count + r->past_count;
    char *question = base_printf("remove run %s, with its checkpoints, from %zu node%s%s", r->id,
        nodes, nodes == 1 ? "" : "s", args_flag(args, "local") ? " and from this machine" : "");
    rc = out_confirm(out, question, e);
    free(question);
    if (!rc)
        rc = client_clean(c, e);
    if (!rc && args_flag(args, "local"))
        rc = dir_remove(r->path, e);
    if (!rc && out_is_json(out)) {
        struct json *doc = out_document(out, "clean/1");
        json_add_str(doc, "id", r->id);
        out_json(out, doc);
    } else if (!rc && !out_is_quiet(out)) {
        out_printf(out, "run %s is removed from %zu node%s\n", r->id, nodes, nodes == 1 ? "" : "s");
    }
    client_close(c);
    return rc;
}

static enum rc clean_all(
    const struct args *args, const struct session_options *connect, struct out *out, struct err *e)
{
    struct hosts hosts;
    struct session *s = NULL;
    enum rc rc = hosts_load(&hosts, args_operand(args, 0), e);
    if (!rc)
        rc = remote_dir_check(args, e);
    if (!rc && args_flag(args, "dry-run")) {
        dry_run_of_hosts(out, &hosts, args_text(args, "remote-dir"));
        hosts_release(&hosts);
        return RC_OK;
    }
    if (!rc) {
        char *question = base_printf("remove everything of Berth from %zu host%s, checkpoints too",
            hosts.count, hosts.count == 1 ? "" : "s");
        rc = out_confirm(out, question, e);
        free(question);
    }
    if (!rc)
        rc = session_open(&s, &hosts, connect, false, e);
    if (!rc)
        rc = clean_hosts(session_fan(s), &hosts, args_text(args, "remote-dir"), e);
    if (!rc && out_is_json(out)) {
        struct json *doc = out_document(out, "clean/1");
        json_add_int(doc, "hosts", (int64_t)hosts.count);
        out_json(out, doc);
    } else if (!rc && !out_is_quiet(out)) {
        out_printf(out, "%zu host%s clean\n", hosts.count, hosts.count == 1 ? " is" : "s are");
    }
    session_close(s);
    hosts_release(&hosts);
    return rc;
}

static bool is_run(const char *name)
{
    struct run_info r;
    struct err ignored;
    enum rc rc = run_dir_open(&r, name, &ignored);
    if (!rc)
        run_info_release(&r);
    return rc != RC_NOT_FOUND || strcmp(name, "latest") == 0; /* a damaged one is no host either */
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    connect_from_args(&connect, &ask, args, out);
    if (is_run(args_operand(args, 0)))
        return clean_run(args, &connect, out, e);
    return clean_all(args, &connect, out, e);
}

const struct command CMD_CLEAN = {
    .name = "clean",
    .topic = COMMAND_RUN,
    .summary = "remove a run, or everything of Berth, from the nodes",
    .operands = "RUN|HOSTS",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "With a run: its folders on its nodes, checkpoints and logs included. With a host list: "
        "the whole work folder on each host. What is still running is left alone and is an "
        "error.",
    .examples = (const char *const[]){"berth clean latest", "berth clean cluster.txt -y", NULL},
    .groups = (const struct option_group *const[]){&CLEAN_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
