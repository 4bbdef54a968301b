#include "launcher/preflight.h"

#include <gnu/libc-version.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "inventory/gpu.h"
#include "launcher/fan.h"
#include "launcher/hostrange.h"
#include "launcher/script.h"

enum { SCRIPT_TIMEOUT_S = 60, MIN_FILES = 256 };
static const double MAX_CLOCK_OFFSET_S = 1;
static const int64_t MIN_DISK_BYTES = 64 << 20;

/* Prints key=value lines. dir and id, a text no other host has, are set in front of it: hosts may
 * share the folder. Everything that may hang has a limit where the
 * host has timeout(1). */
static const char SCRIPT[] =
    "limit() { if command -v timeout >/dev/null 2>&1; then timeout 10 \"$@\"; else \"$@\"; fi; }\n"
    "case $dir in '~/'*) dir=$HOME/${dir#'~/'} ;; esac\n"
    "echo time=$(date +%s.%N 2>/dev/null || date +%s)\n"
    "echo system=$(uname -s) $(uname -m)\n"
    "echo libc=$(getconf GNU_LIBC_VERSION 2>/dev/null)\n"
    "echo cores=$(getconf _NPROCESSORS_ONLN 2>/dev/null)\n"
    "echo ram_kib=$(awk '/^MemTotal/ {print $2}' /proc/meminfo 2>/dev/null)\n"
    "echo available_kib=$(awk '/^MemAvailable/ {print $2}' /proc/meminfo 2>/dev/null)\n"
    "echo shm_kib=$(df -kP /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}')\n"
    "echo files=$(ulimit -n)\n"
    "for p in sha256sum shasum openssl; do\n"
    "  if command -v $p >/dev/null 2>&1; then echo sha=$p; break; fi\n"
    "done\n"
    "if command -v nvidia-smi >/dev/null 2>&1; then\n"
    "  limit nvidia-smi --query-gpu=name,memory.total,driver_version --format=csv,noheader "
    "</dev/null 2>/dev/null | sort | uniq -c | sed 's/^ */gpu=/'\n"
    "fi\n"
    "if why=$(mkdir -p \"$dir\" 2>&1); then\n"
    "  echo \"workdir=$(cd \"$dir\" && pwd -P)\"\n"
    "  probe=$dir/.probe-$id\n"
    "  if (printf '#!/bin/sh\\nexit 0\\n' >\"$probe\") 2>/dev/null && [ -s \"$probe\" ]; then\n"
    "    chmod 700 \"$probe\"\n"
    "    if \"$probe\" 2>/dev/null; then echo probe=ok; else echo probe=noexec; fi\n"
    "  else echo probe=readonly; fi\n"
    "  rm -f \"$probe\"\n"
    "  echo disk_kib=$(df -kP \"$dir\" 2>/dev/null | awk 'NR == 2 {print $4}')\n"
    "else echo probe=nodir; echo \"why=$why\"; fi\n"
    "true\n";

const char *verdict_name(enum verdict v)
{
    static const char *const names[] = {"pass", "warn", "fail", "unknown"};
    return names[v];
}

const char *preflight_check_name(enum preflight_check c)
{
    static const char *const names[CHECK_COUNT] = {"system", "libc", "cores", "memory",
        "work folder", "disk", "shared memory", "open files", "clock", "gpu", "tools", "engine",
        "network"};
    return names[c];
}

/* --- judging --- */

static void copy_safe(char *dst, size_t cap, const char *foreign)
{
    char *safe = text_safe(foreign);
    str_copy(dst, cap, safe);
    free(safe);
}

void preflight_set(struct preflight_host *h, enum preflight_check c, enum verdict v,
    const char *value, const char *hint)
{
    h->answer[c].verdict = v;
    copy_safe(h->answer[c].value, sizeof(h->answer[c].value), value);
    copy_safe(h->answer[c].hint, sizeof(h->answer[c].hint), hint);
}

