/* What the screens show and where the user is. Owned by the UI thread; views draw it without
 * changing it, and change it when they act on a key. Nothing here waits for anything. */
#ifndef TUI_UI_H
#define TUI_UI_H

#include <stdbool.h>

#include "base/str.h"
#include "tui/acting.h"
#include "tui/job_form.h"
#include "tui/keys.h"
#include "tui/line_edit.h"
#include "tui/tui.h"
#include "tui/view_help.h"
#include "tui/view_launch.h"
#include "tui/view_offers.h"
#include "tui/view_plans.h"
#include "tui/view_run.h"
#include "tui/view_runs.h"

struct argv;
struct ui;

/* One view. draw is a pure function of the state into the pane; arrange (may be NULL) lets the view
 * remember what depends on the size, such as how far a list is scrolled. */
struct view_ops {
    void (*arrange)(struct ui *ui, struct rect body);
    void (*draw)(const struct ui *ui, struct pane body);
    void (*act)(struct ui *ui, enum action action);
    /* The command that shows or does the same; empty when there is none. */
    void (*command)(const struct ui *ui, struct str *out);
    /* Close what is open inside the view; false when nothing is. */
    bool (*back)(struct ui *ui);
};

/* A question that must be answered before something costs money or cannot be undone. */
struct question {
    bool is_open;
    char title[64];
    char word[64];   /* what must be typed; everything else means no */
    struct str text; /* lines with the numbers */
    struct line_edit answer;
    void (*agreed)(struct ui *ui);
};

enum { UI_DEPTH = 8, UI_NOTE = 512 };

/* What a view wants done outside of the UI thread; the loop sees to it after each key. */
enum want {
    WANT_OFFERS = 1,   /* read the offers again */
    WANT_PLAN = 2,     /* search plans for the form as it is */
    WANT_NO_PLAN = 64, /* cancel the search */
    WANT_RUNS = 4,     /* list the runs again */
    WANT_RUN = 8,      /* follow the run that is open */
    WANT_WRITE = 32,   /* write the selected plan to plans.write_path */
    WANT_ACTING = 16,  /* start the command in ui->acting */
};

struct ui {
    bool is_leaving;
    double now_s;              /* wall clock of this turn */
    enum view stack[UI_DEPTH]; /* where `q` and esc lead back to */
    int depth;                 /* the view shown is stack[depth - 1] */
    bool shows_command;        /* the whole command lies over the view, until the next key */
    char note[UI_NOTE];        /* one sentence on the line above the footer, until the next key */
    enum role note_role;
    struct line_edit *editing;     /* text being entered; NULL when keys are commands */
    void (*edited)(struct ui *ui); /* after each change of it */
    void (*edit_done)(struct ui *ui, enum action how);
    struct question question;
    unsigned wants;                    /* enum want, or-ed */
    const struct tui_options *options; /* borrowed */
    struct job_form job;
    struct offers_view offers;
    struct plans_view plans;
    struct launch_view launch;
    struct run_view run;
    struct runs_view runs;
    struct help_view help;
    struct acting acting;
};

/* options: keeps, until ui_release. */
void ui_init(struct ui *ui, const struct tui_options *options);
void ui_release(struct ui *ui);

enum view ui_view(const struct ui *ui);
/* The view, or the mode above it, whose bindings hold. */
enum view ui_mode(const struct ui *ui);
/* Go to a view as a place of its own, or as a step from the present one that `q` undoes. */
void ui_show(struct ui *ui, enum view view);
void ui_push(struct ui *ui, enum view view);
void ui_note(struct ui *ui, enum role role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Let the user type into l (kept until done). edited and done may be NULL; done hears whether the
 * text was kept (ACT_EDIT_DONE, _NEXT, _PREVIOUS) or put back (ACT_EDIT_CANCEL). */
void ui_edit(struct ui *ui, struct line_edit *l, void (*edited)(struct ui *ui),
    void (*done)(struct ui *ui, enum action how));
/* Ask; agreed runs only when exactly word was typed. Lines of text are separated by '\n'. */
void ui_ask(struct ui *ui, const char *title, const char *text, const char *word,
    void (*agreed)(struct ui *ui));

/* One key, and pasted text (ignored outside of a field, with a note). */
void ui_key(struct ui *ui, int key);
void ui_paste(struct ui *ui, const char *text);
/* The whole screen. */
void ui_arrange(struct ui *ui, int rows, int cols);
void ui_draw(const struct ui *ui, struct grid *g);

/* Seconds after which the screen must be drawn again although nothing arrives: times that run on,
 * ages, costs. */
double ui_tick_s(const struct ui *ui);
/* Once for each such moment. */
void ui_tick(struct ui *ui);

/* The options that name the offers, and the whole command that plans the job of the form. */
void ui_source_argv(const struct ui *ui, struct argv *a);
void ui_plan_argv(const struct ui *ui, struct argv *a);

const struct view_ops *ui_ops(enum view view);

#endif
