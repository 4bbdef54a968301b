/* Order and content of training data. */
#include "engine/data.h"

#include <math.h>
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
#include "engine/blend.h"
#include "engine/random.h"
#include "engine/token_writer.h"

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
    struct data_source source = {.path = path, .weight = 1};
    enum rc rc = kind ? data_kind_parse(kind, &source.kind, e) : RC_OK;
    struct data_options o = {.sources = &source, .n = 1, .seq = seq, .vocab = vocab, .seed = 3};
    return rc ? rc : data_open(d, &o, e);
}

static enum rc sample_of(
    const struct data *d, int64_t position, int32_t *tokens, int32_t *targets, struct err *e)
{
    struct micro_data out = {tokens, targets, NULL};
    return data_sample(d, position, &out, e);
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
        assert_int_equal(sample_of(d, i, tokens, targets, &e), RC_OK);
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
    assert_int_equal(sample_of(d, 0, x, y, &e), RC_INVALID);
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
    assert_non_null(
        strstr(e.msg, "cut short: it ends at byte 1024, by its header it should at 3024"));
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
    assert_int_equal(sample_of(d, 0, x, y, &e), RC_OK);
    assert_int_equal(x[4], 500);
    data_close(d);
    assert_int_equal(open_file(&d, "bytes", 8, 50257, &e), RC_OK);
    assert_int_equal(data_samples(d), 2); /* of 18 tokens */
    data_close(d);
    unlink(path);
}

/* --- several sources --- */

enum { BLEND_SEQ = 3 };

static char *numbers_file(int which, int samples, uint16_t first)
{
    char *name = base_printf("/tmp/berth-data-%d-%d.u16", (int)getpid(), which);
    FILE *f = fopen(name, "wb");
    for (int i = 0; i < samples * BLEND_SEQ + 1; i++) {
        uint16_t id = (uint16_t)(first + i / BLEND_SEQ);
        fwrite(&id, 2, 1, f);
    }
    fclose(f);
    return name;
}

static void a_blend_takes_each_source_by_its_weight_and_all_of_it(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct data *d;
    struct data_source sources[3] = {{.path = numbers_file(0, 10, 0), .weight = 0.6},
        {.path = numbers_file(1, 4, 100), .weight = 0.3},
        {.path = numbers_file(2, 50, 200), .weight = 0.1}};
    struct data_options o = {
        .sources = sources, .n = 3, .seq = BLEND_SEQ, .vocab = 1000, .seed = 9};
    assert_int_equal(data_open(&d, &o, &e), RC_OK);
    assert_int_equal(data_samples(d), 64);
    int taken[3] = {0}, seen[300] = {0};
    for (int64_t c = 0; c < 200; c++) {
        int32_t x[BLEND_SEQ], y[BLEND_SEQ];
        assert_int_equal(sample_of(d, c, x, y, &e), RC_OK);
        taken[x[0] / 100]++;
        seen[x[0]]++;
        /* never more than one sample off the share, after any number of samples */
        for (int i = 0; i < 3; i++)
            assert_true(fabs(taken[i] - sources[i].weight * (double)(c + 1)) < 1 + 1e-9);
    }
    assert_int_equal(taken[0], 120);
    assert_int_equal(taken[1], 60);
    assert_int_equal(taken[2], 20);
    for (int i = 0; i < 10; i++)
        assert_int_equal(seen[i], 12); /* whole epochs of 10 samples */
    for (int i = 0; i < 4; i++)
        assert_int_equal(seen[100 + i], 15);
    data_close(d);
    for (int i = 0; i < 3; i++) {
        unlink(sources[i].path);
        free(sources[i].path);
    }
}

/* The definition, position by position, with the weights as they are written. */
static void the_source_of_a_position_is_the_one_furthest_behind(void **state)
{
    (void)state;
    static const double rows[][4] = {
        {7, 3}, {1, 1, 1}, {0.25, 0.75}, {5, 1, 1, 13}, {0.7, 0.2, 0.1}, {1e6, 1}, {3.3, 1.1}};
    for (size_t r = 0; r < BASE_COUNT(rows); r++) {
        struct err e = ERR_INIT;
        struct blend b;
        size_t n = 0;
        double sum = 0;
        int64_t taken[4] = {0};
        while (n < 4 && rows[r][n] > 0)
            sum += rows[r][n++];
        assert_int_equal(blend_make(&b, rows[r], n, &e), RC_OK);
        for (int64_t c = 0; c < 3000; c++) {
            size_t source;
            int64_t sample;
            double most = -1e9;
            blend_pick(&b, c, &source, &sample);
            for (size_t i = 0; i < n; i++) {
                double behind = rows[r][i] / sum * (double)(c + 1) - (double)taken[i];
                most = behind > most ? behind : most;
            }
            double chosen = rows[r][source] / sum * (double)(c + 1) - (double)taken[source];
            assert_true(chosen > most - 1e-3);
            assert_int_equal(sample, taken[source]++);
        }
        blend_release(&b);
    }
}

