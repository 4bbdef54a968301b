/* `berth doctor`: what launch checks before it starts, on hosts and without a plan. */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/doctor.h"
#include "launcher/hosts.h"
#include "launcher/stage.h"

static const struct option DOCTOR[] = {
    {.name = "remote-dir",
        .kind = OPTION_TEXT,
        .is_setting = true,
        .argument = "DIR",
        .def = "~/.berth",
        .help = "work folder on the nodes",
        .example = "--remote-dir /scratch/berth"},
    {0},
};
static const struct option_group DOCTOR_OPTIONS = {"Checking", DOCTOR};

static enum rc check(struct session *s, const struct hosts *hosts, const struct args *args,
    struct out *out, struct err *e)
{
    struct fan *fan = session_fan(s);
    struct preflight p = {0};
    char *engine = NULL;
    const char **names = base_calloc(hosts->count, sizeof(*names));
    for (size_t i = 0; i < hosts->count; i++)
        names[i] = fan->v[i].label;
    enum rc rc = stage_find_engine(&engine, e);
    if (!rc)
        rc = doctor_run(&p, fan, hosts, args_text(args, "remote-dir"), engine, e);
    if (rc != RC_INTERRUPTED && out_is_json(out)) {
        struct json *doc = out_document(out, "doctor/1");
        json_add(doc, "checks", preflight_to_json(&p, names));
        json_add_str(doc, "unreachable", rc ? e->msg : NULL);
        out_json(out, doc);
    } else if (rc != RC_INTERRUPTED) {
        struct str text = STR_INIT;
        preflight_print(&p, names, &text);
        out_lines(out, str_text(&text));
        str_release(&text);
    }
    if (!rc)
        rc = preflight_verdict(&p, names, e);
    preflight_release(&p);
    free(names);
    free(engine);
    return rc;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    struct hosts hosts = {0};
    struct session *s = NULL;
    connect_from_args(&connect, &ask, args, out);
    enum rc rc = hosts_load(&hosts, args_operand(args, 0), e);
    if (!rc)
        rc = remote_dir_check(args, e);
    if (!rc)
        rc = session_open(&s, &hosts, &connect, true, e);
    if (!rc)
        rc = check(s, &hosts, args, out, e);
    session_close(s);
    hosts_release(&hosts);
    return rc;
}

const struct command CMD_DOCTOR = {
    .name = "doctor",
    .topic = COMMAND_RUN,
    .summary = "check hosts before anything runs on them",
    .operands = "HOSTS",
    .min_operands = 1,
    .max_operands = 1,
    .about = "HOSTS is a host list file or a list such as node[01-04]. Logs in, looks at system, "
             "memory, disk, limits, clock and GPUs, tries the work folder, sends the engine there "
             "and starts it, and lets the hosts connect to each other. Equal answers are shown "
             "once for all hosts that gave them. The engine stays for the launch; `berth clean` "
             "removes it. Exit code 6: a host failed a check or could not be reached.",
    .examples =
        (const char *const[]){"berth doctor cluster.txt", "berth doctor node[01-04] --json", NULL},
    .groups = (const struct option_group *const[]){&DOCTOR_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
