/* The training object of a job: defaults, what is refused, and the learning rate. */
#include "planner/training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"

static enum rc read_text(struct training *t, const char *text, struct err *e)
{
    struct json *v = NULL;
    assert_int_equal(json_parse(&v, text, strlen(text), e), RC_OK);
    enum rc rc = training_from_json(t, v, 100, e);
    json_free(v);
    return rc;
}

/* Warm-up, then cosine to a tenth: values by hand. */
static void the_learning_rate_follows_its_schedule(void **state)
{
    (void)state;
    struct training t;
    struct err e = ERR_INIT;
    assert_int_equal(training_from_json(&t, NULL, 100, &e), RC_OK);
    assert_int_equal(t.warmup_steps, 2);
    assert_true(training_lr(&t, 1, 100) > 1.4999e-4 && training_lr(&t, 1, 100) < 1.5001e-4);
    assert_true(training_lr(&t, 2, 100) > 2.9999e-4);
    double half = training_lr(&t, 51, 100); /* (51 - 2) / 98 = 1/2: mean of 3e-4 and 3e-5 */
    assert_true(half > 1.6499e-4 && half < 1.6501e-4);
    assert_true(training_lr(&t, 100, 100) > 2.999e-5 && training_lr(&t, 100, 100) < 3.001e-5);
}

/* Flat at lr, then in a line to min_lr over the last decay_steps: values by hand. */
static void warm_up_stable_decay_falls_at_the_end(void **state)
{
    (void)state;
    struct training t;
    struct err e = ERR_INIT;
    assert_int_equal(
        read_text(&t, "{\"schedule\": \"wsd\", \"lr\": 1, \"min_lr\": 0.2}", &e), RC_OK);
    assert_int_equal(t.decay_steps, 10);
    const struct {
        int64_t step;
        double lr;
    } want[] = {{1, 0.5}, {2, 1}, {50, 1}, {90, 1}, {91, 0.92}, {95, 0.6}, {100, 0.2}};
    for (size_t i = 0; i < BASE_COUNT(want); i++) {
        double off = training_lr(&t, want[i].step, 100) - want[i].lr;
        assert_true(off < 1e-12 && off > -1e-12);
    }
    t.decay_steps = 1000; /* longer than the run: from the warm-up on */
    assert_true(training_lr(&t, 51, 100) < 0.6001 && training_lr(&t, 51, 100) > 0.5999);
    t.decay_steps = 0;
    assert_true(training_lr(&t, 100, 100) >= 1);
}

/* What must be said before the field may be. */
static const char *before(const struct training_field *f)
{
    return strcmp(f->name, "momentum") == 0 ? "\"optimizer\": \"sgd\", " : "";
}

static void every_field_is_read_under_the_name_it_is_described_by(void **state)
{
    (void)state;
    struct training t;
    struct err e = ERR_INIT;
    int n = 0;
    for (; training_field_at(n)->name; n++) {
        const struct training_field *f = training_field_at(n);
        const char * or = strstr(f->form, " or ");
        bool is_word = or != NULL;
        char word[32];
        snprintf(word, sizeof word, "\"%s\"", is_word ? or +4 : ""); /* the last one */
        char text[128];
        snprintf(text, sizeof text, "{%s\"%s\": %s}", before(f), f->name,
            is_word                                ? word
            : strcmp(f->form, "whole number") == 0 ? "7"
                                                   : "0.00001");
        if (read_text(&t, text, &e))
            fail_msg("%s: %s", text, e.msg);
        assert_true(f->help[0] && f->fallback[0]);
    }
    assert_int_equal(n, 17);
}

