/* What a cell means, and how that looks at each colour level. Meaning is never colour alone. */
#ifndef TUI_THEME_H
#define TUI_THEME_H

#include <stdbool.h>

enum color_level { COLOR_LEVEL_NONE, COLOR_LEVEL_16, COLOR_LEVEL_256 };

/* Roles of cells. The parts are the colours of stacked bars and of series in plots. */
enum role {
    ROLE_NORMAL,
    ROLE_DIM,      /* units, hints, frames */
    ROLE_TITLE,    /* names of panes */
    ROLE_HEADER,   /* column heads */
    ROLE_KEY,      /* a key in the footer or in help */
    ROLE_SELECTED, /* the row under the cursor */
    ROLE_TAB,      /* the view that is shown */
    ROLE_GOOD,
    ROLE_WARN,
    ROLE_BAD,
    ROLE_FIELD,  /* a value that can be edited */
    ROLE_CURSOR, /* the field being edited */
    ROLE_PART_1,
    ROLE_PART_2,
    ROLE_PART_3,
    ROLE_PART_4,
    ROLE_PART_5,
    ROLE_PART_6,
    ROLE_PART_7,
    ROLE_PART_8,
    ROLE_BAR_1, /* the same as filled cells */
    ROLE_BAR_2,
    ROLE_BAR_3,
    ROLE_BAR_4,
    ROLE_BAR_5,
    ROLE_BAR_6,
    ROLE_BAR_7,
    ROLE_BAR_8,
    ROLE_COUNT
};
enum { ROLE_PARTS = 8 };

/* fg is a colour number of the level, -1 the terminal's own. Backgrounds are never set. */
struct look {
    short fg;
    bool is_bold, is_reverse, is_underlined;
};

struct look theme_look(enum role role, enum color_level level);
/* Role of the i-th part of a bar, repeating after ROLE_PARTS. */
enum role theme_part(int i);

#endif
