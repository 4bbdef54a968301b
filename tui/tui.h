/* The terminal interface: what `berth` alone on a terminal opens. */
#ifndef TUI_TUI_H
#define TUI_TUI_H

#include <stdbool.h>

#include "base/err.h"

enum tui_color { TUI_COLOR_AUTO, TUI_COLOR_NEVER, TUI_COLOR_ALWAYS };

struct tui_options {
    const char *offers_path; /* an offers/1 document or CSV; NULL: the configured inventory */
    const char *job_path;    /* a job file to start from; NULL: a small default job */
    bool has_here;           /* this machine as an offer, too */
    bool is_read_only;       /* launch, stop and resume are not offered */
    bool is_ascii;           /* no characters beyond ASCII, whatever the locale */
    enum tui_color color;
};

/* Show the screens until the user leaves. Call it before any thread is started: it blocks the
 * signals it reads itself. RC_USAGE with a sentence that names the headless commands when standard
 * input or output is no terminal, or the terminal cannot address its cursor; nothing has been
 * written then. The terminal is as it was before on every return. */
enum rc tui_main(const struct tui_options *o, struct err *e);

#endif
