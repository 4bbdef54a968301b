#include "run/bench_record.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

static struct json *parse(const char *text)
{
    struct err e = ERR_INIT;
    struct json *v = NULL;
    if (json_parse(&v, text, strlen(text), &e))
        fail_msg("%s", e.msg);
    return v;
}

#define HASH "00112233445566778899aabbccddeeff"

static void what_is_written_reads_back(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    double steps[] = {1.5, 1.25, 9}, seconds[] = {0.001, NAN}, shared[] = {0.25, NAN};
    struct bench b = {.program = "berth-engine 1",
        .kernels = "v3",
        .has_steps = true,
        .ranks = 2,
        .threads = 1,
        .schedule = {0x0011223344556677, 0x8899aabbccddeeff},
        .external_bytes = 4096,
        .step_s = steps,
        .n_steps = 3,
        .op_s = seconds,
        .op_shared = shared,
        .n_ops = 2};
    struct bench_collective timed = {
        .kind = OP_REDUCE_SCATTER, .path = BENCH_TCP, .ranks = 4, .bytes = 1 << 20, .seconds = 0.5};
    b.collectives = &timed;
    b.n_collectives = 1;
    struct json *v = bench_to_json(&b);
    struct bench back;
    assert_string_equal(json_str(v, "schedule", ""), HASH);
    assert_int_equal(bench_from_json(&back, v, &e), RC_OK);
    assert_int_equal(back.ranks, 2);
    assert_true(back.schedule.hi == b.schedule.hi && back.schedule.lo == b.schedule.lo);
    assert_int_equal(back.n_ops, 2);
    assert_true(back.op_s[0] >= 0.001 && back.op_s[0] <= 0.001 && isnan(back.op_s[1]));
    assert_true(bench_step_s(&back) >= 1.5 && bench_step_s(&back) <= 1.5);
    assert_int_equal(back.n_collectives, 1);
    assert_int_equal(back.collectives->kind, OP_REDUCE_SCATTER);
    assert_int_equal(back.collectives->path, BENCH_TCP);
    assert_int_equal(back.collectives->ranks, 4);
    assert_int_equal(back.collectives->bytes, 1 << 20);
    assert_true(back.collectives->seconds >= 0.5 && back.collectives->seconds <= 0.5);
    bench_release(&back);
    json_free(v);
}

static void parts_read_back_and_need_no_steps(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct bench_part parts[] = {{BENCH_PRODUCT, "fp8", {512, 2304, 768}, 2, 1, 0.01},
        {BENCH_DISK, "mixed", {1 << 20}, 1, 1, 2}};
    struct bench back, b = {.program = "p", .kernels = "k", .parts = parts, .n_parts = 2};
    struct json *v = bench_to_json(&b);
    assert_null(json_get(v, "schedule"));
    assert_int_equal(bench_from_json(&back, v, &e), RC_OK);
    assert_false(back.has_steps);
    assert_int_equal(back.n_parts, 2);
    assert_int_equal(back.parts[0].what, BENCH_PRODUCT);
    assert_string_equal(back.parts[0].form, "fp8");
    assert_memory_equal(back.parts[0].size, parts[0].size, sizeof parts[0].size);
    assert_int_equal(back.parts[0].threads, 2);
    assert_int_equal(back.parts[1].what, BENCH_DISK);
    assert_true(back.parts[1].seconds >= 2 && back.parts[1].seconds <= 2);
    bench_release(&back);
    json_free(v);
}

static void documents_that_cannot_be_true_are_refused(void **state)
{
    (void)state;
#define PARTS "{\"schema\":\"bench/1\",\"program\":\"p\",\"kernels\":\"k\",\"parts\":[{\"what\":"
#define HEAD  "{\"schema\":\"bench/1\",\"program\":\"p\",\"kernels\":\"k\",\"threads\":1,"
    static const struct {
        const char *text, *says;
    } t[] = {
        {"{\"schema\":\"bench/2\"}", "bench/2"},
        {HEAD "\"ranks\":0,\"schedule\":\"" HASH "\"}", "ranks"},
        {HEAD "\"ranks\":1,\"schedule\":\"xyz\"}", "32 hex digits"},
        {HEAD "\"ranks\":1,\"schedule\":\"" HASH "\",\"step_seconds\":[]}", "step_seconds"},
        {HEAD "\"ranks\":1,\"schedule\":\"" HASH "\",\"step_seconds\":[1,-1]}", "entry 2"},
        {HEAD "\"ranks\":1,\"schedule\":\"" HASH "\",\"step_seconds\":[\"fast\"]}", "entry 1"},
        {HEAD "\"ranks\":1,\"schedule\":\"" HASH "\",\"step_seconds\":[1]}", "operations"},
        {HEAD "\"ranks\":1,\"schedule\":\"" HASH
              "\",\"step_seconds\":[1],\"operations\":[[1e300,0]]}",
            "operation 0"},
        {HEAD "\"ranks\":1,\"schedule\":\"" HASH "\",\"step_seconds\":[1],\"operations\":[[1,2]]}",
            "operation 0"},
        {PARTS "\"luck\",\"size\":[1],\"threads\":1,\"at_once\":1,\"seconds\":1}]}", "part 1"},
        {PARTS "\"product\",\"size\":[4],\"threads\":1,\"at_once\":1,\"seconds\":1}]}", "no size"},
        {PARTS "\"disk\",\"size\":[4],\"threads\":0,\"at_once\":1,\"seconds\":1}]}", "threads"},
    };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        struct err e = ERR_INIT;
        struct bench b;
        struct json *v = parse(t[i].text);
        assert_int_not_equal(bench_from_json(&b, v, &e), RC_OK);
        if (!strstr(e.msg, t[i].says))
            fail_msg("'%s' does not say '%s'", e.msg, t[i].says);
        json_free(v);
    }
}

int test_bench_record(void);
int test_bench_record(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(parts_read_back_and_need_no_steps),
        cmocka_unit_test(documents_that_cannot_be_true_are_refused),
    };
    return cmocka_run_group_tests_name("bench_record", tests, NULL, NULL);
}
