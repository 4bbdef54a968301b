#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/str.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"

#define HEADER                                                                                     \
    "name,gpu,gpus,gpu_mem,nodes,fabric,inter_gbps,vcpus,ram,nvme,price,price_unit,market,"        \
    "region\n"

static struct offers *read_ok(const char *text)
{
    struct offers *l = offers_new();
    struct err e = ERR_INIT;
    struct source_input in = {.text = text, .len = strlen(text)};
    if (SOURCE_OFFERS_CSV.read(l, &in, &e))
        fail_msg("%s", e.msg);
    return l;
}

static void reads_units_as_people_write_them(void **state)
{
    (void)state;
    struct offers *l = read_ok(HEADER
        "lab-a100,A100 SXM4 80GB,8,80GB,2,ib,1600,128,2TB,2x7.68TB,,,,rack-12\n"
        "lab-4090,RTX 4090,4,24564MiB,3,eth,25,64,256GiB,2TB,0.10,usd/gpu/h,owned,office\n"
        "leased-h100,H100-SXM5,8,80,4,IB NDR,\"3,200\",192,2048,30.7,\"1,152.00\",usd/node/day,"
        "reserved,dc-1\n"
        "monthly,H100-SXM5,8,80,4,IB NDR,3200,192,2048,30.7,7300,usd/node/month,reserved,dc-1\n");
    const struct offer *a = offers_at(l, 0), *b = offers_at(l, 1), *c = offers_at(l, 2);
    assert_string_equal(a->gpu, "a100-80-sxm");
    assert_true(a->gpu_memory_bytes == 80LL << 30);
    assert_int_equal(a->provenance[OFFER_GPU_MEMORY], PROVENANCE_TABLE);
    assert_true(a->ram_bytes == 2000000000000LL);
    assert_true(a->nvme_bytes == 15360000000000LL);
    assert_true(a->price_usd_micro_per_hour == OFFER_UNKNOWN);
    assert_int_equal(a->market, MARKET_UNKNOWN);
    assert_string_equal(a->provider, "local");

    assert_string_equal(b->gpu, "rtx4090");
    assert_true(b->gpu_memory_bytes == 24564LL << 20);
    assert_int_equal(b->provenance[OFFER_GPU_MEMORY], PROVENANCE_REPORTED);
    assert_true(b->price_usd_micro_per_hour == 400000); /* 4 GPUs at 0.10 */
    assert_int_equal(b->market, MARKET_OWNED);
    assert_int_equal(b->fabric, FABRIC_ETHERNET);
    assert_true(b->max_nodes_one_fabric == 3);

    assert_string_equal(c->gpu, "h100-sxm");
    assert_true(c->gpu_memory_bytes == 81559LL << 20); /* what the driver shows of "80 GB" */
    assert_int_equal(c->fabric, FABRIC_INFINIBAND);
    assert_float_equal(c->inter_gbps_per_node, 3200, 1e-9);
    assert_true(c->ram_bytes == 2048LL << 30);
    assert_true(c->nvme_bytes == 30700000000000LL);
    assert_true(c->price_usd_micro_per_hour == 48000000);               /* 1152 over 24 hours */
    assert_true(offers_at(l, 3)->price_usd_micro_per_hour == 10000000); /* 7300 over 730 hours */
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(offers_at(l, i)->problem, "");
    offers_free(l);
}

static void takes_fields_of_offers_json_and_leaves_notes_alone(void **state)
{
    (void)state;
    struct offers *l = read_ok("gpu,gpus_per_node,price_usd_per_hour,billing.min_hours,provider,"
                               "arch,bought in\nh200,8,28,24,dc,x86_64,2025\n");
    const struct offer *o = offers_at(l, 0);
    assert_true(o->gpus_per_node == 8);
    assert_true(o->price_usd_micro_per_hour == 28000000);
    assert_float_equal(o->min_hours, 24, 1e-9);
    assert_string_equal(o->provider, "dc");
    assert_string_equal(o->id, "line-2");
    offers_free(l);
}

static void reads_cpu_nodes(void **state)
{
    (void)state;
    struct offers *l = read_ok("name,device,gpu,gpus,gpu_mem,nodes,fabric,inter_gbps,ram\n"
                               "c,cpu,EPYC 9654,2,64GiB,4,eth,25,128\n");
    const struct offer *o = offers_at(l, 0);
    assert_int_equal(o->device, DEVICE_CPU);
    assert_string_equal(o->gpu, "EPYC 9654");
    assert_true(o->gpu_memory_bytes == 64LL << 30);
    assert_true(o->max_nodes_one_fabric == 4);
    assert_string_equal(o->problem, "");
    offers_free(l);
}

