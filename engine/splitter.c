#include "engine/splitter.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/alloc.h"
#include "base/str.h"

enum { JIT_STACK_BYTES = 8 << 20, MESSAGE = 256 };

/* Unicode's White_Space, inside a class. PCRE2's own \s also has U+180E. */
#define SPACES                                                                                     \
    "\\t-\\r\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"          \
    "\\x{205f}\\x{3000}"

struct splitter {
    pcre2_code *code;
    bool has_jit;
};

struct splitter_work {
    const struct splitter *s;
    pcre2_match_data *match;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

/* --- from one library's syntax to the other's --- */

/* "{L}" or "{Nd}": a general category. Scripts and the like differ between versions of Unicode. */
static bool is_category(const char *p)
{
    size_t letters = p[0] == '{' ? strcspn(p + 1, "}") : 0;
    return (letters == 1 || letters == 2) && p[letters + 1] == '}';
}

/* The escape whose letter is at **at: copied, replaced or refused; *at ends on its last byte. */
static enum rc put_escape(struct str *out, const char **at, bool in_class, struct err *e)
{
    const char *p = *at;
    bool is_property = strchr("pP", *p) && is_category(p + 1);
    bool is_word = (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z');
    if (*p == '\0')
        return err_set(e, RC_INVALID, "the expression ends with a backslash");
    if (*p == 's')
        str_add(out, in_class ? SPACES : "[" SPACES "]");
    else if (*p == 'S')
        str_add(out, in_class ? "\\S\\x{180e}" : "[^" SPACES "]");
    else if (is_property)
        *at += strcspn(p, "}");
    else if (is_word && !strchr("dDrntf", *p))
        return err_set(
            e, RC_INVALID, "'\\%.6s' in the expression of a pre-tokenizer is not supported", p);
    if (!strchr("sS", *p))
        str_addf(out, "\\%.*s", (int)(*at - p) + 1, p);
    return RC_OK;
}

static enum rc put_in_class(struct str *out, const char *p, struct err *e)
{
    if (*p == '[' || (p[0] == '&' && p[1] == '&'))
        return err_set(e, RC_INVALID,
            "classes within classes in the expression of a pre-tokenizer are not "
            "supported");
    str_addc(out, *p);
    return RC_OK;
}

static enum rc put_outside(struct str *out, const char *p, struct err *e)
{
    if (*p == '^' || *p == '$' || *p == '.' || (p[0] == '}' && p[1] == '+'))
        return err_set(e, RC_INVALID,
            "'%.*s' in the expression of a pre-tokenizer is not supported", *p == '}' ? 2 : 1, p);
    str_addc(out, *p);
    return RC_OK;
}

static enum rc translate(struct str *out, const char *regex, struct err *e)
{
    bool in_class = false;
    enum rc rc = RC_OK;
    for (const char *p = regex; *p && !rc; p++) {
        if (*p == '\\') {
            p++;
            rc = put_escape(out, &p, in_class, e);
        } else if (in_class) {
            in_class = *p != ']';
            rc = put_in_class(out, p, e);
        } else if (*p == '[') {
            in_class = true;
            str_addc(out, *p);
            if (p[1] == '^')
                str_addc(out, *++p);
            if (p[1] == ']') /* a ] at the start stands for itself */
                str_addc(out, *++p);
        } else {
            rc = put_outside(out, p, e);
        }
    }
    return rc;
}

/* --- life cycle --- */

enum rc splitter_new(struct splitter **out, const char *regex, struct err *e)
{
    struct str pattern = STR_INIT;
    int number = 0;
    PCRE2_SIZE at = 0;
    *out = NULL;
    enum rc rc = translate(&pattern, regex, e);
    if (rc) {
        str_release(&pattern);
        return rc;
    }
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)str_text(&pattern), pattern.len,
        PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &number, &at, NULL);
    str_release(&pattern);
    if (!code) {
        char message[MESSAGE];
        pcre2_get_error_message(number, (PCRE2_UCHAR *)message, sizeof(message));
        return err_set(
            e, RC_INVALID, "the expression of a pre-tokenizer is not understood: %s", message);
    }
    struct splitter *s = base_calloc(1, sizeof(*s));
    s->code = code;
    s->has_jit = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
    *out = s;
    return RC_OK;
}

void splitter_free(struct splitter *s)
{
    if (!s)
        return;
    pcre2_code_free(s->code);
    free(s);
}

struct splitter_work *splitter_work_new(const struct splitter *s)
{
    struct splitter_work *w = base_calloc(1, sizeof(*w));
    w->s = s;
    w->match = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    w->stack = s->has_jit ? pcre2_jit_stack_create(32 << 10, JIT_STACK_BYTES, NULL) : NULL;
    if (w->stack)
        pcre2_jit_stack_assign(w->context, NULL, w->stack);
    return w;
}

void splitter_work_free(struct splitter_work *w)
{
    if (!w)
        return;
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    if (w->stack)
        pcre2_jit_stack_free(w->stack);
    free(w);
}

/* --- matching --- */

static int match(struct splitter_work *w, const char *text, size_t n, size_t from)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    if (w->s->has_jit)
        return pcre2_jit_match(w->s->code, subject, n, from, 0, w->match, w->context);
    return pcre2_match(w->s->code, subject, n, from, PCRE2_NO_UTF_CHECK, w->match, w->context);
}

static size_t next_character(const char *text, size_t n, size_t i)
{
    do
        i++;
    while (i < n && ((unsigned char)text[i] & 0xc0) == 0x80);
    return i;
}

enum rc splitter_next(struct splitter_work *w, const char *text, size_t n, size_t from,
    size_t *start, size_t *end, struct err *e)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(w->match);
    *start = *end = n;
    while (from < n) {
        int got = match(w, text, n, from);
        if (got == PCRE2_ERROR_NOMATCH)
            return RC_OK;
        if (got < 0) {
            char message[MESSAGE];
            pcre2_get_error_message(got, (PCRE2_UCHAR *)message, sizeof(message));
            return err_set(
                e, RC_LIMIT, "the expression of the pre-tokenizer fails on this text: %s", message);
        }
        if (found[1] > found[0]) {
            *start = found[0];
            *end = found[1];
            return RC_OK;
        }
        from = next_character(text, n, found[1]);
    }
    return RC_OK;
}
