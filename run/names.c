#include "run/names.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"

char *run_id_make(char out[RUN_ID_TEXT], double wall_s, const unsigned char random[2])
{
    time_t t = (time_t)wall_s;
    int part = (int)((wall_s - (double)t) * 26 * 26);
    struct tm tm;
    gmtime_r(&t, &tm);
    size_t n = strftime(out, RUN_ID_TEXT, "%Y%m%d-%H%M%S-", &tm);
    const int letters[] = {part / 26, part % 26, random[0] % 26, random[1] % 26};
    for (int i = 0; i < 4; i++)
        out[n++] = (char)('a' + letters[i]);
    out[n] = '\0';
    return out;
}

bool run_id_is_valid(const char *id)
{
    static const char form[] = "dddddddd-dddddd-llll";
    if (strlen(id) != sizeof(form) - 1)
        return false;
    for (size_t i = 0; form[i]; i++) {
        bool is_digit = id[i] >= '0' && id[i] <= '9';
        bool is_letter = id[i] >= 'a' && id[i] <= 'z';
        if (form[i] == 'd' ? !is_digit : form[i] == 'l' ? !is_letter : id[i] != form[i])
            return false;
    }
    return true;
}

enum rc run_id_read(char out[RUN_ID_TEXT], const struct json *v, struct err *e)
{
    const char *id;
    enum rc rc = json_need_str(v, "id", &id, e);
    if (!rc && !run_id_is_valid(id))
        rc = err_set(e, RC_INVALID, "'%s' is not a run id", id);
    if (!rc)
        str_copy(out, RUN_ID_TEXT, id);
    return rc;
}

char *run_node_dir(const char *workdir, const char *id, int64_t node)
{
    return base_printf("%s/runs/%s/node-%lld", workdir, id, (long long)node);
}

char *run_engine_dir(const char *workdir, const char *hash)
{
    return base_printf("%s/engine/%s", workdir, hash);
}

char *run_data_dir(const char *workdir, const char *hash)
{
    return base_printf("%s/data/%s", workdir, hash);
}

char *run_tokens_dir(const char *node_dir)
{
    return base_printf("%s/../../../data/tokens", node_dir);
}

char *run_shared_dir(const char *shared, const char *id)
{
    return base_printf("%s/berth-%s", shared, id);
}

char *run_step_name(char out[RUN_STEP_TEXT], int64_t step)
{
    snprintf(out, RUN_STEP_TEXT, RUN_STEP_PREFIX "%08lld", (long long)step);
    return out;
}

int64_t run_step_of(const char *name)
{
    char *end;
    size_t n = strlen(RUN_STEP_PREFIX);
    if (strncmp(name, RUN_STEP_PREFIX, n) != 0 || name[n] < '0' || name[n] > '9')
        return -1;
    errno = 0;
    long long step = strtoll(name + n, &end, 10);
    return *end || errno ? -1 : step;
}

char *run_rank_log(const char *dir, int64_t rank)
{
    return base_printf("%s/rank-%lld.log", dir, (long long)rank);
}

char *run_user_runs(void)
{
    char *state = path_user(PATH_STATE), *runs = path_join(state, "runs");
    free(state);
    return runs;
}

char *run_user_dir(const char *id)
{
    char *runs = run_user_runs(), *dir = path_join(runs, id);
    free(runs);
    return dir;
}
