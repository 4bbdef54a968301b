#include "base/json.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"

static const struct option ATTACH[] = {
    {.name = "no-logs",
        .kind = OPTION_FLAG,
        .help = "only progress and events, not what ranks print"},
    {0},
};
static const struct option_group ATTACH_OPTIONS = {"Attaching", ATTACH};

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    struct client *c = NULL;
    struct show_run show = {
        .out = out, .shows_logs = !args_flag(args, "no-logs") && !out_is_json(out)};
    connect_from_args(&connect, &ask, args, out);
    enum rc rc = client_open(&c, run_operand(args), &connect, e);
    if (!rc)
        rc = run_show(c, &show, e);
    if (c && out_is_json(out) && run_state_is_final(client_info(c)->state)) {
        struct json *doc = out_document(out, "status/1");
        run_status_json(doc, client_info(c));
        out_json(out, doc);
    }
    client_close(c);
    return rc;
}

const struct command CMD_ATTACH = {
    .name = "attach",
    .topic = COMMAND_RUN,
    .summary = "show a running run until it is over",
    .operands = "[RUN]",
    .max_operands = 1,
    .about = "Logs go to standard output, progress to standard error. Ctrl-C leaves the run "
             "running. A broken connection comes back by itself.",
    .examples = (const char *const[]){"berth attach", "berth attach abcd --no-logs", NULL},
    .groups = (const struct option_group *const[]){&ATTACH_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
