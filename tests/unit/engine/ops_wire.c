/* What travels in blocks of few bits: sums against a reference in double, the same bits whatever
 * way the bytes go, volumes of the closed forms, and training that stays close to the plain one. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "engine/comm.h"
#include "engine/init.h"
#include "engine/ops_cpu.h"
#include "engine/poison.h"
#include "kernels/kernels.h"
#include "lib_ranks.h"

/* Tests run with each, one after another. */
static enum wire format;

static struct strategy base(enum strategy_kind kind, int64_t ranks, int64_t accum)
{
    struct strategy s = strategy_default(kind, ranks, ranks);
    s.seq = 24;
    s.grad_accum = accum;
    s.precision = PRECISION_FP32;
    s.reduce_format = format;
    s.gather_format = kind >= STRATEGY_ZERO3 ? format : WIRE_PLAIN;
    if (kind == STRATEGY_HSDP)
        s.shard_degree = 2;
    return s;
}

/* --- sums --- */

static float value(int rank, int64_t i)
{
    double size = exp2((double)((i / 300 + rank) % 12) - 6);
    return (float)(sin((double)i * 1.7 + rank) * size);
}

/* Largest of a rank's block: blocks of a piece begin with the piece. */
static double amax(int rank, int64_t piece, int64_t total, int64_t i)
{
    int64_t first = i / piece * piece + i % piece / WIRE_BLOCK * WIRE_BLOCK;
    int64_t end = first + WIRE_BLOCK, of_piece = (i / piece + 1) * piece;
    double most = 0;
    for (int64_t k = first; k < end && k < of_piece && k < total; k++)
        most = fmax(most, fabs((double)value(rank, k)));
    return most;
}

/* How far x may be off that is in a block with largest magnitude a (arXiv 2209.05433 has the
 * values of E4M3: three bits of fraction down to 2^-6, then multiples of 2^-9). */
static double room_of(double x, double a)
{
    double unit = a / 224; /* at most, where a is above half of 448 units */
    return format == WIRE_INT8 ? a / 254 : fmax(fabs(x) / 16, unit / 1024);
}

/* The schedule of a model that is never run lends its groups and buffers. */
struct vectors {
    int64_t elems, piece;
    int64_t from, count; /* a round */
    enum op_group group;
    bool is_all;
};

static enum rc run_op(const struct op_context *x, enum op_kind kind, const struct vectors *v,
    unsigned flags, void *from, void *to, struct err *e)
{
    struct op op = {.kind = (uint8_t)kind,
        .lane = LANE_REDUCE,
        .group = (uint8_t)v->group,
        .flags = (uint8_t)(flags | OP_OUT_FP32),
        .unit = 0,
        .dim = {v->elems - v->from, v->piece, v->count, format}};
    int64_t piece_bytes = wire_bytes(v->count);
    void *arg[] = {from, to};
    if (kind == OP_ALL_TO_ALL || kind == OP_ALL_GATHER) {
        op.dim[0] = piece_bytes * comm_group_size(x->comm, v->group);
        op.dim[1] = piece_bytes;
        op.dim[2] = 1;
    }
    return ops_cpu_run(x, &op, arg, NULL, e);
}

/* A round of a reduction: to the place in sum, or to that in full. */
static void reduce_round(
    struct rank *r, const struct vectors *v, float *full, float *sum, char *wires[2])
{
    struct err e = ERR_INIT;
    struct op_context x = {.schedule = r->schedule, .kernels = kernels_best(), .comm = r->comm};
    float *from = full + v->from, *to = v->is_all ? from : sum + v->from;
    char *own = wires[0] + wire_bytes(v->count) * comm_group_rank(r->comm, v->group);
    unsigned place = v->is_all ? OP_IN_PLACE : 0;
    ranks_check(run_op(&x, OP_QUANTISE, v, 0, from, wires[0], &e), &e);
    ranks_check(run_op(&x, OP_ALL_TO_ALL, v, 0, wires[0], wires[1], &e), &e);
    ranks_check(run_op(&x, OP_SUM_PIECES, v, place, wires[1], to, &e), &e);
    if (!v->is_all)
        return;
    ranks_check(run_op(&x, OP_QUANTISE, v, OP_IN_PLACE, from, own, &e), &e);
    ranks_check(run_op(&x, OP_ALL_GATHER, v, OP_IN_PLACE, wires[0], NULL, &e), &e);
    ranks_check(run_op(&x, OP_DEQUANTISE, v, 0, wires[0], from, &e), &e);
}

