#include "cli/output.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/table.h"

struct out {
    bool is_json, is_quiet, is_plain, is_reproducible, no_input, is_yes, no_header;
    bool is_terminal, err_is_terminal;
    bool has_colour, err_has_colour;
    bool has_document; /* the one JSON document was printed */
    bool has_failed;   /* stdout took no more */
    int failed_errno;
    char *hint;
    char *progress;       /* last text of out_progress */
    double progress_at_s; /* when it was drawn */
    bool is_drawn;        /* a progress line stands on the terminal */
};

enum { COLOUR_AUTO, COLOUR_ALWAYS, COLOUR_NEVER };

static bool env_is_set(const char *name)
{
    const char *v = getenv(name);
    return v && *v;
}

/* Flag and configuration first, then NO_COLOR, FORCE_COLOR, TERM, and the stream itself. */
static bool wants_colour(int choice, bool is_terminal)
{
    if (choice != COLOUR_AUTO)
        return choice == COLOUR_ALWAYS;
    if (env_is_set("NO_COLOR"))
        return false;
    if (env_is_set("FORCE_COLOR"))
        return true;
    const char *term = getenv("TERM");
    return is_terminal && term && strcmp(term, "dumb") != 0;
}

struct out *out_new(const struct args *args)
{
    struct out *o = base_calloc(1, sizeof(*o));
    o->is_json = args_flag(args, "json");
    o->is_quiet = args_flag(args, "quiet");
    o->is_plain = args_flag(args, "plain");
    o->is_reproducible = args_flag(args, "reproducible");
    o->no_input = args_flag(args, "no-input");
    o->is_yes = args_flag(args, "yes");
    o->no_header = args_flag(args, "no-header");
    o->is_terminal = isatty(STDOUT_FILENO);
    o->err_is_terminal = isatty(STDERR_FILENO);
    int colour = args_choice(args, "color");
    o->has_colour = wants_colour(colour, o->is_terminal);
    o->err_has_colour = wants_colour(colour, o->err_is_terminal);
    return o;
}

void out_free(struct out *o)
{
    if (!o)
        return;
    free(o->hint);
    free(o->progress);
    free(o);
}

bool out_is_json(const struct out *o)
{
    return o->is_json;
}

bool out_is_quiet(const struct out *o)
{
    return o->is_quiet;
}

bool out_is_plain(const struct out *o)
{
    return o->is_plain;
}

bool out_is_reproducible(const struct out *o)
{
    return o->is_reproducible;
}

bool out_is_terminal(const struct out *o)
{
    return o->is_terminal;
}

bool out_err_is_terminal(const struct out *o)
{
    return o->err_is_terminal;
}

/* --- the answer ------------------------------------------------------------------------------- */

static const char *style_code(enum style style)
{
    static const char *const CODES[] = {
        "", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m"};
    return CODES[style];
}

/* Whoever read us has gone: end as quietly as the signal would have, even if it is ignored. */
static void die_of_broken_pipe(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
}

void out_lines(struct out *o, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        char *line = base_strndup(text, n);
        out_text(o, line);
        free(line);
        text += n;
        if (*text == '\n') {
            out_bytes(o, "\n", 1);
            text++;
        }
    }
}

void out_bytes(struct out *o, const void *data, size_t len)
{
    if (o->has_failed || fwrite(data, 1, len, stdout) == len)
        return;
    o->has_failed = true;
    o->failed_errno = errno;
    if (errno == EPIPE)
        die_of_broken_pipe();
}

void out_flush(struct out *o)
{
    if (o->has_failed || fflush(stdout) == 0)
        return;
    o->has_failed = true;
    o->failed_errno = errno;
    if (errno == EPIPE)
        die_of_broken_pipe();
}

void out_printf(struct out *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n >= 0)
        out_bytes(o, text, (size_t)n);
    free(text);
}

void out_text(struct out *o, const char *text)
{
    char *safe = text_safe(text);
    out_bytes(o, safe, strlen(safe));
    free(safe);
}

static int terminal_width(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return 80;
}

