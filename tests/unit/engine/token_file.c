/* Files of tokens: Megatron's as its own library writes them (tests/golden/make_megatron.py), the
 * headers of the others byte by byte, and what is made of damaged ones. */
#include "engine/token_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "engine/token_writer.h"

#define GOLDEN "tests/golden/megatron/"

static char *scratch(const char *suffix)
{
    return base_printf("/tmp/berth-token-file-%d%s", (int)getpid(), suffix);
}

static void check_rc(enum rc got, enum rc want, const struct err *e)
{
    if (got != want)
        fail_msg("rc %d, want %d: %s", (int)got, (int)want, e->msg);
}

/* --- Megatron --- */

static void megatrons_files_are_read_in_every_type(void **state)
{
    (void)state;
    static const char *const types[] = {"uint8", "int8", "int16", "uint16", "int32", "int64"};
    static const int64_t ends[] = {5, 6, 13};
    for (size_t k = 0; k < BASE_COUNT(types); k++) {
        struct err e = ERR_INIT;
        struct token_file *f;
        int32_t ids[13];
        char *path = base_printf(GOLDEN "%s.bin", types[k]);
        check_rc(token_file_open(&f, path, DATA_AUTO, &e), RC_OK, &e);
        const struct token_file_info *info = token_file_info(f);
        assert_int_equal(info->kind, DATA_MEGATRON);
        assert_int_equal(info->tokens, 13);
        assert_int_equal(info->sequences, 6);
        assert_int_equal(info->documents, 3);
        for (int i = 0; i < 3; i++)
            assert_int_equal(token_file_document_end(f, i), ends[i]);
        check_rc(token_file_read(f, 0, 13, 18, ids, &e), RC_OK, &e);
        for (int i = 0; i < 13; i++)
            assert_int_equal(ids[i], 5 + i);
        assert_int_equal(token_file_read(f, 0, 13, 17, ids, &e), RC_INVALID);
        assert_non_null(strstr(e.msg, "token 12 (byte "));
        check_rc(token_file_check_index(f, &e), RC_OK, &e);
        token_file_close(f);
        free(path);
    }
}

static void assert_same_file(const char *a, const char *b)
{
    struct err e = ERR_INIT;
    struct str x = STR_INIT, y = STR_INIT;
    check_rc(file_read(&x, a, 1 << 20, &e), RC_OK, &e);
    check_rc(file_read(&y, b, 1 << 20, &e), RC_OK, &e);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(str_text(&x), str_text(&y), x.len);
    str_release(&x);
    str_release(&y);
}

/* Three documents of 5, 1 and 7 tokens from 5 on. */
static enum rc write_documents(const struct token_writer_options *o, struct err *e)
{
    static const int64_t ends[] = {5, 6, 13};
    struct token_writer *w;
    enum rc rc = token_writer_open(&w, o, e);
    if (rc)
        return rc;
    for (uint32_t i = 0, d = 0; i < 13 && !rc; i++) {
        uint32_t id = 5 + i;
        unsigned char counts = i % 3 != 0;
        rc = token_writer_add(w, &id, o->has_mask ? &counts : NULL, 1, e);
        if (!rc && i + 1 == ends[d]) {
            rc = token_writer_end_document(w, e);
            d++;
        }
    }
    if (!rc)
        rc = token_writer_finish(w, e);
    token_writer_close(w);
    return rc;
}

static void megatrons_files_are_written_as_megatron_writes_them(void **state)
{
    (void)state;
    static const struct {
        const char *golden;
        int64_t vocab;
    } rows[] = {{"whole-uint16", 50000}, {"whole-int32", 70000}};
    char *bin = scratch(".bin"), *idx = scratch(".idx");
    for (size_t i = 0; i < BASE_COUNT(rows); i++) {
        struct err e = ERR_INIT;
        struct token_writer_options o = {
            .path = bin, .kind = DATA_MEGATRON, .vocab = rows[i].vocab, .end_of_text = -1};
        char *want_bin = base_printf(GOLDEN "%s.bin", rows[i].golden);
        char *want_idx = base_printf(GOLDEN "%s.idx", rows[i].golden);
        check_rc(write_documents(&o, &e), RC_OK, &e);
        assert_same_file(bin, want_bin);
        assert_same_file(idx, want_idx);
        free(want_bin);
        free(want_idx);
    }
    unlink(bin);
    unlink(idx);
    free(bin);
    free(idx);
}

/* --- llm.c and plain numbers --- */

