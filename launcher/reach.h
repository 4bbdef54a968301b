/* Can the hosts open connections to each other, both ways, at the addresses a run would use? Asked
 * with the staged engine (engine/agent_reach.c), before the first rank starts. */
#ifndef LAUNCHER_REACH_H
#define LAUNCHER_REACH_H

#include <stddef.h>

#include "base/err.h"

struct fan;
struct hosts;

/* Up to this many hosts every pair is tried; beyond, each host tries the first, the one before and
 * the one behind it. */
enum { REACH_ALL_PAIRS = 32 };

/* Numeric address at which the other hosts reach each one: what the list says, else where SSH went.
 * addresses[i] is owned by the caller; NULL where the host is out or behind a failure. RC_USAGE
 * when that cannot work: a name, a jump host, or loopback for only some. */
enum rc reach_addresses(struct fan *fan, const struct hosts *hosts, const char *const *names,
    char **addresses, struct err *e);

/* engines[i], addresses[i] and names[i] of host i. problems[i] becomes NULL, or one sentence (the
 * caller frees it) about the first host that host i cannot reach. */
enum rc reach_run(struct fan *fan, const char *const *engines, const char *const *addresses,
    const char *const *names, char **problems, struct err *e);

#endif
