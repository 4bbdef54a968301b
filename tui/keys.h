/* One table of keys: it drives dispatch, the footer and the help, so they cannot disagree. */
#ifndef TUI_KEYS_H
#define TUI_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "tui/grid.h"

/* The views, then the modes that lie above a view and take its keys. */
enum view {
    VIEW_OFFERS,
    VIEW_JOB,
    VIEW_PLANS,
    VIEW_LAUNCH,
    VIEW_RUN,
    VIEW_RUNS,
    VIEW_HELP,
    VIEW_COUNT,
    MODE_EDIT = VIEW_COUNT, /* text is being entered */
    MODE_CONFIRM,           /* a question is open */
    VIEW_ANY                /* in every view, but in no mode */
};

enum action {
    ACT_NONE,
    ACT_UP,
    ACT_DOWN,
    ACT_PAGE_UP,
    ACT_PAGE_DOWN,
    ACT_FIRST,
    ACT_LAST,
    ACT_LEFT,
    ACT_RIGHT,
    ACT_ENTER,
    ACT_BACK,
    ACT_QUIT,
    ACT_HELP,
    ACT_REPAINT,
    ACT_COMMAND, /* the whole command, to be copied */
    ACT_REFRESH,
    ACT_FILTER,
    ACT_SORT,
    ACT_SORT_REVERSE,
    ACT_NEXT_VIEW,
    ACT_PREVIOUS_VIEW,
    ACT_SHOW_OFFERS,
    ACT_SHOW_JOB,
    ACT_SHOW_PLANS,
    ACT_SHOW_LAUNCH,
    ACT_SHOW_RUN,
    ACT_SHOW_RUNS,
    ACT_PLAN,      /* to the plans for this job */
    ACT_EDIT_JOB,  /* to the job form */
    ACT_SAVE_PLAN, /* write plan.json */
    ACT_LAUNCH,    /* from a plan to its launch; there: start */
    ACT_CHECK,     /* of the hosts */
    ACT_DRY_RUN,
    ACT_STOP,
    ACT_RESUME,
    ACT_FOLLOW, /* the end of the log, again */
    ACT_NEXT_PLOT,
    ACT_LOG_SCALE,
    ACT_NEXT_PANE,
    ACT_EDIT_DONE,
    ACT_EDIT_CANCEL,
    ACT_EDIT_NEXT,
    ACT_EDIT_PREVIOUS,
    ACT_COUNT
};

struct binding {
    enum view view;
    enum action action;
    int key, alias;    /* alias 0: none */
    int priority;      /* place in the footer: 1 is the last to be dropped; 0: not in the footer */
    bool is_acting;    /* changes something outside of the program: absent with --read-only */
    const char *label; /* one or two words for the footer */
    const char *help;  /* what it does */
    const char *command; /* the same on the command line; NULL for moves on the screen */
};

/* The whole table; n entries. */
const struct binding *keys_table(size_t *n);
/* What a key means in a view or mode: its own binding first, then the one of every view; NULL when
 * nothing. */
const struct binding *keys_find(enum view view, int key, bool is_read_only);
/* Whether a binding is offered in a view or mode. */
bool keys_apply(const struct binding *b, enum view view, bool is_read_only);

/* "enter", "PgDn", "q". */
char *key_name(int key, char buf[16]);
const char *view_name(enum view view);

/* Draw the bindings of a view or mode by priority as whole entries; what does not fit is left out,
 * help and quit last. quit_label is what q does here ("quit" or "back"). */
void keys_footer(struct pane p, enum view view, bool is_read_only, const char *quit_label);

#endif