static void reduce_and_compare(struct rank *r)
{
    struct vectors *v = &(struct vectors){0};
    struct err e = ERR_INIT;
    *v = *(const struct vectors *)r->arg;
    int n = comm_group_size(r->comm, v->group), me = comm_group_rank(r->comm, v->group);
    size_t bytes = (size_t)wire_bytes(v->piece) * (size_t)n;
    float *full = malloc((size_t)v->elems * sizeof(*full));
    float *sum = calloc((size_t)v->piece, sizeof(*sum));
    char *wires[2] = {malloc(bytes), malloc(bytes)};
    for (int64_t i = 0; i < v->elems; i++)
        full[i] = value(r->rank, i);
    int64_t round = v->count;
    for (; v->from < v->piece; v->from += round) {
        v->count = v->piece - v->from < round ? v->piece - v->from : round;
        reduce_round(r, v, full, sum, wires);
    }
    int64_t first = v->is_all ? 0 : v->piece * me;
    int64_t end = v->is_all ? v->elems : fmin((double)(first + v->piece), (double)v->elems);
    for (int64_t i = first; i < end; i++) {
        double want = 0, room = 0, largest = 0;
        for (int k = 0; k < n; k++) {
            want += (double)value(k, i);
            room += room_of((double)value(k, i), amax(k, v->piece, v->elems, i));
            largest += amax(k, v->piece, v->elems, i);
        }
        if (v->is_all) /* sums are rounded once more, of a block that is no larger than that */
            room += 3 * room_of(fabs(want) + room, largest + room);
        double off = fabs((double)(v->is_all ? full[i] : sum[i - first]) - want);
        if (!(off <= room * (1 + 1e-3)))
            ranks_check(err_set(&e, RC_FAILED, "element %lld is %g off, room is %g", (long long)i,
                            off, room),
                &e);
    }
    free(sum);
    free(full);
    free(wires[0]);
    free(wires[1]);
}

/* Each rank's element is off by what its block lets it be. */
static void sums_are_those_of_doubles_within_the_bound(void **state)
{
    (void)state;
    static const int64_t elems[] = {3, 64 * 3, 1000, 3 * 4096 + 320};
    for (size_t i = 0; i < BASE_COUNT(elems); i++)
        for (int is_all = 0; is_all < 2; is_all++) {
            struct vectors v = {
                .elems = elems[i], .piece = (elems[i] + 2) / 3, .group = GROUP_SHARD};
            struct rank_options ro = {
                .model = "tiny-llama", .strategy = base(STRATEGY_ZERO3, 3, 1)};
            v.is_all = is_all;
            v.count = v.piece;
            ranks_run(&ro, reduce_and_compare, &v);
            v.count = 512;
            ranks_run(&ro, reduce_and_compare, &v);
        }
}

/* --- bits --- */

struct outcome {
    int64_t steps;
    uint64_t hash;
    double loss[8];
};

static void train(struct rank *r)
{
    struct outcome *o = r->arg;
    struct err e = ERR_INIT;
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(init_state(r->x, 42, &e), &e);
    double loss[8];
    ranks_train(r, 1, o->steps, loss);
    uint64_t hash = ranks_state_hash(r);
    if (r->rank > 0)
        return;
    memcpy(o->loss, loss, sizeof(loss));
    o->hash = hash;
}

static struct outcome outcome_on(const char *model, struct strategy s, int ranks_per_host)
{
    struct outcome o = {.steps = 3};
    struct rank_options ro = {.model = model,
        .strategy = s,
        .threads = 1,
        .is_poisoning = POISON_WORKS,
        .ranks_per_host = ranks_per_host};
    ranks_run(&ro, train, &o);
    return o;
}

static struct outcome outcome_of(const char *model, struct strategy s)
{
    return outcome_on(model, s, 0);
}

static void assert_same(struct outcome a, struct outcome b, const char *what)
{
    if (a.hash != b.hash || memcmp(a.loss, b.loss, sizeof(double) * (size_t)a.steps) != 0)
        fail_msg("%s changed the bits", what);
}

static const char *const MODELS[] = {"tiny-llama", "tiny-gpt2"};

static void shared_memory_tcp_and_two_levels_give_the_same_bits(void **state)
{
    (void)state;
    for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++) {
        struct strategy s = base((enum strategy_kind)k, 4, 2);
        struct outcome want = outcome_on("tiny-llama", s, 0);
        assert_same(want, outcome_on("tiny-llama", s, 0), "another run");
        assert_same(want, outcome_on("tiny-llama", s, 1), "TCP");
        assert_same(want, outcome_on("tiny-llama", s, 2), "two hosts of two ranks");
    }
}

