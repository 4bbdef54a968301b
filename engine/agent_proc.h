/* Processes of a run as /proc shows them: who is alive, what is left. */
#ifndef ENGINE_AGENT_PROC_H
#define ENGINE_AGENT_PROC_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct json;

/* A process beyond doubt: a pid alone may have been given to another one. */
struct proc_id {
    pid_t pid;
    uint64_t start_ticks; /* since boot, field 22 of /proc/PID/stat */
    char boot_id[40];
};

/* False when there is no such process. */
bool proc_id_of(struct proc_id *out, pid_t pid);
/* Still the same process, and not a zombie. */
bool proc_id_is_alive(const struct proc_id *id);
struct json *proc_id_to_json(const struct proc_id *id);
enum rc proc_id_from_json(struct proc_id *out, const struct json *v, struct err *e);

enum { PROC_MAX_FOUND = 256, PROC_COMMAND_TEXT = 160 };

struct proc_found {
    pid_t pid;
    bool is_agent;
    char command[PROC_COMMAND_TEXT];
};

/* Live processes of the run whose node folder is dir (absolute, resolved): those that carry
 * RUN_DIR_ENV=dir in their environment, and its agent. The caller itself is not counted. Returns
 * how many were written to out. */
size_t proc_find_run(const char *dir, struct proc_found out[PROC_MAX_FOUND]);

/* SIGKILL all that proc_find_run finds, agent first, until nothing is left or timeout_s passed.
 * Returns what is still there. */
size_t proc_kill_run(const char *dir, double timeout_s, struct proc_found out[PROC_MAX_FOUND]);

/* Direct children of the calling process; returns how many were written. */
size_t proc_children(pid_t *out, size_t max);

#endif
