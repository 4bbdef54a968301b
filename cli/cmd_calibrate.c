#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/evidence_load.h"
#include "cli/output.h"
#include "planner/calibrate.h"

static const struct option OPTIONS[] = {
    {.name = "output",
        .letter = 'o',
        .kind = OPTION_FILE,
        .argument = "FILE",
        .help = "write the constants there",
        .example = "-o mine.json"},
    {.name = "calibration",
        .kind = OPTION_FILE,
        .argument = "FILE",
        .help = "start from the built-in constants with these on top",
        .example = "--calibration mine.json"},
    {.name = "fresh",
        .kind = OPTION_FLAG,
        .help = "start from the judged constants alone, as the built-in fit does"},
    {.name = "date",
        .kind = OPTION_TEXT,
        .argument = "DATE",
        .help = "date to write beside the constants, in place of today",
        .example = "--date 2026-11-30"},
    {0},
};
static const struct option_group FIT_OPTIONS = {"From what, and where to", OPTIONS};

static void print(const struct calibrate_result *r, const struct args *args, struct out *out)
{
    if (out_is_json(out)) {
        out_json(out, json_clone(r->document));
        return;
    }
    out_printf(out, "%zu constants from %zu runs, which they meet to %.1f %% on average\n",
        r->constants, r->rows, 100 * r->residual);
    if (!args_has(args, "output"))
        out_note(out, "-o FILE keeps them; plans use them with --calibration FILE");
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct evidence ev = {0};
    struct rates *rates = NULL;
    struct calibrate_result fitted = {0};
    char today[CLOCK_TEXT];
    clock_rfc3339(today, clock_wall_s());
    today[10] = '\0';
    enum rc rc = evidence_load(&ev, args_operand(args, 0), e);
    if (!rc)
        rc = args_has(args, "fresh") ? rates_judged(&rates, e) : rates_load(&rates, args, e);
    if (!rc) {
        struct calibrate_input in = {.evidence = &ev,
            .base = rates,
            .source = args_operand(args, 0),
            .date = args_has(args, "date") ? args_text(args, "date") : today};
        rc = calibrate_fit(&fitted, &in, e);
    }
    if (!rc && args_has(args, "output"))
        rc = rates_write(fitted.document, args_text(args, "output"), e);
    if (!rc)
        print(&fitted, args, out);
    calibrate_release(&fitted);
    rates_free(rates);
    evidence_release(&ev);
    return rc;
}

const struct command CMD_CALIBRATE = {
    .name = "calibrate",
    .topic = COMMAND_PLAN,
    .summary = "fit the planner's constants to measured training runs",
    .operands = "FILE.csv",
    .min_operands = 1,
    .max_operands = 1,
    .about =
        "Reads a table of measured runs, as validate does, and fits the constants that price "
        "operations: of each GPU, of each software stack, and a small correction of each pair. "
        "Every constant stays near its former value unless runs say otherwise, and is written "
        "with its source, date, number of runs and how well they are met.",
    .examples = (const char *const[]){"berth calibrate runs.csv",
        "berth calibrate runs.csv -o mine.json", NULL},
    .groups = (const struct option_group *const[]){&FIT_OPTIONS, NULL},
    .run = run,
};
