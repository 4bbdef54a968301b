/* Timelines against simulating every operation of the whole list, one at a time. */
#include "planner/timeline.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "planner/simulate.h"

enum { CASES = 400, MACHINES = 3 };

/* Small deterministic generator, so that a failure can be repeated. */
static uint32_t seed;
static int64_t pick(int64_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)(seed >> 8) % n;
}

/* --- the plain way --- */

/* One operation per lane at a time, in list order; running ones slow each other down. */
struct plain {
    const struct schedule *s;
    const struct machine *m;
    int32_t next[LANE_COUNT], last[LANE_COUNT]; /* first that did not start, last that ended */
    int32_t op[LANE_COUNT];                     /* running, -1 */
    double left_s[LANE_COUNT], slow[LANE_COUNT];
    struct simulation *out;
};

static int32_t on_lane(const struct schedule *s, const struct section *sec, int lane, int32_t i)
{
    while (i < sec->first_op + sec->n_ops && s->ops[i].lane != lane)
        i++;
    return i;
}

static bool is_collective(const struct op *op)
{
    return op_work((enum op_kind)op->kind) == WORK_COLLECTIVES;
}

static void start(struct plain *x, const struct section *sec)
{
    for (int l = 0; l < LANE_COUNT; l++) {
        const struct op *op = &x->s->ops[x->next[l]];
        bool can_start = x->op[l] < 0 && x->next[l] < sec->first_op + sec->n_ops;
        for (int k = 0; can_start && k < LANE_COUNT; k++)
            can_start = op->waits[k] <= x->last[k];
        if (!can_start)
            continue;
        x->op[l] = x->next[l];
        x->left_s[l] = simulate_op_s(x->s, x->m, op);
        x->out->work_s[op_work((enum op_kind)op->kind)] += x->left_s[l];
        x->next[l] = on_lane(x->s, sec, l, x->next[l] + 1);
    }
}

static void slow_down(struct plain *x)
{
    double cores = (double)x->m->hw.vcpus / (double)x->m->hw.ranks_per_node;
    double demand = 0;
    int collectives = 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        bool is_wide = l == LANE_COMPUTE || l == LANE_HOST;
        collectives += x->op[l] >= 0 && is_collective(&x->s->ops[x->op[l]]);
        demand += x->op[l] < 0 || l == LANE_DISK ? 0 : is_wide ? cores : 1;
    }
    for (int l = 0; l < LANE_COUNT; l++) {
        x->slow[l] = x->m->is_shared ? fmax(1, demand / cores) : 1;
        if (x->op[l] >= 0 && is_collective(&x->s->ops[x->op[l]]))
            x->slow[l] *= collectives;
        else if (l == LANE_COMPUTE && collectives > 0)
            x->slow[l] *= x->m->overlap_slowdown;
    }
}

/* Seconds until the next one ends; INFINITY when nothing runs. */
static double pass(struct plain *x)
{
    double dt = INFINITY;
    int busy = 0;
    for (int l = 0; l < LANE_COUNT; l++) {
        busy += x->op[l] >= 0;
        dt = x->op[l] >= 0 ? fmin(dt, x->left_s[l] * x->slow[l]) : dt;
    }
    for (int l = 0; isfinite(dt) && l < LANE_COUNT; l++) {
        if (x->op[l] < 0)
            continue;
        x->out->busy_s[l] += dt;
        x->out->exposed_s[l] += x->op[LANE_COMPUTE] < 0 ? dt / busy : 0;
    }
    for (int l = 0; isfinite(dt) && l < LANE_COUNT; l++) {
        if (x->op[l] < 0)
            continue;
        bool has_ended = x->left_s[l] * x->slow[l] <= dt;
        x->left_s[l] -= dt / x->slow[l];
        x->last[l] = has_ended ? x->op[l] : x->last[l];
        x->op[l] = has_ended ? -1 : x->op[l];
    }
    return dt;
}

