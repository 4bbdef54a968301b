#include "launcher/clean.h"

#include <stdlib.h>

#include "launcher/fan.h"
#include "launcher/hosts.h"
#include "launcher/script.h"

enum { CLEAN_TIMEOUT_S = 300 };

/* Only what Berth made is removed, so that a wrong --remote-dir does no harm. A run that goes on is
 * one whose recorded agent is alive under its recorded start time. */
static const char SCRIPT[] =
    "case $dir in '~/'*) dir=$HOME/${dir#'~/'} ;; esac\n"
    "[ -d \"$dir\" ] || exit 0\n"
    "for f in \"$dir\"/runs/*/node-*/agent.pid; do\n"
    "  [ -f \"$f\" ] || continue\n"
    "  pid=$(sed 's/.*\"pid\": *\\([0-9]*\\).*/\\1/' \"$f\")\n"
    "  start=$(sed 's/.*\"start_ticks\": *\\([0-9]*\\).*/\\1/' \"$f\")\n"
    "  set -- $(sed 's/.*) //' \"/proc/$pid/stat\" 2>/dev/null)\n" /* state is 1, start 20 */
    "  [ $# -ge 20 ] && [ \"$1\" != Z ] || continue\n"
    "  shift 19\n"
    "  if [ \"$1\" = \"$start\" ]; then echo \"running=$pid in ${f%/*}\"; exit 3; fi\n"
    "done\n"
    "rm -rf \"$dir/runs\" \"$dir/engine\" \"$dir/data\" && { rmdir \"$dir\" 2>/dev/null || true; "
    "}\n";

enum rc clean_hosts(
    struct fan *fan, const struct hosts *hosts, const char *remote_dir, struct err *e)
{
    struct script *scripts = scripts_new(fan->count);
    for (size_t i = 0; i < fan->count; i++) {
        script_set(&scripts[i].text, "dir", hosts->v[i].dir ? hosts->v[i].dir : remote_dir);
        str_add(&scripts[i].text, SCRIPT);
    }
    enum rc rc = scripts_run(fan, "removing files", scripts, CLEAN_TIMEOUT_S, e);
    for (size_t i = 0; !rc && i < fan->count; i++) {
        char *running = script_value(&scripts[i].out, "running");
        if (running)
            rc = err_set(e, RC_NODE, "host '%s': a run still goes on (process %s); stop it first",
                fan->v[i].label, running);
        else if (scripts[i].status != 0)
            rc = err_set(e, RC_NODE, "host '%s': not everything could be removed", fan->v[i].label);
        free(running);
    }
    scripts_free(scripts, fan->count);
    return rc;
}
