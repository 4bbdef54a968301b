#include "launcher/hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "launcher/hostrange.h"

static enum rc parse(struct hosts *h, const char *text, struct err *e)
{
    return hosts_parse(h, text, strlen(text), "'list'", e);
}

static void reads_plain_lists(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct hosts h;
    assert_int_equal(parse(&h,
                         "# two racks\n\n"
                         "train@10.0.0.1:2222 slots=8 dir=/scratch/x # the first\r\n"
                         "\tnode[08-10,2]\n"
                         "[2001:db8::7]:23 price=2.50\n"
                         "::1\n",
                         &e),
        RC_OK);
    assert_int_equal(h.count, 7);
    assert_string_equal(h.v[0].name, "10.0.0.1");
    assert_string_equal(h.v[0].user, "train");
    assert_int_equal(h.v[0].port, 2222);
    assert_int_equal(h.v[0].slots, 8);
    assert_string_equal(h.v[0].dir, "/scratch/x");
    assert_int_equal(h.v[0].micro_usd_per_hour, -1);
    assert_string_equal(h.v[1].name, "node08");
    assert_string_equal(h.v[2].name, "node09");
    assert_string_equal(h.v[3].name, "node10");
    assert_string_equal(h.v[4].name, "node2");
    assert_int_equal(h.v[4].line, 4);
    assert_string_equal(h.v[5].name, "2001:db8::7");
    assert_int_equal(h.v[5].port, 23);
    assert_int_equal(h.v[5].micro_usd_per_hour, 2500000);
    assert_string_equal(h.v[6].name, "::1");
    assert_int_equal(h.v[6].port, 0);
    char *label = host_label(&h.v[0]);
    assert_string_equal(label, "train@10.0.0.1:2222");
    free(label);
    hosts_release(&h);
}

static void a_byte_order_mark_is_no_part_of_a_name(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct hosts h;
    assert_int_equal(parse(&h, "\xef\xbb\xbfnode1\n", &e), RC_OK);
    assert_string_equal(h.v[0].name, "node1");
    hosts_release(&h);
    assert_int_equal(parse(&h, "\xef\xbb\xbf{\"hosts\":[{\"host\":\"a\"}]}", &e), RC_OK);
    hosts_release(&h);
}

static void reads_json_with_ranges_and_exclusions(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct hosts h;
    assert_int_equal(parse(&h,
                         "{\"hosts\":[{\"host\":\"gpu-a\",\"address\":\"192.0.2.11\",\"port\":22,"
                         "\"user\":\"train\",\"gpus\":8},{\"host\":\"node[01-04,07]\","
                         "\"exclude\":[\"node03\"],\"jump\":\"login:2222\"}]}",
                         &e),
        RC_OK);
    assert_int_equal(h.count, 5);
    assert_string_equal(h.v[0].connect, "192.0.2.11");
    assert_int_equal(h.v[0].slots, 8);
    assert_string_equal(h.v[3].name, "node04");
    assert_string_equal(h.v[4].name, "node07");
    assert_string_equal(h.v[4].jump, "login:2222");
    hosts_release(&h);
}

static void the_list_survives_the_run_folder(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct hosts a, b;
    assert_int_equal(
        parse(&a, "u@h:5 slots=2 dir=~/b identity=/k jump=j address=10.1.1.1 price=1", &e), RC_OK);
    struct json *v = hosts_to_json(&a);
    assert_int_equal(hosts_from_json(&b, v, "x", &e), RC_OK);
    assert_string_equal(b.v[0].name, "h");
    assert_string_equal(b.v[0].user, "u");
    assert_int_equal(b.v[0].port, 5);
    assert_int_equal(b.v[0].slots, 2);
    assert_string_equal(b.v[0].dir, "~/b");
    assert_string_equal(b.v[0].identity, "/k");
    assert_string_equal(b.v[0].jump, "j");
    assert_string_equal(b.v[0].address, "10.1.1.1");
    assert_null(b.v[0].connect);
    assert_int_equal(b.v[0].micro_usd_per_hour, 1000000);
    json_free(v);
    hosts_release(&a);
    hosts_release(&b);
}

static void bad_lists_get_one_sentence_with_the_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
        enum rc rc;
    } bad[] = {
        {"", "lists no host", RC_USAGE},
        {"# only a comment\n", "lists no host", RC_USAGE},
        {"a\nb\na\n", "line 3: host 'a' is already in line 1", RC_USAGE},
        {"node[1-3]\nnode2\n", "line 2: host 'node2' is already in line 1", RC_USAGE},
        {"a b\n", "line 1: 'b' is not KEY=VALUE", RC_USAGE},
        {"a slots=0\n", "slots '0'", RC_USAGE},
        {"a slots=two\n", "slots 'two'", RC_USAGE},
        {"a:0\n", "'0' is not a port", RC_USAGE},
        {"a:99999\n", "'99999' is not a port", RC_USAGE},
        {"a colour=red\n", "key 'colour' is unknown", RC_USAGE},
        {"a dir=relative\n", "must start with /", RC_USAGE},
        {"{\"hosts\":[{\"host\":\"a\",\"dir\":\"/x\\ny\"}]}", "control character", RC_USAGE},
        {"node[1-\n", "'[' without ']'", RC_USAGE},
        {"node1]\n", "']' without '['", RC_USAGE},
        {"node[3-1]\n", "runs backwards", RC_USAGE},
        {"node[a-3]\n", "not a range", RC_USAGE},
        {"node[]\n", "empty", RC_USAGE},
        {"node[1-999999999]\n", "more than 4096 hosts", RC_LIMIT},
        {"n[1-99][1-99]\n", "more than 4096 hosts", RC_LIMIT},
        {"-oProxyCommand=evil\n", "not a host name", RC_USAGE},
        {"a;rm\n", "not a host name", RC_USAGE},
        {"u$(x)@a\n", "not a user name", RC_USAGE},
        {"@a\n", "not a user name", RC_USAGE},
        {"{\"hosts\":[{\"host\":\"a\"},{\"host\":\"a\"}]}", "listed twice", RC_USAGE},
        {"{\"hosts\":[{\"name\":\"a\"}]}", "host 1: field 'host'", RC_INVALID},
        {"{\"hosts\":7}", "no array 'hosts'", RC_USAGE},
        {"{\"hosts\":[", "not valid JSON", RC_INVALID},
        {"{\"hosts\":[{\"host\":\"a\",\"port\":70000}]}", "port", RC_INVALID},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct err e = ERR_INIT;
        struct hosts h;
        enum rc rc = parse(&h, bad[i].text, &e);
        if (rc != bad[i].rc || !strstr(e.msg, bad[i].says))
            fail_msg("%s -> %d '%s'", bad[i].text, rc, e.msg);
        assert_null(h.v);
    }
}

static void equal_names_fold_into_ranges(void **state)
{
    (void)state;
    const char *names[] = {
        "node01", "node02", "node03", "node07", "login", "gpu9", "gpu10", "10.0.0.1"};
    struct str s = STR_INIT;
    hostrange_fold(&s, names, 8);
    assert_string_equal(str_text(&s), "node[01-03,07], login, gpu9, gpu10, 10.0.0.1");
    str_release(&s);
}

int test_hosts(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_plain_lists),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_a_name),
        cmocka_unit_test(reads_json_with_ranges_and_exclusions),
        cmocka_unit_test(the_list_survives_the_run_folder),
        cmocka_unit_test(bad_lists_get_one_sentence_with_the_line),
        cmocka_unit_test(equal_names_fold_into_ranges),
    };
    return cmocka_run_group_tests_name("launcher/hosts", tests, NULL, NULL);
}
