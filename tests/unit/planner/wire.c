/* Schedules of what travels in blocks of few bits: what is moved, in which rounds, and the memory
 * that it takes, to the byte. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "planner/layout.h"
#include "planner/schedule.h"

static struct strategy in_blocks(enum strategy_kind kind, int64_t ranks)
{
    struct strategy s = strategy_default(kind, ranks, 2);
    s.seq = 64;
    s.reduce_format = WIRE_INT8;
    s.gather_format = kind >= STRATEGY_ZERO3 ? WIRE_INT8 : WIRE_PLAIN;
    return s;
}

static struct schedule *make(const char *model, const struct strategy *s)
{
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *out;
    assert_int_equal(model_find(&m, model, &e), RC_OK);
    if (schedule_make(&out, &m, s, &e))
        fail_msg("%s", e.msg);
    return out;
}

static void formats_have_names_and_bytes(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    enum wire w = WIRE_PLAIN;
    assert_int_equal(wire_parse("int8", &w, &e), RC_OK);
    assert_int_equal(w, WIRE_INT8);
    assert_string_equal(wire_name(w), "int8");
    assert_int_equal(wire_parse("fp8", &w, &e), RC_OK);
    assert_int_equal(w, WIRE_FP8);
    assert_string_equal(wire_name(w), "fp8");
    assert_int_equal(wire_parse("int2", &w, &e), RC_USAGE);
    assert_int_equal(wire_bytes(1024), 1024 + 4 * 4);
    assert_int_equal(wire_bytes(1025), 1028 + 5 * 4);
}

/* Of one unit's operations of a kind in the first section: how many, elements of a piece that they
 * cover, each once and in order, and bytes that all ranks have together. */
struct rounds {
    int n;
    int64_t elems;
    double bytes;
};

static struct rounds rounds_of(
    const struct schedule *s, enum op_kind kind, enum lane lane, int unit)
{
    struct rounds r = {0};
    const struct section *sec = &s->section[0];
    for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++) {
        const struct op *op = &s->ops[i];
        if (op->kind != kind || op->lane != lane || op->unit != unit)
            continue;
        r.n++;
        r.bytes += op->bytes;
        if (kind == OP_QUANTISE || kind == OP_DEQUANTISE || kind == OP_SUM_PIECES)
            r.elems += op->dim[2];
        if (kind == OP_DEQUANTISE)
            assert_int_equal(op->dim[0] + r.elems - op->dim[2], s->unit[unit].elems);
    }
    return r;
}

/* A table is larger than a round, blocks are not. */
static void large_units_travel_in_rounds(void **state)
{
    (void)state;
    struct strategy s = in_blocks(STRATEGY_ZERO3, 4);
    s.reshard_after_forward = false;
    struct schedule *list = make("llama-3.2-1b", &s);
    for (int unit = 0; unit < list->n_units; unit++) {
        int64_t piece = list->unit[unit].shard_elems, all = 4 * wire_bytes(piece);
        int want = (int)((all + WIRE_ROUND_BYTES - 1) / WIRE_ROUND_BYTES);
        const struct {
            enum op_kind kind;
            enum lane lane;
        } ops[] = {{OP_QUANTISE, LANE_GATHER}, {OP_ALL_GATHER, LANE_GATHER},
            {OP_DEQUANTISE, LANE_GATHER}, {OP_QUANTISE, LANE_REDUCE}, {OP_ALL_TO_ALL, LANE_REDUCE},
            {OP_SUM_PIECES, LANE_REDUCE}};
        assert_true(unit > 0 ? want == 1 : want == 2);
        for (size_t i = 0; i < BASE_COUNT(ops); i++) {
            struct rounds r = rounds_of(list, ops[i].kind, ops[i].lane, unit);
            bool is_exchange = ops[i].kind == OP_ALL_GATHER || ops[i].kind == OP_ALL_TO_ALL;
            assert_int_equal(r.n, want);
            if (is_exchange)
                assert_true(r.bytes >= (double)all && r.bytes <= (double)all);
            else
                assert_int_equal(r.elems, piece);
        }
    }
    schedule_free(list);
}

static int64_t bytes_of(const struct schedule *s, const char *name)
{
    for (int32_t i = 0; i < s->n_buffers; i++)
        if (strcmp(s->buffers[i].name, name) == 0)
            return s->buffers[i].bytes;
    return 0;
}

