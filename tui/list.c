#include "tui/list.h"

#include <math.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/str.h"
#include "tui/text_put.h"

void list_init(struct list *l, int sort, bool is_descending)
{
    *l = (struct list){.sort = sort, .is_descending = is_descending, .page = 1};
}

void list_release(struct list *l)
{
    free(l->order);
    l->order = NULL;
    l->n = l->cap = 0;
}

uint64_t list_id(const char *text)
{
    return hash128(text, strlen(text)).lo;
}

int list_compare_numbers(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

/* --- order --- */

struct sorting {
    const struct list *list;
    const struct list_rows *rows;
};

static int compare(const void *a, const void *b, void *context)
{
    const struct sorting *s = context;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    int c = s->rows->compare(s->rows->data, x, y, s->list->sort);
    if (s->list->is_descending)
        c = -c;
    return c ? c : x < y ? -1 : x > y;
}

static void keep_visible(struct list *l)
{
    size_t page = l->page > 0 ? (size_t)l->page : 1;
    if (l->cursor < l->top)
        l->top = l->cursor;
    if (l->cursor >= l->top + page)
        l->top = l->cursor - page + 1;
    if (l->top + page > l->n)
        l->top = l->n > page ? l->n - page : 0;
}

static void select_cursor(struct list *l, const struct list_rows *rows)
{
    if (l->n == 0) {
        l->cursor = 0;
        return;
    }
    if (l->cursor >= l->n)
        l->cursor = l->n - 1;
    l->selected = rows->id(rows->data, l->order[l->cursor]);
    l->has_selected = true;
    keep_visible(l);
}

void list_update(struct list *l, const struct list_rows *rows)
{
    l->n = 0;
    l->total = rows->n;
    for (size_t i = 0; i < rows->n; i++) {
        if (rows->matches && !rows->matches(rows->data, i))
            continue;
        BASE_GROW(l->order, l->cap, l->n + 1);
        l->order[l->n++] = (uint32_t)i;
    }
    struct sorting s = {l, rows};
    if (rows->compare && l->sort >= 0 && l->n > 0)
        qsort_r(l->order, l->n, sizeof(*l->order), compare, &s);
    for (size_t i = 0; l->has_selected && i < l->n; i++) {
        if (rows->id(rows->data, l->order[i]) == l->selected) {
            l->cursor = i;
            break;
        }
    }
    /* an empty list forgets nothing: the row may come back when the filter is widened */
    if (l->n > 0)
        select_cursor(l, rows);
}

/* --- moves --- */

static void sort_by_next(struct list *l, const struct list_rows *rows)
{
    int n = 0;
    while (rows->columns[n].title)
        n++;
    l->sort = (l->sort + 1) % n;
    l->is_descending = false;
}

static bool sort_act(struct list *l, const struct list_rows *rows, enum action action)
{
    if (!rows->compare || (action != ACT_SORT && action != ACT_SORT_REVERSE))
        return false;
    if (action == ACT_SORT)
        sort_by_next(l, rows);
    else
        l->is_descending = !l->is_descending;
    list_update(l, rows);
    return true;
}

bool list_act(struct list *l, const struct list_rows *rows, enum action action)
{
    size_t page = l->page > 1 ? (size_t)l->page - 1 : 1;
    size_t last = l->n > 0 ? l->n - 1 : 0;
    switch (action) {
    case ACT_UP:
        l->cursor -= l->cursor > 0;
        break;
    case ACT_DOWN:
        l->cursor += l->cursor < last;
        break;
    case ACT_PAGE_UP:
        l->cursor -= l->cursor > page ? page : l->cursor;
        break;
    case ACT_PAGE_DOWN:
        l->cursor = l->cursor + page > last ? last : l->cursor + page;
        break;
    case ACT_FIRST:
        l->cursor = 0;
        break;
    case ACT_LAST:
        l->cursor = last;
        break;
    default:
        return sort_act(l, rows, action);
    }
    select_cursor(l, rows);
    return true;
}

void list_arrange(struct list *l, int lines)
{
    l->page = lines > 0 ? lines : 1;
    if (l->n > 0)
        keep_visible(l);
}

bool list_selected(const struct list *l, size_t *row)
{
    if (l->n == 0)
        return false;
    *row = l->order[l->cursor];
    return true;
}

char *list_count(const struct list *l, char buf[48])
{
    if (l->n == l->total)
        snprintf(buf, 48, "%zu", l->total);
    else
        snprintf(buf, 48, "%zu of %zu", l->n, l->total);
    return buf;
}

/* --- drawing --- */

enum { MOST_GROWTH = 24 };

struct columns {
    int width[LIST_MAX_COLUMNS]; /* 0: dropped */
};

static int total_width(const struct list_column *c, const struct columns *fit)
{
    int sum = 1;
    for (int i = 0; c[i].title; i++)
        sum += fit->width[i] ? fit->width[i] + 1 : 0;
    return sum;
}

static bool drop_one(const struct list_column *c, struct columns *fit)
{
    int worst = -1;
    for (int i = 0; c[i].title; i++) {
        if (fit->width[i] && c[i].drop > 0 && (worst < 0 || c[i].drop > c[worst].drop))
            worst = i;
    }
    if (worst >= 0)
        fit->width[worst] = 0;
    return worst >= 0;
}

static struct columns fit_columns(const struct list_column *c, int width)
{
    struct columns fit = {{0}};
    for (int i = 0; c[i].title && i < LIST_MAX_COLUMNS; i++)
        fit.width[i] = c[i].width;
    while (total_width(c, &fit) > width && drop_one(c, &fit))
        ;
    int left = width - total_width(c, &fit), more = 0;
    for (bool does_grow = true; does_grow && left > 0 && more < MOST_GROWTH; more++) {
        does_grow = false;
        for (int i = 0; c[i].title && left > 0; i++) {
            if (!c[i].grows || !fit.width[i])
                continue;
            fit.width[i]++;
            left--;
            does_grow = true;
        }
    }
    return fit;
}

static void draw_head(
    const struct list *l, const struct list_column *c, const struct columns *fit, struct pane p)
{
    for (int i = 0, x = 1; c[i].title; i++) {
        if (!fit->width[i])
            continue;
        char title[LIST_CELL];
        const char *arrow = i != l->sort ? "" : l->is_descending ? "▼" : "▲";
        snprintf(title, sizeof(title), "%s%s", c[i].title, arrow);
        if (c[i].is_right)
            text_put_right(p, 0, x, fit->width[i], ROLE_HEADER, title);
        else
            text_put(p, 0, x, fit->width[i], ROLE_HEADER, title);
        x += fit->width[i] + 1;
    }
}

static void draw_row(
    const struct list_rows *rows, size_t row, const struct columns *fit, struct pane p, int y)
{
    const struct list_column *c = rows->columns;
    for (int i = 0, x = 1; c[i].title; i++) {
        if (!fit->width[i])
            continue;
        char text[LIST_CELL] = "";
        enum role role = ROLE_NORMAL;
        rows->cell(rows->data, row, i, text, &role);
        if (c[i].is_right)
            text_put_right(p, y, x, fit->width[i], role, text);
        else
            text_put(p, y, x, fit->width[i], role, text);
        x += fit->width[i] + 1;
    }
}

void list_draw(const struct list *l, const struct list_rows *rows, struct pane p, bool is_focused)
{
    struct columns fit = fit_columns(rows->columns, p.r.w);
    draw_head(l, rows->columns, &fit, p);
    for (int y = 1; y < p.r.h && l->top + (size_t)y - 1 < l->n; y++) {
        size_t at = l->top + (size_t)y - 1;
        draw_row(rows, l->order[at], &fit, p, y);
        if (at != l->cursor)
            continue;
        pane_put(p, y, 0, '>', ROLE_NORMAL);
        if (is_focused)
            pane_paint(p, y, 0, p.r.w, ROLE_SELECTED);
    }
}
