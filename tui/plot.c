#include "tui/plot.h"

#include <math.h>

#include "base/alloc.h"
#include "tui/text_put.h"

enum { LABEL_COLUMNS = 9 };

/* --- the curve as columns of dots --- */

void plot_bins(const struct plot *plot, double from, double to, struct plot_bin *bin, int columns)
{
    for (int i = 0; i < columns; i++)
        bin[i] = (struct plot_bin){0, 0, 0, 0};
    double scale = to > from ? (columns - 1) / (to - from) : 0;
    for (size_t i = 0; i < plot->n; i++) {
        double x = plot->x[i], y = plot->y[i];
        if (!isfinite(y) || !(x >= from && x <= to) || (plot->is_log && y <= 0))
            continue;
        struct plot_bin *b = &bin[(int)((x - from) * scale + 0.5)];
        double low = plot->low ? plot->low[i] : y, high = plot->high ? plot->high[i] : y;
        low = plot->is_log && low <= 0 ? y : low;
        b->min = b->n == 0 || low < b->min ? low : b->min;
        b->max = b->n == 0 || high > b->max ? high : b->max;
        b->last = y;
        b->n++;
    }
}

/* Where points lie further apart than columns, a straight line leads from one to the next. */
static void join(struct plot_bin *bin, int columns)
{
    int before = -1;
    for (int i = 0; i < columns; i++) {
        if (!bin[i].n)
            continue;
        for (int k = before + 1; before >= 0 && k < i; k++) {
            double part = (double)(k - before) / (i - before);
            double y = bin[before].last + (bin[i].last - bin[before].last) * part;
            bin[k] = (struct plot_bin){y, y, y, 1};
        }
        before = i;
    }
}

struct scale {
    double low, high; /* of the values; their logarithms when is_log */
    int dots;
    bool is_log;
};

static double on_axis(const struct scale *s, double y)
{
    return s->is_log ? log10(y) : y;
}

/* Dot row from the top. */
static int dot_row(const struct scale *s, double y)
{
    double part = (on_axis(s, y) - s->low) / (s->high - s->low);
    int row = (int)((1 - part) * (s->dots - 1) + 0.5);
    return row < 0 ? 0 : row >= s->dots ? s->dots - 1 : row;
}

static bool has_reference(const struct plot *plot)
{
    return isfinite(plot->reference) && (!plot->is_log || plot->reference > 0);
}

static bool find_scale(struct scale *s, const struct plot *plot, const struct plot_bin *bin, int n)
{
    bool has_any = false;
    for (int i = 0; i < n; i++) {
        if (!bin[i].n)
            continue;
        double low = on_axis(s, bin[i].min), high = on_axis(s, bin[i].max);
        s->low = !has_any || low < s->low ? low : s->low;
        s->high = !has_any || high > s->high ? high : s->high;
        has_any = true;
    }
    if (!has_any)
        return false;
    if (has_reference(plot)) {
        s->low = fmin(s->low, on_axis(s, plot->reference));
        s->high = fmax(s->high, on_axis(s, plot->reference));
    }
    if (plot->from_zero && !s->is_log && s->low > 0)
        s->low = 0;
    if (s->high - s->low < 1e-12 * fmax(1, fabs(s->high))) { /* a level curve lies in the middle */
        double room = s->is_log ? 0.1 : fmax(fabs(s->high) * 0.1, 1e-9);
        s->low -= room;
        s->high += room;
    }
    return true;
}

/* --- dots to characters --- */

struct dots {
    int w, h; /* of one cell: 2x4 braille, 1x2 blocks, 1x1 */
};

static struct dots dots_of(enum glyph_level level)
{
    static const struct dots size[] = {
        [GLYPH_ASCII] = {1, 1}, [GLYPH_BLOCK] = {1, 2}, [GLYPH_BRAILLE] = {2, 4}};
    return size[level];
}

/* The character whose dots are set in mask, bit x + y * w. */
static uint32_t dot_glyph(enum glyph_level level, unsigned mask)
{
    static const uint32_t half[] = {' ', 0x2580, 0x2584, 0x2588};
    static const unsigned char braille[] = {0x01, 0x08, 0x02, 0x10, 0x04, 0x20, 0x40, 0x80};
    if (level == GLYPH_ASCII)
        return mask ? '*' : ' ';
    if (level == GLYPH_BLOCK)
        return half[mask & 3];
    uint32_t cp = 0;
    for (int i = 0; i < 8; i++)
        cp |= mask >> i & 1 ? braille[i] : 0;
    return cp ? 0x2800 + cp : ' ';
}

