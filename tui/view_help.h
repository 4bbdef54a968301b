/* Help: the key table, of one view or of all. */
#ifndef TUI_VIEW_HELP_H
#define TUI_VIEW_HELP_H

#include <stdbool.h>

#include "tui/keys.h"
#include "tui/line_edit.h"

struct view_ops;

struct help_view {
    enum view about; /* the view help was asked in */
    bool has_all;    /* every view's keys */
    int top;         /* first line shown */
    int lines, page; /* of the text and of the screen, by arrange */
    struct line_edit filter;
};

extern const struct view_ops view_help;

#endif
