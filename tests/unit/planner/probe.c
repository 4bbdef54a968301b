#include "planner/probe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "planner/hardware.h"
#include "planner/price.h"
#include "planner/simulate.h"

static struct hardware cpu_node(int64_t ranks, int64_t threads)
{
    return (struct hardware){.isa = "x86-64-v3",
        .cpu = "imaginary-9000",
        .nodes = 1,
        .ranks_per_node = ranks,
        .memory_bytes = 8LL << 30,
        .vcpus = ranks * threads};
}

static struct rates *builtin(void)
{
    struct err e = ERR_INIT;
    struct rates *r = NULL;
    if (rates_builtin(&r, &e))
        fail_msg("%s", e.msg);
    return r;
}

/* A machine nobody has seen: its constants are what a fit has to find. */
static struct rates *imaginary(const struct rates *base)
{
    static const char text[] =
        "{\"schema\":\"calibration/1\",\"entries\":[{\"device\":\"cpu\",\"chip\":\"imaginary-*\","
        "\"stack\":\"*\",\"source\":\"made up\",\"date\":\"2026-11-30\",\"rows\":1,\"residual\":0,"
        "\"values\":{\"matmul_fp32_of_peak\":0.31,\"matmul_thread_loss\":0.2,\"matmul_half_k\":40,"
        "\"attention_efficiency\":0.11,\"attention_backward_efficiency\":0.07,"
        "\"elementwise_of_memory\":{\"swiglu_fwd\":0.2,\"norm_bwd\":0.5,\"adamw\":3},"
        "\"link_bytes_per_s\":1.5e9,\"link_hop_s\":2e-5,\"link_ramp\":[[1,1.0]]}}]}";
    struct err e = ERR_INIT;
    struct json *v = NULL;
    struct rates *r = NULL;
    if (json_parse(&v, text, strlen(text), &e) || rates_with(&r, base, v, &e))
        fail_msg("%s", e.msg);
    json_free(v);
    return r;
}

struct observed {
    struct schedule *schedule;
    double *op_s, *shared;
    struct probe_run run;
};

/* What a bench on the imaginary machine would report. */
/* threads: of each rank. */
static void observe(
    struct observed *o, const struct rates *truth, struct strategy s, int64_t threads)
{
    struct err e = ERR_INIT;
    struct model m;
    struct machine mc;
    struct simulation sim;
    struct hardware hw = cpu_node(s.ranks, threads);
    if (model_find(&m, "nano-llama", &e) || schedule_make(&o->schedule, &m, &s, &e) ||
        machine_make(&mc, truth, &hw, "berth", &e))
        fail_msg("%s", e.msg);
    size_t n = (size_t)o->schedule->n_ops;
    o->op_s = base_calloc(n, sizeof *o->op_s);
    o->shared = base_calloc(n, sizeof *o->shared);
    for (size_t i = 0; i < n; i++)
        o->op_s[i] = simulate_op_s(o->schedule, &mc, &o->schedule->ops[i]);
    simulate(&sim, o->schedule, &mc, NULL);
    o->run = (struct probe_run){.schedule = o->schedule,
        .hw = hw,
        .op_s = o->op_s,
        .op_shared = o->shared,
        .step_s = sim.step_s,
        .external_bytes = NAN};
}

static void release(struct observed *o)
{
    free(o->op_s);
    free(o->shared);
    schedule_free(o->schedule);
}

static struct strategy with(enum strategy_kind kind, int64_t ranks, int64_t seq, int64_t micro)
{
    struct strategy s = strategy_default(kind, ranks, ranks);
    s.precision = PRECISION_FP32;
    s.seq = seq;
    s.micro_batch = micro;
    return s;
}

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got / want - 1) <= tolerance))
        fail_msg("%g is not within %g of %g", got, tolerance, want);
}

