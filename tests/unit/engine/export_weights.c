/* What is exported is what the ranks hold, bit for bit, whatever the strategy; what is damaged is
 * not exported. That transformers loads it, tests/golden/check_exports.py sees. */
#include <dirent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "engine/checkpoint.h"
#include "engine/comm.h"
#include "engine/export_weights.h"
#include "engine/init.h"
#include "engine/safetensors.h"
#include "engine/weights.h"
#include "kernels/kernels.h"
#include "lib_ranks.h"
#include "lib_scratch.h"

static char *in_root(const char *name)
{
    return path_join(scratch, name);
}

static void fresh_root(void)
{
    struct err e = ERR_INIT;
    ranks_check(dir_remove(scratch, &e), &e);
    ranks_check(dir_make(scratch, 0755, &e), &e);
}

/* --- a checkpoint --- */

static void save(struct rank *r)
{
    struct err e = ERR_INIT;
    int host_of[8] = {0};
    char *dir = in_root("ckpt");
    struct checkpoint_options o = {.dir = dir, .host_of = host_of, .keep = 2, .collective_s = 60};
    struct checkpoint_info info = {.step = 7, .samples = 28, .seed = 5};
    struct checkpoint_report report;
    struct checkpoint *c;
    ranks_check(checkpoint_open(&c, r->x, &o, &e), &e);
    ranks_check(init_state(r->x, 5, &e), &e);
    ranks_train(r, 1, 2, NULL); /* norms and biases leave their neutral values */
    ranks_check(checkpoint_start(c, &info, &e), &e);
    ranks_check(checkpoint_end(c, true, &report, &e), &e);
    assert_true(checkpoint_close(c));
    free(dir);
}

struct comparison {
    const char *out;
    bool is_bf16;
};

static void expect_equal(const struct rank *r, const struct comparison *c, const float *got,
    const float *held, int64_t n, const char *what)
{
    if (!c->is_bf16) {
        if (memcmp(got, held, (size_t)n * sizeof(*got)) != 0)
            fail_msg("%s: not the values of rank %d", what, r->rank);
        return;
    }
    uint16_t *half = base_alloc((size_t)n * sizeof(*half));
    float *back = base_alloc((size_t)n * sizeof(*back));
    kernels_best()->fp32_to_bf16(NULL, half, held, n);
    kernels_best()->bf16_to_fp32(NULL, back, half, n);
    if (memcmp(got, back, (size_t)n * sizeof(*got)) != 0)
        fail_msg("%s: not the rounded values of rank %d", what, r->rank);
    free(half);
    free(back);
}

/* Each rank compares what it holds with that part of the export. */
static void compare_share(struct rank *r, const struct comparison *c)
{
    struct err e = ERR_INIT;
    struct weights *w;
    const struct schedule *s = r->schedule;
    ranks_check(weights_open(&w, c->out, &s->model, &e), &e);
    for (int unit = 0; unit < s->n_units; unit++) {
        struct state_view v = executor_state(r->x, unit, STATE_MASTER);
        for (int i = 0; i < s->unit[unit].n; i++) {
            const struct tensor *t = &s->unit[unit].tensor[i];
            int64_t first = t->offset > v.first ? t->offset : v.first;
            int64_t end = t->offset + t->rows * t->cols;
            char name[128];
            end = end < v.first + v.count ? end : v.first + v.count;
            if (first >= end)
                continue;
            float *got = base_alloc((size_t)(end - first) * sizeof(*got));
            ranks_check(
                weights_read(w, unit, t->role, first - t->offset, end - first, got, &e), &e);
            expect_equal(r, c, got, v.data + (first - v.first), end - first,
                model_tensor_name(&s->model, unit, t->role, name));
            free(got);
        }
    }
    weights_close(w);
}

static enum rc export(
    const char *out, bool is_bf16, int64_t file_bytes, struct exported *result, struct err *e) {
    char *checkpoint = in_root("ckpt"); struct export_options o = {.checkpoint = checkpoint,
                                            .out = out,
                                            .is_bf16 = is_bf16,
                                            .file_bytes = file_bytes};
    enum rc rc = export_weights(&o, result, e);
    free(checkpoint);
    return rc;
}

static void save_and_compare(struct rank *r)
{
    struct err e = ERR_INIT;
    char *one = in_root("fp32"), *many = in_root("bf16");
    save(r);
    if (r->rank == 0) {
        struct exported result;
        ranks_check(export(one, false, 1 << 30, &result, &e), &e);
        assert_int_equal(result.step, 7);
        assert_int_equal(result.files, 1);
        assert_int_equal(result.params, model_params(&r->schedule->model));
        assert_int_equal(result.bytes, 4 * result.params);
        ranks_check(export(many, true, 60000, &result, &e), &e);
        assert_true(result.files > 2);
        assert_int_equal(result.bytes, 2 * result.params);
    }
    ranks_check(comm_barrier(r->comm, &e), &e);
    compare_share(r, &(struct comparison){.out = one});
    compare_share(r, &(struct comparison){.out = many, .is_bf16 = true});
    free(one);
    free(many);
}

static struct strategy strategy_of(enum strategy_kind kind, int64_t ranks, enum precision p)
{
    struct strategy s = strategy_default(kind, ranks, ranks);
    s.seq = 16;
    s.micro_batch = 1;
    s.grad_accum = 1;
    s.precision = p;
    if (kind == STRATEGY_HSDP)
        s.shard_degree = 2;
    return s;
}

