/* Constants fitted to measured runs: what `berth calibrate` does.
 *
 * Some hundred constants stand behind some thousands of runs: some of all hardware (how much of a
 * tensor-parallel sum is hidden), some of a chip (its products, attention and network), some of a
 * software stack (its elementwise work and launch overhead), and a small correction of each pair.
 * Each stays near the value it had before, or that of the wider scope, unless runs say otherwise:
 * the fit minimises squared logarithms of predicted over measured throughput, softened against
 * outliers, beside squared departures in units of how far constants are believed to lie off. A
 * single run turns products alone, all else takes several; what runs hardly move is left out of a
 * second fit. Pure and deterministic. */
#ifndef PLANNER_CALIBRATE_H
#define PLANNER_CALIBRATE_H

#include "planner/evidence.h"
#include "planner/rates.h"

struct json;

struct calibrate_input {
    const struct evidence *evidence;
    const struct rates *base;
    const bool *is_used; /* one per row of the evidence; NULL: all */
    const char *source, *date;
};

struct calibrate_result {
    struct rates *rates;   /* base with the fitted entries behind; release with rates_free */
    struct json *document; /* the same as calibration/1; caller frees */
    size_t rows, constants;
    double residual; /* mean absolute logarithm of predicted over measured, of the rows used */
};

/* RC_INVALID when no run says how fast it was, RC_LIMIT beyond 20,000 runs. */
enum rc calibrate_fit(
    struct calibrate_result *out, const struct calibrate_input *in, struct err *e);
void calibrate_release(struct calibrate_result *r);

#endif