static void names_line_and_column_of_what_it_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *sentence;
    } CASES[] = {
        {"name,gpu,gpus\na,h100,x\n", "line 2: 'gpus': 'x' is not a number"},
        {"name,gpu,gpus\n\n# note\na,h100,8\nb,h100,-1\n", "line 5: 'gpus': -1 is negative"},
        {"name,gpu,gpus\na,h100,0\n", "line 2: 'gpus': must be at least 1"},
        {"name,gpu,gpus\na,h100,\n", "line 2: 'gpus' is empty"},
        {"name,gpu,gpus\na,,8\n", "line 2: 'gpu' is empty"},
        {"name,gpu,gpus\na,h100,8.5\n", "line 2: 'gpus': 8.5 must be a whole number"},
        {"name,gpu,gpus\na,h100,99999\n", "line 2: 'gpus': 99999 is too large"},
        {"name,gpu,gpus\na,h100,nan\n", "line 2: 'gpus': 'nan' is not a number"},
        {"name,gpu,gpus,price\na,h100,8,3\n",
            "line 2: 'price' has no 'price_unit' (usd/gpu/h, usd/node/h, usd/node/day or "
            "usd/node/month)"},
        {"name,gpu,gpus,price,price_unit\na,h100,8,3,eur/h\n",
            "line 2: 'price_unit': 'eur/h' is not one of usd/gpu/h, usd/node/h, usd/node/day, "
            "usd/node/month"},
        {"name,gpu,gpus,price,price_unit\na,h100,8,-3,usd/node/h\n",
            "line 2: 'price': '-3' is not an amount of dollars; write it like 1500 or 2.49"},
        {"name,gpu,gpus,ram\na,h100,8,lots\n",
            "line 2: 'ram': 'lots' is not a size; write it like 80GiB, 512MiB or 1.5TB"},
        {"name,gpu,gpus,nvme\na,h100,8,5000x1TB\n",
            "line 2: 'nvme': '5000x1TB' has an absurd number of disks"},
        {"name,gpu,gpus,gpu_mem\na,h100,8,80PB\n", "line 2: 'gpu_mem': 8e+16 is too large"},
        {"name,gpu,gpus,fabric\na,h100,8,string\n",
            "line 2: 'fabric': 'string' is not one of none, ethernet, roce, infiniband, efa, tcpx, "
            "unknown"},
        {"name,gpu,gpus,market\na,h100,8,stolen\n",
            "line 2: 'market': 'stolen' is not one of on-demand, spot, reserved, owned"},
        {"name,gpu\na,h100\n",
            "column 'gpus' is missing; the header is name,gpu,gpus,gpu_mem,nodes,fabric,inter_gbps,"
            "vcpus,ram,nvme,price,price_unit,market,region"},
        {"name,gpu,gpus,marke\na,h100,8,spot\n", "unknown column 'marke'; did you mean 'market'?"},
        {"name,gpu,gpus\na,h100,8,9\n", "line 2 has 4 columns, the header has 3"},
        {"name,gpu,gpus\n\"a,h100,8\n", "line 2: a quoted cell is not closed"},
        {"# nothing\n", "no header line"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct offers *l = offers_new();
        struct err e = ERR_INIT;
        struct source_input in = {.text = CASES[i].text, .len = strlen(CASES[i].text)};
        assert_int_equal(SOURCE_OFFERS_CSV.read(l, &in, &e), RC_INVALID);
        assert_string_equal(e.msg, CASES[i].sentence);
        offers_free(l);
    }
}

static void assert_reads_back_identically(struct offers *l)
{
    struct str csv = STR_INIT;
    offers_write_csv(l, &csv);
    struct offers *again = read_ok(str_text(&csv));
    assert_int_equal(offers_count(again), offers_count(l));
    for (size_t i = 0; i < offers_count(l); i++)
        if (memcmp(offers_at(l, i), offers_at(again, i), sizeof(struct offer)) != 0)
            fail_msg("offer %zu differs: %s", i, str_text(&csv));
    str_release(&csv);
    offers_free(again);
}

static struct offers *read_json(const char *text, struct str *unknown)
{
    struct err e = ERR_INIT;
    struct offers *l = offers_new();
    struct source_input in = {.text = text, .len = strlen(text), .unknown = unknown};
    if (SOURCE_OFFERS_JSON.read(l, &in, &e))
        fail_msg("%s", e.msg);
    return l;
}

static void offers_that_lack_much_read_back_identically(void **state)
{
    (void)state;
    struct offers *l = read_json("{\"schema\": \"offers/1\", \"offers\": ["
                                 "{\"provider\": \"dc\", \"id\": null, \"gpu\": \"h100-sxm\","
                                 " \"gpus_per_node\": 8, \"price_usd_per_hour\": 3},"
                                 "{\"id\": \"a\", \"gpu\": \"h100-sxm\", \"gpus_per_node\": null},"
                                 "{\"id\": \"b\", \"gpus_per_node\": 4},"
                                 "{}]}",
        NULL);
    assert_int_equal(offers_count(l), 4);
    assert_reads_back_identically(l);
    offers_free(l);
}

