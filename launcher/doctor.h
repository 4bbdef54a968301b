/* Everything `berth doctor` looks at: preflight, then the engine staged and tried, then the network
 * between the hosts. */
#ifndef LAUNCHER_DOCTOR_H
#define LAUNCHER_DOCTOR_H

#include "base/err.h"
#include "launcher/preflight.h"

struct fan;
struct hosts;

/* Fill p (released by the caller whatever happens) for the hosts of fan that are in. engine: local
 * path of berth-engine. Sends it where it is lacking, as a launch would, and leaves it there.
 * Errors are of the connections; what the checks found is in p. */
enum rc doctor_run(struct preflight *p, struct fan *fan, const struct hosts *hosts,
    const char *remote_dir, const char *engine, struct err *e);

#endif
