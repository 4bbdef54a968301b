/* Launch: on which hosts the chosen plan shall run; check them, start it. */
#ifndef TUI_VIEW_LAUNCH_H
#define TUI_VIEW_LAUNCH_H

#include <stdbool.h>

#include "tui/line_edit.h"

struct ui;
struct view_ops;

enum launch_field {
    LAUNCH_PLAN,
    LAUNCH_HOSTS,
    LAUNCH_DATA,
    LAUNCH_MAX_USD,
    LAUNCH_NEW_KEYS, /* a choice */
    LAUNCH_FIELDS
};

struct launch_view {
    struct line_edit field[LAUNCH_FIELDS];
    int cursor;
    double plan_low_usd, plan_mid_usd, plan_high_usd; /* of the plan written last; NaN: unknown */
    double plan_hours;
    long long plan_nodes;
    char plan_text[160]; /* "1x8 h100-sxm, zero1"; "" for a file the user named */
};

extern const struct view_ops view_launch;

void launch_view_init(struct launch_view *v);
/* Fill the form with the selected plan, which will be written to path. */
void launch_view_take_plan(struct ui *ui, const char *path);

#endif
