/* A checkpoint written by one sharding is the same training when loaded by another; losing a host,
 * a file or the disk's last byte loses nothing else. */
#include "engine/checkpoint.h"

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
#include "engine/comm.h"
#include "engine/init.h"
#include "engine/safetensors.h"
#include "lib_ranks.h"

static char *root; /* scratch folder of the test */

static int set_up(void **state)
{
    char name[] = "/tmp/berth-ckpt-XXXXXX";
    (void)state;
    root = strdup(mkdtemp(name));
    return root ? 0 : -1;
}

static int tear_down(void **state)
{
    struct err e;
    (void)state;
    dir_remove(root, &e);
    free(root);
    return 0;
}

/* Hosts are folders; ranks are spread over them in order. */
struct setting {
    int hosts;
    bool has_partner;
    int64_t load_step; /* -1 newest */
    int64_t steps;     /* to train after initialising or loading, then save */
    bool is_loading;
    int64_t keep;
    enum rc rc; /* of rank 0 */
    char msg[ERR_MSG_MAX];
    struct checkpoint_info info;
    uint64_t state_hash; /* of masters and moments over all ranks, independent of sharding */
    double loss;         /* of the first step after loading */
};

static uint64_t hash_of_state(struct rank *r)
{
    struct err e = ERR_INIT;
    const struct schedule *s = r->schedule;
    double sum = 0;
    for (int u = 0; u < s->n_units; u++)
        for (int k = 0; k < STATE_KINDS; k++) {
            struct state_view v = executor_state(r->x, u, (enum state_kind)k);
            for (int64_t i = 0; i < v.count; i++) {
                uint32_t bits;
                memcpy(&bits, &v.data[i], 4);
                /* exact in double: order-independent, weighed by place */
                sum += (double)(bits >> 12) * (double)((v.first + i) % 511 + k + 1);
            }
        }
    double x[1] = {sum};
    ranks_check(comm_sum(r->comm, CHANNEL_COMPUTE, GROUP_SHARD, x, 1, &e), &e);
    uint64_t h;
    memcpy(&h, &x[0], 8);
    return h;
}

static struct checkpoint_options options_of(struct rank *r, const struct setting *s, int *host_of)
{
    for (int i = 0; i < r->ranks; i++)
        host_of[i] = i * s->hosts / r->ranks;
    char *dir = base_printf("%s/host-%d", root, host_of[r->rank]);
    return (struct checkpoint_options){
        .dir = dir, .host_of = host_of, .has_partner = s->has_partner, .keep = s->keep};
}

static const char *model = "tiny-llama";

static void train_and_save(struct rank *r)
{
    struct setting *s = r->arg;
    struct err e = ERR_INIT;
    int host_of[16];
    struct checkpoint_options o = options_of(r, s, host_of);
    struct checkpoint_info info = {.step = 0};
    enum rc rc = RC_OK;
    if (s->is_loading)
        rc = checkpoint_load(r->x, &o, s->load_step, &info, &e);
    else
        ranks_check(init_state(r->x, 5, &e), &e);
    uint64_t hash = rc ? 0 : hash_of_state(r);
    double losses[8] = {0};
    if (!rc && s->steps > 0) {
        const struct strategy *st = &r->schedule->strategy;
        ranks_train(r, info.step + 1, s->steps, losses);
        info.step += s->steps;
        info.samples += s->steps * st->ranks * st->grad_accum * st->micro_batch;
        info.seed = 5;
        rc = checkpoint_save(r->x, &o, &info, &e);
        hash = rc ? hash : hash_of_state(r);
    }
    if (r->rank == 0) {
        s->rc = rc;
        s->info = info;
        s->state_hash = hash;
        s->loss = losses[0];
        memcpy(s->msg, e.msg, sizeof(s->msg));
    }
    free((char *)(uintptr_t)o.dir);
}

