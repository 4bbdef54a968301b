/* `berth offers`: the offers of all sources through filter and sorting to a table, CSV or JSON. */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/offers_load.h"
#include "cli/output.h"
#include "cli/table.h"
#include "inventory/filter.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"

static const struct table_column COLUMNS[] = {
    {.name = "PROVIDER", .is_elastic = true, .least = 11},
    {.name = "ID", .is_elastic = true, .least = 10},
    {.name = "GPU", .is_elastic = true, .least = 12},
    {.name = "GPUS", .align = TABLE_RIGHT, .drop = 1},
    {.name = "VRAM", .align = TABLE_RIGHT, .drop = 2},
    {.name = "FABRIC", .drop = 3},
    {.name = "GBPS", .align = TABLE_RIGHT, .drop = 5},
    {.name = "NODES", .align = TABLE_RIGHT, .drop = 6},
    {.name = "USD/GPU/H", .align = TABLE_RIGHT},
    {.name = "MARKET", .drop = 4},
    {.name = "REGION", .is_extra = true},
    {.name = "USD/NODE/H", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "NVLINK", .is_extra = true},
    {.name = "VCPUS", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "RAM", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "NVME", .align = TABLE_RIGHT, .is_extra = true},
    {.name = "ARCH", .is_extra = true},
    {.name = "ISA", .is_extra = true},
    {.name = "AS_OF", .is_extra = true},
    {.name = "PROBLEM", .is_extra = true, .is_elastic = true},
    {0},
};

/* --- options ---------------------------------------------------------------------------------- */

static const struct option OPTIONS[] = {
    {.name = "gpu",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .argument = "NAME",
        .help = "only this GPU: a model (h100-sxm) or a family (h100)",
        .example = "--gpu h100",
        .complete = "gpus"},
    {.name = "provider",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .argument = "NAME",
        .help = "only this provider",
        .example = "--provider aws",
        .complete = "providers"},
    {.name = "region",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .argument = "NAME",
        .help = "only regions with this in their name",
        .example = "--region us-"},
    {.name = "market",
        .kind = OPTION_CHOICE,
        .is_repeatable = true,
        .argument = "KIND",
        .choices = "on-demand|spot|reserved|owned",
        .help = "only this kind of market",
        .example = "--market spot"},
    {.name = "fabric",
        .kind = OPTION_CHOICE,
        .is_repeatable = true,
        .argument = "KIND",
        .choices = "none|ethernet|roce|infiniband|ib|efa|tcpx",
        .help = "only this network between nodes",
        .example = "--fabric infiniband"},
    {.name = "min-vram",
        .kind = OPTION_TEXT,
        .argument = "SIZE",
        .unit = "GB as sold",
        .help = "at least this much memory per GPU",
        .example = "--min-vram 80"},
    {.name = "max-price",
        .kind = OPTION_USD,
        .help = "at most this many USD per GPU and hour",
        .example = "--max-price 2.50"},
    {.name = "min-nodes",
        .kind = OPTION_COUNT,
        .help = "at least this many nodes on one fabric",
        .example = "--min-nodes 4"},
    {.name = "filter",
        .kind = OPTION_TEXT,
        .is_repeatable = true,
        .argument = "TERMS",
        .help = "only offers that meet these terms, as the operands do",
        .example = "--filter 'gpu:h100 price<2.5'"},
    {.name = "sort",
        .kind = OPTION_CHOICE,
        .argument = "KEY",
        .choices = "price|node-price|vram|gpus|nodes|gbps|gpu|provider|region|none",
        .def = "price",
        .help = "order; price is per GPU and hour, unknown comes last",
        .example = "--sort vram"},
    {.name = "reverse", .kind = OPTION_FLAG, .help = "the other way round"},
    {.name = "columns",
        .kind = OPTION_TEXT,
        .argument = "LIST",
        .help = "columns to show, separated by commas",
        .detail =
            "Known are provider, id, gpu, gpus, vram, fabric, gbps, nodes, usd/gpu/h, "
            "market, region, usd/node/h, nvlink, vcpus, ram, nvme, arch, isa, as_of, problem.",
        .example = "--columns id,region,usd/node/h"},
    {.name = "csv",
        .kind = OPTION_FLAG,
        .help = "print a CSV table that --offers reads back identically"},
    {0},
};
static const struct option_group SHOW_OPTIONS = {"Which and how", OPTIONS};

/* --- filter ----------------------------------------------------------------------------------- */

/* "key:a,b" for a repeatable option. */
static void add_values(struct str *s, const struct args *args, const char *option)
{
    for (size_t i = 0; i < args_times(args, option); i++) {
        str_addf(s, i ? "," : "%s:", option);
        for (const char *p = args_nth(args, option, i); *p; p++)
            str_addc(s, *p == ' ' ? '-' : *p); /* names compare without spaces and dashes */
    }
    str_addc(s, ' ');
}