static void an_export_is_what_the_ranks_hold(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        enum strategy_kind kind;
        int64_t ranks;
        enum precision p;
    } cases[] = {{"tiny-llama", STRATEGY_ZERO3, 3, PRECISION_FP32},
        {"tiny-gpt2", STRATEGY_ZERO3, 3, PRECISION_FP32},
        {"tiny-gpt2", STRATEGY_DDP, 1, PRECISION_BF16},
        {"tiny-qwen3", STRATEGY_HSDP, 4, PRECISION_BF16},
        {"tiny-llama", STRATEGY_ZERO1, 2, PRECISION_BF16}};
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        fresh_root();
        struct rank_options o = {.model = cases[i].model,
            .strategy = strategy_of(cases[i].kind, cases[i].ranks, cases[i].p),
            .threads = 1};
        ranks_run(&o, save_and_compare, NULL);
    }
}

/* --- what is refused --- */

static void make_checkpoint(void)
{
    fresh_root();
    struct rank_options o = {.model = "tiny-llama",
        .strategy = strategy_of(STRATEGY_ZERO3, 2, PRECISION_FP32),
        .threads = 1};
    ranks_run(&o, save, NULL);
}

static void change_byte(const char *name, int64_t from_end)
{
    char *path = in_root(name);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fseek(f, -from_end, SEEK_END);
    int c = fgetc(f);
    fseek(f, -from_end, SEEK_END);
    fputc(c ^ 1, f);
    fclose(f);
    free(path);
}

/* Temporary folders of an export that are still there. */
static int left_overs(void)
{
    int n = 0;
    DIR *d = opendir(scratch);
    const struct dirent *entry;
    while ((entry = readdir(d)))
        n += str_starts(entry->d_name, ".export");
    closedir(d);
    return n;
}

#define STEP "ckpt/step-00000007/"

static void damage_data(void)
{
    change_byte(STEP "rank-0001.safetensors", 8);
}

static void damage_manifest(void)
{
    change_byte(STEP "manifest.json", 200);
}

static void lose_file(void)
{
    char *path = in_root(STEP "rank-0000.safetensors");
    unlink(path);
    free(path);
}

static void shorten_file(void)
{
    char *path = in_root(STEP "rank-0000.safetensors");
    assert_int_equal(truncate(path, 1000), 0);
    free(path);
}

static void lose_manifest(void)
{
    char *path = in_root(STEP "manifest.json");
    unlink(path);
    free(path);
}

static void fill_target(void)
{
    struct err e = ERR_INIT;
    char *dir = in_root("out"), *file = in_root("out/mine");
    ranks_check(dir_make(dir, 0755, &e), &e);
    ranks_check(file_write(file, "x", 1, 0644, &e), &e);
    free(dir);
    free(file);
}

static void be_interrupted(void)
{
    raise(SIGINT); /* blocked by the test: it waits */
}

static void nothing_damaged_or_half_done_is_exported(void **state)
{
    (void)state;
    static const struct {
        void (*spoil)(void);
        enum rc rc;
        const char *word;
    } cases[] = {
        {damage_data, RC_INVALID, "rank-0001.safetensors' is damaged"},
        {damage_manifest, RC_INVALID, "manifest.json' is damaged"},
        {lose_file, RC_INVALID, "rank-0000.safetensors' is missing"},
        {shorten_file, RC_INVALID, "rank-0000.safetensors' is damaged"},
        {lose_manifest, RC_NOT_FOUND, "manifest.json"},
        {fill_target, RC_USAGE, "is there already"},
        {be_interrupted, RC_INTERRUPTED, "interrupted"},
    };
    sigset_t stop, before, pending;
    sigemptyset(&stop);
    sigaddset(&stop, SIGINT);
    sigprocmask(SIG_BLOCK, &stop, &before);
    for (size_t i = 0; i < BASE_COUNT(cases); i++) {
        struct err e = ERR_INIT;
        struct exported result;
        int signal_number;
        char *out = in_root("out"), *inside = in_root("out/config.json");
        make_checkpoint();
        cases[i].spoil();
        enum rc rc = export(out, false, 1 << 30, &result, &e);
        if (rc != cases[i].rc || !strstr(e.msg, cases[i].word))
            fail_msg("case %zu: %d, '%s' lacks '%s'", i, rc, e.msg, cases[i].word);
        assert_false(file_exists(inside));
        assert_int_equal(left_overs(), 0);
        free(out);
        free(inside);
        sigpending(&pending);
        if (sigismember(&pending, SIGINT))
            sigwait(&stop, &signal_number);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void an_empty_folder_is_taken_and_slashes_at_the_end_do_not_matter(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct exported result;
    make_checkpoint();
    char *out = in_root("deep/out/"), *config = in_root("deep/out/config.json");
    ranks_check(dir_make(out, 0755, &e), &e);
    ranks_check(export(out, true, 1 << 30, &result, &e), &e);
    assert_true(file_exists(config));
    free(out);
    free(config);
}

int test_export_weights(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_export_is_what_the_ranks_hold),
        cmocka_unit_test(nothing_damaged_or_half_done_is_exported),
        cmocka_unit_test(an_empty_folder_is_taken_and_slashes_at_the_end_do_not_matter),
    };
    return cmocka_run_group_tests_name(
        "engine/export_weights", tests, scratch_make, scratch_remove);
}