static void simulate_plainly(
    struct simulation *out, const struct schedule *s, const struct machine *m)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < s->n_sections; i++) {
        const struct section *sec = &s->section[i];
        struct simulation once = {0};
        struct plain x = {.s = s, .m = m, .out = &once};
        double repeat = (double)sec->repeat;
        for (int l = 0; l < LANE_COUNT; l++) {
            x.op[l] = x.last[l] = -1;
            x.next[l] = on_lane(s, sec, l, sec->first_op);
        }
        for (double dt = 0; isfinite(dt);) {
            out->section_s[i] += dt;
            start(&x, sec);
            slow_down(&x);
            dt = pass(&x);
        }
        for (int l = LANE_GATHER; l <= LANE_REDUCE; l++) {
            double hidden = once.busy_s[l] - once.exposed_s[l];
            once.exposed_s[l] += m->unhidden * hidden;
            out->section_s[i] += m->unhidden * hidden;
        }
        for (int l = 0; l < LANE_COUNT; l++) {
            out->busy_s[l] += once.busy_s[l] * repeat;
            out->exposed_s[l] += once.exposed_s[l] * repeat;
        }
        for (int w = 0; w < WORK_COUNT; w++)
            out->work_s[w] += once.work_s[w] * repeat;
        out->step_s += out->section_s[i] * repeat;
    }
    double doublings = log2((double)s->strategy.ranks / 8);
    out->step_s = (out->step_s + m->step_overhead_s) *
                  (1 + m->jitter_per_doubling * (doublings > 0 ? doublings : 0));
}

/* --- what is simulated --- */

static struct strategy random_strategy(bool is_gpu)
{
    static const int64_t nodes[] = {1, 1, 2, 8};
    int64_t ranks = (int64_t)1 << pick(4);
    int64_t all = ranks * nodes[pick(4)];
    struct strategy s = strategy_default((enum strategy_kind)pick(STRATEGY_HSDP + 1), all, ranks);
    if (s.kind == STRATEGY_HSDP)
        s.shard_degree = all > 1 ? all / 2 : 1;
    static const enum precision precisions[] = {PRECISION_FP32, PRECISION_BF16, PRECISION_FP8};
    s.precision = is_gpu ? precisions[pick(3)] : PRECISION_FP32;
    s.recompute = (enum recompute)pick(3);
    static const unsigned offloads[] = {OFFLOAD_NONE, OFFLOAD_OPTIMIZER,
        OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS, OFFLOAD_OPTIMIZER | OFFLOAD_DISK,
        OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK, OFFLOAD_ACTIVATIONS};
    s.offload = offloads[pick(6)];
    if ((s.offload & OFFLOAD_PARAMETERS) && s.kind < STRATEGY_ZERO3)
        s.offload = OFFLOAD_OPTIMIZER;
    s.seq = 256 << pick(3);
    s.micro_batch = 1 + pick(4);
    s.grad_accum = 1 + pick(4);
    s.prefetch = 1 + (int)pick(3);
    s.reshard_after_forward = pick(2);
    s.loss_chunks = pick(2) ? 8 : 1;
    s.reduce_format = pick(3) == 0 ? WIRE_INT8 : WIRE_PLAIN;
    s.gather_format = s.kind >= STRATEGY_ZERO3 && pick(3) == 0 ? WIRE_INT8 : WIRE_PLAIN;
    return s;
}

static struct machine random_machine(const struct rates *r, const struct strategy *s, bool is_gpu)
{
    static const double speeds[] = {0.01, 0.1, 0.5, 1, 3};
    struct err e = ERR_INIT;
    struct machine m;
    struct hardware hw = {.is_gpu = is_gpu,
        .gpu = "h100-sxm",
        .nodes = s->ranks / s->ranks_per_node,
        .ranks_per_node = s->ranks_per_node,
        .peak_flops = {[PRECISION_FP32] = 67e12,
            [PRECISION_BF16] = 989e12 * speeds[pick(5)],
            [PRECISION_FP8] = 1979e12 * speeds[pick(5)]},
        .memory_bytes_per_s = 3.35e12,
        .memory_bytes = 80LL << 30,
        .link_bytes_per_s = 450e9 * speeds[pick(5)],
        .pcie_bytes_per_s = 55e9 * speeds[pick(5)],
        .fabric_bytes_per_s = 400e9 * speeds[pick(5)],
        .is_fabric_rdma = pick(2),
        .vcpus = 2 + pick(100),
        .ram_bytes = 1LL << 40};
    if (machine_make(&m, r, &hw, "berth", &e))
        fail_msg("%s", e.msg);
    return m;
}

