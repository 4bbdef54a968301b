/* What the commands that look after runs share: option groups, how to connect, showing a run. */
#ifndef CLI_RUN_OPTIONS_H
#define CLI_RUN_OPTIONS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "cli/options.h"
#include "launcher/launch.h"
#include "launcher/session.h"

struct client;
struct hosts;
struct json;
struct out;
struct run_info;

extern const struct option_group CONNECT_OPTIONS; /* --identity, --known-hosts, ... */
extern const struct option_group START_OPTIONS;   /* of launch and resume */

/* Context of the questions that connecting may ask. Must outlive what uses the options. */
struct connect_ask {
    struct out *out;
    bool is_yes; /* --yes says nothing about host keys */
};

/* Fill from CONNECT_OPTIONS; watches for Ctrl-C. */
void connect_from_args(
    struct session_options *o, struct connect_ask *ask, const struct args *args, struct out *out);

/* Fill from START_OPTIONS and CONNECT_OPTIONS. start is released by start_release. */
struct start_args {
    struct launch_options options;
    struct connect_ask ask;
    struct out *out;
    const char **env;
    struct str data; /* sources, a line each */
};
enum rc start_from_args(
    struct start_args *s, const struct args *args, struct out *out, struct err *e);
void start_release(struct start_args *s);
/* --hosts or --here, as the command requires one of them or none. *has_hosts says which. */
enum rc start_hosts(struct hosts *out, bool *has_hosts, const struct args *args, struct err *e);

/* Confirm, start, and show until the end or as --detach, --dry-run and --quiet say. */
enum rc start_go(struct launch *l, struct start_args *s, const struct args *args,
    const char *schema, struct err *e);

/* The operand that names a run; "latest" without one. */
const char *run_operand(const struct args *args);

/* Follow with progress on stderr; logs to stdout when shows_logs. Ctrl-C says how to go on. Ends
 * with the run's outcome. */
struct show_run {
    struct out *out;
    bool shows_logs;
    double timeout_s; /* 0: none */
};
enum rc run_show(struct client *c, const struct show_run *show, struct err *e);

/* "status/1" members of a run, and the same for people. */
void run_status_json(struct json *doc, const struct run_info *r);
void run_status_text(struct out *out, const struct run_info *r);
/* "finished in 3.2 h, step 500 of 500, loss 2.91" */
void run_summary(struct out *out, const struct run_info *r);

/* Is --remote-dir, where given, a work folder? */
enum rc remote_dir_check(const struct args *args, struct err *e);

#endif
