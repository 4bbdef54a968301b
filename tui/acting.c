#include "tui/acting.h"

#include "base/str.h"
#include "tui/show.h"
#include "tui/text_put.h"
#include "tui/ui.h"

enum { LOG_BYTES = 256 << 10 };

void acting_init(struct acting *a)
{
    memset(a, 0, sizeof(*a));
    argv_init(&a->argv);
    log_ring_init(&a->log, LOG_BYTES);
}

void acting_release(struct acting *a)
{
    argv_release(&a->argv);
    log_ring_release(&a->log);
}

bool acting_is_free(struct ui *ui)
{
    if (ui->acting.is_running)
        ui_note(ui, ROLE_WARN, "%s is still running: wait for it", ui->acting.title);
    return !ui->acting.is_running;
}

bool acting_begin(
    struct ui *ui, enum action what, const char *title, struct argv *argv, bool is_kept)
{
    struct acting *a = &ui->acting;
    if (!acting_is_free(ui)) {
        argv_release(argv);
        return false;
    }
    argv_release(&a->argv);
    a->argv = *argv;
    argv_init(argv);
    log_ring_reset(&a->log);
    a->what = what;
    str_copy(a->title, sizeof(a->title), title);
    a->is_running = true;
    a->is_kept = is_kept;
    a->status = 0;
    a->since_s = ui->now_s;
    ui->wants |= WANT_ACTING;
    return true;
}

void acting_lines(struct acting *a, const char *text)
{
    log_ring_add(&a->log, text);
}

/* The id of the run in "run 20261130-083000-abcd goes on ..."; false when no line names one. */
static bool find_run_id(const struct log_ring *log, char id[RUN_ID_TEXT])
{
    const char *line[16];
    size_t n = log_ring_newest(log, "run ", 0, line, sizeof(line) / sizeof(line[0]));
    for (size_t i = 0; i < n; i++) {
        for (const char *at = line[i]; (at = strstr(at, "run ")); at++) {
            snprintf(id, RUN_ID_TEXT, "%.*s", (int)strcspn(at + 4, " ,;:."), at + 4);
            if (run_id_is_valid(id))
                return true;
        }
    }
    return false;
}

void acting_end(struct ui *ui, int status, const char *error)
{
    struct acting *a = &ui->acting;
    a->is_running = false;
    a->status = status;
    a->ended_s = ui->now_s;
    if (status == 0)
        ui_note(ui, ROLE_GOOD, "%s: done", a->title);
    else
        ui_note(ui, ROLE_BAD, "%s: %s", a->title, *error ? error : "failed");
    ui->wants |= WANT_RUNS;
    char id[RUN_ID_TEXT];
    if (status != 0 || a->what != ACT_LAUNCH || !find_run_id(&a->log, id))
        return;
    run_view_open(ui, id);
    if (ui_view(ui) == VIEW_LAUNCH)
        ui_push(ui, VIEW_RUN);
}

static void draw_title(const struct ui *ui, struct pane p)
{
    const struct acting *a = &ui->acting;
    char time[SHOW_TEXT];
    int x = title_put(p, a->what == ACT_NONE ? "Output" : a->title);
    if (a->what == ACT_NONE)
        return;
    double end_s = a->is_running ? ui->now_s : a->ended_s;
    if (a->is_running)
        text_putf(p, 0, x, ROLE_WARN, "running for %s ", show_elapsed(time, end_s - a->since_s));
    else if (a->status == 0)
        text_putf(p, 0, x, ROLE_GOOD, "done in %s ", show_elapsed(time, end_s - a->since_s));
    else
        text_putf(p, 0, x, ROLE_BAD, "failed (exit status %d) ", a->status);
}

void acting_draw(const struct ui *ui, struct pane p)
{
    const struct log_ring *log = &ui->acting.log;
    draw_title(ui, p);
    const char *line[GRID_MAX_ROWS];
    int rows = p.r.h - 1;
    size_t n = rows > 0 ? log_ring_newest(log, "", 0, line, (size_t)rows) : 0;
    for (size_t i = 0; i < n; i++)
        text_put(p, (int)(n - i), 1, p.r.w - 1, ROLE_NORMAL, line[i]);
}
