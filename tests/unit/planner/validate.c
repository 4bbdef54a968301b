#include "planner/validate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/json.h"
#include "base/str.h"

/* --- a table computed by hand --- */

/* Measured and predicted tokens per second with their band, and likewise bytes; 0: not measured. */
struct line {
    const char *group;
    double tokens, predicted, low, high;
    double bytes, bytes_predicted, bytes_low, bytes_high;
    bool is_oom;
    double fits;
};

/* Errors of throughput: a: +10 %, -20 %; b: +50 %. Of memory: a: -10 %; b: +20 %, +40 %. */
static const struct line lines[] = {
    {"a", 100, 110, 90, 130, 0, 50, 0, 0, false, 0.9},
    {"a", 100, 80, 70, 95, 100, 90, 80, 101, false, 0.8},
    {"b", 200, 300, 150, 450, 100, 120, 110, 130, false, 0.4},
    {"b", 0, 300, 150, 450, 100, 140, 90, 190, false, 0.6},
    {"c", 0, 10, 5, 15, 0, 80, 70, 90, true, 0.3},
    {"c", 0, 10, 5, 15, 0, 80, 70, 90, true, 0.7},
};
enum { LINES = sizeof lines / sizeof lines[0] };

static void fill(struct evidence_row *rows, struct validated *v)
{
    memset(rows, 0, sizeof *rows * LINES);
    memset(v, 0, sizeof *v * LINES);
    for (size_t i = 0; i < LINES; i++) {
        const struct line *l = &lines[i];
        str_copy(rows[i].group, sizeof rows[i].group, l->group);
        rows[i].tokens_per_s = l->tokens;
        rows[i].peak_bytes = l->bytes;
        rows[i].mem_kind = MEM_RESERVED;
        rows[i].is_oom = l->is_oom;
        v[i] = (struct validated){.row = &rows[i], .is_predicted = true};
        v[i].p.tokens_per_s = l->predicted;
        v[i].p.tokens_low = l->low;
        v[i].p.tokens_high = l->high;
        v[i].p.peak_bytes[MEM_RESERVED] = l->bytes_predicted;
        v[i].p.peak_low[MEM_RESERVED] = l->bytes_low;
        v[i].p.peak_high[MEM_RESERVED] = l->bytes_high;
        v[i].p.fit_probability = l->fits;
    }
}

static void assert_close(double x, double want)
{
    if (!(fabs(x - want) < 1e-9))
        fail_msg("%.12g instead of %.12g", x, want);
}

static void groups_have_one_vote_each(void **state)
{
    (void)state;
    struct evidence_row rows[LINES];
    struct validated v[LINES];
    fill(rows, v);
    struct score s = score_rows(v, LINES, MEASURED_THROUGHPUT, false, NULL, NULL);
    assert_int_equal(s.groups, 2);
    assert_int_equal(s.rows, 3);
    assert_close(s.mean, ((0.1 + 0.2) / 2 + 0.5) / 2);
    assert_close(s.median, (0.15 + 0.5) / 2);
    assert_close(s.p90, 0.15 + 0.9 * (0.5 - 0.15));
    assert_close(s.bias, ((0.1 - 0.2) / 2 + 0.5) / 2);
    assert_close(s.coverage, (0.5 + 1) / 2); /* 100 lies in 90..130, not in 70..95 */
    double a = (20.0 / 110 + 12.5 / 80) / 2, b = 150.0 / 300;
    assert_close(s.half_width, (a + b) / 2);
}

static void rows_have_one_vote_each_when_asked(void **state)
{
    (void)state;
    struct evidence_row rows[LINES];
    struct validated v[LINES];
    fill(rows, v);
    struct score s = score_rows(v, LINES, MEASURED_THROUGHPUT, true, NULL, NULL);
    assert_int_equal(s.groups, 3);
    assert_close(s.mean, 0.8 / 3);
    assert_close(s.median, 0.2);
    assert_close(s.coverage, 2.0 / 3);
}

static void memory_is_compared_in_the_terms_of_its_source(void **state)
{
    (void)state;
    struct evidence_row rows[LINES];
    struct validated v[LINES];
    fill(rows, v);
    struct score s = score_rows(v, LINES, MEASURED_MEMORY, false, NULL, NULL);
    assert_int_equal(s.groups, 2);
    assert_int_equal(s.rows, 3);
    assert_close(s.mean, (0.1 + 0.3) / 2);
    assert_close(s.bias, (-0.1 + 0.3) / 2);
    assert_close(s.coverage, (1 + 0.5) / 2);
    /* another meter, another figure */
    rows[1].mem_kind = MEM_ALLOCATED;
    v[1].p.peak_bytes[MEM_ALLOCATED] = 100;
    s = score_rows(v, LINES, MEASURED_MEMORY, false, NULL, NULL);
    assert_close(s.mean, 0.3 / 2);
}

static void filters_choose_rows(void **state)
{
    (void)state;
    struct evidence_row rows[LINES];
    struct validated v[LINES];
    fill(rows, v);
    rows[1].unstated = UNSTATED_NETWORK; /* does not matter to memory */
    rows[3].unstated = UNSTATED_RECOMPUTE;
    struct score stated = score_rows(v, LINES, MEASURED_MEMORY, false, is_memory_stated, NULL);
    struct score open = score_rows(v, LINES, MEASURED_MEMORY, false, is_memory_open, NULL);
    assert_int_equal(stated.rows, 2);
    assert_close(stated.mean, (0.1 + 0.2) / 2);
    assert_int_equal(open.rows, 1);
    assert_close(open.mean, 0.4);
}

