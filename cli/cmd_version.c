#include <string.h>

#include "base/json.h"
#include "cli/command.h"
#include "cli/output.h"
#include "gen_commit.h"
#include "launcher/ssh.h"
#include "tui/term.h"

/* Versions of the libraries in use, which may be newer than those Berth was built with. */
struct library {
    const char *name, *version;
};

static void find_libraries(struct library out[3])
{
    const char *curses = term_library_version();
    out[0] = (struct library){"jansson", json_library_version()};
    out[1] = (struct library){"libssh2", ssh_library_version()};
    out[2] = (struct library){"ncurses", curses + strcspn(curses, "0123456789")};
}

static void print_json(struct out *out, const char *commit, const struct library libraries[3])
{
    struct json *doc = out_document(out, "version/1");
    struct json *versions = json_obj();
    for (int i = 0; i < 3; i++)
        json_add_str(versions, libraries[i].name, libraries[i].version);
    json_add_str(doc, "version", BERTH_VERSION);
    json_add_str(doc, "commit", commit);
    json_add(doc, "libraries", versions);
    json_add_null(doc, "cuda");
    out_json(out, doc);
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    (void)args;
    (void)e;
    const char *commit = BERTH_COMMIT[0] ? BERTH_COMMIT : NULL;
    struct library libraries[3];
    find_libraries(libraries);
    if (out_is_json(out)) {
        print_json(out, commit, libraries);
        return RC_OK;
    }
    out_printf(out, "berth %s%s%s%s\n", BERTH_VERSION, commit ? " (" : "", commit ? commit : "",
        commit ? ")" : "");
    for (int i = 0; i < 3 && !out_is_quiet(out); i++)
        out_printf(out, "%-9s %s\n", libraries[i].name, libraries[i].version);
    if (!out_is_quiet(out))
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
