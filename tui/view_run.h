/* Run: one run as it goes: loss, speed and memory against the plan, cost, the log. */
#ifndef TUI_VIEW_RUN_H
#define TUI_VIEW_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "run/names.h"
#include "tui/line_edit.h"
#include "tui/log_ring.h"
#include "tui/run_data.h"
#include "tui/run_series.h"

struct ui;
struct view_ops;

enum run_plot { PLOT_LOSS, PLOT_SPEED, PLOT_MEMORY, PLOT_GRAD_NORM, PLOT_RATE, PLOT_COUNT };

struct run_view {
    char id[RUN_ID_TEXT]; /* "" when none was opened */
    uint64_t serial;      /* of the following; older news are dropped */
    bool has_row;
    struct run_row row;
    struct run_series series;
    double news_s;            /* wall clock of the newest news; 0: none yet */
    char link[400];           /* what attaching says when it failed; "" while it works */
    int64_t attached_attempt; /* of the run, that was attached to; -1: none */
    enum run_plot plot;
    bool is_log_scale;
    struct log_ring log;
    struct line_edit filter;
    bool is_paused;  /* the log stays where it is */
    size_t from_end; /* newest line shown, counted from the end, when paused */
    int page;
    char asked_id[RUN_ID_TEXT]; /* what the open question is about */
};

extern const struct view_ops view_run;

void run_view_init(struct run_view *v);
void run_view_release(struct run_view *v);
/* Show another run; what was shown is forgotten. */
void run_view_open(struct ui *ui, const char *id);
void run_view_news(struct ui *ui, const struct run_news *news);
/* Ask whether to stop or resume the run, then do it. */
void run_ask_stop(struct ui *ui, const struct run_row *r);
void run_ask_resume(struct ui *ui, const struct run_row *r);

#endif
