#include "planner/phase.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "planner/layout.h"

static struct schedule *make(const char *name, const struct strategy *s)
{
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *out = NULL;
    if (model_find(&m, name, &e) || schedule_make(&out, &m, s, &e))
        fail_msg("%s", e.msg);
    return out;
}

/* Every buffer against every operation: no sweep. */
static int64_t live_at(const struct schedule *s, int section, int32_t op)
{
    int64_t live = 0;
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        bool is_live = b->lifetime == LIFETIME_RUN ||
                       (b->section == section && b->first_op <= op && op <= b->last_op);
        live += b->memory == MEMORY_DEVICE && is_live ? b->bytes : 0;
    }
    return live;
}

static void phases_hold_what_is_live_in_them(void **state)
{
    (void)state;
    static const enum strategy_kind kinds[] = {STRATEGY_DDP, STRATEGY_ZERO2, STRATEGY_ZERO3};
    for (size_t k = 0; k < BASE_COUNT(kinds); k++) {
        struct strategy st = strategy_default(kinds[k], 4, 4);
        st.seq = 512;
        st.micro_batch = 1 + (int64_t)k;
        st.grad_accum = 3;
        struct schedule *s = make("gpt2", &st);
        int64_t bytes[PHASE_COUNT], update = 0, all = 0, products_of_logits = 0;
        phase_peaks(bytes, s, MEMORY_DEVICE);
        for (int i = 0; i < s->n_sections; i++) {
            for (int32_t j = 0; j < s->section[i].n_ops; j++) {
                int32_t op = s->section[i].first_op + j;
                int64_t live = live_at(s, i, op);
                all = live > all ? live : all;
                if (s->section[i].kind == SECTION_BOUNDARY)
                    update = live > update ? live : update;
                if (s->ops[op].kind == OP_CROSS_ENTROPY && live > products_of_logits)
                    products_of_logits = live;
            }
        }
        int64_t most = 0;
        for (int p = 0; p < PHASE_COUNT; p++)
            most = bytes[p] > most ? bytes[p] : most;
        assert_int_equal(most, all);
        assert_int_equal(most, layout_peak(s, MEMORY_DEVICE).live_bytes);
        assert_int_equal(bytes[PHASE_UPDATE], update);
        assert_true(bytes[PHASE_LOSS] >= products_of_logits);
        schedule_free(s);
    }
}

/* Without recomputing, backward begins with all activations and frees them; the loss adds logits to
 * them: 50,257 words of 2 bytes for each of 512 tokens. */
static void the_loss_of_a_large_vocabulary_is_the_worst_moment(void **state)
{
    (void)state;
    struct strategy st = strategy_default(STRATEGY_DDP, 1, 1);
    st.seq = 512;
    struct schedule *s = make("gpt2", &st);
    int64_t bytes[PHASE_COUNT], logits = 512LL * 50257 * 2;
    phase_peaks(bytes, s, MEMORY_DEVICE);
    assert_true(bytes[PHASE_LOSS] > bytes[PHASE_FORWARD] + logits * 9 / 10);
    assert_true(bytes[PHASE_UPDATE] < bytes[PHASE_FORWARD]);
    schedule_free(s);
}

int test_phase(void);
int test_phase(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(phases_hold_what_is_live_in_them),
        cmocka_unit_test(the_loss_of_a_large_vocabulary_is_the_worst_moment),
    };
    return cmocka_run_group_tests_name("phase", tests, NULL, NULL);
}
