#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/str.h"
#include "base/units.h"
#include "lib_market.h"
#include "planner/hardware.h"

/* Why two offers together are no plan, NULL when nothing is said of it. Valid as long as s. */
static const struct rejection *mix_of(const struct search *s)
{
    for (size_t i = 0; i < s->n_rejected; i++)
        if (strstr(s->rejected[i].why, " together would "))
            return &s->rejected[i];
    return NULL;
}

/* Poor hosts, so that a job too large for a node stays so. */
static struct offer poor(const char *id, const char *gpu, int64_t nodes, double dollars)
{
    struct offer o = market_offer(id, gpu, 8, nodes, (int64_t)(dollars * USD_MICRO));
    o.ram_bytes = 256LL << 30;
    return o;
}

static struct search *plans_on(const struct job *j, const struct offer *all, size_t n)
{
    struct offers *l = offers_new();
    for (size_t i = 0; i < n; i++)
        market_add(l, all[i]);
    struct search *s = market_plans(j, l, 0);
    offers_free(l);
    return s;
}

/* Of a product that is large enough for nothing but the rate to count. */
static double product_s(const struct offer *o)
{
    struct err e = ERR_INIT;
    struct hardware hw;
    struct machine mc;
    assert_int_equal(hardware_from_offer(&hw, o, 1, &e), RC_OK);
    assert_int_equal(machine_make(&mc, market_rates, &hw, "berth", &e), RC_OK);
    return machine_matmul_s(&mc, PRECISION_BF16, 1 << 16, 1 << 16, 1 << 20);
}

static void unequal_gpus_are_not_mixed_because_the_slowest_sets_the_pace(void **state)
{
    (void)state;
    struct job j = market_job("qwen2.5-32b", 1000000000, 2048, 256);
    struct offer all[2] = {poor("fast", "h100-sxm", 1, 16), poor("slow", "a100-80-sxm", 1, 9)};
    struct search *s = plans_on(&j, all, 2);
    assert_int_equal(s->n_plans, 0);
    const struct rejection *r = &s->rejected[0]; /* before what each lacks alone */
    assert_ptr_equal(r, mix_of(s));
    assert_non_null(strstr(r->what, "test fast"));
    assert_non_null(strstr(r->what, "test slow"));
    assert_non_null(strstr(r->why, "1 x 8 h100-sxm"));
    assert_non_null(strstr(r->why, "1 x 8 a100-80-sxm"));
    assert_non_null(strstr(r->why, "together would hold it, but unequal GPUs are not mixed: the "
                                   "slowest sets the pace, "));
    double said = strtod(strstr(r->why, "pace, ") + strlen("pace, "), NULL);
    assert_true(fabs(said - 100 * product_s(&all[0]) / product_s(&all[1])) < 2);
    assert_non_null(strstr(r->why, "% of what h100-sxm can"));
    search_free(s);
    /* it would: as many of the smaller card on one fabric do */
    struct offer both = poor("both", "a100-80-sxm", 2, 18);
    s = plans_on(&j, &both, 1);
    assert_int_equal(s->n_plans, 1);
    search_free(s);
    job_release(&j);
}

static void equal_gpus_of_two_offers_have_no_common_network(void **state)
{
    (void)state;
    struct job j = market_job("qwen2.5-32b", 1000000000, 2048, 256);
    struct offer all[2] = {poor("here", "h100-sxm", 1, 16), poor("there", "h100-sxm", 1, 17)};
    struct search *s = plans_on(&j, all, 2);
    assert_int_equal(s->n_plans, 0);
    assert_non_null(mix_of(s));
    assert_non_null(strstr(
        mix_of(s)->why, "together would hold it, but nodes of one plan come from one offer"));
    search_free(s);
    job_release(&j);
}

/* Six nodes of the slower are in time, the four of it and the two faster ones are not, alone. */
static void a_deadline_that_only_both_would_keep_is_named(void **state)
{
    (void)state;
    struct job j = market_job("llama-3.2-1b", 20000000000, 2048, 480);
    struct offer all[2] = {poor("fast", "h100-sxm", 2, 16), poor("slow", "a100-80-sxm", 4, 9)};
    struct offer six = poor("six", "a100-80-sxm", 6, 9);
    j.objective = OBJECTIVE_TIME;
    struct search *s = plans_on(&j, all, 2), *slow = plans_on(&j, &six, 1);
    assert_int_equal(slow->plans[0].nodes, 6);
    double alone = s->plans[0].bill.run_s[BILL_MID], both = slow->plans[0].bill.run_s[BILL_MID];
    assert_true(both < 0.9 * alone);
    search_free(s);
    search_free(slow);
    j.deadline_s = (alone + both) / 2;
    s = plans_on(&j, all, 2);
    assert_int_equal(s->n_plans, 0);
    assert_non_null(mix_of(s));
    assert_non_null(strstr(mix_of(s)->why, "together would be in time at best"));
    assert_non_null(strstr(mix_of(s)->why, "unequal GPUs are not mixed"));
    search_free(s);
    j.deadline_s = 0.5 * both;
    s = plans_on(&j, all, 2);
    assert_null(mix_of(s));
    search_free(s);
    job_release(&j);
}

static void nothing_is_said_where_mixing_would_not_do_or_is_not_needed(void **state)
{
    (void)state;
    struct job j = market_job("llama-3.1-70b", 1000000000, 2048, 256);
    struct offer all[3] = {poor("fast", "h100-sxm", 1, 16), poor("slow", "a100-80-sxm", 1, 9),
        poor("many", "a100-80-sxm", 8, 9)};
    struct search *s = plans_on(&j, all, 2);
    assert_int_equal(s->n_plans, 0);
    assert_null(mix_of(s)); /* too little for 70B */
    search_free(s);
    s = plans_on(&j, all, 3);
    assert_true(s->n_plans > 0);
    assert_null(mix_of(s));
    search_free(s);
    job_release(&j);
    j = market_job("qwen2.5-32b", 1000000000, 2048, 256);
    j.max_gpus = 8; /* both are 16 */
    s = plans_on(&j, all, 2);
    assert_int_equal(s->n_plans, 0);
    assert_null(mix_of(s));
    search_free(s);
    j.max_gpus = 0;
    all[1] = poor("cpu", "", 1, 1);
    all[1].device = DEVICE_CPU;
    all[1].gpu_memory_bytes = 512LL << 30;
    all[1].vcpus = 64;
    all[1].problem[0] = '\0';
    s = plans_on(&j, all, 2);
    assert_null(mix_of(s));
    search_free(s);
    job_release(&j);
}

int test_search_mix(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_gpus_are_not_mixed_because_the_slowest_sets_the_pace),
        cmocka_unit_test(equal_gpus_of_two_offers_have_no_common_network),
        cmocka_unit_test(a_deadline_that_only_both_would_keep_is_named),
        cmocka_unit_test(nothing_is_said_where_mixing_would_not_do_or_is_not_needed),
    };
    return cmocka_run_group_tests_name("search_mix", tests, market_setup, market_teardown);
}