static void a_machine_is_found_from_what_its_operations_take(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct rates *base = builtin(), *truth = imaginary(base), *found = NULL;
    struct observed o[3];
    struct probe_run runs[2];
    struct json *document = NULL;
    observe(&o[0], truth, with(STRATEGY_DDP, 1, 256, 4), 2);
    observe(&o[1], truth, with(STRATEGY_ZERO3, 2, 128, 2), 1);
    observe(&o[2], truth, with(STRATEGY_ZERO2, 4, 512, 1), 2); /* never shown to the fit */
    runs[0] = o[0].run;
    runs[1] = o[1].run;
    struct probe_input in = {.runs = runs,
        .n = 2,
        .base = base,
        .stack = "berth",
        .source = "test",
        .date = "2026-11-30"};
    if (probe_fit(&document, &in, &e) || rates_with(&found, base, document, &e))
        fail_msg("%s", e.msg);
    const struct json *values = json_get(json_at(json_get(document, "entries"), 0), "values");
    assert_near(json_num(values, "matmul_fp32_of_peak", 0), 0.31, 0.01);
    assert_near(json_num(values, "matmul_half_k", 0), 40, 0.05);
    assert_near(json_num(values, "matmul_thread_loss", 0), 0.2, 0.05);
    assert_near(json_num(values, "attention_efficiency", 0), 0.11, 0.001);
    assert_near(json_num(values, "attention_backward_efficiency", 0), 0.07, 0.001);
    assert_near(json_num(values, "link_bytes_per_s", 0), 1.5e9, 0.05);
    const struct json *shares = json_get(values, "elementwise_of_memory");
    assert_near(json_num(shares, "swiglu_fwd", 0), 0.2, 0.01);
    assert_near(json_num(shares, "norm_bwd", 0), 0.5, 0.01);

    struct machine mc;
    struct simulation sim;
    assert_int_equal(machine_make(&mc, found, &o[2].run.hw, "berth", &e), RC_OK);
    assert_int_equal(mc.basis, BASIS_CALIBRATED);
    simulate(&sim, o[2].schedule, &mc, NULL);
    assert_near(sim.step_s, o[2].run.step_s, 0.02);

    json_free(document);
    rates_free(found);
    rates_free(truth);
    rates_free(base);
    for (int i = 0; i < 3; i++)
        release(&o[i]);
}

/* Ranks wait for each other, lanes wake up late: what operations do not show is a share of all. */
static void steps_longer_than_their_operations_are_slower_throughout(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct rates *base = builtin(), *truth = imaginary(base), *found = NULL;
    struct observed o[3];
    struct probe_run runs[2];
    struct json *document = NULL;
    observe(&o[0], truth, with(STRATEGY_DDP, 1, 256, 4), 2);
    observe(&o[1], truth, with(STRATEGY_ZERO3, 2, 128, 2), 1);
    observe(&o[2], truth, with(STRATEGY_DDP, 1, 512, 8), 1); /* never shown */
    for (int i = 0; i < 2; i++) {
        runs[i] = o[i].run;
        runs[i].step_s *= 1.2;
    }
    struct probe_input in = {.runs = runs,
        .n = 2,
        .base = base,
        .stack = "berth",
        .source = "test",
        .date = "2026-11-30"};
    struct machine mc;
    struct simulation sim;
    if (probe_fit(&document, &in, &e) || rates_with(&found, base, document, &e) ||
        machine_make(&mc, found, &o[2].run.hw, "berth", &e))
        fail_msg("%s", e.msg);
    simulate(&sim, o[2].schedule, &mc, NULL);
    assert_near(sim.step_s, 1.2 * o[2].run.step_s, 0.02);
    json_free(document);
    rates_free(found);
    rates_free(truth);
    rates_free(base);
    for (int i = 0; i < 3; i++)
        release(&o[i]);
}

/* An operation that shared the cores says nothing about how fast it can be. */
static void operations_beside_others_are_left_out(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct rates *base = builtin(), *truth = imaginary(base);
    struct observed o;
    struct json *document = NULL;
    observe(&o, truth, with(STRATEGY_DDP, 1, 256, 4), 1);
    for (int32_t i = 0; i < o.schedule->n_ops; i++) {
        if (o.schedule->ops[i].kind != OP_ATTN_FWD || i % 2)
            continue;
        o.op_s[i] *= 5;
        o.shared[i] = 0.8;
    }
    struct probe_input in = {.runs = &o.run,
        .n = 1,
        .base = base,
        .stack = "berth",
        .source = "test",
        .date = "2026-11-30"};
    if (probe_fit(&document, &in, &e))
        fail_msg("%s", e.msg);
    const struct json *entry = json_at(json_get(document, "entries"), 0);
    const struct json *values = json_get(entry, "values");
    assert_near(json_num(values, "attention_efficiency", 0) /
                    json_num(values, "attention_backward_efficiency", 1),
        0.11 / 0.07, 0.001);
    assert_string_equal(json_str(entry, "chip", ""), "imaginary-9000");
    assert_null(
        json_get(json_get(entry, "values"), "link_bytes_per_s")); /* one rank has no peers */
    json_free(document);
    rates_free(truth);
    rates_free(base);
    release(&o);
}

/* A plan of two threads that was slow while it ran must not be taken for what threads lose, nor a
 * precision that no plan has for what it was expected to be. */
