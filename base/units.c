#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

struct unit {
    const char *name;
    double factor;
};

/* A comma groups thousands: exactly three digits follow. "2,49" is no number, as it would be
 * another one to every second reader. */
static bool is_grouping_comma(const char *p)
{
    return *p == ',' && isdigit((unsigned char)p[1]) && isdigit((unsigned char)p[2]) &&
           isdigit((unsigned char)p[3]) && !isdigit((unsigned char)p[4]);
}

/* Number at *text; ',' between thousands and '_' between digits are dropped. */
static bool read_number(const char **text, double *out)
{
    char digits[64];
    unsigned n = 0;
    const char *p = *text;
    if (*p == '+' || *p == '-')
        digits[n++] = *p++;
    while (isdigit((unsigned char)*p) || *p == '.' || (n && is_grouping_comma(p)) ||
           (*p == '_' && isdigit((unsigned char)p[1]))) {
        if (n >= sizeof(digits) - 8)
            return false;
        if (*p != ',' && *p != '_')
            digits[n++] = *p;
        p++;
    }
    if ((*p == 'e' || *p == 'E') && (isdigit((unsigned char)p[1]) || p[1] == '+' || p[1] == '-')) {
        digits[n++] = *p++;
        if (*p == '+' || *p == '-')
            digits[n++] = *p++;
        for (int i = 0; i < 3 && isdigit((unsigned char)*p); i++)
            digits[n++] = *p++;
    }
    digits[n] = '\0';
    char *end;
    *out = strtod(digits, &end);
    if (n == 0 || *end != '\0' || !isfinite(*out))
        return false;
    *text = p;
    return true;
}

static const struct unit *find_unit(const struct unit *units, const char *name)
{
    for (; units->name; units++)
        if (strcasecmp(units->name, name) == 0)
            return units;
    return NULL;
}

static const char *skip_spaces(const char *p)
{
    while (*p == ' ')
        p++;
    return p;
}

static bool parse_scaled(const char *text, const struct unit *units, double *out)
{
    const char *p = skip_spaces(text);
    double x;
    if (!read_number(&p, &x))
        return false;
    const struct unit *u = find_unit(units, skip_spaces(p));
    if (!u)
        return false;
    *out = x * u->factor;
    return true;
}

static enum rc to_int64(double x, const char *text, const char *what, int64_t *out, struct err *e)
{
    if (x < 0)
        return err_set(e, RC_INVALID, "%s '%s' is negative", what, text);
    if (fabs(x - round(x)) > 1e-6 * fmax(1, fabs(x)) * 1e-3)
        return err_set(e, RC_INVALID, "%s '%s' is not a whole number", what, text);
    if (x > 9e18)
        return err_set(e, RC_INVALID, "%s '%s' is too large", what, text);
    *out = (int64_t)llround(x);
    return RC_OK;
}

enum rc units_parse_count(const char *text, int64_t *out, struct err *e)
{
    static const struct unit UNITS[] = {
        {"", 1}, {"k", 1e3}, {"m", 1e6}, {"b", 1e9}, {"g", 1e9}, {"t", 1e12}, {NULL, 0}};
    double x;
    if (!parse_scaled(text, UNITS, &x))
        return err_set(e, RC_INVALID, "'%s' is not a count; write it like 10B, 4M or 4096", text);
    return to_int64(x, text, "count", out, e);
}

enum rc units_parse_bytes(const char *text, int64_t *out, struct err *e)
{
    static const struct unit UNITS[] = {{"", 1}, {"b", 1}, {"kb", 1e3}, {"mb", 1e6}, {"gb", 1e9},
        {"tb", 1e12}, {"pb", 1e15}, {"kib", 1024.0}, {"mib", 1048576.0}, {"gib", 1073741824.0},
        {"tib", 1099511627776.0}, {"pib", 1125899906842624.0}, {NULL, 0}};
    double x;
    if (!parse_scaled(text, UNITS, &x))
        return err_set(
            e, RC_INVALID, "'%s' is not a size; write it like 80GiB, 512MiB or 1.5TB", text);
    return to_int64(x, text, "size", out, e);
}

enum rc units_parse_seconds(const char *text, double *out, struct err *e)
{
    static const struct unit UNITS[] = {{"", 1}, {"s", 1}, {"m", 60}, {"min", 60}, {"h", 3600},
        {"d", 86400}, {"w", 604800}, {"ms", 1e-3}, {NULL, 0}};
    const char *p = skip_spaces(text);
    double total = 0;
    bool is_good = *p != '\0';
    while (*p && is_good) {
        double x;
        char name[8] = "";
        size_t n = 0;
        is_good = read_number(&p, &x) && x >= 0;
        p = skip_spaces(p);
        while (isalpha((unsigned char)*p) && n + 1 < sizeof(name))
            name[n++] = *p++;
        name[n] = '\0';
        p = skip_spaces(p);
        const struct unit *u = is_good ? find_unit(UNITS, name) : NULL;
        is_good = u != NULL;
        total += is_good ? x * u->factor : 0;
    }
    if (!is_good || !isfinite(total))
        return err_set(e, RC_INVALID, "'%s' is not a duration; write it like 7d, 12h or 90s", text);
    *out = total;
    return RC_OK;
}

