/* Foreign text made safe to show: strings from providers, nodes, files and logs are hostile. */
#ifndef BASE_TEXT_H
#define BASE_TEXT_H

#include <stddef.h>

/* Copy of s with each invalid UTF-8 sequence replaced by U+FFFD. Caller frees. */
char *text_valid_utf8(const char *s);

/* Copy of s that cannot steer a terminal: valid UTF-8, control characters (C0, DEL, C1), bidi
 * overrides and zero-width characters become '?'; tab becomes a space. Caller frees. */
char *text_safe(const char *s);

/* Decode one character at s (at most n bytes). Returns its length in bytes, *cp is the code point;
 * an invalid byte gives length 1 and U+FFFD. n must be at least 1. */
size_t text_decode(const char *s, size_t n, unsigned *cp);

/* Columns a code point takes on a terminal: 0, 1 or 2. Independent of the locale. */
int text_columns(unsigned cp);

#endif