static void products_timed_by_themselves_tell_of_threads_and_precisions(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct rates *base = builtin(), *truth = imaginary(base), *found = NULL;
    struct observed o[2];
    struct json *document = NULL;
    observe(&o[0], truth, with(STRATEGY_DDP, 1, 256, 4), 2);
    observe(&o[1], truth, with(STRATEGY_ZERO3, 2, 128, 2), 1);
    for (int32_t i = 0; i < o[0].schedule->n_ops; i++)
        o[0].op_s[i] *= 1.3;
    /* fp32 at 50 GFLOP/s a thread, bf16 a quarter faster, fp8 a tenth slower than that; a second
     * thread loses a tenth. Memory 40 GB/s, parameters 1.6e9 a second, the disk 2 GB/s */
    static const double flops_per_s[] = {50e9, 62.5e9, 56.25e9};
    static const enum precision precisions[] = {PRECISION_FP32, PRECISION_BF16, PRECISION_FP8};
    struct probe_part parts[3 * 2 * 2 + 3];
    size_t n = 0;
    for (int shape = 1; shape <= 2; shape++)
        for (int64_t threads = 1; threads <= 2; threads++)
            for (int p = 0; p < 3; p++)
                parts[n++] = (struct probe_part){.what = PROBE_PRODUCT,
                    .precision = precisions[p],
                    .size = {512, 1024, 768 * shape},
                    .threads = threads,
                    .at_once = 2 / threads,
                    .seconds = 2.0 * 512 * 1024 * 768 * shape / flops_per_s[p] /
                               (threads == 2 ? 2 / 1.1 : 1)};
    parts[n++] = (struct probe_part){PROBE_MEMORY, 0, {1 << 20}, 1, 2, (1 << 20) / 20e9};
    parts[n++] = (struct probe_part){PROBE_OPTIMIZER, 0, {1 << 20}, 2, 1, (1 << 20) / 1.6e9};
    parts[n++] = (struct probe_part){PROBE_DISK, 0, {1 << 20}, 1, 1, (1 << 20) / 2e9};
    struct probe_run runs[] = {o[0].run, o[1].run};
    struct probe_input in = {.runs = runs,
        .n = 2,
        .parts = parts,
        .n_parts = n,
        .base = base,
        .stack = "berth",
        .source = "test",
        .date = "2026-12-01"};
    if (probe_fit(&document, &in, &e) || rates_with(&found, base, document, &e))
        fail_msg("%s", e.msg);
    const struct json *values = json_get(json_at(json_get(document, "entries"), 0), "values");
    assert_near(json_num(values, "matmul_thread_loss", 0), 0.1, 0.001);
    assert_near(json_num(values, "matmul_fp8_speedup", 0), 0.9, 0.001);
    assert_near(json_num(values, "matmul_of_peak", 0) / json_num(values, "matmul_fp32_of_peak", 1),
        1.25, 0.001);
    assert_near(json_num(values, "host_bytes_per_s", 0), 40e9, 0.001);
    assert_near(json_num(values, "core_bytes_per_s", 0), 20e9, 0.001);
    assert_near(json_num(values, "host_adam_bytes_per_param", 0), 25, 0.001);
    assert_near(json_num(values, "disk_bytes_per_s", 0), 2e9, 0.001);
    struct machine mc;
    assert_int_equal(machine_make(&mc, found, &o[1].run.hw, "berth", &e), RC_OK);
    assert_near(mc.host_bytes_per_s, 40e9, 0.001);
    json_free(document);
    rates_free(found);
    rates_free(truth);
    rates_free(base);
    release(&o[0]);
    release(&o[1]);
}

/* As the machine would price them, with rates that it does not know yet. */
static double timed_s(bool is_tcp, double ranks, double passes, double bytes)
{
    double rate = is_tcp ? 2e9 : 4e9, hop = is_tcp ? 90e-6 : 8e-6;
    return passes * ((ranks - 1) / ranks * bytes / rate + (ranks - 1) * hop);
}

