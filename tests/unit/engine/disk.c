/* The slab on disk holds what was written, however it is striped and reached; what goes wrong is
 * named. */
#include "engine/disk.h"

#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "planner/schedule.h"

enum { DIRS = 3, PAGES = 1300, ROUNDS = 40 }; /* five stripes and a bit */

static char root[] = "/tmp/berth-disk-XXXXXX";
static char names[DIRS][64];
static const char *dirs[DIRS];

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(root))
        return -1;
    for (int i = 0; i < DIRS; i++) {
        snprintf(names[i], sizeof(names[i]), "%s/%d", root, i);
        dirs[i] = names[i];
        if (mkdir(names[i], 0700) != 0)
            return -1;
    }
    return 0;
}

static int tear_down(void **state)
{
    struct err e;
    (void)state;
    dir_remove(root, &e);
    return 0;
}

static uint64_t picks = 7;

static int64_t pick(int64_t n)
{
    picks = picks * 6364136223846793005ULL + 1442695040888963407ULL;
    return (int64_t)((picks >> 33) % (uint64_t)n);
}

static char *pages(int64_t n)
{
    return aligned_alloc(DISK_ALIGN, (size_t)n * DISK_ALIGN);
}

/* Two stretches that do not meet, read or written; what is read must be what was written last. */
static void one_round(struct disk *d, char *mirror, char *memory)
{
    struct err e = ERR_INIT;
    int64_t border = 1 + pick(PAGES - 1);
    const int64_t from[] = {pick(border), border}, end[] = {border, PAGES - pick(PAGES - border)};
    struct disk_part part[2];
    for (int i = 0; i < 2; i++) {
        int64_t at = from[i] * DISK_ALIGN;
        part[i] = (struct disk_part){
            disk_base(d) + at, memory + at, (end[i] - from[i]) * DISK_ALIGN, pick(2) == 1};
        for (int64_t k = 0; part[i].is_write && k < part[i].bytes; k += 64)
            memory[at + k] = mirror[at + k] = (char)pick(256);
        if (!part[i].is_write)
            memset(memory + at, 0x55, (size_t)part[i].bytes);
        else
            memcpy(mirror + at, memory + at, (size_t)part[i].bytes);
    }
    assert_int_equal(disk_move(d, part, 2, &e), RC_OK);
    for (int i = 0; i < 2; i++)
        assert_memory_equal(
            part[i].memory, mirror + (part[i].memory - memory), (size_t)part[i].bytes);
}

static void what_is_read_is_what_was_written(void **state)
{
    (void)state;
    char *mirror = pages(PAGES), *memory = pages(PAGES);
    for (int way = 0; way < 8; way++) {
        struct err e = ERR_INIT;
        struct disk *d = NULL;
        struct disk_options o = {.dirs = dirs,
            .n_dirs = way & 4 ? DIRS : 1,
            .bytes = (int64_t)PAGES * DISK_ALIGN,
            .has_no_uring = way & 1,
            .has_no_direct = way & 2};
        if (disk_open(&d, &o, &e))
            fail_msg("%s", e.msg);
        assert_true(!(way & 1) || strstr(disk_way(d), "threads"));
        assert_true(!(way & 2) || strstr(disk_way(d), "page cache"));
        memset(mirror, 0, (size_t)PAGES * DISK_ALIGN);
        memset(memory, 0, (size_t)PAGES * DISK_ALIGN);
        for (int i = 0; i < ROUNDS; i++)
            one_round(d, mirror, memory);
        disk_close(d);
    }
    free(mirror);
    free(memory);
}

static void scratch_files_have_no_name(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct disk *d = NULL;
    struct disk_options o = {.dirs = dirs, .n_dirs = DIRS, .bytes = 8 << 20};
    assert_int_equal(disk_open(&d, &o, &e), RC_OK);
    for (int i = 0; i < DIRS; i++)
        assert_int_equal(rmdir(dirs[i]), 0);
    disk_close(d);
    for (int i = 0; i < DIRS; i++)
        assert_int_equal(mkdir(dirs[i], 0700), 0);
}

