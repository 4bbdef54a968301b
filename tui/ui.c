#include "tui/ui.h"

#include <stdarg.h>

#include "base/alloc.h"
#include "tui/argv.h"
#include "tui/screen.h"
#include "tui/term.h"
#include "tui/text_put.h"
#include "tui/view_job.h"

static const struct view_ops *const views[VIEW_COUNT] = {
    [VIEW_OFFERS] = &view_offers,
    [VIEW_JOB] = &view_job,
    [VIEW_PLANS] = &view_plans,
    [VIEW_LAUNCH] = &view_launch,
    [VIEW_RUN] = &view_run,
    [VIEW_RUNS] = &view_runs,
    [VIEW_HELP] = &view_help,
};

const struct view_ops *ui_ops(enum view view)
{
    return views[view];
}

void ui_init(struct ui *ui, const struct tui_options *options)
{
    memset(ui, 0, sizeof(*ui));
    ui->options = options;
    str_init(&ui->question.text, 1 << 16);
    ui->stack[0] = VIEW_OFFERS;
    ui->depth = 1;
    job_form_init(&ui->job);
    offers_view_init(&ui->offers);
    plans_view_init(&ui->plans);
    launch_view_init(&ui->launch);
    run_view_init(&ui->run);
    runs_view_init(&ui->runs);
    acting_init(&ui->acting);
    ui->wants = WANT_OFFERS | WANT_RUNS;
}

void ui_release(struct ui *ui)
{
    str_release(&ui->question.text);
    offers_view_release(&ui->offers);
    plans_view_release(&ui->plans);
    run_view_release(&ui->run);
    runs_view_release(&ui->runs);
    acting_release(&ui->acting);
}

double ui_tick_s(const struct ui *ui)
{
    if (ui->offers.is_loading || ui->plans.is_searching || ui->plans.is_writing ||
        ui->acting.is_running)
        return 0.25;
    return ui_view(ui) == VIEW_RUN || ui_view(ui) == VIEW_RUNS ? 5 : 60;
}

void ui_tick(struct ui *ui)
{
    if (ui_view(ui) == VIEW_RUNS && !ui->acting.is_running)
        ui->wants |= WANT_RUNS;
}

void ui_source_argv(const struct ui *ui, struct argv *a)
{
    const struct tui_options *o = ui->options;
    for (size_t i = 0; i < o->n_offers_paths; i++)
        argv_option(a, "--offers", o->offers_paths[i]);
    if (o->has_here)
        argv_add(a, "--here");
    if (o->ranks_per_node > 0) {
        char text[32];
        snprintf(text, sizeof(text), "%lld", (long long)o->ranks_per_node);
        argv_option(a, "--ranks-per-node", text);
    }
}

void ui_plan_argv(const struct ui *ui, struct argv *a)
{
    argv_add(a, "plan");
    ui_source_argv(ui, a);
    job_form_argv(&ui->job, a);
}

/* --- where the user is --- */

enum view ui_view(const struct ui *ui)
{
    return ui->stack[ui->depth - 1];
}

enum view ui_mode(const struct ui *ui)
{
    if (ui->question.is_open)
        return MODE_CONFIRM;
    return ui->editing ? MODE_EDIT : ui_view(ui);
}

/* The first look at plans starts the search; nobody's cores are heated before. */
static void arrived(struct ui *ui)
{
    enum view view = ui_view(ui);
    const struct plans_view *p = &ui->plans;
    if ((view == VIEW_JOB || view == VIEW_PLANS) && !p->data && !p->is_searching && !p->error[0])
        ui->wants |= WANT_PLAN;
    if (view == VIEW_RUNS)
        ui->wants |= WANT_RUNS;
}

void ui_show(struct ui *ui, enum view view)
{
    ui->stack[0] = view;
    ui->depth = 1;
    arrived(ui);
}

void ui_push(struct ui *ui, enum view view)
{
    if (ui_view(ui) == view)
        return;
    if (ui->depth == UI_DEPTH) {
        memmove(ui->stack, ui->stack + 1, (UI_DEPTH - 1) * sizeof(ui->stack[0]));
        ui->depth--;
    }
    ui->stack[ui->depth++] = view;
    arrived(ui);
}

void ui_note(struct ui *ui, enum role role, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(ui->note, sizeof(ui->note), fmt, args);
    va_end(args);
    ui->note_role = role;
}

/* --- entering text, answering questions --- */

void ui_edit(struct ui *ui, struct line_edit *l, void (*edited)(struct ui *ui),
    void (*done)(struct ui *ui, enum action how))
{
    line_edit_begin(l);
    ui->editing = l;
    ui->edited = edited;
    ui->edit_done = done;
}

void ui_ask(struct ui *ui, const char *title, const char *text, const char *word,
    void (*agreed)(struct ui *ui))
{
    struct question *q = &ui->question;
    str_copy(q->title, sizeof(q->title), title);
    str_copy(q->word, sizeof(q->word), word);
    str_reset(&q->text);
    str_add(&q->text, text);
    line_edit_set(&q->answer, "");
    q->agreed = agreed;
    q->is_open = true;
}

