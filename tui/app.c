#include "tui/app.h"

#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "tui/mailbox.h"
#include "tui/term.h"
#include "tui/ui.h"
#include "tui/work.h"

/* Results of workers are drawn at most this often; an answer to a key is drawn at once. */
static const double FRAME_S = 0.1;
static const double REPAINT_S = 60; /* whatever wrote over the screen is gone by then */

struct app {
    struct term *term;
    struct mailbox *mailbox;
    struct work *work;
    struct ui ui;
    struct grid grid;
    enum app_end end;
    bool was_warned;          /* Ctrl-C while a command runs: the next one leaves */
    bool is_dirty, is_urgent; /* something to draw; it answers a key */
    double last_frame_s, last_full_s;
};

static void leave(struct app *a, enum app_end end)
{
    a->end = end;
    a->ui.is_leaving = true;
}

/* Ctrl-C leaves; while a command runs the first one says what becomes of it. */
static void interrupt(struct app *a)
{
    const struct acting *c = &a->ui.acting;
    if (!c->is_running || a->was_warned) {
        leave(a, APP_INTERRUPTED);
        return;
    }
    ui_note(&a->ui, ROLE_WARN, "%s is running and %s; Ctrl-C once more leaves", c->title,
        c->is_kept ? "goes on without the screens" : "would be ended");
    a->was_warned = a->is_dirty = a->is_urgent = true;
}

static void take_keys(struct app *a)
{
    int key;
    bool is_gone;
    while (term_next_key(a->term, &key, &is_gone)) {
        if (key == K_PASTE)
            ui_paste(&a->ui, term_pasted(a->term));
        else
            ui_key(&a->ui, key);
        if (key == K_CTRL_L)
            term_damage(a->term);
        a->is_dirty = a->is_urgent = true;
        a->was_warned = false;
    }
    if (is_gone)
        leave(a, APP_TERMINAL_GONE);
}

static void take_signals(struct app *a)
{
    enum term_signal s;
    while ((s = term_next_signal(a->term)) != TERM_SIGNAL_NONE) {
        if (s == TERM_SIGNAL_RESIZE)
            a->is_dirty = a->is_urgent = true;
        else if (s == TERM_SIGNAL_INTERRUPT)
            interrupt(a);
        else
            leave(a, s == TERM_SIGNAL_GONE ? APP_TERMINAL_GONE : APP_INTERRUPTED);
    }
}

static void draw(struct app *a)
{
    int rows, cols;
    term_size(a->term, &rows, &cols);
    grid_reset(&a->grid, rows, cols);
    ui_arrange(&a->ui, rows, cols);
    ui_draw(&a->ui, &a->grid);
    if (clock_now_s() - a->last_full_s > REPAINT_S) {
        term_damage(a->term);
        a->last_full_s = clock_now_s();
    }
    term_show(a->term, &a->grid);
    a->is_dirty = a->is_urgent = false;
    a->last_frame_s = clock_now_s();
}

/* Milliseconds until something must happen without an event. */
static int wait_ms(const struct app *a)
{
    double rest_s = a->is_dirty ? FRAME_S : ui_tick_s(&a->ui);
    double left_s = a->last_frame_s + rest_s - clock_now_s();
    int frame_ms = left_s > 0 ? (int)(left_s * 1000) + 1 : 0;
    int paste_ms = term_timeout_ms(a->term);
    return paste_ms >= 0 && paste_ms < frame_ms ? paste_ms : frame_ms;
}

static void turn(struct app *a)
{
    struct pollfd fds[] = {{term_key_fd(a->term), POLLIN, 0}, {term_signal_fd(a->term), POLLIN, 0},
        {mailbox_fd(a->mailbox), POLLIN, 0}};
    if (poll(fds, 3, wait_ms(a)) < 0 && errno != EINTR)
        leave(a, APP_TERMINAL_GONE);
    a->ui.now_s = clock_wall_s();
    take_signals(a);
    take_keys(a); /* always: curses may hold keys that poll cannot see */
    if (work_collect(a->work, &a->ui))
        a->is_dirty = true;
    if (clock_now_s() >= a->last_frame_s + ui_tick_s(&a->ui)) {
        ui_tick(&a->ui);
        a->is_dirty = true;
    }
    work_start(a->work, &a->ui);
    bool is_due = a->is_urgent || clock_now_s() >= a->last_frame_s + FRAME_S;
    if (a->is_dirty && is_due && !a->ui.is_leaving)
        draw(a);
}

enum app_end app_run(struct term *t, const struct tui_options *o)
{
    struct app a = {.term = t, .mailbox = mailbox_new()};
    a.work = work_new(a.mailbox);
    ui_init(&a.ui, o);
    a.ui.now_s = clock_wall_s();
    work_start(a.work, &a.ui);
    grid_init(&a.grid, term_glyphs(t));
    a.last_full_s = clock_now_s();
    draw(&a);
    while (!a.ui.is_leaving)
        turn(&a);
    ui_release(&a.ui);
    grid_release(&a.grid);
    if (work_free(a.work))
        mailbox_free(a.mailbox);
    return a.end;
}
