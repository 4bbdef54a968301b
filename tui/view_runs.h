/* Runs: all of them, newest first. */
#ifndef TUI_VIEW_RUNS_H
#define TUI_VIEW_RUNS_H

#include <stdbool.h>

#include "run/record.h"
#include "tui/line_edit.h"
#include "tui/list.h"
#include "tui/run_data.h"

struct ui;
struct view_ops;

struct runs_view {
    struct run_rows *data; /* owned; NULL until the first answer */
    struct list list;
    struct line_edit filter;
    bool is_loading;
    double now_s; /* for the costs in the rows; as of the last arrange */
};

extern const struct view_ops view_runs;

void runs_view_init(struct runs_view *v);
void runs_view_release(struct runs_view *v);
/* Takes rows. */
void runs_view_answer(struct runs_view *v, struct run_rows *rows);
enum role run_state_role(enum run_state s);

#endif
