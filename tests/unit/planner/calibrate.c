/* A fit finds back the machine that made up the runs; the built-in one meets the published runs. */
#include "planner/calibrate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "planner/predict.h"
#include "planner/validate.h"

static struct rates *judged;

static int set_up(void **state)
{
    (void)state;
    return judged ? 0 : rates_judged(&judged, NULL);
}

/* --- made-up runs --- */

static const char header[] =
    "id,framework,model,n_layers,d_model,n_heads,n_kv_heads,d_ff,mlp,vocab,tied_embeddings,seq_len,"
    "n_gpus,gpu,gpus_per_node,inter_gbps_per_gpu,strategy,micro_batch,grad_accum,precision,"
    "act_ckpt,flash_attn,tokens_per_s_per_gpu,train_type,row_kind,status\n";

/* Three sizes, three sequences, one and eight nodes, of one stack on two GPUs. */
static void read_made_up(struct evidence *out)
{
    static const int layers[] = {16, 24, 32}, width[] = {1024, 2048, 4096};
    static const char *const gpus[] = {"a100-80-sxm", "h100-sxm"};
    struct str text = STR_INIT;
    struct csv table;
    struct err e = ERR_INIT;
    str_add(&text, header);
    for (int i = 0; i < 36; i++) {
        int m = i % 3, seq = 1024 << i / 3 % 3;
        str_addf(&text,
            "made-%d,torchtitan,m%d,%d,%d,%d,%d,%d,swiglu,32000,no,%d,%d,%s,8,100,zero3,%d,1,bf16,"
            "none,yes,1,full,table,ok\n",
            i, m, layers[m], width[m], width[m] / 128, width[m] / 128, width[m] * 3, seq,
            i / 9 % 2 ? 64 : 8, gpus[i / 18], 8192 / seq);
    }
    assert_int_equal(csv_parse(&table, str_text(&text), text.len, &e), RC_OK);
    assert_int_equal(evidence_read(out, &table, &e), RC_OK);
    assert_int_equal(out->n_rows, 36);
    csv_release(&table);
    str_release(&text);
}

/* The stack is slower at products, faster at attention, and wastes memory bandwidth; A100s are
 * faster than judged. */
static struct rates *true_rates(void)
{
    static const char text[] =
        "{\"schema\": \"calibration/1\", \"entries\": ["
        "{\"device\": \"gpu\", \"chip\": \"a100-80-sxm\", \"stack\": \"*\", \"source\": \"made "
        "up\","
        " \"date\": \"2026-01-01\", \"rows\": 1, \"values\": {\"matmul_of_measured\": 0.85}},"
        "{\"device\": \"gpu\", \"chip\": \"*\", \"stack\": \"fsdp2-torchtitan\", \"source\": "
        "\"made "
        "up\", \"date\": \"2026-01-01\", \"rows\": 1, \"values\": {\"stack_matmul\": 0.85,"
        " \"stack_attention\": 1.3, \"memory_efficiency\": 0.5}}]}";
    struct json *doc = NULL;
    struct rates *out = NULL;
    assert_int_equal(json_parse(&doc, text, sizeof text - 1, NULL), RC_OK);
    assert_int_equal(rates_with(&out, judged, doc, NULL), RC_OK);
    json_free(doc);
    return out;
}

static double predicted(const struct evidence_row *row, const struct rates *rates)
{
    struct case_of_run *c = NULL;
    struct machine m;
    struct prediction p;
    struct err e = ERR_INIT;
    assert_int_equal(case_make(&c, row, &e), RC_OK);
    assert_int_equal(case_machine(&m, c, rates, &e), RC_OK);
    case_predict(&p, c, &m);
    case_free(c);
    return p.tokens_per_s;
}

static void measure(struct evidence *ev, const struct rates *truth)
{
    for (size_t i = 0; i < ev->n_rows; i++)
        ev->rows[i].tokens_per_s = predicted(&ev->rows[i], truth);
}

static double worst_error(const struct evidence *ev, const struct rates *rates, size_t but)
{
    double worst = 0;
    for (size_t i = 0; i < ev->n_rows; i++)
        if (i != but)
            worst =
                fmax(worst, fabs(predicted(&ev->rows[i], rates) / ev->rows[i].tokens_per_s - 1));
    return worst;
}

static struct calibrate_input input(const struct evidence *ev)
{
    return (struct calibrate_input){
        .evidence = ev, .base = judged, .source = "made up", .date = "2026-01-01"};
}

/* Every entry has the sizes of the made-up runs behind it. */
static void check_ranges(const struct rates *rates)
{
    size_t n = 0;
    for (size_t i = 0; i < rates->n; i++) {
        const struct ranges *r = &rates->entries[i].ranges;
        if (!ranges_are_known(r))
            continue;
        const struct sizes low = {{r->low.of[0], 1024, 1024, 8192, 8, 1}};
        const struct sizes high = {{r->high.of[0], 4096, 4096, 8192, 64, 8}};
        assert_memory_equal(&r->low, &low, sizeof low);
        assert_memory_equal(&r->high, &high, sizeof high);
        n++;
    }
    assert_int_equal(n, 6); /* all, two chips, a stack, two pairs */
}

