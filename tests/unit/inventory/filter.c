#include "inventory/filter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "inventory/offer.h"
#include "inventory/sources/source.h"

/* Five offers, each named by a letter. */
static struct offers *market(void)
{
    static const char TEXT[] =
        "name,provider,gpu,gpus,gpu_mem,nodes,fabric,inter_gbps,ram,price,price_unit,market,"
        "region\n"
        "a,aws,H100 SXM,8,80,4,efa,3200,2048,16,usd/node/h,on-demand,us-east-1\n"
        "b,gcp,H100 NVL,1,94,1,none,0,200,1.5,usd/gpu/h,spot,us-west-2\n"
        "c,aws,A100,8,80,8,ib,1600,1024,,,,eu-1\n"
        "d,lab,RTX 4090,2,24,2,eth,25,128,0,usd/node/h,owned,office\n"
        "e,dc,H200,8,141,3,ib,3200,2048,30,usd/node/h,reserved,us-east-9\n";
    struct offers *l = offers_new();
    struct err e = ERR_INIT;
    struct source_input in = {.text = TEXT, .len = sizeof(TEXT) - 1};
    if (SOURCE_OFFERS_CSV.read(l, &in, &e))
        fail_msg("%s", e.msg);
    return l;
}

static void chooses_exactly_the_offers_that_meet_every_term(void **state)
{
    (void)state;
    static const struct {
        const char *filter, *chosen;
    } CASES[] = {
        {"", "abcde"},
        {"gpu:h100", "ab"},
        {"gpu:h100-nvl", "b"},
        {"gpu:\"", ""},
        {"gpu:h100,a100", "abc"},
        {"gpu:4090", "d"},
        {"!gpu:h100", "cde"},
        {"vram>=80", "abce"},
        {"vram>80", "be"},
        {"vram=80", "ac"},
        {"vram>=80GiB", "bce"}, /* the driver of an 80 GB H100 reports 79.6 GiB */
        {"vram<80GiB", "ad"},
        {"price<=2", "abd"},
        {"price<2", "bd"},
        {"!price<2", "ace"}, /* c has no price, so it is not below 2 */
        {"price>=0", "abde"},
        {"priced", "abde"},
        {"node_price=16", "a"},
        {"nodes>=3", "ace"},
        {"gpus=8", "ace"},
        {"gbps>=1600", "ace"},
        {"ram>=1024", "ace"},
        {"ram>1TiB", "ae"},
        {"fabric:ib", "ce"},
        {"ib", "ce"},
        {"fabric:infiniband,efa", "ace"},
        {"spot", "b"},
        {"!spot", "acde"},
        {"market:owned,reserved", "de"},
        {"provider:aws", "ac"},
        {"PROVIDER:AWS", "ac"},
        {"region:us-", "abe"},
        {"office", "d"},
        {"us-east gpu:h200", "e"},
        {"gpu:h100 vram>=80 price<2.5 nodes>=4 fabric:efa !spot provider:aws", "a"},
        {"device:cpu", ""},
    };
    struct offers *l = market();
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct filter *f;
        struct err e = ERR_INIT;
        if (filter_parse(&f, CASES[i].filter, &e))
            fail_msg("'%s': %s", CASES[i].filter, e.msg);
        char chosen[8] = "";
        for (size_t k = 0, n = 0; k < offers_count(l); k++)
            if (filter_match(f, offers_at(l, k)))
                chosen[n++] = offers_at(l, k)->id[0];
        if (strcmp(chosen, CASES[i].chosen) != 0)
            fail_msg("'%s' chose '%s', not '%s'", CASES[i].filter, chosen, CASES[i].chosen);
        filter_free(f);
    }
    offers_free(l);
}

static void refuses_what_it_does_not_understand(void **state)
{
    (void)state;
    static const struct {
        const char *filter, *sentence;
    } CASES[] = {
        {"prise<2", "filter 'prise<2': unknown key 'prise'; did you mean 'price'?"},
        {"price<", "filter 'price<': the value is missing"},
        {"price<cheap", "filter 'price<cheap': 'cheap' is not an amount of dollars; write it like "
                        "1500 or 2.49"},
        {"vram>=big",
            "filter 'vram>=big': 'big' is not a size; write it like 80GiB, 512MiB or 1.5TB"},
        {"gpu>h100", "filter 'gpu>h100': 'gpu' is a text, write gpu:VALUE"},
        {"fabric:wifi", "filter 'fabric:wifi': 'wifi' is not one of network: none, ethernet, roce, "
                        "ib, efa, tcpx"},
        {"!", "filter '!': nothing to negate"},
        {":x", "filter ':x': unknown key ''; keys are gpu, provider, region, id, fabric, market, "
               "device, arch, vram, price, node_price, nodes, gpus, gbps, vcpus, ram, nvme"},
    };
    for (size_t i = 0; i < sizeof(CASES) / sizeof(CASES[0]); i++) {
        struct filter *f;
        struct err e = ERR_INIT;
        assert_int_equal(filter_parse(&f, CASES[i].filter, &e), RC_USAGE);
        assert_null(f);
        assert_string_equal(e.msg, CASES[i].sentence);
    }
}

int test_filter(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooses_exactly_the_offers_that_meet_every_term),
        cmocka_unit_test(refuses_what_it_does_not_understand),
    };
    return cmocka_run_group_tests_name("inventory/filter", tests, NULL, NULL);
}
