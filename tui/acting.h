/* The one command that changes something outside (launch, check, stop, resume, write), as it runs:
 * its words, what it says, how it ended. One at a time, so that nobody loses the overview. */
#ifndef TUI_ACTING_H
#define TUI_ACTING_H

#include <stdbool.h>
#include <stdint.h>

#include "tui/argv.h"
#include "tui/keys.h"
#include "tui/log_ring.h"

struct ui;

struct acting {
    enum action what; /* ACT_NONE: none yet */
    char title[32];   /* "launch", "stop RUN" */
    struct argv argv;
    struct log_ring log; /* its output */
    uint64_t serial;
    bool is_running;
    bool is_kept; /* it goes on when the screens end */
    int status;
    double since_s, ended_s; /* wall clock */
};

void acting_init(struct acting *a);
void acting_release(struct acting *a);
/* False, with a note, while one is running: to be asked before the user is asked anything. */
bool acting_is_free(struct ui *ui);
/* Prepare to run argv (taken: it is empty afterwards) and ask the loop to start it. A note is left
 * and false returned when another one is running. */
bool acting_begin(
    struct ui *ui, enum action what, const char *title, struct argv *argv, bool is_kept);
/* Lines that arrived, and the end. */
void acting_lines(struct acting *a, const char *text);
void acting_end(struct ui *ui, int status, const char *error);
/* Title line and the newest lines. */
void acting_draw(const struct ui *ui, struct pane p);

#endif
