/* Predictions against published runs: how far off, how well covered, and what was left out. Pure.
 *
 * Errors are relative to the measurement. Rows of one source, model and GPU share one vote, so that
 * a long table of one machine does not outweigh all others; the same figures over rows are beside.
 */
#ifndef PLANNER_VALIDATE_H
#define PLANNER_VALIDATE_H

#include "planner/evidence.h"
#include "planner/predict.h"

struct json;

/* A row with its prediction. */
struct validated {
    const struct evidence_row *row;
    struct prediction p;
    bool is_predicted; /* false: the constants lack something; why in reason */
    bool is_seen_in_fit;
};

/* Over groups, or over rows. Relative; NAN when n is 0. */
struct score {
    size_t groups, rows;
    double mean, median, p90; /* of the absolute error */
    double bias;              /* mean of the signed error */
    double coverage;          /* share of measurements inside their band */
    double half_width;        /* median of half the band over its middle */
};

enum measured { MEASURED_THROUGHPUT, MEASURED_MEMORY };

/* Which rows count: a row passes when it returns true. NULL: all. */
typedef bool score_filter(const struct validated *v, void *arg);
struct score score_rows(const struct validated *v, size_t n, enum measured what, bool by_row,
    score_filter *filter, void *arg);

/* Filters: all that memory hangs on is stated; something is not. arg is not used. */
bool is_memory_stated(const struct validated *v, void *arg);
bool is_memory_open(const struct validated *v, void *arg);

/* The classes that figures are stated for, in the order of the table. */
struct score_class {
    const char *name; /* "data-parallel, calibrated" */
    const char *key;  /* in JSON: "dense_calibrated" */
    enum measured what;
    score_filter *filter;
    enum basis basis; /* arg of the filter, where it looks at one */
};
extern const struct score_class SCORE_CLASSES[];
enum { SCORE_CLASS_COUNT = 7 };
struct score score_of_class(const struct validated *v, size_t n, const struct score_class *c);

/* Fits: rows that ran and are said not to, rows out of memory that are said to fit. */
struct fit_score {
    size_t rows, false_oom, oom_rows, false_fit;
    size_t inferred; /* of rows that ran: something unstated was taken as it must have been */
    double brier;
};
struct fit_score score_fit(const struct validated *v, size_t n);

/* Predict every row with constants. out has room for evidence->n_rows. */
enum rc validate_rows(struct validated *out, const struct evidence *evidence,
    const struct rates *rates, struct err *e);
/* Predict every row with constants fitted to the rows of other folds. Groups are dealt to n folds
 * by a hash of their name. */
enum rc validate_folds(struct validated *out, const struct evidence *evidence,
    const struct rates *base, int n, struct err *e);
/* The rows of adapters (evidence_read_adapted), scored apart: a member of validate/1. Caller frees.
 */
struct json *validate_adapted_json(const struct validated *v, const struct evidence *adapted);
/* validate/1. with_rows adds one entry per row. Caller frees. */
struct json *validate_to_json(
    const struct validated *v, const struct evidence *evidence, bool with_rows);
/* The classes alone: an object by key. Caller frees. */
struct json *validate_classes_json(const struct validated *v, size_t n);

#endif
