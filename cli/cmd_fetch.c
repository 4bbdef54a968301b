/* `berth fetch`: logs first, since they are small and always there, then the checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"
#include "launcher/fetch.h"

static const struct option FETCH[] = {
    {.name = "checkpoint",
        .kind = OPTION_COUNT,
        .argument = "STEP",
        .help = "bring the checkpoint of this step; default the newest",
        .example = "--checkpoint 500"},
    {.name = "logs", .kind = OPTION_FLAG, .help = "bring only logs, metrics and events"},
    DRY_RUN_OPTION,
    {0},
};
static const struct option_group FETCH_OPTIONS = {"Fetching", FETCH};

static void show_progress(void *ctx, const struct fetch_progress *p)
{
    struct out *out = ctx;
    char got[UNITS_TEXT], total[UNITS_TEXT];
    if (out_err_is_terminal(out))
        out_progress(out, "%s of %s", units_bytes(got, (double)p->got_bytes),
            units_bytes(total, (double)p->total_bytes));
}

static enum rc copy_one(const struct run_info *r, const char *name, const char *dir, struct err *e)
{
    struct str s = STR_INIT;
    char *from = run_dir_file(r, name), *to = path_join(dir, name);
    enum rc rc = RC_OK;
    if (file_exists(from)) {
        rc = file_read(&s, from, STR_DEFAULT_MAX, e);
        if (!rc)
            rc = file_write(to, str_text(&s), s.len, 0600, e);
    }
    str_release(&s);
    free(from);
    free(to);
    return rc;
}

static int64_t rank_count(const struct run_info *r)
{
    int64_t n = 0;
    for (size_t i = 0; i < r->node_count; i++)
        n += r->nodes[i].ranks;
    return n;
}

static enum rc bring_logs(struct client *c, const char *dir, struct err *e)
{
    struct client_sink silent = {0};
    struct client_follow catch_up = {
        .sink = &silent, .wants_logs = true, .stops_when_caught_up = true, .unreachable_s = 20};
    const struct run_info *r = client_info(c);
    char *logs = path_join(dir, RUN_USER_LOGS);
    enum rc rc = client_follow(c, &catch_up, e);
    if (!rc)
        rc = dir_make(logs, 0700, e);
    if (!rc)
        rc = copy_one(r, RUN_FILE_METRICS, dir, e);
    if (!rc)
        rc = copy_one(r, RUN_FILE_EVENTS, dir, e);
    for (int64_t rank = 0; !rc && rank < rank_count(r); rank++) {
        char *name = base_printf(RUN_USER_LOGS "/rank-%lld.log", (long long)rank);
        rc = copy_one(r, name, dir, e);
        free(name);
    }
    free(logs);
    return rc;
}

static void would_read(
    struct json *steps, const struct run_info *r, const struct run_node *n, const char *checkpoint)
{
    if (!n->engine || !n->dir)
        return; /* it never got there */
    char *folder = fetch_folder(r, n->dir);
    dry_add(steps, n->host, "read", "%s/rank-*.log", n->dir);
    if (checkpoint)
        dry_add(steps, n->host, "read", "%s/%s", folder, checkpoint);
    free(folder);
}

static void print_dry_run(
    struct out *out, const struct args *args, const struct run_info *r, const char *dir)
{
    struct json *steps = json_arr();
    bool is_logs_only = args_flag(args, "logs");
    int64_t step = args_int(args, "checkpoint", -1);
    char name[RUN_STEP_TEXT] = RUN_STEP_PREFIX "*";
    if (step >= 0)
        run_step_name(name, step);
    for (size_t i = 0; i < r->node_count; i++)
        would_read(steps, r, &r->nodes[i], is_logs_only ? NULL : name);
    for (size_t i = 0; i < r->past_count && !is_logs_only; i++)
        would_read(steps, r, &r->past[i], name);
    dry_add(steps, DRY_HERE, "write", "%s/" RUN_FILE_METRICS, dir);
    dry_add(steps, DRY_HERE, "write", "%s/" RUN_FILE_EVENTS, dir);
    dry_add(steps, DRY_HERE, "write", "%s/" RUN_USER_LOGS "/rank-*.log", dir);
    if (!is_logs_only)
        dry_add(steps, DRY_HERE, "write", "%s/%s", dir, name);
    char *title = base_printf("bring %s of run %s home",
        is_logs_only ? "the logs"
        : step >= 0  ? "a checkpoint and the logs"
                     : "the newest whole checkpoint and the logs",
        r->id);
    dry_print(out, "fetch/1", title, steps);
    free(title);
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    struct client *c = NULL;
    const char *dir = args_operand(args, 1);
    bool is_logs_only = args_flag(args, "logs");
    int64_t step = -1;
    connect_from_args(&connect, &ask, args, out);
    enum rc rc = client_open(&c, args_operand(args, 0), &connect, e);
    if (!rc && args_flag(args, "dry-run")) {
        print_dry_run(out, args, client_info(c), dir);
        client_close(c);
        return RC_OK;
    }
    if (!rc)
        rc = dir_make(dir, 0755, e);
    if (!rc)
        rc = bring_logs(c, dir, e);
    if (!rc && !is_logs_only)
        rc = fetch_checkpoint(
            c, args_int(args, "checkpoint", -1), dir, &step, show_progress, out, e);
    out_progress_end(out);
    if (!rc && out_is_json(out)) {
        struct json *doc = out_document(out, "fetch/1");
        json_add_str(doc, "id", client_info(c)->id);
        json_add_str(doc, "dir", dir);
        if (step >= 0)
            json_add_int(doc, "step", step);
        else
            json_add_null(doc, "step");
        out_json(out, doc);
    } else if (!rc && !out_is_quiet(out)) {
        char name[RUN_STEP_TEXT];
        if (step >= 0)
            out_printf(out, "%s/%s is complete and verified\n", dir, run_step_name(name, step));
        else
            out_printf(out, "logs and metrics are in %s\n", dir);
    }
    client_close(c);
    return rc;
}

const struct command CMD_FETCH = {
    .name = "fetch",
    .topic = COMMAND_RUN,
    .summary = "bring a checkpoint, logs and metrics home",
    .operands = "RUN DIR",
    .min_operands = 2,
    .max_operands = 2,
    .about = "Every file is verified against the checkpoint's manifest. What was interrupted is "
             "continued by the same command.",
    .examples = (const char *const[]){"berth fetch latest results",
        "berth fetch abcd results --checkpoint 500", "berth fetch abcd results --logs", NULL},
    .groups = (const struct option_group *const[]){&FETCH_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
