#include "tui/view_plans.h"

#include <math.h>

#include "base/str.h"
#include "tui/argv.h"
#include "tui/plan_data.h"
#include "tui/plan_search.h"
#include "tui/plot.h"
#include "tui/screen.h"
#include "tui/show.h"
#include "tui/text_put.h"
#include "tui/ui.h"

/* --- the two lists --- */

enum {
    PLAN_RANK,
    PLAN_MACHINES,
    PLAN_OFFER,
    PLAN_STRATEGY,
    PLAN_MEMORY,
    PLAN_TIME,
    PLAN_COST,
    PLAN_SPEED,
    PLAN_MFU
};

static const struct list_column plan_columns[] = {
    [PLAN_RANK] = {"#", 2, true, false, 0},
    [PLAN_MACHINES] = {"MACHINES", 16, false, true, 0},
    [PLAN_OFFER] = {"OFFER", 13, false, true, 4},
    [PLAN_STRATEGY] = {"STRATEGY", 11, false, true, 0},
    [PLAN_MEMORY] = {"MEMORY", 6, true, false, 2},
    [PLAN_TIME] = {"TIME", 7, true, false, 0},
    [PLAN_COST] = {"COST", 9, true, false, 0},
    [PLAN_SPEED] = {"TOK/S/GPU", 9, true, false, 5},
    [PLAN_MFU] = {"MFU", 5, true, false, 6},
    {NULL, 0, false, false, 0},
};

char *plan_machines(const struct plan_row *r, char buf[PLAN_MACHINES_TEXT])
{
    int64_t each = r->nodes > 0 ? r->gpus / r->nodes : r->gpus;
    snprintf(buf, PLAN_MACHINES_TEXT, "%lldx%lld %s", (long long)r->nodes, (long long)each, r->gpu);
    return buf;
}

/* What is off the GPU, in a word that fits the column. */
static const char *offload_word(const char *offload)
{
    static const struct {
        const char *offload, *word;
    } words[] = {{"optimizer+params", "off-states"}, {"nvme", "off-nvme"},
        {"nvme+params", "off-nvme+p"}, {"activations", "off-acts"}};
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
        if (strcmp(words[i].offload, offload) == 0)
            return words[i].word;
    return "offload";
}

static void strategy_text(const struct plan_row *r, char text[LIST_CELL])
{
    bool is_hybrid = strcmp(r->strategy, "hsdp") == 0;
    int n = snprintf(text, LIST_CELL, "%s", r->strategy);
    if (is_hybrid && n > 0)
        snprintf(text + n, LIST_CELL - (size_t)n, "/%lld", (long long)r->shard_degree);
    struct str s = STR_INIT;
    str_add(&s, text);
    if (r->recompute[0] && strcmp(r->recompute, "none") != 0)
        str_addf(&s, " rc-%.4s", r->recompute);
    if (r->offload[0] && strcmp(r->offload, "none") != 0)
        str_addf(&s, " %s", offload_word(r->offload));
    str_copy(text, LIST_CELL, str_text(&s));
    str_release(&s);
}

static void plan_cell(
    const void *data, size_t row, int column, char text[LIST_CELL], enum role *role)
{
    const struct plan_row *r = &((const struct plan_list *)data)->row[row];
    char buf[PLAN_MACHINES_TEXT];
    switch (column) {
    case PLAN_RANK:
        snprintf(text, LIST_CELL, "%lld", (long long)r->rank);
        break;
    case PLAN_MACHINES:
        str_copy(text, LIST_CELL, plan_machines(r, buf));
        break;
    case PLAN_OFFER:
        snprintf(text, LIST_CELL, "%s %.60s", r->provider, r->region[0] ? r->region : r->offer_id);
        break;
    case PLAN_STRATEGY:
        strategy_text(r, text);
        break;
    case PLAN_MEMORY:
        str_copy(text, LIST_CELL, show_percent(buf, r->peak_bytes / r->capacity_bytes));
        *role = r->fit_probability < 0.9 ? ROLE_WARN : ROLE_NORMAL;
        break;
    case PLAN_TIME:
        str_copy(text, LIST_CELL, show_seconds(buf, r->hours.mid * 3600));
        break;
    case PLAN_COST:
        str_copy(text, LIST_CELL, show_usd(buf, r->cost_usd.mid));
        break;
    case PLAN_SPEED:
        str_copy(text, LIST_CELL, show_number(buf, r->tokens_per_second_per_gpu));
        break;
    default:
        str_copy(text, LIST_CELL, show_percent(buf, r->mfu));
    }
}

