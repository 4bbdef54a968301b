/* Taking everything of Berth off hosts. */
#ifndef LAUNCHER_CLEAN_H
#define LAUNCHER_CLEAN_H

#include "base/err.h"

struct fan;
struct hosts;

/* Remove the work folder of every host unless a run still goes on in it (RC_NODE naming host and
 * process). remote_dir is for hosts without a dir= of their own. */
enum rc clean_hosts(
    struct fan *fan, const struct hosts *hosts, const char *remote_dir, struct err *e);

#endif
