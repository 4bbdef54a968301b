/* The simulator against closed forms on machines where every rate is known. */
#include "planner/simulate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct machine ideal(int64_t ranks)
{
    struct err e = ERR_INIT;
    struct rates *r;
    struct machine m;
    assert_int_equal(rates_builtin(&r, &e), RC_OK);
    struct hardware hw = {.is_gpu = true,
        .gpu = "h100-sxm",
        .nodes = 1,
        .ranks_per_node = ranks,
        .peak_flops = {67e12, 989e12},
        .measured_flops = 794e12,
        .memory_bytes_per_s = 3.35e12,
        .memory_bytes = 80LL << 30,
        .link_bytes_per_s = 450e9,
        .pcie_bytes_per_s = 55e9,
        .vcpus = 96,
        .ram_bytes = 1LL << 40};
    if (machine_make(&m, r, &hw, "berth", &e))
        fail_msg("%s", e.msg);
    m.n_constants = 0;
    rates_free(r);
    m.step_overhead_s = 0;
    m.jitter_per_doubling = 0;
    m.overlap_slowdown = 1;
    m.unhidden = 0;
    return m;
}

static struct schedule *make(enum strategy_kind kind, int64_t ranks, int64_t accum, int64_t layers)
{
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(model_find(&m, "llama-3.1-8b", &e), RC_OK);
    m.layers = layers;
    struct strategy st = strategy_default(kind, ranks, ranks);
    st.seq = 2048;
    st.micro_batch = 1;
    st.grad_accum = accum;
    st.precision = PRECISION_BF16;
    struct schedule *s;
    if (schedule_make(&s, &m, &st, &e))
        fail_msg("%s", e.msg);
    return s;
}

static void one_rank_takes_the_sum_of_its_operations(void **state)
{
    (void)state;
    struct machine m = ideal(1);
    struct schedule *s = make(STRATEGY_DDP, 1, 3, 4);
    double sum = 0;
    for (int k = 0; k < s->n_sections; k++)
        for (int32_t i = 0; i < s->section[k].n_ops; i++)
            sum += (double)s->section[k].repeat *
                   simulate_op_s(s, &m, &s->ops[s->section[k].first_op + i]);
    struct simulation r;
    simulate(&r, s, &m, NULL);
    assert_true(fabs(r.step_s - sum) < 1e-9 * sum);
    schedule_free(s);
}

/* A step can be no shorter than any lane's work, and no longer than all work one after another. */
static void overlap_lies_between_the_longest_lane_and_the_sum(void **state)
{
    (void)state;
    for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO3; kind++) {
        struct machine m = ideal(8);
        struct schedule *s = make((enum strategy_kind)kind, 8, 2, 8);
        struct simulation r;
        simulate(&r, s, &m, NULL);
        double sum = 0, longest = 0;
        for (int w = 0; w < WORK_COUNT; w++)
            sum += r.work_s[w];
        for (int l = 0; l < LANE_COUNT; l++)
            longest = r.busy_s[l] > longest ? r.busy_s[l] : longest;
        assert_true(r.step_s <= sum * 1.000001 && r.step_s >= longest * 0.999999);
        double idle = 0;
        for (int l = 0; l < LANE_COUNT; l++)
            idle += r.exposed_s[l];
        assert_true(fabs(r.busy_s[LANE_COMPUTE] + idle - r.step_s) < 1e-6 * r.step_s);
        schedule_free(s);
    }
}

/* FSDP pipeline: with links much slower than compute a zero3 micro step
 * takes its collectives; with links much faster, its compute and what cannot overlap. */
static void slow_links_bound_zero3_by_traffic_and_fast_ones_by_compute(void **state)
{
    (void)state;
    struct machine m = ideal(8);
    struct schedule *s = make(STRATEGY_ZERO3, 8, 2, 8);
    struct simulation slow, fast;
    m.link_bytes_per_s = 1e8;
    simulate(&slow, s, &m, NULL);
    assert_true(slow.step_s > 0.99 * slow.work_s[WORK_COLLECTIVES]);
    assert_true(slow.step_s < 1.05 * slow.work_s[WORK_COLLECTIVES]);
    m = ideal(8);
    m.link_bytes_per_s = 1e15;
    m.link_hop_s = 0;
    simulate(&fast, s, &m, NULL);
    double compute = fast.step_s - fast.exposed_s[LANE_GATHER] - fast.exposed_s[LANE_REDUCE];
    assert_true(fast.step_s < 1.01 * compute);
    schedule_free(s);
}

