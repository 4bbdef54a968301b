#include "cli/engine_options.h"

#include "base/str.h"
#include "planner/engine_use.h"

static const struct option ENGINE[] = {
    {.name = "engine",
        .kind = OPTION_CHOICE,
        .is_setting = true,
        .argument = "NAME",
        .choices = ENGINE_CHOICES,
        .help = "the training engine; default berth, the bundled one",
        .detail = "Others are predicted and planned, not launched; `berth export` writes their "
                  "configuration.",
        .example = "--engine fsdp2"},
    {.name = "stack",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .help = "measured software whose constants predict another engine",
        .detail = "Default: the one with most published runs. An unknown name lists those of the "
                  "engine.",
        .example = "--stack fsdp2-torchtitan"},
    {.name = "calibration",
        .kind = OPTION_FILE,
        .help = "constants of your own (berth calibrate) over the built-in ones",
        .example = "--calibration mine.json"},
    {0},
};
const struct option_group ENGINE_OPTIONS = {"Engine", ENGINE};

enum engine engine_from_args(const struct args *args)
{
    int g = args_choice(args, "engine");
    return g >= 0 ? (enum engine)g : ENGINE_BERTH;
}

enum rc engine_stack_from_args(char out[RATES_NAME], const struct rates *r, enum engine g,
    const struct args *args, struct err *e)
{
    const char *name = args_text(args, "stack");
    engine_stack(out, r, g);
    if (!name)
        return RC_OK;
    enum rc rc = engine_check_stack(r, g, name, e);
    if (!rc && !str_copy(out, RATES_NAME, name))
        rc = err_set(e, RC_LIMIT, "option '--stack' is too long");
    return rc;
}
