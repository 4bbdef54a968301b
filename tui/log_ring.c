#include "tui/log_ring.h"

#include "base/alloc.h"

void log_ring_init(struct log_ring *r, size_t max_bytes)
{
    *r = (struct log_ring){.max_bytes = max_bytes};
}

void log_ring_reset(struct log_ring *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->line[i]);
    r->n = r->bytes = 0;
    r->dropped = 0;
}

void log_ring_release(struct log_ring *r)
{
    log_ring_reset(r);
    free(r->line);
    r->line = NULL;
    r->cap = 0;
}

/* Drop the oldest lines; an eighth more than needed, so that moving the rest stays rare. */
static void make_room(struct log_ring *r)
{
    size_t gone = 0;
    while (gone < r->n && r->bytes > r->max_bytes - r->max_bytes / 8) {
        r->bytes -= strlen(r->line[gone]) + 1;
        free(r->line[gone++]);
    }
    memmove(r->line, r->line + gone, (r->n - gone) * sizeof(*r->line));
    r->n -= gone;
    r->dropped += gone;
}

static void add_line(struct log_ring *r, const char *text, size_t n)
{
    if (n > 0 && text[n - 1] == '\r')
        n--;
    if (n > LOG_LINE_MAX)
        n = LOG_LINE_MAX;
    BASE_GROW(r->line, r->cap, r->n + 1);
    r->line[r->n++] = base_strndup(text, n);
    r->bytes += n + 1;
    if (r->bytes > r->max_bytes)
        make_room(r);
}

void log_ring_add(struct log_ring *r, const char *text)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        add_line(r, text, n);
        text += n;
        text += *text == '\n';
    }
}

static bool is_shown(const char *line, const char *filter)
{
    return !*filter || strcasestr(line, filter);
}

size_t log_ring_newest(
    const struct log_ring *r, const char *filter, size_t skip, const char **out, size_t max)
{
    size_t n = 0, at = r->n;
    if (!*filter) { /* all match: no need to look at them */
        at -= skip < at ? skip : at;
        skip = 0;
    }
    while (at-- > 0 && n < max) {
        if (!is_shown(r->line[at], filter))
            continue;
        if (skip > 0)
            skip--;
        else
            out[n++] = r->line[at];
    }
    return n;
}

size_t log_ring_count(const struct log_ring *r, const char *filter)
{
    size_t n = 0;
    if (!*filter)
        return r->n;
    for (size_t i = 0; i < r->n; i++)
        n += is_shown(r->line[i], filter);
    return n;
}
