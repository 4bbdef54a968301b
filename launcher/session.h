/* Connections to all hosts of a list, with verified host keys. */
#ifndef LAUNCHER_SESSION_H
#define LAUNCHER_SESSION_H

#include <stdbool.h>

#include "base/err.h"
#include "launcher/fan.h"

struct hosts;
struct session;

/* What the user said about connecting; everything borrowed for the call, NULL: not said. */
struct session_options {
    const char *identity;        /* only this key file (and its twin in the agent) */
    const char *known_hosts;     /* in place of the user's and the system's files */
    const char *ssh_config;      /* in place of ~/.ssh/config; "none": no configuration */
    const char *run_known_hosts; /* the run's own file: read first, accepted keys go here */
    bool accepts_new_keys;
    double timeout_s; /* connecting one host; 0: 20 s */
    int fanout;       /* 0: FAN_DEFAULT */
    int interrupt_fd; /* -1: none */
    /* Ask once about all unknown keys; text lists hosts and fingerprints. NULL: refuse. */
    bool (*ask)(void *ctx, const char *text);
    void *ctx;
};

/* Connect to every host. With allows_missing hosts that cannot be reached are merely out of the
 * fan; otherwise the first failure is returned. On success *out must be closed with session_close;
 * hosts must outlive it. */
enum rc session_open(struct session **out, const struct hosts *hosts,
    const struct session_options *options, bool allows_missing, struct err *e);
void session_close(struct session *s);

/* The fan over the hosts, in list order; borrowed, valid until session_close. */
struct fan *session_fan(struct session *s);
/* Connect again the hosts that are out, after a break; the rest stays. Errors as fan_run. */
enum rc session_reconnect(struct session *s, struct err *e);

#endif
