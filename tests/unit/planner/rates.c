#include "planner/rates.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "planner/constants.h"

static struct hardware h100_nodes(int64_t nodes)
{
    return (struct hardware){.is_gpu = true,
        .gpu = "h100-sxm",
        .nodes = nodes,
        .ranks_per_node = 8,
        .peak_flops = {67e12, 989e12},
        .measured_flops = 794.5e12,
        .memory_bytes_per_s = 3350e9,
        .memory_bytes = 81559LL << 20,
        .link_bytes_per_s = 450e9,
        .pcie_bytes_per_s = 63e9,
        .fabric_bytes_per_s = 400e9,
        .is_fabric_rdma = true};
}

static struct machine make(const struct rates *r, const struct hardware *hw)
{
    struct err e = ERR_INIT;
    struct machine m;
    if (machine_make(&m, r, hw, "berth", &e))
        fail_msg("%s", e.msg);
    return m;
}

static struct rates *builtin(void)
{
    struct err e = ERR_INIT;
    struct rates *r = NULL;
    if (rates_builtin(&r, &e))
        fail_msg("%s", e.msg);
    return r;
}

static void assert_near(double got, double want, double tolerance)
{
    if (!(fabs(got / want - 1) <= tolerance))
        fail_msg("%g is not within %g of %g", got, tolerance, want);
}

/* stas00/ml-engineering: best plain matrix product on H100 SXM 794.5 TFLOP/s; in a training step,
 * with its shapes and clocks, products reach about two thirds of that. */
static void large_products_stay_below_the_best_anybody_measured(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(1);
    struct machine m = make(r, &hw);
    double s = machine_matmul_s(&m, PRECISION_BF16, 16384, 16384, 16384);
    double flops = 2 * pow(16384, 3) / s;
    assert_true(flops < 794.5e12 && flops > 0.6 * 794.5e12);
    rates_free(r);
}

/* A product of one row cannot be faster than reading its matrix once. */
static void thin_products_are_bound_by_memory(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(1);
    struct machine m = make(r, &hw);
    double s = machine_matmul_s(&m, PRECISION_BF16, 1, 16384, 16384);
    assert_true(s >= 2.0 * 16384 * 16384 / 3350e9);
    rates_free(r);
}

/* stas00/ml-engineering: ring all-gather on 8 x H200 (the same links) 366 GB/s bus bandwidth. */
static void gathers_inside_a_node_reach_the_measured_bus_bandwidth(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(1);
    struct machine m = make(r, &hw);
    struct strategy s = strategy_default(STRATEGY_ZERO3, 8, 8);
    double bytes = 4e9;
    double t = machine_collective_s(&m, COLLECTIVE_ALL_GATHER, machine_shard_group(&s), bytes);
    assert_near(7.0 / 8 * bytes / t, 366e9, 0.08);
    rates_free(r);
}

/* The mistake to avoid: a gather over whole nodes uses every NIC of a node, so 8 nodes with 8 NICs
 * of 50 GB/s each move the vector at about the node's rate, not at that of one NIC. */
static void gathers_between_nodes_use_all_nics_of_a_node(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(8);
    struct machine m = make(r, &hw);
    struct strategy s = strategy_default(STRATEGY_ZERO3, 64, 8);
    double bytes = 4e9;
    double t = machine_collective_s(&m, COLLECTIVE_ALL_GATHER, machine_world(&s), bytes);
    double per_node = 7.0 / 8 * bytes / t;
    assert_true(per_node > 0.6 * 400e9 && per_node < 400e9);
    rates_free(r);
}

/* NCCL's tuning.cc: a ring of 512 ranks over 64 nodes makes 448 hops inside nodes and 63 between
 * them; a sum may go up and down a tree of six levels instead. */
static void hops_of_a_ring_grow_with_its_ranks(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(64);
    struct machine m = make(r, &hw);
    m.link_hop_s = 3.4e-6;
    m.fabric_hop_s = 14e-6;
    const struct rank_group world = {512, 64};
    double ring = 448 * 3.4e-6 + 63 * 14e-6, tree = 7 * 3.4e-6 + 6 * 14e-6;
    double gather = machine_collective_s(&m, COLLECTIVE_ALL_GATHER, world, 1);
    double sum = machine_collective_s(&m, COLLECTIVE_ALL_REDUCE, world, 1);
    m.link_hop_s = m.fabric_hop_s = 0;
    assert_near(gather - machine_collective_s(&m, COLLECTIVE_ALL_GATHER, world, 1), ring, 1e-6);
    assert_near(sum - machine_collective_s(&m, COLLECTIVE_ALL_REDUCE, world, 1), 2 * tree, 1e-6);
    rates_free(r);
}

