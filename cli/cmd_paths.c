#include <stdlib.h>

#include "base/file.h"
#include "base/json.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/table.h"

static const struct {
    const char *name;
    enum path_kind kind;
    const char *rest; /* below the folder of the kind; "" for the folder itself */
} PATHS[] = {
    {"config", PATH_CONFIG, "config.json"},
    {"cache", PATH_CACHE, ""},
    {"runs", PATH_STATE, "runs"},
    {"log", PATH_STATE, "screens.log"},
    {"data", PATH_DATA, ""},
    {"constants", PATH_DATA, "calibration.json"},
};

static char *path_of(size_t i)
{
    char *folder = path_user(PATHS[i].kind);
    if (!PATHS[i].rest[0])
        return folder;
    char *path = path_join(folder, PATHS[i].rest);
    free(folder);
    return path;
}

static const struct table_column COLUMNS[] = {
    {.name = "NAME"}, {.name = "PRESENT"}, {.name = "PATH"}, {0}};

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    (void)e;
    struct json *doc = out_document(out, "paths/1");
    struct table *t = table_new(COLUMNS);
    for (size_t i = 0; i < sizeof(PATHS) / sizeof(PATHS[0]); i++) {
        char *path = path_of(i);
        json_add_str(doc, PATHS[i].name, path);
        table_cell(t, PATHS[i].name);
        table_cell(t, file_exists(path) ? "yes" : "no");
        table_cell(t, path);
        free(path);
    }
    if (out_is_json(out)) {
        table_free(t);
        out_json(out, doc);
        return RC_OK;
    }
    json_free(doc);
    out_table(out, t, args);
    return RC_OK;
}

const struct command CMD_PATHS = {
    .name = "paths",
    .topic = COMMAND_SELF,
    .summary = "show where Berth keeps its files",
    .about = "BERTH_HOME moves all of them; otherwise the XDG variables do.",
    .examples = (const char *const[]){"berth paths", "berth paths --json | jq -r .runs", NULL},
    .run = run,
};
