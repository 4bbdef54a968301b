/* One line of text being typed. */
#ifndef TUI_LINE_EDIT_H
#define TUI_LINE_EDIT_H

#include <stdbool.h>
#include <stddef.h>

#include "tui/grid.h"

enum { LINE_EDIT_MAX = 256 };

struct line_edit {
    char text[LINE_EDIT_MAX];   /* UTF-8 without control characters */
    size_t len, at;             /* bytes; at lies on a character's start */
    char before[LINE_EDIT_MAX]; /* what line_edit_undo puts back */
};

void line_edit_set(struct line_edit *l, const char *text);
/* Empty it; false when it was empty. */
bool line_edit_clear(struct line_edit *l);
/* Remember the text for undo and put the cursor at the end. */
void line_edit_begin(struct line_edit *l);
void line_edit_undo(struct line_edit *l);
/* Returns true when the key changed the text or the cursor. */
bool line_edit_key(struct line_edit *l, int key);
/* Insert up to the first line end; control characters are left out. */
void line_edit_paste(struct line_edit *l, const char *text);
/* Draw into width columns; the part around the cursor is shown while it is_active. */
void line_edit_draw(
    const struct line_edit *l, struct pane p, int y, int x, int width, bool is_active);
/* The filter of a view on its title line, from x on; nothing when there is none. */
void line_edit_draw_filter(const struct line_edit *l, struct pane p, int x, bool is_active);
/* A line of a form: label columns of name, then the field. is_here: the form's cursor is on it. */
void line_edit_draw_field(const struct line_edit *l, struct pane line, const char *name, int label,
    int width, bool is_here, bool is_active);

#endif