static void irrational_weights_are_kept_to_a_millionth(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct blend b;
    double weights[] = {sqrt(2), M_PI, 1e-3};
    assert_int_equal(blend_make(&b, weights, 3, &e), RC_OK);
    assert_int_equal(b.period, BLEND_MAX_PERIOD);
    double sum = weights[0] + weights[1] + weights[2];
    for (int i = 0; i < 3; i++)
        assert_float_equal(b.share[i] / (double)b.period, weights[i] / sum, 1e-6);
    blend_release(&b);
    double tiny[] = {1, 1e-9};
    assert_int_equal(blend_make(&b, tiny, 2, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "millionth"));
}

/* --- loss masks --- */

static void open_masked(struct data **d, const void *mask, size_t n, enum rc want, struct err *e)
{
    static char mask_path[64];
    uint16_t tokens[] = {5, 6, 7, 8, 9, 10, 11};
    write_file(tokens, sizeof(tokens), ".u16");
    snprintf(mask_path, sizeof(mask_path), "/tmp/berth-data-%d.mask", (int)getpid());
    FILE *f = fopen(mask_path, "wb");
    fwrite(mask, 1, n, f);
    fclose(f);
    struct data_source source = {.path = path, .mask = mask_path, .weight = 1};
    struct data_options o = {.sources = &source, .n = 1, .seq = 6, .vocab = 50, .seed = 3};
    assert_int_equal(data_open(d, &o, e), want);
    unlink(mask_path);
    unlink(path);
}

static void check_targets(struct data *d, const int32_t want[6])
{
    struct err e = ERR_INIT;
    int32_t x[6], y[6];
    int64_t n = 0;
    assert_int_equal(sample_of(d, 0, x, y, &e), RC_OK);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(x[i], 5 + i);
        assert_int_equal(y[i], want[i]);
        n += want[i] >= 0;
    }
    assert_int_equal(data_targets(d, 0), n);
    data_close(d);
}

static void what_a_mask_leaves_out_is_no_target(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct data *d;
    const unsigned char bytes[] = {1, 0, 0, 1, 1, 0, 1};
    const int32_t labels[] = {-100, -100, 7, -100, 9, 10, -100};
    open_masked(&d, bytes, sizeof(bytes), RC_OK, &e);
    check_targets(d, (const int32_t[]){-1, -1, 8, 9, -1, 11});
    open_masked(&d, labels, sizeof(labels), RC_OK, &e);
    check_targets(d, (const int32_t[]){-1, 7, -1, 9, 10, -1});
}

static void a_mask_that_does_not_fit_its_tokens_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct data *d;
    int32_t x[6], y[6];
    const unsigned char odd[] = {1, 0, 0, 1, 2, 0, 1};
    const int32_t wrong[] = {-100, -100, 7, -100, 9, 11, -100};
    open_masked(&d, odd, 5, RC_INVALID, &e);
    assert_non_null(strstr(e.msg, "has 5 bytes"));
    open_masked(&d, odd, sizeof(odd), RC_OK, &e);
    assert_int_equal(sample_of(d, 0, x, y, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "byte 4 is 2"));
    data_close(d);
    open_masked(&d, wrong, sizeof(wrong), RC_OK, &e);
    assert_int_equal(sample_of(d, 0, x, y, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "label 5 (byte 20) is 11"));
    data_close(d);
}

/* The sample at c is one of those that the file has, with these targets. */
static void check_sample(
    struct data *d, int64_t c, int64_t seq, const uint32_t *ids, const int32_t *want, int *seen)
{
    struct err e = ERR_INIT;
    int32_t x[9], y[9];
    int64_t n = 0, k = 0;
    bool is_found = false;
    assert_int_equal(sample_of(d, c, x, y, &e), RC_OK);
    for (; (k + 1) * seq <= 9 && !is_found; k++) {
        is_found = !seen[k];
        for (int64_t t = 0; t < seq; t++)
            is_found &= (uint32_t)x[t] == ids[k * seq + t] && y[t] == want[k * seq + t];
    }
    assert_true(is_found);
    seen[k - 1] = 1;
    for (int64_t t = 0; t < seq; t++)
        n += y[t] >= 0;
    assert_int_equal(data_targets(d, c), n);
}

