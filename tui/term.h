/* The terminal itself: the only user of curses, of terminal signals and of raw descriptors.
 *
 * One terminal per process, all calls from the thread that called term_start. Whatever happens
 * between term_start and term_stop (a signal, a crash, an assertion), the terminal is left as it
 * was found. */
#ifndef TUI_TERM_H
#define TUI_TERM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "tui/grid.h"
#include "tui/tui.h"

struct term;

/* Keys that are no character. Characters are their code point; both kinds fit into an int. */
enum term_key {
    K_ENTER = '\r',
    K_TAB = '\t',
    K_ESC = 27,
    K_BACKSPACE = 127,
    K_CTRL_L = 12,
    K_CTRL_U = 21,
    K_CTRL_W = 23,
    K_UP = 0x110000,
    K_DOWN,
    K_LEFT,
    K_RIGHT,
    K_PAGE_UP,
    K_PAGE_DOWN,
    K_HOME,
    K_END,
    K_DELETE,
    K_BACK_TAB,
    K_F1,
    K_F5,
    K_F10,
    K_PASTE /* pasted text: term_pasted */
};

enum term_signal {
    TERM_SIGNAL_NONE,
    TERM_SIGNAL_RESIZE,
    TERM_SIGNAL_INTERRUPT, /* Ctrl-C */
    TERM_SIGNAL_END,       /* somebody ends the program */
    TERM_SIGNAL_GONE       /* the terminal is no longer there */
};

struct term_options {
    enum tui_color color;
    bool is_ascii;
    const char *log_path; /* where standard error goes meanwhile; borrowed for the call */
    const char *farewell; /* written after a crash; must live until term_stop */
};

/* Take the terminal over. Fails with RC_USAGE before anything was written. */
enum rc term_start(struct term **out, const struct term_options *o, struct err *e);
/* Give it back; NULL is allowed. */
void term_stop(struct term *t);

/* Descriptors to wait on: keys, and signals. */
int term_key_fd(const struct term *t);
int term_signal_fd(const struct term *t);
/* Milliseconds until term_next_key must be called again although nothing arrived, -1 for never
 * (a paste without an end). */
int term_timeout_ms(const struct term *t);

/* Next waiting key into *key. False when there is none; is_gone says that there never will be. */
bool term_next_key(struct term *t, int *key, bool *is_gone);
/* Text of the last K_PASTE, control characters included. Borrowed until the next key. */
const char *term_pasted(const struct term *t);
/* Next waiting signal; TERM_SIGNAL_NONE when there is none. A resize is already applied. */
enum term_signal term_next_signal(struct term *t);

void term_size(const struct term *t, int *rows, int *cols);
enum glyph_level term_glyphs(const struct term *t);
/* Copy the grid out: only rows that changed since the last call are touched. */
void term_show(struct term *t, const struct grid *g);
/* Paint everything anew at the next term_show. */
void term_damage(struct term *t);

/* Version of the terminal library, e.g. "ncurses 6.4.20221231". */
const char *term_library_version(void);

#endif
