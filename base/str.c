#include "base/str.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"

void str_init(struct str *s, size_t max)
{
    *s = (struct str)STR_INIT;
    s->max = max;
}

void str_release(struct str *s)
{
    size_t max = s->max;
    free(s->p);
    str_init(s, max);
}

void str_reset(struct str *s)
{
    s->len = 0;
    s->is_truncated = false;
    if (s->p)
        s->p[0] = '\0';
}

/* Room for n more bytes and the terminator; returns how many of the n may be written. */
static size_t reserve(struct str *s, size_t n)
{
    size_t max = s->max ? s->max : (size_t)STR_DEFAULT_MAX;
    if (n > max - s->len) {
        n = max - s->len;
        s->is_truncated = true;
    }
    if (s->len + n + 1 > s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 64;
        if (cap < s->len + n + 1)
            cap = s->len + n + 1;
        s->p = base_realloc(s->p, cap);
        s->cap = cap;
    }
    return n;
}

void str_addn(struct str *s, const char *bytes, size_t n)
{
    n = reserve(s, n);
    if (n)
        memcpy(s->p + s->len, bytes, n);
    s->len += n;
    s->p[s->len] = '\0';
}

void str_add(struct str *s, const char *text)
{
    str_addn(s, text, strlen(text));
}

void str_addc(struct str *s, char c)
{
    str_addn(s, &c, 1);
}

void str_add_shell_quoted(struct str *s, const char *text)
{
    str_addc(s, '\'');
    for (; *text; text++) {
        if (*text == '\'')
            str_add(s, "'\\''");
        else
            str_addc(s, *text);
    }
    str_addc(s, '\'');
}

void str_addf(struct str *s, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list ap2;
    va_copy(ap2, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n > 0) {
        char *tmp = base_alloc((size_t)n + 1);
        vsnprintf(tmp, (size_t)n + 1, fmt, ap2);
        str_addn(s, tmp, (size_t)n);
        free(tmp);
    }
    va_end(ap2);
}

void str_drop(struct str *s, size_t n)
{
    if (n >= s->len) {
        str_reset(s);
        return;
    }
    memmove(s->p, s->p + n, s->len - n + 1);
    s->len -= n;
}

const char *str_text(const struct str *s)
{
    return s->p ? s->p : "";
}

char *str_steal(struct str *s)
{
    char *p = s->p ? s->p : base_strdup("");
    s->p = NULL;
    s->len = s->cap = 0;
    s->is_truncated = false;
    return p;
}

bool str_copy(char *dst, size_t cap, const char *src)
{
    size_t n = strnlen(src, cap);
    bool is_whole = n < cap;
    if (!is_whole)
        n = cap - 1;
    memcpy(dst, src, n);
    dst[n] = '\0';
    return is_whole;
}

bool str_starts(const char *s, const char *prefix)
{
    return strncmp(s, prefix, strlen(prefix)) == 0;
}

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), m = strlen(suffix);
    return n >= m && strcmp(s + n - m, suffix) == 0;
}

int str_distance(const char *a, const char *b)
{
    enum { MAX = 64 };
    size_t n = strlen(a), m = strlen(b);
    if (n >= MAX || m >= MAX)
        return MAX;
    int row[MAX];
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best)
                best = row[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}
