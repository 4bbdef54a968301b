#include "tui/view_run.h"

#include <math.h>

#include "base/str.h"
#include "tui/acting.h"
#include "tui/argv.h"
#include "tui/plot.h"
#include "tui/screen.h"
#include "tui/show.h"
#include "tui/text_put.h"
#include "tui/ui.h"
#include "tui/view_runs.h"

enum { LOG_BYTES = 4 << 20, HEAD_ROWS = 4, MEAN_STEPS = 20 };

void run_view_init(struct run_view *v)
{
    memset(v, 0, sizeof(*v));
    run_series_init(&v->series);
    log_ring_init(&v->log, LOG_BYTES);
}

void run_view_release(struct run_view *v)
{
    run_series_release(&v->series);
    log_ring_release(&v->log);
}

void run_view_open(struct ui *ui, const char *id)
{
    struct run_view *v = &ui->run;
    if (strcmp(v->id, id) == 0)
        return;
    str_copy(v->id, sizeof(v->id), id);
    run_series_reset(&v->series);
    log_ring_reset(&v->log);
    line_edit_set(&v->filter, "");
    v->has_row = v->is_paused = false;
    v->attached_attempt = -1;
    v->link[0] = '\0';
    v->news_s = 0;
    v->from_end = 0;
    ui->wants |= WANT_RUN;
}

void run_view_news(struct ui *ui, const struct run_news *news)
{
    struct run_view *v = &ui->run;
    if (news->has_row)
        v->row = news->row;
    v->has_row = v->has_row || news->has_row;
    if (news->is_first) { /* the files from their starts */
        run_series_reset(&v->series);
        log_ring_reset(&v->log);
    }
    if (news->starts_over)
        run_series_reset(&v->series);
    for (size_t i = 0; i < news->n_metrics; i++)
        run_series_add(&v->series, &news->metrics[i]);
    if (!v->is_paused) {
        log_ring_add(&v->log, news->log);
    } else { /* what is being read stays in place */
        size_t before = log_ring_count(&v->log, v->filter.text);
        log_ring_add(&v->log, news->log);
        size_t after = log_ring_count(&v->log, v->filter.text);
        v->from_end += after > before ? after - before : 0;
    }
    v->news_s = ui->now_s;
}

/* --- the head: state, speed, memory, money --- */

static void draw_state(const struct ui *ui, struct pane p)
{
    const struct run_view *v = &ui->run;
    const struct run_row *r = &v->row;
    char time[SHOW_TEXT], left[SHOW_TEXT];
    double step = v->series.n ? v->series.step[v->series.n - 1] : (double)r->step;
    double end_s = r->ended_s > 0 ? r->ended_s : ui->now_s;
    int x = text_putf(p, 0, 1, run_state_role(r->state), "%s", run_state_name(r->state));
    x = text_putf(p, 0, x, ROLE_NORMAL, "  step %.0f of %lld", step, (long long)r->steps);
    if (r->launched_s > 0)
        x = text_putf(p, 0, x, ROLE_NORMAL, "  for %s", show_seconds(time, end_s - r->launched_s));
    /* of the steps alone: the time between attempts says nothing about the rest */
    double per_step_s = run_series_mean(&v->series, RUN_STEP_S, MEAN_STEPS);
    if (!run_state_is_final(r->state) && per_step_s > 0 && step < (double)r->steps)
        x = text_putf(p, 0, x, ROLE_NORMAL, "  %s left",
            show_seconds(left, per_step_s * ((double)r->steps - step)));
    if (r->attempt > 1)
        text_putf(p, 0, x, ROLE_DIM, "  attempt %lld", (long long)r->attempt);
}

/* How far a measured value is from the plan. */
static int draw_against(struct pane p, int y, int x, const char *name, const char *measured,
    const char *planned, double ratio)
{
    x = text_putf(p, y, x, ROLE_HEADER, "%s", name);
    x = text_putf(p, y, x, ROLE_NORMAL, " %s", measured);
    x = text_putf(p, y, x, ROLE_DIM, "  plan %s", planned);
    if (isfinite(ratio))
        x = text_putf(p, y, x, fabs(ratio - 1) > 0.2 ? ROLE_WARN : ROLE_DIM, " (%+.0f %%)",
            (ratio - 1) * 100);
    return x;
}