/* The same machines sharded the same way, whatever rank they come out at. */
static uint64_t plan_id(const void *data, size_t row)
{
    const struct plan_row *r = &((const struct plan_list *)data)->row[row];
    char text[512];
    snprintf(text, sizeof(text), "%s|%s|%lld|%lld|%s|%s|%s", r->provider, r->offer_id,
        (long long)r->nodes, (long long)r->shard_degree, r->strategy, r->recompute, r->offload);
    return list_id(text);
}

static struct list_rows plan_rows(const struct plan_list *l)
{
    return (struct list_rows){
        .data = l, .n = l ? l->n : 0, .columns = plan_columns, .id = plan_id, .cell = plan_cell};
}

static const struct list_column rejected_columns[] = {
    {"REJECTED", 24, false, true, 0},
    {"SHORT BY", 10, true, false, 3},
    {"WHY", 38, false, true, 0},
    {NULL, 0, false, false, 0},
};

static void rejected_cell(
    const void *data, size_t row, int column, char text[LIST_CELL], enum role *role)
{
    (void)role;
    const struct plan_rejected *r = &((const struct plan_list *)data)->rejected[row];
    str_copy(text, LIST_CELL, column == 0 ? r->what : column == 1 ? r->short_by : r->why);
}

static uint64_t rejected_id(const void *data, size_t row)
{
    const struct plan_rejected *r = &((const struct plan_list *)data)->rejected[row];
    return list_id(r->what) ^ list_id(r->why);
}

static struct list_rows rejected_rows(const struct plan_list *l)
{
    return (struct list_rows){.data = l,
        .n = l ? l->n_rejected : 0,
        .columns = rejected_columns,
        .id = rejected_id,
        .cell = rejected_cell};
}

/* --- state --- */

void plans_view_init(struct plans_view *v)
{
    memset(v, 0, sizeof(*v));
    list_init(&v->list, -1, false);
    list_init(&v->rejected, -1, false);
    line_edit_set(&v->path, "plan.json");
}

void plans_view_release(struct plans_view *v)
{
    list_release(&v->list);
    list_release(&v->rejected);
    plan_found_unref(v->found);
    v->found = NULL;
    v->data = NULL;
}

void plans_view_answer(
    struct plans_view *v, struct plan_found *found, const char *error, double took_s)
{
    plan_found_unref(v->found);
    v->found = found;
    plans_view_show(v, found ? plan_found_list(found) : NULL, error, took_s);
}

void plans_view_show(
    struct plans_view *v, const struct plan_list *data, const char *error, double took_s)
{
    v->data = data;
    v->is_searching = false;
    v->is_outdated = false;
    v->took_s = took_s;
    str_copy(v->job, sizeof(v->job), v->asked);
    str_copy(v->error, sizeof(v->error), error);
    struct list_rows rows = plan_rows(data), rejected = rejected_rows(data);
    bool was_first = v->list.cursor == 0; /* whoever looks at the best plan goes on doing so */
    if (was_first)
        v->list.has_selected = false;
    list_update(&v->list, &rows);
    list_update(&v->rejected, &rejected);
}

const struct plan_row *plans_view_selected(const struct plans_view *v)
{
    size_t row;
    return v->data && list_selected(&v->list, &row) ? &v->data->row[row] : NULL;
}

/* --- drawing --- */

static void draw_title(struct pane p, const char *name, const char *rest)
{
    int x = title_put(p, name);
    if (*rest)
        text_putf(p, 0, x, ROLE_DIM, "%s ", rest);
}

