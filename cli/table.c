#include "cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/text.h"
#include "cli/options.h"

enum { TABLE_MAX_COLUMNS = 48, TABLE_GAP = 2, TABLE_SHOWS = 4 };

struct table {
    const struct table_column *columns;
    size_t n_columns;
    char **cells;
    size_t n_cells, cap;
    int shown[TABLE_MAX_COLUMNS]; /* indexes of columns in the order they are printed */
    size_t n_shown;
    bool is_selected;
};

struct table *table_new(const struct table_column *columns)
{
    struct table *t = base_calloc(1, sizeof(*t));
    t->columns = columns;
    while (columns[t->n_columns].name && t->n_columns < TABLE_MAX_COLUMNS) {
        if (!columns[t->n_columns].is_extra)
            t->shown[t->n_shown++] = (int)t->n_columns;
        t->n_columns++;
    }
    return t;
}

void table_free(struct table *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n_cells; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

void table_cell(struct table *t, const char *text)
{
    BASE_GROW(t->cells, t->cap, t->n_cells + 1);
    t->cells[t->n_cells++] = text && *text ? text_safe(text) : base_strdup("-");
}

void table_cellf(struct table *t, const char *fmt, ...)
{
    char buf[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof(buf), fmt, ap);
    va_end(ap);
    table_cell(t, buf);
}

size_t table_rows(const struct table *t)
{
    return t->n_cells / t->n_columns;
}

static int column_named(const struct table *t, const char *name, size_t len)
{
    for (size_t i = 0; i < t->n_columns; i++)
        if (strlen(t->columns[i].name) == len && strncasecmp(t->columns[i].name, name, len) == 0)
            return (int)i;
    return -1;
}

static enum rc unknown_column(const struct table *t, const char *name, size_t len, struct err *e)
{
    struct str known = STR_INIT;
    for (size_t i = 0; i < t->n_columns; i++) {
        str_add(&known, i ? ", " : "");
        for (const char *p = t->columns[i].name; *p; p++)
            str_addc(&known, *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p);
    }
    enum rc rc = err_set(e, RC_USAGE, "option '--columns': unknown column '%.*s'; known are %s",
        (int)len, name, str_text(&known));
    str_release(&known);
    return rc;
}

enum rc table_select(struct table *t, const char *names, struct err *e)
{
    t->n_shown = 0;
    t->is_selected = true;
    for (const char *p = names;;) {
        size_t len = strcspn(p, ",");
        int column = column_named(t, p, len);
        if (column < 0)
            return unknown_column(t, p, len, e);
        if (t->n_shown < TABLE_MAX_COLUMNS)
            t->shown[t->n_shown++] = column;
        if (!p[len])
            return RC_OK;
        p += len + 1;
    }
}

enum rc table_select_args(struct table *t, const struct args *args, struct err *e)
{
    return args_has(args, "columns") ? table_select(t, args_text(args, "columns"), e) : RC_OK;
}

enum rc table_check_args(const struct table_column *columns, const struct args *args, struct err *e)
{
    struct table *t = table_new(columns);
    enum rc rc = table_select_args(t, args, e);
    table_free(t);
    return rc;
}

static int text_width(const char *s)
{
    int width = 0;
    size_t n = strlen(s);
    while (n) {
        unsigned cp;
        size_t len = text_decode(s, n, &cp);
        width += text_columns(cp);
        s += len;
        n -= len;
    }
    return width;
}

/* Append as much of s as fits into width columns together with an ellipsis. */
static void put_cut(struct str *out, const char *s, int width, const char *ellipsis)
{
    size_t n = strlen(s);
    for (int room = width - 1; n;) {
        unsigned cp;
        size_t len = text_decode(s, n, &cp);
        room -= text_columns(cp);
        if (room < 0)
            break;
        str_addn(out, s, len);
        s += len;
        n -= len;
    }
    str_add(out, ellipsis);
}

struct cell {
    const char *text;
    int width;
    bool is_right, is_last; /* the last cell of a line is not padded */
};

static void put_cell(struct str *out, const struct cell *c, const char *ellipsis)
{
    int pad = c->width - text_width(c->text);
    for (int i = 0; c->is_right && i < pad; i++)
        str_addc(out, ' ');
    if (pad >= 0)
        str_add(out, c->text);
    else
        put_cut(out, c->text, c->width, ellipsis);
    for (int i = 0; !c->is_right && !c->is_last && i < pad; i++)
        str_addc(out, ' ');
}

struct fit {
    int shown[TABLE_MAX_COLUMNS];
    int width[TABLE_MAX_COLUMNS];
    size_t n;
};

static int fit_total(const struct fit *f)
{
    int total = f->n ? (int)(f->n - 1) * TABLE_GAP : 0;
    for (size_t i = 0; i < f->n; i++)
        total += f->width[i];
    return total;
}

static void fit_natural(struct fit *f, const struct table *t, bool has_header)
{
    f->n = t->n_shown;
    for (size_t i = 0; i < f->n; i++) {
        f->shown[i] = t->shown[i];
        f->width[i] = has_header ? text_width(t->columns[t->shown[i]].name) : 1;
        for (size_t row = 0; row < table_rows(t); row++) {
            int w = text_width(t->cells[row * t->n_columns + (size_t)t->shown[i]]);
            f->width[i] = w > f->width[i] ? w : f->width[i];
        }
    }
}

/* Take from the widest elastic column until the line fits; false when none can give more without
 * going below its least, or, when all else failed, below what shows anything. */
static bool shrink_elastic(struct fit *f, const struct table *t, int width, bool is_last_resort)
{
    while (fit_total(f) > width) {
        int widest = -1;
        for (size_t i = 0; i < f->n; i++) {
            const struct table_column *c = &t->columns[f->shown[i]];
            int least = is_last_resort ? TABLE_SHOWS : c->least ? c->least : TABLE_LEAST;
            if (c->is_elastic && f->width[i] > least &&
                (widest < 0 || f->width[i] > f->width[widest]))
                widest = (int)i;
        }
        if (widest < 0)
            return false;
        f->width[widest]--;
    }
    return true;
}

/* Remove the column with the highest drop number; false when all must stay. */
static bool drop_column(struct fit *f, const struct table *t)
{
    int victim = -1;
    for (size_t i = 0; i < f->n; i++)
        if (t->columns[f->shown[i]].drop > 0 &&
            (victim < 0 || t->columns[f->shown[i]].drop >= t->columns[f->shown[victim]].drop))
            victim = (int)i;
    if (victim < 0)
        return false;
    f->n--;
    for (size_t i = (size_t)victim; i < f->n; i++) {
        f->shown[i] = f->shown[i + 1];
        f->width[i] = f->width[i + 1];
    }
    return true;
}

static void print_plain(const struct table *t, bool has_header, struct str *s)
{
    for (size_t i = 0; has_header && i < t->n_shown; i++)
        str_addf(s, "%s%s", i ? "\t" : "", t->columns[t->shown[i]].name);
    if (has_header)
        str_addc(s, '\n');
    for (size_t row = 0; row < table_rows(t); row++) {
        for (size_t i = 0; i < t->n_shown; i++)
            str_addf(s, "%s%s", i ? "\t" : "", t->cells[row * t->n_columns + (size_t)t->shown[i]]);
        str_addc(s, '\n');
    }
}

/* Cut what may be cut, then leave out what may be left out, then the last columns. A number is not
 * cut, it would be another one, unless it is alone. */
static void fit_to_width(struct fit *f, const struct table *t, int width)
{
    struct fit natural = *f;
    bool fits = shrink_elastic(f, t, width, false);
    while (!fits && !t->is_selected && drop_column(&natural, t)) {
        *f = natural;
        fits = shrink_elastic(f, t, width, false);
    }
    while (!fits) {
        *f = natural;
        fits = shrink_elastic(f, t, width, true);
        if (!fits && natural.n == 1)
            break;
        natural.n -= !fits;
    }
    if (!fits && f->n == 1)
        f->width[0] = width;
}

void table_print(const struct table *t, const struct table_style *style, struct str *s)
{
    if (style->is_plain) {
        print_plain(t, style->has_header, s);
        return;
    }
    struct fit f;
    fit_natural(&f, t, style->has_header);
    if (style->width)
        fit_to_width(&f, t, style->width);
    for (size_t line = style->has_header ? 0 : 1; line <= table_rows(t); line++) {
        const char *on = line || !style->header_on ? "" : style->header_on;
        const char *off = line || !style->header_off ? "" : style->header_off;
        str_add(s, on);
        for (size_t i = 0; i < f.n; i++) {
            const struct table_column *c = &t->columns[f.shown[i]];
            size_t at = (line - 1) * t->n_columns + (size_t)f.shown[i];
            struct cell cell = {
                line ? t->cells[at] : c->name, f.width[i], c->align == TABLE_RIGHT, i + 1 == f.n};
            put_cell(s, &cell, style->ellipsis ? style->ellipsis : "…");
            str_add(s, i + 1 < f.n ? "  " : "");
        }
        str_add(s, off);
        str_addc(s, '\n');
    }
}
