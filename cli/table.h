/* A table of texts: columns described once, cells added row by row, printed by out_table. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct args;
struct str;

enum { TABLE_LEAST = 8 };
enum table_align { TABLE_LEFT, TABLE_RIGHT };

struct table_column {
    const char *name; /* header, upper-case, no spaces; --columns takes it in lower case */
    enum table_align align;
    int drop;        /* 0: always shown; else dropped when too wide, the highest number first */
    bool is_elastic; /* may be cut with an ellipsis on a terminal */
    int least;       /* columns an elastic one keeps; 0: TABLE_LEAST */
    bool is_extra;   /* only when --columns names it */
};

struct table;

/* columns end with a NULL name and are kept until table_free. */
struct table *table_new(const struct table_column *columns);
void table_free(struct table *t);
/* Add one cell, row by row in the order of the columns; made safe for a terminal. An empty or NULL
 * text shows as "-". */
void table_cell(struct table *t, const char *text);
void table_cellf(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
size_t table_rows(const struct table *t);

/* Show only these, in this order: "gpu,price". RC_USAGE names the nearest known column. */
enum rc table_select(struct table *t, const char *names, struct err *e);
/* The same, for --columns of the command when it is given. */
enum rc table_select_args(struct table *t, const struct args *args, struct err *e);
/* Are the names of --columns known? Before any work, and also when no table is printed. */
enum rc table_check_args(
    const struct table_column *columns, const struct args *args, struct err *e);
/* Append the text to s. width 0: as wide as needed, else no line is wider; is_plain: tab-separated,
 * nothing cut. header start and end are put around the header line (colour), NULL for no header. */
struct table_style {
    int width;
    bool is_plain;
    bool has_header;
    const char *header_on, *header_off;
    const char *ellipsis; /* one column wide; NULL: "…" */
};
void table_print(const struct table *t, const struct table_style *style, struct str *s);

#endif
