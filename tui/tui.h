/* The terminal interface: what `berth` alone on a terminal opens. */
#ifndef TUI_TUI_H
#define TUI_TUI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum tui_color { TUI_COLOR_AUTO, TUI_COLOR_NEVER, TUI_COLOR_ALWAYS };

struct tui_options {
    const char *const *offers_paths; /* offers/1 documents or CSV */
    size_t n_offers_paths;           /* 0, and not has_here: the bundled sample */
    bool has_here;                   /* this machine as an offer */
    int64_t ranks_per_node;          /* of this machine's CPU; 0: choose */
    const char *calibration_path;    /* constants of the user's own; NULL: there are none */
    const char *plan_path;           /* where a plan is put for its launch; set by tui_main */
    bool is_read_only;               /* launch, stop and resume are not offered */
    bool is_ascii;                   /* no characters beyond ASCII, whatever the locale */
    enum tui_color color;
};

/* Show the screens until the user leaves. Call it before any thread is started: it blocks the
 * signals it reads itself. RC_USAGE with a sentence that names the headless commands when standard
 * input or output is no terminal, or the terminal cannot address its cursor; nothing has been
 * written then. RC_INTERRUPTED when a signal ended it, without a sentence when the terminal is
 * gone. The terminal is as it was before on every return. */
enum rc tui_main(const struct tui_options *o, struct err *e);

#endif
