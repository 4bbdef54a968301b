/* The coordinator's decisions over three hosts with one rank each, driven by hand. */
#include "engine/agent_coordinator.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/str.h"
#include "run/spec.h"

enum { HOSTS = 3 };

struct fixture {
    struct run_spec spec;
    struct coord *c;
    struct str sent[HOSTS]; /* types of the messages to each host, "peers stop end " */
    struct str log;         /* names of the events */
    char peers[256];        /* last table */
    char last_message[256]; /* of an event that has one */
};

static void take_message(void *ctx, size_t host, const struct json *message)
{
    struct fixture *f = ctx;
    str_addf(&f->sent[host], "%s ", json_str(message, "type", "?"));
    if (json_get(message, "peers")) {
        char *text = json_print(json_get(message, "peers"), false);
        str_copy(f->peers, sizeof(f->peers), text);
        free(text);
    }
}

static void take_log(void *ctx, const struct json *event)
{
    struct fixture *f = ctx;
    str_addf(&f->log, "%s ", json_str(event, "event", "?"));
    if (json_get(event, "message"))
        str_copy(f->last_message, sizeof(f->last_message), json_str(event, "message", ""));
}

static const struct coord_ops ops = {take_message, take_log};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    run_spec_init(&f->spec);
    run_spec_add_host(&f->spec, "a", "10.0.0.1", 0, 1);
    run_spec_add_host(&f->spec, "b", "::2", 1, 1);
    run_spec_add_host(&f->spec, "c", "10.0.0.3", 2, 1);
    f->spec.steps = 100;
    f->c = coord_new(&f->spec, &ops, f, 1000, 1.8e9);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    coord_free(f->c);
    run_spec_release(&f->spec);
    for (int i = 0; i < HOSTS; i++)
        str_release(&f->sent[i]);
    str_release(&f->log);
    free(f);
    return 0;
}

static void event(struct fixture *f, size_t host, double now_s, const char *text)
{
    struct json *v;
    struct err e = ERR_INIT;
    assert_int_equal(json_parse(&v, text, strlen(text), &e), RC_OK);
    coord_event(f->c, host, v, now_s);
    json_free(v);
}

static void rank_event(struct fixture *f, int rank, double now_s, const char *members)
{
    char text[512];
    snprintf(text, sizeof(text), "{\"rank\":%d,%s}", rank, members);
    event(f, (size_t)rank, now_s, text);
}

/* All joined and listening. */
static void get_going(struct fixture *f, double now_s)
{
    char port[64];
    for (int i = 0; i < HOSTS; i++) {
        coord_joined(f->c, (size_t)i, now_s);
        snprintf(port, sizeof(port), "\"event\":\"listening\",\"port\":%d", 4000 + i);
        rank_event(f, i, now_s, port);
    }
}

static void all_empty(struct fixture *f, double now_s)
{
    for (size_t i = 0; i < HOSTS; i++)
        event(f, i, now_s, "{\"event\":\"empty\"}");
    coord_tick(f->c, now_s);
}

static const char *status_text(
    struct fixture *f, const char *object, const char *key, char out[600])
{
    struct json *v = coord_status(f->c, 2000);
    const struct json *from = *object ? json_get(v, object) : v;
    str_copy(out, 600, json_str(from, key, "null"));
    json_free(v);
    return out;
}

static void publishes_the_table_once_all_ranks_listen(void **state)
{
    struct fixture *f = *state;
    coord_joined(f->c, 0, 1000);
    coord_joined(f->c, 1, 1000);
    rank_event(f, 0, 1000, "\"event\":\"listening\",\"port\":4000");
    rank_event(f, 1, 1000, "\"event\":\"listening\",\"port\":4001");
    assert_string_equal(str_text(&f->sent[0]), "");
    coord_joined(f->c, 2, 1001);
    rank_event(f, 2, 1001, "\"event\":\"listening\",\"port\":4002");
    assert_string_equal(f->peers, "[\"10.0.0.1:4000\",\"[::2]:4001\",\"10.0.0.3:4002\"]");
    for (int i = 0; i < HOSTS; i++)
        assert_string_equal(str_text(&f->sent[i]), "peers ");
}

static void the_host_that_does_not_join_is_named(void **state)
{
    struct fixture *f = *state;
    char text[600];
    coord_joined(f->c, 0, 1000);
    coord_joined(f->c, 2, 1000);
    coord_heard(f->c, 0, 1119);
    coord_heard(f->c, 2, 1119);
    coord_tick(f->c, 1119);
    assert_int_equal(coord_state(f->c), RUN_RUNNING);
    coord_tick(f->c, 1121); /* rendezvous_s is 120 */
    assert_string_equal(status_text(f, "failure", "host", text), "b");
    assert_non_null(strstr(status_text(f, "failure", "message", text), "firewall"));
    assert_string_equal(str_text(&f->sent[0]), "abort ");
}

