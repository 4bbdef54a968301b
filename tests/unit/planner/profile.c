#include "planner/profile.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void engines_are_found_by_their_names(void **state)
{
    (void)state;
    for (int i = 0; i < ENGINE_COUNT; i++) {
        struct err e = ERR_INIT;
        enum engine found;
        assert_int_equal(engine_parse(engine_name((enum engine)i), &found, &e), RC_OK);
        assert_int_equal(found, i);
    }
}

static void an_unknown_engine_is_answered_with_those_there_are(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    enum engine found;
    assert_int_equal(engine_parse("steam", &found, &e), RC_USAGE);
    assert_non_null(strstr(e.msg, "'steam'"));
    for (int i = 0; i < ENGINE_COUNT; i++)
        assert_non_null(strstr(e.msg, engine_name((enum engine)i)));
}

/* Every entry is whole: what a closed form or a schedule divides by or multiplies with is there. */
static void every_engine_is_described(void **state)
{
    (void)state;
    for (int i = 0; i < ENGINE_COUNT; i++) {
        const struct engine_profile *p = profile_of((enum engine)i);
        assert_non_null(p->name);
        assert_non_null(p->stack);
        assert_non_null(p->help);
        assert_int_equal(p->is_bundled, i == ENGINE_BERTH);
        assert_true(p->grad_bytes >= 2 && p->unit_grad_bytes >= 2 && p->reduce_bytes >= 2);
        assert_true(p->gathered_copies >= 1 && p->prefetch >= 1);
        assert_true(p->activation_factor >= 1);
        if (p->is_bundled)
            continue;
        /* fusing never costs memory */
        assert_true(p->fused_factor >= 1 && p->fused_factor <= p->activation_factor);
        assert_true(p->fused_logit_bytes >= 2 && p->fused_logit_bytes <= p->logit_bytes);
    }
}

static void stacks_are_fused_by_compilers_and_by_hand(void **state)
{
    (void)state;
    assert_true(stack_is_fused("fsdp2-torchtitan+compile"));
    assert_true(stack_is_fused("fsdp1-composer"));
    assert_true(stack_is_fused("megatron"));
    assert_true(stack_is_fused("megatron-bridge-26.02"));
    assert_false(stack_is_fused("megatron-nanotron"));
    assert_false(stack_is_fused("fsdp2-torchtitan"));
    assert_false(stack_is_fused("deepspeed"));
}

int test_profile(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(engines_are_found_by_their_names),
        cmocka_unit_test(an_unknown_engine_is_answered_with_those_there_are),
        cmocka_unit_test(every_engine_is_described),
        cmocka_unit_test(stacks_are_fused_by_compilers_and_by_hand),
    };
    return cmocka_run_group_tests_name("planner/profile", tests, NULL, NULL);
}