static const char *state_text(const struct ui *ui, char buf[256])
{
    const struct plans_view *v = &ui->plans;
    char time[SHOW_TEXT];
    if (v->is_searching)
        snprintf(buf, 256, "searching for %s (esc cancels): %s",
            show_elapsed(time, ui->now_s - v->since_s), v->asked);
    else if (v->data && v->is_outdated)
        snprintf(buf, 256, "of the job before its last change: %s", v->job);
    else if (v->data)
        snprintf(buf, 256, "%zu, in %s, for %s", v->data->n, show_elapsed(time, v->took_s), v->job);
    else
        buf[0] = '\0';
    return buf;
}

/* Parts worth a letter; what is too small to be seen is one last part. */
static int visible_parts(const struct plan_row *r, struct plan_parts *out)
{
    struct plan_part rest = {"other", 0, NAN};
    out->n = 0;
    for (int i = 0; i < r->memory.n; i++) {
        const struct plan_part *p = &r->memory.part[i];
        if (p->value >= r->capacity_bytes / 1000 && out->n < PLAN_PARTS - 1)
            out->part[out->n++] = *p;
        else if (p->value > 0)
            rest.value += p->value;
    }
    if (rest.value > 0)
        out->part[out->n++] = rest;
    return out->n;
}

static void draw_memory(const struct plan_row *r, struct pane p, int *y)
{
    char peak[SHOW_TEXT], all[SHOW_TEXT], fit[SHOW_TEXT];
    struct bar_part bar[PLAN_PARTS];
    struct plan_parts parts;
    int n = visible_parts(r, &parts), x = 10;
    text_putf(p, *y, 1, ROLE_HEADER, "memory");
    text_putf(p, *y, 10, ROLE_NORMAL, "%s of %s on each GPU, fits with %s",
        show_bytes(peak, r->peak_bytes), show_bytes(all, r->capacity_bytes),
        show_percent(fit, r->fit_probability));
    for (int i = 0; i < n; i++)
        bar[i] = (struct bar_part){parts.part[i].value, (char)('a' + i)};
    bar_draw(p, *y + 1, 10, p.r.w - 11, bar, n, r->capacity_bytes);
    *y += 2;
    for (int i = 0; i < n; i++) {
        char text[96], size[SHOW_TEXT];
        snprintf(text, sizeof(text), " %s %s  ", parts.part[i].name,
            show_bytes(size, parts.part[i].value));
        if (x > 10 && x + 1 + text_width(text) > p.r.w) {
            x = 10;
            ++*y;
        }
        x = text_putf(p, *y, x, theme_part(i), "%c", 'a' + i);
        x = text_putf(p, *y, x, ROLE_NORMAL, "%s", text);
    }
    ++*y;
}

/* Busy time of a lane within the step: what nothing hides is solid. */
static void draw_lane(const struct plan_row *r, const struct plan_part *lane, struct pane p, int y)
{
    char busy[SHOW_TEXT], open[SHOW_TEXT];
    int width = p.r.w > 100 ? 50 : p.r.w - 50;
    double exposed = isfinite(lane->exposed) ? lane->exposed : lane->value;
    int all = (int)(lane->value / r->step_s.mid * width + 0.5);
    int solid = (int)(exposed / r->step_s.mid * width + 0.5);
    text_putf(p, y, 1, ROLE_NORMAL, "%.12s", lane->name);
    pane_fill(p, y, 14, width, 0xb7, ROLE_DIM);
    pane_fill(p, y, 14, all < width ? all : width, 0x2592, ROLE_PART_1);
    pane_fill(p, y, 14, solid < width ? solid : width, 0x2588, ROLE_PART_1);
    int x = text_putf(p, y, 15 + width, ROLE_NORMAL, "%s", show_seconds(busy, lane->value));
    if (isfinite(lane->exposed))
        text_putf(p, y, x, ROLE_DIM, ", exposed %s", show_seconds(open, lane->exposed));
}