/* Number of a line, -1 when absent. */
static int64_t number(const struct str *lines, const char *key)
{
    char *text = script_value(lines, key), *end = NULL;
    long long x = text ? strtoll(text, &end, 10) : -1;
    if (text && (end == text || x < 0))
        x = -1;
    free(text);
    return x;
}

static void judge_system(struct preflight_host *h, const struct str *lines)
{
    struct utsname own;
    uname(&own);
    char *system = script_value(lines, "system");
    char *want = base_printf("%s %s", own.sysname, own.machine);
    bool is_same = system && strcmp(system, want) == 0;
    char *hint = base_printf("the engine here is for %s", want);
    preflight_set(h, CHECK_SYSTEM, is_same ? VERDICT_PASS : VERDICT_FAIL,
        system ? system : "unknown", is_same ? "" : hint);
    free(hint);
    free(want);
    free(system);
}

static void judge_libc(struct preflight_host *h, const struct str *lines)
{
    char *libc = script_value(lines, "libc");
    const char *own = gnu_get_libc_version();
    int major = 0, minor = 0, own_major = 0, own_minor = 0;
    sscanf(own, "%d.%d", &own_major, &own_minor);
    if (libc && sscanf(libc, "glibc %d.%d", &major, &minor) == 2) {
        bool is_old = major * 1000 + minor < own_major * 1000 + own_minor;
        preflight_set(h, CHECK_LIBC, is_old ? VERDICT_WARN : VERDICT_PASS, libc,
            is_old ? "older than the one the engine was built with; staging will tell" : "");
    } else {
        preflight_set(h, CHECK_LIBC, VERDICT_UNKNOWN, libc && *libc ? libc : "not glibc",
            "the engine needs glibc");
    }
    free(libc);
}

static void judge_cores(
    struct preflight_host *h, const struct str *lines, const struct preflight_need *need)
{
    char text[32];
    h->cores = number(lines, "cores");
    snprintf(text, sizeof(text), "%lld", (long long)h->cores);
    if (h->cores < 1)
        preflight_set(h, CHECK_CORES, VERDICT_UNKNOWN, "unknown", "");
    else if (need->ranks > h->cores)
        preflight_set(
            h, CHECK_CORES, VERDICT_WARN, text, "fewer cores than ranks: they will be slow");
    else
        preflight_set(h, CHECK_CORES, VERDICT_PASS, text, "");
}

static void judge_memory(
    struct preflight_host *h, const struct str *lines, const struct preflight_need *need)
{
    char total[UNITS_TEXT], wanted[UNITS_TEXT], hint[96];
    int64_t kib = number(lines, "ram_kib"), available_kib = number(lines, "available_kib");
    if (kib < 0) {
        preflight_set(h, CHECK_MEMORY, VERDICT_UNKNOWN, "unknown", "");
        return;
    }
    h->ram_bytes = kib << 10;
    units_bytes(total, (double)h->ram_bytes);
    snprintf(hint, sizeof(hint), "the plan needs %s", units_bytes(wanted, (double)need->ram_bytes));
    if (need->ram_bytes > h->ram_bytes)
        preflight_set(h, CHECK_MEMORY, VERDICT_FAIL, total, hint);
    else if (available_kib >= 0 && need->ram_bytes > available_kib << 10)
        preflight_set(h, CHECK_MEMORY, VERDICT_WARN, total, "other programs hold some of it");
    else
        preflight_set(h, CHECK_MEMORY, VERDICT_PASS, total, "");
}

static void judge_workdir(struct preflight_host *h, const struct str *lines)
{
    char *probe = script_value(lines, "probe"), *why = script_value(lines, "why");
    h->workdir = script_value(lines, "workdir");
    const char *shown = h->workdir ? h->workdir : why && *why ? why : "cannot be made";
    if (probe && strcmp(probe, "ok") == 0 && h->workdir && h->workdir[0] == '/')
        preflight_set(h, CHECK_WORKDIR, VERDICT_PASS, "can be used", "");
    else if (probe && strcmp(probe, "noexec") == 0)
        preflight_set(h, CHECK_WORKDIR, VERDICT_FAIL, "noexec",
            "programs there cannot be run (noexec?); choose another with --remote-dir");
    else if (probe && strcmp(probe, "readonly") == 0)
        preflight_set(h, CHECK_WORKDIR, VERDICT_FAIL, "cannot be written",
            "full, read-only or not yours; choose another with --remote-dir");
    else
        preflight_set(h, CHECK_WORKDIR, VERDICT_FAIL, shown, "choose another with --remote-dir");
    free(probe);
    free(why);
}

