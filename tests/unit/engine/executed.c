/* What is executed is what was planned: operations, bytes sent, memory, and nothing else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/comm.h"
#include "engine/init.h"
#include "engine/memory_use.h"
#include "engine/poison.h"
#include "kernels/kernels.h"
#include "lib_count.h"
#include "lib_ranks.h"

/* Of tiny-llama in fp32, padded for so many shards; *small: of units of 64 KiB and less. */
static uint64_t parameter_bytes(int shards, uint64_t *small)
{
    struct err e = ERR_INIT;
    struct model m;
    uint64_t bytes = 0;
    *small = 0;
    ranks_check(model_find(&m, "tiny-llama", &e), &e);
    for (int u = 0; u < model_units(&m); u++) {
        struct unit_layout l;
        model_unit_layout(&m, u, shards, &l);
        bytes += (uint64_t)l.elems * 4;
        *small += l.elems * 4 <= 64 << 10 ? (uint64_t)l.elems * 4 : 0;
    }
    return bytes;
}

/* Payload per rank and step, parameters p and gradients g in bytes, a micro steps, n ranks
 * (algorithms: Rajbhandari et al., ZeRO): ddp 2 g, zero1 g + p, zero2 a g + p, all times (n-1)/n.
 */
static void ranks_send_the_bytes_of_the_closed_forms(void **state)
{
    (void)state;
    uint64_t small, p = parameter_bytes(4, &small);
    for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO2; k++) {
        struct rank_options o = {
            .model = "tiny-llama", .strategy = ranks_strategy((enum strategy_kind)k, 4, 3)};
        struct comm_volume sent;
        ranks_run(&o, ranks_count_bytes, &sent);
        const uint64_t times[] = {2, 2, 4};
        assert_int_equal(sent.inside, times[k] * p / 4 * 3);
        assert_int_equal(sent.across, 0);
    }
}

/* Two hosts of two ranks. Over two levels of h hosts with l ranks each, every pass of the forms
 * above is (l-1)/l inside and (h-1)/(h l) across. HSDP with the shards inside a host and parameters
 * kept until backward: a gather and a reduction of each micro step inside, one all-reduce of the
 * own shard across. (Units of 64 KiB
 * and less are exchanged by all with all: a third of it inside.) */
static void two_hosts_send_the_bytes_of_the_closed_forms(void **state)
{
    (void)state;
    uint64_t small, large = parameter_bytes(4, &small);
    large -= small;
    for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO2; k++) {
        struct rank_options o = {.model = "tiny-llama",
            .strategy = ranks_strategy((enum strategy_kind)k, 4, 3),
            .ranks_per_host = 2};
        struct comm_volume sent;
        ranks_run(&o, ranks_count_bytes, &sent);
        const uint64_t times[] = {2, 2, 4};
        assert_int_equal(sent.inside, times[k] * (large / 2 + small / 4));
        assert_int_equal(sent.across, times[k] * (large / 4 + small / 2));
    }
    struct rank_options o = {.model = "tiny-llama",
        .strategy = ranks_strategy(STRATEGY_HSDP, 4, 3),
        .ranks_per_host = 2};
    o.strategy.shard_degree = 2;
    o.strategy.reshard_after_forward = false;
    struct comm_volume sent;
    ranks_run(&o, ranks_count_bytes, &sent);
    uint64_t p = parameter_bytes(2, &small);
    assert_int_equal(sent.inside, 3 * (p + p) / 2);
    assert_int_equal(sent.across, 2 * (p / 2) / 2);
}

static void train_two_steps(struct rank *r)
{
    struct err e = ERR_INIT;
    ranks_check(init_state(r->x, 1, &e), &e);
    ranks_train(r, 1, 2, NULL);
}

struct traced {
    int op, order;
    char kind[32], lane[32];
};

static const char *next_traced(const char *line, struct traced *t)
{
    const char *p = strstr(line, "\"op\":");
    assert_non_null(p);
    assert_int_equal(sscanf(p, "\"op\":%d,\"order\":%d,\"kind\":\"%31[^\"]\",\"lane\":\"%31[^\"]\"",
                         &t->op, &t->order, t->kind, t->lane),
        4);
    return strchr(line, '\n') + 1;
}

