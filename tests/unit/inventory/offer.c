#include "inventory/offer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

static struct offer from_text(const char *text)
{
    struct err e = ERR_INIT;
    struct json *v;
    struct offer o;
    if (json_parse(&v, text, strlen(text), &e))
        fail_msg("%s", e.msg);
    assert_int_equal(offer_from_json(&o, v, &e), RC_OK);
    json_free(v);
    offer_settle(&o);
    return o;
}

static void unknown_is_not_zero(void **state)
{
    (void)state;
    struct offer o;
    offer_init(&o);
    struct json *v = offer_to_json(&o);
    for (int f = 0; f < OFFER_FIELD_COUNT; f++)
        assert_false(offer_is_known(&o, (enum offer_field)f));
    assert_null(json_get(v, "price_usd_per_hour"));
    assert_null(json_get(v, "nodes_available"));
    assert_null(json_get(json_get(v, "billing"), "min_hours"));
    assert_string_equal(json_str(v, "fabric", ""), "unknown");
    assert_string_equal(json_str(json_get(v, "provenance"), "ram_bytes", ""), "unknown");
    json_free(v);
}

static void every_field_survives_json(void **state)
{
    (void)state;
    const char *text =
        "{\"provider\":\"dc\",\"id\":\"a\",\"region\":\"r\",\"device\":\"gpu\",\"gpu\":\"h100-"
        "sxm\","
        "\"gpus_per_node\":8,\"nodes_available\":7,\"max_nodes_one_fabric\":5,"
        "\"gpu_memory_bytes\":85520809984,\"price_usd_per_hour\":19.920001,\"market\":\"spot\","
        "\"fabric\":\"roce\",\"inter_gbps_per_node\":1234.5,\"nics_per_node\":8,"
        "\"nvlink\":\"nvlink4\",\"vcpus\":96,\"isa\":\"x86-64-v4\",\"arch\":\"x86_64\","
        "\"ram_bytes\":1,\"nvme_bytes\":2,\"billing\":{\"granularity_seconds\":60.0,"
        "\"minimum_seconds\":600.0,\"setup_usd\":1.5,\"min_hours\":24.0,"
        "\"available_until\":\"2027-01-01T00:00:00Z\"},\"storage_usd_per_gib_month\":0.08,"
        "\"egress_usd_per_gib\":0.09,\"interruptions_per_hour\":0.01,\"notice_seconds\":120.0,"
        "\"driver\":\"570\",\"fetched_at\":\"2026-11-30T00:00:00Z\"}";
    struct offer o = from_text(text);
    assert_string_equal(o.problem, "");
    assert_true(o.price_usd_micro_per_hour == 19920001);
    assert_int_equal(o.market, MARKET_SPOT);
    struct json *v = offer_to_json(&o);
    for (int f = 0; f < OFFER_FIELD_COUNT; f++)
        assert_int_equal(o.provenance[f], PROVENANCE_REPORTED);
    char *first = json_print(v, false);
    /* The document we wrote starts with exactly what was read. */
    assert_memory_equal(first, text, strlen(text) - 1);
    struct offer again;
    struct err e = ERR_INIT;
    assert_int_equal(offer_from_json(&again, v, &e), RC_OK);
    assert_memory_equal(&again, &o, sizeof(o));
    free(first);
    json_free(v);
}