static void answer(struct ui *ui, enum action action, int key)
{
    struct question *q = &ui->question;
    if (action == ACT_EDIT_DONE || action == ACT_EDIT_CANCEL) {
        q->is_open = false;
        if (action == ACT_EDIT_DONE && strcmp(q->answer.text, q->word) == 0)
            q->agreed(ui);
        else
            ui_note(ui, ROLE_NORMAL, "not done");
    } else {
        line_edit_key(&q->answer, key);
    }
}

static void edit(struct ui *ui, enum action action, int key)
{
    if (action == ACT_NONE) {
        if (line_edit_key(ui->editing, key) && ui->edited)
            ui->edited(ui);
        return;
    }
    if (action == ACT_EDIT_CANCEL)
        line_edit_undo(ui->editing);
    ui->editing = NULL;
    if (action == ACT_EDIT_CANCEL && ui->edited)
        ui->edited(ui);
    if (ui->edit_done)
        ui->edit_done(ui, action);
}

/* --- keys --- */

static void leave_view(struct ui *ui)
{
    if (views[ui_view(ui)]->back && views[ui_view(ui)]->back(ui))
        return;
    if (ui->depth > 1)
        ui->depth--;
    else
        ui->is_leaving = true;
}

/* Esc: out of what is open, out of a search that takes too long, out of the view. */
static void go_back(struct ui *ui)
{
    bool shows_plans = ui_view(ui) == VIEW_PLANS || ui_view(ui) == VIEW_JOB;
    if (views[ui_view(ui)]->back && views[ui_view(ui)]->back(ui))
        return;
    if (shows_plans && ui->plans.is_searching) {
        ui->wants |= WANT_NO_PLAN;
        ui_note(ui, ROLE_NORMAL, "the search is cancelled; r in the plans searches again");
    } else if (ui->depth > 1) {
        ui->depth--;
    } else {
        ui_note(ui, ROLE_DIM, "press q to leave");
    }
}

static void show_help(struct ui *ui)
{
    if (ui_view(ui) == VIEW_HELP) {
        ui->help.has_all = !ui->help.has_all;
        return;
    }
    ui->help.about = ui_view(ui);
    ui->help.has_all = false;
    ui->help.top = 0;
    ui_push(ui, VIEW_HELP);
}

static void next_view(struct ui *ui, int step)
{
    ui_show(ui, (enum view)(((int)ui_view(ui) + step + VIEW_HELP) % VIEW_HELP));
}

static void act(struct ui *ui, enum action action)
{
    if (action >= ACT_SHOW_OFFERS && action <= ACT_SHOW_RUNS)
        ui_show(ui, (enum view)(VIEW_OFFERS + (action - ACT_SHOW_OFFERS)));
    else if (action == ACT_QUIT)
        leave_view(ui);
    else if (action == ACT_BACK)
        go_back(ui);
    else if (action == ACT_HELP)
        show_help(ui);
    else if (action == ACT_COMMAND)
        ui->shows_command = true;
    else if (action == ACT_NEXT_VIEW || action == ACT_PREVIOUS_VIEW)
        next_view(ui, action == ACT_NEXT_VIEW ? 1 : -1);
    else
        views[ui_view(ui)]->act(ui, action);
}

void ui_key(struct ui *ui, int key)
{
    ui->note[0] = '\0';
    if (ui->shows_command) {
        ui->shows_command = false;
        return;
    }
    const struct binding *b = keys_find(ui_mode(ui), key, ui->options->is_read_only);
    enum action action = b ? b->action : ACT_NONE;
    if (ui->question.is_open)
        answer(ui, action, key);
    else if (ui->editing)
        edit(ui, action, key);
    else if (action != ACT_NONE)
        act(ui, action);
}

void ui_paste(struct ui *ui, const char *text)
{
    if (ui->question.is_open)
        ui_note(ui, ROLE_WARN, "pasted text is no answer: type it");
    else if (!ui->editing)
        ui_note(ui, ROLE_WARN, "pasted text is ignored here: it is taken only in a field");
    else {
        line_edit_paste(ui->editing, text);
        if (ui->edited)
            ui->edited(ui);
    }
}

/* --- the screen --- */

void ui_arrange(struct ui *ui, int rows, int cols)
{
    struct screen s = screen_layout(rows, cols);
    const struct view_ops *ops = views[ui_view(ui)];
    if (s.size != SCREEN_TOO_SMALL && ops->arrange)
        ops->arrange(ui, s.body);
}

static void draw_header(const struct ui *ui, struct pane p)
{
    int x = text_putf(p, 0, 1, ROLE_TITLE, "Berth") + 2;
    bool is_short = p.r.w < 64;
    for (int v = 0; v < VIEW_HELP; v++) {
        enum role role = v == (int)ui_view(ui) ? ROLE_TAB : ROLE_NORMAL;
        if (is_short && role != ROLE_TAB)
            x = text_putf(p, 0, x, ROLE_DIM, " %d ", v + 1);
        else
            x = text_putf(p, 0, x, role, " %d %s ", v + 1, view_name((enum view)v));
    }
    if (ui_view(ui) == VIEW_HELP)
        x = text_putf(p, 0, x, ROLE_TAB, " ? Help ");
    if (ui->options->is_read_only)
        text_putf(p, 0, x + 1, ROLE_WARN, "read-only");
}

