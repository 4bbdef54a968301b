/* Checks over all hosts before the first rank starts: what each host is, whether it can do its part
 * and whether the hosts agree. Answers are grouped: "node[1-7]: 4.0 GiB free; node8: 0.1 GiB free".
 */
#ifndef LAUNCHER_PREFLIGHT_H
#define LAUNCHER_PREFLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct fan;
struct hosts;
struct json;

/* What the run needs of every host; 0: nothing stated. */
struct preflight_need {
    int64_t ram_bytes;  /* per node */
    int64_t disk_bytes; /* free, in the work folder */
    int64_t ranks;      /* processes per node */
    bool needs_gpu;
    const char *gpu; /* id of the plan's, one for each rank; NULL: any */
};

enum verdict { VERDICT_PASS, VERDICT_WARN, VERDICT_FAIL, VERDICT_UNKNOWN };
const char *verdict_name(enum verdict v);

enum preflight_check {
    CHECK_SYSTEM, /* Linux, architecture of the engine */
    CHECK_LIBC,
    CHECK_CORES,
    CHECK_MEMORY,
    CHECK_WORKDIR, /* can be written, programs in it can be run */
    CHECK_DISK,
    CHECK_SHM,
    CHECK_FILES, /* open files allowed */
    CHECK_CLOCK,
    CHECK_GPU,
    CHECK_TOOLS,   /* a SHA-256 program */
    CHECK_ENGINE,  /* runs there; only where it was tried */
    CHECK_NETWORK, /* reaches the other hosts; only where it was tried */
    CHECK_COUNT
};
const char *preflight_check_name(enum preflight_check c);

struct preflight_answer {
    enum verdict verdict;
    char value[96]; /* safe to show; equal answers have equal texts */
    char hint[320]; /* what to do about it, "" when nothing */
};

struct preflight_host {
    struct preflight_answer answer[CHECK_COUNT];
    char *workdir; /* absolute, resolved on the host */
    int64_t cores, ram_bytes;
};

struct preflight {
    struct preflight_host *v; /* one per host of the fan; workdir NULL for those that are out */
    size_t count;
};

/* Look at every host. workdir[i] may start with "~/". A failing check is no error here. */
enum rc preflight_run(struct preflight *out, struct fan *fan, const char *const *workdirs,
    const struct preflight_need *need, struct err *e);
void preflight_release(struct preflight *p);

/* Add the answer to a check that was made otherwise. Texts are made safe. */
void preflight_set(struct preflight_host *h, enum preflight_check c, enum verdict v,
    const char *value, const char *hint);

/* First failed check as a sentence: RC_NODE naming hosts, value and what to do; else RC_OK. */
enum rc preflight_verdict(const struct preflight *p, const char *const *names, struct err *e);

/* Number of the first host that is known to have less memory than this; -1: none. */
int preflight_short_of_memory(const struct preflight *p, int64_t ram_bytes);

/* "node[1,2] has 32 cores, node3 has 8 cores": hosts that differ, all of which wait for the
 * slowest; nothing when they are alike. */
void preflight_describe_unequal(
    const struct preflight *p, const char *const *names, struct str *out);

/* One line per check and distinct answer, as text and as JSON (array of
 * {check, verdict, value, hint, hosts}). names[i] is the host's. */
void preflight_print(const struct preflight *p, const char *const *names, struct str *out);
struct json *preflight_to_json(const struct preflight *p, const char *const *names);

/* Decide the answers of one host from the lines its script printed; pure. offset_s: its clock
 * minus ours, error_s: how exactly that is known. */
void preflight_judge(struct preflight_host *out, const struct str *lines,
    const struct preflight_need *need, double offset_s, double error_s);

#endif
