/* CSV as people and spreadsheets write it: quotes, doubled quotes, CRLF, blank lines, a header. */
#ifndef BASE_CSV_H
#define BASE_CSV_H

#include <stddef.h>

#include "base/err.h"

struct str;

/* A whole table in memory. Cells are NUL-terminated and trimmed of surrounding spaces. */
struct csv {
    char *text;         /* owns the bytes of all cells */
    const char **cells; /* rows * columns, borrowed from text; missing cells are "" */
    size_t rows;        /* without the header */
    size_t columns;
    const char **header;
    size_t *lines; /* line number of each row in the source, from 1 */
};

enum { CSV_MAX_COLUMNS = 256, CSV_MAX_ROWS = 2000000 };

/* Parse len bytes (lines starting with '#' are comments). Rows longer than the header are an error
 * naming the line; shorter ones are filled with "". */
enum rc csv_parse(struct csv *out, const char *text, size_t len, struct err *e);
void csv_release(struct csv *c);
/* Index of a column by name (case-insensitive), -1 when absent. */
int csv_column(const struct csv *c, const char *name);
/* Cell, "" when column is -1. */
const char *csv_cell(const struct csv *c, size_t row, int column);

/* Append one cell, quoted where needed. */
void csv_put(struct str *out, const char *cell);

#endif
