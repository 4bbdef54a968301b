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

/* One kind of facts: the rows built into the program and, over them, those of the user. */
struct fact_table {
    const unsigned char *text; /* the embedded file */
    const size_t *len;
    /* Read a row and put it in the place of the one with the same name, or at the end. A row with
     * a mistake is not put anywhere. */
    void (*put)(struct fact_row *r);
    void (*all_put)(void);    /* NULL: nothing more to do */
    struct csv builtin, user; /* kept, since facts point into them */
};

/* Put the embedded rows, once; ends the program when they are broken (tests read every file). */
void facts_load(struct fact_table *t);
/* Put the rows of the user's file, after facts_load. RC_NOT_FOUND when there is none; RC_INVALID
 * names line and column. */
enum rc facts_load_user(struct fact_table *t, const char *path, struct err *e);

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
