/* The same operation on many hosts at once: one event loop, bounded fan-out, a deadline for each.
 *
 * A host that failed an operation is out: later operations skip it, its error stays. */
#ifndef LAUNCHER_FAN_H
#define LAUNCHER_FAN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "launcher/transport.h"

enum { FAN_DEFAULT = 8 }; /* sshd's MaxStartups 10:30:100 drops connections beyond ten */

struct fan_host {
    struct transport *t; /* owned; NULL: not connected, counts as out */
    char *label;         /* owned; for sentences */
    struct err err;      /* why it is out; code RC_OK while it is in */
};

struct fan {
    struct fan_host *v;
    size_t count;
    int fanout;       /* operations at the same time; 0: FAN_DEFAULT */
    int interrupt_fd; /* readable: give up with RC_INTERRUPTED; -1: none */
};

/* One step of an operation on host i; see launcher/transport.h. */
typedef enum progress (*fan_step)(void *ctx, size_t i, struct err *e);

/* Make room for count hosts without connections. */
void fan_init(struct fan *f, size_t count);
void fan_release(struct fan *f);

/* Run step to the end on every host that is in, at most fanout at a time, each within timeout_s
 * (0: no limit). RC_OK when all of these succeeded; else the first failure in host order as a
 * sentence, with the number of further hosts that failed. `doing` completes "no answer within 20 s
 * while ...". */
enum rc fan_run(
    struct fan *f, const char *doing, fan_step step, void *ctx, double timeout_s, struct err *e);

/* Run one command per host; exec[i] is used for host i, NULL command: skip the host. A status other
 * than 0 is not an error here. */
enum rc fan_exec(
    struct fan *f, const char *doing, struct exec *exec, double timeout_s, struct err *e);

size_t fan_in_count(const struct fan *f);
/* Error of the first host that is out, whenever that happened; RC_OK when all are in. */
enum rc fan_first_error(const struct fan *f, struct err *e);

#endif