static void collectives_timed_by_themselves_tell_shared_memory_from_connections(void **state)
{
    (void)state;
    static const enum collective kinds[] = {
        COLLECTIVE_ALL_GATHER, COLLECTIVE_REDUCE_SCATTER, COLLECTIVE_ALL_REDUCE};
    struct err e = ERR_INIT;
    struct rates *base = builtin(), *truth = imaginary(base), *found = NULL;
    struct observed o;
    struct json *document = NULL;
    struct probe_collective c[2 * 3 * 4];
    struct machine mc;
    observe(&o, truth, with(STRATEGY_DDP, 1, 256, 4), 2);
    assert_int_equal(machine_make(&mc, base, &o.run.hw, "berth", &e), RC_OK);
    for (int i = 0; i < 24; i++) {
        double bytes = (double)(4096 << i % 4 * 4);
        c[i] = (struct probe_collective){.kind = kinds[i / 4 % 3],
            .is_tcp = i >= 12,
            .ranks = 2,
            .bytes = bytes,
            .seconds = mc.op_floor_s + timed_s(i >= 12, 2, i / 4 % 3 == 2 ? 2 : 1, bytes)};
    }
    struct probe_input in = {.runs = &o.run,
        .n = 1,
        .collectives = c,
        .n_collectives = 24,
        .base = base,
        .stack = "berth",
        .source = "test",
        .date = "2026-11-30"};
    if (probe_fit(&document, &in, &e) || rates_with(&found, base, document, &e))
        fail_msg("%s", e.msg);
    const struct json *values = json_get(json_at(json_get(document, "entries"), 0), "values");
    assert_near(json_num(values, "link_bytes_per_s", 0), 4e9, 0.02);
    assert_near(json_num(values, "link_hop_s", 0), 8e-6, 0.02);
    assert_near(json_num(values, "fabric_stream_bytes_per_s", 0), 2e9, 0.02);
    assert_near(json_num(values, "fabric_tcp_hop_s", 0), 90e-6, 0.02);
    struct hardware two = o.run.hw;
    two.nodes = 2;
    two.fabric_bytes_per_s = 100e9;
    assert_int_equal(machine_make(&mc, found, &two, "berth", &e), RC_OK);
    assert_near(mc.fabric_bytes_per_s, 2e9, 0.02);
    json_free(document);
    document = NULL;
    for (int i = 12; i < 24; i++) /* no network is faster than none is known to be */
        c[i].seconds -= (i / 4 % 3 == 2 ? 2 : 1) * 80e-6;
    if (probe_fit(&document, &in, &e))
        fail_msg("%s", e.msg);
    values = json_get(json_at(json_get(document, "entries"), 0), "values");
    assert_near(json_num(values, "fabric_tcp_hop_s", 0), 50e-6, 1e-6);
    json_free(document);
    rates_free(found);
    rates_free(truth);
    rates_free(base);
    release(&o);
}

static void runs_of_different_hardware_are_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct rates *base = builtin();
    struct observed o[2];
    struct json *document = NULL;
    observe(&o[0], base, with(STRATEGY_DDP, 1, 128, 1), 1);
    observe(&o[1], base, with(STRATEGY_DDP, 1, 128, 1), 1);
    str_copy(o[1].run.hw.cpu, sizeof o[1].run.hw.cpu, "other");
    struct probe_run runs[] = {o[0].run, o[1].run};
    struct probe_input in = {
        .runs = runs, .n = 2, .base = base, .stack = "berth", .source = "test", .date = ""};
    assert_int_equal(probe_fit(&document, &in, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "different hardware"));
    release(&o[0]);
    release(&o[1]);
    rates_free(base);
}

static void processors_get_short_names(void **state)
{
    (void)state;
    static const struct {
        const char *model, *name;
    } t[] = {
        {"AMD EPYC 9654 96-Core Processor", "amd-epyc-9654"},
        {"Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "intel-xeon-platinum-8481c"},
        {"AMD Ryzen 7 7840U w/ Radeon 780M Graphics", "amd-ryzen-7-7840u-w-radeon-780m"},
        {"AMD Ryzen 9 5950X with Radeon Graphics", "amd-ryzen-9-5950x"},
        {"AMD EPYC", "amd-epyc"},
        {"  cpu  ", ""},
        {"(((", ""},
        {"", ""},
    };
    for (size_t i = 0; i < BASE_COUNT(t); i++) {
        char name[RATES_NAME];
        assert_string_equal(hardware_cpu(t[i].model, name), t[i].name);
    }
}

int test_probe(void);
int test_probe(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_is_found_from_what_its_operations_take),
        cmocka_unit_test(steps_longer_than_their_operations_are_slower_throughout),
        cmocka_unit_test(operations_beside_others_are_left_out),
        cmocka_unit_test(collectives_timed_by_themselves_tell_shared_memory_from_connections),
        cmocka_unit_test(products_timed_by_themselves_tell_of_threads_and_precisions),
        cmocka_unit_test(runs_of_different_hardware_are_refused),
        cmocka_unit_test(processors_get_short_names),
    };
    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