static struct setting run(
    enum strategy_kind kind, int64_t ranks, int64_t accum, enum precision p, struct setting s)
{
    struct strategy st = strategy_default(kind, ranks, ranks);
    st.seq = 24;
    st.micro_batch = 1;
    st.grad_accum = accum;
    st.precision = p;
    if (kind == STRATEGY_HSDP)
        st.shard_degree = ranks / 2;
    struct rank_options o = {.model = model, .strategy = st};
    s.keep = s.keep ? s.keep : 2;
    ranks_run(&o, train_and_save, &s);
    return s;
}

static void any_strategy_and_world_size_loads_what_another_saved(void **state)
{
    (void)state;
    static const struct {
        enum strategy_kind kind;
        int64_t ranks, accum;
        enum precision p;
    } FORMS[] = {{STRATEGY_DDP, 1, 4, PRECISION_FP32}, {STRATEGY_ZERO3, 4, 1, PRECISION_FP32},
        {STRATEGY_ZERO1, 2, 2, PRECISION_BF16}, {STRATEGY_HSDP, 4, 1, PRECISION_BF16},
        {STRATEGY_DDP, 2, 2, PRECISION_FP32}, {STRATEGY_ZERO2, 3, 1, PRECISION_FP32}};
    for (size_t i = 0; i < BASE_COUNT(FORMS); i++) {
        struct err e;
        dir_remove(root, &e);
        struct setting saved = run(FORMS[i].kind, FORMS[i].ranks, FORMS[i].accum, FORMS[i].p,
            (struct setting){.hosts = 1, .steps = 2});
        assert_int_equal(saved.rc, RC_OK);
        for (size_t j = 0; j < BASE_COUNT(FORMS); j++) {
            struct setting loaded = run(FORMS[j].kind, FORMS[j].ranks, FORMS[j].accum, FORMS[j].p,
                (struct setting){.hosts = 1, .is_loading = true, .load_step = -1});
            if (loaded.rc)
                fail_msg("%s", loaded.msg);
            assert_int_equal(loaded.info.step, 2);
            assert_true(loaded.state_hash == saved.state_hash);
        }
    }
}

static void the_fused_attention_of_gpt2_is_kept_apart(void **state)
{
    (void)state;
    struct err e;
    dir_remove(root, &e);
    model = "tiny-gpt2";
    struct setting saved =
        run(STRATEGY_DDP, 2, 1, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 2});
    struct setting loaded = run(STRATEGY_ZERO3, 3, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .is_loading = true, .load_step = -1});
    model = "tiny-llama";
    assert_int_equal(saved.rc, RC_OK);
    if (loaded.rc)
        fail_msg("%s", loaded.msg);
    assert_true(loaded.state_hash == saved.state_hash);
}

static void a_resumed_run_has_the_same_bits_as_an_uninterrupted_one(void **state)
{
    (void)state;
    struct setting whole =
        run(STRATEGY_ZERO3, 2, 2, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 4});
    struct err e;
    dir_remove(root, &e);
    run(STRATEGY_ZERO3, 2, 2, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 2});
    struct setting rest = run(STRATEGY_ZERO3, 2, 2, PRECISION_FP32,
        (struct setting){.hosts = 1, .steps = 2, .is_loading = true, .load_step = -1});
    assert_int_equal(rest.info.step, 4);
    assert_true(rest.state_hash == whole.state_hash);
}

static void a_lost_host_is_restored_from_its_partner(void **state)
{
    (void)state;
    struct setting saved = run(STRATEGY_ZERO3, 4, 1, PRECISION_FP32,
        (struct setting){.hosts = 2, .has_partner = true, .steps = 2});
    assert_int_equal(saved.rc, RC_OK);
    for (int lost = 0; lost < 2; lost++) {
        struct err e;
        char *dir = base_printf("%s/host-%d", root, lost);
        assert_int_equal(dir_remove(dir, &e), RC_OK);
        free(dir);
        struct setting loaded = run(STRATEGY_ZERO3, 4, 1, PRECISION_FP32,
            (struct setting){.hosts = 2, .is_loading = true, .load_step = -1});
        if (loaded.rc)
            fail_msg("%s", loaded.msg);
        assert_true(loaded.state_hash == saved.state_hash);
        /* whole again for the next round */
        struct setting again = run(STRATEGY_ZERO3, 4, 1, PRECISION_FP32,
            (struct setting){.hosts = 2, .has_partner = true, .steps = 2});
        assert_true(again.state_hash == saved.state_hash);
    }
}