/* The same on one line, where there is no room for bars. */
static void draw_lanes_short(const struct plan_row *r, struct pane p, int *y)
{
    int x = 10;
    for (int i = 0; i < r->lanes.n; i++) {
        const struct plan_part *lane = &r->lanes.part[i];
        char text[128], size[SHOW_TEXT];
        double open = isfinite(lane->exposed) ? lane->exposed : lane->value;
        if (!(open > 0))
            continue;
        bool is_all = !(open < lane->value);
        snprintf(text, sizeof(text), "%s %s%s  ", lane->name, show_seconds(size, open),
            is_all ? "" : " exposed");
        if (x > 10 && x + text_width(text) > p.r.w) {
            x = 10;
            ++*y;
        }
        x = text_putf(p, *y, x, ROLE_DIM, "%s", text);
    }
    ++*y;
}

static void draw_step(const struct plan_row *r, struct pane p, int *y)
{
    char step[SHOW_TEXT], low[SHOW_TEXT], high[SHOW_TEXT], speed[SHOW_TEXT], mfu[SHOW_TEXT];
    text_putf(p, *y, 1, ROLE_HEADER, "step");
    text_putf(p, *y, 10, ROLE_NORMAL, "%s (%s to %s), %s tokens/s on each GPU, MFU %s",
        show_seconds(step, r->step_s.mid), show_seconds(low, r->step_s.low),
        show_seconds(high, r->step_s.high), show_number(speed, r->tokens_per_second_per_gpu),
        show_percent(mfu, r->mfu));
    ++*y;
    if (p.r.h - *y < r->lanes.n + 1) {
        draw_lanes_short(r, p, y);
        return;
    }
    for (int i = 0; i < r->lanes.n; i++) {
        if (r->lanes.part[i].value > 0)
            draw_lane(r, &r->lanes.part[i], p, (*y)++);
    }
}

static void draw_money(const struct plan_row *r, struct pane p, int *y)
{
    char mid[SHOW_TEXT], low[SHOW_TEXT], high[SHOW_TEXT], time[SHOW_TEXT];
    text_putf(p, *y, 1, ROLE_HEADER, "bill");
    int x = text_putf(p, *y, 10, ROLE_NORMAL, "%s (%s to %s), %s", show_usd(mid, r->cost_usd.mid),
        show_usd(low, r->cost_usd.low), show_usd(high, r->cost_usd.high),
        show_seconds(time, r->hours.mid * 3600));
    for (int i = 0; i < r->cost_lines.n; i++) {
        char part[96];
        if (!(r->cost_lines.part[i].value > 0))
            continue;
        snprintf(part, sizeof(part), "  %s %s", r->cost_lines.part[i].name,
            show_usd(mid, r->cost_lines.part[i].value));
        if (x + text_width(part) >= p.r.w) {
            ++*y;
            x = 8;
        }
        x = text_putf(p, *y, x, ROLE_DIM, "%s", part);
    }
    ++*y;
}

static void draw_shape(const struct plan_row *r, struct pane p, int *y)
{
    char machines[PLAN_MACHINES_TEXT], strategy[LIST_CELL];
    strategy_text(r, strategy);
    text_putf(p, *y, 1, ROLE_HEADER, "plan");
    text_putf(p, *y, 10, ROLE_NORMAL, "%s at %s: %s, %lld a GPU x %lld, %s",
        plan_machines(r, machines), r->offer_id, strategy, (long long)r->micro_batch,
        (long long)r->grad_accum, r->precision);
    ++*y;
    if (!r->is_launchable)
        *y += text_wrap(p, *y, 10, 2, ROLE_WARN, r->not_launchable);
    text_putf(p, *y, 1, ROLE_HEADER, "why");
    char why[2 * PLAN_SENTENCE + 8];
    snprintf(why, sizeof(why), "%s%s%s", r->why, r->limits[0] ? "; " : "", r->limits);
    *y += text_wrap(p, *y, 10, 2, ROLE_NORMAL, why);
}

/* What wires between nodes must carry for a step that is at most 5 % longer than without limit. */
static void draw_network(const struct plan_row *r, struct pane p, int *y)
{
    bool is_bound = r->required_gbps > r->offered_gbps;
    if (!(r->offered_gbps > 0) || !(r->required_gbps >= 0))
        return;
    text_putf(p, *y, 1, ROLE_HEADER, "network");
    text_putf(p, *y, 10, is_bound ? ROLE_WARN : ROLE_NORMAL,
        is_bound ? "%.0f Gbit/s a node would be enough, %.0f are offered: it waits for them"
                 : "%.0f Gbit/s a node are enough, %.0f are offered",
        ceil(r->required_gbps), r->offered_gbps);
    ++*y;
}

