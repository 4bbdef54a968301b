/* A market to try things on, without keys or network: the known shapes at dated list prices. */
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "inventory/shape.h"
#include "inventory/sources/source.h"

/* Sellers of RDMA clusters say "as many as you need"; beyond this, ask them. */
enum { ASSUMED_MAX_NODES = 16 };

/* The earliest moment a date such as "2026" or "2026-08-21" can mean: never too fresh. */
static void earliest(char out[32], const char *date)
{
    static const char FULL[] = "0000-01-01T00:00:00Z";
    size_t n = strlen(date);
    snprintf(out, 32, "%s%s", date, n < strlen(FULL) ? FULL + n : "");
}

static bool is_clustered(const struct shape *s)
{
    return s->fabric == FABRIC_INFINIBAND || s->fabric == FABRIC_ROCE || s->fabric == FABRIC_EFA ||
           s->fabric == FABRIC_TCPX;
}

static enum rc add(struct offers *out, const struct shape *s, enum offer_market market,
    int64_t price_micro, struct err *e)
{
    enum provenance from = s->is_guess ? PROVENANCE_ASSUMED : PROVENANCE_TABLE;
    struct offer o;
    char id[128], date[32];
    offer_init(&o);
    snprintf(id, sizeof(id), "%s", s->instance);
    offer_put_text(&o, OFFER_PROVIDER, s->provider, from);
    offer_put_text(&o, OFFER_ID, id, from);
    offer_put_number(&o, OFFER_DEVICE, DEVICE_GPU, from);
    offer_put_number(&o, OFFER_MARKET, market, from);
    if (price_micro >= 0) {
        offer_put_number(&o, OFFER_PRICE, (double)price_micro / (double)USD_MICRO, from);
        earliest(date, s->price_date);
        offer_put_text(&o, OFFER_FETCHED_AT, date, from);
    }
    if (is_clustered(s) && s->gpus > 1 && s->max_nodes < 1)
        offer_put_number(&o, OFFER_MAX_NODES, ASSUMED_MAX_NODES, PROVENANCE_ASSUMED);
    offer_settle(&o); /* the rest comes from the shape */
    if (market == MARKET_SPOT) {
        snprintf(id, sizeof(id), "%.100s:spot", s->instance);
        offer_put_text(&o, OFFER_ID, id, from);
    }
    return offers_add(out, &o, e);
}

static enum rc read_sample(struct offers *out, const struct source_input *in, struct err *e)
{
    (void)in;
    enum rc rc = RC_OK;
    for (size_t i = 0; i < shape_count() && !rc; i++) {
        const struct shape *s = shape_at(i);
        rc = add(out, s, MARKET_ON_DEMAND, s->usd_micro_per_hour, e);
        if (!rc && s->spot_usd_micro_per_hour >= 0)
            rc = add(out, s, MARKET_SPOT, s->spot_usd_micro_per_hour, e);
    }
    return rc;
}

const struct source SOURCE_SAMPLE = {
    .name = "sample",
    .summary = "known instance shapes at dated list prices",
    .read = read_sample,
};