/* hsdp with groups of a node: eight replica groups run at once and share the NICs, so the replicas
 * together take as long as one all-reduce of the whole vector over the nodes. */
static void replica_groups_share_the_nics(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(4);
    struct machine m = make(r, &hw);
    struct strategy s = strategy_default(STRATEGY_HSDP, 32, 8);
    struct rank_group shard = machine_shard_group(&s), replica = machine_replica_group(&s);
    assert_int_equal(shard.ranks, 8);
    assert_int_equal(shard.nodes, 1);
    assert_int_equal(replica.ranks, 4);
    assert_int_equal(replica.nodes, 4);
    double bytes = 8e9;
    double t = machine_collective_s(&m, COLLECTIVE_ALL_REDUCE, replica, bytes / 8);
    assert_near(t, 2 * 3.0 / 4 * bytes / m.fabric_bytes_per_s, 0.02);
    rates_free(r);
}

static void small_payloads_lose_most_of_the_wire(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(1);
    struct machine m = make(r, &hw);
    struct rank_group g = {8, 1};
    double small = machine_collective_s(&m, COLLECTIVE_ALL_GATHER, g, 1 << 20);
    double large = machine_collective_s(&m, COLLECTIVE_ALL_GATHER, g, 1 << 30);
    /* B200 table: 36 GB/s at 1 MiB against 723 at 1 GiB */
    assert_true(small > 10 * large / 1024);
    assert_true(
        machine_collective_s(&m, COLLECTIVE_ALL_GATHER, (struct rank_group){1, 1}, 1e9) == 0);
    rates_free(r);
}

static void names_the_source_of_every_constant(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(2);
    struct machine m = make(r, &hw);
    assert_true(m.n_constants > 20 && m.n_constants < MACHINE_CONSTANTS);
    int priors = 0;
    for (int i = 0; i < m.n_constants; i++) {
        priors += m.constant[i].entry->is_prior;
        assert_true(m.constant[i].entry->source[0] != '\0');
        assert_true(m.constant[i].entry->date[0] != '\0');
    }
    assert_true(priors > 0);
    rates_free(r);
}

static void ranks_of_a_cpu_node_share_its_cores_and_memory(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw = {
        .isa = "x86-64-v4", .nodes = 1, .ranks_per_node = 1, .memory_bytes = 1LL << 30, .vcpus = 8};
    struct machine one = make(r, &hw);
    hw.ranks_per_node = 4;
    struct machine four = make(r, &hw);
    assert_near(one.peak_flops[PRECISION_FP32], 4 * four.peak_flops[PRECISION_FP32], 1e-9);
    assert_near(one.memory_bytes_per_s, 4 * four.memory_bytes_per_s, 1e-9);
    rates_free(r);
}

static void later_entries_win_and_missing_constants_are_named(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    const char *text =
        "{\"schema\": \"calibration/1\", \"entries\": [{\"device\": \"gpu\", \"chip\": \"*\","
        "\"stack\": \"*\", \"source\": \"s\", \"date\": \"d\", \"rows\": 0, \"values\":"
        "{\"matmul_half_k\": 7}}]}";
    struct json *root = NULL;
    assert_int_equal(json_parse(&root, text, strlen(text), &e), RC_OK);
    struct rates *r = NULL;
    assert_int_equal(rates_from_json(&r, root, &e), RC_OK);
    struct hardware hw = h100_nodes(1);
    struct machine m;
    assert_int_equal(machine_make(&m, r, &hw, "berth", &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "matmul_tile_m"));
    rates_free(r);
}

