/* What this build's engine can run. */
#include "planner/launchable.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "planner/model.h"
#include "planner/strategy.h"

/* engine/device.h names one device, device_cpu. */
static void a_plan_on_gpus_is_not_launchable_with_the_reason(void **state)
{
    (void)state;
    struct model m;
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    char why[LAUNCHABLE_TEXT];
    assert_int_equal(model_find(&m, "gpt2", NULL), RC_OK);
    assert_true(is_launchable(&s, &m, false, why));
    assert_string_equal(why, "");
    assert_false(is_launchable(&s, &m, true, why));
    assert_non_null(strstr(why, "CPU nodes only"));
}

static void heads_too_large_for_the_kernels_are_refused(void **state)
{
    (void)state;
    struct model m;
    struct strategy s = strategy_default(STRATEGY_DDP, 1, 1);
    char why[LAUNCHABLE_TEXT];
    assert_int_equal(model_find(&m, "gpt2", NULL), RC_OK);
    m.head_dim = 256;
    assert_true(is_launchable(&s, &m, false, why));
    m.head_dim = 257;
    assert_false(is_launchable(&s, &m, false, why));
    assert_non_null(strstr(why, "257"));
}

static void whatever_leaves_the_device_is_launchable(void **state)
{
    (void)state;
    struct model m;
    char why[LAUNCHABLE_TEXT];
    struct strategy s = strategy_default(STRATEGY_ZERO3, 4, 4);
    assert_int_equal(model_find(&m, "gpt2", NULL), RC_OK);
    for (size_t i = 0; i < OFFLOAD_SETS; i++) {
        s.offload = offload_at(i);
        assert_true(is_launchable(&s, &m, false, why));
    }
}

int test_launchable(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_on_gpus_is_not_launchable_with_the_reason),
        cmocka_unit_test(heads_too_large_for_the_kernels_are_refused),
        cmocka_unit_test(whatever_leaves_the_device_is_launchable),
    };
    return cmocka_run_group_tests_name("planner/launchable", tests, NULL, NULL);
}
