/* A command line being put together: what the screens run is what they show. */
#ifndef TUI_ARGV_H
#define TUI_ARGV_H

#include <stddef.h>

struct str;

enum { ARGV_MAX = 96 };

/* Words of a `berth` command without the program's own name; word[n] is NULL. */
struct argv {
    char *word[ARGV_MAX + 1];
    size_t n;
};

void argv_init(struct argv *a);
void argv_release(struct argv *a);
/* Append a copy; beyond ARGV_MAX words it is dropped. */
void argv_add(struct argv *a, const char *word);
/* Append "--name value" as two words. */
void argv_option(struct argv *a, const char *name, const char *value);
/* Append each of the words of text, which are separated by blanks. */
void argv_words(struct argv *a, const char *text);
/* "berth plan --model x", quoted for a shell where needed. */
void argv_text(const struct argv *a, struct str *out);

#endif
