#include "tui/view_launch.h"

#include <math.h>

#include "base/str.h"
#include "base/units.h"
#include "tui/acting.h"
#include "tui/plan_data.h"
#include "tui/screen.h"
#include "tui/show.h"
#include "tui/text_put.h"
#include "tui/ui.h"

enum { LABEL = 12 };

static const struct {
    const char *label, *hint;
} fields[LAUNCH_FIELDS] = {
    [LAUNCH_PLAN] = {"plan file", "press l on a plan, or name a file of berth plan -o"},
    [LAUNCH_HOSTS] = {"hosts", "a file, a list such as node[01-04], or here for this machine"},
    [LAUNCH_DATA] = {"data", "local:PATH to send along, or host:PATH; empty: the plan's"},
    [LAUNCH_MAX_USD] = {"at most $", "the run ends with a checkpoint when it has cost this much"},
    [LAUNCH_NEW_KEYS] = {"new keys", "hosts seen for the first time: refuse, or trust their keys"},
};

static const char REFUSE[] = "refuse", ACCEPT[] = "accept", HERE[] = "here";

void launch_view_init(struct launch_view *v)
{
    memset(v, 0, sizeof(*v));
    v->plan_low_usd = v->plan_mid_usd = v->plan_high_usd = v->plan_hours = NAN;
    line_edit_set(&v->field[LAUNCH_NEW_KEYS], REFUSE);
}

void launch_view_take_plan(struct ui *ui, const char *path)
{
    struct launch_view *v = &ui->launch;
    const struct plan_row *r = plans_view_selected(&ui->plans);
    char machines[PLAN_MACHINES_TEXT];
    if (!r)
        return;
    line_edit_set(&v->field[LAUNCH_PLAN], path);
    snprintf(v->plan_text, sizeof(v->plan_text), "%s, %s", plan_machines(r, machines), r->strategy);
    v->plan_nodes = r->nodes;
    v->plan_low_usd = r->cost_usd.low;
    v->plan_mid_usd = r->cost_usd.mid;
    v->plan_high_usd = r->cost_usd.high;
    v->plan_hours = r->hours.mid;
    if (isfinite(r->cost_usd.high) && v->field[LAUNCH_MAX_USD].len == 0) {
        char usd[32];
        snprintf(usd, sizeof(usd), "%.0f", ceil(r->cost_usd.high));
        line_edit_set(&v->field[LAUNCH_MAX_USD], r->cost_usd.high > 0 ? usd : "");
    }
    v->cursor = LAUNCH_HOSTS;
}

/* What is wrong with a field; "" when nothing is. */
static const char *field_error(const struct launch_view *v, int i)
{
    int64_t micro;
    const char *text = v->field[i].text;
    if (i == LAUNCH_MAX_USD && *text && units_parse_usd(text, &micro, NULL))
        return "no amount of dollars";
    return "";
}

static bool is_ready(struct ui *ui)
{
    const struct launch_view *v = &ui->launch;
    if (v->field[LAUNCH_PLAN].len == 0)
        ui_note(ui, ROLE_WARN, "no plan yet: choose one under Plans and press l");
    else if (ui->plans.is_writing)
        ui_note(ui, ROLE_WARN, "the plan is being written: once more, please");
    else if (v->field[LAUNCH_HOSTS].len == 0)
        ui_note(ui, ROLE_WARN, "say on which hosts first");
    else if (field_error(v, LAUNCH_MAX_USD)[0])
        ui_note(ui, ROLE_WARN, "the limit is no amount of dollars");
    else
        return true;
    return false;
}

static bool is_text(const struct launch_view *v, int i, const char *text)
{
    return strcmp(v->field[i].text, text) == 0;
}

static void add_option(const struct launch_view *v, struct argv *a, int i, const char *name)
{
    if (v->field[i].len > 0)
        argv_option(a, name, v->field[i].text);
}

static void launch_argv(const struct launch_view *v, struct argv *a)
{
    argv_add(a, "launch");
    argv_add(a, v->field[LAUNCH_PLAN].len ? v->field[LAUNCH_PLAN].text : "plan.json");
    if (is_text(v, LAUNCH_HOSTS, HERE))
        argv_add(a, "--here");
    else
        add_option(v, a, LAUNCH_HOSTS, "--hosts");
    add_option(v, a, LAUNCH_DATA, "--data");
    add_option(v, a, LAUNCH_MAX_USD, "--max-usd");
    if (is_text(v, LAUNCH_NEW_KEYS, ACCEPT))
        argv_add(a, "--accept-new-host-keys");
}

/* --- drawing --- */

static void draw_field(const struct ui *ui, int i, struct pane p)
{
    const struct launch_view *v = &ui->launch;
    bool is_here = v->cursor == i;
    int width = p.r.w - LABEL - 4 < 44 ? p.r.w - LABEL - 4 : p.r.w > 120 ? 70 : 44;
    line_edit_draw_field(&v->field[i], pane_part(p, i, 0, 1, p.r.w), fields[i].label, LABEL, width,
        is_here, ui->editing == &v->field[i]);
    int x = LABEL + width + 3;
    if (field_error(v, i)[0])
        text_put(p, i, x, p.r.w - x, ROLE_BAD, field_error(v, i));
    else if (i == LAUNCH_PLAN && v->plan_text[0])
        text_put(p, i, x, p.r.w - x, ROLE_NORMAL, v->plan_text);
    else if (is_here && p.r.w > 120)
        text_put(p, i, x, p.r.w - x, ROLE_DIM, fields[i].hint);
    else if (is_here)
        text_put(p, LAUNCH_FIELDS, 2 + LABEL, p.r.w - LABEL - 3, ROLE_DIM, fields[i].hint);
}

