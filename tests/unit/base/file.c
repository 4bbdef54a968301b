#include "base/file.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/str.h"

static char root[] = "/tmp/berth-file-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    memcpy(root + strlen(root) - 6, "XXXXXX", 6);
    return mkdtemp(root) ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    struct err e;
    return dir_remove(root, &e) != RC_OK;
}

static char *at(const char *name)
{
    return path_join(root, name);
}

static void assert_content(const char *path, const char *want)
{
    struct err e = ERR_INIT;
    struct str s = STR_INIT;
    assert_int_equal(file_read(&s, path, 1000, &e), RC_OK);
    assert_string_equal(str_text(&s), want);
    str_release(&s);
}

static void writes_whole_or_not_at_all_and_leaves_no_second_file(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *path = at("a.json");
    assert_int_equal(file_write(path, "one", 3, 0600, &e), RC_OK);
    assert_int_equal(file_write(path, "three", 5, 0600, &e), RC_OK);
    assert_content(path, "three");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(root), 0); /* nothing else was in there */
    assert_int_equal(mkdir(root, 0755), 0);
    free(path);
}

static void follows_a_link_and_keeps_it(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *real = at("real"), *link = at("link");
    assert_int_equal(file_write(real, "x", 1, 0644, &e), RC_OK);
    assert_int_equal(symlink(real, link), 0);
    assert_int_equal(file_write(link, "new", 3, 0644, &e), RC_OK);
    struct stat st;
    assert_int_equal(lstat(link, &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_content(real, "new");
    free(real);
    free(link);
}

/* As root a rename over /dev/null would take the system down; a pipe stands in for it. */
static void a_device_or_pipe_is_written_to_and_stays_what_it_is(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *path = at("pipe"), got[8] = "";
    assert_int_equal(mkfifo(path, 0600), 0);
    int fd = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(fd >= 0);
    assert_int_equal(file_write(path, "data", 4, 0644, &e), RC_OK);
    assert_int_equal(read(fd, got, sizeof(got)), 4);
    assert_string_equal(got, "data");
    struct stat st;
    assert_int_equal(lstat(path, &st), 0);
    assert_true(S_ISFIFO(st.st_mode));
    close(fd);
    free(path);
}

static void refuses_folders_missing_places_and_large_files(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct str s = STR_INIT;
    char *deep = at("no/such/file"), *big = at("big");
    assert_int_equal(file_write(root, "x", 1, 0644, &e), RC_IO);
    assert_non_null(strstr(e.msg, "is a folder"));
    assert_int_equal(file_write(deep, "x", 1, 0644, &e), RC_IO);
    assert_int_equal(file_write(big, "0123456789", 10, 0644, &e), RC_OK);
    assert_int_equal(file_read(&s, big, 9, &e), RC_LIMIT);
    assert_int_equal(file_read(&s, deep, 9, &e), RC_NOT_FOUND);
    assert_non_null(strstr(e.msg, "no/such/file"));
    str_release(&s);
    free(deep);
    free(big);
}

static void removes_trees_but_not_what_links_point_to(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char *tree = at("tree/a/b"), *outside = at("outside"), *link = at("tree/link"),
         *top = at("tree");
    assert_int_equal(dir_make(tree, 0755, &e), RC_OK);
    assert_int_equal(dir_make(tree, 0755, &e), RC_OK);
    assert_int_equal(dir_make(outside, 0755, &e), RC_OK);
    assert_int_equal(symlink(outside, link), 0);
    assert_int_equal(dir_remove(top, &e), RC_OK);
    assert_false(file_exists(top));
    assert_true(file_exists(outside));
    assert_int_equal(dir_remove(top, &e), RC_OK);
    free(tree);
    free(outside);
    free(link);
    free(top);
}

/* FIPS 180-2 appendix B.1, RFC 2202 case 2. */
static void hashes_equal_published_vectors(void **state)
{
    (void)state;
    char hex[SHA256_HEX];
    struct err e = ERR_INIT;
    hash_sha256("abc", 3, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    char *path = at("abc");
    assert_int_equal(file_write(path, "abc", 3, 0644, &e), RC_OK);
    assert_int_equal(hash_sha256_file(path, hex, &e), RC_OK);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    free(path);
    unsigned char mac[20];
    static const unsigned char WANT[20] = {0xef, 0xfc, 0xdf, 0x6a, 0xe5, 0xeb, 0x2f, 0xa2, 0xd2,
        0x74, 0x16, 0xd5, 0xf1, 0x84, 0xdf, 0x9c, 0x25, 0x9a, 0x7c, 0x79};
    hash_hmac_sha1("Jefe", 4, "what do ya want for nothing?", 28, mac);
    assert_memory_equal(mac, WANT, 20);
}

static void an_append_that_does_not_fit_leaves_no_half_line(void **state)
{
    (void)state;
    struct rlimit whole, small;
    struct err e = ERR_INIT;
    char *path = at("lines");
    getrlimit(RLIMIT_FSIZE, &whole);
    small = whole;
    small.rlim_cur = 10; /* bytes; a limit acts like a full disk */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    enum rc first = file_append(path, "first\n", 6, 0600, &e);
    enum rc second = file_append(path, "second\n", 7, 0600, &e);
    setrlimit(RLIMIT_FSIZE, &whole);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(first, RC_OK);
    assert_int_equal(second, RC_IO);
    assert_content(path, "first\n");
    free(path);
}

int test_file(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_whole_or_not_at_all_and_leaves_no_second_file),
        cmocka_unit_test(follows_a_link_and_keeps_it),
        cmocka_unit_test(a_device_or_pipe_is_written_to_and_stays_what_it_is),
        cmocka_unit_test(refuses_folders_missing_places_and_large_files),
        cmocka_unit_test(removes_trees_but_not_what_links_point_to),
        cmocka_unit_test(hashes_equal_published_vectors),
        cmocka_unit_test(an_append_that_does_not_fit_leaves_no_half_line),
    };
    return cmocka_run_group_tests_name("base/file", tests, set_up, tear_down);
}
