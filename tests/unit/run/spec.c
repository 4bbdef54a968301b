#include "run/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

static const char *const text =
    "{\"schema\":\"run-spec/1\",\"id\":\"20261130-083000-abcd\",\"attempt\":2,\"hosts\":["
    "{\"name\":\"a\",\"address\":\"10.0.0.1\",\"node\":4,\"first_rank\":0,\"ranks\":2},"
    "{\"name\":\"b\",\"address\":\"10.0.0.2\",\"node\":1,\"first_rank\":2,\"ranks\":1}],"
    "\"self\":1,\"steps\":100,\"resume_step\":-2,\"data\":{\"sources\":[{\"path\":\"/"
    "d\",\"kind\":\"uint16\"},"
    "{\"path\":\"/e\",\"kind\":\"text\",\"tokenizer\":\"/t.json\",\"weight\":3}]},"
    "\"weights\":\"/"
    "w\",\"checkpoint\":{\"every_steps\":10,\"every_s\":0,\"keep\":3,\"store\":\"shared:/mnt/x\"},"
    "\"deadlines\":{\"rendezvous_s\":9,\"collective_s\":8,\"finish_s\":7,\"grace_s\":6,"
    "\"heartbeat_s\":5,\"lost_s\":15},\"limits\":{\"max_micro_usd\":1,\"max_s\":2,"
    "\"spent_s\":6,"
    "\"micro_usd_per_hour\":3,\"money_since_wall_s\":4,\"spent_micro_usd\":5},\"token\":"
    "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\","
    "\"plan\":{\"x\":1},\"training\":{\"lr\":0.1},\"env\":{\"A\":\"b\"}}";

static enum rc parse(const char *json, struct run_spec *s, struct err *e)
{
    struct json *v;
    assert_int_equal(json_parse(&v, json, strlen(json), e), RC_OK);
    enum rc rc = run_spec_from_json(s, v, e);
    json_free(v);
    return rc;
}

static void reads_every_field(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct run_spec s;
    assert_int_equal(parse(text, &s, &e), RC_OK);
    assert_string_equal(s.id, "20261130-083000-abcd");
    assert_int_equal(s.attempt, 2);
    assert_int_equal(s.host_count, 2);
    assert_string_equal(s.hosts[0].name, "a");
    assert_int_equal(s.hosts[0].node, 4);
    assert_string_equal(s.hosts[1].address, "10.0.0.2");
    assert_int_equal(s.hosts[1].first_rank, 2);
    assert_int_equal(run_spec_ranks(&s), 3);
    assert_int_equal(run_spec_host_of(&s, 1), 0);
    assert_int_equal(run_spec_host_of(&s, 2), 1);
    assert_int_equal(s.self, 1);
    assert_int_equal(s.resume_step, RUN_RESUME_NEWEST);
    assert_int_equal(s.data.n, 2);
    assert_int_equal(s.data.v[0].kind, DATA_UINT16);
    assert_string_equal(s.data.v[1].tokenizer, "/t.json");
    assert_float_equal(s.data.v[1].weight, 3, 0);
    assert_string_equal(s.weights, "/w");
    assert_int_equal(s.checkpoint.store, RUN_STORE_SHARED);
    assert_string_equal(s.checkpoint.shared_path, "/mnt/x");
    assert_float_equal(s.deadlines.lost_s, 15, 0);
    assert_float_equal(s.limits.spent_s, 6, 0);
    assert_int_equal(s.limits.money.micro_usd_per_hour, 3);
    assert_float_equal(s.limits.money.since_wall_s, 4, 0);
    assert_int_equal(s.limits.money.spent_micro_usd, 5);
    assert_string_equal(json_str(s.env, "A", ""), "b");
    run_spec_release(&s);
}

static void writing_and_reading_again_keeps_the_document(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct run_spec a, b;
    assert_int_equal(parse(text, &a, &e), RC_OK);
    struct json *v = run_spec_to_json(&a);
    char *once = json_print(v, false);
    assert_int_equal(run_spec_from_json(&b, v, &e), RC_OK);
    struct json *w = run_spec_to_json(&b);
    char *twice = json_print(w, false);
    assert_string_equal(once, twice);
    assert_non_null(strstr(once, "\"store\":\"shared:/mnt/x\""));
    free(once);
    free(twice);
    json_free(v);
    json_free(w);
    run_spec_release(&a);
    run_spec_release(&b);
}