static bool is_same(const struct training *a, const struct training *b)
{
    const double x[] = {a->lr - b->lr, a->min_lr - b->min_lr, a->beta1 - b->beta1,
        a->beta2 - b->beta2, a->eps - b->eps, a->momentum - b->momentum,
        a->weight_decay - b->weight_decay, a->clip_norm - b->clip_norm,
        a->spike_sigma - b->spike_sigma};
    for (size_t i = 0; i < BASE_COUNT(x); i++)
        if (x[i] < 0 || x[i] > 0)
            return false;
    return a->optimizer == b->optimizer && a->warmup_steps == b->warmup_steps &&
           a->decay_steps == b->decay_steps && a->schedule == b->schedule && a->seed == b->seed &&
           a->spike == b->spike && a->max_skipped == b->max_skipped &&
           a->divergence == b->divergence;
}

/* The text of a default is the default: giving it changes nothing. */
static void the_defaults_in_the_text_are_those_that_hold(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct training all, sgd, one;
    assert_int_equal(training_from_json(&all, NULL, 100, &e), RC_OK);
    assert_int_equal(read_text(&sgd, "{\"optimizer\": \"sgd\"}", &e), RC_OK);
    assert_true(all.weight_decay > 0.0999 && !(sgd.weight_decay > 0));
    for (int i = 0; training_field_at(i)->name; i++) {
        const struct training_field *f = training_field_at(i);
        char text[128];
        if (strchr(f->fallback, '/'))
            continue;
        snprintf(text, sizeof text,
            strstr(f->form, " or ") ? "{%s\"%s\": \"%s\"}" : "{%s\"%s\": %s}", before(f), f->name,
            f->fallback);
        assert_int_equal(read_text(&one, text, &e), RC_OK);
        assert_true(is_same(&one, *before(f) ? &sgd : &all));
    }
    assert_int_equal(all.warmup_steps, 100 / 50);
    assert_true(all.min_lr > 2.9999e-5 && all.min_lr < 3.0001e-5);
}

static void refuses_what_it_does_not_know_and_names_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"{\"lrr\": 1}", "did you mean 'lr'?"},
        {"{\"learning_rate\": 1}", "did you mean 'lr'?"},
        {"{\"momentum\": 0.5}", "'momentum' is of optimizer sgd, and 'optimizer' is adamw"},
        {"{\"optimizer\": \"sgd\", \"beta2\": 0.9}", "'beta2' is of optimizer adamw"},
        {"{\"optimizer\": \"adam\"}", "'optimizer' must be adamw or sgd"},
        {"{\"warmup\": 1}", "did you mean 'warmup_steps'?"},
        {"{\"weight_dekay\": 1}", "did you mean 'weight_decay'?"},
        {"{\"gradient_accumulation\": 1}", "berth help job"},
        {"{\"lr\": -1}", "from 0 to 10"},
        {"{\"lr\": \"fast\"}", "from 0 to 10"},
        {"{\"beta2\": 1}", "beta2"},
        {"{\"eps\": 0}", "eps"},
        {"{\"schedule\": \"step\"}", "cosine, linear, wsd or constant"},
        {"{\"seed\": 1.5}", "whole number"},
        {"{\"max_skipped\": 0}", "1 or more"},
        {"{\"spike\": \"stop\"}", "warn or skip"},
        {"{\"divergence\": 1}", "stop or rollback"},
        {"{\"spike_threshold\": 6}", "did you mean 'spike_sigma'?"},
        {"{\"lr\": 1e-5, \"min_lr\": 1e-4}", "more than lr"},
    };
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        struct err e = ERR_INIT;
        struct training t;
        assert_int_equal(read_text(&t, bad[i].text, &e), RC_INVALID);
        if (!strstr(e.msg, bad[i].word))
            fail_msg("'%s' lacks '%s'", e.msg, bad[i].word);
    }
}

int test_training(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_learning_rate_follows_its_schedule),
        cmocka_unit_test(warm_up_stable_decay_falls_at_the_end),
        cmocka_unit_test(every_field_is_read_under_the_name_it_is_described_by),
        cmocka_unit_test(the_defaults_in_the_text_are_those_that_hold),
        cmocka_unit_test(refuses_what_it_does_not_know_and_names_the_nearest),
    };
    return cmocka_run_group_tests_name("planner/training", tests, NULL, NULL);
}