enum rc units_parse_usd(const char *text, int64_t *micro_usd, struct err *e)
{
    const char *p = skip_spaces(text);
    if (*p == '$')
        p = skip_spaces(p + 1);
    int64_t whole = 0, fraction = 0, scale = USD_MICRO;
    int digits = 0;
    for (; isdigit((unsigned char)*p) || (digits && is_grouping_comma(p)); p++) {
        if (*p == ',')
            continue;
        whole = whole * 10 + (*p - '0');
        if (++digits > 12)
            return err_set(e, RC_INVALID, "amount '%s' is too large", text);
    }
    if (*p == '.')
        for (p++; isdigit((unsigned char)*p); p++, digits++) {
            if (scale > 1)
                fraction += (*p - '0') * (scale /= 10);
        }
    p = skip_spaces(p);
    if (strncasecmp(p, "usd", 3) == 0)
        p = skip_spaces(p + 3);
    if (!digits || *p != '\0')
        return err_set(
            e, RC_INVALID, "'%s' is not an amount of dollars; write it like 1500 or 2.49", text);
    *micro_usd = whole * USD_MICRO + fraction;
    return RC_OK;
}

enum rc units_parse_number(const char *text, double *out, struct err *e)
{
    const char *p = skip_spaces(text);
    if (!read_number(&p, out) || *skip_spaces(p) != '\0')
        return err_set(e, RC_INVALID, "'%s' is not a number", text);
    return RC_OK;
}

/* Fills buf when the figure would say nothing. */
static bool is_too_large(char buf[UNITS_TEXT], double x, double most)
{
    bool is_large = !(fabs(x) < most);
    if (is_large)
        snprintf(buf, UNITS_TEXT, "%s", isnan(x) ? "unknown" : "too large");
    return is_large;
}

/* x as it is printed with so many places, no less than it is. */
static double round_up(double x, int places)
{
    double scale = pow(10, places);
    return ceil(x * scale * (1 - 1e-12)) / scale;
}

static char *put_bytes(char buf[UNITS_TEXT], double bytes, bool is_up)
{
    static const char *const NAMES[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t i = 0;
    double x = bytes;
    if (is_too_large(buf, bytes, 1e24))
        return buf;
    while (fabs(x) >= 1023.95 && i + 1 < BASE_COUNT(NAMES)) {
        x /= 1024;
        i++;
    }
    int places = i ? 1 : 0;
    snprintf(buf, UNITS_TEXT, "%.*f %s", places, is_up ? round_up(x, places) : x, NAMES[i]);
    return buf;
}

char *units_bytes(char buf[UNITS_TEXT], double bytes)
{
    return put_bytes(buf, bytes, false);
}

char *units_bytes_up(char buf[UNITS_TEXT], double bytes)
{
    return put_bytes(buf, bytes, true);
}

char *units_count(char buf[UNITS_TEXT], double count)
{
    static const char NAMES[] = {'\0', 'k', 'M', 'B', 'T'};
    size_t i = 0;
    double x = count;
    while (fabs(x) >= 1000 && i + 1 < BASE_COUNT(NAMES)) {
        x /= 1000;
        i++;
    }
    int places = i == 0 || fabs(x) >= 100 ? 0 : fabs(x) >= 10 ? 1 : 2;
    snprintf(buf, UNITS_TEXT, "%.*f%c", places, x, NAMES[i]);
    return buf;
}

static char *put_seconds(char buf[UNITS_TEXT], double seconds, bool is_up)
{
    static const struct {
        double below, divisor;
        const char *name;
    } STEPS[] = {{1e-3, 1e-6, "us"}, {1, 1e-3, "ms"}, {120, 1, "s"}, {7200, 60, "min"},
        {172800, 3600, "h"}, {INFINITY, 86400, "d"}};
    size_t i = 0;
    if (is_too_large(buf, seconds, 1e15))
        return buf;
    while (fabs(seconds) >= STEPS[i].below && i + 1 < BASE_COUNT(STEPS))
        i++;
    double x = seconds / STEPS[i].divisor;
    int places = fabs(x) < 10 ? 2 : 1;
    snprintf(buf, UNITS_TEXT, "%.*f %s", places, is_up ? round_up(x, places) : x, STEPS[i].name);
    return buf;
}

char *units_seconds(char buf[UNITS_TEXT], double seconds)
{
    return put_seconds(buf, seconds, false);
}

char *units_seconds_up(char buf[UNITS_TEXT], double seconds)
{
    return put_seconds(buf, seconds, true);
}

char *units_usd(char buf[UNITS_TEXT], int64_t micro_usd)
{
    if (is_too_large(buf, (double)micro_usd, 1e12 * (double)USD_MICRO))
        return buf;
    bool is_negative = micro_usd < 0;
    uint64_t abs = is_negative ? -(uint64_t)micro_usd : (uint64_t)micro_usd;
    uint64_t cents = abs / 10000 + (abs % 10000 != 0);
    uint64_t whole = cents / 100;
    char digits[24], grouped[32];
    int n = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)whole);
    int out = 0;
    for (int i = 0; i < n; i++) {
        if (i && (n - i) % 3 == 0)
            grouped[out++] = ',';
        grouped[out++] = digits[i];
    }
    grouped[out] = '\0';
    snprintf(
        buf, UNITS_TEXT, "%s$%.25s.%02u", is_negative ? "-" : "", grouped, (unsigned)(cents % 100));
    return buf;
}