static void assert_near(double got, double want, double scale, const char *what, int at, int number)
{
    if (!(fabs(got - want) <= 1e-12 * scale))
        fail_msg("case %d: %s %d is %.17g, not %.17g", number, what, at, got, want);
}

static void assert_same(const struct simulation *a, const struct simulation *b, int number)
{
    assert_near(a->step_s, b->step_s, b->step_s, "step", 0, number);
    for (int i = 0; i < SCHEDULE_MAX_SECTIONS; i++)
        assert_near(a->section_s[i], b->section_s[i], b->section_s[i], "section", i, number);
    for (int l = 0; l < LANE_COUNT; l++) {
        assert_near(a->busy_s[l], b->busy_s[l], b->step_s, "busy lane", l, number);
        assert_near(a->exposed_s[l], b->exposed_s[l], b->step_s, "exposed lane", l, number);
    }
    for (int w = 0; w < WORK_COUNT; w++)
        assert_near(a->work_s[w], b->work_s[w], b->step_s, "work", w, number);
}

/* False when there is no such combination. */
static bool one_case(const struct rates *r, int number)
{
    static const char *const models[] = {"tiny-llama", "gpt2", "qwen2.5-0.5b", "llama-3.2-1b"};
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *s = NULL;
    bool is_gpu = pick(4) > 0;
    struct strategy st = random_strategy(is_gpu);
    assert_int_equal(model_find(&m, models[pick(4)], &e), RC_OK);
    m.layers = 1 + pick(6);
    if (schedule_make(&s, &m, &st, &e))
        return false;
    struct op_span *spans = base_calloc((size_t)s->n_ops + 1, sizeof *spans);
    for (int i = 0; i < MACHINES; i++) {
        struct machine mc = random_machine(r, &st, is_gpu);
        struct simulation plain, merged, each;
        simulate_plainly(&plain, s, &mc);
        simulate(&merged, s, &mc, NULL);
        simulate(&each, s, &mc, spans);
        assert_same(&merged, &plain, number);
        assert_same(&each, &plain, number);
    }
    free(spans);
    schedule_free(s);
    return true;
}

static void segments_take_as_long_as_their_operations(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct rates *r = NULL;
    assert_int_equal(rates_builtin(&r, &e), RC_OK);
    seed = 20261130;
    int compared = 0;
    for (int i = 0; i < CASES; i++)
        compared += one_case(r, i);
    assert_true(compared > CASES / 2);
    rates_free(r);
}

/* A list of thousands of operations comes down to a few dozen prices and short sections. */
static void a_timeline_is_much_shorter_than_its_schedule(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *s = NULL;
    struct prices prices = {0};
    struct strategy st = strategy_default(STRATEGY_ZERO3, 8, 8);
    st.seq = 2048;
    st.grad_accum = 4;
    assert_int_equal(model_find(&m, "llama-3.1-8b", &e), RC_OK);
    assert_int_equal(schedule_make(&s, &m, &st, &e), RC_OK);
    struct timeline *t = timeline_new(s, &prices, true);
    assert_true(s->n_ops > 2000);
    assert_true(prices.n < 64);
    assert_true(t->n_segments < s->n_ops / 4);
    assert_int_equal(t->section[2].same_as, 1); /* the last micro step is as long as those before */
    timeline_free(t);
    prices_release(&prices);
    schedule_free(s);
}

int test_timeline(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_take_as_long_as_their_operations),
        cmocka_unit_test(a_timeline_is_much_shorter_than_its_schedule),
    };
    return cmocka_run_group_tests_name("timeline", tests, NULL, NULL);
}