static void draw_basis(const struct plan_row *r, struct pane p, int y)
{
    text_putf(p, y, 1, ROLE_HEADER, "sure?");
    text_putf(p, y, 10, ROLE_NORMAL, "%zu constants are estimates nobody has measured here%s%s",
        r->priors, r->outside[0] ? "; beyond all runs in " : "", r->outside);
}

static void draw_detail(const struct plans_view *v, struct pane p)
{
    const struct plan_row *r = plans_view_selected(v);
    int y = 0;
    if (!r)
        return;
    draw_shape(r, p, &y);
    draw_money(r, p, &y);
    draw_memory(r, p, &y);
    draw_step(r, p, &y);
    draw_network(r, p, &y);
    draw_basis(r, p, y);
}

static void draw_rejected_detail(const struct plans_view *v, struct pane p)
{
    size_t row;
    if (!v->data || !list_selected(&v->rejected, &row))
        return;
    const struct plan_rejected *r = &v->data->rejected[row];
    int y = text_wrap(p, 0, 1, 2, ROLE_HEADER, r->what);
    y += text_wrap(p, y, 1, 4, ROLE_NORMAL, r->why);
    if (r->nearest_change[0]) {
        text_putf(p, y, 1, ROLE_GOOD, "would fit with:");
        text_wrap(p, y, 17, 3, ROLE_NORMAL, r->nearest_change);
    }
}

/* Why there is nothing to list. */
static void draw_nothing(const struct ui *ui, struct pane p)
{
    const struct plans_view *v = &ui->plans;
    if (v->error[0])
        text_wrap(p, 1, 2, 4, ROLE_BAD, v->error);
    else if (!job_form_is_good(&ui->job))
        text_wrap(p, 1, 2, 2, ROLE_WARN, "The job has an error: press e to see it.");
    else if (v->data && v->data->n_rejected > 0)
        text_wrap(p, 1, 2, 3, ROLE_WARN,
            "No plan fits this job within its limits. Press x to see what was rejected, by how "
            "much, and what would make it fit.");
    else if (v->is_searching)
        text_wrap(p, 1, 2, 1, ROLE_DIM, "The first plans will appear here.");
}

static struct split plans_split(const struct plans_view *v, struct rect body)
{
    size_t n = v->shows_rejected ? v->rejected.n : v->list.n;
    int want = (int)(n < 200 ? n : 200) + 1, third = body.h / 3;
    if (v->is_single)
        return screen_rows(body, body.h, body.h);
    return screen_rows(body, want > third ? third : want < 4 ? 4 : want, 12);
}

static void plans_arrange(struct ui *ui, struct rect body)
{
    struct plans_view *v = &ui->plans;
    v->is_single = body.h < SCREEN_FULL_ROWS - 3 || body.w < SCREEN_FULL_COLS;
    struct split s = plans_split(v, body);
    list_arrange(&v->list, s.first.h - 1);
    list_arrange(&v->rejected, s.first.h - 1);
}

static void plans_draw(const struct ui *ui, struct pane body)
{
    const struct plans_view *v = &ui->plans;
    struct split s = plans_split(v, body.r);
    struct pane first = grid_pane(body.grid, s.first), second = grid_pane(body.grid, s.second);
    char state[256];
    bool is_detail_only = v->is_single && v->shows_detail;
    struct list_rows rows = v->shows_rejected ? rejected_rows(v->data) : plan_rows(v->data);
    const struct list *list = v->shows_rejected ? &v->rejected : &v->list;
    draw_title(grid_pane(body.grid, s.first_title),
        v->shows_rejected ? "Rejected"
        : is_detail_only  ? "Plan"
                          : "Plans",
        state_text(ui, state));
    if (ui->editing == &v->path) {
        struct pane title = grid_pane(body.grid, s.first_title);
        pane_fill(title, 0, 0, title.r.w, 0x2500, ROLE_DIM);
        int x = text_putf(title, 0, 1, ROLE_KEY, " write the plan to ");
        line_edit_draw(&v->path, title, 0, x, title.r.w - x - 2, true);
    }
    if (is_detail_only)
        second = first;
    else if (list->n > 0)
        list_draw(list, &rows, first, true);
    else
        draw_nothing(ui, first);
    if (!is_detail_only && s.second.h > 0)
        draw_title(grid_pane(body.grid, s.second_title), "Detail", "");
    if (v->shows_rejected)
        draw_rejected_detail(v, second);
    else
        draw_detail(v, second);
}

