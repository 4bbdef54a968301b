/* `berth stop`: asks the coordinator, then proves on every host that nothing is left. */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/dry_run.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"

static const struct option STOP[] = {
    {.name = "grace",
        .kind = OPTION_SECONDS,
        .def = "60s",
        .help = "time for finishing the step and saving before ranks are killed",
        .example = "--grace 5m"},
    DRY_RUN_OPTION,
    {0},
};
static const struct option_group STOP_OPTIONS = {"Stopping", STOP};

static void say_cost(struct out *out, const struct run_info *r)
{
    char rate[UNITS_TEXT];
    if (r->money.micro_usd_per_hour <= 0)
        return;
    units_usd(rate, r->money.micro_usd_per_hour);
    if (r->node_count == 1)
        out_note(out, "the node still costs %s an hour until you give it back where you rented it",
            rate);
    else
        out_note(out,
            "the %zu nodes still cost %s an hour until you give them back where you rented them",
            r->node_count, rate);
}

static void print_stopped(struct out *out, const struct run_info *r, bool was_over)
{
    if (out_is_json(out)) {
        struct json *doc = out_document(out, "stop/1");
        run_status_json(doc, r);
        json_add_bool(doc, "is_gone", true);
        out_json(out, doc);
        return;
    }
    if (!out_is_quiet(out))
        out_printf(out, "run %s %s%s; nothing of it is left on %zu node%s\n", r->id,
            was_over ? "was already " : "is ", run_state_name(r->state), r->node_count,
            r->node_count == 1 ? "" : "s");
    say_cost(out, r);
}

static void warn_lines(struct out *out, const char *text)
{
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        out_warn(out, "%.*s", (int)n, p);
        p += n + (p[n] == '\n');
    }
}

static enum rc confirm(struct out *out, const struct run_info *r, struct err *e)
{
    char *question = base_printf(
        "stop run %s on %zu node%s", r->id, r->node_count, r->node_count == 1 ? "" : "s");
    enum rc rc = out_confirm(out, question, e);
    free(question);
    return rc;
}

static void print_dry_run(struct out *out, const struct run_info *r, double grace_s)
{
    struct json *steps = json_arr();
    bool is_over = run_state_is_final(r->state);
    char seconds[UNITS_TEXT];
    for (size_t i = 0; i < r->node_count; i++) {
        const struct run_node *n = &r->nodes[i];
        if (!n->engine || !n->dir)
            continue; /* it never got there */
        if (i == 0 && !is_over)
            dry_add(steps, n->host, "stop", "%s agentctl --dir %s", n->engine, n->dir);
        dry_add(steps, n->host, "verify", "that no process of %s is left", n->dir);
    }
    char *title = is_over ? base_printf("run %s was already %s; look for what is left of it", r->id,
                                run_state_name(r->state))
                          : base_printf("stop run %s: %s to finish the step and save", r->id,
                                units_seconds(seconds, grace_s));
    dry_print(out, "stop/1", title, steps);
    free(title);
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    struct client *c = NULL;
    struct str report = STR_INIT;
    bool was_over = false;
    connect_from_args(&connect, &ask, args, out);
    enum rc rc = client_open(&c, run_operand(args), &connect, e);
    if (!rc && args_flag(args, "dry-run")) {
        print_dry_run(out, client_info(c), args_num(args, "grace", 60));
        client_close(c);
        return RC_OK;
    }
    if (!rc) {
        was_over = run_state_is_final(client_info(c)->state);
        if (!was_over)
            rc = confirm(out, client_info(c), e);
    }
    if (!rc) {
        out_progress(out, "stopping run %s", client_info(c)->id);
        rc = client_stop(c, args_num(args, "grace", 60), &report, e);
        out_progress_end(out);
    }
    if (!rc)
        print_stopped(out, client_info(c), was_over);
    else
        warn_lines(out, str_text(&report));
    str_release(&report);
    client_close(c);
    return rc;
}

const struct command CMD_STOP = {
    .name = "stop",
    .topic = COMMAND_RUN,
    .summary = "save and end a run, and prove that nothing of it is left",
    .operands = "[RUN]",
    .max_operands = 1,
    .about =
        "The ranks finish their step, save and end; what has not ended behind the grace time "
        "is killed. Every host is then searched for what is left of the run. Exit code 6: some "
        "host could not be asked; it is named with the command to run there.\n\n"
        "Nodes cost money until they are given back, which Berth does not do.",
    .examples = (const char *const[]){"berth stop", "berth stop abcd -y --grace 5m", NULL},
    .groups = (const struct option_group *const[]){&STOP_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
