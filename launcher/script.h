/* Shell scripts on all hosts of a fan, safe against noisy login files and lost exit statuses.
 *
 * A script travels on standard input of `/bin/sh -s`, so it is quoted nowhere. What it prints is
 * taken from between two marks with a nonce; the closing mark carries its status, which SSH loses
 * when a connection breaks. */
#ifndef LAUNCHER_SCRIPT_H
#define LAUNCHER_SCRIPT_H

#include "base/err.h"
#include "base/str.h"

struct fan;

struct script {
    struct str text; /* what to run; empty: skip this host. Redirect stdin of what reads it */
    struct str out;  /* what it printed to standard output */
    int status;      /* exit status of the last command; -1: it did not come to its end */
    double sent_wall_s, done_wall_s; /* our clock around it */
};

/* count scripts, each empty. */
struct script *scripts_new(size_t count);
void scripts_free(struct script *s, size_t count);

/* Run s[i] on host i. A script that did not come to its end is a failure of its host, any status is
 * not. Errors as fan_run. */
enum rc scripts_run(
    struct fan *f, const char *doing, struct script *s, double timeout_s, struct err *e);

/* NAME='value' with quoting, and newline. Appends. */
void script_set(struct str *text, const char *name, const char *value);
/* Value of the first line "key=..." of out; NULL when absent. Caller frees. */
char *script_value(const struct str *out, const char *key);

#endif
