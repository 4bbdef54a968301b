#include "launcher/doctor.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "launcher/fan.h"
#include "launcher/hosts.h"
#include "launcher/reach.h"
#include "launcher/stage.h"
#include "run/names.h"

enum { TRY_TIMEOUT_S = 60 };

struct doctor {
    struct preflight *p;
    struct fan *fan;
    const struct hosts *hosts;
    const char **names, **dirs;
    char **engines; /* absolute paths on the hosts */
};

/* What could not be used so far need not be tried further: the fan skips it from here on. */
static void leave_out_failed(struct doctor *d)
{
    for (size_t i = 0; i < d->fan->count; i++) {
        bool is_bad = !d->p->v[i].workdir;
        for (int c = 0; c < CHECK_COUNT; c++)
            is_bad |= d->p->v[i].answer[c].verdict == VERDICT_FAIL;
        if (is_bad && !d->fan->v[i].err.code)
            err_set(&d->fan->v[i].err, RC_NODE, "failed a check");
    }
}

static enum rc try_engine(struct doctor *d, struct err *e)
{
    struct exec *exec = base_calloc(d->fan->count, sizeof(*exec));
    for (size_t i = 0; i < d->fan->count; i++) {
        struct str s = STR_INIT;
        if (d->fan->v[i].err.code)
            continue;
        str_add_shell_quoted(&s, d->engines[i]);
        str_add(&s, " version");
        char *command = shell_wrap(str_text(&s));
        exec_init(&exec[i], command);
        free(command);
        str_release(&s);
    }
    enum rc rc = fan_exec(d->fan, "trying the engine", exec, TRY_TIMEOUT_S, e);
    for (size_t i = 0; i < d->fan->count; i++) {
        if (exec[i].command && exec[i].status == 0)
            preflight_set(&d->p->v[i], CHECK_ENGINE, VERDICT_PASS, "runs", "");
        else if (exec[i].command && exec[i].status > 0)
            preflight_set(
                &d->p->v[i], CHECK_ENGINE, VERDICT_FAIL, "does not run", str_text(&exec[i].err));
        exec_release(&exec[i]);
    }
    free(exec);
    return rc;
}

static enum rc stage_engine(struct doctor *d, const char *engine, struct err *e)
{
    struct stage_file file;
    enum rc rc = stage_file_init(&file, engine, 0700, e);
    if (rc)
        return rc;
    for (size_t i = 0; i < d->fan->count; i++) {
        const char *workdir = d->p->v[i].workdir ? d->p->v[i].workdir : "/nonexistent";
        char *dir = run_engine_dir(workdir, file.sha256);
        d->engines[i] = path_join(dir, "berth-engine");
        free(dir);
    }
    bool *was_out = base_calloc(d->fan->count, sizeof(*was_out));
    for (size_t i = 0; i < d->fan->count; i++)
        was_out[i] = d->fan->v[i].err.code != RC_OK;
    rc = stage_run(d->fan, &file, (const char *const *)d->engines, NULL, NULL, e);
    for (size_t i = 0; rc != RC_INTERRUPTED && i < d->fan->count; i++)
        if (!was_out[i] && d->fan->v[i].err.code)
            preflight_set(&d->p->v[i], CHECK_ENGINE, VERDICT_FAIL, "cannot be put there",
                d->fan->v[i].err.msg);
    free(was_out);
    return rc;
}

static enum rc try_network(struct doctor *d, struct err *e)
{
    char **addresses = base_calloc(d->fan->count, sizeof(*addresses));
    char **problems = base_calloc(d->fan->count, sizeof(*problems));
    enum rc rc = reach_addresses(d->fan, d->hosts, d->names, addresses, e);
    if (!rc)
        rc = reach_run(d->fan, (const char *const *)d->engines, (const char *const *)addresses,
            d->names, problems, e);
    for (size_t i = 0; i < d->fan->count; i++) {
        if (problems[i])
            preflight_set(&d->p->v[i], CHECK_NETWORK, VERDICT_FAIL, "cut off", problems[i]);
        else if (!d->fan->v[i].err.code && addresses[i] && rc != RC_USAGE)
            preflight_set(&d->p->v[i], CHECK_NETWORK, VERDICT_PASS, "reaches the others", "");
        free(problems[i]);
        free(addresses[i]);
    }
    free(problems);
    free(addresses);
    return rc;
}

enum rc doctor_run(struct preflight *p, struct fan *fan, const struct hosts *hosts,
    const char *remote_dir, const char *engine, struct err *e)
{
    struct doctor d = {.p = p, .fan = fan, .hosts = hosts};
    struct preflight_need need = {0};
    struct err ignored = ERR_INIT;
    d.names = base_calloc(fan->count, sizeof(*d.names));
    d.dirs = base_calloc(fan->count, sizeof(*d.dirs));
    d.engines = base_calloc(fan->count, sizeof(*d.engines));
    for (size_t i = 0; i < fan->count; i++) {
        d.names[i] = fan->v[i].label;
        d.dirs[i] = hosts->v[i].dir ? hosts->v[i].dir : remote_dir;
    }
    /* the first error is the answer; what can still be looked at is */
    enum rc rc = fan_first_error(fan, e), looked = preflight_run(p, fan, d.dirs, &need, &ignored);
    if (looked == RC_INTERRUPTED || (looked && !rc)) {
        rc = looked;
        *e = ignored;
    }
    ignored.code = RC_OK;
    leave_out_failed(&d);
    bool goes_on = rc != RC_INTERRUPTED && fan_in_count(fan) > 0;
    if (goes_on) {
        enum rc staged = stage_engine(&d, engine, &ignored);
        goes_on = staged != RC_INTERRUPTED && fan_in_count(fan) > 0;
        if (goes_on)
            goes_on = try_engine(&d, &ignored) != RC_INTERRUPTED;
        leave_out_failed(&d);
        if (goes_on && fan_in_count(fan) > 1)
            try_network(&d, &ignored);
    }
    if (!rc && ignored.code && ignored.code != RC_NODE) {
        rc = ignored.code;
        *e = ignored;
    }
    for (size_t i = 0; i < fan->count; i++)
        free(d.engines[i]);
    free(d.engines);
    free(d.names);
    free(d.dirs);
    return rc;
}