static void null_hides_no_earlier_constant_and_a_closer_entry_must_come_later(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
#define ENTRY(chip, values)                                                                        \
    "{\"device\": \"gpu\", \"chip\": \"" chip                                                      \
    "\", \"stack\": \"*\", \"source\": \"s\", \"date\": \"d\","                                    \
    "\"rows\": 0, \"values\": {" values "}}"
    const char *text = "{\"schema\": \"calibration/1\", \"entries\": [" ENTRY(
        "*", "\"unhidden\": 1, \"op_floor_s\": 2") "," ENTRY("h100-*",
        "\"unhidden\": 3") "," ENTRY("*", "\"op_floor_s\": null, \"link_hop_s\": 4") "]}";
#undef ENTRY
    struct json *root = NULL;
    struct rates *r = NULL;
    assert_int_equal(json_parse(&root, text, strlen(text), &e), RC_OK);
    assert_int_equal(rates_from_json(&r, root, &e), RC_OK);
    assert_near(rates_number(r, "gpu", "h100-sxm", "berth", "unhidden"), 3, 1e-12);
    assert_near(rates_number(r, "gpu", "a100", "berth", "unhidden"), 1, 1e-12);
    assert_near(rates_number(r, "gpu", "a100", "berth", "op_floor_s"), 2, 1e-12);
    assert_true(isnan(rates_number(r, "gpu", "a100", "berth", "core_flops_fp32")));
    assert_true(isnan(rates_number(r, "cpu", "a100", "berth", "unhidden")));
    rates_free(r);
}

/* Constants of a chip and stack count as calibrated from four runs on, of a stack alone as those of
 * siblings; fewer are used, but count for nothing. */
static void basis_follows_the_runs_behind_the_constants(void **state)
{
    (void)state;
    static const struct {
        int of_stack, of_pair;
        enum basis want;
    } cases[] = {
        {0, 0, BASIS_PRIOR},
        {3, 3, BASIS_PRIOR},
        {4, 3, BASIS_SIBLING},
        {9, 0, BASIS_SIBLING},
        {4, 4, BASIS_CALIBRATED},
    };
    struct rates *r = builtin();
    struct hardware hw = h100_nodes(1);
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        char text[600];
        int n = snprintf(text, sizeof text,
            "{\"schema\": \"calibration/1\", \"entries\": ["
            "{\"device\": \"gpu\", \"chip\": \"*\", \"stack\": \"new\", \"source\": \"s\", "
            "\"date\": \"d\", \"rows\": %d, \"values\": {\"stack_matmul\": 1.1}},"
            "{\"device\": \"gpu\", \"chip\": \"h100-sxm\", \"stack\": \"new\", \"source\": \"s\", "
            "\"date\": \"d\", \"rows\": %d, \"values\": {\"stack_matmul\": 1.2}}]}",
            cases[i].of_stack, cases[i].of_pair);
        struct json *doc = NULL;
        struct rates *with = NULL;
        struct machine m;
        assert_int_equal(json_parse(&doc, text, (size_t)n, NULL), RC_OK);
        assert_int_equal(rates_with(&with, r, doc, NULL), RC_OK);
        assert_int_equal(machine_make(&m, with, &hw, "new", NULL), RC_OK);
        assert_int_equal(m.basis, cases[i].want);
        assert_near(m.stack_matmul, 1.2, 1e-12);
        rates_free(with);
        json_free(doc);
    }
    rates_free(r);
}

/* The search prices hardware of one pace once. */
static void no_rate_depends_on_what_a_pace_leaves_out(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware hw[2] = {h100_nodes(2), {.nodes = 2, .ranks_per_node = 2}};
    hw[1].fabric_bytes_per_s = 1e9;
    for (int i = 0; i < 2; i++) {
        hw[i].memory_bytes = 64LL << 30;
        hw[i].ram_bytes = 333LL << 30;
        hw[i].nvme_bytes = 5LL << 40;
        hw[i].vcpus = 77;
        struct hardware pace = machine_pace(&hw[i]);
        assert_int_equal(pace.ram_bytes, hw[i].is_gpu ? 0 : hw[i].ram_bytes);
        assert_int_equal(pace.nvme_bytes, 0);
        struct machine whole = make(r, &hw[i]), of_pace = make(r, &pace);
        of_pace.hw = whole.hw;
        assert_memory_equal(&whole, &of_pace, sizeof whole);
    }
    rates_free(r);
}