static void launch_draw(const struct ui *ui, struct pane body)
{
    struct split s = screen_rows(body.r, LAUNCH_FIELDS + 2, 3);
    struct pane title = grid_pane(body.grid, s.first_title), form = grid_pane(body.grid, s.first);
    const struct launch_view *v = &ui->launch;
    char low[SHOW_TEXT], mid[SHOW_TEXT], high[SHOW_TEXT], time[SHOW_TEXT];
    title_put(title, "Launch");
    for (int i = 0; i < LAUNCH_FIELDS; i++)
        draw_field(ui, i, form);
    if (isfinite(v->plan_mid_usd))
        text_putf(form, LAUNCH_FIELDS + 1, 2, ROLE_NORMAL,
            "planned     %s (%s to %s) over %s on %lld %s", show_usd(mid, v->plan_mid_usd),
            show_usd(low, v->plan_low_usd), show_usd(high, v->plan_high_usd),
            show_seconds(time, v->plan_hours * 3600), v->plan_nodes,
            v->plan_nodes == 1 ? "node" : "nodes");
    struct rect r = s.second_title;
    r.h += s.second.h;
    acting_draw(ui, grid_pane(body.grid, r));
}

/* --- acting --- */

static void done(struct ui *ui, enum action how);

static void begin(struct ui *ui)
{
    struct launch_view *v = &ui->launch;
    if (v->cursor == LAUNCH_NEW_KEYS)
        line_edit_set(&v->field[v->cursor], is_text(v, v->cursor, REFUSE) ? ACCEPT : REFUSE);
    else
        ui_edit(ui, &v->field[v->cursor], NULL, done);
}

static void move(struct launch_view *v, int step)
{
    v->cursor = (v->cursor + step + LAUNCH_FIELDS) % LAUNCH_FIELDS;
}

static void done(struct ui *ui, enum action how)
{
    if (how != ACT_EDIT_NEXT && how != ACT_EDIT_PREVIOUS)
        return;
    move(&ui->launch, how == ACT_EDIT_NEXT ? 1 : -1);
    if (ui->launch.cursor != LAUNCH_NEW_KEYS)
        begin(ui);
}

static void check(struct ui *ui)
{
    const struct launch_view *v = &ui->launch;
    struct argv a;
    if (is_text(v, LAUNCH_HOSTS, HERE)) {
        ui_note(ui, ROLE_NORMAL, "this machine needs no connection: press d to see what would run");
        return;
    }
    argv_init(&a);
    argv_add(&a, "doctor");
    argv_add(&a, v->field[LAUNCH_HOSTS].text);
    if (is_text(v, LAUNCH_NEW_KEYS, ACCEPT))
        argv_add(&a, "--accept-new-host-keys");
    acting_begin(ui, ACT_CHECK, "Check", &a, false);
}

static void dry_run(struct ui *ui)
{
    struct argv a;
    argv_init(&a);
    launch_argv(&ui->launch, &a);
    argv_add(&a, "--dry-run");
    acting_begin(ui, ACT_DRY_RUN, "Dry run", &a, false);
}

static void start(struct ui *ui)
{
    struct argv a;
    argv_init(&a);
    launch_argv(&ui->launch, &a);
    argv_add(&a, "--detach");
    argv_add(&a, "--yes");
    acting_begin(ui, ACT_LAUNCH, "Launch", &a, true);
}

static void ask(struct ui *ui)
{
    const struct launch_view *v = &ui->launch;
    char mid[SHOW_TEXT], high[SHOW_TEXT], rate[SHOW_TEXT], time[SHOW_TEXT];
    struct str s = STR_INIT;
    str_addf(&s, "Plan       %s\n", v->plan_text[0] ? v->plan_text : v->field[LAUNCH_PLAN].text);
    str_addf(&s, "Hosts      %s\n", v->field[LAUNCH_HOSTS].text);
    str_addf(&s, "Expected   %s, at the worst %s, over %s\n", show_usd(mid, v->plan_mid_usd),
        show_usd(high, v->plan_high_usd), show_seconds(time, v->plan_hours * 3600));
    str_addf(&s, "That is    %s an hour\n", show_usd(rate, v->plan_mid_usd / v->plan_hours));
    str_addf(&s, "Limit      %s%s\n", v->field[LAUNCH_MAX_USD].len ? "$" : "none",
        v->field[LAUNCH_MAX_USD].text);
    str_add(&s, "\nBerth does not rent: the hosts cost until you release them.\n");
    ui_ask(ui, "Start this run?", str_text(&s), "yes", start);
    str_release(&s);
}

static void launch_act(struct ui *ui, enum action action)
{
    struct launch_view *v = &ui->launch;
    switch (action) {
    case ACT_UP:
    case ACT_DOWN:
        move(v, action == ACT_DOWN ? 1 : -1);
        break;
    case ACT_ENTER:
        begin(ui);
        break;
    case ACT_CHECK:
        if (is_ready(ui))
            check(ui);
        break;
    case ACT_DRY_RUN:
        if (is_ready(ui))
            dry_run(ui);
        break;
    case ACT_LAUNCH:
        if (is_ready(ui) && acting_is_free(ui))
            ask(ui);
        break;
    default:
        break;
    }
}

static void launch_command(const struct ui *ui, struct str *out)
{
    struct argv a;
    argv_init(&a);
    launch_argv(&ui->launch, &a);
    argv_text(&a, out);
    argv_release(&a);
}

const struct view_ops view_launch = {
    .draw = launch_draw, .act = launch_act, .command = launch_command};
