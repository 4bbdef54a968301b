#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
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

static void set_v(struct err *e, enum rc code, const char *fmt, va_list ap)
{
    if (!e)
        return;
    e->code = code;
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    replace_control_bytes(e->msg);
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
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
    va_end(ap);
    replace_control_bytes(e->msg);
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

const char *rc_word(enum rc code)
{
    return RC_TABLE[code].word;
}
