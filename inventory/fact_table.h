/* Reading tables of facts: the embedded ones, and the user's files that override them.
 *
 * A row is read member by member; the first mistake is kept in the row and later reads give
 * unknown, so that a reader checks once at its end. */
#ifndef INVENTORY_FACT_TABLE_H
#define INVENTORY_FACT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/csv.h"
#include "base/err.h"

struct fact_row {
    const struct csv *table;
    size_t row;
    enum rc rc; /* of the first mistake, its sentence in e */
    struct err *e;
};

/* Parse an embedded file; ends the program when it is broken (tests read every file). */
void facts_parse_embedded(struct csv *out, const unsigned char *text, size_t len);
/* Parse the user's file; RC_NOT_FOUND when there is none. */
enum rc facts_parse_file(struct csv *out, const char *path, struct err *e);

/* A cell; def when it is empty or the table has no such column. */
const char *fact_text(const struct fact_row *r, const char *column, const char *def);
/* A number that is not negative. */
double fact_number(struct fact_row *r, const char *column, double unknown);
int64_t fact_int(struct fact_row *r, const char *column, int64_t unknown);
/* An amount in micro-dollars. */
int64_t fact_usd(struct fact_row *r, const char *column, int64_t unknown);
/* Index among n words; the first is the default. */
int fact_word(struct fact_row *r, const char *column, const char *const *words, int n);
/* Record a mistake in a column. */
void fact_fail(struct fact_row *r, const char *column, const char *why);

#endif
