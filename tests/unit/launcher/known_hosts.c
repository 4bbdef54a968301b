/* The table of docs/launching.md: what OpenSSH 9.2 answers for 127.0.0.1 port 2222. The hashed
 * lines were made by ssh-keygen -H. tests/e2e/known_hosts.sh asks the real ssh the same questions.
 */
#include "launcher/known_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base64.h"

#define RIGHT "AAAAC3NzaC1lZDI1NTE5AAAAIAc1WhDrIIX8SQvYDV0YAzH30r/aXiU9aXAd6K8vqRD9"
#define WRONG "AAAAC3NzaC1lZDI1NTE5AAAAIMZrURIC3MHar61VbdW6rLj+HXbmzQMjecLdJ61EHt91"
#define RSA                                                                                        \
    "AAAAB3NzaC1yc2EAAAADAQABAAABAQCMvhCo6hF4YePy7Je+p3a5MKRISHR+MoJ5fM8a3Xa5a1MXHF28hCHg"         \
    "x0LNhljDFUMfmwFoA+bv2Fw1rA0EzhDfTCHc8T46qhZuU4HIkQte85jTbrvNoxtqagepSjeR+kJyxnwF93S3"         \
    "l2ujz5hbKLlijbvsWhkBUAtWdbKAi33Kf4ysrkGOyiHzCQX1aNAuEHT6bp1mifCJeT0h4BnIB3ZU0NtVu92x"         \
    "+IpqBw3xUn1SchpsFLKDkmjPn2+1zklaPuyOXwfGg/SW5qzYsvg6kcVPbFc3kGvzqI9mLrLp9qmVtLOElkqo"         \
    "+kisGb3TTLDLxX/zEWzjZRF0O7M3US90OTY5"
#define ECDSA                                                                                      \
    "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBCuOEdEGXQgFWjC99ME84GqhtJg825XW"         \
    "zRoD7SiKX2PqciRfpLhPUJpip76OmLp01GHTwn1UpJZVCZUNHRr7gLc="
#define ED          "ssh-ed25519 "
#define HASHED_PORT "|1|lX5z3SPT/PDLF4qTHjU+KFKoVVQ=|cJsWD3t/1tnJjJO02es3mTglyeA="
#define HASHED_HOST "|1|WcufOtZJA7S3izl8lqldyAOlb4E=|DkIUq2WoRlb9zxvR/2ByaO0v2Ro="

static unsigned char *decode(const char *key, size_t *len)
{
    unsigned char *blob;
    struct err e = ERR_INIT;
    assert_int_equal(base64_decode(&blob, len, key, strlen(key), &e), RC_OK);
    return blob;
}

static enum known_answer ask(const char *text, const char *host, int port, char *where, size_t cap)
{
    struct known_hosts *k = known_hosts_new();
    const char *culprit = "";
    size_t len;
    unsigned char *blob = decode(RIGHT, &len);
    known_hosts_add(k, "file", text, strlen(text));
    enum known_answer answer = known_hosts_check(k, host, port, blob, len, &culprit);
    snprintf(where, cap, "%s", culprit);
    free(blob);
    known_hosts_free(k);
    return answer;
}

