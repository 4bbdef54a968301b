/* The screen as cells in memory. Views draw here; only the terminal layer copies it out, so every
 * screen can be tested without a terminal. */
#ifndef TUI_GRID_H
#define TUI_GRID_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tui/theme.h"

enum glyph_level { GLYPH_ASCII, GLYPH_BLOCK, GLYPH_BRAILLE };
enum { GRID_MAX_ROWS = 1000, GRID_MAX_COLS = 2000 };

struct cell {
    uint32_t cp;     /* 0: right half of the wide character before it */
    uint8_t role;    /* enum role */
    uint8_t columns; /* 1 or 2; 0 with cp 0 */
};

struct grid {
    int rows, cols;
    struct cell *cell; /* rows * cols */
    enum glyph_level glyphs;
    int cursor_y, cursor_x; /* where text is being entered; -1 hides the cursor */
};

/* Part of the grid: rows y..y+h-1, columns x..x+w-1. Empty when h or w is 0. */
struct rect {
    int y, x, h, w;
};

/* A rectangle to draw into; what lies outside of it is dropped. Coordinates are relative. */
struct pane {
    struct grid *grid; /* borrowed */
    struct rect r;
};

void grid_init(struct grid *g, enum glyph_level glyphs);
void grid_release(struct grid *g);
/* Blank cells in the given size (clamped to 1..GRID_MAX), cursor hidden. */
void grid_reset(struct grid *g, int rows, int cols);
const struct cell *grid_at(const struct grid *g, int y, int x);
/* Row y as UTF-8 without trailing blanks. Caller frees. */
char *grid_row_text(const struct grid *g, int y);

struct pane grid_pane(struct grid *g, struct rect r);
/* Part of a pane, clipped to it. */
struct pane pane_part(struct pane p, int y, int x, int h, int w);
/* One character of our own: printable, 1 or 2 columns. At GLYPH_ASCII it is replaced by its nearest
 * ASCII character, '?' when there is none. A wide character that would be cut becomes a blank. */
void pane_put(struct pane p, int y, int x, uint32_t cp, enum role role);
void pane_fill(struct pane p, int y, int x, int n, uint32_t cp, enum role role);
/* Change the role of n cells, keeping the characters. */
void pane_paint(struct pane p, int y, int x, int n, enum role role);
void pane_cursor(struct pane p, int y, int x);

/* Nearest ASCII character of a glyph used by the screens; '?' for all others. */
uint32_t grid_ascii(uint32_t cp);

#endif
