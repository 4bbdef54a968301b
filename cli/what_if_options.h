/* --what-if of `berth plan`: the questions asked, answered one after the other. */
#ifndef CLI_WHAT_IF_OPTIONS_H
#define CLI_WHAT_IF_OPTIONS_H

#include <stddef.h>

#include "cli/options.h"
#include "planner/what_if.h"

struct json;
struct str;

extern const struct option_group WHAT_IF_OPTIONS;

struct what_ifs {
    struct what_if *asked;
    struct what_if_outcome *answers; /* NULL until answered */
    size_t n;
};

/* Reads the options: RC_USAGE with one sentence. Release with what_ifs_release. */
enum rc what_ifs_from_args(struct what_ifs *w, const struct args *args, struct err *e);
void what_ifs_release(struct what_ifs *w);
/* Plan each anew. stated: the first plan of the job as it is, NULL when it has none. */
enum rc what_ifs_answer(
    struct what_ifs *w, const struct search_input *in, const struct plan *stated, struct err *e);
/* The answers: a block of text, nothing when nothing was asked; an array. */
void what_ifs_describe(struct str *out, const struct what_ifs *w, const struct plan *stated,
    const struct search_input *in);
struct json *what_ifs_json(
    const struct what_ifs *w, const struct plan *stated, const struct search_input *in);

#endif
