#include "tui/screen.h"

static int at_least_zero(int x)
{
    return x > 0 ? x : 0;
}

struct screen screen_layout(int rows, int cols)
{
    struct screen s = {.size = SCREEN_FULL};
    rows = at_least_zero(rows);
    cols = at_least_zero(cols);
    if (rows < SCREEN_MIN_ROWS || cols < SCREEN_MIN_COLS) {
        s.size = SCREEN_TOO_SMALL;
        s.body = (struct rect){0, 0, rows, cols};
        return s;
    }
    if (rows < SCREEN_FULL_ROWS || cols < SCREEN_FULL_COLS)
        s.size = SCREEN_SINGLE;
    s.header = (struct rect){0, 0, 1, cols};
    s.footer = (struct rect){rows - 1, 0, 1, cols};
    s.message = (struct rect){rows - 2, 0, 1, cols};
    s.body = (struct rect){1, 0, rows - 3, cols};
    return s;
}

struct split screen_rows(struct rect body, int want, int min_second)
{
    struct split s = {{0}, {0}, {0}, {0}};
    int inner = body.h - 2, first = want;
    if (inner < min_second + 1)
        first = body.h - 1;
    else if (first > inner - min_second)
        first = inner - min_second;
    first = at_least_zero(first);
    s.first_title = (struct rect){body.y, body.x, body.h > 0, body.w};
    s.first = (struct rect){body.y + 1, body.x, body.h > 0 ? first : 0, body.w};
    if (inner < min_second + 1)
        return s;
    s.second_title = (struct rect){body.y + 1 + first, body.x, 1, body.w};
    s.second = (struct rect){body.y + 2 + first, body.x, inner - first, body.w};
    return s;
}