static void every_row_gives_openssh_s_answer(void **state)
{
    (void)state;
    static const struct {
        const char *what, *text;
        enum known_answer answer;
        const char *where;
    } rows[] = {
        {"host key, plain", "127.0.0.1 " ED RIGHT "\n", KNOWN_MATCH, ""},
        {"[host]:port key", "[127.0.0.1]:2222 " ED RIGHT "\n", KNOWN_MATCH, ""},
        {"hashed [host]:port", HASHED_PORT " " ED RIGHT "\n", KNOWN_MATCH, ""},
        {"hashed host", HASHED_HOST " " ED RIGHT "\n", KNOWN_MATCH, ""},
        {"hashed, wrong key", HASHED_PORT " " ED WRONG "\n", KNOWN_CHANGED, "file:1"},
        {"[host]:port wrong key, host right key",
            "[127.0.0.1]:2222 " ED WRONG "\n127.0.0.1 " ED RIGHT "\n", KNOWN_CHANGED, "file:1"},
        {"[host]:port right, host wrong", "127.0.0.1 " ED WRONG "\n[127.0.0.1]:2222 " ED RIGHT "\n",
            KNOWN_MATCH, ""},
        {"only another key type", "# x\n[127.0.0.1]:2222 ssh-rsa " RSA "\n", KNOWN_CHANGED,
            "file:2"},
        {"the other type for the bare host", "127.0.0.1 ssh-rsa " RSA "\n", KNOWN_UNKNOWN, ""},
        {"pattern", "[127.0.0.*]:2222 " ED RIGHT "\n", KNOWN_MATCH, ""},
        {"pattern for the bare host", "127.0.0.* " ED RIGHT "\n", KNOWN_MATCH, ""},
        {"question marks", "127.?.0.1 " ED RIGHT "\n", KNOWN_MATCH, ""},
        {"negated pattern", "!127.0.0.1,127.0.0.* " ED RIGHT "\n", KNOWN_UNKNOWN, ""},
        {"revoked", "@revoked * " ED RIGHT "\n127.0.0.1 " ED RIGHT "\n", KNOWN_REVOKED, "file:1"},
        {"another key revoked", "@revoked * " ED WRONG "\n127.0.0.1 " ED RIGHT "\n", KNOWN_MATCH,
            ""},
        {"certificate authority", "@cert-authority * " ED RIGHT "\n", KNOWN_UNKNOWN, ""},
        {"CRLF", "127.0.0.1 " ED RIGHT "\r\n", KNOWN_MATCH, ""},
        {"malformed lines before",
            "garbage\n127.0.0.1\n127.0.0.1 ssh-ed25519\n127.0.0.1 ssh-ed25519 !!!\n"
            "@what 127.0.0.1 " ED RIGHT "\n127.0.0.1 ssh-rsa " RIGHT "\n127.0.0.1 " ED RIGHT "\n",
            KNOWN_MATCH, ""},
        {"comments and lists", "# c\n\nother,127.0.0.1 " ED RIGHT " me@here\n", KNOWN_MATCH, ""},
        {"both keys known", "127.0.0.1 " ED WRONG "\n127.0.0.1 " ED RIGHT "\n", KNOWN_MATCH, ""},
        {"nothing", "", KNOWN_UNKNOWN, ""},
        {"another host", "127.0.0.2 " ED RIGHT "\n", KNOWN_UNKNOWN, ""},
        {"another port", "[127.0.0.1]:2223 " ED RIGHT "\n", KNOWN_UNKNOWN, ""},
        {"no newline at the end", "127.0.0.1 " ED RIGHT, KNOWN_MATCH, ""},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char where[64];
        enum known_answer got = ask(rows[i].text, "127.0.0.1", 2222, where, sizeof(where));
        if (got != rows[i].answer || strcmp(where, rows[i].where) != 0)
            fail_msg("%s: answer %d at '%s'", rows[i].what, got, where);
    }
}

static void names_are_compared_without_case_and_ports_with_care(void **state)
{
    (void)state;
    char where[64];
    assert_int_equal(
        ask("node.Example " ED RIGHT "\n", "NODE.example", 22, where, 64), KNOWN_MATCH);
    assert_int_equal(ask("[node]:2222 " ED RIGHT "\n", "node", 22, where, 64), KNOWN_UNKNOWN);
    assert_int_equal(ask("node " ED WRONG "\n", "node", 22, where, 64), KNOWN_CHANGED);
}

static void key_types_known_for_the_host_lead_the_handshake(void **state)
{
    (void)state;
    struct known_hosts *k = known_hosts_new();
    char types[KNOWN_TYPES_TEXT];
    static const char text[] = "[h]:1 ecdsa-sha2-nistp256 " ECDSA "\n[h]:1 " ED RIGHT
                               "\n[h]:1 " ED WRONG "\nh ssh-rsa " RSA "\n";
    known_hosts_add(k, "file", text, strlen(text));
    known_hosts_types(k, "h", 1, types);
    assert_string_equal(types, "ecdsa-sha2-nistp256,ssh-ed25519");
    known_hosts_types(k, "h", 2, types); /* only the bare host is known */
    assert_string_equal(types, "ssh-rsa");
    known_hosts_types(k, "other", 22, types);
    assert_string_equal(types, "");
    known_hosts_free(k);
}

static void lines_and_fingerprints_are_ssh_keygen_s(void **state)
{
    (void)state;
    size_t len;
    unsigned char *blob = decode(RIGHT, &len);
    char print[KNOWN_FINGERPRINT_TEXT];
    known_hosts_fingerprint(blob, len, print);
    assert_string_equal(print, "SHA256:UsGaCupNDpou3FtJ65BLNM8Nsaub/vR9+wOX05VTljI");
    char *line = known_hosts_line("Host", 2222, blob, len);
    assert_string_equal(line, "[host]:2222 " ED RIGHT "\n");
    free(line);
    line = known_hosts_line("h", 22, blob, len);
    assert_string_equal(line, "h " ED RIGHT "\n");
    free(line);
    assert_null(known_hosts_line("h", 22, "xx", 2));
    free(blob);
}

int test_known_hosts(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_gives_openssh_s_answer),
        cmocka_unit_test(names_are_compared_without_case_and_ports_with_care),
        cmocka_unit_test(key_types_known_for_the_host_lead_the_handshake),
        cmocka_unit_test(lines_and_fingerprints_are_ssh_keygen_s),
    };
    return cmocka_run_group_tests_name("launcher/known_hosts", tests, NULL, NULL);
}
