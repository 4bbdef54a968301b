/* The only way text gets onto the screen. Foreign text is hostile: whatever is in it, exactly the
 * asked columns are filled and nothing can steer the terminal. */
#ifndef TUI_TEXT_PUT_H
#define TUI_TEXT_PUT_H

#include "tui/grid.h"

enum align { ALIGN_LEFT, ALIGN_RIGHT };

/* Draw utf8 into exactly width columns at y, x: cut with an ellipsis, or padded with blanks.
 * Control, zero-width, bidirectional and invalid characters show as a middle dot, a tab as one
 * blank. Stops at the first line end. Returns the columns the text took. */
int text_put(struct pane p, int y, int x, int width, enum role role, const char *utf8);
/* The same, right-aligned; a text that is too long loses its end. */
int text_put_right(struct pane p, int y, int x, int width, enum role role, const char *utf8);
/* Draw formatted text without padding, up to the edge of the pane. Returns the column behind it, so
 * that calls can be chained. */
int text_putf(struct pane p, int y, int x, enum role role, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
/* Draw text over as many of max_rows lines as it needs, broken at blanks. Returns the rows used. */
int text_wrap(struct pane p, int y, int x, int max_rows, enum role role, const char *utf8);
/* The line above a pane: a rule with a name. Returns the column behind the name. */
int title_put(struct pane p, const char *name);
/* Columns the text would take. */
int text_width(const char *utf8);

#endif