/* llm.c's dev/data/data_common.py: 256 int32, then the tokens. */
static void llmcs_headers_are_those_of_its_two_kinds(void **state)
{
    (void)state;
    static const struct {
        int64_t vocab;
        uint32_t header[3];
        size_t width;
    } rows[] = {{50257, {20240520, 1, 13}, 2}, {128256, {20240801, 7, 13}, 4}};
    char *path = scratch(".bin");
    for (size_t r = 0; r < BASE_COUNT(rows); r++) {
        struct err e = ERR_INIT;
        struct str s = STR_INIT;
        struct token_file *f;
        uint32_t header[256];
        struct token_writer_options o = {.path = path, .kind = DATA_LLMC, .vocab = rows[r].vocab};
        check_rc(write_documents(&o, &e), RC_OK, &e);
        check_rc(file_read(&s, path, 1 << 20, &e), RC_OK, &e);
        assert_int_equal(s.len, 1024 + 13 * rows[r].width);
        memcpy(header, str_text(&s), sizeof(header));
        assert_memory_equal(header, rows[r].header, sizeof(rows[r].header));
        for (int i = 3; i < 256; i++)
            assert_int_equal(header[i], 0);
        check_rc(token_file_open(&f, path, DATA_AUTO, &e), RC_OK, &e);
        assert_int_equal(token_file_info(f)->kind, DATA_LLMC);
        assert_int_equal(token_file_info(f)->token_bytes, rows[r].width);
        assert_int_equal(token_file_at(f, 12), 17);
        token_file_close(f);
        str_release(&s);
    }
    unlink(path);
    free(path);
}

static void numbers_that_do_not_fit_their_width_are_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct token_writer *w;
    char *path = scratch(".u16");
    const uint32_t ids[] = {1, 65535, 65536};
    struct token_writer_options o = {.path = path, .kind = DATA_UINT16, .vocab = 100000};
    check_rc(token_writer_open(&w, &o, &e), RC_OK, &e);
    assert_int_equal(token_writer_add(w, ids, NULL, 3, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "token 2 is 65536"));
    token_writer_close(w);
    assert_false(file_exists(path));
    free(path);
}

/* --- Berth's own --- */

static void own_files_keep_documents_mask_and_vocabulary(void **state)
{
    (void)state;
    static const int64_t ends[] = {5, 6, 13};
    char *path = scratch(".tok");
    for (int64_t vocab = 18; vocab < 100000; vocab += 70000)
        for (int has_mask = 0; has_mask < 2; has_mask++) {
            struct err e = ERR_INIT;
            struct token_file *f;
            struct token_writer_options o = {.path = path,
                .kind = DATA_BERTH,
                .vocab = vocab,
                .end_of_text = 9,
                .has_mask = has_mask};
            check_rc(write_documents(&o, &e), RC_OK, &e);
            check_rc(token_file_open(&f, path, DATA_AUTO, &e), RC_OK, &e);
            const struct token_file_info *info = token_file_info(f);
            assert_int_equal(info->kind, DATA_BERTH);
            assert_int_equal(info->token_bytes, vocab > 65536 ? 4 : 2);
            assert_int_equal(info->tokens, 13);
            assert_int_equal(info->ids_end, 18);
            assert_int_equal(info->end_of_text, 9);
            assert_int_equal(info->has_mask, has_mask);
            for (int i = 0; i < 3; i++)
                assert_int_equal(token_file_document_end(f, i), ends[i]);
            for (int i = 0; i < 13; i++) {
                assert_int_equal(token_file_at(f, i), 5 + i);
                assert_int_equal(token_file_counts(f, i), !has_mask || i % 3 != 0);
            }
            check_rc(token_file_check_index(f, &e), RC_OK, &e);
            token_file_close(f);
        }
    unlink(path);
    free(path);
}

/* Cut anywhere, a file is refused with the byte at which it ends or goes wrong. */
static void refuse_every_cut(const char *path, enum data_kind kind, size_t from)
{
    struct err e = ERR_INIT;
    struct str whole = STR_INIT;
    check_rc(file_read(&whole, path, 1 << 20, &e), RC_OK, &e);
    for (size_t n = from; n < whole.len; n++) {
        struct token_file *f;
        check_rc(file_write(path, str_text(&whole), n, 0600, &e), RC_OK, &e);
        assert_int_equal(token_file_open(&f, path, kind, &e), RC_INVALID);
        assert_null(f);
        if (!strstr(e.msg, "byte"))
            fail_msg("cut at %zu: '%s' names no byte", n, e.msg);
    }
    str_release(&whole);
}

static void files_that_are_cut_short_are_refused_with_the_byte(void **state)
{
    (void)state;
    char *path = scratch(".tok");
    for (int has_mask = 0; has_mask < 2; has_mask++) {
        struct err e = ERR_INIT;
        struct token_writer_options o = {
            .path = path, .kind = DATA_BERTH, .vocab = 20, .end_of_text = -1, .has_mask = has_mask};
        check_rc(write_documents(&o, &e), RC_OK, &e);
        refuse_every_cut(path, DATA_BERTH, 1);
    }
    unlink(path);
    free(path);
}

