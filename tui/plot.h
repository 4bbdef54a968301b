/* Curves and bars drawn from characters, at three glyph levels. */
#ifndef TUI_PLOT_H
#define TUI_PLOT_H

#include <stdbool.h>
#include <stddef.h>

#include "tui/grid.h"

/* A curve over x (ascending). NaN values are gaps. All arrays are borrowed for the call. */
struct plot {
    const double *x, *y;
    const double *low, *high; /* of each point, when it stands for several; NULL: y itself */
    size_t n;
    double x_from, x_to; /* range shown; equal: from the data */
    double reference;    /* a level line, such as the planned value; NaN: none */
    const char *reference_name;
    bool is_log;    /* y axis; values <= 0 are gaps then */
    bool from_zero; /* the y axis starts at 0 (not when is_log) */
    const char *x_name;
    /* Text of a value on the y axis. */
    void (*label)(double value, char text[32]);
};

/* What one column of dots shows of the values that fall into it. */
struct plot_bin {
    double min, max, last;
    size_t n; /* 0: nothing */
};

/* Sort the values of a curve into columns between from and to. */
void plot_bins(const struct plot *plot, double from, double to, struct plot_bin *bin, int columns);
/* Axis labels at the left, the curve as a band between the smallest and the largest value of each
 * column, the x range below. */
void plot_draw(struct pane p, const struct plot *plot);

/* One part of a stacked bar. */
struct bar_part {
    double size;
    char letter; /* drawn in its cells, so that colour is not needed to read it */
};
/* Parts beside each other on one line, scaled so that whole takes width; what is left is dotted. A
 * part that is not zero gets a cell when there is room. Parts beyond whole are cut off. */
void bar_draw(
    struct pane p, int y, int x, int width, const struct bar_part *part, int n, double whole);

#endif