static void judge_disk(
    struct preflight_host *h, const struct str *lines, const struct preflight_need *need)
{
    char text[UNITS_TEXT], wanted[UNITS_TEXT], hint[96];
    int64_t kib = number(lines, "disk_kib");
    int64_t need_bytes = need->disk_bytes > MIN_DISK_BYTES ? need->disk_bytes : MIN_DISK_BYTES;
    snprintf(hint, sizeof(hint), "the run needs %s", units_bytes(wanted, (double)need_bytes));
    if (kib < 0)
        preflight_set(h, CHECK_DISK, VERDICT_UNKNOWN, "unknown", "");
    else if (kib << 10 < need_bytes)
        preflight_set(h, CHECK_DISK, VERDICT_FAIL, units_bytes(text, (double)(kib << 10)), hint);
    else /* rounded, so that hosts that hardly differ read the same */
        preflight_set(h, CHECK_DISK, VERDICT_PASS,
            units_bytes(text, (double)((kib << 10) / (1 << 30) * (1 << 30))), "");
}

static void judge_limits(struct preflight_host *h, const struct str *lines)
{
    char text[UNITS_TEXT];
    int64_t shm_kib = number(lines, "shm_kib"), files = number(lines, "files");
    if (shm_kib < 0)
        preflight_set(h, CHECK_SHM, VERDICT_WARN, "none", "");
    else
        preflight_set(h, CHECK_SHM, VERDICT_PASS, units_bytes(text, (double)(shm_kib << 10)), "");
    snprintf(text, sizeof(text), "%lld", (long long)files);
    if (files < 0) /* "unlimited" is no number */
        preflight_set(h, CHECK_FILES, VERDICT_PASS, "unlimited", "");
    else
        preflight_set(h, CHECK_FILES, files < MIN_FILES ? VERDICT_WARN : VERDICT_PASS, text,
            files < MIN_FILES ? "raise ulimit -n" : "");
}

static void judge_clock(struct preflight_host *h, double offset_s, double error_s)
{
    char text[64];
    if (!isfinite(offset_s)) {
        preflight_set(h, CHECK_CLOCK, VERDICT_UNKNOWN, "unknown", "");
    } else if (fabs(offset_s) - error_s > MAX_CLOCK_OFFSET_S) {
        snprintf(
            text, sizeof(text), "%.0f s %s", fabs(offset_s), offset_s > 0 ? "ahead" : "behind");
        preflight_set(h, CHECK_CLOCK, VERDICT_WARN, text, "times in logs will not compare");
    } else {
        preflight_set(h, CHECK_CLOCK, VERDICT_PASS, "within 1 s", "");
    }
}

/* Lines of one host: one for each model and driver. */
static int count_gpu_lines(const struct str *lines)
{
    int n = 0;
    for (const char *p = str_text(lines); (p = strstr(p, "gpu=")); p += strlen("gpu="))
        n += p == str_text(lines) || p[-1] == '\n';
    return n;
}

/* Of "8 NVIDIA H100 80GB HBM3, 81559 MiB, 550.54": model and number. */
static const struct gpu *read_gpu(const char *text, int64_t *n)
{
    char *name = NULL;
    long long count = strtoll(text, &name, 10);
    name = base_strdup(*name == ' ' ? name + 1 : name);
    char *memory = strchr(name, ',');
    int64_t mib = memory ? strtoll(memory + 1, NULL, 10) : 0;
    if (memory)
        *memory = '\0';
    const struct gpu *g = gpu_find(name, mib > 0 && mib < 1 << 30 ? mib << 20 : 0);
    *n = count;
    free(name);
    return g;
}

