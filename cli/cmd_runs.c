#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/run_options.h"
#include "cli/table.h"
#include "launcher/client.h"
#include "launcher/run_dir.h"

static const struct table_column COLUMNS[] = {{.name = "RUN"}, {.name = "STATE"},
    {.name = "MODEL", .drop = 2, .is_elastic = true}, {.name = "NODES", .align = TABLE_RIGHT},
    {.name = "STEPS", .align = TABLE_RIGHT}, {.name = "COST", .align = TABLE_RIGHT, .drop = 1},
    {.name = "LAUNCHED", .drop = 3}, {0}};

static void add_row(struct table *t, const struct run_info *r)
{
    char text[UNITS_TEXT], time[CLOCK_TEXT];
    int64_t cost = client_cost_micro_usd(r, clock_wall_s());
    table_cell(t, r->id);
    table_cell(t, run_state_name(r->state));
    table_cell(t, r->model);
    table_cellf(t, "%zu", r->node_count);
    table_cellf(t, "%lld", (long long)r->steps);
    table_cell(t, cost < 0 ? "" : units_usd(text, cost));
    table_cell(t, r->launched_wall_s > 0 ? clock_rfc3339(time, r->launched_wall_s) : "");
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    char **ids;
    size_t count;
    enum rc rc = run_dir_list(&ids, &count, e);
    if (rc) {
        run_dir_list_free(ids, count);
        return rc;
    }
    struct table *t = table_new(COLUMNS);
    struct json *list = json_arr();
    for (size_t i = 0; i < count; i++) {
        struct run_info r;
        struct err broken = ERR_INIT;
        if (run_dir_open(&r, ids[i], &broken)) {
            out_warn(out, "%s", broken.msg);
        } else {
            struct json *o = json_obj();
            run_status_json(o, &r);
            json_push(list, o);
            add_row(t, &r);
            run_info_release(&r);
        }
    }
    run_dir_list_free(ids, count);
    if (out_is_json(out)) {
        struct json *doc = out_document(out, "runs/1");
        json_add(doc, "runs", list);
        out_json(out, doc);
        table_free(t);
        return RC_OK;
    }
    json_free(list);
    if (!table_rows(t))
        out_note(out, "no runs yet");
    out_table(out, t, args);
    return RC_OK;
}

const struct command CMD_RUNS = {
    .name = "runs",
    .topic = COMMAND_RUN,
    .summary = "list the runs started from here",
    .about = "The state is the one last heard of; `berth status RUN` asks the nodes.",
    .examples =
        (const char *const[]){"berth runs", "berth runs --json | jq -r '.runs[0].id'", NULL},
    .run = run,
};
