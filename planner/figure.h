/* What a figure is made of: the product behind each part of it, number by number.
 *
 * A report says that activations take 18.7 GiB; a term says that 16 blocks keep 16384 tokens x 8192
 * width x 2 bytes of one thing and so on. Terms of a part sum to it: what a product leaves to the
 * bytes that are really there is padding. Of the bundled engine they are read from the schedule at
 * its worst moment, of others from the closed forms of engine_memory.c. */
#ifndef PLANNER_FIGURE_H
#define PLANNER_FIGURE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "planner/price.h"
#include "planner/schedule.h"

struct estimate;
struct json;
struct str;

enum { FIGURE_FACTORS = 6 };

/* Words are static. */
struct factor {
    double value;
    const char *word; /* "tokens" */
};

/* Value type: the product of the factors, over a number. */
struct term {
    const char *part; /* "activations": as part_name or work_name */
    const char *what; /* "block outputs" */
    int n;
    struct factor factor[FIGURE_FACTORS];
    struct factor over; /* value 0: not divided */
    int over_at;        /* it is said behind so many factors */
    double total;       /* bytes or seconds, with padding */
};

/* Release with terms_release. */
struct terms {
    struct term *all;
    size_t n, cap;
};

/* Append a term that is filled by the term_ calls below; valid until the next one. */
struct term *terms_add(struct terms *t, const char *part, const char *what);
void term_times(struct term *t, double value, const char *word);
void term_over(struct term *t, double value, const char *word);
double term_product(const struct term *t);
void terms_release(struct terms *t);

/* Live at the worst moment of a rank's device or host memory. */
enum rc figure_memory(struct terms *out, const struct model *m, const struct strategy *s,
    enum memory memory, struct err *e);
/* The work of a step by class, as operations one after the other: work_s over the rate that they
 * reach. */
enum rc figure_work(struct terms *out, const struct model *m, const struct strategy *s,
    const double work_s[WORK_COUNT], struct err *e);

/* Lines of at most 80 columns for the terms of a part. */
void terms_describe(struct str *out, const struct terms *t, const char *part);
/* [{part, what, factors:[{value, of}], divided_by, padding, total}]. Caller frees. */
struct json *terms_json(const struct terms *t);

#endif
