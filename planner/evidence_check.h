/* Rows of measured runs that cannot be true: figures that contradict each other or the hardware. */
#ifndef PLANNER_EVIDENCE_CHECK_H
#define PLANNER_EVIDENCE_CHECK_H

#include "planner/evidence.h"

struct csv;

/* What a row states beside what evidence_row keeps; 0: not stated. */
struct stated {
    double tokens_per_s; /* per GPU */
    double step_s;
    double batch; /* sequences of a step */
};

/* Throughput, step time and batch differ by more than rounding; more memory than the card has; or
 * more products than it can compute. */
bool evidence_contradicts(const struct evidence_row *row, const struct stated *s);

/* What rows with an id that came before do. */
enum twin { TWIN_NONE, TWIN_REPEATS, TWIN_CONTRADICTS };
/* By row: a later one with the id and all cells of an earlier one repeats it; where cells differ
 * nobody can say which is right, and all rows with the id contradict each other. Empty ids are
 * none. Caller frees. */
unsigned char *evidence_twins(const struct csv *table, int id_column);

/* A number as tables write it: digits, a point, an exponent; neither hexadecimal, nor infinite, nor
 * too small to have been measured. False for anything else, units included. */
bool evidence_number(const char *text, double *out);

#endif
