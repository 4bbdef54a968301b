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

#endif