static void replace_byte(const char *path, size_t at, unsigned char value)
{
    FILE *f = fopen(path, "r+b");
    fseek(f, (long)at, SEEK_SET);
    fputc(value, f);
    fclose(f);
}

/* Files as Megatron's, damaged at one byte. */
static void damaged_indexes_are_refused_with_the_byte(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned char value;
        const char *says;
        bool is_found_late; /* only by looking through all of the index */
    } rows[] = {
        {0, 'X', "byte 0", false},
        {9, 2, "version 2 (byte 9)", false},
        {17, 6, "type 6 (byte 17)", false},
        {17, 5, "not a multiple of 8", false},
        {25, 1, "damaged (bytes 18 to 33)", false},
        {18, 200, "cut short", false},
        {54, 9, "(sequence 5 at byte 98)", false},
        {66, 9, "sequence 1 (byte 66)", true},
        {114, 9, "document 0 (byte 114)", true},
    };
    char *bin = scratch(".bin"), *idx = scratch(".idx");
    for (size_t i = 0; i < BASE_COUNT(rows); i++) {
        struct err e = ERR_INIT;
        struct str s = STR_INIT;
        struct token_file *f;
        check_rc(file_read(&s, GOLDEN "uint16.bin", 1 << 20, &e), RC_OK, &e);
        check_rc(file_write(bin, str_text(&s), s.len, 0600, &e), RC_OK, &e);
        str_reset(&s);
        check_rc(file_read(&s, GOLDEN "uint16.idx", 1 << 20, &e), RC_OK, &e);
        check_rc(file_write(idx, str_text(&s), s.len, 0600, &e), RC_OK, &e);
        str_release(&s);
        replace_byte(idx, rows[i].at, rows[i].value);
        enum rc rc = token_file_open(&f, bin, DATA_MEGATRON, &e);
        if (!rc && rows[i].is_found_late)
            rc = token_file_check_index(f, &e);
        token_file_close(f);
        check_rc(rc, RC_INVALID, &e);
        if (!strstr(e.msg, rows[i].says))
            fail_msg("'%s' does not say '%s'", e.msg, rows[i].says);
    }
    unlink(bin);
    unlink(idx);
    free(bin);
    free(idx);
}

static void an_unfinished_file_leaves_what_was_there(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct token_writer *w;
    struct str s = STR_INIT;
    uint32_t id = 7;
    char *path = scratch(".tok");
    check_rc(file_write(path, "before", 6, 0600, &e), RC_OK, &e);
    struct token_writer_options o = {.path = path, .kind = DATA_BERTH, .vocab = 20};
    check_rc(token_writer_open(&w, &o, &e), RC_OK, &e);
    check_rc(token_writer_add(w, &id, NULL, 1, &e), RC_OK, &e);
    token_writer_close(w);
    check_rc(file_read(&s, path, 100, &e), RC_OK, &e);
    assert_string_equal(str_text(&s), "before");
    str_release(&s);
    char *temporary = base_printf("%s.tmp-%d", path, (int)getpid());
    assert_false(file_exists(temporary));
    free(temporary);
    unlink(path);
    free(path);
}

static void a_kind_that_cannot_hold_it_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct token_writer *w;
    struct token_writer_options masked = {
        .path = "/tmp/x.bin", .kind = DATA_MEGATRON, .has_mask = 1};
    struct token_writer_options named = {.path = "/tmp/x.tok", .kind = DATA_MEGATRON};
    struct token_writer_options text = {.path = "/tmp/x.tok", .kind = DATA_BYTES};
    assert_int_equal(token_writer_open(&w, &masked, &e), RC_USAGE);
    assert_non_null(strstr(e.msg, "write kind berth"));
    assert_int_equal(token_writer_open(&w, &named, &e), RC_USAGE);
    assert_non_null(strstr(e.msg, "NAME.bin"));
    assert_int_equal(token_writer_open(&w, &text, &e), RC_USAGE);
    assert_null(w);
}

int test_token_file(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(megatrons_files_are_read_in_every_type),
        cmocka_unit_test(megatrons_files_are_written_as_megatron_writes_them),
        cmocka_unit_test(llmcs_headers_are_those_of_its_two_kinds),
        cmocka_unit_test(numbers_that_do_not_fit_their_width_are_refused),
        cmocka_unit_test(own_files_keep_documents_mask_and_vocabulary),
        cmocka_unit_test(files_that_are_cut_short_are_refused_with_the_byte),
        cmocka_unit_test(damaged_indexes_are_refused_with_the_byte),
        cmocka_unit_test(an_unfinished_file_leaves_what_was_there),
        cmocka_unit_test(a_kind_that_cannot_hold_it_is_refused),
    };
    return cmocka_run_group_tests_name("engine/token_file", tests, NULL, NULL);
}