static void folding_repeated_micro_steps_changes_no_figure(void **state)
{
    (void)state;
    struct machine m = ideal(8);
    struct simulation three, nine;
    struct schedule *a = make(STRATEGY_ZERO3, 8, 3, 4), *b = make(STRATEGY_ZERO3, 8, 9, 4);
    simulate(&three, a, &m, NULL);
    simulate(&nine, b, &m, NULL);
    double middle = three.section_s[1];
    assert_true(fabs(nine.step_s - (three.step_s + 6 * middle)) < 1e-9 * nine.step_s);
    assert_int_equal(a->n_ops, b->n_ops);
    schedule_free(a);
    schedule_free(b);
}

/* The middle section written out as often as it runs, with waits that drain the lanes in between.
 */
static void unfold_middle(struct schedule *s)
{
    struct section *mid = &s->section[1];
    int32_t n = mid->n_ops, first = mid->first_op, copies = (int32_t)mid->repeat;
    int32_t total = s->n_ops + (copies - 1) * n, added = (copies - 1) * n;
    struct op *ops = calloc((size_t)total, sizeof(*ops));
    memcpy(ops, s->ops, (size_t)(first + n) * sizeof(*ops));
    memcpy(
        ops + first + n + added, s->ops + first + n, (size_t)(s->n_ops - first - n) * sizeof(*ops));
    for (int32_t c = 1; c < copies; c++) {
        int32_t last[LANE_COUNT];
        for (int l = 0; l < LANE_COUNT; l++)
            last[l] = -1;
        for (int32_t i = 0; i < n; i++)
            last[s->ops[first + i].lane] = first + (c - 1) * n + i;
        for (int32_t i = 0; i < n; i++) {
            struct op *op = &ops[first + c * n + i];
            *op = s->ops[first + i];
            for (int l = 0; l < LANE_COUNT; l++)
                op->waits[l] = op->waits[l] >= 0 ? op->waits[l] + c * n : last[l];
        }
    }
    for (int32_t i = first + n + added; i < total; i++)
        for (int l = 0; l < LANE_COUNT; l++)
            ops[i].waits[l] += ops[i].waits[l] >= 0 ? added : 0;
    free(s->ops);
    s->ops = ops;
    s->n_ops = total;
    mid->n_ops = n * copies;
    mid->repeat = 1;
    for (int k = 2; k < s->n_sections; k++)
        s->section[k].first_op += added;
}

static void folded_and_unfolded_lists_give_the_same_figures(void **state)
{
    (void)state;
    for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO3; kind++) {
        struct machine m = ideal(8);
        m.overlap_slowdown = 1.1;
        struct schedule *s = make((enum strategy_kind)kind, 8, 7, 4);
        struct simulation folded, unfolded;
        simulate(&folded, s, &m, NULL);
        unfold_middle(s);
        simulate(&unfolded, s, &m, NULL);
        assert_true(fabs(folded.step_s - unfolded.step_s) < 1e-9 * folded.step_s);
        for (int l = 0; l < LANE_COUNT; l++) {
            assert_true(fabs(folded.busy_s[l] - unfolded.busy_s[l]) < 1e-9 * folded.step_s);
            assert_true(fabs(folded.exposed_s[l] - unfolded.exposed_s[l]) < 1e-9 * folded.step_s);
        }
        schedule_free(s);
    }
}

static void spans_follow_list_order_on_each_lane_and_respect_waits(void **state)
{
    (void)state;
    struct machine m = ideal(8);
    struct schedule *s = make(STRATEGY_ZERO3, 8, 2, 4);
    struct op_span *spans = calloc((size_t)s->n_ops, sizeof(*spans));
    struct simulation r;
    simulate(&r, s, &m, spans);
    for (int k = 0; k < s->n_sections; k++) {
        double end[LANE_COUNT] = {0};
        for (int32_t i = s->section[k].first_op; i < s->section[k].first_op + s->section[k].n_ops;
             i++) {
            const struct op *op = &s->ops[i];
            assert_true(spans[i].start_s >= end[op->lane]);
            for (int l = 0; l < LANE_COUNT; l++)
                if (op->waits[l] >= 0)
                    assert_true(spans[i].start_s >= spans[op->waits[l]].end_s);
            end[op->lane] = spans[i].end_s;
        }
    }
    free(spans);
    schedule_free(s);
}

int test_simulate(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_takes_the_sum_of_its_operations),
        cmocka_unit_test(overlap_lies_between_the_longest_lane_and_the_sum),
        cmocka_unit_test(slow_links_bound_zero3_by_traffic_and_fast_ones_by_compute),
        cmocka_unit_test(folding_repeated_micro_steps_changes_no_figure),
        cmocka_unit_test(folded_and_unfolded_lists_give_the_same_figures),
        cmocka_unit_test(spans_follow_list_order_on_each_lane_and_respect_waits),
    };
    return cmocka_run_group_tests_name("planner/simulate", tests, NULL, NULL);
}