static void ends_as_finished_when_all_finished_and_are_gone(void **state)
{
    struct fixture *f = *state;
    get_going(f, 1000);
    for (int i = 0; i < HOSTS; i++)
        rank_event(f, i, 1010, "\"event\":\"finished\",\"step\":100");
    coord_tick(f->c, 1010);
    assert_false(coord_is_over(f->c));
    for (int i = 0; i < HOSTS; i++)
        rank_event(f, i, 1011, "\"event\":\"exited\",\"exit_code\":0");
    all_empty(f, 1011);
    assert_true(coord_is_over(f->c));
    assert_int_equal(coord_state(f->c), RUN_FINISHED);
    assert_string_equal(str_text(&f->sent[2]), "peers end ");
}

static void a_consequence_gives_way_to_the_cause_that_comes_later(void **state)
{
    struct fixture *f = *state;
    char text[600];
    get_going(f, 1000);
    rank_event(f, 0, 1010,
        "\"event\":\"failed\",\"code\":\"reset\",\"message\":\"peer "
        "reset\",\"is_consequence\":true");
    assert_string_equal(str_text(&f->sent[1]), "peers abort ");
    rank_event(f, 0, 1010.1, "\"event\":\"exited\",\"exit_code\":1");
    rank_event(f, 2, 1010.2, "\"event\":\"exited\",\"signal\":9,\"last_line\":\"bye\"");
    rank_event(f, 1, 1012, "\"event\":\"exited\",\"signal\":15"); /* ended by us */
    all_empty(f, 1012);
    assert_true(coord_is_over(f->c));
    assert_int_equal(coord_state(f->c), RUN_FAILED);
    assert_string_equal(status_text(f, "failure", "host", text), "c");
    assert_string_equal(status_text(f, "failure", "message", text),
        "rank 2 on host 'c' was killed by signal 9; its last line: bye");
}

static void the_first_of_two_causes_stays(void **state)
{
    struct fixture *f = *state;
    char text[600];
    get_going(f, 1000);
    rank_event(f, 1, 1010, "\"event\":\"failed\",\"code\":\"data\",\"message\":\"first\"");
    rank_event(f, 2, 1010.1, "\"event\":\"failed\",\"code\":\"data\",\"message\":\"second\"");
    all_empty(f, 1012);
    assert_string_equal(status_text(f, "failure", "message", text), "first");
}

static void a_silent_host_is_lost_after_lost_s_and_a_closed_one_sooner(void **state)
{
    struct fixture *f = *state;
    char text[600];
    get_going(f, 1000);
    coord_heard(f->c, 0, 1014);
    coord_heard(f->c, 1, 1014);
    coord_tick(f->c, 1014.9);
    assert_string_equal(status_text(f, "failure", "host", text), "null");
    coord_tick(f->c, 1015.1); /* c: nothing for more than 15 s */
    assert_string_equal(status_text(f, "failure", "host", text), "c");
    assert_string_equal(status_text(f, "failure", "code", text), "host-lost");
}

static void a_host_that_comes_back_in_time_goes_on(void **state)
{
    struct fixture *f = *state;
    get_going(f, 1000);
    coord_closed(f->c, 1, 1001);
    coord_tick(f->c, 1004);
    coord_joined(f->c, 1, 1004.5);
    assert_string_equal(str_text(&f->sent[1]), "peers peers ");
    for (size_t i = 0; i < HOSTS; i++)
        coord_heard(f->c, i, 1010);
    coord_tick(f->c, 1010);
    assert_string_equal(str_text(&f->sent[0]), "peers ");
    coord_closed(f->c, 1, 1011);
    coord_tick(f->c, 1016.5); /* a closed connection is given five seconds */
    assert_string_equal(str_text(&f->sent[0]), "peers abort ");
}

