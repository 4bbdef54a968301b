/* `berth __complete KIND`: values for the completion scripts, one per line. Reads only what lies on
 * this machine, so that a key press never waits. */
#include <string.h>

#include "base/alloc.h"
#include "cli/command.h"
#include "cli/output.h"
#include "inventory/gpu.h"
#include "inventory/shape.h"
#include "launcher/run_dir.h"
#include "planner/model.h"

static void put_gpus(struct out *out)
{
    for (size_t i = 0; i < gpu_count(); i++) {
        const struct gpu *g = gpu_at(i);
        bool is_first = i == 0 || strcmp(gpu_at(i - 1)->family, g->family) != 0;
        if (is_first && strcmp(g->family, g->id) != 0)
            out_printf(out, "%s\n", g->family);
        out_printf(out, "%s\n", g->id);
    }
}

static void put_models(struct out *out)
{
    for (int i = 0; model_preset_name(i); i++)
        out_printf(out, "%s\n", model_preset_name(i));
}

static void put_providers(struct out *out)
{
    for (size_t i = 0; i < shape_count(); i++) {
        bool is_new = true;
        for (size_t k = 0; k < i && is_new; k++)
            is_new = strcmp(shape_at(k)->provider, shape_at(i)->provider) != 0;
        if (is_new)
            out_printf(out, "%s\n", shape_at(i)->provider);
    }
}

static void put_runs(struct out *out)
{
    size_t count;
    char **ids;
    struct err e = ERR_INIT; /* a completion has nobody to tell */
    run_dir_list(&ids, &count, &e);
    for (size_t i = 0; i < count; i++)
        out_printf(out, "%s\n", ids[i]);
    out_printf(out, "latest\n");
    run_dir_list_free(ids, count);
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    static const struct {
        const char *kind;
        void (*put)(struct out *out);
    } KINDS[] = {{"gpus", put_gpus}, {"models", put_models}, {"providers", put_providers},
        {"runs", put_runs}};
    const char *kind = args_operand(args, 0);
    for (size_t i = 0; i < BASE_COUNT(KINDS); i++)
        if (strcmp(KINDS[i].kind, kind) == 0) {
            KINDS[i].put(out);
            return RC_OK;
        }
    return err_set(e, RC_USAGE, "nothing called '%s' can be completed", kind);
}

const struct command CMD_COMPLETE = {
    .name = "__complete",
    .topic = COMMAND_SELF,
    .summary = "print values for the completion scripts",
    .operands = "gpus|models|providers|runs",
    .min_operands = 1,
    .max_operands = 1,
    .examples = (const char *const[]){"berth __complete gpus", "berth __complete runs", NULL},
    .run = run,
};
