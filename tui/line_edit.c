#include "tui/line_edit.h"

#include "base/str.h"
#include "base/text.h"
#include "tui/term.h"
#include "tui/text_put.h"

void line_edit_set(struct line_edit *l, const char *text)
{
    l->len = l->at = 0;
    l->text[0] = '\0';
    line_edit_paste(l, text);
}

bool line_edit_clear(struct line_edit *l)
{
    bool had = l->len > 0;
    line_edit_set(l, "");
    return had;
}

void line_edit_begin(struct line_edit *l)
{
    str_copy(l->before, sizeof(l->before), l->text);
    l->at = l->len;
}

void line_edit_undo(struct line_edit *l)
{
    line_edit_set(l, l->before);
}

static void insert(struct line_edit *l, const char *bytes, size_t n)
{
    if (l->len + n >= sizeof(l->text))
        return;
    memmove(l->text + l->at + n, l->text + l->at, l->len - l->at + 1);
    memcpy(l->text + l->at, bytes, n);
    l->len += n;
    l->at += n;
}

static void erase(struct line_edit *l, size_t from, size_t to)
{
    memmove(l->text + from, l->text + to, l->len - to + 1);
    l->len -= to - from;
    l->at = from;
}

static size_t before(const struct line_edit *l, size_t at)
{
    while (at > 0 && (l->text[--at] & 0xc0) == 0x80)
        ;
    return at;
}

static size_t after(const struct line_edit *l, size_t at)
{
    unsigned cp;
    return at < l->len ? at + text_decode(l->text + at, l->len - at, &cp) : at;
}

static size_t word_before(const struct line_edit *l)
{
    size_t at = l->at;
    while (at > 0 && l->text[at - 1] == ' ')
        at--;
    while (at > 0 && l->text[at - 1] != ' ')
        at--;
    return at;
}

static size_t encode(int cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t n = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 63));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | cp);
    return n;
}

static bool is_printable(int key)
{
    return key >= ' ' && key != K_BACKSPACE && key < K_UP && !(key >= 0x80 && key < 0xa0) &&
           text_columns((unsigned)key) > 0;
}

bool line_edit_key(struct line_edit *l, int key)
{
    char bytes[4];
    if (is_printable(key))
        insert(l, bytes, encode(key, bytes));
    else if (key == K_BACKSPACE)
        erase(l, before(l, l->at), l->at);
    else if (key == K_DELETE)
        erase(l, l->at, after(l, l->at));
    else if (key == K_CTRL_U)
        erase(l, 0, l->at);
    else if (key == K_CTRL_W)
        erase(l, word_before(l), l->at);
    else if (key == K_LEFT)
        l->at = before(l, l->at);
    else if (key == K_RIGHT)
        l->at = after(l, l->at);
    else if (key == K_HOME)
        l->at = 0;
    else if (key == K_END)
        l->at = l->len;
    else
        return false;
    return true;
}

void line_edit_paste(struct line_edit *l, const char *text)
{
    size_t left = strlen(text);
    while (left > 0 && *text != '\n' && *text != '\r') {
        unsigned cp;
        size_t n = text_decode(text, left, &cp);
        if (is_printable((int)cp) && cp != 0xfffd)
            insert(l, text, n);
        text += n;
        left -= n;
    }
}

void line_edit_draw(
    const struct line_edit *l, struct pane p, int y, int x, int width, bool is_active)
{
    if (!is_active) {
        text_put(p, y, x, width, ROLE_FIELD, l->text);
        return;
    }
    char head[LINE_EDIT_MAX];
    size_t from = 0;
    str_copy(head, l->at + 1, l->text);
    while (text_width(head + from) >= width && from < l->at)
        from = after(l, from);
    text_put(p, y, x, width, ROLE_CURSOR, l->text + from);
    pane_cursor(p, y, x + text_width(head + from));
}

void line_edit_draw_filter(const struct line_edit *l, struct pane p, int x, bool is_active)
{
    if (l->len == 0 && !is_active)
        return;
    x = text_putf(p, 0, x, ROLE_KEY, " / ");
    line_edit_draw(l, p, 0, x, p.r.w - x - 2 < 32 ? p.r.w - x - 2 : 32, is_active);
}

void line_edit_draw_field(const struct line_edit *l, struct pane line, const char *name, int label,
    int width, bool is_here, bool is_active)
{
    text_put(line, 0, 2, label, is_here ? ROLE_HEADER : ROLE_NORMAL, name);
    if (is_here)
        pane_put(line, 0, 0, '>', ROLE_KEY);
    line_edit_draw(l, line, 0, 2 + label, width, is_active);
    if (is_here && !is_active)
        pane_paint(line, 0, 2 + label, width, ROLE_SELECTED);
}
