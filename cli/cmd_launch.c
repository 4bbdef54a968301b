#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/hosts.h"

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct start_args s;
    struct hosts hosts = {0};
    struct launch *l = NULL;
    bool has_hosts = false;
    enum rc rc = start_from_args(&s, args, out, e);
    s.options.plan_path = args_operand(args, 0);
    if (!rc)
        rc = start_hosts(&hosts, &has_hosts, args, e);
    if (!rc && !has_hosts)
        rc = err_set(e, RC_USAGE, "where? give --hosts FILE, or --here for this machine");
    s.options.hosts = &hosts;
    if (!rc)
        rc = launch_prepare(&l, &s.options, e);
    if (!rc)
        rc = start_go(l, &s, args, "launch/1", e);
    launch_free(l);
    hosts_release(&hosts);
    start_release(&s);
    return rc;
}

const struct command CMD_LAUNCH = {
    .name = "launch",
    .topic = COMMAND_RUN,
    .summary = "train a plan on nodes over SSH",
    .operands = "PLAN",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "PLAN is a file written by `berth plan -o`. All hosts are connected, checked and sent what "
        "they lack before the first rank starts; host keys are verified. An agent on each node "
        "then "
        "looks after the ranks, and the first node's one over the run, so that it goes on when "
        "this program ends or the connection breaks.\n\n"
        "Without --detach the run is shown until it is over; Ctrl-C leaves it running. Nothing is "
        "rented or given back: nodes cost money after the run as well.",
    .examples = (const char *const[]){"berth launch plan.json --hosts cluster.txt --data "
                                      "local:tokens.u16",
        "berth launch plan.json --here", "berth launch plan.json --hosts node[01-04] --dry-run",
        "RUN=$(berth launch plan.json --hosts cluster.txt -q -d -y --max-usd 500)", NULL},
    .groups = (const struct option_group *const[]){&START_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
