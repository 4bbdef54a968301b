#include "inventory/shape.h"

#include <math.h>
#include <pthread.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/embed.h"
#include "inventory/fact_table.h"

EMBED(shapes_csv);

/* Read once, kept for the life of the program. */
static struct shape *shapes;
static size_t n_shapes, shapes_cap;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int64_t scaled(struct fact_row *r, const char *column, double factor)
{
    double x = fact_number(r, column, NAN);
    return isnan(x) ? OFFER_UNKNOWN : (int64_t)llround(x * factor);
}

static struct shape read_row(struct fact_row *r)
{
    struct shape s = {.provider = fact_text(r, "provider", ""),
        .instance = fact_text(r, "instance", ""),
        .gpu = fact_text(r, "gpu", ""),
        .gpus = fact_int(r, "gpus", OFFER_UNKNOWN),
        .nvlink = fact_text(r, "nvlink", ""),
        .inter_gbps = fact_number(r, "inter_gbps", OFFER_UNKNOWN),
        .max_nodes = fact_int(r, "max_nodes", OFFER_UNKNOWN),
        .vcpus = fact_int(r, "vcpus", OFFER_UNKNOWN),
        .ram_bytes = scaled(r, "ram_gib", 1073741824.0),
        .nvme_bytes = scaled(r, "nvme_tib", 1099511627776.0),
        .usd_micro_per_hour = fact_usd(r, "usd_per_hour", OFFER_UNKNOWN),
        .spot_usd_micro_per_hour = fact_usd(r, "spot_usd_per_hour", OFFER_UNKNOWN),
        .price_date = fact_text(r, "price_date", ""),
        .arch = fact_text(r, "arch", ""),
        .is_guess = strcmp(fact_text(r, "confidence", ""), "low") == 0,
        .source = fact_text(r, "source", "user")};
    if (!*s.provider)
        fact_fail(r, "provider", "must not be empty");
    if (!*s.instance)
        fact_fail(r, "instance", "must not be empty");
    if (!offer_fabric_parse(fact_text(r, "fabric", "unknown"), &s.fabric))
        fact_fail(r, "fabric", "not a known word");
    return s;
}

static void put(struct fact_row *r)
{
    struct shape s = read_row(r);
    size_t i = 0;
    if (r->rc)
        return;
    while (i < n_shapes && (strcmp(shapes[i].provider, s.provider) != 0 ||
                               strcmp(shapes[i].instance, s.instance) != 0))
        i++;
    BASE_GROW(shapes, shapes_cap, i + 1);
    shapes[i] = s;
    n_shapes = i == n_shapes ? n_shapes + 1 : n_shapes;
}

static struct fact_table facts = {
    .text = embed_shapes_csv, .len = &embed_shapes_csv_len, .put = put};

static void load(void)
{
    facts_load(&facts);
}

enum rc shape_load_user(const char *path, struct err *e)
{
    pthread_once(&once, load);
    return facts_load_user(&facts, path, e);
}

size_t shape_count(void)
{
    pthread_once(&once, load);
    return n_shapes;
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
