/* A table on the screen: sorted, filtered, scrolled. The selection follows the row, not the line.
 *
 * The rows belong to the view; the list keeps only their order and where the user is. */
#ifndef TUI_LIST_H
#define TUI_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tui/grid.h"
#include "tui/keys.h"

enum { LIST_CELL = 128, LIST_MAX_COLUMNS = 16 };

struct list_column {
    const char *title;
    int width;
    bool is_right; /* numbers */
    bool grows;    /* takes what is left over */
    int drop;      /* when it gets narrow, the column with the highest goes first; 0: never */
};

/* How to look at the rows of a view. data is passed back to every call. */
struct list_rows {
    const void *data;
    size_t n;
    const struct list_column *columns; /* ends with title NULL */
    uint64_t (*id)(const void *data, size_t row);
    /* Text of a cell, and its role when it is not ROLE_NORMAL. Foreign text is allowed. */
    void (*cell)(const void *data, size_t row, int column, char text[LIST_CELL], enum role *role);
    int (*compare)(const void *data, size_t a, size_t b, int column); /* NULL: keep the order */
    bool (*matches)(const void *data, size_t row);                    /* NULL: all do */
};

struct list {
    uint32_t *order; /* rows shown, in order */
    size_t n, cap;
    size_t total;  /* rows there are */
    size_t cursor; /* index in order */
    size_t top;
    int page; /* lines, by list_arrange */
    uint64_t selected;
    bool has_selected;
    int sort; /* column; -1: as the rows come */
    bool is_descending;
};

void list_init(struct list *l, int sort, bool is_descending);
void list_release(struct list *l);
/* After the rows, the filter or the sorting changed: the selected row stays selected if it is still
 * there, else the cursor stays on its line. */
void list_update(struct list *l, const struct list_rows *rows);
/* Moves, and sorting by the next column to the right or the other way round; true when action was
 * one of them. */
bool list_act(struct list *l, const struct list_rows *rows, enum action action);
/* Tell how many lines there are for rows. */
void list_arrange(struct list *l, int lines);
/* Selected row into *row; false when the list is empty. */
bool list_selected(const struct list *l, size_t *row);
/* Head line and rows. */
void list_draw(const struct list *l, const struct list_rows *rows, struct pane p, bool is_focused);
/* "37 of 1204", or "1204" when all are shown. */
char *list_count(const struct list *l, char buf[48]);

/* For list_rows.compare: the unknown (NaN) comes last. */
int list_compare_numbers(double a, double b);
/* A number that identifies a row by its text, for list_rows.id. */
uint64_t list_id(const char *text);

#endif
