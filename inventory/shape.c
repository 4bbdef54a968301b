#include "inventory/shape.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/embed.h"
#include "base/units.h"
#include "inventory/fact_table.h"

EMBED(shapes_csv);

static struct csv table; /* read once, kept for the life of the program */
static struct shape *shapes;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int64_t scaled(size_t row, const char *column, double factor)
{
    double x = facts_number(&table, row, column, NAN);
    return isnan(x) ? OFFER_UNKNOWN : (int64_t)llround(x * factor);
}

static int64_t price(size_t row, const char *column)
{
    const char *text = facts_text(&table, row, column);
    int64_t micro_usd = OFFER_UNKNOWN;
    enum rc rc = *text ? units_parse_usd(text, &micro_usd, NULL) : RC_OK;
    assert(!rc && "a price in shapes.csv is not an amount");
    (void)rc;
    return micro_usd;
}

static struct shape read_row(size_t row)
{
    struct shape s = {.provider = facts_text(&table, row, "provider"),
        .instance = facts_text(&table, row, "instance"),
        .gpu = facts_text(&table, row, "gpu"),
        .gpus = facts_int(&table, row, "gpus", OFFER_UNKNOWN),
        .nvlink = facts_text(&table, row, "nvlink"),
        .inter_gbps = facts_number(&table, row, "inter_gbps", OFFER_UNKNOWN),
        .max_nodes = facts_int(&table, row, "max_nodes", OFFER_UNKNOWN),
        .vcpus = facts_int(&table, row, "vcpus", OFFER_UNKNOWN),
        .ram_bytes = scaled(row, "ram_gib", 1073741824.0),
        .nvme_bytes = scaled(row, "nvme_tib", 1099511627776.0),
        .usd_micro_per_hour = price(row, "usd_per_hour"),
        .spot_usd_micro_per_hour = price(row, "spot_usd_per_hour"),
        .price_date = facts_text(&table, row, "price_date"),
        .arch = facts_text(&table, row, "arch"),
        .is_guess = strcmp(facts_text(&table, row, "confidence"), "low") == 0,
        .source = facts_text(&table, row, "source")};
    bool is_fabric = offer_fabric_parse(facts_text(&table, row, "fabric"), &s.fabric);
    assert(is_fabric && "shapes.csv holds an unknown fabric");
    (void)is_fabric;
    return s;
}

static void load(void)
{
    facts_parse(&table, embed_shapes_csv, embed_shapes_csv_len);
    shapes = base_calloc(table.rows, sizeof(*shapes));
    for (size_t i = 0; i < table.rows; i++)
        shapes[i] = read_row(i);
}

size_t shape_count(void)
{
    pthread_once(&once, load);
    return table.rows;
}

const struct shape *shape_at(size_t i)
{
    return i < shape_count() ? &shapes[i] : NULL;
}

const struct shape *shape_find(const char *provider, const char *instance)
{
    for (size_t i = 0; i < shape_count(); i++)
        if (strcasecmp(shapes[i].provider, provider) == 0 &&
            strcmp(shapes[i].instance, instance) == 0)
            return &shapes[i];
    return NULL;
}
