#include "base/json.h"
#include "cli/command.h"
#include "cli/output.h"
#include "gen_commit.h"

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    (void)args;
    (void)e;
    const char *commit = BERTH_COMMIT[0] ? BERTH_COMMIT : NULL;
    if (out_is_json(out)) {
        struct json *doc = out_document(out, "version/1");
        json_add_str(doc, "version", BERTH_VERSION);
        json_add_str(doc, "commit", commit);
        struct json *libraries = json_obj();
        json_add_str(libraries, "jansson", json_library_version());
        json_add(doc, "libraries", libraries);
        json_add_null(doc, "cuda");
        out_json(out, doc);
        return RC_OK;
    }
    out_printf(out, "berth %s%s%s%s\n", BERTH_VERSION, commit ? " (" : "", commit ? commit : "",
        commit ? ")" : "");
    if (out_is_quiet(out))
        return RC_OK;
    out_printf(out, "jansson   %s\n", json_library_version());
    out_printf(out, "CUDA      not built\n");
    return RC_OK;
}

const struct command CMD_VERSION = {
    .name = "version",
    .topic = COMMAND_SELF,
    .summary = "print the version of Berth and of its libraries",
    .examples = (const char *const[]){"berth version", "berth version --json", NULL},
    .run = run,
};
