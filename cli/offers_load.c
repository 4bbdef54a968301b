#include "cli/offers_load.h"

#include "base/str.h"
#include "cli/output.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"

static const struct option OPTIONS[] = {
    {.name = "offers",
        .kind = OPTION_FILE,
        .is_repeatable = true,
        .is_setting = true,
        .help = "offers to choose from: an offers/1 document or a CSV table",
        .detail = "`berth help formats` describes both. Without any source a bundled sample of "
                  "list prices is used.",
        .example = "--offers nodes.csv"},
    {.name = "here",
        .kind = OPTION_FLAG,
        .help = "this machine: its GPUs, or its CPU",
        .example = "--here"},
    {.name = "ranks-per-node",
        .kind = OPTION_COUNT,
        .help = "with --here: use the CPU as this many ranks",
        .detail = "The default is the GPUs where there are any, else one rank for each group of "
                  "cores with a memory of its own (NUMA node).",
        .example = "--ranks-per-node 2"},
    {0},
};
const struct option_group OFFERS_OPTIONS = {"Offers", OPTIONS};

static enum rc load_here(struct offers *list, const struct args *args, struct err *e)
{
    struct source_input in = {.ranks_per_node = args_int(args, "ranks-per-node", 0),
        .is_reproducible = args_flag(args, "reproducible")};
    if (in.ranks_per_node > 1024 || (args_has(args, "ranks-per-node") && in.ranks_per_node < 1))
        return err_set(e, RC_USAGE, "option '--ranks-per-node' must be 1 to 1024");
    return SOURCE_HERE.read(list, &in, e);
}

static enum rc load_sample(struct offers *list, struct out *out, struct err *e)
{
    struct source_input in = {0};
    enum rc rc = SOURCE_SAMPLE.read(list, &in, e);
    if (!rc)
        out_note(out,
            "no offers given: using the bundled sample of %zu list prices, which are dated; "
            "--offers FILE or --here for your own",
            offers_count(list));
    return rc;
}

/* A misspelt column or field would otherwise be an unknown value that nobody sees. */
static enum rc load_file(struct offers *list, const char *path, struct out *out, struct err *e)
{
    struct str unknown;
    str_init(&unknown, 4096);
    enum rc rc = source_read_file(list, path, &unknown, e);
    if (!rc && unknown.len)
        out_warn(out, "'%s' holds what is not read: %s (`berth help formats` lists what is)", path,
            str_text(&unknown));
    str_release(&unknown);
    return rc;
}

enum rc offers_load(struct offers **list, const struct args *args, struct out *out, struct err *e)
{
    struct offers *l = offers_new();
    size_t files = args_times(args, "offers");
    bool is_here = args_flag(args, "here");
    enum rc rc = RC_OK;
    if (args_has(args, "ranks-per-node") && !is_here)
        rc = err_set(e, RC_USAGE, "option '--ranks-per-node' needs --here");
    for (size_t i = 0; i < files && !rc; i++)
        rc = load_file(l, args_nth(args, "offers", i), out, e);
    if (!rc && is_here)
        rc = load_here(l, args, e);
    if (!rc && !files && !is_here)
        rc = load_sample(l, out, e);
    if (rc) {
        offers_free(l);
        l = NULL;
    }
    *list = l;
    return rc;
}
