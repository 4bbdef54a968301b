/* How the screen is divided: pure functions of its size. The footer and the header are reserved
 * first, the body gets what is left, and nothing ever overlaps or leaves the screen. */
#ifndef TUI_SCREEN_H
#define TUI_SCREEN_H

#include "tui/grid.h"

enum { SCREEN_MIN_ROWS = 10, SCREEN_MIN_COLS = 40, SCREEN_FULL_ROWS = 24, SCREEN_FULL_COLS = 80 };

enum screen_size {
    SCREEN_TOO_SMALL, /* only the body: one line says which size is needed */
    SCREEN_SINGLE,    /* one pane at a time */
    SCREEN_FULL
};

struct screen {
    enum screen_size size;
    struct rect header, body, message, footer;
};

struct screen screen_layout(int rows, int cols);

/* Two panes above each other with a title line before each. top gets want rows of content, but
 * bottom keeps at least min_bottom; when that is impossible bottom is empty. */
struct split {
    struct rect first_title, first, second_title, second;
};
struct split screen_rows(struct rect body, int want, int min_second);

#endif