static void draw_measured(const struct ui *ui, struct pane p)
{
    const struct run_view *v = &ui->run;
    const struct run_row *r = &v->row;
    char a[SHOW_TEXT], b[SHOW_TEXT];
    double speed = run_series_mean(&v->series, RUN_SPEED, MEAN_STEPS);
    double bytes = run_series_last(&v->series, RUN_MEMORY);
    int speed_x = draw_against(p, 1, 1, "tokens/s", show_number(a, speed),
        show_number(b, r->predicted_tokens_per_s), speed / r->predicted_tokens_per_s);
    int memory_x = draw_against(p, 2, 1, "memory  ", show_bytes(a, bytes),
        show_bytes(b, r->predicted_bytes), bytes / r->predicted_bytes);
    int half = p.r.w / 2, left_x = (speed_x > memory_x ? speed_x : memory_x) + 2;
    if (half < left_x)
        half = left_x;
    int x = text_putf(p, 1, half, ROLE_HEADER, "loss");
    x = text_putf(
        p, 1, x, ROLE_NORMAL, " %s", show_number(a, run_series_last(&v->series, RUN_LOSS)));
    if (r->validation_step > 0)
        text_putf(p, 1, x, ROLE_NORMAL, "  validation %s at step %lld",
            show_number(b, r->validation_loss), (long long)r->validation_step);
    else
        text_putf(p, 1, x, ROLE_DIM, "  grad norm %s",
            show_number(b, run_series_last(&v->series, RUN_GRAD_NORM)));
    x = text_putf(p, 2, half, ROLE_HEADER, "cost");
    if (r->money.micro_usd_per_hour >= 0)
        text_putf(p, 2, x, ROLE_NORMAL, " %s so far at %s an hour",
            show_usd(a, run_cost_usd(r, ui->now_s)), show_usd(b, run_usd_per_hour(r)));
    else
        text_putf(p, 2, x, ROLE_DIM, " none known");
}

static void draw_head(const struct ui *ui, struct pane p)
{
    const struct run_view *v = &ui->run;
    draw_state(ui, p);
    draw_measured(ui, p);
    if (v->row.sentence[0])
        text_put(
            p, 3, 1, p.r.w - 2, v->row.state == RUN_FAILED ? ROLE_BAD : ROLE_WARN, v->row.sentence);
    else if (v->link[0])
        text_put(p, 3, 1, p.r.w - 2, ROLE_WARN, v->link);
    else if (v->row.checkpoint_step >= 0)
        text_putf(p, 3, 1, ROLE_DIM, "newest good checkpoint: step %lld, survives host loss: %s",
            (long long)v->row.checkpoint_step, v->row.survives_host_loss ? "yes" : "no");
}

/* --- plots --- */

static void label_number(double value, char text[32])
{
    char buf[SHOW_TEXT];
    str_copy(text, 32, show_number(buf, value));
}

static void label_bytes(double value, char text[32])
{
    char buf[SHOW_TEXT];
    str_copy(text, 32, show_bytes(buf, value));
}

static const struct {
    const char *title;
    enum run_value value;
    bool from_zero;
    void (*label)(double value, char text[32]);
} plots[PLOT_COUNT] = {
    [PLOT_LOSS] = {"loss", RUN_LOSS, false, label_number},
    [PLOT_SPEED] = {"tokens per second", RUN_SPEED, true, label_number},
    [PLOT_MEMORY] = {"memory of the fullest rank", RUN_MEMORY, true, label_bytes},
    [PLOT_GRAD_NORM] = {"gradient norm", RUN_GRAD_NORM, true, label_number},
    [PLOT_RATE] = {"learning rate", RUN_RATE, true, label_number},
};

static void draw_plot(const struct run_view *v, enum run_plot which, struct pane p)
{
    enum run_value value = plots[which].value;
    double reference = which == PLOT_SPEED    ? v->row.predicted_tokens_per_s
                       : which == PLOT_MEMORY ? v->row.predicted_bytes
                                              : NAN;
    struct plot plot = {
        .x = v->series.step,
        .y = v->series.value[value],
        .low = v->series.low[value],
        .high = v->series.high[value],
        .n = v->series.n,
        .reference = reference,
        .reference_name = "planned",
        .is_log = v->is_log_scale,
        .from_zero = plots[which].from_zero,
        .x_name = "step",
        .label = plots[which].label,
    };
    int x = title_put(p, plots[which].title);
    if (v->is_log_scale)
        text_putf(p, 0, x, ROLE_DIM, "log scale ");
    plot_draw(pane_part(p, 1, 0, p.r.h - 1, p.r.w), &plot);
}

/* One plot, or two beside each other when it is wide. */
static void draw_plots(const struct run_view *v, struct pane p)
{
    bool has_two = p.r.w >= 140;
    int width = has_two ? p.r.w / 2 : p.r.w;
    draw_plot(v, v->plot, pane_part(p, 0, 0, p.r.h, width));
    enum run_plot second = v->plot == PLOT_SPEED ? PLOT_LOSS : PLOT_SPEED;
    if (has_two)
        draw_plot(v, second, pane_part(p, 0, width, p.r.h, p.r.w - width));
}