static void draw_message(const struct ui *ui, struct pane p)
{
    if (ui->note[0]) {
        text_put(p, 0, 1, p.r.w - 2, ui->note_role, ui->note);
        return;
    }
    struct str command = STR_INIT;
    const struct view_ops *ops = views[ui_view(ui)];
    if (ops->command)
        ops->command(ui, &command);
    if (command.len > 0)
        text_put(p, 0, 1, p.r.w - 2, ROLE_DIM, str_text(&command));
    str_release(&command);
}

static void draw_box(struct pane p)
{
    for (int y = 0; y < p.r.h; y++)
        pane_fill(p, y, 0, p.r.w, ' ', ROLE_NORMAL);
    pane_fill(p, 0, 0, p.r.w, 0x2500, ROLE_WARN);
    pane_fill(p, p.r.h - 1, 0, p.r.w, 0x2500, ROLE_WARN);
    for (int y = 0; y < p.r.h; y++) {
        bool is_top = y == 0, is_bottom = y == p.r.h - 1;
        pane_put(p, y, 0, is_top ? 0x250c : is_bottom ? 0x2514 : 0x2502, ROLE_WARN);
        pane_put(p, y, p.r.w - 1, is_top ? 0x2510 : is_bottom ? 0x2518 : 0x2502, ROLE_WARN);
    }
}

static int count_lines(const char *text)
{
    int n = *text != '\0';
    for (; *text; text++)
        n += text[0] == '\n' && text[1] != '\0';
    return n;
}

static void draw_question(const struct ui *ui, struct pane body)
{
    const struct question *q = &ui->question;
    const char *text = str_text(&q->text);
    int width = body.r.w < 76 ? body.r.w : 76, height = count_lines(text) + 5;
    if (height > body.r.h)
        height = body.r.h;
    struct pane p = pane_part(body, (body.r.h - height) / 2, (body.r.w - width) / 2, height, width);
    draw_box(p);
    text_putf(p, 0, 2, ROLE_WARN, " %s ", q->title);
    struct pane in = pane_part(p, 1, 2, height - 2, width - 4);
    int y = 0;
    for (; *text && y < in.r.h - 2; y++) {
        text_put(in, y, 0, in.r.w, ROLE_NORMAL, text);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
    y = in.r.h - 1;
    int x = text_putf(in, y, 0, ROLE_NORMAL, "Type %s and press enter; esc means no: ", q->word);
    line_edit_draw(&q->answer, in, y, x, in.r.w - x, true);
}

/* Lines are filled to the last column and nothing is inserted, so that it can be copied as it is.
 */
static void draw_command(const struct ui *ui, struct pane body)
{
    struct str command = STR_INIT;
    const struct view_ops *ops = views[ui_view(ui)];
    if (ops->command)
        ops->command(ui, &command);
    const char *text = command.len ? str_text(&command) : "there is no command for this view";
    for (int y = 0; y < body.r.h; y++)
        pane_fill(body, y, 0, body.r.w, ' ', ROLE_NORMAL);
    text_putf(body, 0, 1, ROLE_TITLE, "As a command");
    text_putf(body, 0, 15, ROLE_DIM, "any key closes");
    for (int y = 2; *text && y < body.r.h; y++) {
        struct pane line = pane_part(body, y, 0, 1, body.r.w);
        size_t n = 0;
        for (int x = 0; x < body.r.w && text[n]; n++)
            x += ((unsigned char)text[n] & 0xc0) != 0x80;
        while (((unsigned char)text[n] & 0xc0) == 0x80)
            n++;
        char *piece = base_strndup(text, n);
        text_put(line, 0, 0, body.r.w, ROLE_NORMAL, piece);
        free(piece);
        text += n;
    }
    str_release(&command);
}

static void draw_too_small(struct pane p)
{
    char have[64];
    snprintf(have, sizeof(have), "berth needs %dx%d, this is %dx%d", SCREEN_MIN_COLS,
        SCREEN_MIN_ROWS, p.r.w, p.r.h);
    text_put(p, p.r.h / 2, 0, p.r.w, ROLE_NORMAL, have);
}

void ui_draw(const struct ui *ui, struct grid *g)
{
    struct screen s = screen_layout(g->rows, g->cols);
    struct pane body = grid_pane(g, s.body);
    if (s.size == SCREEN_TOO_SMALL) {
        draw_too_small(body);
        return;
    }
    draw_header(ui, grid_pane(g, s.header));
    views[ui_view(ui)]->draw(ui, body);
    draw_message(ui, grid_pane(g, s.message));
    if (ui->shows_command)
        draw_command(ui, body);
    if (ui->question.is_open)
        draw_question(ui, body);
    keys_footer(grid_pane(g, s.footer), ui_mode(ui), ui->options->is_read_only,
        ui->depth > 1 ? "back" : "quit");
}
