#include "engine/agent_proc.h"

#include <ctype.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "run/names.h"

enum { PROC_FILE_MAX = 4 << 20 };

/* Whole small file of /proc into s; false when it is gone. */
static bool read_proc(struct str *s, pid_t pid, const char *name)
{
    char path[64];
    struct err ignored;
    str_init(s, PROC_FILE_MAX);
    snprintf(path, sizeof(path), "/proc/%ld/%s", (long)pid, name);
    return file_read(s, path, PROC_FILE_MAX, &ignored) == RC_OK;
}

static void read_boot_id(char out[40])
{
    struct str s = STR_INIT;
    struct err ignored;
    file_read(&s, "/proc/sys/kernel/random/boot_id", 4096, &ignored);
    str_copy(out, 40, str_text(&s));
    out[strcspn(out, "\n")] = '\0';
    str_release(&s);
}

/* State letter and start time of a process; false when it is gone. */
static bool read_stat(pid_t pid, char *state, uint64_t *start_ticks)
{
    struct str s;
    bool is_there = read_proc(&s, pid, "stat");
    /* the command in parentheses may itself hold spaces and parentheses */
    const char *p = is_there ? strrchr(str_text(&s), ')') : NULL;
    if (p && p[1] == ' ') {
        p += 2;
        *state = *p;
        for (int field = 3; field < 22 && p; field++) {
            p = strchr(p, ' ');
            p = p ? p + 1 : NULL;
        }
        *start_ticks = p ? strtoull(p, NULL, 10) : 0;
    }
    str_release(&s);
    return p != NULL;
}

bool proc_id_of(struct proc_id *out, pid_t pid)
{
    char state;
    *out = (struct proc_id){.pid = pid};
    read_boot_id(out->boot_id);
    return read_stat(pid, &state, &out->start_ticks);
}

bool proc_id_is_alive(const struct proc_id *id)
{
    struct proc_id now;
    char state = 0;
    uint64_t start;
    return id->pid > 0 && proc_id_of(&now, id->pid) && now.start_ticks == id->start_ticks &&
           strcmp(now.boot_id, id->boot_id) == 0 && read_stat(id->pid, &state, &start) &&
           state != 'Z' && state != 'X';
}

struct json *proc_id_to_json(const struct proc_id *id)
{
    struct json *o = json_obj();
    json_add_int(o, "pid", id->pid);
    json_add_int(o, "start_ticks", (int64_t)id->start_ticks);
    json_add_str(o, "boot_id", id->boot_id);
    return o;
}

enum rc proc_id_from_json(struct proc_id *out, const struct json *v, struct err *e)
{
    int64_t pid, start;
    const char *boot;
    *out = (struct proc_id){0};
    enum rc rc = json_need_int(v, "pid", 1, INT32_MAX, &pid, e);
    if (!rc)
        rc = json_need_int(v, "start_ticks", 0, INT64_MAX, &start, e);
    if (!rc)
        rc = json_need_str(v, "boot_id", &boot, e);
    if (rc)
        return rc;
    out->pid = (pid_t)pid;
    out->start_ticks = (uint64_t)start;
    str_copy(out->boot_id, sizeof(out->boot_id), boot);
    return RC_OK;
}

/* --- what belongs to a run --- */

/* One of the NUL-separated strings of s equals word. */
static bool has_word(const struct str *s, const char *word)
{
    size_t n = strlen(word);
    for (size_t at = 0; at < s->len; at += strlen(s->p + at) + 1)
        if (strlen(s->p + at) == n && memcmp(s->p + at, word, n) == 0)
            return true;
    return false;
}

static void show_command(const struct str *cmdline, char out[PROC_COMMAND_TEXT])
{
    struct str s = STR_INIT;
    for (size_t i = 0; i < cmdline->len && i < PROC_COMMAND_TEXT; i++)
        str_addc(&s, cmdline->p[i] ? cmdline->p[i] : ' ');
    char *safe = text_safe(str_text(&s));
    str_copy(out, PROC_COMMAND_TEXT, safe);
    free(safe);
    str_release(&s);
}

static bool inspect(pid_t pid, const char *dir, const char *env_word, struct proc_found *out)
{
    struct str cmdline, environ_text;
    bool has_cmdline = read_proc(&cmdline, pid, "cmdline");
    bool has_environ = read_proc(&environ_text, pid, "environ");
    /* argv[1] is the subcommand of berth-engine */
    const char *sub = NULL;
    if (has_cmdline && cmdline.len) {
        size_t first = strlen(cmdline.p) + 1;
        sub = first < cmdline.len ? cmdline.p + first : NULL;
    }
    *out = (struct proc_found){.pid = pid};
    out->is_agent = sub && strcmp(sub, "agent") == 0 && has_word(&cmdline, dir);
    bool is_ours = out->is_agent || (has_environ && has_word(&environ_text, env_word));
    if (is_ours)
        show_command(&cmdline, out->command);
    str_release(&cmdline);
    str_release(&environ_text);
    return is_ours;
}

size_t proc_find_run(const char *dir, struct proc_found out[PROC_MAX_FOUND])
{
    size_t n = 0;
    const struct dirent *entry;
    DIR *proc = opendir("/proc");
    if (!proc)
        return 0;
    char *env_word = base_printf("%s=%s", RUN_DIR_ENV, dir);
    while (n < PROC_MAX_FOUND && (entry = readdir(proc))) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
        char state;
        uint64_t start;
        if (!isdigit((unsigned char)entry->d_name[0]) || pid == getpid())
            continue;
        if (inspect(pid, dir, env_word, &out[n]) && read_stat(pid, &state, &start) && state != 'Z')
            n++;
    }
    free(env_word);
    closedir(proc);
    return n;
}

size_t proc_kill_run(const char *dir, double timeout_s, struct proc_found out[PROC_MAX_FOUND])
{
    double deadline_s = clock_now_s() + timeout_s;
    size_t n;
    while ((n = proc_find_run(dir, out)) > 0) {
        for (size_t i = 0; i < n; i++)
            if (out[i].is_agent)
                kill(out[i].pid, SIGKILL);
        for (size_t i = 0; i < n; i++)
            kill(out[i].pid, SIGKILL);
        if (clock_now_s() > deadline_s)
            break;
        clock_sleep_s(0.05);
    }
    return n;
}

size_t proc_children(pid_t *out, size_t max)
{
    struct str s;
    char name[48];
    size_t n = 0;
    snprintf(name, sizeof(name), "task/%ld/children", (long)getpid());
    if (read_proc(&s, getpid(), name)) {
        char *end;
        for (const char *p = str_text(&s); n < max; p = end) {
            long pid = strtol(p, &end, 10);
            if (end == p)
                break;
            out[n++] = (pid_t)pid;
        }
    }
    str_release(&s);
    return n;
}
