#include "tui/theme.h"

/* No plain blue and no fixed background: both are unreadable on somebody's terminal. */
static const struct {
    short fg16, fg256;
    bool is_bold, is_reverse, is_underlined;
} looks[ROLE_COUNT] = {
    [ROLE_NORMAL] = {-1, -1, false, false, false},
    [ROLE_DIM] = {-1, 245, false, false, false},
    [ROLE_TITLE] = {6, 44, true, false, false},
    [ROLE_HEADER] = {-1, -1, true, false, false},
    [ROLE_KEY] = {6, 44, true, false, false},
    [ROLE_SELECTED] = {-1, -1, false, true, false},
    [ROLE_TAB] = {-1, -1, true, true, false},
    [ROLE_GOOD] = {2, 71, false, false, false},
    [ROLE_WARN] = {3, 178, true, false, false},
    [ROLE_BAD] = {1, 203, true, false, false},
    [ROLE_FIELD] = {-1, -1, false, false, true},
    [ROLE_CURSOR] = {-1, -1, true, false, true},
    [ROLE_PART_1] = {6, 44, false, false, false},
    [ROLE_PART_2] = {3, 178, false, false, false},
    [ROLE_PART_3] = {5, 170, false, false, false},
    [ROLE_PART_4] = {2, 71, false, false, false},
    [ROLE_PART_5] = {1, 203, false, false, false},
    [ROLE_PART_6] = {-1, 75, false, false, false},
    [ROLE_PART_7] = {6, 150, true, false, false},
    [ROLE_PART_8] = {3, 216, true, false, false},
};

struct look theme_look(enum role role, enum color_level level)
{
    if (role >= ROLE_BAR_1) {
        struct look bar = theme_look(theme_part(role - ROLE_BAR_1), level);
        bar.is_reverse = true;
        return bar;
    }
    struct look look = {-1, looks[role].is_bold, looks[role].is_reverse, looks[role].is_underlined};
    if (level == COLOR_LEVEL_16)
        look.fg = looks[role].fg16;
    if (level == COLOR_LEVEL_256)
        look.fg = looks[role].fg256;
    return look;
}

enum role theme_part(int i)
{
    return (enum role)(ROLE_PART_1 + i % ROLE_PARTS);
}
