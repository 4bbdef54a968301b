/* Engines side by side, and what others claim about them. */
#include "planner/compare.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "inventory/offer.h"
#include "planner/claims.h"
#include "planner/engine_use.h"
#include "planner/hardware.h"

#include "lib_market.h"

/* Nodes of eight H100 on InfiniBand, without a price or a number of them. */
static struct offer h100_node(void)
{
    struct offer o;
    offer_init(&o);
    offer_put_text(&o, OFFER_ID, "x", PROVENANCE_REPORTED);
    offer_put_number(&o, OFFER_DEVICE, DEVICE_GPU, PROVENANCE_REPORTED);
    offer_put_text(&o, OFFER_GPU, "h100-sxm", PROVENANCE_REPORTED);
    o.gpus_per_node = 8;
    o.fabric = FABRIC_INFINIBAND;
    o.inter_gbps_per_node = 3200;
    offer_settle(&o);
    return o;
}

static struct job job_of(const char *model)
{
    struct job j;
    job_init(&j);
    assert_int_equal(model_find(&j.model, model, NULL), RC_OK);
    j.has_model = true;
    j.tokens = 1000000000;
    assert_int_equal(job_finish(&j, NULL), RC_OK);
    return j;
}

static struct compared compare(enum engine g, const char *model, int64_t nodes)
{
    struct err e = ERR_INIT;
    struct compared x;
    struct offer o = h100_node();
    struct job j = job_of(model);
    if (compare_engine(&x, g, &j, &o, nodes, market_rates, &e))
        fail_msg("%s", e.msg);
    job_release(&j);
    return x;
}

/* An article calls ZeRO-3 with CPU offload the standard for 30B to 70B on four nodes of H100.
 * States of 70B are 16 bytes x 70.55e9 / 32 = 35 GB of 80 GB: offload is not needed and costs time.
 */
static void the_offload_that_is_said_to_be_standard_is_not_needed(void **state)
{
    (void)state;
    static const char *const models[] = {"qwen2.5-32b", "llama-3.1-70b"};
    static const enum engine engines[] = {
        ENGINE_BERTH, ENGINE_DEEPSPEED, ENGINE_ACCELERATE_ZERO3, ENGINE_FSDP1, ENGINE_FSDP2};
    for (size_t m = 0; m < BASE_COUNT(models); m++) {
        for (size_t g = 0; g < BASE_COUNT(engines); g++) {
            struct compared x = compare(engines[g], models[m], 4);
            assert_true(x.fits);
            assert_true(x.estimate.fit_probability >= 0.5);
            assert_true(x.plain_step_s > 0);
            assert_int_equal(x.offloaded_step_s > 0, engine_offloads(engines[g]));
        }
    }
}

/* Nothing in the space that fits is faster. */
static void nothing_that_fits_is_faster(void **state)
{
    (void)state;
    for (int g = ENGINE_FSDP1; g < ENGINE_COUNT; g++) {
        struct compared x = compare((enum engine)g, "llama-3.1-8b", 2);
        struct job j = job_of("llama-3.1-8b");
        struct space space;
        const struct shape_of_ranks shape = {16, 8, true};
        j.engine = (enum engine)g;
        snprintf(j.stack, sizeof j.stack, "%s", x.stack);
        space_make(&space, &j, &shape, SPACE_USUAL);
        double least = INFINITY;
        for (size_t i = 0; i < space.n; i++) {
            struct estimate at;
            assert_int_equal(
                estimate_quick(&at, &j.model, &space.items[i], &x.machine, NULL), RC_OK);
            if (estimate_fits(&at))
                least = fmin(least, at.step_s);
        }
        assert_int_equal(x.fits, isfinite(least));
        if (x.fits)
            assert_true(x.estimate.step_s <= least * 1.01);
        else
            assert_true(x.short_by > 0);
        space_release(&space);
        job_release(&j);
    }
}

static void those_that_do_not_fit_come_last(void **state)
{
    (void)state;
    struct compared all[4] = {{.engine = ENGINE_DDP},
        {.engine = ENGINE_FSDP1, .exists = true, .short_by = 5},
        {.engine = ENGINE_FSDP2, .exists = true, .fits = true, .estimate = {.step_s = 2}},
        {.engine = ENGINE_MEGATRON, .exists = true, .fits = true, .estimate = {.step_s = 1}}};
    compare_sort(all, 4);
    assert_int_equal(all[0].engine, ENGINE_MEGATRON);
    assert_int_equal(all[1].engine, ENGINE_FSDP2);
    assert_int_equal(all[2].engine, ENGINE_FSDP1);
    assert_int_equal(all[3].engine, ENGINE_DDP);
}

static void refuted_claims_concern_no_result(void **state)
{
    (void)state;
    struct claims all = {0};
    struct hardware hw = {.nodes = 64, .ranks_per_node = 8, .gpu = "h100-sxm"};
    size_t verdicts[3] = {0}, shown = 0;
    assert_int_equal(claims_builtin(&all, NULL), RC_OK);
    for (size_t i = 0; i < all.n; i++) {
        struct claim c = all.items[i];
        verdicts[c.verdict]++;
        shown += claim_concerns(&c, ENGINE_DEEPSPEED, 405.9e9, &hw);
        assert_false(claim_concerns(&c, ENGINE_MEGATRON, 405.9e9, &hw));
        assert_false(claim_concerns(&c, ENGINE_DEEPSPEED, 70e9, &hw));
        c.verdict = CLAIM_REFUTED;
        assert_false(claim_concerns(&c, ENGINE_DEEPSPEED, 405.9e9, &hw));
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(all.items[k].id, c.id);
    }
    assert_int_equal(shown, 1);
    for (int v = CLAIM_HOLDS; v <= CLAIM_UNVERIFIABLE; v++)
        assert_true(verdicts[v] > 1);
    claims_release(&all);
}

static void bad_claims_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"id,verdict,claim,finding,source\na,perhaps,b,c,d\n",
        "id,verdict,claim,finding,source\na,holds,b,,d\n",
        "id,verdict,claim,finding,source,engine\na,holds,b,c,d,horovod\n"};
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        struct claims c = {0};
        struct err e = ERR_INIT;
        assert_int_not_equal(claims_parse(&c, bad[i], strlen(bad[i]), &e), RC_OK);
        assert_true(strlen(e.msg) > 10);
    }
}

int test_compare(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_offload_that_is_said_to_be_standard_is_not_needed),
        cmocka_unit_test(nothing_that_fits_is_faster),
        cmocka_unit_test(those_that_do_not_fit_come_last),
        cmocka_unit_test(refuted_claims_concern_no_result),
        cmocka_unit_test(bad_claims_are_refused),
    };
    return cmocka_run_group_tests_name(
        "planner/compare", tests, market_setup_fitted, market_teardown);
}
