#include "tui/argv.h"

#include "base/alloc.h"
#include "base/str.h"

void argv_init(struct argv *a)
{
    memset(a, 0, sizeof(*a));
}

void argv_release(struct argv *a)
{
    for (size_t i = 0; i < a->n; i++)
        free(a->word[i]);
    argv_init(a);
}

void argv_add(struct argv *a, const char *word)
{
    if (a->n < ARGV_MAX)
        a->word[a->n++] = base_strdup(word);
}

void argv_option(struct argv *a, const char *name, const char *value)
{
    argv_add(a, name);
    argv_add(a, value);
}

void argv_words(struct argv *a, const char *text)
{
    while (*(text += strspn(text, " "))) {
        size_t n = strcspn(text, " ");
        char *word = base_strndup(text, n);
        argv_add(a, word);
        free(word);
        text += n;
    }
}

static void add_quoted(struct str *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-./:=,+@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        str_add(out, word);
        return;
    }
    str_addc(out, '\'');
    for (; *word; word++) {
        if (*word == '\'')
            str_add(out, "'\\''");
        else
            str_addc(out, *word);
    }
    str_addc(out, '\'');
}

void argv_text(const struct argv *a, struct str *out)
{
    str_add(out, "berth");
    for (size_t i = 0; i < a->n; i++) {
        str_addc(out, ' ');
        add_quoted(out, a->word[i]);
    }
}
