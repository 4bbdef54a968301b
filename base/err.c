#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    int exit_code;
    const char *word;
} RC_TABLE[] = {
#define X(name, exit_code, word) {exit_code, word},
    RC_MAP(X)
#undef X
};

static void replace_control_bytes(char *s)
{
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20 || c == 0x7f)
            *s = '?';
    }
}

enum { QUOTE_MOST = 200, QUOTE_HEAD = 120, QUOTE_TAIL = 60 };

/* Length of a quoted value at s, which begins behind its mark: up to the mark that a sentence goes
 * on behind. 0 when none closes it. */
static size_t quoted_len(const char *s)
{
    for (size_t n = 0; s[n]; n++)
        if (s[n] == '\'' && (s[n + 1] == '\0' || strchr(" ;:,.)", s[n + 1])))
            return n;
    return 0;
}

/* Copy text into msg; what it quotes at length loses its middle, so that the rest is still read. */
static void put_sentence(char msg[ERR_MSG_MAX], const char *text)
{
    size_t out = 0;
    while (*text && out + 1 < ERR_MSG_MAX) {
        size_t n = *text == '\'' ? quoted_len(text + 1) : 0;
        if (n <= QUOTE_MOST || out + 1 + QUOTE_HEAD + QUOTE_TAIL + 8 > ERR_MSG_MAX) {
            msg[out++] = *text++;
            continue;
        }
        size_t head = 1 + QUOTE_HEAD, tail = 1 + n - QUOTE_TAIL;
        while (((unsigned char)text[head] & 0xC0) == 0x80)
            head--; /* not inside a character */
        while (((unsigned char)text[tail] & 0xC0) == 0x80)
            tail++;
        memcpy(msg + out, text, head);
        out += head;
        memcpy(msg + out, "...", 3);
        out += 3;
        memcpy(msg + out, text + tail, n + 2 - tail);
        out += n + 2 - tail;
        text += n + 2;
    }
    msg[out] = '\0';
    replace_control_bytes(msg);
}

static void set_v(struct err *e, enum rc code, const char *fmt, va_list ap)
{
    char *text = NULL;
    if (!e)
        return;
    e->code = code;
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    put_sentence(e->msg, text ? text : "out of memory");
    free(text);
}

enum rc err_set(struct err *e, enum rc code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set_v(e, code, fmt, ap);
    va_end(ap);
    return code;
}

enum rc err_sys(struct err *e, enum rc code, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    set_v(e, code, fmt, ap);
    va_end(ap);
    if (e) {
        size_t used = strlen(e->msg);
        snprintf(e->msg + used, sizeof(e->msg) - used, ": %s", strerror(saved));
    }
    errno = saved;
    return code;
}

enum rc err_in(struct err *e, const char *fmt, ...)
{
    if (!e)
        return RC_FAILED;
    char old[ERR_MSG_MAX];
    memcpy(old, e->msg, sizeof(old));
    enum rc code = e->code;
    va_list ap;
    va_start(ap, fmt);
    set_v(e, code, fmt, ap);
    va_end(ap);
    size_t used = strlen(e->msg);
    snprintf(e->msg + used, sizeof(e->msg) - used, ": %s", old);
    return e->code;
}

enum rc err_input(struct err *e, enum rc rc)
{
    if (rc != RC_NOT_FOUND && rc != RC_IO && rc != RC_LIMIT)
        return rc;
    if (e)
        e->code = RC_INVALID;
    return RC_INVALID;
}

int rc_exit_code(enum rc code)
{
    return RC_TABLE[code].exit_code;
}

enum rc rc_of_exit_code(int status)
{
    for (size_t i = 0; i < sizeof RC_TABLE / sizeof RC_TABLE[0]; i++)
        if (RC_TABLE[i].exit_code == status)
            return (enum rc)i;
    return RC_FAILED;
}

const char *rc_word(enum rc code)
{
    return RC_TABLE[code].word;
}
