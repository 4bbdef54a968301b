/* Growing byte string with a hard maximum, always NUL-terminated once anything was added. */
#ifndef BASE_STR_H
#define BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

struct str {
    char *p; /* NULL while empty and never used */
    size_t len;
    size_t cap;
    size_t max;        /* bytes it may hold; 0 means STR_DEFAULT_MAX */
    bool is_truncated; /* something did not fit under max */
};

enum { STR_DEFAULT_MAX = 256 << 20 };

#define STR_INIT                                                                                   \
    {                                                                                              \
        NULL, 0, 0, 0, false                                                                       \
    }

void str_init(struct str *s, size_t max);
void str_release(struct str *s);
/* Empty and usable, memory kept. */
void str_reset(struct str *s);

void str_add(struct str *s, const char *text);
void str_addn(struct str *s, const char *bytes, size_t n);
void str_addc(struct str *s, char c);
/* text in single quotes for sh. */
void str_add_shell_quoted(struct str *s, const char *text);
void str_addf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Drop n bytes from the front. */
void str_drop(struct str *s, size_t n);
/* Text, "" when empty. Returns borrowed, valid until the next change. */
const char *str_text(const struct str *s);
/* Hand the text to the caller, who frees it; s is empty and usable afterwards. */
char *str_steal(struct str *s);

/* Copy src into dst[cap], cut if necessary, always terminated. Returns false when it was cut. */
bool str_copy(char *dst, size_t cap, const char *src);
bool str_starts(const char *s, const char *prefix);
bool str_ends(const char *s, const char *suffix);
/* Edit distance, for "did you mean"; strings over 63 bytes count as far apart. */
int str_distance(const char *a, const char *b);

#endif
