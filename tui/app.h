/* The loop between terminal, workers and screens: one poll, nothing else waits. */
#ifndef TUI_APP_H
#define TUI_APP_H

#include "tui/tui.h"

struct term;

/* Run until the user leaves, the terminal goes away or a signal ends the program. */
void app_run(struct term *t, const struct tui_options *o);

#endif
