#include "tui/text_put.h"

#include <stdarg.h>

#include "base/text.h"

enum { MIDDLE_DOT = 0xb7, ELLIPSIS = 0x2026, HORIZONTAL = 0x2500, TEXT_MAX = 4096 };

/* One character as it will be shown: never a control, never of unknown width. Tests the ranges
 * itself, since a bidirectional override has a width on some terminals. */
static uint32_t shown(unsigned cp, int *columns)
{
    bool is_bidi = (cp >= 0x200b && cp <= 0x200f) || (cp >= 0x202a && cp <= 0x202e) ||
                   (cp >= 0x2060 && cp <= 0x206f) || cp == 0xfeff || cp == 0x061c;
    bool is_private = (cp >= 0xe000 && cp <= 0xf8ff) || cp >= 0xe0000;
    *columns = 1;
    if (cp == '\t')
        return ' ';
    if (cp < ' ' || (cp >= 0x7f && cp < 0xa0) || is_bidi || is_private || cp == 0xfffd)
        return MIDDLE_DOT;
    *columns = text_columns(cp);
    if (*columns >= 1)
        return cp;
    *columns = 1;
    return MIDDLE_DOT;
}

static bool is_line_end(const char *s)
{
    return *s == '\n' || (*s == '\r' && (s[1] == '\n' || s[1] == '\0'));
}

/* Next character of s; 0 at the end of the line. */
static uint32_t next(const char **s, size_t *left, int *columns)
{
    if (*left == 0 || is_line_end(*s))
        return 0;
    unsigned cp;
    size_t n = text_decode(*s, *left, &cp);
    *s += n;
    *left -= n;
    return shown(cp, columns);
}

/* A hostile megabyte in one cell must not be measured to its end each frame. */
static size_t bounded_length(const char *s)
{
    return strnlen(s, TEXT_MAX);
}

static int width_of(const char *s, size_t left)
{
    int width = 0, columns;
    while (next(&s, &left, &columns))
        width += columns;
    return width;
}

int text_width(const char *utf8)
{
    return width_of(utf8, bounded_length(utf8));
}

/* Draw at most width columns of n bytes. */
static int put_n(struct pane p, int y, int x, int width, enum role role, const char *s, size_t n)
{
    bool is_cut = width_of(s, n) > width;
    int room = is_cut ? width - 1 : width, at = 0, columns;
    uint32_t cp;
    while ((cp = next(&s, &n, &columns)) && at + columns <= room) {
        pane_put(p, y, x + at, cp, role);
        at += columns;
    }
    if (is_cut && width > 0)
        pane_put(p, y, x + at++, ELLIPSIS, role);
    return at;
}

int text_put(struct pane p, int y, int x, int width, enum role role, const char *utf8)
{
    int used = put_n(p, y, x, width, role, utf8, bounded_length(utf8));
    pane_fill(p, y, x + used, width - used, ' ', role);
    return used;
}

int text_put_right(struct pane p, int y, int x, int width, enum role role, const char *utf8)
{
    int need = text_width(utf8), lead = need < width ? width - need : 0;
    pane_fill(p, y, x, lead, ' ', role);
    return text_put(p, y, x + lead, width - lead, role, utf8);
}

int text_putf(struct pane p, int y, int x, enum role role, const char *fmt, ...)
{
    char buf[TEXT_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(buf, sizeof(buf), fmt, args);
    va_end(args);
    int room = p.r.w - x;
    if (room <= 0)
        return x;
    return x + put_n(p, y, x, room, role, buf, bounded_length(buf));
}

int title_put(struct pane p, const char *name)
{
    pane_fill(p, 0, 0, p.r.w, HORIZONTAL, ROLE_DIM);
    return text_putf(p, 0, 1, ROLE_TITLE, " %s ", name);
}

/* Bytes of s that go onto one line of width columns, broken at the last blank that fits. */
static size_t line_bytes(const char *s, size_t left, int width)
{
    const char *at = s, *blank = NULL;
    int used = 0, columns;
    for (;;) {
        const char *before = at;
        uint32_t cp = next(&at, &left, &columns);
        if (!cp)
            return (size_t)(at - s);
        if (cp == ' ')
            blank = before;
        used += columns;
        if (used > width)
            return (size_t)((blank ? blank : before) - s);
    }
}

int text_wrap(struct pane p, int y, int x, int max_rows, enum role role, const char *utf8)
{
    int width = p.r.w - x, rows = 0;
    size_t left = bounded_length(utf8);
    if (width < 2)
        return 0;
    while (left > 0 && rows < max_rows) {
        size_t n = line_bytes(utf8, left, width);
        bool is_last = rows + 1 == max_rows;
        put_n(p, y + rows, x, width, role, utf8, is_last ? left : n);
        rows++;
        utf8 += n;
        left -= n;
        while (left > 0 && (*utf8 == ' ' || is_line_end(utf8))) {
            utf8++;
            left--;
        }
    }
    return rows;
}
