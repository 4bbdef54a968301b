#include <stddef.h>

#include "cli/command.h"
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
    struct tui_options o = {
        .color = color < 0 ? TUI_COLOR_AUTO : COLORS[color],
        .is_read_only = args_flag(args, "read-only"),
        .is_ascii = args_flag(args, "ascii"),
    };
    return tui_main(&o, e);
}

const struct command CMD_TUI = {
    .name = "tui",
    .topic = COMMAND_PLAN,
    .summary = "open the full-screen interface",
    .about = "What `berth` alone does on a terminal. `?` lists the keys of the view that is shown, "
             "each with the command that does the same; `q` leaves. Runs go on without it. Needs a "
             "terminal of 40x10 or more, best from 80x24.",
    .examples = (const char *const[]){"berth tui", "berth tui --read-only", NULL},
    .groups = (const struct option_group *const[]){&GROUP, NULL},
    .run = run,
};