/* What the lanes reported for one section: each lane its own operations in list order, all of them
 * once, none before one it waits for. */
static const char *check_section(
    const struct schedule *s, const struct section *sec, const char *line)
{
    int *order = calloc((size_t)sec->n_ops, sizeof(*order)), n = 0;
    memset(order, 0xff, (size_t)sec->n_ops * sizeof(*order));
    for (int l = 0; l < LANE_COUNT; l++)
        for (int32_t i = 0; i < sec->n_ops; i++) {
            const struct op *op = &s->ops[sec->first_op + i];
            struct traced t;
            if (op->lane != l)
                continue;
            line = next_traced(line, &t);
            assert_int_equal(t.op, sec->first_op + i);
            assert_string_equal(t.kind, op_kind_name((enum op_kind)op->kind));
            assert_string_equal(t.lane, lane_name((enum lane)l));
            order[i] = t.order;
            n++;
        }
    assert_int_equal(n, sec->n_ops);
    for (int32_t i = 0; i < sec->n_ops; i++)
        for (int l = 0; l < LANE_COUNT; l++) {
            int32_t wait = s->ops[sec->first_op + i].waits[l];
            assert_true(wait < 0 || order[wait - sec->first_op] < order[i]);
        }
    free(order);
    return line;
}

static void check_trace(unsigned offload)
{
    char *text = NULL;
    size_t len = 0;
    struct rank_options o = {
        .model = "tiny-llama", .strategy = ranks_strategy(STRATEGY_ZERO3, 2, 4)};
    o.strategy.offload = offload;
    o.trace = open_memstream(&text, &len);
    ranks_run(&o, train_two_steps, NULL);
    fclose(o.trace);
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *s;
    ranks_check(model_find(&m, "tiny-llama", &e), &e);
    ranks_check(schedule_make(&s, &m, &o.strategy, &e), &e);
    const char *line = text;
    for (int step = 0; step < 2; step++)
        for (int k = 0; k < s->n_sections; k++)
            for (int64_t r = 0; r < s->section[k].repeat; r++)
                line = check_section(s, &s->section[k], line);
    if (strategy_defers_update(&s->strategy))
        line = check_section(s, schedule_section(s, SECTION_FLUSH), line);
    assert_int_equal(*line, '\0');
    schedule_free(s);
    free(text);
}

static void the_executed_operations_are_the_planned_list(void **state)
{
    (void)state;
    for (size_t i = 0; i < OFFLOAD_SETS; i++)
        check_trace(offload_at(i));
}

static atomic_int products;

static void count_product(struct pool *p, const struct k_matmul *a)
{
    atomic_fetch_add(&products, 1);
    kernels_best()->matmul(p, a);
}

static void warm_up(struct rank *r)
{
    struct err e = ERR_INIT;
    struct kernels counting = *kernels_best();
    struct executor *x;
    counting.matmul = count_product;
    struct executor_options o = {.device = &device_cpu,
        .device_options = {.threads = 1},
        .kernels = &counting,
        .comm = r->comm};
    ranks_check(executor_open(&x, r->schedule, &o, &e), &e);
    ranks_check(executor_warm_up(x, &e), &e);
    executor_close(x);
}

/* Of several blocks and 5 micro steps: products of the embedding, the first block and the head in
 * each section. */
static void a_warm_up_computes_one_block_and_one_micro_step_of_those_alike(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *s;
    struct rank_options o = {
        .model = "tiny-llama", .strategy = ranks_strategy(STRATEGY_ZERO3, 2, 5)};
    ranks_check(model_find(&m, o.model, &e), &e);
    ranks_check(schedule_make(&s, &m, &o.strategy, &e), &e);
    int wanted = 0, all = 0;
    for (int32_t i = 0; i < s->n_ops; i++) {
        const struct op *op = &s->ops[i];
        wanted += op->kind == OP_MATMUL && (op->unit <= 1 || op->unit == s->n_units - 1);
        all += op->kind == OP_MATMUL;
    }
    assert_true(wanted < all);
    atomic_store(&products, 0);
    ranks_run(&o, warm_up, NULL);
    assert_int_equal(atomic_load(&products), 2 * wanted);
    schedule_free(s);
}