/* The locale's character set by its name: we do not call setlocale, so that numbers stay in C. */
static bool is_utf8_locale(void)
{
    static const char *const NAMES[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < BASE_COUNT(NAMES); i++)
        if (env_is_set(NAMES[i]))
            return strcasestr(getenv(NAMES[i]), "utf-8") || strcasestr(getenv(NAMES[i]), "utf8");
    return false;
}

void out_table(struct out *o, struct table *t, const struct args *args)
{
    struct table_style style = {.is_plain = o->is_plain, .has_header = !o->no_header};
    if (o->is_terminal)
        style.width = terminal_width();
    if (!is_utf8_locale())
        style.ellipsis = "~";
    if (o->has_colour) {
        style.header_on = style_code(STYLE_BOLD);
        style.header_off = "\x1b[0m";
    }
    struct str s = STR_INIT;
    table_print(t, &style, &s);
    out_bytes(o, str_text(&s), s.len);
    str_release(&s);
    table_free(t);
}

struct json *out_document(const struct out *o, const char *schema)
{
    char now[CLOCK_TEXT];
    struct json *doc = json_obj();
    json_add_str(doc, "schema", schema);
    json_add_str(
        doc, "generated_at", o->is_reproducible ? NULL : clock_rfc3339(now, clock_wall_s()));
    return doc;
}

/* What the handler of an interrupt needs to know: nothing that it would have to make. */
static struct {
    volatile sig_atomic_t is_writing, was_written, is_pending;
    char document[512];
    size_t len;
} interrupt;

void out_json(struct out *o, struct json *doc)
{
    char *text = json_print(doc, true);
    interrupt.is_writing = 1;
    out_bytes(o, text, strlen(text));
    out_flush(o);
    interrupt.was_written = 1;
    interrupt.is_writing = 0;
    if (interrupt.is_pending)
        _exit(rc_exit_code(RC_INTERRUPTED));
    o->has_document = true;
    free(text);
    json_free(doc);
}

void out_whole_text(
    struct out *o, const char *schema, const char *name, const char *value, const char *text)
{
    if (!o->is_json) {
        out_bytes(o, text, strlen(text));
        return;
    }
    struct json *doc = out_document(o, schema);
    json_add_str(doc, name, value);
    json_add_str(doc, "text", text);
    out_json(o, doc);
}

void out_json_line(struct out *o, struct json *v)
{
    char *text = json_print(v, false);
    out_printf(o, "%s\n", text);
    out_flush(o);
    o->has_document = true;
    interrupt.was_written = 1;
    free(text);
    json_free(v);
}

/* --- beside the answer ------------------------------------------------------------------------ */

void out_progress_end(struct out *o)
{
    if (o->is_drawn)
        fputs("\r\x1b[K", stderr);
    o->is_drawn = false;
}

static bool is_chatty(const struct out *o)
{
    return !o->is_quiet && (!o->is_json || o->err_is_terminal);
}

/* One line on stderr after what stdout holds so far. */
static void say_v(struct out *o, enum style style, const char *prefix, const char *fmt, va_list ap)
{
    char *text = NULL;
    if (vasprintf(&text, fmt, ap) < 0)
        return;
    out_flush(o);
    out_progress_end(o);
    char *safe = text_safe(text);
    bool is_on = o->err_has_colour && style != STYLE_NONE;
    fprintf(
        stderr, "%s%s%s%s\n", is_on ? style_code(style) : "", prefix, is_on ? "\x1b[0m" : "", safe);
    free(safe);
    free(text);
}

static void say(struct out *o, enum style style, const char *prefix, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say_v(o, style, prefix, fmt, ap);
    va_end(ap);
}

void out_note(struct out *o, const char *fmt, ...)
{
    if (!is_chatty(o))
        return;
    va_list ap;
    va_start(ap, fmt);
    say_v(o, STYLE_NONE, "", fmt, ap);
    va_end(ap);
}

void out_warn(struct out *o, const char *fmt, ...)
{
    if (o->is_quiet)
        return;
    va_list ap;
    va_start(ap, fmt);
    say_v(o, STYLE_YELLOW, "berth: warning: ", fmt, ap);
    va_end(ap);
}

