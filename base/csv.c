#include "base/csv.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/str.h"

/* Cut one cell out of *p in place, trimmed; *p moves behind the separator. is_end: line or text
 * ended with this cell. */
static bool take_cell(char **p, char *end, char **cell, bool *is_end, size_t *line)
{
    char *r = *p, *w = *p;
    while (r < end && *r == ' ')
        r++;
    *cell = w;
    bool is_quoted = r < end && *r == '"';
    if (is_quoted) {
        r++;
        for (;;) {
            if (r >= end)
                return false;
            if (*r == '"' && r + 1 < end && r[1] == '"')
                r++;
            else if (*r == '"')
                break;
            if (*r == '\n')
                ++*line;
            *w++ = *r++;
        }
        r++;
    }
    while (r < end && *r != ',' && *r != '\n') {
        if (!is_quoted)
            *w++ = *r;
        r++;
    }
    *is_end = r >= end || *r == '\n';
    char *next = r < end ? r + 1 : end;
    if (!is_quoted)
        while (w > *cell && (w[-1] == ' ' || w[-1] == '\r' || w[-1] == '\t'))
            w--;
    *w = '\0';
    *p = next;
    return true;
}

static bool is_blank_line(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r'))
        p++;
    return p >= end || *p == '\n' || *p == '#';
}

struct reader {
    struct csv *out;
    size_t cell_cap, row_cap;
    size_t line;
};

static enum rc take_row(struct reader *r, char **p, char *end, struct err *e)
{
    struct csv *c = r->out;
    const char *row[CSV_MAX_COLUMNS];
    size_t n = 0;
    size_t line = r->line;
    bool is_end = false;
    while (!is_end) {
        char *cell;
        if (n == CSV_MAX_COLUMNS)
            return err_set(e, RC_LIMIT, "line %zu has more than %d columns", line, CSV_MAX_COLUMNS);
        if (!take_cell(p, end, &cell, &is_end, &r->line))
            return err_set(e, RC_INVALID, "line %zu: a quoted cell is not closed", line);
        row[n++] = cell;
    }
    r->line++;
    if (!c->header) {
        const char *other = n == 1 ? strpbrk(row[0], ";\t") : NULL;
        if (other)
            return err_set(e, RC_INVALID,
                "line %zu: columns are separated by %s; separate them by commas", line,
                *other == ';' ? "semicolons" : "tabs");
        c->columns = n;
        c->header = base_alloc(n * sizeof(*c->header));
        memcpy(c->header, row, n * sizeof(*row));
        return RC_OK;
    }
    if (n > c->columns)
        return err_set(
            e, RC_INVALID, "line %zu has %zu columns, the header has %zu", line, n, c->columns);
    if (c->rows == CSV_MAX_ROWS)
        return err_set(e, RC_LIMIT, "more than %d rows", CSV_MAX_ROWS);
    BASE_GROW(c->cells, r->cell_cap, (c->rows + 1) * c->columns);
    BASE_GROW(c->lines, r->row_cap, c->rows + 1);
    for (size_t i = 0; i < c->columns; i++)
        c->cells[c->rows * c->columns + i] = i < n ? row[i] : "";
    c->lines[c->rows++] = line;
    return RC_OK;
}

enum rc csv_parse(struct csv *out, const char *text, size_t len, struct err *e)
{
    memset(out, 0, sizeof(*out));
    if (len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0) {
        text += 3;
        len -= 3;
    }
    if (memchr(text, '\0', len))
        return err_set(e, RC_INVALID, "a NUL byte: this is not text");
    out->text = base_alloc(len + 1);
    memcpy(out->text, text, len);
    out->text[len] = '\0';
    struct reader r = {.out = out, .line = 1};
    char *p = out->text, *end = out->text + len;
    enum rc rc = RC_OK;
    while (p < end && !rc) {
        if (is_blank_line(p, end)) {
            char *nl = memchr(p, '\n', (size_t)(end - p));
            p = nl ? nl + 1 : end;
            r.line++;
            continue;
        }
        rc = take_row(&r, &p, end, e);
    }
    if (!rc && !out->header)
        rc = err_set(e, RC_INVALID, "no header line");
    if (rc)
        csv_release(out);
    return rc;
}

void csv_release(struct csv *c)
{
    free(c->text);
    free(c->cells);
    free(c->header);
    free(c->lines);
    memset(c, 0, sizeof(*c));
}

int csv_column(const struct csv *c, const char *name)
{
    for (size_t i = 0; i < c->columns; i++)
        if (strcasecmp(c->header[i], name) == 0)
            return (int)i;
    return -1;
}

const char *csv_cell(const struct csv *c, size_t row, int column)
{
    return column < 0 ? "" : c->cells[row * c->columns + (size_t)column];
}

void csv_put(struct str *out, const char *cell)
{
    if (!strpbrk(cell, ",\"\r\n#") && cell[0] != ' ') {
        str_add(out, cell);
        return;
    }
    str_addc(out, '"');
    for (; *cell; cell++) {
        if (*cell == '"')
            str_addc(out, '"');
        str_addc(out, *cell);
    }
    str_addc(out, '"');
}