/* Whoever hears of it first must not take the other rank's report for the cause. */
static void a_rank_that_cannot_save_is_the_cause_and_the_others_say_so(void **state)
{
    (void)state;
    struct err e;
    char *path = base_printf("%s/host-1", root);
    dir_remove(path, &e);
    assert_int_equal(file_write(path, "in the way", 10, 0600, &e), RC_OK);
    struct setting s =
        run(STRATEGY_ZERO2, 2, 1, PRECISION_FP32, (struct setting){.hosts = 2, .steps = 1});
    assert_int_equal(s.rc, RC_PEER);
    assert_string_equal(s.msg, "checkpoint of step 1: saving the checkpoint failed on rank 1");
    unlink(path);
    free(path);
}

static void without_partner_a_lost_host_is_one_clear_sentence(void **state)
{
    (void)state;
    run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32, (struct setting){.hosts = 2, .steps = 1});
    struct err e;
    char *dir = base_printf("%s/host-1", root);
    dir_remove(dir, &e);
    free(dir);
    struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 2, .is_loading = true, .load_step = -1});
    assert_int_equal(loaded.rc, RC_NOT_FOUND);
    assert_string_equal(loaded.msg, "checkpoint of step 1: file 'rank-0001.safetensors' is missing "
                                    "or damaged on every host");
}

static void a_damaged_file_sends_the_load_to_the_step_before(void **state)
{
    (void)state;
    run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 1});
    struct setting one = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .is_loading = true, .load_step = 1});
    run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .steps = 1, .is_loading = true, .load_step = 1});
    char *path = base_printf("%s/host-0/step-00000002/rank-0001.safetensors", root);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, -5, SEEK_END);
    fputc(0x5a, f);
    fclose(f);
    free(path);
    struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .is_loading = true, .load_step = -1});
    assert_int_equal(loaded.rc, RC_OK);
    assert_int_equal(loaded.info.step, 1);
    assert_true(loaded.state_hash == one.state_hash);
}

/* Cut on one host the other's copy serves; cut on both the step before is loaded. */
static void a_truncated_manifest_is_passed_over(void **state)
{
    (void)state;
    struct setting one = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 2, .has_partner = true, .steps = 1});
    struct setting two = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){
            .hosts = 2, .has_partner = true, .steps = 1, .is_loading = true, .load_step = 1});
    for (int host = 0; host < 2; host++) {
        char *path = base_printf("%s/host-%d/step-00000002/manifest.json", root, host);
        assert_int_equal(truncate(path, 100), 0);
        free(path);
        struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
            (struct setting){.hosts = 2, .is_loading = true, .load_step = -1});
        if (loaded.rc)
            fail_msg("%s", loaded.msg);
        assert_int_equal(loaded.info.step, host == 0 ? 2 : 1);
        assert_true(loaded.state_hash == (host == 0 ? two : one).state_hash);
    }
}

static void old_checkpoints_and_leavings_go_but_the_last_ones_stay(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        run(STRATEGY_ZERO1, 2, 1, PRECISION_FP32,
            (struct setting){
                .hosts = 1, .steps = 1, .is_loading = i > 0, .load_step = -1, .keep = 2});
    static const bool STAYS[] = {false, false, true, true};
    for (int i = 0; i < 4; i++) {
        char *path = base_printf("%s/host-0/step-%08d", root, i + 1);
        assert_int_equal(file_exists(path), STAYS[i]);
        free(path);
    }
    char *tmp = base_printf("%s/host-0/step-%08d.tmp", root, 4);
    assert_false(file_exists(tmp));
    free(tmp);
}

