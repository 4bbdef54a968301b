#include "launcher/launch_input.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "planner/data_kind.h"
#include "run/names.h"

void launch_input_release(struct launch_input *in)
{
    free(in->local);
    in->local = NULL;
}

static enum rc take_local(struct launch_input *in, const char *path, struct err *e)
{
    in->local = base_strdup(path);
    enum rc rc = stage_file_init(&in->file, in->local, 0600, e);
    if (!rc && in->file.bytes == 0)
        rc = err_set(e, RC_INVALID, "%s file '%s' is empty", in->what, in->local);
    return rc ? err_in(e, "%s", in->what) : RC_OK;
}

enum rc launch_input_set(struct launch_input *in, char **node_path, const char *text, struct err *e)
{
    static const char *const there[] = {"host:", "shared:"};
    free(*node_path);
    *node_path = NULL;
    launch_input_release(in);
    for (size_t i = 0; i < BASE_COUNT(there); i++) {
        const char *path = text + strlen(there[i]);
        if (!str_starts(text, there[i]))
            continue;
        if (path[0] != '/')
            return err_set(
                e, RC_USAGE, "%s '%s' needs an absolute path on the nodes", in->what, text);
        *node_path = base_strdup(path);
        return RC_OK;
    }
    return take_local(in, str_starts(text, "local:") ? text + strlen("local:") : text, e);
}

enum rc launch_input_check(const struct launch_input *in, const char *kind_word, struct err *e)
{
    unsigned char first[4];
    enum data_kind kind;
    if (!in->local)
        return RC_OK;
    FILE *f = fopen(in->local, "re");
    if (!f)
        return err_sys(e, RC_INVALID, "cannot open '%s'", in->local);
    size_t n = fread(first, 1, sizeof first, f);
    fclose(f);
    enum rc rc = data_kind_parse(kind_word, &kind, e);
    if (!rc)
        rc = data_kind_settle(&kind, kind, in->local, first, n, e);
    return rc ? err_in(e, "%s", in->what) : RC_OK;
}

char *launch_input_node_path(const struct launch_input *in, const char *workdir)
{
    const char *slash = strrchr(in->local, '/');
    char *dir = run_data_dir(workdir, in->file.sha256);
    char *path = path_join(dir, slash ? slash + 1 : in->local);
    free(dir);
    return path;
}
