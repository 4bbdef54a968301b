#include "tui/show.h"

#include <math.h>

#include "base/str.h"
#include "base/units.h"

_Static_assert((int)SHOW_TEXT >= (int)UNITS_TEXT, "the formatters of base write into our buffers");

static char *unknown(char buf[SHOW_TEXT])
{
    str_copy(buf, SHOW_TEXT, "?");
    return buf;
}

char *show_bytes(char buf[SHOW_TEXT], double bytes)
{
    return isfinite(bytes) && bytes >= 0 ? units_bytes(buf, bytes) : unknown(buf);
}

char *show_count(char buf[SHOW_TEXT], double x)
{
    return isfinite(x) ? units_count(buf, x) : unknown(buf);
}

char *show_seconds(char buf[SHOW_TEXT], double seconds)
{
    return isfinite(seconds) && seconds >= 0 ? units_seconds(buf, seconds) : unknown(buf);
}

char *show_elapsed(char buf[SHOW_TEXT], double seconds)
{
    if (!isfinite(seconds) || seconds >= 60)
        return show_seconds(buf, seconds);
    snprintf(buf, SHOW_TEXT, seconds < 10 ? "%.1f s" : "%.0f s", seconds > 0 ? seconds : 0);
    return buf;
}

/* Digits of a whole number in groups of three. */
static void group(char buf[SHOW_TEXT], const char *prefix, double whole)
{
    char digits[SHOW_TEXT];
    snprintf(digits, sizeof(digits), "%.0f", whole);
    size_t n = strlen(digits);
    str_copy(buf, SHOW_TEXT, prefix);
    size_t at = strlen(buf);
    for (size_t i = 0; i < n && at + 2 < SHOW_TEXT; i++) {
        if (i > 0 && (n - i) % 3 == 0 && digits[i - 1] != '-')
            buf[at++] = ',';
        buf[at++] = digits[i];
    }
    buf[at] = '\0';
}

char *show_usd(char buf[SHOW_TEXT], double usd)
{
    if (!isfinite(usd) || usd < 0 || usd > 1e15)
        return unknown(buf);
    if (usd >= 100)
        group(buf, "$", ceil(usd - 1e-9));
    else
        snprintf(buf, SHOW_TEXT, "$%.2f", fmax(0, ceil(usd * 100 - 1e-7) / 100));
    return buf;
}

char *show_percent(char buf[SHOW_TEXT], double part)
{
    if (!isfinite(part))
        return unknown(buf);
    /* 99.6 % must not read as certainty */
    double percent = part < 1 && part > 0.99 ? floor(part * 1000) / 10 : part * 100;
    snprintf(buf, SHOW_TEXT, part < 1 && part > 0.99 ? "%.1f %%" : "%.0f %%", percent);
    return buf;
}

char *show_number(char buf[SHOW_TEXT], double x)
{
    if (!isfinite(x) || fabs(x) > 1e15)
        return unknown(buf);
    double size = fabs(x);
    if (size >= 100)
        group(buf, "", x);
    else if (size > 0 && size < 0.01)
        snprintf(buf, SHOW_TEXT, "%.2e", x);
    else
        snprintf(buf, SHOW_TEXT, size >= 10 ? "%.1f" : "%.2f", x);
    return buf;
}

char *show_age(char buf[SHOW_TEXT], double seconds)
{
    static const struct {
        double size;
        const char *unit;
    } steps[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
    if (!isfinite(seconds))
        return unknown(buf);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        if (seconds >= steps[i].size * (steps[i].size > 1 ? 1 : 10)) {
            snprintf(buf, SHOW_TEXT, "%.0f %s old", floor(seconds / steps[i].size), steps[i].unit);
            return buf;
        }
    }
    str_copy(buf, SHOW_TEXT, "now");
    return buf;
}
