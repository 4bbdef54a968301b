#include "engine/unicode.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "base/str.h"

/* Well-formed sequences by their first byte (The Unicode Standard, table 3-7): bytes that follow,
 * and the bounds of the second one; later ones are 80..BF. */
struct lead {
    unsigned char follow, low, high;
};

static struct lead lead_of(unsigned char c)
{
    if (c >= 0xc2 && c <= 0xdf)
        return (struct lead){1, 0x80, 0xbf};
    if (c >= 0xe0 && c <= 0xef)
        return (struct lead){2, c == 0xe0 ? 0xa0 : 0x80, c == 0xed ? 0x9f : 0xbf};
    if (c >= 0xf0 && c <= 0xf4)
        return (struct lead){3, c == 0xf0 ? 0x90 : 0x80, c == 0xf4 ? 0x8f : 0xbf};
    return (struct lead){0, 0, 0};
}

/* Bytes of the character at s, n of them left; or, not well-formed, of its longest beginning that
 * some character has (at least 1). */
static size_t sequence(const unsigned char *s, size_t n, bool *is_valid)
{
    *is_valid = s[0] < 0x80;
    if (*is_valid)
        return 1;
    struct lead l = lead_of(s[0]);
    size_t i = 1;
    if (l.follow > 0 && n > 1 && s[1] >= l.low && s[1] <= l.high)
        for (i = 2; i <= l.follow && i < n && (s[i] & 0xc0) == 0x80;)
            i++;
    *is_valid = l.follow > 0 && i == (size_t)l.follow + 1;
    return i;
}

static size_t skip_ascii(const unsigned char *s, size_t i, size_t n)
{
    for (uint64_t eight; i + 8 <= n; i += 8) {
        memcpy(&eight, s + i, 8);
        if (eight & 0x8080808080808080u)
            break;
    }
    while (i < n && s[i] < 0x80)
        i++;
    return i;
}

size_t utf8_valid_prefix(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    bool is_valid;
    for (size_t i = skip_ascii(s, 0, n); i < n; i = skip_ascii(s, i, n)) {
        size_t length = sequence(s + i, n - i, &is_valid);
        if (!is_valid)
            return i;
        i += length;
    }
    return n;
}

void utf8_repair(struct str *out, const char *text, size_t n)
{
    bool is_valid;
    while (n > 0) {
        size_t good = utf8_valid_prefix(text, n);
        str_addn(out, text, good);
        text += good;
        n -= good;
        if (n == 0)
            return;
        size_t bad = sequence((const unsigned char *)text, n, &is_valid);
        str_add(out, "\xef\xbf\xbd");
        text += bad;
        n -= bad;
    }
}

/* Every character below U+0300 is its own composed form, and none of them joins with another; they
 * are the ones whose bytes are all below CC. */
static bool is_plainly_composed(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)text[i] >= 0xcc)
            return false;
    return true;
}

enum rc unicode_nfc(
    const char *text, size_t n, const char **out, size_t *out_n, char **owned, struct err *e)
{
    *out = text;
    *out_n = n;
    *owned = NULL;
    if (is_plainly_composed(text, n))
        return RC_OK;
    utf8proc_uint8_t *made = NULL;
    utf8proc_ssize_t length = utf8proc_map((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n,
        &made, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (length < 0)
        return err_set(e, RC_LIMIT, "a text of %zu bytes cannot be normalised: %s", n,
            utf8proc_errmsg(length));
    *out = *owned = (char *)made;
    *out_n = (size_t)length;
    return RC_OK;
}