/* --- log --- */

static void draw_log(const struct ui *ui, struct pane p)
{
    const struct run_view *v = &ui->run;
    int x = title_put(p, "Log");
    x = text_putf(p, 0, x, v->is_paused ? ROLE_WARN : ROLE_DIM, "%s ",
        v->is_paused ? "paused, f follows" : "following");
    if (v->log.dropped > 0)
        x = text_putf(
            p, 0, x, ROLE_DIM, "%llu older lines dropped ", (unsigned long long)v->log.dropped);
    line_edit_draw_filter(&v->filter, p, x, ui->editing == &v->filter);
    const char *line[GRID_MAX_ROWS];
    size_t rows = p.r.h > 1 ? (size_t)p.r.h - 1 : 0;
    size_t n = log_ring_newest(&v->log, v->filter.text, v->is_paused ? v->from_end : 0, line, rows);
    if (v->log.n == 0)
        text_put(p, 1, 1, p.r.w - 2, ROLE_DIM, "nothing was logged yet");
    for (size_t i = 0; i < n; i++)
        text_put(p, p.r.h - 1 - (int)i, 1, p.r.w - 2, ROLE_NORMAL, line[i]);
}

/* --- stop and resume --- */

static void act_on_run(struct ui *ui, enum action what)
{
    struct argv a;
    char title[32];
    const char *verb = what == ACT_STOP ? "stop" : "resume";
    argv_init(&a);
    argv_add(&a, verb);
    argv_add(&a, ui->run.asked_id);
    if (what == ACT_RESUME)
        argv_add(&a, "--detach");
    argv_add(&a, "--yes");
    snprintf(title, sizeof(title), "%s %s", verb, ui->run.asked_id);
    acting_begin(ui, what, title, &a, true);
}

static void stop(struct ui *ui)
{
    act_on_run(ui, ACT_STOP);
}

static void resume(struct ui *ui)
{
    act_on_run(ui, ACT_RESUME);
}

/* Whoever stops something that costs money names it; else "yes" will do. */
void run_ask_stop(struct ui *ui, const struct run_row *r)
{
    char cost[SHOW_TEXT], rate[SHOW_TEXT];
    struct str s = STR_INIT;
    bool is_paid = r->money.micro_usd_per_hour > 0;
    if (run_state_is_final(r->state)) {
        ui_note(ui, ROLE_WARN, "the run is already %s", run_state_name(r->state));
        return;
    }
    if (!acting_is_free(ui))
        return;
    str_addf(&s, "Run        %s\n", r->id);
    str_addf(&s, "Progress   step %lld of %lld\n", (long long)r->step, (long long)r->steps);
    str_addf(&s, "Cost       %s so far\n", show_usd(cost, run_cost_usd(r, ui->now_s)));
    str_add(&s, "\nIt saves a checkpoint and ends on every host; resume goes on from it.\n");
    if (is_paid)
        str_addf(&s, "The hosts go on costing %s an hour until you release them.\n",
            show_usd(rate, run_usd_per_hour(r)));
    str_copy(ui->run.asked_id, sizeof(ui->run.asked_id), r->id);
    ui_ask(ui, "Stop this run?", str_text(&s), is_paid ? r->id : "yes", stop);
    str_release(&s);
}

void run_ask_resume(struct ui *ui, const struct run_row *r)
{
    struct str s = STR_INIT;
    char rate[SHOW_TEXT];
    if (!run_state_is_final(r->state) && r->state != RUN_UNKNOWN) {
        ui_note(ui, ROLE_WARN, "the run is %s", run_state_name(r->state));
        return;
    }
    if (!acting_is_free(ui))
        return;
    str_addf(&s, "Run        %s, %s\n", r->id, run_state_name(r->state));
    str_addf(&s, "Hosts      as before (%lld)\n", (long long)r->hosts);
    if (r->money.micro_usd_per_hour > 0)
        str_addf(&s, "Cost       %s an hour\n", show_usd(rate, run_usd_per_hour(r)));
    str_add(&s, "\nIt goes on from its newest good checkpoint.\n");
    str_copy(ui->run.asked_id, sizeof(ui->run.asked_id), r->id);
    ui_ask(ui, "Resume this run?", str_text(&s), "yes", resume);
    str_release(&s);
}

/* --- the view --- */

struct run_layout {
    struct rect title, head, plot, log;
};

