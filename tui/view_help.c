#include "tui/view_help.h"

#include "base/str.h"
#include "tui/text_put.h"
#include "tui/ui.h"

enum { KEY_COLUMNS = 16 };

static const enum view sections[] = {VIEW_OFFERS, VIEW_JOB, VIEW_PLANS, VIEW_LAUNCH, VIEW_RUN,
    VIEW_RUNS, VIEW_HELP, MODE_EDIT, MODE_CONFIRM, VIEW_ANY};

static bool is_section_shown(const struct help_view *h, enum view section)
{
    return h->has_all || section == h->about || section == VIEW_ANY;
}

static bool is_shown(const struct help_view *h, const struct binding *b)
{
    if (h->filter.len == 0)
        return true;
    const char *t = h->filter.text;
    return strcasestr(b->help, t) || (b->label && strcasestr(b->label, t)) ||
           (b->command && strcasestr(b->command, t));
}

static void draw_binding(struct pane p, int y, const struct binding *b)
{
    char key[16], alias[16];
    int x = text_putf(p, y, 2, ROLE_KEY, "%s", key_name(b->key, key));
    if (b->alias)
        text_putf(p, y, x, ROLE_DIM, ", %s", key_name(b->alias, alias));
    /* the command stands on the right where the sentence leaves room */
    int command = b->command && p.r.w >= 110 ? p.r.w * 6 / 10 : p.r.w;
    text_put(pane_part(p, y, KEY_COLUMNS, 1, command - KEY_COLUMNS - 2), 0, 0,
        command - KEY_COLUMNS - 2, ROLE_NORMAL, b->help);
    if (b->command && command < p.r.w)
        text_putf(p, y, command, ROLE_DIM, "%s", b->command);
}

/* Draw lines from top on; with no rows it only counts. Returns the lines there are. */
static int draw_lines(const struct help_view *h, bool is_read_only, struct pane p)
{
    int line = 0;
    size_t n;
    const struct binding *table = keys_table(&n);
    for (size_t s = 0; s < sizeof(sections) / sizeof(sections[0]); s++) {
        if (!is_section_shown(h, sections[s]))
            continue;
        if (line > 0)
            line++;
        if (line - h->top >= 0)
            text_putf(p, line - h->top, 1, ROLE_TITLE, "%s", view_name(sections[s]));
        line++;
        for (size_t i = 0; i < n; i++) {
            if (table[i].view != sections[s] || (table[i].is_acting && is_read_only) ||
                !is_shown(h, &table[i]))
                continue;
            if (line - h->top >= 0)
                draw_binding(p, line - h->top, &table[i]);
            line++;
        }
    }
    return line;
}

static void help_arrange(struct ui *ui, struct rect body)
{
    struct help_view *h = &ui->help;
    struct grid none;
    grid_init(&none, GLYPH_ASCII);
    h->lines =
        draw_lines(h, ui->options->is_read_only, grid_pane(&none, (struct rect){0, 0, 0, 0}));
    h->page = body.h > 1 ? body.h - 1 : 1;
    int last = h->lines > h->page ? h->lines - h->page : 0;
    h->top = h->top > last ? last : h->top < 0 ? 0 : h->top;
}

static void help_draw(const struct ui *ui, struct pane body)
{
    const struct help_view *h = &ui->help;
    int x = text_putf(body, 0, 1, ROLE_TITLE, "Help");
    x = text_putf(body, 0, x, ROLE_DIM, " %s", h->has_all ? "for all views" : view_name(h->about));
    line_edit_draw_filter(&h->filter, body, x, ui->editing == &h->filter);
    if (h->lines > h->page)
        text_put_right(body, 0, body.r.w - 12, 11, ROLE_DIM,
            h->top + h->page < h->lines ? "more below" : "end");
    draw_lines(h, ui->options->is_read_only, pane_part(body, 1, 0, body.r.h - 1, body.r.w));
}

static void help_act(struct ui *ui, enum action action)
{
    struct help_view *h = &ui->help;
    switch (action) {
    case ACT_UP:
        h->top--;
        break;
    case ACT_DOWN:
        h->top++;
        break;
    case ACT_PAGE_UP:
        h->top -= h->page;
        break;
    case ACT_PAGE_DOWN:
        h->top += h->page;
        break;
    case ACT_FIRST:
        h->top = 0;
        break;
    case ACT_LAST:
        h->top = h->lines;
        break;
    case ACT_NEXT_PANE:
        h->has_all = !h->has_all;
        break;
    case ACT_FILTER:
        ui_edit(ui, &h->filter, NULL, NULL);
        break;
    default:
        break;
    }
}

static bool help_back(struct ui *ui)
{
    return line_edit_clear(&ui->help.filter);
}

static void help_command(const struct ui *ui, struct str *out)
{
    (void)ui;
    str_add(out, "berth help");
}

const struct view_ops view_help = {
    .arrange = help_arrange,
    .draw = help_draw,
    .act = help_act,
    .command = help_command,
    .back = help_back,
};