static void a_fit_finds_the_machine_behind_the_runs(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct evidence ev;
    struct rates *truth = true_rates();
    struct calibrate_result fitted;
    read_made_up(&ev);
    measure(&ev, truth);
    assert_true(worst_error(&ev, judged, SIZE_MAX) > 0.1);
    struct calibrate_input in = input(&ev);
    assert_int_equal(calibrate_fit(&fitted, &in, &e), RC_OK);
    assert_int_equal(fitted.rows, 36);
    check_ranges(fitted.rates);
    assert_true(worst_error(&ev, fitted.rates, SIZE_MAX) < 0.03);
    calibrate_release(&fitted);
    rates_free(truth);
    evidence_release(&ev);
}

static void a_wild_run_does_not_bend_the_others(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct evidence ev;
    struct rates *truth = true_rates();
    struct calibrate_result fitted;
    read_made_up(&ev);
    measure(&ev, truth);
    ev.rows[4].tokens_per_s *= 20;
    struct calibrate_input in = input(&ev);
    assert_int_equal(calibrate_fit(&fitted, &in, &e), RC_OK);
    assert_true(worst_error(&ev, fitted.rates, 4) < 0.08);
    calibrate_release(&fitted);
    rates_free(truth);
    evidence_release(&ev);
}

/* What is left out of a fit is predicted by what is in it. */
static void only_the_rows_asked_for_are_used_and_twice_gives_the_same(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct evidence ev;
    struct rates *truth = true_rates();
    struct calibrate_result a, b;
    bool is_used[36];
    read_made_up(&ev);
    measure(&ev, truth);
    for (size_t i = 0; i < ev.n_rows; i++) {
        is_used[i] = i % 4 != 0;
        ev.rows[i].tokens_per_s *= is_used[i] ? 1 : 5;
    }
    struct calibrate_input in = input(&ev);
    in.is_used = is_used;
    assert_int_equal(calibrate_fit(&a, &in, &e), RC_OK);
    assert_int_equal(calibrate_fit(&b, &in, &e), RC_OK);
    assert_int_equal(a.rows, 27);
    char *one = json_print(a.document, true), *two = json_print(b.document, true);
    assert_string_equal(one, two);
    for (size_t i = 0; i < ev.n_rows; i += 4)
        assert_true(fabs(5 * predicted(&ev.rows[i], a.rates) / ev.rows[i].tokens_per_s - 1) < 0.05);
    free(one);
    free(two);
    calibrate_release(&a);
    calibrate_release(&b);
    rates_free(truth);
    evidence_release(&ev);
}

static void nothing_measured_is_an_error(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct evidence ev;
    struct calibrate_result fitted;
    read_made_up(&ev);
    for (size_t i = 0; i < ev.n_rows; i++)
        ev.rows[i].tokens_per_s = 0;
    struct calibrate_input in = input(&ev);
    assert_int_equal(calibrate_fit(&fitted, &in, &e), RC_INVALID);
    assert_null(fitted.rates);
    evidence_release(&ev);
}

static const struct json *entry_of(const struct json *doc, const char *chip, const char *stack)
{
    const struct json *list = json_get(doc, "entries");
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *en = json_at(list, i);
        if (strcmp(json_str(en, "chip", ""), chip) == 0 &&
            strcmp(json_str(en, "stack", ""), stack) == 0)
            return json_get(en, "values");
    }
    return NULL;
}

/* One run of a pair says how fast its products are, and nothing else. */
static void a_single_run_turns_products_alone(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct evidence ev;
    struct calibrate_result fitted;
    bool is_used[36] = {false};
    read_made_up(&ev);
    measure(&ev, judged);
    for (size_t i = 0; i < 19; i++)
        is_used[i] = true;
    ev.rows[18].tokens_per_s *= 0.7; /* the only one on H100 */
    struct calibrate_input in = input(&ev);
    in.is_used = is_used;
    assert_int_equal(calibrate_fit(&fitted, &in, &e), RC_OK);
    const struct json *pair = entry_of(fitted.document, "h100-sxm", "fsdp2-torchtitan");
    assert_non_null(pair);
    assert_null(json_get(pair, "stack_attention"));
    assert_true(json_num(pair, "stack_matmul", 0) < 0.95);
    double left = predicted(&ev.rows[18], fitted.rates) / ev.rows[18].tokens_per_s - 1;
    assert_true(left > 0.001 && left < 0.2);
    calibrate_release(&fitted);
    evidence_release(&ev);
}