void out_short_help(struct out *o, const char *text)
{
    if (is_chatty(o))
        fputs(text, stderr);
}

void out_force(struct out *o, bool is_json, bool is_reproducible)
{
    o->is_json = o->is_json || is_json;
    o->is_reproducible = o->is_reproducible || is_reproducible;
}

static void draw_progress(struct out *o, const char *text)
{
    if (!o->err_is_terminal) {
        char now[CLOCK_TEXT];
        fprintf(stderr, "%s %s\n", clock_rfc3339(now, clock_wall_s()), text);
        return;
    }
    fprintf(stderr, "\r%s\x1b[K", text);
    fflush(stderr);
    o->is_drawn = true;
}

void out_progress(struct out *o, const char *fmt, ...)
{
    if (!is_chatty(o))
        return;
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    double now = clock_now_s();
    bool is_due = !o->err_is_terminal || now - o->progress_at_s >= 0.1;
    if (is_due && (!o->progress || strcmp(o->progress, text) != 0)) {
        free(o->progress);
        o->progress = text_safe(text);
        o->progress_at_s = now;
        draw_progress(o, o->progress);
    }
    free(text);
}

void out_hint(struct out *o, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    if (vasprintf(&text, fmt, ap) >= 0) {
        free(o->hint);
        o->hint = text_safe(text);
    }
    va_end(ap);
    free(text);
}

static struct json *error_document(const struct out *o, enum rc rc, const char *message)
{
    struct json *doc = out_document(o, "error/1");
    json_add_str(doc, "code", rc_word(rc));
    json_add_str(doc, "message", message);
    json_add_str(doc, "hint", o->hint);
    return doc;
}

void out_arm_interrupt(struct out *o)
{
    if (!o->is_json)
        return;
    struct json *doc = error_document(o, RC_INTERRUPTED, "interrupted");
    char *text = json_print(doc, true);
    if (str_copy(interrupt.document, sizeof(interrupt.document), text))
        interrupt.len = strlen(text);
    free(text);
    json_free(doc);
}

void out_leave_on_interrupt(int signal_number)
{
    (void)signal_number;
    if (interrupt.is_writing && !interrupt.is_pending) {
        interrupt.is_pending = 1; /* the document shall be whole; the second Ctrl-C leaves now */
        return;
    }
    bool needs_document = interrupt.len && !interrupt.is_writing && !interrupt.was_written;
    if (needs_document && write(STDOUT_FILENO, interrupt.document, interrupt.len) < 0)
        _exit(rc_exit_code(RC_INTERRUPTED));
    _exit(rc_exit_code(RC_INTERRUPTED));
}

int out_finish(struct out *o, enum rc rc, const struct err *e)
{
    const char *message = rc ? e->msg : "";
    if (rc && o->is_json && !o->has_document)
        out_json(o, error_document(o, rc, message));
    out_flush(o);
    out_progress_end(o);
    if (*message)
        say(o, STYLE_RED, "berth: ", "%s", message);
    if (rc && o->hint && !o->is_quiet)
        say(o, STYLE_NONE, "", "hint: %s", o->hint);
    if (o->has_failed && !rc) {
        say(o, STYLE_RED, "berth: ", "cannot write standard output: %s", strerror(o->failed_errno));
        rc = RC_IO;
    }
    return rc_exit_code(rc);
}

enum rc out_confirm(struct out *o, const char *question, struct err *e)
{
    if (o->is_yes)
        return RC_OK;
    if (o->no_input || !isatty(STDIN_FILENO) || !o->err_is_terminal)
        return err_set(e, RC_CONFIRM, "%s needs a confirmation; pass --yes to go ahead", question);
    out_flush(o);
    out_progress_end(o);
    char *safe = text_safe(question);
    fprintf(stderr, "%s? [y/N] ", safe);
    free(safe);
    char line[16] = "";
    if (fgets(line, sizeof(line), stdin) && (line[0] == 'y' || line[0] == 'Y'))
        return RC_OK;
    return err_set(e, RC_CONFIRM, "not confirmed, nothing was changed");
}