struct growth {
    int allocations;
    int64_t resident_bytes;
};

static void train_and_watch(struct rank *r)
{
    struct growth *g = r->arg;
    struct err e = ERR_INIT;
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(init_state(r->x, 1, &e), &e);
    ranks_train(r, 1, 1, NULL);
    ranks_check(comm_barrier(r->comm, &e), &e);
    if (r->rank == 0)
        count_start();
    int64_t before = memory_now_bytes();
    ranks_train(r, 2, 6, NULL);
    ranks_check(comm_barrier(r->comm, &e), &e);
    if (r->rank == 0) {
        g->allocations = count_stop();
        g->resident_bytes = memory_now_bytes() - before;
    }
}

static void after_the_first_step_nothing_allocates(void **state)
{
    (void)state;
    static const unsigned offloads[] = {[STRATEGY_DDP] = OFFLOAD_ACTIVATIONS,
        [STRATEGY_ZERO1] = OFFLOAD_NONE,
        [STRATEGY_ZERO2] = OFFLOAD_OPTIMIZER | OFFLOAD_DISK,
        [STRATEGY_ZERO3] = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS,
        [STRATEGY_HSDP] = OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK};
    for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++) {
        struct growth g;
        struct rank_options o = {
            .model = "tiny-llama", .strategy = ranks_strategy((enum strategy_kind)k, 2, 2)};
        o.strategy.offload = offloads[k];
        ranks_run(&o, train_and_watch, &g);
        assert_int_equal(g.allocations, 0);
#ifndef __SANITIZE_THREAD__ /* its shadow memory grows with every access */
        assert_true(g.resident_bytes < 128 << 10);
#endif
    }
}

static void measure_external(struct rank *r)
{
    int64_t *external = r->arg;
    struct err e = ERR_INIT;
    ranks_check(executor_warm_up(r->x, &e), &e);
    *external = executor_external_bytes(r->x);
}

/* What lies outside the slabs is a few MiB of code's data and stacks, not part of the slabs:
 * reading untouched memory does not make it so. */
static void external_memory_is_positive_and_small_for_one_rank(void **state)
{
    (void)state;
    int64_t external = 0;
    struct rank_options o = {.model = "nano-llama", .strategy = ranks_strategy(STRATEGY_DDP, 1, 1)};
    o.strategy.seq = 128;
    o.strategy.micro_batch = 16;
    ranks_run(&o, measure_external, &external);
    assert_true(external > 0);
#if !POISON_WORKS && !defined(__SANITIZE_THREAD__) /* their shadow counts */
    assert_true(external < 64 << 20);
#endif
}

struct cap {
    int64_t bytes;
    enum rc rc;
    struct err e;
};

static void open_capped(struct rank *r)
{
    static const char *const scratch = "/tmp";
    struct cap *c = r->arg;
    struct executor_options xo = {.device = &device_cpu,
        .device_options = {.threads = 1,
            .slab_cap_bytes = r->schedule->slab_bytes[MEMORY_DEVICE] + c->bytes},
        .kernels = kernels_best(),
        .disk_dirs = &scratch,
        .n_disk_dirs = 1,
        .comm = r->comm};
    struct executor *x = NULL;
    c->rc = executor_open(&x, r->schedule, &xo, &c->e);
    if (x) {
        struct err e = ERR_INIT;
        struct rank again = *r;
        again.x = x;
        ranks_check(init_state(x, 1, &e), &e);
        ranks_train(&again, 1, 1, NULL);
    }
    executor_close(x);
}

static void a_slab_one_page_smaller_fails_and_the_planned_one_runs(void **state)
{
    (void)state;
    struct rank_options o = {
        .model = "tiny-llama", .strategy = ranks_strategy(STRATEGY_ZERO3, 1, 1)};
    for (size_t i = 0; i < OFFLOAD_SETS; i++) {
        struct cap exact = {.bytes = 0}, smaller = {.bytes = -SLAB_PAGE};
        o.strategy.offload = offload_at(i);
        ranks_run(&o, open_capped, &exact);
        assert_int_equal(exact.rc, RC_OK);
        ranks_run(&o, open_capped, &smaller);
        assert_int_equal(smaller.rc, RC_LIMIT);
        assert_non_null(strstr(smaller.e.msg, "4096 too few"));
    }
}