static void write_tokens(const uint32_t *ids, int n, bool has_documents)
{
    struct err e = ERR_INIT;
    struct token_writer *w;
    struct token_writer_options o = {.path = path, .kind = DATA_BERTH, .vocab = 500};
    snprintf(path, sizeof(path), "/tmp/berth-data-%d.tok", (int)getpid());
    assert_int_equal(token_writer_open(&w, &o, &e), RC_OK);
    for (int i = 0; i < n; i++) {
        assert_int_equal(token_writer_add(w, &ids[i], NULL, 1, &e), RC_OK);
        if (has_documents && ids[i] == 0)
            assert_int_equal(token_writer_end_document(w, &e), RC_OK);
    }
    assert_int_equal(token_writer_finish(w, &e), RC_OK);
    token_writer_close(w);
}

/* Behind an id of 0, and at the start of a sample, another document begins. */
static void check_positions(const struct data *d, int64_t c, int64_t seq)
{
    struct err e = ERR_INIT;
    int32_t x[9], y[9], at[9];
    struct micro_data out = {x, y, at};
    assert_int_equal(data_sample(d, c, &out, &e), RC_OK);
    for (int64_t t = 0; t < seq; t++)
        assert_int_equal(at[t], t == 0 || x[t - 1] == 0 ? 0 : at[t - 1] + 1);
}

/* Documents of 1, 3 and 6 tokens; ids 0 end them. */
static void the_first_token_of_a_document_apart_is_no_target(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct data *d;
    const uint32_t ids[] = {0, 5, 6, 0, 7, 8, 9, 10, 11, 0};
    const int32_t want[9] = {-1, 6, 0, -1, 8, 9, 10, 11, 0};
    for (int is_recorded = 0; is_recorded < 2; is_recorded++) {
        write_tokens(ids, 10, is_recorded);
        struct data_source source = {
            .path = path, .weight = 1, .is_apart = true, .eos = is_recorded ? -1 : 0};
        for (int64_t seq = 1; seq <= 9; seq++) {
            int seen[9] = {0};
            struct data_options o = {.sources = &source, .n = 1, .seq = seq, .vocab = 20};
            assert_int_equal(data_open(&d, &o, &e), RC_OK);
            for (int64_t c = 0; c < data_samples(d); c++) {
                check_sample(d, c, seq, ids, want, seen);
                check_positions(d, c, seq);
            }
            data_close(d);
        }
    }
    write_tokens(ids, 10, false);
    struct data_source source = {.path = path, .weight = 1, .is_apart = true, .eos = -1};
    struct data_options o = {.sources = &source, .n = 1, .seq = 1, .vocab = 20};
    assert_int_equal(data_open(&d, &o, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "needs eos=ID"));
    unlink(path);
}

/* A file that says its largest id is refused before the first step. */
static void a_vocabulary_too_small_for_the_file_is_told_at_once(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct data *d;
    write_tokens((const uint32_t[]){1, 2, 99, 3, 4, 5}, 6, false);
    assert_int_equal(open_file(&d, "auto", 2, 99, &e), RC_INVALID);
    assert_non_null(strstr(e.msg, "holds the id 99, outside the vocabulary of 99"));
    assert_int_equal(open_file(&d, "auto", 2, 100, &e), RC_OK); /* though 500 might have been */
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
        cmocka_unit_test(a_blend_takes_each_source_by_its_weight_and_all_of_it),
        cmocka_unit_test(the_source_of_a_position_is_the_one_furthest_behind),
        cmocka_unit_test(irrational_weights_are_kept_to_a_millionth),
        cmocka_unit_test(the_first_token_of_a_document_apart_is_no_target),
        cmocka_unit_test(a_vocabulary_too_small_for_the_file_is_told_at_once),
        cmocka_unit_test(what_a_mask_leaves_out_is_no_target),
        cmocka_unit_test(a_mask_that_does_not_fit_its_tokens_is_refused),
    };
    return cmocka_run_group_tests_name("engine/data", tests, NULL, NULL);
}
