#include <stdlib.h>

#include "base/alloc.h"
#include "cli/command.h"
#include "cli/evidence_load.h"
#include "cli/offers_load.h"
#include "tui/tui.h"

static const struct option OPTIONS[] = {
    {.name = "read-only",
        .kind = OPTION_FLAG,
        .is_setting = true,
        .help = "look only: nothing can be launched, stopped, resumed or written"},
    {.name = "ascii",
        .kind = OPTION_FLAG,
        .is_setting = true,
        .help = "draw with ASCII characters only, whatever the locale says"},
    {0},
};

static const struct option_group GROUP = {"Options", OPTIONS};

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    (void)out;
    static const enum tui_color COLORS[] = {TUI_COLOR_AUTO, TUI_COLOR_ALWAYS, TUI_COLOR_NEVER};
    int color = args_choice(args, "color");
    size_t n = args_times(args, "offers");
    const char **paths = base_calloc(n + 1, sizeof(*paths));
    char *calibration = rates_user_path();
    for (size_t i = 0; i < n; i++)
        paths[i] = args_nth(args, "offers", i);
    struct tui_options o = {
        .offers_paths = paths,
        .n_offers_paths = n,
        .has_here = args_flag(args, "here"),
        .ranks_per_node = args_int(args, "ranks-per-node", 0),
        .calibration_path = file_exists(calibration) ? calibration : NULL,
        .color = color < 0 ? TUI_COLOR_AUTO : COLORS[color],
        .is_read_only = args_flag(args, "read-only"),
        .is_ascii = args_flag(args, "ascii"),
    };
    enum rc rc = tui_main(&o, e);
    free(calibration);
    free(paths);
    return rc;
}

const struct command CMD_TUI = {
    .name = "tui",
    .topic = COMMAND_PLAN,
    .summary = "open the full-screen interface",
    .about = "What `berth` alone does on a terminal. `?` lists the keys of the view that is shown, "
             "each with the command that does the same; `q` leaves. Runs go on without it. Needs a "
             "terminal of 40x10 or more, best from 80x24.",
    .examples = (const char *const[]){"berth tui", "berth tui --offers nodes.csv",
        "berth tui --read-only", NULL},
    .groups = (const struct option_group *const[]){&OFFERS_OPTIONS, &GROUP, NULL},
    .run = run,
};
