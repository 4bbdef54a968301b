#include "tui/tui.h"

#include "base/alloc.h"
#include "base/file.h"
#include "tui/app.h"
#include "tui/term.h"

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
    enum rc rc = term_start(&term, &options, e);
    if (!rc) {
        app_run(term, &own);
        term_stop(term);
    }
    free(plan);
    free(farewell);
    free(log);
    free(state);
    return rc;
}
