#include "base/text.h"

#include <stdbool.h>
#include <string.h>

#include "base/str.h"

size_t text_decode(const char *s, size_t n, unsigned *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    *cp = 0xFFFD;
    if (p[0] < 0x80) {
        *cp = p[0];
        return 1;
    }
    size_t len = p[0] >= 0xF0 && p[0] <= 0xF4 ? 4 : p[0] >= 0xE0 ? 3 : p[0] >= 0xC2 ? 2 : 0;
    if (p[0] > 0xF4 || !len || len > n)
        return 1;
    unsigned c = p[0] & (0xFFu >> (len + 1));
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 1;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    bool is_overlong = (len == 3 && c < 0x800) || (len == 4 && c < 0x10000);
    if (is_overlong || (c >= 0xD800 && c <= 0xDFFF) || c > 0x10FFFF)
        return 1;
    *cp = c;
    return len;
}

char *text_valid_utf8(const char *s)
{
    struct str out = STR_INIT;
    size_t n = strlen(s);
    while (n) {
        unsigned cp;
        size_t len = text_decode(s, n, &cp);
        if (cp == 0xFFFD && len == 1)
            str_add(&out, "\xEF\xBF\xBD");
        else
            str_addn(&out, s, len);
        s += len;
        n -= len;
    }
    return str_steal(&out);
}

static bool is_steering(unsigned cp)
{
    return cp < 0x20 || (cp >= 0x7F && cp < 0xA0) || (cp >= 0x200B && cp <= 0x200F) ||
           (cp >= 0x2028 && cp <= 0x202E) || (cp >= 0x2060 && cp <= 0x206F) || cp == 0xFEFF ||
           cp == 0xAD || (cp >= 0xFFF9 && cp <= 0xFFFB);
}

char *text_safe(const char *s)
{
    struct str out = STR_INIT;
    size_t n = strlen(s);
    while (n) {
        unsigned cp;
        size_t len = text_decode(s, n, &cp);
        if (cp == '\t')
            str_addc(&out, ' ');
        else if (is_steering(cp) || (cp == 0xFFFD && len == 1))
            str_addc(&out, '?');
        else
            str_addn(&out, s, len);
        s += len;
        n -= len;
    }
    return str_steal(&out);
}

int text_columns(unsigned cp)
{
    static const struct {
        unsigned first, last;
    } WIDE[] = {{0x1100, 0x115F}, {0x2E80, 0x303E}, {0x3041, 0x33FF}, {0x3400, 0x4DBF},
        {0x4E00, 0x9FFF}, {0xA000, 0xA4CF}, {0xAC00, 0xD7A3}, {0xF900, 0xFAFF}, {0xFE30, 0xFE6F},
        {0xFF00, 0xFF60}, {0xFFE0, 0xFFE6}, {0x1F300, 0x1F64F}, {0x1F680, 0x1F6FF},
        {0x1F900, 0x1F9FF}, {0x20000, 0x3FFFD}};
    if (is_steering(cp) || (cp >= 0x300 && cp <= 0x36F) || (cp >= 0xFE00 && cp <= 0xFE0F) ||
        (cp >= 0x20D0 && cp <= 0x20FF))
        return 0;
    for (size_t i = 0; i < sizeof(WIDE) / sizeof(WIDE[0]); i++)
        if (cp >= WIDE[i].first && cp <= WIDE[i].last)
            return 2;
    return 1;
}
