/* `berth export-weights`: a checkpoint as transformers loads it. berth-engine does the work, as a
 * child; a run's checkpoint is fetched first. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/engine_child.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"
#include "launcher/fetch.h"

static const double default_file_bytes = 5e9;

static const struct option EXPORT_WEIGHTS[] = {
    {.name = "dtype",
        .kind = OPTION_CHOICE,
        .argument = "TYPE",
        .choices = "bf16|fp32",
        .def = "bf16",
        .help = "type of the numbers; fp32 is what the checkpoint holds",
        .example = "--dtype fp32"},
    {.name = "max-file",
        .kind = OPTION_BYTES,
        .argument = "SIZE",
        .help = "several files and an index above this; default 5GB",
        .detail = "No tensor is split, so a file with only one may be larger.",
        .example = "--max-file 2GB"},
    {.name = "checkpoint",
        .kind = OPTION_COUNT,
        .argument = "STEP",
        .help = "of a run: the checkpoint of this step; default the newest",
        .example = "--checkpoint 500"},
    {0},
};
static const struct option_group EXPORT_WEIGHTS_OPTIONS = {"Exporting", EXPORT_WEIGHTS};

static void show_progress(void *ctx, const struct fetch_progress *p)
{
    struct out *out = ctx;
    char got[UNITS_TEXT], total[UNITS_TEXT];
    if (out_err_is_terminal(out))
        out_progress(out, "fetching: %s of %s", units_bytes(got, (double)p->got_bytes),
            units_bytes(total, (double)p->total_bytes));
}

/* The checkpoint of a run, below folder; the caller frees *checkpoint. */
static enum rc fetch(
    char **checkpoint, const char *folder, const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    struct client *c = NULL;
    int64_t step = -1;
    char name[RUN_STEP_TEXT];
    connect_from_args(&connect, &ask, args, out);
    enum rc rc = client_open(&c, args_operand(args, 0), &connect, e);
    if (!rc)
        rc = dir_make(folder, 0755, e);
    if (!rc)
        rc = fetch_checkpoint(
            c, args_int(args, "checkpoint", -1), folder, &step, show_progress, out, e);
    out_progress_end(out);
    if (!rc)
        *checkpoint = path_join(folder, run_step_name(name, step));
    client_close(c);
    return rc;
}

static enum rc convert(
    struct json **result, const char *checkpoint, const struct args *args, struct err *e)
{
    struct str said = STR_INIT;
    char *bytes = base_printf("%.0f", args_num(args, "max-file", default_file_bytes));
    const char *const words[] = {"export-weights", "--checkpoint", checkpoint, "--out",
        args_operand(args, 1), "--dtype", args_text(args, "dtype"), "--file-bytes", bytes, NULL};
    enum rc rc = engine_child_run(&said, words, e);
    if (!rc)
        rc = json_parse(result, str_text(&said), said.len, e);
    free(bytes);
    str_release(&said);
    return rc;
}

static void print(struct out *out, const char *dir, const struct json *result)
{
    char params[UNITS_TEXT], bytes[UNITS_TEXT];
    int64_t files = json_int(result, "files", 0);
    if (out_is_json(out)) {
        struct json *doc = out_document(out, "export-weights/1");
        json_add_str(doc, "dir", dir);
        json_add_members(doc, json_clone(result));
        out_json(out, doc);
    } else if (!out_is_quiet(out)) {
        out_printf(out, "%s: step %lld, %s parameters in %s, %lld file%s and config.json\n", dir,
            (long long)json_int(result, "step", 0),
            units_count(params, json_num(result, "parameters", 0)),
            units_bytes(bytes, json_num(result, "bytes", 0)), (long long)files,
            files == 1 ? "" : "s");
    }
}

/* A run by its id or name, unless there is such a folder. */
static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    const char *from = args_operand(args, 0), *dir = args_operand(args, 1);
    char *checkpoint = NULL, *folder = NULL;
    struct json *result = NULL;
    struct err ignored = ERR_INIT;
    bool is_path = strchr(from, '/') || file_exists(from);
    enum rc rc = RC_OK;
    if (args_num(args, "max-file", 1) < 1)
        rc = err_set(e, RC_USAGE, "--max-file must be at least 1");
    else if (is_path && args_int(args, "checkpoint", -1) >= 0)
        rc =
            err_set(e, RC_USAGE, "--checkpoint is for a run; name the step's folder in '%s'", from);
    else if (is_path)
        checkpoint = base_strdup(from);
    else {
        folder = base_printf("%s.checkpoint", dir);
        rc = fetch(&checkpoint, folder, args, out, e);
    }
    if (!rc)
        rc = convert(&result, checkpoint, args, e);
    if (!rc)
        print(out, dir, result);
    if (!rc && folder) {
        dir_remove(checkpoint, &ignored);
        rmdir(folder); /* other steps may lie there */
    }
    json_free(result);
    free(checkpoint);
    free(folder);
    return rc;
}

const struct command CMD_EXPORT_WEIGHTS = {
    .name = "export-weights",
    .topic = COMMAND_RUN,
    .summary = "write a checkpoint's weights as transformers loads them",
    .operands = "RUN|CHECKPOINT DIR",
    .min_operands = 2,
    .max_operands = 2,
    .about =
        "DIR gets config.json and model.safetensors in the names of Hugging Face, whatever the "
        "strategy of the run; it appears only when whole. CHECKPOINT is a folder that holds a "
        "manifest.json, or step folders, of which the newest is taken; all of it is verified, and "
        "nothing damaged or incomplete is exported.\n\n"
        "The checkpoint of a run is fetched into DIR.checkpoint first, which goes when DIR is "
        "complete; what was interrupted is continued by the same command. The tokenizer is not "
        "part of a checkpoint: copy its files beside.",
    .examples = (const char *const[]){"berth export-weights latest my-model",
        "berth export-weights results/step-00000500 my-model --dtype fp32", NULL},
    .groups = (const struct option_group *const[]){&EXPORT_WEIGHTS_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
