#include "planner/job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/units.h"

static enum rc read_text(struct job *j, const char *text, struct err *e)
{
    struct json *v = NULL;
    enum rc rc = json_parse(&v, text, strlen(text), e);
    if (!rc)
        rc = job_read_json(j, v, e);
    json_free(v);
    return rc;
}

static void reads_quantities_as_people_write_them(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct job j;
    job_init(&j);
    assert_int_equal(
        read_text(&j,
            "{\"model\": \"llama-3.1-8b\", \"tokens\": \"10B\", \"seq\": 8192,"
            "\"global_batch_tokens\": \"4_194_304\", \"budget_usd\": \"1,500.25\","
            "\"deadline\": \"2d12h\", \"gpus\": [\"h100-sxm\", \"a100\"], \"spot\": \"allow\","
            "\"objective\": \"time\", \"precision\": \"fp32\", \"allow\": [\"bf16\"],"
            "\"training\": {\"lr\": 0.0003}}",
            &e),
        RC_OK);
    assert_int_equal(job_finish(&j, &e), RC_OK);
    assert_int_equal(j.tokens, 10000000000);
    assert_int_equal(j.global_batch_tokens, 4194304);
    assert_int_equal(j.budget_micro_usd, 1500250000);
    assert_true(j.deadline_s > 215999 && j.deadline_s < 216001);
    assert_true(job_allows(j.gpu, "H100-SXM") && job_allows(j.gpu, "a100"));
    assert_false(job_allows(j.gpu, "h100"));
    assert_true(j.allow_fp32 && j.allow_bf16);
    assert_int_equal(job_steps(&j), 2385); /* 10e9 / 4,194,304 = 2384.2, rounded up */
    assert_int_equal(job_step_sequences(&j), 512);
    job_release(&j);
}

static void survives_a_round_trip_through_json(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct job a, b;
    job_init(&a);
    job_init(&b);
    assert_int_equal(
        read_text(&a,
            "{\"model\": \"qwen2.5-0.5b\", \"tokens\": 1000000, \"budget_usd\": 12.34,"
            "\"deadline\": 3600, \"providers\": [\"aws\", \"gcp\"], \"data\": \"local:/x\", "
            "\"data_kind\": \"uint16\","
            "\"data_bytes\": \"2GB\", \"store\": \"local+partner\", \"training\": {\"seed\": 7}}",
            &e),
        RC_OK);
    assert_int_equal(job_finish(&a, &e), RC_OK);
    struct json *v = job_to_json(&a);
    assert_int_equal(job_read_json(&b, v, &e), RC_OK);
    struct json *w = job_to_json(&b);
    char *one = json_print(v, false), *two = json_print(w, false);
    assert_string_equal(one, two);
    assert_int_equal(b.budget_micro_usd, 12340000);
    assert_int_equal(b.data_kind, DATA_UINT16);
    free(one);
    free(two);
    json_free(v);
    json_free(w);
    job_release(&a);
    job_release(&b);
}