/* Ranks hold equal shares and wait for each other: other GPUs are refused, not mixed. */
static void judge_gpu(
    struct preflight_host *h, const struct str *lines, const struct preflight_need *need)
{
    char *text = script_value(lines, "gpu"), hint[128] = "";
    int64_t n = 0;
    const struct gpu *g = text ? read_gpu(text, &n) : NULL;
    if (!text && need->needs_gpu)
        snprintf(hint, sizeof(hint), "the plan is for GPUs; nvidia-smi shows none");
    else if (need->gpu && count_gpu_lines(lines) > 1)
        snprintf(hint, sizeof(hint),
            "GPUs or drivers of one host differ; the slowest GPU would set "
            "the pace");
    else if (need->gpu && (!g || strcmp(g->id, need->gpu) != 0 || n < need->ranks))
        snprintf(hint, sizeof(hint), "the plan is for %lld %.48s of each host; plan again",
            (long long)need->ranks, need->gpu);
    preflight_set(h, CHECK_GPU, hint[0] ? VERDICT_FAIL : VERDICT_PASS, text ? text : "none", hint);
    free(text);
}

void preflight_judge(struct preflight_host *out, const struct str *lines,
    const struct preflight_need *need, double offset_s, double error_s)
{
    char *sha = script_value(lines, "sha");
    *out = (struct preflight_host){0};
    judge_system(out, lines);
    judge_libc(out, lines);
    judge_cores(out, lines, need);
    judge_memory(out, lines, need);
    judge_workdir(out, lines);
    judge_disk(out, lines, need);
    judge_limits(out, lines);
    judge_clock(out, offset_s, error_s);
    judge_gpu(out, lines, need);
    preflight_set(out, CHECK_TOOLS, sha ? VERDICT_PASS : VERDICT_FAIL, sha ? "complete" : "none",
        sha ? "" : "one of sha256sum, shasum, openssl is needed to verify what is sent");
    free(sha);
}

/* --- asking --- */

static void judge_script(
    struct preflight_host *out, const struct script *s, const struct preflight_need *need)
{
    char *time = script_value(&s->out, "time"), *end = NULL;
    double there_s = time ? strtod(time, &end) : NAN;
    bool is_time = time && end != time;
    double middle_s = (s->sent_wall_s + s->done_wall_s) / 2;
    preflight_judge(out, &s->out, need, is_time ? there_s - middle_s : NAN,
        (s->done_wall_s - s->sent_wall_s) / 2 + 1);
    free(time);
}

enum rc preflight_run(struct preflight *out, struct fan *fan, const char *const *workdirs,
    const struct preflight_need *need, struct err *e)
{
    struct script *scripts = scripts_new(fan->count);
    *out = (struct preflight){.count = fan->count};
    out->v = base_calloc(fan->count, sizeof(*out->v));
    for (size_t i = 0; i < fan->count; i++) {
        script_set(&scripts[i].text, "dir", workdirs[i]);
        str_addf(&scripts[i].text, "id=%ld-%zu\n", (long)getpid(), i);
        str_add(&scripts[i].text, SCRIPT);
    }
    enum rc rc = scripts_run(fan, "looking at the host", scripts, SCRIPT_TIMEOUT_S, e);
    for (size_t i = 0; i < fan->count; i++)
        if (scripts[i].status >= 0)
            judge_script(&out->v[i], &scripts[i], need);
    scripts_free(scripts, fan->count);
    return rc;
}

void preflight_release(struct preflight *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->v[i].workdir);
    free(p->v);
    *p = (struct preflight){0};
}

/* --- grouping --- */

static bool was_looked_at(const struct preflight_host *h)
{
    return h->answer[CHECK_SYSTEM].value[0];
}