/* Pieces are those of the plain reductions, and so are the classes of bits: but for ddp, whose sums
 * are rounded again on their way back. */
static void sharding_does_not_change_the_bits(void **state)
{
    (void)state;
    for (size_t m = 0; m < BASE_COUNT(MODELS); m++) {
        struct outcome one = outcome_of(MODELS[m], base(STRATEGY_ZERO1, 3, 1));
        assert_same(one, outcome_of(MODELS[m], base(STRATEGY_ZERO2, 3, 1)), "zero2");
        struct strategy s = base(STRATEGY_ZERO3, 3, 1);
        s.gather_format = WIRE_PLAIN;
        assert_same(one, outcome_of(MODELS[m], s), "zero3");
        struct outcome two = outcome_of(MODELS[m], base(STRATEGY_ZERO2, 2, 3));
        s = base(STRATEGY_ZERO3, 2, 3);
        s.gather_format = WIRE_PLAIN;
        assert_same(two, outcome_of(MODELS[m], s), "zero3 with accumulation");
    }
}

static void placement_and_timing_do_not_change_the_bits(void **state)
{
    (void)state;
    for (int precision = PRECISION_FP32; precision <= PRECISION_BF16; precision++) {
        struct strategy s = base(STRATEGY_ZERO3, 2, 2);
        s.precision = (enum precision)precision;
        struct outcome want = outcome_of("tiny-llama", s);
        struct strategy other = s;
        other.prefetch = 3;
        assert_same(want, outcome_of("tiny-llama", other), "prefetch");
        other = s;
        other.reshard_after_forward = false;
        assert_same(want, outcome_of("tiny-llama", other), "keeping parameters");
        other = s;
        other.recompute = RECOMPUTE_FULL;
        assert_same(want, outcome_of("tiny-llama", other), "recompute");
        static const unsigned offloads[] = {OFFLOAD_OPTIMIZER, OFFLOAD_PARAMETERS,
            OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS,
            OFFLOAD_OPTIMIZER | OFFLOAD_DISK,
            OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK};
        for (size_t i = 0; i < BASE_COUNT(offloads); i++) {
            other = s;
            other.offload = offloads[i];
            assert_same(want, outcome_of("tiny-llama", other), offload_name(offloads[i]));
        }
    }
}

static void buckets_do_not_change_the_bits(void **state)
{
    (void)state;
    static const int64_t sizes[] = {100 << 10, 300 << 10, INT64_MAX};
    for (size_t m = 0; m < BASE_COUNT(MODELS); m++)
        for (int kind = STRATEGY_DDP; kind <= STRATEGY_ZERO2; kind++) {
            struct strategy s = base((enum strategy_kind)kind, 3, 2);
            struct outcome want = outcome_of(MODELS[m], s);
            for (size_t i = 0; i < BASE_COUNT(sizes); i++) {
                s.bucket_bytes = sizes[i];
                assert_same(want, outcome_of(MODELS[m], s), "the size of buckets");
            }
        }
}

/* A run of one rank sends nothing, so nothing of it is rounded. */
static void one_rank_is_as_without(void **state)
{
    (void)state;
    struct strategy s = base(STRATEGY_ZERO3, 1, 2), plain = s;
    plain.gather_format = plain.reduce_format = WIRE_PLAIN;
    assert_same(outcome_of("tiny-llama", s), outcome_of("tiny-llama", plain), "a format");
}

/* --- training --- */

static struct outcome eight_steps(const char *model, struct strategy s)
{
    struct outcome o = {.steps = 8};
    struct rank_options ro = {.model = model, .strategy = s, .threads = 1};
    ranks_run(&ro, train, &o);
    return o;
}

static void losses_stay_close_to_those_without(void **state)
{
    (void)state;
    for (size_t m = 0; m < BASE_COUNT(MODELS); m++)
        for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++) {
            struct strategy s = base((enum strategy_kind)k, 4, 1), plain = s;
            plain.gather_format = plain.reduce_format = WIRE_PLAIN;
            struct outcome got = eight_steps(MODELS[m], s);
            struct outcome want = eight_steps(MODELS[m], plain);
            for (int i = 0; i < 8; i++)
                if (!(fabs(got.loss[i] - want.loss[i]) <= 5e-3 * want.loss[i]))
                    fail_msg("%s, %s: loss %g in step %d, without %g", MODELS[m],
                        strategy_kind_name((enum strategy_kind)k), got.loss[i], i + 1,
                        want.loss[i]);
            assert_true(got.hash != want.hash);
        }
}