static void refuses_bad_jobs_in_one_sentence_and_keeps_the_old(void **state)
{
    (void)state;
    const struct {
        const char *text, *word;
    } bad[] = {
        {"[]", "object"},
        {"{\"tokenz\": 5}", "did you mean 'tokens'"},
        {"{\"tokens\": -5}", "tokens"},
        {"{\"tokens\": 1.5}", "whole"},
        {"{\"tokens\": [1]}", "count"},
        {"{\"tokens\": \"10X\"}", "tokens"},
        {"{\"tokens\": 1e40}", "tokens"},
        {"{\"model\": \"llama-9\"}", "llama-9"},
        {"{\"model\": {\"model_type\": \"llama\"}}", "num_hidden_layers"},
        {"{\"model\": 7}", "family"},
        {"{\"deadline\": \"soon\"}", "deadline"},
        {"{\"deadline\": -1}", "deadline"},
        {"{\"objective\": \"fame\"}", "fame"},
        {"{\"precision\": \"fp7\"}", "fp7"},
        {"{\"engine\": \"horovod\"}", "fsdp2"},
        {"{\"allow\": [\"fp4\"]}", "fp4"},
        {"{\"spot\": true}", "spot"},
        {"{\"providers\": 3}", "providers"},
        {"{\"training\": 3}", "training"},
        {"{\"data_kind\": \"tokens\"}", "uint16"},
        {"{\"budget_usd\": 1e300}", "budget_usd"},
        {"{\"budget_usd\": 0}", "'budget_usd': it must be more than 0; leave it out for no limit"},
        {"{\"deadline\": \"0s\"}", "'deadline': it must be more than 0; leave it out for no limit"},
        {"{\"max_gpus\": 0}", "'max_gpus': it must be more than 0; leave it out for no limit"},
        {"{\"tokens\": 0}", "'tokens': it must be more than 0"},
        {"{\"seq\": 0}", "leave it out for the default"},
        {"{\"checkpoint_every\": 0}", "leave it out for the default"},
        {"{\"upload_bytes_per_second\": 0}", "leave it out for the default"},
        {"{\"providers\": [\"aws\", 7]}", "each of it must be a word"},
        {"{\"regions\": [\"\"]}", "each of it must be a word"},
    };
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        struct err e = ERR_INIT;
        struct job j;
        job_init(&j);
        j.tokens = 77;
        assert_int_not_equal(read_text(&j, bad[i].text, &e), RC_OK);
        if (!strstr(e.msg, bad[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.msg, bad[i].word);
        assert_int_equal(j.tokens, 77);
        job_release(&j);
    }
}

static void precisions_are_those_of_the_engine(void **state)
{
    (void)state;
    static const char berth[] =
        "{\"model\": \"gpt2\", \"tokens\": 1000000, \"precision\": \"fp4\"}";
    static const char fsdp2[] = "{\"model\": \"gpt2\", \"tokens\": 1000000, \"precision\": "
                                "\"fp4\", \"engine\": \"fsdp2\"}";
    struct err e = ERR_INIT;
    struct job j;
    job_init(&j);
    assert_int_equal(read_text(&j, berth, &e), RC_OK);
    assert_int_equal(job_finish(&j, &e), RC_USAGE);
    assert_non_null(strstr(e.msg, "fp4"));
    assert_int_equal(read_text(&j, fsdp2, &e), RC_OK);
    assert_int_equal(job_finish(&j, &e), RC_OK);
    assert_false(j.allow_bf16 || j.allow_fp32);
    struct json *v = job_to_json(&j);
    assert_string_equal(json_str(v, "engine", ""), "fsdp2");
    json_free(v);
    job_release(&j);
}

static void needs_a_model_tokens_and_whole_sequences(void **state)
{
    (void)state;
    const struct {
        const char *text, *word;
    } bad[] = {
        {"{\"tokens\": 5}", "model"},
        {"{\"model\": \"gpt2\"}", "tokens"},
        {"{\"model\": \"gpt2\", \"tokens\": 5, \"seq\": 2048}", "1024"},
        {"{\"model\": \"gpt2\", \"tokens\": 5, \"seq\": 1024, \"global_batch_tokens\": 1500}",
            "1024"},
        {"{\"model\": \"gpt2\", \"tokens\": 9223372036854775807}", "10^18"},
        {"{\"model\": \"gpt2\", \"tokens\": 5, \"training\": {\"lrr\": 1}}", "did you mean 'lr'"},
        {"{\"model\": \"gpt2\", \"tokens\": 5, \"fabrics\": [\"infinband\"]}",
            "unknown fabric 'infinband'"},
        {"{\"model\": \"gpt2\", \"tokens\": 5, \"fabrics\": [\"unknown\"]}", "unknown fabric"},
        {"{\"model\": \"gpt2\", \"tokens\": 5, \"gpus\": [\"h100-smx\"]}", "'h100-sxm'"},
    };
    for (size_t i = 0; i < BASE_COUNT(bad); i++) {
        struct err e = ERR_INIT;
        struct job j;
        job_init(&j);
        assert_int_equal(read_text(&j, bad[i].text, &e), RC_OK);
        assert_int_not_equal(job_finish(&j, &e), RC_OK);
        if (!strstr(e.msg, bad[i].word))
            fail_msg("case %zu: '%s' lacks '%s'", i, e.msg, bad[i].word);
        job_release(&j);
    }
}

static void spells_fabrics_as_offers_do(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct job j;
    job_init(&j);
    assert_int_equal(
        read_text(&j, "{\"model\": \"gpt2\", \"tokens\": 5, \"fabrics\": [\"ib\", \"eth\"]}", &e),
        RC_OK);
    assert_int_equal(job_finish(&j, &e), RC_OK);
    assert_string_equal(j.fabric, "infiniband,ethernet");
    job_release(&j);
}

static void describes_every_field_it_reads(void **state)
{
    (void)state;
    int n = 0;
    for (; job_field_at(n)->name; n++) {
        assert_true(job_field_at(n)->help[0] != '\0');
        assert_true(strlen(job_field_at(n)->name) <= 24);
    }
    assert_true(n >= 20);
}

int test_job(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_quantities_as_people_write_them),
        cmocka_unit_test(survives_a_round_trip_through_json),
        cmocka_unit_test(refuses_bad_jobs_in_one_sentence_and_keeps_the_old),
        cmocka_unit_test(precisions_are_those_of_the_engine),
        cmocka_unit_test(needs_a_model_tokens_and_whole_sequences),
        cmocka_unit_test(spells_fabrics_as_offers_do),
        cmocka_unit_test(describes_every_field_it_reads),
    };
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
