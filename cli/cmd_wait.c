#include "base/json.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"

static const struct option WAIT[] = {
    {.name = "timeout",
        .kind = OPTION_SECONDS,
        .help = "give up after this time with exit code 11",
        .example = "--timeout 48h"},
    {0},
};
static const struct option_group WAIT_OPTIONS = {"Waiting", WAIT};

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    struct client *c = NULL;
    struct show_run show = {.out = out, .timeout_s = args_num(args, "timeout", 0)};
    connect_from_args(&connect, &ask, args, out);
    enum rc rc = client_open(&c, run_operand(args), &connect, e);
    if (!rc)
        rc = run_show(c, &show, e);
    if (c && out_is_json(out) &&
        (run_state_is_final(client_info(c)->state) || rc == RC_NOT_FINISHED)) {
        struct json *doc = out_document(out, "status/1");
        run_status_json(doc, client_info(c));
        out_json(out, doc);
    }
    client_close(c);
    return rc;
}

const struct command CMD_WAIT = {
    .name = "wait",
    .topic = COMMAND_RUN,
    .summary = "wait until a run is over; exit as it ended",
    .operands = "[RUN]",
    .max_operands = 1,
    .about = "Exit code 0: finished, 10: failed, 12: cancelled, 11: not over within --timeout.",
    .examples = (const char *const[]){"berth wait", "berth wait abcd --timeout 48h", NULL},
    .groups = (const struct option_group *const[]){&WAIT_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
