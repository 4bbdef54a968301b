/* `berth resume`: the launch of a run that is over, once its nodes have said that it is. */
#include <string.h>

#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"
#include "launcher/hosts.h"
#include "launcher/launch.h"
#include "run/spec.h"

static const struct option RESUME[] = {
    {.name = "plan",
        .kind = OPTION_FILE,
        .help = "a plan for another number of ranks or another strategy",
        .detail = "It must be of the same model and the same batch; the checkpoint is resharded.",
        .example = "--plan plan2.json"},
    {.name = "step",
        .kind = OPTION_COUNT,
        .help = "checkpoint to resume from; default the newest good one",
        .example = "--step 500"},
    {0},
};
static const struct option_group RESUME_OPTIONS = {"Resuming", RESUME};

/* The state here may be old: the run may have ended since. */
static enum rc refresh(const struct args *args, struct start_args *s, struct err *e)
{
    struct client *c = NULL;
    struct str why = STR_INIT;
    enum rc rc = client_open(&c, run_operand(args), &s->options.connect, e);
    if (!rc)
        rc = client_refresh(c, &why, e);
    if (!rc && client_info(c)->state == RUN_UNKNOWN)
        rc = err_set(e, RC_NODE, "run %s may still be running: %s; `berth stop` it first",
            client_info(c)->id, str_text(&why));
    str_release(&why);
    client_close(c);
    return rc;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct start_args s;
    struct hosts hosts = {0};
    struct launch *l = NULL;
    bool has_hosts = false;
    enum rc rc = start_from_args(&s, args, out, e);
    s.options.plan_path = args_text(args, "plan");
    s.options.resume_step = args_int(args, "step", RUN_RESUME_NEWEST);
    if (!rc)
        rc = start_hosts(&hosts, &has_hosts, args, e);
    s.options.hosts = has_hosts ? &hosts : NULL;
    if (!rc)
        rc = refresh(args, &s, e);
    if (!rc)
        rc = launch_prepare_resume(&l, run_operand(args), &s.options, e);
    if (!rc)
        rc = start_go(l, &s, args, "resume/1", e);
    launch_free(l);
    hosts_release(&hosts);
    start_release(&s);
    return rc;
}

const struct command CMD_RESUME = {
    .name = "resume",
    .topic = COMMAND_RUN,
    .summary = "go on with a run from its newest checkpoint",
    .operands = "[RUN]",
    .max_operands = 1,
    .about = "RUN is an id, an ending of one, or latest. Without --hosts the run's own hosts are "
             "used; hosts that took part before keep their checkpoints. With other hosts the "
             "checkpoints must be in a shared store or on hosts that take part again.\n\n"
             "Resuming sees the same data in the same order at any number of ranks.",
    .examples = (const char *const[]){"berth resume",
        "berth resume abcd --hosts two.txt --plan "
        "plan2.json",
        NULL},
    .groups = (const struct option_group *const[]){&RESUME_OPTIONS, &START_OPTIONS,
        &CONNECT_OPTIONS, NULL},
    .run = run,
};
