/* Plans: the ranked ways to train the job; what the chosen one needs, takes and costs; what was
 * rejected and what would make it fit. */
#ifndef TUI_VIEW_PLANS_H
#define TUI_VIEW_PLANS_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/line_edit.h"
#include "tui/list.h"

enum { PLAN_MACHINES_TEXT = 96 };

struct argv;
struct plan_found;
struct plan_list;
struct plan_row;
struct ui;
struct view_ops;

struct plans_view {
    struct plan_found *found;     /* newest answer; NULL before the first one */
    const struct plan_list *data; /* its rows; NULL before the first one */
    struct list list, rejected;
    bool shows_rejected;
    bool is_single; /* one pane: the list or the detail */
    bool shows_detail;
    bool is_searching; /* an answer to the present job is on its way */
    double since_s;    /* wall clock when the search began */
    double took_s;
    uint64_t serial;       /* of the newest question */
    char job[160];         /* summary of the job that data answers */
    char asked[160];       /* of the newest question */
    char error[400];       /* why there is no answer; "" when there is one */
    struct line_edit path; /* of the file a plan is written to */
    char write_path[256];  /* what WANT_WRITE is about */
    bool is_writing;
    bool is_outdated; /* data answers an older question */
};

extern const struct view_ops view_plans;

void plans_view_init(struct plans_view *v);
void plans_view_release(struct plans_view *v);
/* An answer: takes a reference to found, or NULL with an error that says why. */
void plans_view_answer(
    struct plans_view *v, struct plan_found *found, const char *error, double took_s);
/* The same for rows alone, which stay the caller's and can be looked at, but not be written. */
void plans_view_show(
    struct plans_view *v, const struct plan_list *data, const char *error, double took_s);
/* Plan under the cursor, NULL when there is none. Borrowed until the next answer. */
const struct plan_row *plans_view_selected(const struct plans_view *v);
/* "2x8 h100-sxm" of a plan. */
char *plan_machines(const struct plan_row *r, char buf[PLAN_MACHINES_TEXT]);
/* The best n plans as short lines, for the job form. */
void plans_draw_best(const struct ui *ui, struct pane p);

#endif