static struct run_layout run_layout(struct rect body)
{
    struct run_layout l = {{body.y, body.x, 1, body.w}, {0}, {0}, {0}};
    int head = body.h - 1 < HEAD_ROWS ? body.h - 1 : HEAD_ROWS, rest = body.h - 1 - head;
    int plot = rest < 10 ? 0 : rest * 6 / 10;
    l.head = (struct rect){body.y + 1, body.x, head, body.w};
    l.plot = (struct rect){body.y + 1 + head, body.x, plot, body.w};
    l.log = (struct rect){body.y + 1 + head + plot, body.x, rest - plot, body.w};
    return l;
}

static void run_arrange(struct ui *ui, struct rect body)
{
    struct run_view *v = &ui->run;
    int page = run_layout(body).log.h - 1;
    v->page = page > 0 ? page : 1;
    if (!v->is_paused)
        return;
    size_t n = log_ring_count(&v->log, v->filter.text);
    size_t most = n > (size_t)v->page ? n - (size_t)v->page : 0;
    if (v->from_end > most)
        v->from_end = most;
}

static void run_draw(const struct ui *ui, struct pane body)
{
    const struct run_view *v = &ui->run;
    struct run_layout l = run_layout(body.r);
    struct pane title = grid_pane(body.grid, l.title), head = grid_pane(body.grid, l.head);
    char age[SHOW_TEXT], name[RUN_ID_TEXT + 8];
    snprintf(name, sizeof(name), v->id[0] ? "Run %s" : "Run", v->id);
    int x = title_put(title, name);
    if (v->has_row)
        x = text_putf(title, 0, x, ROLE_NORMAL, "%s, %lld rank%s on %lld host%s ", v->row.model,
            (long long)v->row.ranks, v->row.ranks == 1 ? "" : "s", (long long)v->row.hosts,
            v->row.hosts == 1 ? "" : "s");
    if (v->series.wall_s > 0 && !run_state_is_final(v->row.state))
        text_putf(title, 0, x, ROLE_DIM, "%s ", show_age(age, ui->now_s - v->series.wall_s));
    if (!v->id[0])
        text_wrap(head, 1, 2, 2, ROLE_DIM,
            "No run is open. Choose one under Runs (6), or launch a plan.");
    if (!v->has_row)
        return;
    draw_head(ui, head);
    if (l.plot.h > 0)
        draw_plots(v, grid_pane(body.grid, l.plot));
    draw_log(ui, grid_pane(body.grid, l.log));
}

static void scroll(struct run_view *v, enum action action)
{
    size_t step = action == ACT_UP || action == ACT_DOWN ? 1 : (size_t)v->page;
    switch (action) {
    case ACT_UP:
    case ACT_PAGE_UP:
        v->from_end += step;
        v->is_paused = true;
        break;
    case ACT_DOWN:
    case ACT_PAGE_DOWN:
        v->from_end -= v->from_end > step ? step : v->from_end;
        break;
    case ACT_FIRST:
        v->from_end = v->log.n;
        v->is_paused = true;
        break;
    default:
        v->from_end = 0;
        v->is_paused = false;
    }
}

static void run_act(struct ui *ui, enum action action)
{
    struct run_view *v = &ui->run;
    switch (action) {
    case ACT_NEXT_PLOT:
        v->plot = (v->plot + 1) % PLOT_COUNT;
        break;
    case ACT_LOG_SCALE:
        v->is_log_scale = !v->is_log_scale;
        break;
    case ACT_FILTER:
        ui_edit(ui, &v->filter, NULL, NULL);
        break;
    case ACT_REFRESH:
        v->attached_attempt = -1;
        v->link[0] = '\0';
        ui->wants |= v->id[0] ? WANT_RUN : 0;
        break;
    case ACT_STOP:
    case ACT_RESUME:
        if (!v->has_row)
            ui_note(ui, ROLE_WARN, "no run is open");
        else if (action == ACT_STOP)
            run_ask_stop(ui, &v->row);
        else
            run_ask_resume(ui, &v->row);
        break;
    case ACT_UP:
    case ACT_DOWN:
    case ACT_PAGE_UP:
    case ACT_PAGE_DOWN:
    case ACT_FIRST:
    case ACT_LAST:
    case ACT_FOLLOW:
        scroll(v, action);
        break;
    default:
        break;
    }
}

static bool run_back(struct ui *ui)
{
    return line_edit_clear(&ui->run.filter);
}

static void run_command(const struct ui *ui, struct str *out)
{
    if (ui->run.id[0])
        str_addf(out, "berth attach %s", ui->run.id);
}

const struct view_ops view_run = {
    .arrange = run_arrange,
    .draw = run_draw,
    .act = run_act,
    .command = run_command,
    .back = run_back,
};