/* Hosts with the same answer to c as host first, folded; false when an earlier one had it. */
static bool group(const struct preflight *p, const char *const *names, enum preflight_check c,
    size_t first, struct str *out, struct json *list)
{
    const struct preflight_answer *a = &p->v[first].answer[c];
    const char **same = base_calloc(p->count, sizeof(*same));
    size_t n = 0;
    bool is_first = was_looked_at(&p->v[first]) && a->value[0];
    for (size_t i = 0; i < p->count; i++) {
        const struct preflight_answer *b = &p->v[i].answer[c];
        if (!was_looked_at(&p->v[i]) || a->verdict != b->verdict || strcmp(a->value, b->value) != 0)
            continue;
        is_first &= i >= first;
        same[n++] = names[i];
        if (list)
            json_push_str(list, names[i]);
    }
    if (is_first)
        hostrange_fold(out, same, n);
    free(same);
    return is_first;
}

void preflight_print(const struct preflight *p, const char *const *names, struct str *out)
{
    for (int c = 0; c < CHECK_COUNT; c++)
        for (size_t i = 0; i < p->count; i++) {
            const struct preflight_answer *a = &p->v[i].answer[c];
            struct str hosts = STR_INIT;
            if (group(p, names, (enum preflight_check)c, i, &hosts, NULL))
                str_addf(out, "%-8s %-14s %s: %s%s%s%s\n", verdict_name(a->verdict),
                    preflight_check_name((enum preflight_check)c), str_text(&hosts), a->value,
                    a->hint[0] ? " (" : "", a->hint, a->hint[0] ? ")" : "");
            str_release(&hosts);
        }
}

struct json *preflight_to_json(const struct preflight *p, const char *const *names)
{
    struct json *arr = json_arr();
    for (int c = 0; c < CHECK_COUNT; c++)
        for (size_t i = 0; i < p->count; i++) {
            const struct preflight_answer *a = &p->v[i].answer[c];
            struct json *list = json_arr();
            struct str hosts = STR_INIT;
            if (group(p, names, (enum preflight_check)c, i, &hosts, list)) {
                struct json *o = json_obj();
                json_add_str(o, "check", preflight_check_name((enum preflight_check)c));
                json_add_str(o, "verdict", verdict_name(a->verdict));
                json_add_str(o, "value", a->value);
                json_add_str(o, "hint", a->hint[0] ? a->hint : NULL);
                json_add(o, "hosts", list);
                json_push(arr, o);
            } else {
                json_free(list);
            }
            str_release(&hosts);
        }
    return arr;
}

int preflight_short_of_memory(const struct preflight *p, int64_t ram_bytes)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->v[i].ram_bytes > 0 && p->v[i].ram_bytes < ram_bytes)
            return (int)i;
    return -1;
}

void preflight_describe_unequal(
    const struct preflight *p, const char *const *names, struct str *out)
{
    int64_t least = INT64_MAX, most = 0;
    for (size_t i = 0; i < p->count; i++) {
        int64_t cores = was_looked_at(&p->v[i]) ? p->v[i].cores : 0;
        least = cores > 0 && cores < least ? cores : least;
        most = cores > most ? cores : most;
    }
    if (least >= most)
        return;
    for (size_t i = 0; i < p->count; i++) {
        struct str hosts = STR_INIT;
        bool is_first = was_looked_at(&p->v[i]) && group(p, names, CHECK_CORES, i, &hosts, NULL);
        if (is_first)
            str_addf(out, "%s%s has %s cores", out->len ? ", " : "", str_text(&hosts),
                p->v[i].answer[CHECK_CORES].value);
        str_release(&hosts);
    }
}

enum rc preflight_verdict(const struct preflight *p, const char *const *names, struct err *e)
{
    for (int c = 0; c < CHECK_COUNT; c++)
        for (size_t i = 0; i < p->count; i++) {
            const struct preflight_answer *a = &p->v[i].answer[c];
            if (!was_looked_at(&p->v[i]) || a->verdict != VERDICT_FAIL)
                continue;
            struct str hosts = STR_INIT;
            group(p, names, (enum preflight_check)c, i, &hosts, NULL);
            enum rc rc = err_set(e, RC_NODE, "host %s: %s: %s%s%s", str_text(&hosts),
                preflight_check_name((enum preflight_check)c), a->value, a->hint[0] ? "; " : "",
                a->hint);
            str_release(&hosts);
            return rc;
        }
    return RC_OK;
}
