#include "launcher/preflight.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/utsname.h>

#include "base/json.h"

/* What the script prints on a healthy node with this machine's architecture. */
static void healthy(struct str *s)
{
    struct utsname own;
    uname(&own);
    str_init(s, 0);
    str_addf(s, "time=1\nsystem=%s %s\n", own.sysname, own.machine);
    str_add(s,
        "libc=glibc 99.1\ncores=8\nram_kib=33554432\navailable_kib=30000000\nshm_kib=1048576\n"
        "files=1024\nsha=sha256sum\nworkdir=/home/x/.berth\nprobe=ok\ndisk_kib=104857600\n");
}

static void a_healthy_host_passes_everything(void **state)
{
    (void)state;
    struct str s;
    struct preflight_host h;
    struct preflight_need need = {.ram_bytes = 1LL << 34, .disk_bytes = 1LL << 33, .ranks = 8};
    healthy(&s);
    preflight_judge(&h, &s, &need, 0.2, 0.1);
    for (int c = 0; c < CHECK_ENGINE; c++)
        if (h.answer[c].verdict != VERDICT_PASS)
            fail_msg("%s: %s", preflight_check_name((enum preflight_check)c), h.answer[c].value);
    assert_string_equal(h.workdir, "/home/x/.berth");
    assert_int_equal(h.ram_bytes, 32LL << 30);
    assert_string_equal(h.answer[CHECK_MEMORY].value, "32.0 GiB");
    free(h.workdir);
    str_release(&s);
}

static void each_fault_is_seen(void **state)
{
    (void)state;
    static const struct {
        const char *replace, *with;
        enum preflight_check check;
        enum verdict verdict;
    } faults[] = {
        {"system=", "system=Plan9 ", CHECK_SYSTEM, VERDICT_FAIL},
        {"libc=glibc 99.1", "libc=glibc 2.17", CHECK_LIBC, VERDICT_WARN},
        {"libc=glibc 99.1", "libc=", CHECK_LIBC, VERDICT_UNKNOWN},
        {"cores=8", "cores=4", CHECK_CORES, VERDICT_WARN},
        {"cores=8", "cores=N/A", CHECK_CORES, VERDICT_UNKNOWN},
        {"ram_kib=33554432", "ram_kib=1048576", CHECK_MEMORY, VERDICT_FAIL},
        {"ram_kib=33554432", "ram_kib=", CHECK_MEMORY, VERDICT_UNKNOWN},
        {"available_kib=30000000", "available_kib=1000", CHECK_MEMORY, VERDICT_WARN},
        {"probe=ok", "probe=noexec", CHECK_WORKDIR, VERDICT_FAIL},
        {"probe=ok", "probe=readonly", CHECK_WORKDIR, VERDICT_FAIL},
        {"workdir=/home", "workdir=home", CHECK_WORKDIR, VERDICT_FAIL},
        {"disk_kib=104857600", "disk_kib=1024", CHECK_DISK, VERDICT_FAIL},
        {"files=1024", "files=64", CHECK_FILES, VERDICT_WARN},
        {"files=1024", "files=unlimited", CHECK_FILES, VERDICT_PASS},
        {"sha=sha256sum", "no=", CHECK_TOOLS, VERDICT_FAIL},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct str s, bad = STR_INIT;
        struct preflight_host h;
        struct preflight_need need = {.ram_bytes = 1LL << 34, .disk_bytes = 1LL << 33, .ranks = 8};
        healthy(&s);
        const char *at = strstr(str_text(&s), faults[i].replace);
        assert_non_null(at);
        str_addn(&bad, str_text(&s), (size_t)(at - str_text(&s)));
        str_add(&bad, faults[i].with);
        str_add(&bad, at + strlen(faults[i].replace));
        preflight_judge(&h, &bad, &need, 0, 0);
        if (h.answer[faults[i].check].verdict != faults[i].verdict)
            fail_msg("%s -> %s", faults[i].with, verdict_name(h.answer[faults[i].check].verdict));
        free(h.workdir);
        str_release(&s);
        str_release(&bad);
    }
}

static void clocks_are_judged_within_what_the_round_trip_allows(void **state)
{
    (void)state;
    static const struct {
        double offset_s, error_s;
        enum verdict verdict;
    } cases[] = {{0.5, 0, VERDICT_PASS}, {-0.9, 0, VERDICT_PASS}, {1.5, 1, VERDICT_PASS},
        {1.5, 0.1, VERDICT_WARN}, {-3600, 1, VERDICT_WARN}, {NAN, 0, VERDICT_UNKNOWN}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct str s;
        struct preflight_host h;
        struct preflight_need need = {0};
        healthy(&s);
        preflight_judge(&h, &s, &need, cases[i].offset_s, cases[i].error_s);
        assert_int_equal(h.answer[CHECK_CLOCK].verdict, cases[i].verdict);
        free(h.workdir);
        str_release(&s);
    }
}

static void gpus_are_needed_only_by_plans_for_gpus(void **state)
{
    (void)state;
    struct str s;
    struct preflight_host h;
    struct preflight_need need = {.needs_gpu = true};
    healthy(&s);
    preflight_judge(&h, &s, &need, 0, 0);
    assert_int_equal(h.answer[CHECK_GPU].verdict, VERDICT_FAIL);
    free(h.workdir);
    str_add(&s, "gpu=8 NVIDIA H100 80GB HBM3, 81559 MiB, 550.54\n");
    preflight_judge(&h, &s, &need, 0, 0);
    assert_int_equal(h.answer[CHECK_GPU].verdict, VERDICT_PASS);
    free(h.workdir);
    str_release(&s);
}

