#include "tui/tui.h"

#include "base/alloc.h"
#include "base/file.h"
#include "tui/app.h"
#include "tui/term.h"

/* What is left to say once the terminal is the user's again; nothing when nobody reads it. */
static enum rc farewell_for(enum app_end end, const char *log, struct err *e)
{
    if (log && end != APP_TERMINAL_GONE)
        fprintf(stderr, "berth: messages that would have disturbed the screen are in %s\n", log);
    if (end == APP_INTERRUPTED)
        return err_set(e, RC_INTERRUPTED, "interrupted; runs on the nodes go on (berth runs)");
    return end == APP_TERMINAL_GONE ? RC_INTERRUPTED : RC_OK;
}

enum rc tui_main(const struct tui_options *o, struct err *e)
{
    char *state = path_user(PATH_STATE);
    char *log = path_join(state, "screens.log");
    char *farewell = base_printf("; runs on the nodes go on (berth runs); messages are in %s", log);
    struct err ignored = ERR_INIT;
    dir_make(state, 0700, &ignored); /* without a log the screens work all the same */
    struct term_options options = {o->color, o->is_ascii, log, farewell};
    struct tui_options own = *o;
    char *plan = path_join(state, "plan.json");
    own.plan_path = plan;
    struct term *term;
    int64_t logged = file_size(log);
    enum rc rc = term_start(&term, &options, e);
    if (!rc) {
        enum app_end end = app_run(term, &own);
        term_stop(term);
        rc = farewell_for(end, file_size(log) > logged ? log : NULL, e);
    }
    free(plan);
    free(farewell);
    free(log);
    free(state);
    return rc;
}
