/* A job from a file and from the flags that every planning command shares. */
#ifndef CLI_JOB_OPTIONS_H
#define CLI_JOB_OPTIONS_H

#include "base/err.h"
#include "cli/options.h"

struct args;
struct job;
struct out;

/* --model, --tokens, limits: put them among a command's groups. */
extern const struct option_group JOB_OPTIONS;
extern const struct option_group LIMIT_OPTIONS;

/* BITS_OPTIONS alone, into a job that is not finished. */
enum rc job_take_bits(struct job *j, const struct args *args, struct err *e);

/* Job file (path, NULL for none), then flags and environment over it, configuration below it. On
 * success *j is finished and must be released with job_release. Assumptions are noted on stderr. */
enum rc job_from_args(
    struct job *j, const char *path, const struct args *args, struct out *out, struct err *e);

#endif
