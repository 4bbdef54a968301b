#include "base/alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void out_of_memory(void) __attribute__((noreturn));
static void out_of_memory(void)
{
    static const char text[] = "berth: out of memory\n";
    ssize_t ignored = write(2, text, sizeof(text) - 1);
    (void)ignored;
    _exit(1);
}

void *base_alloc(size_t bytes)
{
    void *p = malloc(bytes ? bytes : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *base_calloc(size_t count, size_t bytes)
{
    void *p = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!p)
        out_of_memory();
    return p;
}

void *base_realloc(void *p, size_t bytes)
{
    void *q = realloc(p, bytes ? bytes : 1);
    if (!q)
        out_of_memory();
    return q;
}

char *base_strdup(const char *s)
{
    return base_strndup(s, strlen(s));
}

char *base_strndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = base_alloc(len + 1);
    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *base_printf(const char *fmt, ...)
{
    char *p = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&p, fmt, ap);
    va_end(ap);
    if (n < 0)
        out_of_memory();
    return p;
}

bool base_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
    return true;
}
