#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "launcher/client.h"

static const struct option LOGS[] = {
    {.name = "rank", .kind = OPTION_COUNT, .help = "only of this rank", .example = "--rank 0"},
    {.name = "follow",
        .letter = 'f',
        .kind = OPTION_FLAG,
        .help = "go on until the run is over; the exit code tells how it ended"},
    {.name = "tail",
        .kind = OPTION_COUNT,
        .help = "only the last lines of each rank",
        .example = "--tail 20"},
    {.name = "offline", .kind = OPTION_FLAG, .help = "only what was already copied here"},
    {0},
};
static const struct option_group LOGS_OPTIONS = {"Logs", LOGS};

/* Start of the last n lines. */
static const char *last_lines(const char *text, size_t len, int64_t n)
{
    const char *p = text + len;
    if (p > text && p[-1] == '\n')
        p--;
    while (p > text) {
        if (p[-1] == '\n' && --n <= 0)
            break;
        p--;
    }
    return p;
}

static void print_line(struct out *out, int64_t rank, const char *line, size_t n)
{
    char *copy = base_strndup(line, n);
    if (out_is_json(out)) {
        struct json *v = json_obj();
        json_add_int(v, "rank", rank);
        json_add_str(v, "text", copy);
        out_json_line(out, v);
    } else {
        out_printf(out, "rank %lld: ", (long long)rank);
        out_text(out, copy);
        out_printf(out, "\n");
    }
    free(copy);
}

static enum rc print_rank(
    const struct run_info *r, int64_t rank, int64_t tail, struct out *out, struct err *e)
{
    struct str s = STR_INIT;
    char *name = base_printf(RUN_USER_LOGS "/rank-%lld.log", (long long)rank);
    char *path = run_dir_file(r, name);
    enum rc rc = RC_OK;
    if (file_exists(path))
        rc = file_read(&s, path, STR_DEFAULT_MAX, e);
    const char *p = str_text(&s), *end = p + s.len;
    if (tail >= 0)
        p = tail ? last_lines(p, s.len, tail) : end;
    while (!rc && p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = nl ? (size_t)(nl - p) : (size_t)(end - p);
        print_line(out, rank, p, n);
        p += n + 1;
    }
    str_release(&s);
    free(path);
    free(name);
    return rc;
}

struct printing {
    struct out *out;
    int64_t rank; /* -1: all */
};

/* Lines come whole as far as the ranks write whole lines; see engine/agent_follow.h. */
static void print_log(void *ctx, int64_t rank, const char *host, const char *text)
{
    const struct printing *w = ctx;
    (void)host;
    if (w->rank >= 0 && w->rank != rank)
        return;
    for (const char *p = text; *p;) {
        size_t n = strcspn(p, "\n");
        print_line(w->out, rank, p, n);
        p += n + (p[n] == '\n');
    }
    out_flush(w->out);
}

static int64_t rank_count(const struct run_info *r)
{
    int64_t n = 0;
    for (size_t i = 0; i < r->node_count; i++)
        n += r->nodes[i].ranks;
    return n;
}

static enum rc print_all(
    const struct args *args, const struct run_info *r, struct out *out, struct err *e)
{
    int64_t only = args_int(args, "rank", -1), tail = args_int(args, "tail", -1);
    enum rc rc = RC_OK;
    if (only >= rank_count(r))
        return err_set(
            e, RC_USAGE, "run %s has ranks 0 to %lld", r->id, (long long)rank_count(r) - 1);
    for (int64_t rank = 0; !rc && rank < rank_count(r); rank++)
        if (only < 0 || only == rank)
            rc = print_rank(r, rank, tail, out, e);
    out_flush(out);
    return rc;
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct session_options connect;
    struct connect_ask ask;
    struct client *c = NULL;
    struct printing w = {out, args_int(args, "rank", -1)};
    struct client_sink silent = {0}, sink = {.log = print_log, .ctx = &w};
    struct client_follow catch_up = {
        .sink = &silent, .wants_logs = true, .stops_when_caught_up = true, .unreachable_s = 10};
    connect_from_args(&connect, &ask, args, out);
    enum rc rc = client_open(&c, run_operand(args), &connect, e);
    if (!rc && !args_flag(args, "offline")) {
        struct err why = ERR_INIT;
        rc = client_follow(c, &catch_up, &why);
        if (rc == RC_INTERRUPTED)
            *e = why;
        else if (rc) /* what was copied before is better than nothing */
            out_warn(out, "%s", why.msg);
        rc = rc == RC_INTERRUPTED ? rc : RC_OK;
    }
    if (!rc)
        rc = print_all(args, client_info(c), out, e);
    bool is_over = c && run_state_is_final(client_info(c)->state);
    if (!rc && args_flag(args, "follow")) {
        struct client_follow f = {.sink = &sink, .wants_logs = true};
        if (!is_over)
            rc = client_follow(c, &f, e);
        if (!rc)
            rc = client_outcome(client_info(c), e);
    }
    client_close(c);
    return rc;
}

const struct command CMD_LOGS = {
    .name = "logs",
    .topic = COMMAND_RUN,
    .summary = "print what the ranks of a run printed",
    .operands = "[RUN]",
    .max_operands = 1,
    .about = "Brings what is new from the nodes, keeps it with the run and prints it, a rank after "
             "the other, each line behind its rank.",
    .examples = (const char *const[]){"berth logs --rank 0 --tail 20", "berth logs abcd -f", NULL},
    .groups = (const struct option_group *const[]){&LOGS_OPTIONS, &CONNECT_OPTIONS, NULL},
    .run = run,
};
