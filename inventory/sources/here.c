/* This machine as an offer: its NVIDIA GPUs if it has any that work, else its CPU. */
#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "inventory/offer.h"
#include "inventory/sources/nvml.h"
#include "inventory/sources/source.h"

#define GIB 1073741824.0

enum { CPUINFO_MAX_BYTES = 4 << 20 };

/* First number in a small file, NAN when there is none ("max" in a control group). */
static double file_number(const char *path)
{
    struct str s;
    str_init(&s, 4096);
    double x = NAN;
    if (!file_read(&s, path, 4096, NULL) && s.len && s.p[0] >= '0' && s.p[0] <= '9')
        x = strtod(s.p, NULL);
    str_release(&s);
    return x;
}

/* Cores this process may use: affinity, then the quota of its control group. */
static double usable_cores(void)
{
    cpu_set_t set;
    double cores =
        sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : (double)get_nprocs();
    struct str s;
    str_init(&s, 256);
    double quota, period;
    if (!file_read(&s, "/sys/fs/cgroup/cpu.max", 256, NULL) &&
        sscanf(str_text(&s), "%lf %lf", &quota, &period) == 2 && period > 0)
        cores = fmin(cores, fmax(1, floor(quota / period)));
    str_release(&s);
    return cores;
}

static double usable_ram(void)
{
    double ram = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double limit = file_number("/sys/fs/cgroup/memory.max");
    return limit < ram ? limit : ram;
}

/* Groups of cores with a memory of their own; ranks do best one in each. */
static int64_t numa_nodes(void)
{
    DIR *d = opendir("/sys/devices/system/node");
    int64_t n = 0;
    for (struct dirent *it; d && (it = readdir(d));)
        n += strncmp(it->d_name, "node", 4) == 0 && it->d_name[4] >= '0' && it->d_name[4] <= '9';
    if (d)
        closedir(d);
    return n > 0 ? n : 1;
}

/* Value of the first line "key : value" of /proc/cpuinfo; the line ends where the file had it. */
static const char *cpuinfo_value(char *text, const char *key)
{
    char *p = strstr(text, key);
    char *colon = p ? strchr(p, ':') : NULL;
    return colon ? colon + 1 + strspn(colon + 1, " \t") : NULL;
}

static bool has_words(const char *line, const char *const *words)
{
    size_t end = strcspn(line, "\n");
    for (; *words; words++) {
        size_t n = strlen(*words);
        bool is_found = false;
        for (const char *p = line; (p = strstr(p, *words)) && p < line + end && !is_found; p++)
            is_found = (p == line || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\n' || !p[n]);
        if (!is_found)
            return false;
    }
    return true;
}

/* Levels of the x86-64 psABI, as the kernels are compiled for them. */
static const char *isa_of(const char *flags)
{
    static const char *const V4[] = {
        "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx2", "fma", NULL};
    static const char *const V3[] = {"avx2", "bmi1", "bmi2", "fma", "f16c", "movbe", NULL};
    if (!flags)
        return "";
    return has_words(flags, V4) ? "x86-64-v4" : has_words(flags, V3) ? "x86-64-v3" : "x86-64-v2";
}

static void put_machine(struct offer *o, const char *isa)
{
    struct utsname u;
    struct statvfs disk;
    offer_put_text(o, OFFER_PROVIDER, "here", PROVENANCE_REPORTED);
    if (uname(&u) == 0) {
        offer_put_text(o, OFFER_ID, u.nodename, PROVENANCE_REPORTED);
        bool is_arm = strcmp(u.machine, "aarch64") == 0;
        offer_put_text(o, OFFER_ARCH, is_arm ? "arm64" : u.machine, PROVENANCE_REPORTED);
    }
    offer_put_number(o, OFFER_NODES_AVAILABLE, 1, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_MAX_NODES, 1, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_PRICE, 0, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_MARKET, MARKET_OWNED, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_FABRIC, FABRIC_NONE, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_VCPUS, usable_cores(), PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_RAM, usable_ram(), PROVENANCE_REPORTED);
    offer_put_text(o, OFFER_ISA, isa, PROVENANCE_REPORTED);
    if (statvfs(".", &disk) == 0) /* whole GiB: what is free changes all the time */
        offer_put_number(o, OFFER_NVME,
            GIB * floor((double)disk.f_bavail * (double)disk.f_frsize / GIB), PROVENANCE_REPORTED);
}

static void put_cpu(struct offer *o, const char *model, int64_t ranks)
{
    int64_t cores = o->vcpus > 0 ? o->vcpus : 1;
    enum provenance from = ranks ? PROVENANCE_REPORTED : PROVENANCE_ASSUMED;
    if (!ranks)
        ranks = numa_nodes() < cores ? numa_nodes() : cores;
    offer_put_number(o, OFFER_DEVICE, DEVICE_CPU, PROVENANCE_REPORTED);
    offer_put_text(o, OFFER_GPU, model, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_GPUS_PER_NODE, (double)ranks, from);
    offer_put_number(
        o, OFFER_GPU_MEMORY, floor((double)o->ram_bytes / (double)ranks), PROVENANCE_REPORTED);
}

static void put_gpus(struct offer *o, const struct nvml_report *r)
{
    offer_put_number(o, OFFER_DEVICE, DEVICE_GPU, PROVENANCE_REPORTED);
    offer_put_text(o, OFFER_GPU, r->name, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_GPUS_PER_NODE, (double)r->count, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_GPU_MEMORY, (double)r->memory_bytes, PROVENANCE_REPORTED);
    offer_put_text(o, OFFER_DRIVER, r->driver, PROVENANCE_REPORTED);
    if (r->is_mixed)
        offer_problem(o, "the GPUs of this machine are not all the same model");
}

static enum rc read_here(struct offers *out, const struct source_input *in, struct err *e)
{
    struct str text;
    struct offer o;
    struct nvml_report gpus;
    offer_init(&o);
    str_init(&text, CPUINFO_MAX_BYTES);
    enum rc rc = file_read(&text, "/proc/cpuinfo", CPUINFO_MAX_BYTES, e);
    if (rc)
        goto out;
    str_addc(&text, '\n');
    const char *flags = cpuinfo_value(text.p, "\nflags");
    const char *model = cpuinfo_value(text.p, "\nmodel name");
    put_machine(&o, isa_of(flags));
    char name[96] = "CPU";
    if (model)
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(model, "\n"), model);
    if (!in->ranks_per_node && nvml_look(&gpus))
        put_gpus(&o, &gpus);
    else
        put_cpu(&o, name, in->ranks_per_node);
    char now[CLOCK_TEXT];
    if (!in->is_reproducible)
        offer_put_text(
            &o, OFFER_FETCHED_AT, clock_rfc3339(now, clock_wall_s()), PROVENANCE_REPORTED);
    offer_settle(&o);
    rc = offers_add(out, &o, e);
out:
    str_release(&text);
    return rc;
}

const struct source SOURCE_HERE = {
    .name = "here",
    .summary = "this machine",
    .read = read_here,
};