/* One replacement in the good document each; every one must be refused in one sentence. */
static void refuses_what_does_not_hold_together(void **state)
{
    (void)state;
    static const char *const bad[][2] = {
        {"run-spec/1", "run-spec/9"},
        {"20261130-083000-abcd", "../../../../etc/passwd"},
        {"\"first_rank\":2", "\"first_rank\":1"},
        {"\"node\":1", "\"node\":4"},
        {"\"self\":1", "\"self\":2"},
        {"\"ranks\":1", "\"ranks\":0"},
        {"\"ranks\":1", "\"ranks\":99999999"},
        {"\"resume_step\":-2", "\"resume_step\":-3"},
        {"shared:/mnt/x", "shared:relative"},
        {"shared:/mnt/x", "tape"},
        {"\"keep\":3", "\"keep\":0"},
        {"\"kind\":\"text\"", "\"kind\":\"words\""},
        {"\"weight\":3", "\"weight\":0"},
        {"\"sources\"", "\"source\""},
        {"\"lost_s\":15", "\"lost_s\":-1"},
        {"\"spent_s\":6", "\"spent_s\":-6"},
        {"0123456789abcdef0", "0123456789ABCDEF0"},
        {"\"A\":\"b\"", "\"A=\":\"b\""},
        {"\"A\":\"b\"", "\"A\":1"},
        {"\"plan\":{\"x\":1}", "\"plan\":[]"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char *copy = malloc(strlen(text) + 200);
        const char *at = strstr(text, bad[i][0]);
        assert_non_null(at);
        memcpy(copy, text, (size_t)(at - text));
        copy[at - text] = '\0';
        size_t used = strlen(copy);
        snprintf(copy + used, strlen(text) + 200 - used, "%s%s", bad[i][1], at + strlen(bad[i][0]));
        struct err e = ERR_INIT;
        struct run_spec s;
        assert_int_equal(parse(copy, &s, &e), i == 8 || i == 9 ? RC_USAGE : RC_INVALID);
        assert_int_not_equal(e.msg[0], '\0');
        assert_null(s.hosts);
        free(copy);
    }
}

static void folders_for_states_on_disk_are_kept_and_are_absolute(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct run_spec a, b;
    assert_int_equal(parse(text, &a, &e), RC_OK);
    assert_int_equal(a.disk.count, 0); /* specs of older runs say nothing of it */
    assert_int_equal(run_disk_parse(&a.disk, "/nvme0,/nvme1", &e), RC_OK);
    a.disk.endurance_bytes = 600;
    struct json *v = run_spec_to_json(&a);
    assert_int_equal(run_spec_from_json(&b, v, &e), RC_OK);
    assert_int_equal(b.disk.count, 2);
    assert_string_equal(b.disk.dirs[1], "/nvme1");
    assert_int_equal(b.disk.endurance_bytes, 600);
    json_free(v);
    assert_int_equal(run_disk_parse(&a.disk, "/nvme0,nvme1", &e), RC_USAGE);
    assert_non_null(strstr(e.msg, "'nvme1'"));
    run_spec_release(&a);
    run_spec_release(&b);
}

static void run_ids_have_one_form(void **state)
{
    (void)state;
    char id[RUN_ID_TEXT];
    const unsigned char letters[2] = {25, 27};
    assert_string_equal(run_id_make(id, 1796027400.0, letters), "20261130-083000-aazb");
    assert_string_equal(run_id_make(id, 1796027400.9999, letters), "20261130-083000-zzzb");
    assert_true(run_id_is_valid(id));
    static const char *const bad[] = {"", "20261130-083000-abc", "20261130-083000-abcde",
        "20261130-083000-ab/d", "2026113a-083000-abcd", "20261130_083000-abcd"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(run_id_is_valid(bad[i]));
}

static void run_ids_made_in_one_second_sort_by_time(void **state)
{
    (void)state;
    char first[RUN_ID_TEXT], second[RUN_ID_TEXT];
    const unsigned char letters[][2] = {{25, 25}, {0, 0}};
    run_id_make(first, 1796027400.25, letters[0]);
    run_id_make(second, 1796027400.252, letters[1]);
    assert_true(strcmp(first, second) < 0);
}

static void a_step_is_read_from_its_own_name_only(void **state)
{
    (void)state;
    char name[RUN_STEP_TEXT];
    assert_string_equal(run_step_name(name, 100), "step-00000100");
    assert_string_equal(run_step_name(name, 1234567890), "step-1234567890");
    assert_int_equal(run_step_of("step-00000100"), 100);
    assert_int_equal(run_step_of("step-00000100.tmp"), -1);
    assert_int_equal(run_step_of("step--0000100"), -1);
    assert_int_equal(run_step_of("step-"), -1);
    assert_int_equal(run_step_of("step-99999999999999999999"), -1);
    assert_int_equal(run_step_of("ckpt-00000100"), -1);
}

static void runs_have_folders_of_their_own_in_a_shared_store(void **state)
{
    (void)state;
    struct run_spec s;
    struct err e = ERR_INIT;
    assert_int_equal(parse(text, &s, &e), RC_OK);
    char *dir = run_checkpoint_dir(&s, "/node");
    assert_string_equal(dir, "/mnt/x/berth-20261130-083000-abcd/ckpt");
    free(dir);
    s.checkpoint.store = RUN_STORE_LOCAL;
    dir = run_checkpoint_dir(&s, "/node");
    assert_string_equal(dir, "/node/ckpt");
    free(dir);
    run_spec_release(&s);
}

int test_spec(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_field),
        cmocka_unit_test(writing_and_reading_again_keeps_the_document),
        cmocka_unit_test(refuses_what_does_not_hold_together),
        cmocka_unit_test(folders_for_states_on_disk_are_kept_and_are_absolute),
        cmocka_unit_test(run_ids_have_one_form),
        cmocka_unit_test(run_ids_made_in_one_second_sort_by_time),
        cmocka_unit_test(a_step_is_read_from_its_own_name_only),
        cmocka_unit_test(runs_have_folders_of_their_own_in_a_shared_store),
    };
    return cmocka_run_group_tests_name("run/spec", tests, NULL, NULL);
}