static void a_folder_that_cannot_be_written_leaves_the_old_checkpoint(void **state)
{
    (void)state;
    run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 1});
    /* a full disk is tried end to end; here a file stands where the folder should be */
    char *host = base_printf("%s/host-0", root);
    char *moved = base_printf("%s/kept", root);
    assert_int_equal(rename(host, moved), 0);
    FILE *f = fopen(host, "w");
    fclose(f);
    struct setting failed =
        run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 1});
    assert_int_not_equal(failed.rc, RC_OK);
    assert_non_null(strstr(failed.msg, "checkpoint of step 1"));
    unlink(host);
    assert_int_equal(rename(moved, host), 0);
    struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .is_loading = true, .load_step = -1});
    assert_int_equal(loaded.rc, RC_OK);
    free(host);
    free(moved);
}

/* A limit on file sizes fails writes in the middle, as a full disk does. */
static void a_disk_that_fills_up_leaves_the_old_checkpoint_and_nothing_else(void **state)
{
    (void)state;
    struct setting one =
        run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 1});
    struct rlimit old, tight;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &old);
    tight = old;
    tight.rlim_cur = 50000;
    setrlimit(RLIMIT_FSIZE, &tight);
    struct setting failed = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .steps = 1, .is_loading = true, .load_step = -1});
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(failed.rc, RC_IO);
    assert_non_null(strstr(failed.msg, "checkpoint of step 2: cannot write"));
    assert_non_null(strstr(failed.msg, "File too large"));
    char *tmp = base_printf("%s/host-0/step-00000002.tmp", root);
    assert_false(file_exists(tmp));
    free(tmp);
    struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .is_loading = true, .load_step = -1});
    assert_int_equal(loaded.info.step, 1);
    assert_true(loaded.state_hash == one.state_hash);
}

/* --- safetensors --- */

static char *write_bytes(const char *name, const char *header, uint64_t claimed, size_t data)
{
    char *path = path_join(root, name);
    FILE *f = fopen(path, "wb");
    for (int i = 0; i < 8; i++)
        fputc((int)(claimed >> (8 * i) & 255), f);
    fputs(header, f);
    for (size_t i = 0; i < data; i++)
        fputc(1, f);
    fclose(f);
    return path;
}

static void lying_headers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        int64_t claim; /* added to the true length */
        size_t data;
    } BAD[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 1 << 20, 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 0, 7},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 0, 9},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 0, 8},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[2],\"data_offsets\":[0,8]}}", 0, 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 0, 8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387905],\"data_offsets\":[0,4]}}", 0,
            4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 0, 12},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 0, 8},
        {"[]", 0, 0},
        {"{", 0, 0},
    };
    for (size_t i = 0; i < BASE_COUNT(BAD); i++) {
        struct err e = ERR_INIT;
        struct st_reader *r;
        char *path = write_bytes("bad.safetensors", BAD[i].header,
            strlen(BAD[i].header) + (uint64_t)BAD[i].claim, BAD[i].data);
        if (st_open(&r, path, &e) != RC_INVALID)
            fail_msg("accepted: %s", BAD[i].header);
        assert_non_null(strstr(e.msg, "bad.safetensors"));
        free(path);
    }
}

int test_checkpoint(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(any_strategy_and_world_size_loads_what_another_saved),
        T(the_fused_attention_of_gpt2_is_kept_apart),
        T(a_resumed_run_has_the_same_bits_as_an_uninterrupted_one),
        T(a_lost_host_is_restored_from_its_partner),
        T(a_rank_that_cannot_save_is_the_cause_and_the_others_say_so),
        T(without_partner_a_lost_host_is_one_clear_sentence),
        T(a_damaged_file_sends_the_load_to_the_step_before),
        T(a_truncated_manifest_is_passed_over),
        T(old_checkpoints_and_leavings_go_but_the_last_ones_stay),
        T(a_folder_that_cannot_be_written_leaves_the_old_checkpoint),
        T(a_disk_that_fills_up_leaves_the_old_checkpoint_and_nothing_else),
        T(lying_headers_are_refused),
    };
    return cmocka_run_group_tests_name("engine/checkpoint", tests, NULL, NULL);
}