static void nothing_scored_is_not_a_number(void **state)
{
    (void)state;
    struct score s = score_rows(NULL, 0, MEASURED_MEMORY, false, NULL, NULL);
    assert_int_equal(s.groups, 0);
    assert_true(isnan(s.mean) && isnan(s.median) && isnan(s.p90) && isnan(s.coverage));
    assert_true(isnan(score_fit(NULL, 0).brier));
}

/* Of four that ran one is said not to fit, of two out of memory one is said to. Brier: squares of
 * 0.1, 0.2, 0.6, 0.4, 0.3 and 0.7. */
static void fits_are_counted_both_ways(void **state)
{
    (void)state;
    struct evidence_row rows[LINES];
    struct validated v[LINES];
    fill(rows, v);
    rows[0].is_inferred = true;
    struct fit_score f = score_fit(v, LINES);
    assert_int_equal(f.rows, 4);
    assert_int_equal(f.false_oom, 1);
    assert_int_equal(f.oom_rows, 2);
    assert_int_equal(f.false_fit, 1);
    assert_int_equal(f.inferred, 1);
    assert_close(f.brier, (0.01 + 0.04 + 0.36 + 0.16 + 0.09 + 0.49) / 6);
    v[2].is_predicted = false;
    assert_int_equal(score_fit(v, LINES).false_oom, 0);
}

/* --- from a table to JSON --- */

static const char table_text[] =
    "id,framework,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,mlp,vocab,tied_embeddings,seq_len,"
    "n_gpus,gpu,gpus_per_node,strategy,tp,pp,cp,micro_batch,grad_accum,global_batch_seqs,precision,"
    "opt_states,act_ckpt,offload,compile,flash_attn,tokens_per_s_per_gpu,peak_mem_gib,mem_kind,"
    "train_type,row_kind,status\n"
    "t-1,torchtitan "
    "FSDP2,llama3-8b,32,4096,32,8,14336,swiglu,128256,no,8192,8,h100-sxm,8,zero3,1,1,"
    "1,1,1,8,bf16,fp32,selective,none,yes,yes,6000,47.65,reserved,full,table,ok\n"
    "t-2,torchtitan "
    "FSDP2,llama3-8b,32,4096,32,8,14336,swiglu,128256,no,8192,8,h100-sxm,8,zero3,1,1,"
    "1,1,1,8,bf16,fp32,,none,yes,yes,6000,47.65,reserved,full,table,ok\n"
    "t-3,torchtitan "
    "FSDP2,llama3-8b,32,4096,32,8,14336,swiglu,128256,no,8192,8,h100-sxm,8,zero3,1,1,"
    "1,1,1,8,bf16,fp32,full,none,yes,yes,6000,,,lora,table,ok\n";

static void rows_come_out_as_json(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct csv table;
    struct evidence ev;
    struct rates *rates = NULL;
    assert_int_equal(csv_parse(&table, table_text, sizeof table_text - 1, &e), RC_OK);
    assert_int_equal(evidence_read(&ev, &table, &e), RC_OK);
    assert_int_equal(ev.n_rows, 2);
    assert_int_equal(rates_builtin(&rates, &e), RC_OK);
    struct validated v[2];
    assert_int_equal(validate_rows(v, &ev, rates, &e), RC_OK);
    struct json *o = validate_to_json(v, &ev, true);
    assert_string_equal(json_as_str(json_get(o, "schema"), ""), "validate/1");
    const struct json *row = json_at(json_get(o, "rows"), 1);
    assert_string_equal(json_as_str(json_get(row, "id"), ""), "t-2");
    assert_int_equal(json_len(json_get(row, "unstated")), 1);
    assert_string_equal(json_as_str(json_at(json_get(row, "unstated"), 0), ""), "recompute");
    const struct json *skipped = json_at(json_get(o, "skipped"), 0);
    assert_string_equal(json_as_str(json_get(skipped, "why"), ""), "not-full-training");
    assert_true(json_as_num(json_get(json_get(o, "memory_stated"), "rows"), 0) == 1);
    assert_true(json_as_num(json_get(json_get(o, "memory_open"), "rows"), 0) == 1);
    /* what is open widens the band: less with full recompute, more without */
    assert_true(v[1].p.peak_low[MEM_RESERVED] < v[0].p.peak_low[MEM_RESERVED]);
    assert_true(v[1].p.peak_high[MEM_RESERVED] > v[0].p.peak_high[MEM_RESERVED]);
    /* an unnamed meter may be any of them */
    assert_true(v[0].p.peak_low[MEM_UNSAID] <= v[0].p.peak_low[MEM_ALLOCATED]);
    assert_true(v[0].p.peak_high[MEM_UNSAID] >= v[0].p.peak_high[MEM_RESERVED]);
    json_free(o);
    rates_free(rates);
    evidence_release(&ev);
    csv_release(&table);
}

int test_validate(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_have_one_vote_each),
        cmocka_unit_test(rows_have_one_vote_each_when_asked),
        cmocka_unit_test(memory_is_compared_in_the_terms_of_its_source),
        cmocka_unit_test(filters_choose_rows),
        cmocka_unit_test(nothing_scored_is_not_a_number),
        cmocka_unit_test(fits_are_counted_both_ways),
        cmocka_unit_test(rows_come_out_as_json),
    };
    return cmocka_run_group_tests_name("planner/validate", tests, NULL, NULL);
}