static void names_what_nobody_reads(void **state)
{
    (void)state;
    struct str unknown = STR_INIT;
    offers_free(read_json("{\"schema\": \"offers/1\", \"offers\": ["
                          "{\"gpu\": \"h100-sxm\", \"gpus\": 8, \"price_usd_per_hours\": 3,"
                          " \"billing\": {\"min_hour\": 2, \"min_hours\": 3}},"
                          "{\"gpu\": \"h100-sxm\", \"gpus\": 8, \"provenance\": {}}]}",
        &unknown));
    assert_string_equal(str_text(&unknown), "'gpus', 'price_usd_per_hours', 'billing.min_hour'");
    str_reset(&unknown);
    struct err e = ERR_INIT;
    struct offers *l = offers_new();
    const char *csv = "gpu,gpus,cost an hour,region,bought in\nh100,8,3,eu,2025\n";
    struct source_input in = {.text = csv, .len = strlen(csv), .unknown = &unknown};
    assert_int_equal(SOURCE_OFFERS_CSV.read(l, &in, &e), RC_OK);
    assert_string_equal(str_text(&unknown), "'cost an hour', 'bought in'");
    offers_free(l);
    str_release(&unknown);
}

static void the_sample_reads_back_identically(void **state)
{
    (void)state;
    struct offers *l = offers_new();
    struct source_input in = {0};
    assert_int_equal(SOURCE_SAMPLE.read(l, &in, NULL), RC_OK);
    assert_true(offers_count(l) > 90);
    assert_reads_back_identically(l);
    offers_free(l);
}

static void this_machine_reads_back_identically(void **state)
{
    (void)state;
    struct offers *l = offers_new();
    struct source_input in = {.ranks_per_node = 3};
    assert_int_equal(SOURCE_HERE.read(l, &in, NULL), RC_OK);
    assert_true(offers_at(l, 0)->gpus_per_node == 3);
    assert_int_equal(offers_at(l, 0)->device, DEVICE_CPU);
    assert_reads_back_identically(l);
    offers_free(l);
}

static void odd_values_and_hostile_texts_read_back_identically(void **state)
{
    (void)state;
    static const char *const TEXTS[] = {"a,b", "\"quoted\"", "# not a comment", "=1+1", "tab\there",
        "new\nline", "\xff\xfe", "é日本", "'", "x\"y,z#"};
    struct offers *l = offers_new();
    for (size_t i = 0; i < sizeof(TEXTS) / sizeof(TEXTS[0]); i++) {
        struct offer o;
        offer_init(&o);
        offer_put_text(&o, OFFER_ID, TEXTS[i], PROVENANCE_REPORTED);
        offer_put_text(&o, OFFER_PROVIDER, TEXTS[i], PROVENANCE_REPORTED);
        offer_put_text(&o, OFFER_GPU, i % 2 ? TEXTS[i] : "h100", PROVENANCE_REPORTED);
        offer_put_number(&o, OFFER_GPUS_PER_NODE, 1 + (double)i, PROVENANCE_REPORTED);
        offer_put_number(&o, OFFER_GPU_MEMORY, 80e9 + (double)i, PROVENANCE_REPORTED);
        offer_put_number(&o, OFFER_RAM, 1e12 / 3 + (double)i, PROVENANCE_REPORTED);
        offer_put_number(&o, OFFER_INTER_GBPS, 1600.0 / 7, PROVENANCE_ASSUMED);
        offer_put_number(&o, OFFER_INTERRUPTIONS, 0.1 + 0.2, PROVENANCE_REPORTED);
        o.price_usd_micro_per_hour = 1 + (int64_t)i;
        o.provenance[OFFER_PRICE] = PROVENANCE_REPORTED;
        offer_problem(&o, "%s", i % 3 ? "" : TEXTS[i]);
        offer_settle(&o);
        assert_int_equal(offers_add(l, &o, NULL), RC_OK);
    }
    assert_reads_back_identically(l);
    offers_free(l);
}

int test_offers_csv(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_units_as_people_write_them),
        cmocka_unit_test(takes_fields_of_offers_json_and_leaves_notes_alone),
        cmocka_unit_test(reads_cpu_nodes),
        cmocka_unit_test(names_line_and_column_of_what_it_refuses),
        cmocka_unit_test(offers_that_lack_much_read_back_identically),
        cmocka_unit_test(names_what_nobody_reads),
        cmocka_unit_test(the_sample_reads_back_identically),
        cmocka_unit_test(this_machine_reads_back_identically),
        cmocka_unit_test(odd_values_and_hostile_texts_read_back_identically),
    };
    return cmocka_run_group_tests_name("inventory/offers_csv", tests, NULL, NULL);
}