/* What a rank evaluates with is what it trains with, and its masters are not touched. */
static void evaluate_then_train(struct rank *r)
{
    const struct strategy *s = &r->schedule->strategy;
    struct evaluation out;
    struct batch b = {r, 1};
    struct err e = ERR_INIT;
    double loss;
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(init_state(r->x, 42, &e), &e);
    uint64_t before = ranks_state_hash(r);
    ranks_check(executor_evaluate(r->x, s->grad_accum, batch_fill, &b, &out, &e), &e);
    if (ranks_state_hash(r) != before)
        ranks_check(err_set(&e, RC_FAILED, "a gather changed what is kept"), &e);
    ranks_train(r, 1, 1, &loss);
    if (r->rank == 0 && memcmp(&out.loss, &loss, sizeof(loss)) != 0)
        ranks_check(err_set(&e, RC_FAILED, "evaluated %.17g, trained %.17g", out.loss, loss), &e);
}

static void gathers_leave_alone_what_is_kept(void **state)
{
    (void)state;
    struct strategy s = base(STRATEGY_ZERO3, 2, 2);
    s.evaluates = true;
    struct rank_options ro = {.model = "tiny-llama", .strategy = s, .threads = 1};
    ranks_run(&ro, evaluate_then_train, NULL);
}

/* --- volumes --- */

/* Of the ranks' parts of all units of tiny-llama, over so many shards and then parts: in blocks,
 * and as they are. */
static uint64_t piece_bytes(int shards, int parts, bool is_plain)
{
    struct err e = ERR_INIT;
    struct model m;
    uint64_t bytes = 0;
    ranks_check(model_find(&m, "tiny-llama", &e), &e);
    for (int u = 0; u < model_units(&m); u++) {
        struct unit_layout l;
        model_unit_layout(&m, u, shards, &l);
        int64_t elems = (l.shard_elems + parts - 1) / parts;
        bytes += (uint64_t)(is_plain ? elems * 4 : (elems + 3) / 4 * 4 + (elems + 255) / 256 * 4);
    }
    return bytes;
}

/* Per rank and step of a micro steps over n ranks, w bytes of a rank's part in blocks and p as it
 * is (algorithms: Wang et al., ZeRO++): ddp 2 w, zero1 w + p, zero2 a w + p, zero3 with parameters
 * kept until backward 2 a w, all times n - 1. */
static void ranks_send_the_bytes_of_the_closed_forms(void **state)
{
    (void)state;
    uint64_t w = piece_bytes(4, 1, false), p = piece_bytes(4, 1, true);
    const uint64_t want[] = {2 * w, w + p, 3 * w + p, 6 * w};
    for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO3; k++) {
        struct strategy s = base((enum strategy_kind)k, 4, 3);
        s.reshard_after_forward = false;
        struct rank_options o = {.model = "tiny-llama", .strategy = s};
        struct comm_volume sent;
        ranks_run(&o, ranks_count_bytes, &sent);
        assert_int_equal(sent.inside, want[k] * 3);
        assert_int_equal(sent.across, 0);
    }
}

/* HSDP of two hosts with two ranks: gathers and reductions of micro steps inside, and once a step
 * the own shard between the hosts, there and back. */
static void between_hosts_only_sums_of_shards_travel(void **state)
{
    (void)state;
    struct strategy s = base(STRATEGY_HSDP, 4, 3);
    s.reshard_after_forward = false;
    struct rank_options o = {.model = "tiny-llama", .strategy = s, .ranks_per_host = 2};
    struct comm_volume sent;
    ranks_run(&o, ranks_count_bytes, &sent);
    assert_int_equal(sent.inside, 3 * 2 * piece_bytes(2, 1, false));
    assert_int_equal(sent.across, 2 * piece_bytes(2, 2, false));
}

/* --- times --- */

static void tell_times(struct rank *r)
{
    const struct strategy *s = &r->schedule->strategy;
    struct err e = ERR_INIT;
    struct batch b = {r, 1};
    struct step_params p = {.step = 1,
        .lr = 1e-3,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .local_targets = (double)(s->seq * s->micro_batch * s->grad_accum)};
    ranks_check(init_state(r->x, 42, &e), &e);
    struct step_result other;
    ranks_check(executor_step(r->x, &p, batch_fill, &b, r->rank ? &other : r->arg, &e), &e);
}

