#include "tui/view_runs.h"

#include <math.h>

#include "base/str.h"
#include "tui/acting.h"
#include "tui/argv.h"
#include "tui/show.h"
#include "tui/text_put.h"
#include "tui/ui.h"

enum { RUNS_ID, RUNS_STATE, RUNS_MODEL, RUNS_HOSTS, RUNS_STEP, RUNS_LOSS, RUNS_AGE, RUNS_COST };

static const struct list_column columns[] = {
    [RUNS_ID] = {"RUN", 20, false, false, 0},
    [RUNS_STATE] = {"STATE", 9, false, false, 0},
    [RUNS_MODEL] = {"MODEL", 12, false, true, 3},
    [RUNS_HOSTS] = {"HOSTS", 5, true, false, 4},
    [RUNS_STEP] = {"STEP", 12, true, false, 1},
    [RUNS_LOSS] = {"LOSS", 6, true, false, 2},
    [RUNS_AGE] = {"TIME", 8, true, false, 5},
    [RUNS_COST] = {"COST", 8, true, false, 6},
    {NULL, 0, false, false, 0},
};

enum role run_state_role(enum run_state s)
{
    static const enum role roles[] = {[RUN_PLANNED] = ROLE_DIM,
        [RUN_STAGING] = ROLE_WARN,
        [RUN_RUNNING] = ROLE_GOOD,
        [RUN_FINISHED] = ROLE_NORMAL,
        [RUN_FAILED] = ROLE_BAD,
        [RUN_CANCELLED] = ROLE_WARN,
        [RUN_UNKNOWN] = ROLE_WARN};
    return roles[s];
}

static double duration_s(const struct run_row *r, double now_s)
{
    double until = r->ended_s > 0 ? r->ended_s : now_s;
    return r->launched_s > 0 ? until - r->launched_s : NAN;
}

static void runs_cell(
    const void *data, size_t row, int column, char text[LIST_CELL], enum role *role)
{
    const struct runs_view *v = data;
    const struct run_row *r = &v->data->row[row];
    char buf[SHOW_TEXT];
    switch (column) {
    case RUNS_ID:
        str_copy(text, LIST_CELL, r->id);
        break;
    case RUNS_STATE:
        str_copy(text, LIST_CELL, run_state_name(r->state));
        *role = run_state_role(r->state);
        break;
    case RUNS_MODEL:
        str_copy(text, LIST_CELL, r->model);
        break;
    case RUNS_HOSTS:
        snprintf(text, LIST_CELL, "%lld", (long long)r->hosts);
        break;
    case RUNS_STEP:
        snprintf(text, LIST_CELL, "%lld/%lld", (long long)r->step, (long long)r->steps);
        break;
    case RUNS_LOSS:
        str_copy(text, LIST_CELL, isnan(r->loss) ? "" : show_number(buf, r->loss));
        break;
    case RUNS_AGE:
        if (r->launched_s > 0)
            str_copy(text, LIST_CELL, show_seconds(buf, duration_s(r, v->now_s)));
        break;
    default:
        if (r->money.micro_usd_per_hour >= 0)
            str_copy(text, LIST_CELL, show_usd(buf, run_cost_usd(r, v->now_s)));
    }
}

static uint64_t runs_id(const void *data, size_t row)
{
    return list_id(((const struct runs_view *)data)->data->row[row].id);
}

static int runs_compare(const void *data, size_t a, size_t b, int column)
{
    const struct runs_view *v = data;
    const struct run_row *x = &v->data->row[a], *y = &v->data->row[b];
    switch (column) {
    case RUNS_ID:
        return strcmp(x->id, y->id);
    case RUNS_STATE:
        return (int)x->state - (int)y->state;
    case RUNS_MODEL:
        return strcmp(x->model, y->model);
    case RUNS_HOSTS:
        return (x->hosts > y->hosts) - (x->hosts < y->hosts);
    case RUNS_STEP:
        return (x->step > y->step) - (x->step < y->step);
    case RUNS_LOSS:
        return list_compare_numbers(x->loss, y->loss);
    case RUNS_AGE:
        return list_compare_numbers(duration_s(x, v->now_s), duration_s(y, v->now_s));
    default:
        return list_compare_numbers(run_cost_usd(x, v->now_s), run_cost_usd(y, v->now_s));
    }
}

