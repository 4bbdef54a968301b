#include "base/json.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"

static const struct option STATUS[] = {
    {.name = "exit-code",
        .kind = OPTION_FLAG,
        .help = "exit with 10 for failed, 12 for cancelled, 11 for anything not over"},
    {.name = "offline", .kind = OPTION_FLAG, .help = "do not ask the nodes"},
    {0},
};
static const struct option_group STATUS_OPTIONS = {"Status", STATUS};

static void print(struct out *out, const struct run_info *r)
{
    if (out_is_json(out)) {
        struct json *doc = out_document(out, "status/1");
        run_status_json(doc, r);
        out_json(out, doc);
    } else if (out_is_quiet(out)) {
        out_printf(out, "%s\n", run_state_name(r->state));
    } else {
        run_status_text(out, r);
    }
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    struct client *c = NULL;
    struct str why = STR_INIT;
    connect_from_args(&connect, &ask, args, out);
    enum rc rc = client_open(&c, run_operand(args), &connect, e);
    if (!rc && !args_flag(args, "offline"))
        rc = client_refresh(c, &why, e);
    if (!rc) {
        if (why.len)
            out_warn(out, "no node answers: %s", str_text(&why));
        print(out, client_info(c));
        if (args_flag(args, "exit-code"))
            rc = client_outcome(client_info(c), e);
        if (rc)
            e->msg[0] = '\0'; /* the answer above says it */
    }
    str_release(&why);
    client_close(c);
    return rc;
}

const struct command CMD_STATUS = {
    .name = "status",
    .topic = COMMAND_RUN,
    .summary = "show how a run stands, measured beside planned",
    .operands = "[RUN]",
    .max_operands = 1,
    .about = "RUN is an id, an ending of one, or latest (the default).",
    .examples = (const char *const[]){"berth status", "berth status abcd --json | jq .state",
        "berth status --exit-code -q", NULL},
    .groups = (const struct option_group *const[]){&STATUS_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