/* Of the lanes' busy time: what moved bytes, by kind, and of it what nothing hid. */
static void a_step_tells_what_each_kind_of_collective_took(void **state)
{
    (void)state;
    struct step_result out[2];
    for (int is_plain = 0; is_plain < 2; is_plain++) {
        struct strategy s = base(STRATEGY_ZERO3, 2, 2);
        if (is_plain)
            s.gather_format = s.reduce_format = WIRE_PLAIN;
        struct rank_options ro = {.model = "tiny-llama", .strategy = s, .threads = 1};
        ranks_run(&ro, tell_times, &out[is_plain]);
        const struct collective_time *c = out[is_plain].collective;
        const struct collective_time *gather = &c[record_collective(OP_ALL_GATHER)];
        const struct collective_time *sums =
            &c[record_collective(is_plain ? OP_REDUCE_SCATTER : OP_ALL_TO_ALL)];
        const struct collective_time *scalars = &c[record_collective(OP_SCALARS)];
        double of_gathers = out[is_plain].busy_s[LANE_GATHER];
        assert_true(gather->seconds > 0 && gather->seconds <= of_gathers * (1 + 1e-9));
        assert_true(sums->seconds > 0 && sums->seconds <= out[is_plain].busy_s[LANE_REDUCE] + 1e-9);
        assert_true(is_plain == (gather->seconds >= of_gathers * (1 - 1e-9)));
        assert_true(gather->exposed_s >= 0 && gather->exposed_s <= gather->seconds);
        assert_true(scalars->seconds > 0 && scalars->exposed_s >= scalars->seconds);
        assert_true(c[record_collective(OP_ALL_REDUCE)].seconds <= 0);
        assert_true(out[is_plain].optimizer_s > 0);
    }
}

/* --- paths --- */

static void name_paths(struct rank *r)
{
    const char **want = r->arg;
    static const enum op_group groups[] = {GROUP_WORLD, GROUP_SHARD, GROUP_REPLICA};
    struct err e = ERR_INIT;
    for (int i = 0; i < 3; i++)
        if (strcmp(comm_path_name(r->comm, groups[i]), want[i]) != 0)
            ranks_check(err_set(&e, RC_FAILED, "group %d goes over '%s', not '%s'", i,
                            comm_path_name(r->comm, groups[i]), want[i]),
                &e);
}

static void the_way_of_each_group_is_told(void **state)
{
    (void)state;
    static const char *const want[][3] = {
        {"shared memory", "shared memory", "shared memory"},
        {"TCP", "TCP", "TCP"},
        {"shared memory and TCP", "shared memory", "TCP"},
    };
    for (int ranks_per_host = 0; ranks_per_host < 3; ranks_per_host++) {
        struct rank_options ro = {.model = "tiny-llama",
            .strategy = base(STRATEGY_HSDP, 4, 1),
            .threads = 1,
            .ranks_per_host = ranks_per_host};
        ranks_run(&ro, name_paths, (void *)(uintptr_t)want[ranks_per_host]);
    }
}

static int begin_int8(void **state)
{
    (void)state;
    format = WIRE_INT8;
    return 0;
}

static int begin_fp8(void **state)
{
    (void)state;
    format = WIRE_FP8;
    return 0;
}

int test_ops_wire(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_doubles_within_the_bound),
        cmocka_unit_test(shared_memory_tcp_and_two_levels_give_the_same_bits),
        cmocka_unit_test(sharding_does_not_change_the_bits),
        cmocka_unit_test(placement_and_timing_do_not_change_the_bits),
        cmocka_unit_test(buckets_do_not_change_the_bits),
        cmocka_unit_test(one_rank_is_as_without),
        cmocka_unit_test(losses_stay_close_to_those_without),
        cmocka_unit_test(gathers_leave_alone_what_is_kept),
        cmocka_unit_test(ranks_send_the_bytes_of_the_closed_forms),
        cmocka_unit_test(between_hosts_only_sums_of_shards_travel),
        cmocka_unit_test(a_step_tells_what_each_kind_of_collective_took),
        cmocka_unit_test(the_way_of_each_group_is_told),
    };
    int failed = cmocka_run_group_tests_name("engine/ops_wire int8", tests, begin_int8, NULL);
    return failed + cmocka_run_group_tests_name("engine/ops_wire fp8", tests, begin_fp8, NULL);
}