/* Runs that agree with the judged constants turn none of them. */
static void constants_that_runs_do_not_move_are_not_written(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct evidence ev;
    struct calibrate_result agreeing, others;
    struct rates *truth = true_rates();
    read_made_up(&ev);
    struct calibrate_input in = input(&ev);
    measure(&ev, judged);
    assert_int_equal(calibrate_fit(&agreeing, &in, &e), RC_OK);
    measure(&ev, truth);
    assert_int_equal(calibrate_fit(&others, &in, &e), RC_OK);
    assert_true(agreeing.constants < others.constants);
    const struct json *stack = entry_of(agreeing.document, "*", "fsdp2-torchtitan");
    assert_null(json_get(stack, "memory_efficiency"));
    assert_non_null(json_get(stack, "stack_matmul"));
    assert_non_null(
        json_get(entry_of(others.document, "*", "fsdp2-torchtitan"), "memory_efficiency"));
    calibrate_release(&agreeing);
    calibrate_release(&others);
    rates_free(truth);
    evidence_release(&ev);
}

/* Software that is not known by name has nothing in common: it has no constants. */
static void nameless_software_is_not_a_stack(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct evidence ev;
    struct calibrate_result fitted;
    read_made_up(&ev);
    measure(&ev, judged);
    for (size_t i = 0; i < ev.n_rows; i++)
        str_copy(ev.rows[i].stack, sizeof ev.rows[i].stack, EVIDENCE_NO_STACK);
    struct calibrate_input in = input(&ev);
    assert_int_equal(calibrate_fit(&fitted, &in, &e), RC_OK);
    assert_null(entry_of(fitted.document, "*", EVIDENCE_NO_STACK));
    assert_null(entry_of(fitted.document, "h100-sxm", EVIDENCE_NO_STACK));
    calibrate_release(&fitted);
    evidence_release(&ev);
}

/* --- published runs --- */

static bool is_dense_and_calibrated(const struct validated *v, void *arg)
{
    (void)arg;
    return v->row->model.expert_params == 0 && strategy_is_data_parallel(&v->row->strategy) &&
           v->p.basis == BASIS_CALIBRATED;
}

static bool is_split(const struct validated *v, void *arg)
{
    (void)arg;
    return v->row->model.expert_params > 0 || !strategy_is_data_parallel(&v->row->strategy);
}

/* In sample. What is reached today with some room: a change of the model that loses it, or a table
 * and a fit that no longer belong together, must be seen. */
static void built_in_constants_meet_the_published_runs(void **state)
{
    (void)state;
    struct str text = STR_INIT;
    struct csv table;
    struct evidence ev;
    struct err e = ERR_INIT;
    struct rates *rates = NULL;
    assert_int_equal(file_read(&text, "planner/facts/measured.csv", STR_DEFAULT_MAX, &e), RC_OK);
    assert_int_equal(csv_parse(&table, str_text(&text), text.len, &e), RC_OK);
    assert_int_equal(evidence_read(&ev, &table, &e), RC_OK);
    assert_int_equal(rates_builtin(&rates, &e), RC_OK);
    struct validated *v = base_calloc(ev.n_rows, sizeof *v);
    assert_int_equal(validate_rows(v, &ev, rates, &e), RC_OK);
    struct score dense =
        score_rows(v, ev.n_rows, MEASURED_THROUGHPUT, false, is_dense_and_calibrated, NULL);
    struct score split = score_rows(v, ev.n_rows, MEASURED_THROUGHPUT, false, is_split, NULL);
    struct fit_score fits = score_fit(v, ev.n_rows);
    assert_true(dense.groups >= 60 && dense.mean < 0.06 && dense.p90 < 0.13);
    assert_true(dense.coverage > 0.83 && dense.half_width < 0.14);
    assert_true(split.groups >= 100 && split.mean < 0.11 && split.coverage > 0.83);
    assert_true((double)fits.false_oom < 0.01 * (double)fits.rows);
    assert_true(fits.oom_rows >= 9 && fits.false_fit <= 3);
    assert_true((double)(ev.n_full_and_ok - ev.n_rows) < 0.10 * (double)ev.n_full_and_ok);
    free(v);
    rates_free(rates);
    evidence_release(&ev);
    csv_release(&table);
    str_release(&text);
}

int test_calibrate(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_fit_finds_the_machine_behind_the_runs, set_up),
        cmocka_unit_test_setup(a_wild_run_does_not_bend_the_others, set_up),
        cmocka_unit_test_setup(only_the_rows_asked_for_are_used_and_twice_gives_the_same, set_up),
        cmocka_unit_test_setup(a_single_run_turns_products_alone, set_up),
        cmocka_unit_test_setup(constants_that_runs_do_not_move_are_not_written, set_up),
        cmocka_unit_test_setup(nameless_software_is_not_a_stack, set_up),
        cmocka_unit_test_setup(nothing_measured_is_an_error, set_up),
        cmocka_unit_test_setup(built_in_constants_meet_the_published_runs, set_up),
    };
    int bad = cmocka_run_group_tests_name("planner/calibrate", tests, NULL, NULL);
    rates_free(judged);
    judged = NULL;
    return bad;
}
