#include "planner/plan_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/units.h"
#include "planner/search.h"

static struct json *document;
static struct search *found;

/* One real plan, made once. */
static int setup(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct rates *rates = NULL;
    struct job j;
    struct offer o;
    struct offers *l = offers_new();
    job_init(&j);
    offer_init(&o);
    offer_put_text(&o, OFFER_PROVIDER, "test", PROVENANCE_REPORTED);
    offer_put_text(&o, OFFER_ID, "box", PROVENANCE_REPORTED);
    o.device = DEVICE_CPU;
    o.gpus_per_node = 2;
    o.vcpus = 8;
    o.ram_bytes = 8LL << 30;
    o.price_usd_micro_per_hour = USD_MICRO;
    offer_settle(&o);
    if (rates_builtin(&rates, &e) || offers_add(l, &o, &e) ||
        model_find(&j.model, "nano-llama", &e))
        return -1;
    j.has_model = true;
    j.tokens = 1000000;
    if (job_finish(&j, &e))
        return -1;
    struct search_input in = {.job = &j, .offers = l, .rates = rates};
    if (search_run(&found, &in, &e) || found->n_plans != 1)
        return -1;
    document = plan_file_make(&found->plans[0], &j, &o, rates, "9.9", NULL);
    rates_free(rates);
    offers_free(l);
    job_release(&j);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    json_free(document);
    search_free(found);
    return 0;
}

/* Does the document, with a figure of it replaced, hold what the program finds? */
static bool agrees(const char *section, const char *part, const char *name, double value)
{
    struct err e = ERR_INIT;
    struct rates *rates = NULL;
    struct plan_file p;
    bool agree = false;
    struct json *v = json_clone(document);
    if (section) {
        const struct json *at = json_get(json_get(v, section), part);
        assert_non_null(json_get(at, name));
        json_add_num((struct json *)(uintptr_t)at, name, value);
    }
    assert_int_equal(rates_builtin(&rates, &e), RC_OK);
    if (plan_file_from_json(&p, v, &e) || plan_file_check_figures(&agree, &p, rates, &e))
        fail_msg("%s", e.msg);
    plan_file_release(&p);
    rates_free(rates);
    json_free(v);
    return agree;
}

static void notices_figures_that_were_edited(void **state)
{
    (void)state;
    assert_true(agrees(NULL, NULL, NULL, 0));
    assert_false(agrees("prediction", "step", "seconds", 0.001));
    assert_false(agrees("prediction", "memory", "peak_bytes", 1000));
    assert_false(agrees("prediction", "cost_usd", "mid", 0.01));
    assert_false(agrees("prediction", "hours", "high", 1));
    assert_false(agrees("constants", "op_floor_s", "value", 1));
}

static void reads_back_what_was_planned(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct plan_file p;
    const struct plan *want = &found->plans[0];
    if (plan_file_from_json(&p, document, &e))
        fail_msg("%s", e.msg);
    assert_string_equal(p.program, "9.9");
    assert_int_equal(p.strategy.kind, want->strategy.kind);
    assert_int_equal(p.strategy.micro_batch, want->strategy.micro_batch);
    assert_int_equal(p.peak_bytes, want->estimate.peak_bytes);
    assert_true(p.external_bytes > 0);
    assert_int_equal(p.external_bytes, want->estimate.external_bytes);
    assert_int_equal(p.schedule_hash.lo, want->estimate.hash.lo);
    assert_int_equal(p.cost_micro_usd, want->bill.total_micro_usd[BILL_MID]);
    assert_int_equal(p.steps, (1000000 - 1) / p.job.global_batch_tokens + 1);
    assert_int_equal(p.is_launchable, !want->hw.is_gpu);
    assert_int_equal(plan_file_check_hash(&p, &e), RC_OK);
    p.schedule_hash.lo ^= 1;
    assert_int_equal(plan_file_check_hash(&p, &e), RC_INVALID);
    plan_file_release(&p);
}

/* The job said nothing: what a launch does is the plan's, in one place. */
static void the_interval_between_checkpoints_is_written_down(void **state)
{
    (void)state;
    const struct bill *b = &found->plans[0].bill;
    const struct json *prediction = json_get(document, "prediction");
    const struct json *checkpoint = json_get(prediction, "checkpoint");
    assert_true(b->interval_s >= 600);
    double recorded = json_num(json_get(document, "job"), "checkpoint_every", 0);
    assert_true(fabs(recorded - b->interval_s) < 1e-6);
    assert_true(fabs(json_num(checkpoint, "interval_seconds", 0) - b->interval_s) < 1e-6);
    double optimal = json_num(checkpoint, "optimal_interval_seconds", 0);
    assert_true(optimal <= b->interval_s && optimal > b->interval_s - 1);
    double between = json_num(json_get(prediction, "stops"), "mean_seconds_between", 0);
    assert_true(fabs(between / b->between_stops_s - 1) < 1e-9);
}