void plans_draw_best(const struct ui *ui, struct pane p)
{
    const struct plans_view *v = &ui->plans;
    struct list_rows rows = plan_rows(v->data);
    char state[256];
    draw_title(p, "Best plans", state_text(ui, state));
    struct pane in = pane_part(p, 1, 0, p.r.h - 1, p.r.w);
    if (v->list.n > 0)
        list_draw(&v->list, &rows, in, false);
    else
        draw_nothing(ui, in);
}

/* --- acting --- */

static void write_to(struct ui *ui, const char *path)
{
    struct plans_view *v = &ui->plans;
    str_copy(v->write_path, sizeof(v->write_path), path);
    v->is_writing = true;
    ui->wants |= WANT_WRITE;
}

static void write_done(struct ui *ui, enum action how)
{
    if (how == ACT_EDIT_DONE && ui->plans.path.len > 0)
        write_to(ui, ui->plans.path.text);
}

/* The launch reads a file: write the plan where the form says it lies. */
static void prepare_launch(struct ui *ui)
{
    launch_view_take_plan(ui, ui->options->plan_path);
    write_to(ui, ui->options->plan_path);
    ui_push(ui, VIEW_LAUNCH);
}

static void plans_act(struct ui *ui, enum action action)
{
    struct plans_view *v = &ui->plans;
    struct list_rows rows = v->shows_rejected ? rejected_rows(v->data) : plan_rows(v->data);
    if (list_act(v->shows_rejected ? &v->rejected : &v->list, &rows, action))
        return;
    const struct plan_row *r = plans_view_selected(v);
    switch (action) {
    case ACT_ENTER:
        v->shows_detail = !v->shows_detail;
        break;
    case ACT_NEXT_PANE:
        v->shows_rejected = !v->shows_rejected;
        break;
    case ACT_EDIT_JOB:
        ui_push(ui, VIEW_JOB);
        break;
    case ACT_REFRESH:
        ui->wants |= WANT_PLAN;
        break;
    case ACT_SAVE_PLAN:
    case ACT_LAUNCH:
        if (!r)
            ui_note(
                ui, ROLE_WARN, "there is no plan to %s", action == ACT_LAUNCH ? "launch" : "write");
        else if (v->is_outdated || v->is_searching)
            ui_note(ui, ROLE_WARN, "wait for the plans of the job as it is now");
        else if (action == ACT_SAVE_PLAN)
            ui_edit(ui, &v->path, NULL, write_done);
        else if (!r->is_launchable)
            ui_note(ui, ROLE_WARN, "Berth cannot launch this plan: %s", r->not_launchable);
        else
            prepare_launch(ui);
        break;
    default:
        break;
    }
}

static bool plans_back(struct ui *ui)
{
    struct plans_view *v = &ui->plans;
    bool had = v->shows_rejected || (v->is_single && v->shows_detail);
    v->shows_rejected = v->shows_detail = false;
    return had;
}

static void plans_command(const struct ui *ui, struct str *out)
{
    const struct plan_row *r = plans_view_selected(&ui->plans);
    struct argv a;
    char pick[32];
    argv_init(&a);
    ui_plan_argv(ui, &a);
    if (r && r->rank > 1) {
        snprintf(pick, sizeof(pick), "%lld", (long long)r->rank);
        argv_option(&a, "--pick", pick);
    }
    if (r)
        argv_option(&a, "-o", ui->plans.path.text);
    argv_text(&a, out);
    argv_release(&a);
}

const struct view_ops view_plans = {
    .arrange = plans_arrange,
    .draw = plans_draw,
    .act = plans_act,
    .command = plans_command,
    .back = plans_back,
};