static bool is_set(const struct scale *s, const struct plot_bin *bin, int column, int row)
{
    return bin[column].n > 0 && row >= dot_row(s, bin[column].max) &&
           row <= dot_row(s, bin[column].min);
}

static void draw_curve(struct pane p, const struct scale *s, const struct plot_bin *bin)
{
    enum glyph_level level = p.grid->glyphs;
    struct dots d = dots_of(level);
    for (int y = 0; y < p.r.h; y++) {
        for (int x = 0; x < p.r.w; x++) {
            unsigned mask = 0;
            for (int i = 0; i < d.w * d.h; i++) {
                if (is_set(s, bin, x * d.w + i % d.w, y * d.h + i / d.w))
                    mask |= 1u << i;
            }
            if (mask)
                pane_put(p, y, x, dot_glyph(level, mask), ROLE_PART_1);
        }
    }
}

static void draw_reference(struct pane p, const struct scale *s, const struct plot *plot)
{
    int y = dot_row(s, plot->reference) / dots_of(p.grid->glyphs).h;
    pane_fill(p, y, 0, p.r.w, 0x2500, ROLE_WARN);
    if (plot->reference_name)
        text_putf(p, y, p.r.w - text_width(plot->reference_name) - 1, ROLE_WARN, "%s",
            plot->reference_name);
}

static void draw_labels(struct pane p, const struct scale *s, const struct plot *plot)
{
    int steps = p.r.h >= 8 ? 4 : p.r.h >= 4 ? 2 : 1;
    for (int i = 0; i <= steps; i++) {
        double value = s->high + (s->low - s->high) * i / steps;
        char text[32];
        plot->label(s->is_log ? pow(10, value) : value, text);
        text_put_right(p, (p.r.h - 1) * i / steps, 0, LABEL_COLUMNS - 1, ROLE_DIM, text);
    }
}

static void draw_x_axis(struct pane p, int y, const struct plot *plot, double from, double to)
{
    char first[64], last[64];
    snprintf(first, sizeof(first), "%s %.0f", plot->x_name, from);
    snprintf(last, sizeof(last), "%.0f", to);
    int at = p.r.w - text_width(last) - 1;
    if (LABEL_COLUMNS + text_width(first) < at)
        text_putf(p, y, LABEL_COLUMNS, ROLE_DIM, "%s", first);
    text_put_right(p, y, at, text_width(last), ROLE_DIM, last);
}

void plot_draw(struct pane p, const struct plot *plot)
{
    struct pane in = pane_part(p, 0, LABEL_COLUMNS, p.r.h - 1, p.r.w - LABEL_COLUMNS - 1);
    if (in.r.h < 1 || in.r.w < 4)
        return;
    double from = plot->x_from, to = plot->x_to;
    if (!(to > from) && plot->n > 0) {
        from = plot->x[0];
        to = plot->x[plot->n - 1];
    }
    struct dots d = dots_of(p.grid->glyphs);
    int columns = in.r.w * d.w;
    struct plot_bin *bin = base_calloc((size_t)columns, sizeof(*bin));
    plot_bins(plot, from, to, bin, columns);
    join(bin, columns);
    struct scale s = {.dots = in.r.h * d.h, .is_log = plot->is_log};
    if (find_scale(&s, plot, bin, columns)) {
        if (has_reference(plot))
            draw_reference(in, &s, plot);
        draw_curve(in, &s, bin);
        draw_labels(pane_part(p, 0, 0, p.r.h - 1, LABEL_COLUMNS), &s, plot);
        draw_x_axis(p, p.r.h - 1, plot, from, to);
    } else {
        text_put(in, in.r.h / 2, 1, in.r.w - 1, ROLE_DIM, "no values yet");
    }
    free(bin);
}

/* --- bars --- */

void bar_draw(
    struct pane p, int y, int x, int width, const struct bar_part *part, int n, double whole)
{
    double sum = 0;
    int drawn = 0;
    for (int i = 0; i < n && whole > 0; i++) {
        if (!(part[i].size > 0))
            continue;
        sum += part[i].size;
        int end = (int)fmin(width, sum / whole * width + 0.5);
        if (end <= drawn && drawn < width)
            end = drawn + 1;
        pane_fill(p, y, x + drawn, end - drawn, (uint32_t)part[i].letter,
            (enum role)(ROLE_BAR_1 + i % ROLE_PARTS));
        drawn = end > drawn ? end : drawn;
    }
    pane_fill(p, y, x + drawn, width - drawn, 0xb7, ROLE_DIM);
}
