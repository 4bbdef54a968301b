#include "run/message.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "run/record.h"

static void takes_messages_however_the_bytes_arrive(void **state)
{
    (void)state;
    static const char stream[] = "{\"type\":\"hello\"}\n{\"event\":\"step\",\"step\":7}\n";
    for (size_t piece = 1; piece < sizeof(stream); piece++) {
        struct msg_reader r;
        struct err e = ERR_INIT;
        int taken = 0;
        msg_reader_init(&r);
        for (size_t at = 0; at < sizeof(stream) - 1; at += piece) {
            size_t n = sizeof(stream) - 1 - at < piece ? sizeof(stream) - 1 - at : piece;
            msg_reader_feed(&r, stream + at, n);
            struct json *v;
            while (msg_take(&r, &v, &e) == RC_OK && v) {
                if (taken++ == 0)
                    assert_true(msg_is(v, "hello"));
                else
                    assert_int_equal(json_int(v, "step", 0), 7);
                json_free(v);
            }
        }
        assert_int_equal(taken, 2);
        msg_reader_release(&r);
    }
}

static void refuses_what_is_not_an_object_or_too_long(void **state)
{
    (void)state;
    static const char *const bad[] = {"[1]\n", "x\n", "\n", "{\"a\":1}{\n", "\xff\xfe\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct msg_reader r;
        struct err e = ERR_INIT;
        struct json *v;
        msg_reader_init(&r);
        msg_reader_feed(&r, bad[i], strlen(bad[i]));
        assert_int_equal(msg_take(&r, &v, &e), RC_INVALID);
        assert_null(v);
        msg_reader_release(&r);
    }
    struct msg_reader r;
    struct err e = ERR_INIT;
    struct json *v;
    msg_reader_init(&r);
    char block[1024];
    memset(block, 'a', sizeof(block));
    enum rc rc = RC_OK;
    int blocks = 0;
    while (!rc && blocks < 1000) {
        msg_reader_feed(&r, block, sizeof(block));
        rc = msg_take(&r, &v, &e);
        blocks++;
    }
    assert_int_equal(rc, RC_INVALID);
    assert_int_equal(blocks, 65); /* 64 KiB and not more */
    msg_reader_release(&r);
}

static void what_is_too_long_to_be_sent_becomes_an_error(void **state)
{
    (void)state;
    struct str out = STR_INIT, text = STR_INIT;
    struct msg_reader r;
    struct json *v = msg_new("status"), *got;
    struct err e = ERR_INIT;
    for (int i = 0; i < MSG_MAX_BYTES; i++)
        str_addc(&text, 'x');
    json_add_str(v, "text", str_text(&text));
    msg_put(&out, v);
    json_free(v);
    msg_reader_init(&r);
    msg_reader_feed(&r, str_text(&out), out.len);
    assert_int_equal(msg_take(&r, &got, &e), RC_OK);
    assert_true(msg_is(got, "error"));
    json_free(got);
    msg_reader_release(&r);
    str_release(&text);
    str_release(&out);
}

static void another_protocol_is_named(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct json *v = msg_hello();
    assert_int_equal(msg_check_hello(v, &e), RC_OK);
    json_add_str(v, "protocol", "agent/2");
    assert_int_equal(msg_check_hello(v, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "agent/2"));
    assert_non_null(strstr(e.msg, "agent/1"));
    json_free(v);
}

static void unknown_metrics_are_null_and_come_back_unknown(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct record_metrics m, back;
    record_metrics_init(&m);
    m.step = 3;
    m.loss = 2.5;
    m.exposed_s[LANE_GATHER] = 0.25;
    m.collective[record_collective(OP_ALL_GATHER)] = (struct collective_time){0.5, 0.25};
    m.overlap = 0.5;
    struct json *v = record_metrics_to_json(&m);
    char *line = json_print(v, false);
    assert_non_null(strstr(line, "\"grad_norm\":null"));
    assert_non_null(strstr(line, "\"exposed_seconds\":{\"gather\":0.25}"));
    assert_non_null(
        strstr(line, "\"collectives\":{\"all_gather\":{\"seconds\":0.5,\"exposed_seconds\":0.25}},"
                     "\"overlap\":0.5,\"optimizer_seconds\":null"));
    assert_int_equal(record_metrics_from_json(&back, v, &e), RC_OK);
    assert_int_equal(back.step, 3);
    const struct collective_time *gather = &back.collective[record_collective(OP_ALL_GATHER)];
    assert_true(gather->seconds >= 0.5 && gather->exposed_s <= 0.25 && back.overlap >= 0.5);
    assert_true(isnan(back.collective[record_collective(OP_ALL_REDUCE)].seconds));
    assert_true(back.loss > 2.49 && back.loss < 2.51);
    assert_true(back.grad_norm != back.grad_norm);
    assert_int_equal(back.memory_bytes, -1);
    free(line);
    json_free(v);
    v = msg_new("step");
    assert_int_equal(record_metrics_from_json(&back, v, &e), RC_INVALID);
    json_free(v);
}

/* The line a rank sends: the agent's reader takes it, whatever the numbers are. */
static void the_longest_metrics_fit_into_their_line(void **state)
{
    (void)state;
    char text[RECORD_METRICS_TEXT];
    struct err e = ERR_INIT;
    struct json *v = NULL;
    struct record_metrics m, back;
    const double x = -1.23456789012e-300;
    m = (struct record_metrics){.step = INT64_MAX,
        .wall_s = x,
        .loss = x,
        .lr = x,
        .grad_norm = x,
        .step_seconds = x,
        .tokens = INT64_MAX,
        .tokens_per_second = x,
        .mfu = x,
        .memory_bytes = INT64_MAX};
    for (int l = 0; l < LANE_COUNT; l++)
        m.busy_s[l] = m.exposed_s[l] = x;
    for (int i = 0; i < COLLECTIVE_TIMES; i++)
        m.collective[i] = (struct collective_time){x, x};
    m.overlap = m.optimizer_s = x;
    size_t n = record_metrics_line(text, &m, true);
    assert_in_range(n, 1, RECORD_METRICS_TEXT - 1);
    assert_int_equal(n, strlen(text));
    assert_int_equal(text[n - 1], '\n');
    assert_int_equal(json_parse(&v, text, n, &e), RC_OK);
    assert_string_equal(json_str(v, "event", ""), "step");
    assert_int_equal(record_metrics_from_json(&back, v, &e), RC_OK);
    assert_true(back.tokens == INT64_MAX);
    assert_true(back.exposed_s[LANE_COUNT - 1] < 0);
    json_free(v);
}

static void failure_text_cannot_steer_a_terminal(void **state)
{
    (void)state;
    struct record_failure f;
    struct json *v = json_obj();
    json_add_str(v, "message", "bad \x1b[2J news");
    record_failure_from_json(&f, v);
    assert_string_equal(f.message, "bad ?[2J news");
    assert_int_equal(f.rank, -1);
    json_free(v);
}

int test_message(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_messages_however_the_bytes_arrive),
        cmocka_unit_test(refuses_what_is_not_an_object_or_too_long),
        cmocka_unit_test(what_is_too_long_to_be_sent_becomes_an_error),
        cmocka_unit_test(another_protocol_is_named),
        cmocka_unit_test(unknown_metrics_are_null_and_come_back_unknown),
        cmocka_unit_test(the_longest_metrics_fit_into_their_line),
        cmocka_unit_test(failure_text_cannot_steer_a_terminal),
    };
    return cmocka_run_group_tests_name("run/message", tests, NULL, NULL);
}
