/* Order and content of training data. */
#include "engine/data.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/random.h"

static char path[64];

static void write_file(const void *bytes, size_t n, const char *suffix)
{
    if (path[0])
        unlink(path);
    snprintf(path, sizeof(path), "/tmp/berth-data-%d%s", (int)getpid(), suffix);
    FILE *f = fopen(path, "wb");
    fwrite(bytes, 1, n, f);
    fclose(f);
}

static enum rc open_file(
    struct data **d, const char *kind, int64_t seq, int64_t vocab, struct err *e)
{
    struct data_options o = {.path = path, .kind = kind, .seq = seq, .vocab = vocab, .seed = 3};
    return data_open(d, &o, e);
}

static void the_order_is_a_permutation_for_every_size_and_key(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 300; n += n < 20 ? 1 : 37)
        for (uint64_t key = 0; key < 5; key++) {
            unsigned char *seen = calloc(n, 1);
            for (uint64_t i = 0; i < n; i++) {
                uint64_t k = random_permute(random_key(key, 1), i, n);
                assert_true(k < n && !seen[k]);
                seen[k] = 1;
            }
            free(seen);
        }
}

static void every_sample_of_an_epoch_comes_once_and_epochs_differ(void **state)
{
    (void)state;
    enum { SEQ = 4, SAMPLES = 25 };
    unsigned char text[SEQ * SAMPLES + 1];
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (unsigned char)(i / SEQ);
    write_file(text, sizeof(text), ".txt");
    struct err e = ERR_INIT;
    struct data *d;
    assert_int_equal(open_file(&d, "auto", SEQ, 256, &e), RC_OK);
    assert_int_equal(data_samples(d), SAMPLES);
    int order[2][SAMPLES], seen[SAMPLES] = {0}, moved = 0;
    for (int i = 0; i < 2 * SAMPLES; i++) {
        int32_t tokens[SEQ], targets[SEQ];
        assert_int_equal(data_sample(d, i, tokens, targets, &e), RC_OK);
        for (int t = 0; t + 1 < SEQ; t++)
            assert_int_equal(targets[t], tokens[t + 1]);
        assert_int_equal(targets[SEQ - 1], tokens[0] + 1); /* the next sample's first token */
        order[i / SAMPLES][i % SAMPLES] = tokens[0];
        seen[tokens[0]]++;
    }
    for (int i = 0; i < SAMPLES; i++) {
        assert_int_equal(seen[i], 2);
        moved += order[0][i] != order[1][i];
    }
    assert_true(moved > SAMPLES / 2);
    data_close(d);
    unlink(path);
}

static void a_token_outside_the_vocabulary_is_named_by_its_place(void **state)
{
    (void)state;
    uint16_t tokens[] = {1, 2, 3, 4, 500, 6, 7, 8, 9};
    write_file(tokens, sizeof(tokens), ".u16");
    struct err e = ERR_INIT;
    struct data *d;
    assert_int_equal(open_file(&d, "auto", 8, 300, &e), RC_OK);
    int32_t x[8], y[8];
    assert_int_equal(data_sample(d, 0, x, y, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "token 4 (byte 8) is 500, outside the vocabulary of 300"));
    data_close(d);
    unlink(path);
}

static void broken_files_are_refused_with_a_reason(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct data *d;
    uint32_t header[256] = {20240520, 1, 1000};
    write_file(header, sizeof(header), ".bin");
    assert_int_equal(open_file(&d, "auto", 8, 50257, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "cut short"));
    write_file("abc", 3, ".u16");
    assert_int_equal(open_file(&d, "auto", 1, 50257, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "not a multiple of 2"));
    write_file("abc", 3, ".txt");
    assert_int_equal(open_file(&d, "auto", 8, 256, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "fewer than one sequence"));
    assert_int_equal(open_file(&d, "auto", 1, 100, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "vocabulary of 256"));
    assert_int_equal(open_file(&d, "tokens", 1, 256, &e), RC_INVALID);
    write_file("", 0, ".txt");
    assert_int_equal(open_file(&d, "auto", 1, 256, &e), RC_INVALID);
    unlink(path);
    assert_int_equal(open_file(&d, "auto", 1, 256, &e), RC_NOT_FOUND);
}

/* nanoGPT writes uint16 to train.bin: as bytes it would train, on nonsense. */
static void a_bin_file_of_unknown_width_is_refused_until_its_kind_is_said(void **state)
{
    (void)state;
    uint16_t tokens[] = {1, 2, 3, 4, 500, 6, 7, 8, 9};
    write_file(tokens, sizeof(tokens), ".bin");
    struct err e = ERR_INIT;
    struct data *d;
    assert_int_equal(open_file(&d, "auto", 8, 50257, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "uint16 (nanoGPT), uint32 or bytes"));
    assert_int_equal(open_file(&d, NULL, 8, 50257, &e), RC_INVALID);
    assert_int_equal(open_file(&d, "uint16", 8, 50257, &e), RC_OK);
    assert_int_equal(data_samples(d), 1); /* of 9 tokens */
    int32_t x[8], y[8];
    assert_int_equal(data_sample(d, 0, x, y, &e), RC_OK);
    assert_int_equal(x[4], 500);
    data_close(d);
    assert_int_equal(open_file(&d, "bytes", 8, 50257, &e), RC_OK);
    assert_int_equal(data_samples(d), 2); /* of 18 tokens */
    data_close(d);
    unlink(path);
}

int test_data(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_is_a_permutation_for_every_size_and_key),
        cmocka_unit_test(every_sample_of_an_epoch_comes_once_and_epochs_differ),
        cmocka_unit_test(a_token_outside_the_vocabulary_is_named_by_its_place),
        cmocka_unit_test(broken_files_are_refused_with_a_reason),
        cmocka_unit_test(a_bin_file_of_unknown_width_is_refused_until_its_kind_is_said),
    };
    return cmocka_run_group_tests_name("engine/data", tests, NULL, NULL);
}
