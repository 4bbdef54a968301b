/* The loop between terminal, workers and screens: one poll, nothing else waits. */
#ifndef TUI_APP_H
#define TUI_APP_H

#include "tui/tui.h"

struct term;

enum app_end { APP_LEFT, APP_INTERRUPTED, APP_TERMINAL_GONE };

/* Run until the user leaves, the terminal goes away or a signal ends the program. */
enum app_end app_run(struct term *t, const struct tui_options *o);

#endif