/* Buffers of a round of the largest unit, one for parameters and two for gradients; nothing else
 * changes. A round has whole blocks of every rank's piece. */
static void a_round_is_all_that_it_takes_in_memory(void **state)
{
    (void)state;
    static const char *const models[] = {"nano-llama", "llama-3.2-1b"};
    for (size_t m = 0; m < BASE_COUNT(models); m++)
        for (int kind = STRATEGY_DDP; kind <= STRATEGY_HSDP; kind++) {
            struct strategy s = in_blocks((enum strategy_kind)kind, 4), plain = s;
            plain.gather_format = plain.reduce_format = WIRE_PLAIN;
            struct schedule *with = make(models[m], &s), *without = make(models[m], &plain);
            int64_t n = with->shards, round = WIRE_ROUND_BYTES / n / 260 * 256, largest = 0;
            for (int u = 0; u < with->n_units; u++) {
                int64_t piece = with->unit[u].shard_elems;
                piece = piece < round ? piece : round;
                largest = wire_bytes(piece) > largest ? wire_bytes(piece) : largest;
            }
            int64_t bytes = (int64_t)base_align_up((uint64_t)(n * largest), BUFFER_ALIGN);
            bool is_gathered = kind >= STRATEGY_ZERO3;
            assert_int_equal(bytes_of(with, "wire_param"), is_gathered ? bytes : 0);
            assert_int_equal(bytes_of(with, "wire_grad"), bytes);
            assert_int_equal(bytes_of(with, "wire_pieces"), bytes);
            assert_int_equal(layout_peak(with, MEMORY_DEVICE).live_bytes -
                                 layout_peak(without, MEMORY_DEVICE).live_bytes,
                (is_gathered ? 3 : 2) * bytes);
            schedule_free(with);
            schedule_free(without);
        }
}

/* Codes of either format are a byte and scales four: the same list, but for the format. */
static void fp8_moves_what_int8_moves(void **state)
{
    (void)state;
    struct strategy s = in_blocks(STRATEGY_ZERO3, 4), other = s;
    other.gather_format = other.reduce_format = WIRE_FP8;
    struct schedule *a = make("nano-llama", &s), *b = make("nano-llama", &other);
    assert_int_equal(a->n_ops, b->n_ops);
    for (int32_t i = 0; i < a->n_ops; i++) {
        const struct op *x = &a->ops[i], *y = &b->ops[i];
        assert_int_equal(x->kind, y->kind);
        assert_memory_equal(&x->bytes, &y->bytes, sizeof(x->bytes));
        if (x->kind == OP_QUANTISE || x->kind == OP_DEQUANTISE || x->kind == OP_SUM_PIECES) {
            assert_int_equal(x->dim[3], WIRE_INT8);
            assert_int_equal(y->dim[3], WIRE_FP8);
        }
    }
    struct hash128 ha = schedule_hash(a), hb = schedule_hash(b);
    assert_true(memcmp(&ha, &hb, sizeof(ha)) != 0);
    assert_int_equal(
        layout_peak(a, MEMORY_DEVICE).live_bytes, layout_peak(b, MEMORY_DEVICE).live_bytes);
    schedule_free(a);
    schedule_free(b);
}

static void one_rank_has_the_schedule_that_it_has_without(void **state)
{
    (void)state;
    struct strategy s = in_blocks(STRATEGY_ZERO3, 2), plain;
    s.ranks = s.ranks_per_node = s.shard_degree = 1;
    plain = s;
    plain.gather_format = plain.reduce_format = WIRE_PLAIN;
    struct schedule *with = make("nano-llama", &s), *without = make("nano-llama", &plain);
    struct hash128 a = schedule_hash(with), b = schedule_hash(without);
    assert_memory_equal(&a, &b, sizeof(a));
    schedule_free(with);
    schedule_free(without);
}

int test_wire(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats_have_names_and_bytes),
        cmocka_unit_test(large_units_travel_in_rounds),
        cmocka_unit_test(a_round_is_all_that_it_takes_in_memory),
        cmocka_unit_test(fp8_moves_what_int8_moves),
        cmocka_unit_test(one_rank_has_the_schedule_that_it_has_without),
    };
    return cmocka_run_group_tests_name("wire", tests, NULL, NULL);
}
