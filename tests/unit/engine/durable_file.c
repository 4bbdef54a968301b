/* Files of checkpoints: every size to the byte, past the page cache and through it, and a disk that
 * is full is known before anything is written. */
#include "engine/durable_file.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"

enum { MAX_BYTES = DURABLE_PIECE_BYTES + 3 * DURABLE_ALIGN };

static unsigned char *aligned_bytes(void)
{
    unsigned char *p = aligned_alloc(DURABLE_ALIGN, MAX_BYTES);
    assert_non_null(p);
    for (size_t i = 0; i < MAX_BYTES; i++)
        p[i] = (unsigned char)(i * 2654435761u >> 13);
    return p;
}

static enum rc write_all(const char *path, const unsigned char *bytes, size_t n, struct err *e)
{
    struct durable_file f;
    enum rc rc = durable_create(&f, path, n, e);
    for (size_t at = 0; at < n && !rc; at += DURABLE_PIECE_BYTES)
        rc = durable_write(
            &f, bytes + at, n - at < DURABLE_PIECE_BYTES ? n - at : DURABLE_PIECE_BYTES, e);
    return rc ? rc : durable_finish(&f, e);
}

static void check_sizes(const char *dir)
{
    static const size_t SIZES[] = {0, 1, 511, 4095, 4096, 4097, 100000, DURABLE_PIECE_BYTES - 1,
        DURABLE_PIECE_BYTES, DURABLE_PIECE_BYTES + 1, MAX_BYTES};
    unsigned char *bytes = aligned_bytes();
    char *path = base_printf("%s/berth-durable-%ld", dir, (long)getpid());
    for (size_t i = 0; i < BASE_COUNT(SIZES); i++) {
        struct err e = ERR_INIT;
        struct str back = STR_INIT;
        if (write_all(path, bytes, SIZES[i], &e))
            fail_msg("%zu bytes: %s", SIZES[i], e.msg);
        assert_int_equal(file_read(&back, path, 1 << 30, &e), RC_OK);
        assert_int_equal(back.len, SIZES[i]);
        if (SIZES[i])
            assert_memory_equal(back.p, bytes, SIZES[i]);
        str_release(&back);
    }
    unlink(path);
    free(path);
    free(bytes);
}

static void every_size_arrives_to_the_byte(void **state)
{
    (void)state;
    check_sizes("/tmp");
    check_sizes("/dev/shm");
}

/* What an older, longer file of that name held does not stay. */
static void a_shorter_file_replaces_a_longer_one(void **state)
{
    (void)state;
    unsigned char *bytes = aligned_bytes();
    struct err e = ERR_INIT;
    char *path = base_printf("/tmp/berth-durable-%ld", (long)getpid());
    assert_int_equal(write_all(path, bytes, MAX_BYTES, &e), RC_OK);
    assert_int_equal(write_all(path, bytes, 10, &e), RC_OK);
    assert_int_equal(file_size(path), 10);
    unlink(path);
    free(path);
    free(bytes);
}

static void a_limit_is_met_before_the_first_byte(void **state)
{
    (void)state;
    struct rlimit old, tight;
    struct err e = ERR_INIT;
    struct durable_file f;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    tight = old;
    tight.rlim_cur = 50000;
    setrlimit(RLIMIT_FSIZE, &tight);
    char *path = base_printf("/tmp/berth-durable-%ld", (long)getpid());
    enum rc rc = durable_create(&f, path, 50001, &e);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(rc, RC_IO);
    assert_non_null(strstr(e.msg, "File too large"));
    assert_false(file_exists(path));
    free(path);
}

static void bytes_that_are_missing_are_an_error(void **state)
{
    (void)state;
    unsigned char *bytes = aligned_bytes();
    struct err e = ERR_INIT;
    struct durable_file f;
    char *path = base_printf("/tmp/berth-durable-%ld", (long)getpid());
    assert_int_equal(durable_create(&f, path, 5000, &e), RC_OK);
    assert_int_equal(durable_write(&f, bytes, 4096, &e), RC_OK);
    assert_int_equal(durable_finish(&f, &e), RC_FAILED);
    assert_non_null(strstr(e.msg, "got 4096 of 5000 bytes"));
    assert_false(file_exists(path));
    free(path);
    free(bytes);
}

/* A device that gives an error for every write. */
static void an_error_of_the_device_is_told(void **state)
{
    (void)state;
    unsigned char *bytes = aligned_bytes();
    struct err e = ERR_INIT;
    struct durable_file f = {.path = base_strdup("/dev/full"), .bytes = 4096};
    FILE *full = fopen("/dev/full", "w");
    if (!full)
        skip();
    f.fd = fileno(full);
    assert_int_equal(durable_write(&f, bytes, 4096, &e), RC_IO);
    assert_string_equal(e.msg, "cannot write '/dev/full': No space left on device");
    fclose(full);
    free(f.path);
    free(bytes);
}

static void file_systems_of_other_machines_are_known(void **state)
{
    (void)state;
    assert_true(durable_is_remote(0x6969));      /* NFS */
    assert_true(durable_is_remote(0x0bd00bd0));  /* Lustre */
    assert_true(durable_is_remote(0x65735546));  /* FUSE */
    assert_false(durable_is_remote(0xef53));     /* ext4 */
    assert_false(durable_is_remote(0x58465342)); /* XFS */
}

int test_durable_file(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_arrives_to_the_byte),
        cmocka_unit_test(a_shorter_file_replaces_a_longer_one),
        cmocka_unit_test(a_limit_is_met_before_the_first_byte),
        cmocka_unit_test(bytes_that_are_missing_are_an_error),
        cmocka_unit_test(an_error_of_the_device_is_told),
        cmocka_unit_test(file_systems_of_other_machines_are_known),
    };
    return cmocka_run_group_tests_name("engine/durable_file", tests, NULL, NULL);
}
