#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "inventory/shape.h"
#include "inventory/sources/source.h"

static struct offers *sample(void)
{
    struct offers *l = offers_new();
    struct source_input in = {0};
    assert_int_equal(SOURCE_SAMPLE.read(l, &in, NULL), RC_OK);
    return l;
}

static const struct offer *named(const struct offers *l, const char *provider, const char *id)
{
    for (size_t i = 0; i < offers_count(l); i++)
        if (strcmp(offers_at(l, i)->provider, provider) == 0 &&
            strcmp(offers_at(l, i)->id, id) == 0)
            return offers_at(l, i);
    fail_msg("the sample lacks %s %s", provider, id);
    return NULL;
}

/* List prices typed from the providers' pages of the given day. */
static void holds_real_shapes_at_dated_list_prices(void **state)
{
    (void)state;
    struct offers *l = sample();
    const struct offer *p5 = named(l, "aws", "p5.48xlarge");
    assert_true(p5->price_usd_micro_per_hour == 55040000);
    assert_string_equal(p5->fetched_at, "2026-08-21T00:00:00Z");
    assert_int_equal(p5->market, MARKET_ON_DEMAND);
    assert_true(p5->nodes_available == OFFER_UNKNOWN);
    assert_true(p5->max_nodes_one_fabric == 16);
    assert_int_equal(p5->provenance[OFFER_MAX_NODES], PROVENANCE_ASSUMED);
    const struct offer *spot = named(l, "aws", "p5en.48xlarge:spot");
    assert_true(spot->price_usd_micro_per_hour == 26570000);
    assert_int_equal(spot->market, MARKET_SPOT);
    const struct offer *cluster = named(l, "runpod", "Instant Cluster H100 x8/node");
    assert_true(cluster->price_usd_micro_per_hour == OFFER_UNKNOWN);
    assert_true(cluster->max_nodes_one_fabric == 8);
    assert_int_equal(cluster->provenance[OFFER_MAX_NODES], PROVENANCE_TABLE);
    const struct offer *oci = named(l, "oci", "BM.GPU.H100.8");
    assert_string_equal(oci->fetched_at, "2026-01-01T00:00:00Z"); /* only the year is known */
    offers_free(l);
}

static void every_offer_is_distinct_and_sane(void **state)
{
    (void)state;
    struct offers *l = sample();
    for (size_t i = 0; i < offers_count(l); i++) {
        const struct offer *o = offers_at(l, i);
        const struct gpu *g = offer_gpu(o);
        assert_non_null(g);
        assert_true(o->gpus_per_node >= 1 && o->gpus_per_node <= 16);
        assert_true(o->max_nodes_one_fabric >= 1);
        if (o->fabric == FABRIC_NONE || o->inter_gbps_per_node <= 0)
            assert_true(o->max_nodes_one_fabric == 1);
        if (g->vendor == GPU_NVIDIA)
            assert_string_equal(o->problem, "");
        int64_t price = offer_price_per_gpu_hour(o);
        assert_true(price == OFFER_UNKNOWN || (price > 50000 && price < 30000000));
        for (size_t k = 0; k < i; k++)
            assert_false(strcmp(offers_at(l, k)->id, o->id) == 0 &&
                         strcmp(offers_at(l, k)->provider, o->provider) == 0);
    }
    offers_free(l);
}

static void spot_is_never_dearer_than_on_demand(void **state)
{
    (void)state;
    for (size_t i = 0; i < shape_count(); i++) {
        const struct shape *s = shape_at(i);
        assert_non_null(gpu_find(s->gpu, 0));
        if (s->spot_usd_micro_per_hour >= 0 && s->usd_micro_per_hour >= 0)
            assert_true(s->spot_usd_micro_per_hour < s->usd_micro_per_hour);
    }
    assert_null(shape_find("aws", "p5.96xlarge"));
}

int test_sample(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_real_shapes_at_dated_list_prices),
        cmocka_unit_test(every_offer_is_distinct_and_sane),
        cmocka_unit_test(spot_is_never_dearer_than_on_demand),
    };
    return cmocka_run_group_tests_name("inventory/sample", tests, NULL, NULL);
}
