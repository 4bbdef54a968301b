#include "tui/view_job.h"

#include "base/str.h"
#include "tui/argv.h"
#include "tui/screen.h"
#include "tui/text_put.h"
#include "tui/ui.h"

enum { LABEL = 14, VALUE = 24, FORM_ROWS = JOB_FIELDS + 1 };

static int value_width(struct pane p)
{
    int room = p.r.w - LABEL - 4;
    return room < VALUE ? room : p.r.w > 120 ? VALUE * 2 : VALUE;
}

static void draw_field(const struct ui *ui, int i, struct pane p, int y)
{
    const struct job_form *f = &ui->job;
    bool is_here = i == f->cursor;
    int width = value_width(p);
    line_edit_draw_field(&f->field[i], pane_part(p, y, 0, 1, p.r.w),
        job_field_label((enum job_field_id)i), LABEL, width, is_here, ui->editing == &f->field[i]);
    if (job_field_is_choice((enum job_field_id)i)) {
        pane_put(p, y, 1 + LABEL, '<', ROLE_DIM);
        pane_put(p, y, 2 + LABEL + width, '>', ROLE_DIM);
    }
    int x = LABEL + width + 4, room = p.r.w - x - 1;
    if (room < 10)
        return;
    if (f->error[i][0])
        text_put(p, y, x, room, ROLE_BAD, f->error[i]);
    else if (is_here)
        text_put(p, y, x, room, ROLE_DIM, job_field_hint((enum job_field_id)i));
}

/* Presets that go on as the typed text does, on the line below the form. */
static void draw_matches(const struct job_form *f, struct pane p, int y)
{
    const char *name;
    int x = text_putf(p, y, 2, ROLE_DIM, "presets:");
    for (int i = 0; (name = job_form_model_match(f, i)) && x < p.r.w - 2; i++)
        x = text_putf(p, y, x, ROLE_DIM, " %s", name);
    if (!job_form_model_match(f, 0))
        text_putf(p, y, x, ROLE_WARN, " none has that in its name");
}

static struct split job_split(struct rect body)
{
    bool is_small = body.h < SCREEN_FULL_ROWS - 3; /* then the form has it all */
    return screen_rows(body, is_small ? body.h : FORM_ROWS, is_small ? body.h : 4);
}

static void job_arrange(struct ui *ui, struct rect body)
{
    struct split s = job_split(body);
    list_arrange(&ui->plans.list, s.second.h - 1);
}

static void job_draw(const struct ui *ui, struct pane body)
{
    const struct job_form *f = &ui->job;
    struct split s = job_split(body.r);
    struct pane title = grid_pane(body.grid, s.first_title), form = grid_pane(body.grid, s.first);
    title_put(title, "Job");
    /* when the form is taller than the pane, the field under the cursor stays in view */
    int top = f->cursor >= form.r.h ? f->cursor - form.r.h + 1 : 0;
    for (int i = top; i < JOB_FIELDS; i++)
        draw_field(ui, i, form, i - top);
    if (form.r.h > JOB_FIELDS && f->cursor == JOB_MODEL)
        draw_matches(f, form, JOB_FIELDS);
    if (s.second.h == 0)
        return;
    struct rect r = s.second_title;
    r.h += s.second.h;
    plans_draw_best(ui, grid_pane(body.grid, r));
}

static void changed(struct ui *ui)
{
    job_form_check(&ui->job);
    ui->plans.is_outdated = true;
    ui->wants |= WANT_PLAN;
}

static void move(struct job_form *f, int step)
{
    int to = f->cursor + step;
    f->cursor = to < 0 ? 0 : to >= JOB_FIELDS ? JOB_FIELDS - 1 : to;
}

static void done(struct ui *ui, enum action how);

static void begin(struct ui *ui)
{
    struct job_form *f = &ui->job;
    if (!job_field_is_choice((enum job_field_id)f->cursor))
        ui_edit(ui, &f->field[f->cursor], changed, done);
}

static void done(struct ui *ui, enum action how)
{
    if (how != ACT_EDIT_NEXT && how != ACT_EDIT_PREVIOUS)
        return;
    move(&ui->job, how == ACT_EDIT_NEXT ? 1 : -1);
    begin(ui);
}

static void turn(struct ui *ui, int step)
{
    struct job_form *f = &ui->job;
    if (!job_field_is_choice((enum job_field_id)f->cursor))
        return;
    job_form_turn(f, (enum job_field_id)f->cursor, step);
    changed(ui);
}

static void job_act(struct ui *ui, enum action action)
{
    struct job_form *f = &ui->job;
    switch (action) {
    case ACT_UP:
        move(f, -1);
        break;
    case ACT_DOWN:
        move(f, 1);
        break;
    case ACT_FIRST:
    case ACT_PAGE_UP:
        f->cursor = 0;
        break;
    case ACT_LAST:
    case ACT_PAGE_DOWN:
        f->cursor = JOB_FIELDS - 1;
        break;
    case ACT_LEFT:
    case ACT_RIGHT:
        turn(ui, action == ACT_RIGHT ? 1 : -1);
        break;
    case ACT_ENTER:
        turn(ui, 1);
        begin(ui);
        break;
    case ACT_PLAN:
        ui_push(ui, VIEW_PLANS);
        break;
    default:
        break;
    }
}

static void job_command(const struct ui *ui, struct str *out)
{
    struct argv a;
    argv_init(&a);
    ui_plan_argv(ui, &a);
    argv_text(&a, out);
    argv_release(&a);
}

const struct view_ops view_job = {
    .arrange = job_arrange, .draw = job_draw, .act = job_act, .command = job_command};