static void a_field_of_the_wrong_type_becomes_a_problem_that_names_it(void **state)
{
    (void)state;
    static const struct {
        const char *json, *problem;
    } CASES[] = {
        {"{\"gpu\":\"h100\",\"gpus_per_node\":\"8\"}", "'gpus_per_node' must be a whole number"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":8.5}", "'gpus_per_node': 8.5 must be a whole number"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":-8}", "'gpus_per_node': -8 is negative"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":1e30}", "'gpus_per_node': 1e+30 is too large"},
        {"{\"gpu\":7,\"gpus_per_node\":8}", "'gpu' must be a text"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":8,\"price_usd_per_hour\":\"2\"}",
            "'price_usd_per_hour' must be a number"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":8,\"price_usd_per_hour\":-2}",
            "'price_usd_per_hour': -2 is negative"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":8,\"price_usd_per_hour\":1e12}",
            "'price_usd_per_hour': 1e+12 is too large"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":8,\"market\":\"auction\"}",
            "'market': 'auction' is not a known word"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":8,\"billing\":[1]}", "'billing' must be an object"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":8,\"price_usd_per_hour\":0}",
            "the price is 0; only owned nodes are free"},
        {"{\"gpu\":\"h100\",\"gpus_per_node\":8,\"nodes_available\":0}", "none is available now"},
        {"{\"gpu\":\"h100\"}", "the number of GPUs in a node is unknown"},
        {"{}", "no GPU is named"},
        {"{\"gpu\":\"h100 MIG 1g.10gb\",\"gpus_per_node\":1}",
            "a slice of a GPU (MIG) cannot be planned"},
        {"{\"gpu\":\"MI300X\",\"gpus_per_node\":8}", "AMD GPUs cannot be planned"},
        {"{\"gpu\":\"h100-smx\",\"gpus_per_node\":8}",
            "unknown GPU 'h100-smx'; the nearest known is 'h100-sxm'"},
        {"{\"device\":\"cpu\",\"gpu\":\"EPYC\"}", "the memory of the machine is unknown"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++)
        assert_string_equal(from_text(CASES[i].json).problem, CASES[i].problem);
}

static void owned_nodes_may_cost_nothing(void **state)
{
    (void)state;
    struct offer o = from_text(
        "{\"gpu\":\"h100\",\"gpus_per_node\":8,\"price_usd_per_hour\":0,\"market\":\"owned\"}");
    assert_string_equal(o.problem, "");
    assert_true(o.price_usd_micro_per_hour == 0);
}

static void gaps_are_filled_from_the_shape_then_the_gpu_then_cautiously(void **state)
{
    (void)state;
    struct offer o = from_text("{\"provider\":\"aws\",\"id\":\"p5.48xlarge\"}");
    assert_string_equal(o.gpu, "h100-sxm");
    assert_true(o.gpus_per_node == 8 && o.vcpus == 192 && o.ram_bytes == 2048LL << 30);
    assert_int_equal(o.fabric, FABRIC_EFA);
    assert_int_equal(o.provenance[OFFER_FABRIC], PROVENANCE_TABLE);
    assert_true(o.gpu_memory_bytes == 81559LL << 20);
    assert_true(o.price_usd_micro_per_hour == OFFER_UNKNOWN); /* list prices go stale */

    o = from_text(
        "{\"provider\":\"x\",\"id\":\"y\",\"gpu\":\"A100 SXM4 80GB\",\"gpus_per_node\":8}");
    assert_true(o.ram_bytes == 1024LL << 30); /* 128 GiB for each GPU of a board of eight */
    assert_int_equal(o.provenance[OFFER_RAM], PROVENANCE_ASSUMED);
    assert_int_equal(o.fabric, FABRIC_UNKNOWN);
    assert_true(o.max_nodes_one_fabric == 1); /* no fabric was promised */

    o = from_text("{\"provider\":\"x\",\"id\":\"a100-ib.8x\",\"gpu\":\"A100 SXM4 80GB\","
                  "\"gpus_per_node\":8,\"nodes_available\":6}");
    assert_int_equal(o.fabric, FABRIC_INFINIBAND);
    assert_int_equal(o.provenance[OFFER_FABRIC], PROVENANCE_ASSUMED);
    assert_float_equal(o.inter_gbps_per_node, 1600, 1e-9);
    assert_true(o.max_nodes_one_fabric == 6);
}

static void settling_twice_changes_nothing(void **state)
{
    (void)state;
    struct offer once =
        from_text("{\"provider\":\"gcp\",\"id\":\"a3-megagpu-8g\",\"price_usd_per_hour\":92.21}");
    struct offer twice = once;
    offer_settle(&twice);
    assert_memory_equal(&once, &twice, sizeof(once));
}

static void foreign_texts_cannot_steer_a_terminal_or_overflow(void **state)
{
    (void)state;
    struct offer o;
    offer_init(&o);
    offer_put_text(&o, OFFER_ID, "  \x1b[2Jevil\x07\r\n\xff ", PROVENANCE_REPORTED);
    assert_string_equal(o.id, "?[2Jevil????");
    char longer[1000];
    memset(longer, 'x', sizeof(longer) - 1);
    memcpy(longer + 46, "é", 2); /* the cut would fall inside this character */
    longer[sizeof(longer) - 1] = '\0';
    offer_put_text(&o, OFFER_PROVIDER, longer, PROVENANCE_REPORTED);
    assert_int_equal(strlen(o.provider), 46);
}

static void sorts_with_unknown_last_in_both_directions(void **state)
{
    (void)state;
    struct offers *l = offers_new();
    static const int64_t PRICES[] = {5, OFFER_UNKNOWN, 3, 9, OFFER_UNKNOWN, 3};
    for (int i = 0; i < 6; i++) {
        struct offer o;
        char id[2] = {(char)('a' + i), '\0'};
        offer_init(&o);
        offer_put_text(&o, OFFER_ID, id, PROVENANCE_REPORTED);
        o.gpus_per_node = 1;
        o.price_usd_micro_per_hour = PRICES[i];
        assert_int_equal(offers_add(l, &o, NULL), RC_OK);
    }
    char order[7] = "";
    offers_sort_by_gpu_price(l, false);
    for (size_t i = 0; i < 6; i++)
        order[i] = offers_at(l, i)->id[0];
    assert_string_equal(order, "cfadbe");
    offers_sort(l, OFFER_PRICE, true);
    for (size_t i = 0; i < 6; i++)
        order[i] = offers_at(l, i)->id[0];
    assert_string_equal(order, "dacfbe");
    offers_sort(l, OFFER_ID, false);
    assert_string_equal(offers_at(l, 0)->id, "a");
    offers_free(l);
}

static void price_per_gpu_is_rounded_up(void **state)
{
    (void)state;
    struct offer o;
    offer_init(&o);
    o.gpus_per_node = 8;
    assert_true(offer_price_per_gpu_hour(&o) == OFFER_UNKNOWN);
    o.price_usd_micro_per_hour = 19920001;
    assert_true(offer_price_per_gpu_hour(&o) == 2490001);
}

int test_offer(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_is_not_zero),
        cmocka_unit_test(every_field_survives_json),
        cmocka_unit_test(a_field_of_the_wrong_type_becomes_a_problem_that_names_it),
        cmocka_unit_test(owned_nodes_may_cost_nothing),
        cmocka_unit_test(gaps_are_filled_from_the_shape_then_the_gpu_then_cautiously),
        cmocka_unit_test(settling_twice_changes_nothing),
        cmocka_unit_test(foreign_texts_cannot_steer_a_terminal_or_overflow),
        cmocka_unit_test(sorts_with_unknown_last_in_both_directions),
        cmocka_unit_test(price_per_gpu_is_rounded_up),
    };
    return cmocka_run_group_tests_name("inventory/offer", tests, NULL, NULL);
}