static void too_little_room_is_refused_by_how_much(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct disk *d = NULL;
    struct disk_options o = {.dirs = dirs, .n_dirs = 1, .bytes = 1LL << 46};
    assert_int_equal(disk_open(&d, &o, &e), RC_LIMIT);
    assert_non_null(strstr(e.msg, dirs[0]));
    assert_non_null(strstr(e.msg, "needs 64.0 TiB there"));
    assert_non_null(strstr(e.msg, "TiB too few"));
    const char *const missing[] = {"/nowhere/at/all"};
    o.dirs = missing;
    o.bytes = 1 << 20;
    assert_int_equal(disk_open(&d, &o, &e), RC_IO);
    assert_non_null(strstr(e.msg, "/nowhere/at/all"));
    assert_null(d);
}

/* A limit on file sizes fails a write into room that is reserved, as a broken drive would. */
static void fail_to_write(bool has_no_uring)
{
    struct err e = ERR_INIT;
    struct disk *d = NULL;
    struct rlimit small = {DISK_STRIPE_BYTES, DISK_STRIPE_BYTES};
    struct disk_options o = {
        .dirs = dirs, .n_dirs = 2, .bytes = 8 << 20, .has_no_uring = has_no_uring};
    char *memory = pages(512);
    memset(memory, 1, 2 << 20);
    signal(SIGXFSZ, SIG_IGN);
    if (disk_open(&d, &o, &e) || setrlimit(RLIMIT_FSIZE, &small))
        _exit(2);
    struct disk_part fits = {disk_base(d), memory, 2 << 20, true};
    struct disk_part part = {disk_base(d) + (3 << 20), memory, 1 << 20, true};
    if (disk_move(d, &fits, 1, &e))
        _exit(3);
    if (disk_move(d, &part, 1, &e) != RC_IO)
        _exit(4);
    fprintf(stdout, "%s", e.msg);
    fflush(stdout);
    /* what failed once does not keep others from trying */
    _exit(disk_move(d, &fits, 1, &e) ? 5 : 0);
}

static void a_write_that_fails_names_folder_offset_and_errno(void **state)
{
    (void)state;
    for (int has_no_uring = 0; has_no_uring < 2; has_no_uring++) {
        int fds[2], status = 0;
        char text[ERR_MSG_MAX] = "", want[128];
        assert_int_equal(pipe(fds), 0);
        pid_t child = fork();
        if (child == 0) {
            dup2(fds[1], STDOUT_FILENO);
            fail_to_write(has_no_uring);
        }
        close(fds[1]);
        waitpid(child, &status, 0);
        assert_true(read(fds[0], text, sizeof(text) - 1) > 0);
        close(fds[0]);
        assert_int_equal(WEXITSTATUS(status), 0);
        snprintf(want, sizeof(want),
            "cannot write 1048576 bytes at offset 1048576 of the scratch file in '%s'", dirs[1]);
        if (!strstr(text, want) || !strstr(text, "(errno 27)"))
            fail_msg("%s", text);
    }
}

static void the_rate_is_measured(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct disk *d = NULL;
    double rate = 0;
    char *memory = pages(1024);
    struct disk_options o = {.dirs = dirs, .n_dirs = 2, .bytes = 64 << 20};
    memset(memory, 0, 4 << 20);
    assert_int_equal(disk_open(&d, &o, &e), RC_OK);
    assert_int_equal(disk_measure(d, memory, 4 << 20, &rate, &e), RC_OK);
    assert_true(rate > 0);
    disk_close(d);
    free(memory);
}

int test_disk(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_read_is_what_was_written),
        cmocka_unit_test(scratch_files_have_no_name),
        cmocka_unit_test(too_little_room_is_refused_by_how_much),
        cmocka_unit_test(a_write_that_fails_names_folder_offset_and_errno),
        cmocka_unit_test(the_rate_is_measured),
    };
    return cmocka_run_group_tests_name("engine/disk", tests, set_up, tear_down);
}
