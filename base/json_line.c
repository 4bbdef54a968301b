#include "base/json_line.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void put(struct json_line *l, const char *fmt, ...)
{
    size_t room = l->cap - l->len;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->text + l->len, room, fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= room)
        l->is_full = true;
    else
        l->len += (size_t)n;
}

static void member(struct json_line *l, const char *key, const char *text)
{
    put(l, "%s\"%s\":%s", l->text[l->len - 1] == '{' ? "" : ",", key, text);
}

void json_line_begin(struct json_line *l, char *text, size_t cap)
{
    *l = (struct json_line){.text = text, .cap = cap};
    put(l, "{");
}

size_t json_line_end(struct json_line *l)
{
    put(l, "}\n");
    return l->is_full ? 0 : l->len;
}

void json_line_open(struct json_line *l, const char *key)
{
    member(l, key, "{");
}

void json_line_close(struct json_line *l)
{
    put(l, "}");
}

void json_line_word(struct json_line *l, const char *key, const char *word)
{
    member(l, key, "");
    put(l, "\"%s\"", word);
}

void json_line_num(struct json_line *l, const char *key, double x)
{
    char number[32];
    snprintf(number, sizeof(number), "%.12g", x);
    if (!isfinite(x))
        json_line_null(l, key);
    else {
        member(l, key, number);
        put(l, "%s", strpbrk(number, ".e") ? "" : ".0"); /* stays a real number when read */
    }
}

void json_line_int(struct json_line *l, const char *key, int64_t x)
{
    char number[24];
    snprintf(number, sizeof(number), "%lld", (long long)x);
    member(l, key, number);
}

void json_line_bool(struct json_line *l, const char *key, bool x)
{
    member(l, key, x ? "true" : "false");
}

void json_line_null(struct json_line *l, const char *key)
{
    member(l, key, "null");
}