/* Another model, another number, a stranger, two models in one host: refused, not mixed. */
static void gpus_other_than_the_plans_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *lines, *hint; /* NULL: all right */
    } cases[] = {
        {"gpu=8 NVIDIA H100 80GB HBM3, 81559 MiB, 550.54\n", NULL},
        {"gpu=9 NVIDIA H100 80GB HBM3, 81559 MiB, 550.54\n", NULL},
        {"gpu=4 NVIDIA H100 80GB HBM3, 81559 MiB, 550.54\n", "the plan is for 8 h100-sxm"},
        {"gpu=8 NVIDIA A100-SXM4-80GB, 81920 MiB, 550.54\n", "the plan is for 8 h100-sxm"},
        {"gpu=8 Voodoo 2, 8 MiB, 1\n", "the plan is for 8 h100-sxm"},
        {"gpu=nonsense\n", "the plan is for 8 h100-sxm"},
        {"gpu=4 NVIDIA H100 80GB HBM3, 81559 MiB, 550.54\n"
         "gpu=4 NVIDIA A100-SXM4-80GB, 81920 MiB, 550.54\n",
            "the slowest GPU would set the pace"},
    };
    struct preflight_need need = {.needs_gpu = true, .gpu = "h100-sxm", .ranks = 8};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct str s;
        struct preflight_host h;
        healthy(&s);
        str_add(&s, cases[i].lines);
        preflight_judge(&h, &s, &need, 0, 0);
        const struct preflight_answer *a = &h.answer[CHECK_GPU];
        bool is_right = cases[i].hint ? a->verdict == VERDICT_FAIL && strstr(a->hint, cases[i].hint)
                                      : a->verdict == VERDICT_PASS;
        if (!is_right)
            fail_msg("%s -> %s, %s", cases[i].lines, verdict_name(a->verdict), a->hint);
        free(h.workdir);
        str_release(&s);
    }
}

static void hosts_that_differ_are_named(void **state)
{
    (void)state;
    static const char *const cores[] = {"cores=8", "cores=32", "cores=8"};
    const char *names[] = {"node1", "node2", "node3"};
    struct preflight_host hosts[3];
    struct preflight p = {hosts, 3};
    struct preflight_need need = {0};
    struct str out = STR_INIT;
    for (int i = 0; i < 3; i++) {
        struct str s, one = STR_INIT;
        healthy(&s);
        const char *at = strstr(str_text(&s), "cores=8");
        str_addn(&one, str_text(&s), (size_t)(at - str_text(&s)));
        str_addf(&one, "%s%s", cores[i], at + strlen("cores=8"));
        preflight_judge(&hosts[i], &one, &need, 0, 0);
        str_release(&s);
        str_release(&one);
    }
    preflight_describe_unequal(&p, names, &out);
    assert_string_equal(str_text(&out), "node[1,3] has 8 cores, node2 has 32 cores");
    str_reset(&out);
    p.count = 1;
    preflight_describe_unequal(&p, names, &out);
    assert_int_equal(out.len, 0);
    str_release(&out);
    for (int i = 0; i < 3; i++)
        free(hosts[i].workdir);
}

static void equal_answers_are_shown_once_and_a_failure_names_its_hosts(void **state)
{
    (void)state;
    const char *names[] = {"node1", "node2", "node3"};
    struct preflight_host hosts[3];
    struct preflight p = {hosts, 3};
    struct preflight_need need = {0};
    struct err e = ERR_INIT;
    for (int i = 0; i < 3; i++) {
        struct str s;
        healthy(&s);
        if (i == 1)
            str_reset(&s), str_add(&s, "system=Linux vax\nprobe=readonly\n");
        preflight_judge(&hosts[i], &s, &need, 0, 0);
        str_release(&s);
    }
    struct str out = STR_INIT;
    preflight_print(&p, names, &out);
    assert_non_null(strstr(str_text(&out), "pass     cores          node[1,3]: 8\n"));
    assert_non_null(strstr(str_text(&out), "unknown  cores          node2: unknown\n"));
    assert_int_equal(preflight_verdict(&p, names, &e), RC_NODE);
    assert_non_null(strstr(e.msg, "host node2: system: Linux vax"));
    struct json *v = preflight_to_json(&p, names);
    assert_string_equal(json_str(json_at(v, 0), "check", ""), "system");
    assert_int_equal(json_len(json_get(json_at(v, 0), "hosts")), 2);
    json_free(v);
    str_release(&out);
    for (int i = 0; i < 3; i++)
        free(hosts[i].workdir);
}

static void the_first_host_without_the_memory_is_found(void **state)
{
    (void)state;
    struct preflight_host hosts[] = {
        {.ram_bytes = 0}, {.ram_bytes = 8LL << 30}, {.ram_bytes = 4LL << 30}};
    struct preflight p = {hosts, 3};
    assert_int_equal(preflight_short_of_memory(&p, 4LL << 30), -1);
    assert_int_equal(preflight_short_of_memory(&p, (4LL << 30) + 1), 2);
    assert_int_equal(preflight_short_of_memory(&p, 9LL << 30), 1);
}

int test_preflight(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_healthy_host_passes_everything),
        cmocka_unit_test(each_fault_is_seen),
        cmocka_unit_test(clocks_are_judged_within_what_the_round_trip_allows),
        cmocka_unit_test(gpus_are_needed_only_by_plans_for_gpus),
        cmocka_unit_test(gpus_other_than_the_plans_are_refused),
        cmocka_unit_test(the_first_host_without_the_memory_is_found),
        cmocka_unit_test(hosts_that_differ_are_named),
        cmocka_unit_test(equal_answers_are_shown_once_and_a_failure_names_its_hosts),
    };
    return cmocka_run_group_tests_name("launcher/preflight", tests, NULL, NULL);
}