static bool runs_match(const void *data, size_t row)
{
    const struct runs_view *v = data;
    const struct run_row *r = &v->data->row[row];
    const char *t = v->filter.text;
    return !*t || strcasestr(r->id, t) || strcasestr(r->model, t) ||
           strcasestr(run_state_name(r->state), t);
}

static struct list_rows runs_rows(const struct runs_view *v)
{
    return (struct list_rows){.data = v,
        .n = v->data ? v->data->n : 0,
        .columns = columns,
        .id = runs_id,
        .cell = runs_cell,
        .compare = runs_compare,
        .matches = runs_match};
}

void runs_view_init(struct runs_view *v)
{
    memset(v, 0, sizeof(*v));
    list_init(&v->list, RUNS_ID, true);
}

void runs_view_release(struct runs_view *v)
{
    list_release(&v->list);
    if (v->data)
        run_rows_free(v->data);
    v->data = NULL;
}

void runs_view_answer(struct runs_view *v, struct run_rows *rows)
{
    if (v->data)
        run_rows_free(v->data);
    v->data = rows;
    v->is_loading = false;
    struct list_rows all = runs_rows(v);
    list_update(&v->list, &all);
}

static const struct run_row *selected(const struct runs_view *v)
{
    size_t row;
    return v->data && list_selected(&v->list, &row) ? &v->data->row[row] : NULL;
}

static void filter_changed(struct ui *ui)
{
    struct list_rows rows = runs_rows(&ui->runs);
    list_update(&ui->runs.list, &rows);
}

/* --- drawing --- */

static void runs_arrange(struct ui *ui, struct rect body)
{
    ui->runs.now_s = ui->now_s;
    list_arrange(&ui->runs.list, body.h - 3);
}

static void runs_draw(const struct ui *ui, struct pane body)
{
    const struct runs_view *v = &ui->runs;
    const struct run_row *r = selected(v);
    struct list_rows rows = runs_rows(v);
    char count[48];
    int x = title_put(body, "Runs");
    if (v->data)
        x = text_putf(body, 0, x, ROLE_NORMAL, "%s ", list_count(&v->list, count));
    line_edit_draw_filter(&v->filter, body, x, ui->editing == &v->filter);
    struct pane in = pane_part(body, 1, 0, body.r.h - 2, body.r.w);
    if (v->list.n > 0)
        list_draw(&v->list, &rows, in, true);
    else if (v->data && v->data->error[0])
        text_wrap(in, 1, 2, 3, ROLE_BAD, v->data->error);
    else if (v->data)
        text_wrap(in, 1, 2, 2, ROLE_DIM,
            v->data->n ? "No run matches the filter."
                       : "There are no runs yet. Choose a plan (3) and launch it (l).");
    if (r && r->sentence[0])
        text_put(body, body.r.h - 1, 1, body.r.w - 2, r->state == RUN_FAILED ? ROLE_BAD : ROLE_WARN,
            r->sentence);
}

/* --- acting --- */

static void runs_act(struct ui *ui, enum action action)
{
    struct runs_view *v = &ui->runs;
    struct list_rows rows = runs_rows(v);
    const struct run_row *r = selected(v);
    if (list_act(&v->list, &rows, action))
        return;
    switch (action) {
    case ACT_ENTER:
        if (r) {
            run_view_open(ui, r->id);
            ui_push(ui, VIEW_RUN);
        }
        break;
    case ACT_FILTER:
        ui_edit(ui, &v->filter, filter_changed, NULL);
        break;
    case ACT_REFRESH:
        ui->wants |= WANT_RUNS;
        break;
    default:
        break;
    }
}

static bool runs_back(struct ui *ui)
{
    bool had = line_edit_clear(&ui->runs.filter);
    if (had)
        filter_changed(ui);
    return had;
}

static void runs_command(const struct ui *ui, struct str *out)
{
    (void)ui;
    str_add(out, "berth runs");
}

const struct view_ops view_runs = {
    .arrange = runs_arrange,
    .draw = runs_draw,
    .act = runs_act,
    .command = runs_command,
    .back = runs_back,
};