static void stop_lets_ranks_save_and_ends_as_cancelled(void **state)
{
    struct fixture *f = *state;
    char text[600];
    get_going(f, 1000);
    coord_stop(f->c, 30, "it was stopped", 1001);
    assert_string_equal(str_text(&f->sent[1]), "peers stop ");
    rank_event(f, 0, 1003, "\"event\":\"checkpoint\",\"step\":7,\"survives_host_loss\":true");
    for (int i = 0; i < HOSTS; i++) {
        rank_event(f, i, 1003, "\"event\":\"stopped\",\"step\":7");
        rank_event(f, i, 1003, "\"event\":\"exited\",\"exit_code\":0");
    }
    all_empty(f, 1003);
    assert_int_equal(coord_state(f->c), RUN_CANCELLED);
    assert_string_equal(status_text(f, "", "reason", text), "it was stopped");
    struct json *v = coord_status(f->c, 1003);
    assert_int_equal(json_int(json_get(v, "checkpoint"), "step", -1), 7);
    assert_true(json_bool(json_get(v, "checkpoint"), "survives_host_loss", false));
    assert_null(json_get(v, "failure"));
    json_free(v);
}

static void a_checkpoint_says_what_it_took_and_a_resume_what_was_passed_over(void **state)
{
    struct fixture *f = *state;
    get_going(f, 1000);
    str_reset(&f->log);
    /* only rank 0 speaks for all */
    rank_event(f, 1, 1001, "\"event\":\"resumed\",\"step\":3");
    rank_event(f, 0, 1001, "\"event\":\"resumed\",\"step\":3,\"message\":\"bad \\u001b[31m\"");
    rank_event(f, 0, 1002,
        "\"event\":\"checkpoint\",\"step\":7,\"survives_host_loss\":true,\"bytes\":1200,"
        "\"seconds\":2.5,\"stall_seconds\":0.25,\"merged_requests\":1,\"other\":1");
    /* an older one that is heard late changes nothing */
    rank_event(f, 0, 1003, "\"event\":\"checkpoint\",\"step\":6,\"seconds\":9");
    assert_string_equal(str_text(&f->log), "resumed checkpoint ");
    assert_null(strchr(f->last_message, '\033'));
    assert_non_null(strstr(f->last_message, "bad "));
    struct json *v = coord_status(f->c, 1003);
    const struct json *c = json_get(v, "checkpoint");
    assert_int_equal(json_int(c, "step", -1), 7);
    assert_int_equal(json_int(c, "bytes", -1), 1200);
    assert_int_equal(json_int(c, "merged_requests", -1), 1);
    assert_true(json_num(c, "seconds", 0) == 2.5 && json_num(c, "stall_seconds", 0) == 0.25);
    assert_null(json_get(c, "other"));
    json_free(v);
}

static void limits_end_the_run_with_a_checkpoint(void **state)
{
    struct fixture *f = *state;
    char text[600];
    f->spec.limits.money = (struct run_money){3600 * 1000000LL, 1.8e9, 0}; /* a dollar a second */
    f->spec.limits.max_micro_usd = 50 * 1000000LL;
    get_going(f, 1000);
    for (size_t i = 0; i < HOSTS; i++)
        coord_heard(f->c, i, 1049);
    coord_tick(f->c, 1049);
    assert_string_equal(str_text(&f->sent[0]), "peers ");
    coord_tick(f->c, 1051);
    assert_string_equal(str_text(&f->sent[0]), "peers stop ");
    assert_string_equal(
        status_text(f, "", "reason", text), "its spending limit of $50.00 was reached");
}

static void the_limit_counts_what_earlier_attempts_cost(void **state)
{
    struct fixture *f = *state;
    f->spec.limits.money = (struct run_money){3600 * 1000000LL, 1.8e9, 45 * 1000000LL};
    f->spec.limits.max_micro_usd = 50 * 1000000LL;
    get_going(f, 1000);
    for (size_t i = 0; i < HOSTS; i++)
        coord_heard(f->c, i, 1006);
    coord_tick(f->c, 1004);
    assert_string_equal(str_text(&f->sent[0]), "peers ");
    coord_tick(f->c, 1006);
    assert_string_equal(str_text(&f->sent[0]), "peers stop ");
}

static void the_time_limit_counts_what_earlier_attempts_took(void **state)
{
    struct fixture *f = *state;
    char text[600];
    f->spec.limits.spent_s = 3590;
    f->spec.limits.max_s = 3600;
    get_going(f, 1000);
    for (size_t i = 0; i < HOSTS; i++)
        coord_heard(f->c, i, 1011);
    coord_tick(f->c, 1009);
    assert_string_equal(str_text(&f->sent[0]), "peers ");
    coord_tick(f->c, 1011);
    assert_string_equal(str_text(&f->sent[0]), "peers stop ");
    assert_string_equal(
        status_text(f, "", "reason", text), "its time limit of 60.0 min was reached");
}