static void refuses_hardware_it_knows_too_little_about(void **state)
{
    (void)state;
    struct rates *r = builtin();
    struct hardware bad[4];
    for (size_t i = 0; i < BASE_COUNT(bad); i++)
        bad[i] = h100_nodes(1);
    bad[0].memory_bytes = 0;
    bad[1].peak_flops[PRECISION_FP32] = 0;
    bad[2].ranks_per_node = 0;
    bad[3].link_bytes_per_s = 0;
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        struct err e = ERR_INIT;
        struct machine m;
        assert_int_equal(machine_make(&m, r, &bad[i], "berth", &e), RC_INVALID);
        assert_true(e.msg[0] != '\0');
    }
    rates_free(r);
}

/* A probe of a model without norms of queries and keys cannot name them. */
static void norms_of_queries_and_keys_stream_as_the_other_norms_unless_it_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *shares;
        double forward, backward;
    } cases[] = {{"{\"norm_fwd\":0.25,\"norm_bwd\":0.5}", 0.25, 0.5},
        {"{\"norm_fwd\":0.25,\"qk_norm_fwd\":0.75}", 0.75, 1}};
    struct rates *base = builtin();
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct err e = ERR_INIT;
        struct json *v = NULL;
        struct rates *r = NULL;
        struct machine m;
        struct hardware hw = h100_nodes(1);
        char *text = base_printf("{\"schema\":\"calibration/1\",\"entries\":[{\"device\":\"gpu\","
                                 "\"chip\":\"*\",\"stack\":\"*\",\"source\":\"made up\",\"date\":"
                                 "\"2026-11-30\",\"rows\":1,\"residual\":0,\"values\":{"
                                 "\"elementwise_of_memory\":%s}}]}",
            cases[i].shares);
        if (json_parse(&v, text, strlen(text), &e) || rates_with(&r, base, v, &e) ||
            machine_make(&m, r, &hw, "berth", &e))
            fail_msg("%s", e.msg);
        assert_true(fabs(m.elementwise[OP_QK_NORM_FWD] - cases[i].forward) < 1e-12);
        assert_true(fabs(m.elementwise[OP_QK_NORM_BWD] - cases[i].backward) < 1e-12);
        rates_free(r);
        json_free(v);
        free(text);
    }
    rates_free(base);
}

/* What is looked up has its line in the table, and the table holds nothing else. */
static void every_constant_is_described(void **state)
{
    (void)state;
    struct rates *r = builtin(); /* refuses what the table lacks */
    for (int i = 0; constant_at(i)->name; i++) {
        bool is_there = strcmp(constant_at(i)->name, "elementwise_of_memory") == 0;
        for (size_t k = 0; k < r->n_constants; k++)
            is_there = is_there || strcmp(r->constants[k].name, constant_at(i)->name) == 0;
        if (!is_there)
            fail_msg("nothing has '%s'", constant_at(i)->name);
    }
    rates_free(r);
}

int test_rates(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_constant_is_described),
        cmocka_unit_test(norms_of_queries_and_keys_stream_as_the_other_norms_unless_it_is_said),
        cmocka_unit_test(large_products_stay_below_the_best_anybody_measured),
        cmocka_unit_test(thin_products_are_bound_by_memory),
        cmocka_unit_test(gathers_inside_a_node_reach_the_measured_bus_bandwidth),
        cmocka_unit_test(gathers_between_nodes_use_all_nics_of_a_node),
        cmocka_unit_test(hops_of_a_ring_grow_with_its_ranks),
        cmocka_unit_test(replica_groups_share_the_nics),
        cmocka_unit_test(small_payloads_lose_most_of_the_wire),
        cmocka_unit_test(names_the_source_of_every_constant),
        cmocka_unit_test(ranks_of_a_cpu_node_share_its_cores_and_memory),
        cmocka_unit_test(later_entries_win_and_missing_constants_are_named),
        cmocka_unit_test(null_hides_no_earlier_constant_and_a_closer_entry_must_come_later),
        cmocka_unit_test(basis_follows_the_runs_behind_the_constants),
        cmocka_unit_test(no_rate_depends_on_what_a_pace_leaves_out),
        cmocka_unit_test(refuses_hardware_it_knows_too_little_about),
    };
    return cmocka_run_group_tests_name("rates", tests, NULL, NULL);
}