/* Replace the member at a dotted path. */
static struct json *with(const char *path, struct json *value)
{
    struct json *copy = json_clone(document), *at = copy;
    const char *dot;
    for (; (dot = strchr(path, '.')) != NULL; path = dot + 1) {
        char *key = base_strndup(path, (size_t)(dot - path));
        at = (struct json *)(uintptr_t)json_get(at, key);
        free(key);
    }
    json_add(at, path, value);
    return copy;
}

static struct json *number(double x)
{
    struct json *v = json_obj();
    json_add_num(v, "x", x);
    struct json *n = json_clone(json_get(v, "x"));
    json_free(v);
    return n;
}

static struct json *integer(int64_t x)
{
    struct json *v = json_obj();
    json_add_int(v, "x", x);
    struct json *n = json_clone(json_get(v, "x"));
    json_free(v);
    return n;
}

static struct json *text(const char *s)
{
    struct json *v = json_obj();
    json_add_str(v, "x", s);
    struct json *n = json_clone(json_get(v, "x"));
    json_free(v);
    return n;
}

static void refuses_what_does_not_belong_together(void **state)
{
    (void)state;
    struct json *bad[] = {
        with("schema", text("plan/9")),
        with("nodes", integer(2)),
        with("nodes", integer(0)),
        with("steps", integer(1)),
        with("job.checkpoint_every", NULL),
        with("steps", number(1.5)),
        with("schedule.hash", text("xyz")),
        with("schedule.strategy.micro_batch", integer(1 << 19)),
        with("schedule.strategy.grad_accum", integer(16777216)),
        with("schedule.strategy.ranks", integer(4)),
        with("schedule.strategy.kind", text("zero9")),
        with("schedule.strategy.seq", integer(1)),
        with("schedule.strategy.optimizer", text("sgd")), /* the job says nothing of it */
        with("schedule.strategy.optimizer", text("adagrad")),
        with("job.model.heads", integer(0)),
        with("job.model.layers", integer(1LL << 60)),
        with("job.tokens", text("many")),
        with("offer.gpus_per_node", integer(3)),
        with("offer", json_arr()),
        with("prediction.step.seconds", number(0)),
        with("prediction.step.seconds", text("fast")),
        with("prediction.memory", NULL),
        with("constants", NULL),
    };
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        struct err e = ERR_INIT;
        struct plan_file p;
        if (plan_file_from_json(&p, bad[i], &e) == RC_OK)
            fail_msg("case %zu was accepted", i);
        assert_true(e.msg[0] != '\0');
        json_free(bad[i]);
    }
}

static void refuses_every_member_missing(void **state)
{
    (void)state;
    static const char *const needed[] = {
        "schema", "job", "offer", "nodes", "steps", "schedule", "prediction", "constants"};
    for (size_t i = 0; i < BASE_COUNT(needed); i++) {
        struct err e = ERR_INIT;
        struct plan_file p;
        struct json *v = with(needed[i], NULL);
        assert_int_not_equal(plan_file_from_json(&p, v, &e), RC_OK);
        json_free(v);
    }
}

static void refuses_every_truncation_of_the_text(void **state)
{
    (void)state;
    char *whole = json_print(document, true);
    size_t n = strlen(whole);
    for (size_t cut = 0; cut + 2 < n; cut += 97) {
        struct err e = ERR_INIT;
        struct json *v = NULL;
        assert_int_not_equal(json_parse(&v, whole, cut, &e), RC_OK);
    }
    free(whole);
}

static void names_the_source_of_every_constant(void **state)
{
    (void)state;
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    int n = 0;
    while (json_next(json_get(document, "constants"), &cursor, &key, &v)) {
        assert_true(json_str(v, "source", "")[0] != '\0');
        assert_true(json_str(v, "date", "")[0] != '\0');
        n++;
    }
    assert_true(n > 15);
}

int test_plan_file(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_back_what_was_planned),
        cmocka_unit_test(the_interval_between_checkpoints_is_written_down),
        cmocka_unit_test(notices_figures_that_were_edited),
        cmocka_unit_test(refuses_what_does_not_belong_together),
        cmocka_unit_test(refuses_every_member_missing),
        cmocka_unit_test(refuses_every_truncation_of_the_text),
        cmocka_unit_test(names_the_source_of_every_constant),
    };
    return cmocka_run_group_tests_name("plan_file", tests, setup, teardown);
}