/* Flags are short forms of filter terms; operands are terms as they stand. */
static enum rc make_filter(struct filter **out, const struct args *args, struct err *e)
{
    static const char *const LISTS[] = {"gpu", "provider", "region", "market", "fabric"};
    struct str s = STR_INIT;
    for (size_t i = 0; i < sizeof(LISTS) / sizeof(LISTS[0]); i++)
        add_values(&s, args, LISTS[i]);
    if (args_has(args, "min-vram"))
        str_addf(&s, "vram>=%s ", args_text(args, "min-vram"));
    if (args_has(args, "max-price"))
        str_addf(&s, "price<=%s ", args_text(args, "max-price"));
    if (args_has(args, "min-nodes"))
        str_addf(&s, "nodes>=%lld ", (long long)args_int(args, "min-nodes", 0));
    for (size_t i = 0; i < args_times(args, "filter"); i++)
        str_addf(&s, "%s ", args_nth(args, "filter", i));
    for (size_t i = 0; i < args_operands(args); i++)
        str_addf(&s, "%s ", args_operand(args, i));
    enum rc rc = filter_parse(out, str_text(&s), e);
    str_release(&s);
    return rc;
}

/* A file named where words to search for stand. */
static void warn_of_files(const struct args *args, struct out *out)
{
    for (size_t i = 0; i < args_operands(args); i++)
        if (file_exists(args_operand(args, i)))
            out_warn(out, "'%s' is looked for as a word; --offers %s reads the file",
                args_operand(args, i), args_operand(args, i));
}

static enum rc check_gpu_names(const struct args *args, const struct offers *l, struct err *e)
{
    for (size_t i = 0; i < args_times(args, "gpu"); i++) {
        const char *name = args_nth(args, "gpu", i);
        bool is_known = gpu_find(name, 0) != NULL;
        for (size_t j = 0; j < offers_count(l) && !is_known; j++)
            is_known = strcasestr(offers_at(l, j)->gpu, name) != NULL;
        const char *near = is_known ? NULL : gpu_nearest(name);
        if (!is_known && near)
            return err_set(
                e, RC_USAGE, "option '--gpu': unknown GPU '%s'; did you mean '%s'?", name, near);
        if (!is_known)
            return err_set(e, RC_USAGE, "option '--gpu': unknown GPU '%s'", name);
    }
    return RC_OK;
}

static bool keep(const struct offer *o, void *context)
{
    return filter_match(context, o);
}

static void sort(struct offers *l, const struct args *args)
{
    static const enum offer_field FIELDS[] = {OFFER_FIELD_COUNT, OFFER_PRICE, OFFER_GPU_MEMORY,
        OFFER_GPUS_PER_NODE, OFFER_MAX_NODES, OFFER_INTER_GBPS, OFFER_GPU, OFFER_PROVIDER,
        OFFER_REGION};
    int by = args_choice(args, "sort");
    bool is_reverse = args_flag(args, "reverse");
    if (by == 0)
        offers_sort_by_gpu_price(l, is_reverse);
    else if (by < (int)(sizeof(FIELDS) / sizeof(FIELDS[0])))
        offers_sort(l, FIELDS[by], is_reverse);
}

/* --- printing --------------------------------------------------------------------------------- */

static void cell_number(struct table *t, const struct offer *o, enum offer_field f)
{
    if (offer_is_known(o, f))
        table_cellf(t, "%.10g", offer_number(o, f));
    else
        table_cell(t, NULL);
}

/* "79.6GiB": no spaces inside cells, so that a line splits into its columns. */
static void cell_bytes(struct table *t, const struct offer *o, enum offer_field f)
{
    char text[UNITS_TEXT];
    if (!offer_is_known(o, f)) {
        table_cell(t, NULL);
        return;
    }
    char *space = strchr(units_bytes(text, offer_number(o, f)), ' ');
    if (space)
        memmove(space, space + 1, strlen(space));
    table_cell(t, text);
}

/* The short words that filters take as well. */
static void cell_fabric(struct table *t, const struct offer *o)
{
    const char *name = o->fabric == FABRIC_UNKNOWN      ? NULL
                       : o->fabric == FABRIC_INFINIBAND ? "ib"
                       : o->fabric == FABRIC_ETHERNET   ? "eth"
                                                        : offer_fabric_name(o->fabric);
    table_cell(t, name);
}

static void cell_usd(struct table *t, int64_t micro)
{
    if (micro < 0)
        table_cell(t, NULL);
    else
        table_cellf(t, "%lld.%02lld", (long long)((micro + 9999) / USD_MICRO),
            (long long)((micro + 9999) % USD_MICRO / 10000));
}

