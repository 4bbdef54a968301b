#include "tui/grid.h"

#include "base/alloc.h"
#include "base/str.h"
#include "base/text.h"

void grid_init(struct grid *g, enum glyph_level glyphs)
{
    *g = (struct grid){.glyphs = glyphs, .cursor_y = -1, .cursor_x = -1};
}

void grid_release(struct grid *g)
{
    free(g->cell);
    g->cell = NULL;
    g->rows = g->cols = 0;
}

static int clamp(int x, int low, int high)
{
    return x < low ? low : x > high ? high : x;
}

void grid_reset(struct grid *g, int rows, int cols)
{
    rows = clamp(rows, 1, GRID_MAX_ROWS);
    cols = clamp(cols, 1, GRID_MAX_COLS);
    if (rows != g->rows || cols != g->cols) {
        free(g->cell);
        g->cell = base_calloc((size_t)rows * (size_t)cols, sizeof(*g->cell));
        g->rows = rows;
        g->cols = cols;
    }
    for (size_t i = 0; i < (size_t)rows * (size_t)cols; i++)
        g->cell[i] = (struct cell){' ', ROLE_NORMAL, 1};
    g->cursor_y = g->cursor_x = -1;
}

const struct cell *grid_at(const struct grid *g, int y, int x)
{
    return &g->cell[(size_t)y * (size_t)g->cols + (size_t)x];
}

static void add_utf8(struct str *s, uint32_t cp)
{
    if (cp < 0x80) {
        str_addc(s, (char)cp);
    } else if (cp < 0x800) {
        str_addc(s, (char)(0xc0 | cp >> 6));
        str_addc(s, (char)(0x80 | (cp & 63)));
    } else if (cp < 0x10000) {
        str_addc(s, (char)(0xe0 | cp >> 12));
        str_addc(s, (char)(0x80 | (cp >> 6 & 63)));
        str_addc(s, (char)(0x80 | (cp & 63)));
    } else {
        str_addc(s, (char)(0xf0 | cp >> 18));
        str_addc(s, (char)(0x80 | (cp >> 12 & 63)));
        str_addc(s, (char)(0x80 | (cp >> 6 & 63)));
        str_addc(s, (char)(0x80 | (cp & 63)));
    }
}

char *grid_row_text(const struct grid *g, int y)
{
    struct str s = STR_INIT;
    size_t end = 0;
    for (int x = 0; x < g->cols; x++) {
        const struct cell *c = grid_at(g, y, x);
        if (c->cp)
            add_utf8(&s, c->cp);
        if (c->cp && c->cp != ' ')
            end = s.len;
    }
    char *text = base_strndup(str_text(&s), end);
    str_release(&s);
    return text;
}

struct pane grid_pane(struct grid *g, struct rect r)
{
    struct pane whole = {g, {0, 0, g->rows, g->cols}};
    return pane_part(whole, r.y, r.x, r.h, r.w);
}

struct pane pane_part(struct pane p, int y, int x, int h, int w)
{
    int top = clamp(y, 0, p.r.h), left = clamp(x, 0, p.r.w);
    int bottom = clamp(y + h, top, p.r.h), right = clamp(x + w, left, p.r.w);
    struct rect r = {p.r.y + top, p.r.x + left, bottom - top, right - left};
    return (struct pane){p.grid, r};
}

/* What the screens draw, in ASCII. Sorted by nothing: it is short. */
static const struct {
    uint32_t cp;
    char ascii;
} ascii_of[] = {
    {0x2500, '-'},
    {0x2502, '|'},
    {0x250c, '+'},
    {0x2510, '+'},
    {0x2514, '+'},
    {0x2518, '+'},
    {0x251c, '+'},
    {0x2524, '+'},
    {0x252c, '+'},
    {0x2534, '+'},
    {0x253c, '+'},
    {0x2026, '~'},
    {0x00b7, '.'},
    {0x00d7, 'x'},
    {0x2264, '<'},
    {0x2265, '>'},
    {0x2013, '-'},
    {0x2014, '-'},
    {0x25b2, '^'},
    {0x25bc, 'v'},
    {0x25b8, '>'},
    {0x2190, '<'},
    {0x2192, '>'},
    {0x2191, '^'},
    {0x2193, 'v'},
    {0x25cf, '*'},
    {0x25cb, 'o'},
    {0x2588, '#'},
    {0x2593, '%'},
    {0x2592, ':'},
    {0x2591, '.'},
    {0x2713, '+'},
    {0x2717, 'x'},
    {0x00b1, '~'},
    {0x2248, '~'},
    {0x2503, '|'},
    {0x2579, '|'},
};

uint32_t grid_ascii(uint32_t cp)
{
    if (cp >= ' ' && cp < 127)
        return cp;
    for (size_t i = 0; i < BASE_COUNT(ascii_of); i++) {
        if (ascii_of[i].cp == cp)
            return (uint32_t)ascii_of[i].ascii;
    }
    return '?';
}

/* Blank the other half of a wide character that is about to lose one. */
static void split_wide(struct grid *g, int y, int x)
{
    struct cell *row = &g->cell[(size_t)y * (size_t)g->cols];
    if (row[x].cp == 0 && x > 0)
        row[x - 1] = (struct cell){' ', row[x - 1].role, 1};
    if (row[x].columns == 2 && x + 1 < g->cols)
        row[x + 1] = (struct cell){' ', row[x + 1].role, 1};
}

void pane_put(struct pane p, int y, int x, uint32_t cp, enum role role)
{
    if (y < 0 || x < 0 || y >= p.r.h || x >= p.r.w)
        return;
    int columns = text_columns(cp);
    if (cp < ' ' || columns < 1 || (columns == 2 && x + 1 >= p.r.w)) {
        cp = ' ';
        columns = 1;
    }
    struct grid *g = p.grid;
    int gy = p.r.y + y, gx = p.r.x + x;
    if (g->glyphs == GLYPH_ASCII)
        cp = grid_ascii(cp);
    split_wide(g, gy, gx);
    if (columns == 2)
        split_wide(g, gy, gx + 1);
    struct cell *c = &g->cell[(size_t)gy * (size_t)g->cols + (size_t)gx];
    bool is_wide = columns == 2 && g->glyphs != GLYPH_ASCII;
    c[0] = (struct cell){cp, (uint8_t)role, is_wide ? 2 : 1};
    if (columns == 2)
        c[1] = (struct cell){is_wide ? 0 : '?', (uint8_t)role, is_wide ? 0 : 1};
}

void pane_fill(struct pane p, int y, int x, int n, uint32_t cp, enum role role)
{
    for (int i = 0; i < n && x + i < p.r.w; i++)
        pane_put(p, y, x + i, cp, role);
}

void pane_paint(struct pane p, int y, int x, int n, enum role role)
{
    if (y < 0 || y >= p.r.h)
        return;
    for (int i = x < 0 ? 0 : x; i < x + n && i < p.r.w; i++) {
        size_t at = (size_t)(p.r.y + y) * (size_t)p.grid->cols + (size_t)(p.r.x + i);
        p.grid->cell[at].role = (uint8_t)role;
    }
}

void pane_cursor(struct pane p, int y, int x)
{
    if (y < 0 || x < 0 || y >= p.r.h || x >= p.r.w)
        return;
    p.grid->cursor_y = p.r.y + y;
    p.grid->cursor_x = p.r.x + x;
}