static void memory_and_the_result_are_told(void **state)
{
    struct fixture *f = *state;
    get_going(f, 1000);
    rank_event(f, 0, 1001,
        "\"event\":\"memory\",\"slab_bytes\":7,\"host_slab_bytes\":0,\"external_bytes\":5,"
        "\"planned_external_bytes\":6");
    struct json *v = coord_status(f->c, 1001);
    assert_int_equal(json_int(json_get(v, "memory"), "slab_bytes", -1), 7);
    assert_int_equal(json_int(json_get(v, "memory"), "external_bytes", -1), 5);
    assert_int_equal(json_int(json_get(v, "memory"), "planned_external_bytes", -1), 6);
    json_free(v);
}

static void money_counts_from_when_the_nodes_were_rented(void **state)
{
    struct fixture *f = *state;
    /* forty seconds before the launch */
    f->spec.limits.money = (struct run_money){3600 * 1000000LL, 1.8e9 - 40, 0};
    struct json *v = coord_status(f->c, 1010);
    assert_float_equal(json_num(v, "cost_usd", 0), 50, 1e-6);
    json_free(v);
}

static void a_rank_that_never_finishes_is_named(void **state)
{
    struct fixture *f = *state;
    char text[600];
    get_going(f, 1000);
    rank_event(f, 0, 1001, "\"event\":\"finished\",\"step\":100");
    rank_event(f, 2, 1001, "\"event\":\"finished\",\"step\":100");
    for (double t = 1002; t < 1310; t += 10) {
        for (size_t i = 0; i < HOSTS; i++)
            coord_heard(f->c, i, t);
        coord_tick(f->c, t); /* finish_s is 300 */
    }
    assert_non_null(strstr(status_text(f, "failure", "message", text), "rank 1 on host 'b'"));
}

static void a_node_speaks_for_its_own_ranks_only(void **state)
{
    struct fixture *f = *state;
    char text[600];
    get_going(f, 1000);
    event(f, 1, 1001, "{\"event\":\"failed\",\"rank\":2,\"message\":\"lie\"}");
    event(f, 1, 1001, "{\"event\":\"failed\",\"rank\":-5}");
    event(f, 1, 1001, "{\"event\":\"failed\",\"rank\":\"x\"}");
    event(f, 1, 1001, "{\"event\":17}");
    event(f, 1, 1001, "{}");
    assert_string_equal(status_text(f, "failure", "message", text), "null");
    assert_string_equal(str_text(&f->sent[0]), "peers ");
}

static void nothing_of_the_end_waits_for_a_host_that_is_gone_for_ever(void **state)
{
    struct fixture *f = *state;
    get_going(f, 1000);
    coord_stop(f->c, 10, "it was stopped", 1001);
    event(f, 0, 1002, "{\"event\":\"empty\"}");
    event(f, 1, 1002, "{\"event\":\"empty\"}");
    coord_tick(f->c, 1003);
    assert_false(coord_is_over(f->c));
    coord_tick(f->c, 1020); /* c was silent for more than 15 s */
    assert_true(coord_is_over(f->c));
    assert_int_equal(coord_state(f->c), RUN_CANCELLED);
    assert_non_null(strstr(str_text(&f->log), "lost "));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int test_coordinator(void)
{
    const struct CMUnitTest tests[] = {
        TEST(publishes_the_table_once_all_ranks_listen),
        TEST(the_host_that_does_not_join_is_named),
        TEST(ends_as_finished_when_all_finished_and_are_gone),
        TEST(a_consequence_gives_way_to_the_cause_that_comes_later),
        TEST(the_first_of_two_causes_stays),
        TEST(a_silent_host_is_lost_after_lost_s_and_a_closed_one_sooner),
        TEST(a_host_that_comes_back_in_time_goes_on),
        TEST(stop_lets_ranks_save_and_ends_as_cancelled),
        TEST(a_checkpoint_says_what_it_took_and_a_resume_what_was_passed_over),
        TEST(limits_end_the_run_with_a_checkpoint),
        TEST(the_limit_counts_what_earlier_attempts_cost),
        TEST(the_time_limit_counts_what_earlier_attempts_took),
        TEST(memory_and_the_result_are_told),
        TEST(money_counts_from_when_the_nodes_were_rented),
        TEST(a_rank_that_never_finishes_is_named),
        TEST(a_node_speaks_for_its_own_ranks_only),
        TEST(nothing_of_the_end_waits_for_a_host_that_is_gone_for_ever),
    };
    return cmocka_run_group_tests_name("engine/coordinator", tests, NULL, NULL);
}