static void cell_nodes(struct table *t, const struct offer *o)
{
    int64_t available = o->nodes_available, together = o->max_nodes_one_fabric;
    int64_t n = available >= 0 && available < together ? available : together;
    if (n < 0)
        table_cell(t, NULL);
    else
        table_cellf(t, "%lld", (long long)n);
}

static void add_row(struct table *t, const struct offer *o)
{
    table_cell(t, o->provider);
    table_cell(t, o->id);
    table_cell(t, o->gpu);
    cell_number(t, o, OFFER_GPUS_PER_NODE);
    cell_bytes(t, o, OFFER_GPU_MEMORY);
    cell_fabric(t, o);
    cell_number(t, o, OFFER_INTER_GBPS);
    cell_nodes(t, o);
    cell_usd(t, offer_price_per_gpu_hour(o));
    table_cell(t, o->market == MARKET_ON_DEMAND ? "demand" : offer_market_name(o->market));
    table_cell(t, o->region);
    cell_usd(t, o->price_usd_micro_per_hour);
    table_cell(t, o->nvlink);
    cell_number(t, o, OFFER_VCPUS);
    cell_bytes(t, o, OFFER_RAM);
    cell_bytes(t, o, OFFER_NVME);
    table_cell(t, o->arch);
    table_cell(t, o->isa);
    table_cell(t, o->fetched_at);
    table_cell(t, o->problem);
}

static enum rc print_table(
    const struct offers *l, const struct args *args, struct out *out, struct err *e)
{
    struct table *t = table_new(COLUMNS);
    enum rc rc = table_select_args(t, args, e);
    if (rc) {
        table_free(t);
        return rc;
    }
    size_t problems = 0;
    for (size_t i = 0; i < offers_count(l); i++) {
        add_row(t, offers_at(l, i));
        problems += offers_at(l, i)->problem[0] != '\0';
    }
    out_table(out, t, args);
    if (problems)
        out_note(out, "%zu of them cannot be planned; --columns id,problem says why", problems);
    return RC_OK;
}

static enum rc print_csv(const struct offers *l, struct out *out)
{
    struct str s = STR_INIT;
    offers_write_csv(l, &s);
    out_bytes(out, str_text(&s), s.len);
    str_release(&s);
    return RC_OK;
}

static enum rc print_json(const struct offers *l, struct out *out)
{
    struct json *doc = out_document(out, "offers/1"), *list = json_arr();
    for (size_t i = 0; i < offers_count(l); i++)
        json_push(list, offer_to_json(offers_at(l, i)));
    json_add(doc, "offers", list);
    out_json(out, doc);
    return RC_OK;
}

static enum rc print(
    const struct offers *l, const struct args *args, struct out *out, struct err *e)
{
    if (out_is_json(out))
        return print_json(l, out);
    if (args_flag(args, "csv"))
        return print_csv(l, out);
    return print_table(l, args, out, e);
}

static enum rc run(const struct args *args, struct out *out, struct err *e)
{
    struct offers *l = NULL;
    struct filter *f = NULL;
    if (out_is_json(out) && args_flag(args, "csv"))
        return err_set(e, RC_USAGE, "options '--json' and '--csv' exclude each other");
    enum rc rc = table_check_args(COLUMNS, args, e);
    if (!rc)
        rc = make_filter(&f, args, e);
    if (!rc)
        warn_of_files(args, out);
    if (!rc)
        rc = offers_load(&l, args, out, e);
    if (!rc)
        rc = check_gpu_names(args, l, e);
    if (!rc) {
        size_t all = offers_count(l);
        offers_keep(l, keep, f);
        sort(l, args);
        if (offers_count(l) < all)
            out_note(out, "%zu of %zu offers match", offers_count(l), all);
        rc = print(l, args, out, e);
    }
    filter_free(f);
    offers_free(l);
    return rc;
}

const struct command CMD_OFFERS = {
    .name = "offers",
    .topic = COMMAND_PLAN,
    .summary = "list what can be rented, or what you have",
    .operands = "[FILTER...]",
    .max_operands = -1,
    .about = "Filters are terms that must all hold: gpu:h100 vram>=80 price<2.5 nodes>=4 fabric:ib "
             "!spot provider:aws,gcp. Prices are per GPU and hour; '!' negates; a word without a "
             "key is looked for in provider, id, GPU and region. Quote < and > for the shell. "
             "`berth help filters` lists the keys.\n\n"
             "An offer that cannot be planned stays in the list; the column problem says why.",
    .examples = (const char *const[]){"berth offers gpu:h100 'nodes>=4'",
        "berth offers --gpu h100 --max-price 2.50 --market spot", "berth offers --here",
        "berth offers --offers nodes.csv --json | jq '.offers[].price_usd_per_hour'",
        "berth offers --csv > nodes.csv", NULL},
    .groups = (const struct option_group *const[]){&SHOW_OPTIONS, &OFFERS_OPTIONS, NULL},
    .run = run,
};
