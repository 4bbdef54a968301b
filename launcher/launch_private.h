/* Shared by launcher/launch.c (what is to be done) and launch_run.c (doing it). */
#ifndef LAUNCHER_LAUNCH_PRIVATE_H
#define LAUNCHER_LAUNCH_PRIVATE_H

#include "launcher/hosts.h"
#include "launcher/launch.h"
#include "launcher/launch_input.h"
#include "launcher/preflight.h"
#include "launcher/run_dir.h"
#include "launcher/stage.h"
#include "launcher/weight_files.h"
#include "planner/plan_file.h"
#include "run/spec.h"

struct launch {
    const struct launch_options *o;
    struct plan_file plan;
    struct json *plan_doc;
    char *plan_text; /* bytes of the plan file, kept as they are */
    struct hosts hosts;
    size_t spare_hosts;
    const char **names; /* labels, borrowed from info.nodes */
    struct run_info info;
    int hold_fd; /* of the run's folder, until the ranks run; -1: none */
    bool is_resume;
    bool is_written;      /* the run's folder tells of this attempt */
    struct run_spec spec; /* without hosts until their addresses are known */
    char *engine;         /* local path */
    struct stage_file engine_file;
    struct launch_input data, eval_data;
    struct weight_files weights; /* local NULL: nothing to send */
    int64_t micro_usd_per_hour;  /* -1: unknown */
    /* while running */
    struct session *session;
    int coordinator_port;
};

/* Work folder of host i as the user said it, maybe with "~/". */
const char *launch_workdir(const struct launch *l, size_t i);

/* Room and wear: what the drives of a node have to hold and to bear; nothing without states there.
 */
void launch_describe_disk(const struct launch *l, struct str *out);

/* Others may stop or remove the run from here on. */
void launch_let_go(struct launch *l);

#endif