static int64_t device_slab(unsigned offload, enum recompute recompute)
{
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *s;
    struct strategy st = ranks_strategy(STRATEGY_ZERO3, 1, 1);
    st.offload = offload;
    st.recompute = recompute;
    st.seq = 128;
    st.micro_batch = 4;
    ranks_check(model_find(&m, "nano-llama", &e), &e);
    m.layers = 12;
    ranks_check(schedule_make(&s, &m, &st, &e), &e);
    int64_t bytes = s->slab_bytes[MEMORY_DEVICE];
    schedule_free(s);
    return bytes;
}

/* The executor runs in exactly this (above); what is kept of 11 of 12 blocks is not part of it, but
 * for two that are on their way. Of a block in fp32: 9 widths, queries, keys and values, and what
 * is between the products of its feed-forward part; without any of it, its input. */
static void what_leaves_the_device_makes_its_slab_smaller(void **state)
{
    (void)state;
    const int64_t width = 128 * 4 * 128 * 4; /* nano-llama: (T, d) in fp32 */
    int64_t all = device_slab(OFFLOAD_NONE, RECOMPUTE_NONE);
    int64_t inputs = device_slab(OFFLOAD_NONE, RECOMPUTE_FULL);
    assert_true(device_slab(OFFLOAD_ACTIVATIONS, RECOMPUTE_NONE) < all - 8 * 9 * width);
    assert_true(device_slab(OFFLOAD_ACTIVATIONS, RECOMPUTE_FULL) < inputs - 8 * width);
    for (size_t i = 1; i < OFFLOAD_SETS; i++)
        assert_true(device_slab(offload_at(i), RECOMPUTE_NONE) < all);
}

static void refuses_models_its_kernels_do_not_cover(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct rank_options o = {.strategy = ranks_strategy(STRATEGY_DDP, 1, 1)};
    struct model m;
    struct schedule *s;
    struct executor *x = NULL;
    struct executor_options xo = {.device = &device_cpu, .kernels = kernels_best()};
    ranks_check(model_find(&m, "tiny-llama", &e), &e);
    ranks_check(schedule_make(&s, &m, &o.strategy, &e), &e);
    s->model.head_dim = 512;
    assert_int_equal(executor_open(&x, s, &xo, &e), RC_LIMIT);
    assert_null(x);
    schedule_free(s);
}

#if POISON_WORKS
static void train_with_a_lie(struct rank *r)
{
    struct err e = ERR_INIT;
    for (int32_t i = 0; i < r->schedule->n_ops; i++)
        if (r->schedule->ops[i].kind == OP_SWIGLU_FWD)
            r->schedule->ops[i].arg[0].bytes /= 2;
    ranks_check(init_state(r->x, 1, &e), &e);
    ranks_train(r, 1, 1, NULL);
}

static void touching_what_was_not_declared_is_caught(void **state)
{
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        freopen("/dev/null", "w", stderr);
        struct rank_options o = {.model = "tiny-llama",
            .strategy = ranks_strategy(STRATEGY_DDP, 1, 1),
            .is_poisoning = true};
        ranks_run(&o, train_with_a_lie, NULL);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
#endif

int test_executed(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_send_the_bytes_of_the_closed_forms),
        cmocka_unit_test(two_hosts_send_the_bytes_of_the_closed_forms),
        cmocka_unit_test(the_executed_operations_are_the_planned_list),
        cmocka_unit_test(a_warm_up_computes_one_block_and_one_micro_step_of_those_alike),
        cmocka_unit_test(after_the_first_step_nothing_allocates),
        cmocka_unit_test(external_memory_is_positive_and_small_for_one_rank),
        cmocka_unit_test(a_slab_one_page_smaller_fails_and_the_planned_one_runs),
        cmocka_unit_test(what_leaves_the_device_makes_its_slab_smaller),
        cmocka_unit_test(refuses_models_its_kernels_do_not_cover),
#if POISON_WORKS
        cmocka_unit_test(touching_what_was_not_declared_is_caught),
#endif
    };
    return cmocka_run_group_tests_name("engine/executed", tests, NULL, NULL);
}
