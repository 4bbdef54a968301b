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
#include "base/hash.h"
#include "engine/comm.h"
#include "engine/init.h"
#include "engine/random.h"
#include "engine/safetensors.h"
#include "lib_ranks.h"
#include "lib_scratch.h"

/* Hosts are folders; ranks are spread over them in order. */
struct setting {
    int hosts;
    bool has_partner;
    int64_t load_step; /* -1 newest */
    int64_t steps;     /* to train after initialising or loading, then save */
    bool is_loading;
    int64_t keep;
    bool is_sync;
    enum rc rc; /* of rank 0 */
    char msg[ERR_MSG_MAX];
    char passed_over[ERR_MSG_MAX];
    struct checkpoint_info info;
    struct checkpoint_report report;
    uint64_t state_hash; /* of masters and moments over all ranks, independent of sharding */
    double loss;         /* of the first step after loading */
    unsigned offload;
};

static struct checkpoint_options options_of(struct rank *r, const struct setting *s, int *host_of)
{
    for (int i = 0; i < r->ranks; i++)
        host_of[i] = i * s->hosts / r->ranks;
    char *dir = base_printf("%s/host-%d", scratch, host_of[r->rank]);
    return (struct checkpoint_options){.dir = dir,
        .host_of = host_of,
        .has_partner = s->has_partner,
        .is_async = !s->is_sync,
        .keep = s->keep,
        .collective_s = 60};
}

static const char *model = "tiny-llama";

static void train_and_save(struct rank *r)
{
    struct setting *s = r->arg;
    struct err e = ERR_INIT, passed_over = ERR_INIT;
    int host_of[16];
    struct checkpoint_options o = options_of(r, s, host_of);
    struct checkpoint *c;
    struct checkpoint_info info = {.step = 0};
    struct checkpoint_report report = {.step = -1};
    ranks_check(checkpoint_open(&c, r->x, &o, &e), &e);
    enum rc rc = RC_OK;
    if (s->is_loading)
        rc = checkpoint_load(c, s->load_step, &info, &passed_over, &e);
    else
        ranks_check(init_state(r->x, 5, &e), &e);
    uint64_t hash = rc ? 0 : ranks_state_hash(r);
    double losses[8] = {0};
    if (!rc && s->steps > 0) {
        const struct strategy *st = &r->schedule->strategy;
        ranks_train(r, info.step + 1, s->steps, losses);
        info.step += s->steps;
        info.samples += s->steps * st->ranks * st->grad_accum * st->micro_batch;
        info.seed = 5;
        rc = checkpoint_start(c, &info, &e);
        if (!rc)
            rc = checkpoint_end(c, true, &report, &e);
        hash = rc ? hash : ranks_state_hash(r);
    }
    if (r->rank == 0) {
        s->rc = rc;
        s->info = info;
        s->report = report;
        s->state_hash = hash;
        s->loss = losses[0];
        memcpy(s->msg, e.msg, sizeof(s->msg));
        memcpy(s->passed_over, passed_over.msg, sizeof(s->passed_over));
    }
    assert_true(checkpoint_close(c));
    free((char *)(uintptr_t)o.dir);
}

static struct setting run_strategy(const struct strategy *st, struct setting s)
{
    struct rank_options o = {.model = model, .strategy = *st};
    s.keep = s.keep ? s.keep : 2;
    ranks_run(&o, train_and_save, &s);
    return s;
}

/* Beside the kinds: hsdp with optimizer states over all ranks. */
enum { OVER_REPLICAS = STRATEGY_HSDP + 1 };

static struct setting run(
    int kind, int64_t ranks, int64_t accum, enum precision p, struct setting s)
{
    bool splits = kind == OVER_REPLICAS;
    struct strategy st =
        strategy_default(splits ? STRATEGY_HSDP : (enum strategy_kind)kind, ranks, ranks);
    st.splits_over_replicas = splits;
    st.seq = 24;
    st.micro_batch = 1;
    st.grad_accum = accum;
    st.precision = p;
    st.offload = s.offload;
    if (st.kind == STRATEGY_HSDP)
        st.shard_degree = ranks / 2;
    return run_strategy(&st, s);
}

/* --- any to any --- */

enum { PAIRS = 24 };

static struct strategy random_strategy(uint64_t *draw)
{
    static const enum strategy_kind KINDS[] = {
        STRATEGY_DDP, STRATEGY_ZERO1, STRATEGY_ZERO2, STRATEGY_ZERO3, STRATEGY_HSDP, STRATEGY_HSDP};
    struct model m;
    struct err e;
    for (;;) {
        uint64_t x = random_bits(3, (*draw)++);
        enum strategy_kind kind = KINDS[x % BASE_COUNT(KINDS)];
        int64_t ranks = 1 + (int64_t)(x >> 8 & 3), degree = 1 + (int64_t)(x >> 16 & 3);
        struct strategy st = strategy_default(kind, ranks, ranks);
        st.seq = 24;
        st.micro_batch = 1 + (int64_t)(x >> 24 & 1);
        st.precision = x >> 32 & 1 ? PRECISION_BF16 : PRECISION_FP32;
        st.offload = offload_at((x >> 40) % OFFLOAD_SETS);
        if (kind == STRATEGY_HSDP)
            st.shard_degree = degree;
        st.splits_over_replicas = kind == STRATEGY_HSDP && (x >> 48 & 1);
        ranks_check(model_find(&m, model, &e), &e);
        if ((kind != STRATEGY_HSDP || ranks % degree == 0) && strategy_check(&st, &m, &e) == RC_OK)
            return st;
    }
}

static void describe(const struct strategy *s, char text[120])
{
    snprintf(text, 120, "%s%s of %lld ranks, degree %lld, offload %s, %s",
        strategy_kind_name(s->kind), s->splits_over_replicas ? ", states over all" : "",
        (long long)s->ranks, (long long)s->shard_degree, offload_name(s->offload),
        precision_name(s->precision));
}

/* Saved on some hosts, loaded on others of which some have nothing: every bit of the state is the
 * same. */
static void random_pairs_load_what_the_other_saved(void **state)
{
    (void)state;
    uint64_t draw = 0;
    for (int i = 0; i < PAIRS; i++) {
        struct err e;
        char saver[120], loader[120];
        dir_remove(scratch, &e);
        model = i % 3 == 0 ? "tiny-gpt2" : "tiny-llama";
        struct strategy a = random_strategy(&draw), b = random_strategy(&draw);
        /* files on hosts that take no part cannot be served */
        int64_t both = a.ranks < b.ranks ? a.ranks : b.ranks;
        int hosts_a = 1 + (int)(random_bits(4, draw) % (uint64_t)both);
        int hosts_b = hosts_a + (int)(random_bits(5, draw) % (uint64_t)(b.ranks - hosts_a + 1));
        describe(&a, saver);
        describe(&b, loader);
        struct setting saved = run_strategy(
            &a, (struct setting){
                    .hosts = hosts_a, .has_partner = i % 2, .steps = 1, .is_sync = i % 4 == 3});
        struct setting loaded = run_strategy(
            &b, (struct setting){.hosts = hosts_b, .is_loading = true, .load_step = -1});
        if (saved.rc || loaded.rc || loaded.state_hash != saved.state_hash)
            fail_msg("pair %d, %s on %d hosts, then %s on %d: %s%s", i, saver, hosts_a, loader,
                hosts_b, saved.msg, loaded.msg);
    }
    model = "tiny-llama";
}

static void any_strategy_and_world_size_loads_what_another_saved(void **state)
{
    (void)state;
    static const struct {
        int kind;
        int64_t ranks, accum;
        enum precision p;
        unsigned offload;
    } FORMS[] = {{STRATEGY_DDP, 1, 4, PRECISION_FP32, OFFLOAD_NONE},
        {STRATEGY_ZERO3, 4, 1, PRECISION_FP32, OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS},
        {STRATEGY_ZERO1, 2, 2, PRECISION_BF16, OFFLOAD_OPTIMIZER},
        {STRATEGY_HSDP, 4, 1, PRECISION_BF16, OFFLOAD_PARAMETERS | OFFLOAD_ACTIVATIONS},
        {STRATEGY_DDP, 2, 2, PRECISION_FP32, OFFLOAD_OPTIMIZER | OFFLOAD_DISK},
        {STRATEGY_ZERO2, 3, 1, PRECISION_FP32, OFFLOAD_OPTIMIZER | OFFLOAD_DISK},
        {STRATEGY_ZERO3, 3, 1, PRECISION_FP32,
            OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK},
        {STRATEGY_HSDP, 4, 1, PRECISION_BF16,
            OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK},
        {OVER_REPLICAS, 4, 1, PRECISION_FP32, OFFLOAD_NONE},
        {OVER_REPLICAS, 4, 2, PRECISION_BF16, OFFLOAD_OPTIMIZER | OFFLOAD_DISK}};
    for (size_t i = 0; i < BASE_COUNT(FORMS); i++) {
        struct err e;
        dir_remove(scratch, &e);
        struct setting saved = run(FORMS[i].kind, FORMS[i].ranks, FORMS[i].accum, FORMS[i].p,
            (struct setting){.hosts = 1, .steps = 2, .offload = FORMS[i].offload});
        assert_int_equal(saved.rc, RC_OK);
        for (size_t j = 0; j < BASE_COUNT(FORMS); j++) {
            struct setting loaded = run(FORMS[j].kind, FORMS[j].ranks, FORMS[j].accum, FORMS[j].p,
                (struct setting){
                    .hosts = 1, .is_loading = true, .load_step = -1, .offload = FORMS[j].offload});
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
    dir_remove(scratch, &e);
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
    dir_remove(scratch, &e);
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
        char *dir = base_printf("%s/host-%d", scratch, lost);
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

static void lose_host(int host)
{
    struct err e;
    char *dir = base_printf("%s/host-%d", scratch, host);
    assert_int_equal(dir_remove(dir, &e), RC_OK);
    free(dir);
}

/* Each load leaves two copies of every file, so that hosts may be lost one after the other without
 * a save in between; also where another layout of ranks saved. */
static void a_load_makes_up_for_the_copies_that_were_lost(void **state)
{
    static const struct {
        int ranks, hosts, lost[4];
    } ROUNDS[] = {{4, 2, {0, 1, 1, 0}}, {6, 3, {2, 0, 1, 2}}, {3, 3, {1, 2, 0, 1}}};
    (void)state;
    for (size_t k = 0; k < BASE_COUNT(ROUNDS); k++) {
        struct setting saved = run(STRATEGY_ZERO3, ROUNDS[k].ranks, 1, PRECISION_FP32,
            (struct setting){.hosts = ROUNDS[k].hosts, .has_partner = true, .steps = 2});
        assert_int_equal(saved.rc, RC_OK);
        for (int i = 0; i < 4; i++) {
            lose_host(ROUNDS[k].lost[i]);
            struct setting loaded =
                run(STRATEGY_ZERO3, i % 2 ? 3 : ROUNDS[k].ranks, 1, PRECISION_FP32,
                    (struct setting){.hosts = ROUNDS[k].hosts,
                        .has_partner = true,
                        .is_loading = true,
                        .load_step = -1});
            if (loaded.rc)
                fail_msg("round %d of %zu: %s", i, k, loaded.msg);
            assert_true(loaded.state_hash == saved.state_hash);
        }
    }
}

/* Whoever hears of it first must not take the other rank's report for the cause. */
static void a_rank_that_cannot_save_is_the_cause_and_the_others_say_so(void **state)
{
    (void)state;
    struct err e;
    char *path = base_printf("%s/host-1", scratch);
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
    char *dir = base_printf("%s/host-1", scratch);
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
    char *path = base_printf("%s/host-0/step-00000002/rank-0001.safetensors", scratch);
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
    assert_string_equal(loaded.passed_over,
        "checkpoint of step 2: file 'rank-0001.safetensors' is missing or damaged on every host");
}

static void cut_manifest(int host)
{
    char *path = base_printf("%s/host-%d/step-00000002/manifest.json", scratch, host);
    assert_int_equal(truncate(path, 100), 0);
    free(path);
}

/* Cut on one host the other's copy serves, and makes it whole again; cut on both the step before is
 * loaded. */
static void a_truncated_manifest_is_passed_over(void **state)
{
    (void)state;
    struct setting one = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 2, .has_partner = true, .steps = 1});
    struct setting two = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){
            .hosts = 2, .has_partner = true, .steps = 1, .is_loading = true, .load_step = 1});
    cut_manifest(0);
    for (int round = 0; round < 3; round++) {
        bool is_lost = round == 2;
        if (round > 0)
            cut_manifest(1);
        if (is_lost)
            cut_manifest(0);
        struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
            (struct setting){.hosts = 2, .is_loading = true, .load_step = -1});
        if (loaded.rc)
            fail_msg("%s", loaded.msg);
        assert_int_equal(loaded.info.step, is_lost ? 1 : 2);
        assert_true(loaded.state_hash == (is_lost ? one : two).state_hash);
        assert_string_equal(loaded.passed_over,
            is_lost ? "checkpoint of step 2: its manifest is damaged on every host" : "");
    }
}

/* A byte anywhere in the folder of the newest checkpoint: whatever it means, the step before is
 * loaded, and one sentence says so. */
static void any_changed_byte_is_found(void **state)
{
    (void)state;
    struct setting one =
        run(STRATEGY_ZERO1, 2, 1, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 1});
    run(STRATEGY_ZERO1, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .steps = 1, .is_loading = true, .load_step = 1});
    static const char *const NAMES[] = {
        "manifest.json", "rank-0000.safetensors", "rank-0001.safetensors"};
    for (int i = 0; i < 30; i++) {
        char *path = base_printf("%s/host-0/step-00000002/%s", scratch, NAMES[i % 3]);
        FILE *f = fopen(path, "r+b");
        assert_non_null(f);
        long at = (long)(random_bits(11, (uint64_t)i) % (uint64_t)file_size(path));
        fseek(f, at, SEEK_SET);
        int byte = fgetc(f), bit = 1 << (i / 3 % 8);
        fseek(f, at, SEEK_SET);
        fputc(byte ^ bit, f);
        fclose(f);
        struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
            (struct setting){.hosts = 1, .is_loading = true, .load_step = -1});
        if (loaded.rc || loaded.info.step != 1)
            fail_msg("byte %ld of %s: %s", at, NAMES[i % 3], loaded.msg);
        assert_true(loaded.state_hash == one.state_hash);
        assert_non_null(strstr(loaded.passed_over, "checkpoint of step 2: "));
        f = fopen(path, "r+b");
        fseek(f, at, SEEK_SET);
        fputc(byte, f);
        fclose(f);
        free(path);
    }
}

/* --- beside training --- */

struct beside {
    struct setting s;
    uint64_t hash[8]; /* of the state after each step */
    bool is_cut;      /* end in the middle of the last save */
};

/* Steps 1 to 6; the states of 2 and 3 are saved while the next steps change them. */
static void train_on(struct rank *r)
{
    struct beside *b = r->arg;
    struct err e = ERR_INIT;
    int host_of[16];
    struct checkpoint_options o = options_of(r, &b->s, host_of);
    struct checkpoint *c;
    struct checkpoint_report report;
    ranks_check(checkpoint_open(&c, r->x, &o, &e), &e);
    ranks_check(init_state(r->x, 5, &e), &e);
    for (int64_t step = 1; step <= 6; step++) {
        ranks_train(r, step, 1, NULL);
        uint64_t hash = ranks_state_hash(r);
        if (r->rank == 0)
            b->hash[step] = hash;
        struct checkpoint_info info = {.step = step, .samples = step * 4, .seed = 5};
        if (step == 2 || step == 3 || (step == 6 && b->is_cut))
            ranks_check(checkpoint_start(c, &info, &e), &e);
        if (step == 5) {
            ranks_check(checkpoint_end(c, true, &report, &e), &e);
            if (r->rank == 0)
                b->s.report = report;
        }
    }
    assert_true(checkpoint_close(c));
    free((char *)(uintptr_t)o.dir);
}

static struct beside run_beside(enum strategy_kind kind, unsigned offload, struct beside b)
{
    struct strategy st = strategy_default(kind, 2, 2);
    st.seq = 24;
    st.micro_batch = 1;
    st.grad_accum = 1;
    st.offload = offload;
    struct rank_options o = {.model = model, .strategy = st, .threads = 2};
    b.s.keep = 2;
    ranks_run(&o, train_on, &b);
    return b;
}

static void a_save_is_of_the_step_it_began_at_though_training_goes_on(void **state)
{
    (void)state;
    static const struct {
        enum strategy_kind kind;
        unsigned offload;
        bool is_sync;
    } FORMS[] = {{STRATEGY_DDP, 0, false}, {STRATEGY_ZERO3, 0, false}, {STRATEGY_ZERO1, 0, true},
        {STRATEGY_ZERO2, OFFLOAD_OPTIMIZER, false}};
    for (size_t i = 0; i < BASE_COUNT(FORMS); i++) {
        struct err e;
        dir_remove(scratch, &e);
        struct beside b = run_beside(FORMS[i].kind, FORMS[i].offload,
            (struct beside){.s = {.hosts = 2, .has_partner = true, .is_sync = FORMS[i].is_sync}});
        assert_int_equal(b.s.report.step, 3);
        assert_true(b.s.report.seconds > 0 && b.s.report.stall_s <= b.s.report.seconds);
        for (int64_t step = 2; step <= 3; step++) {
            struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
                (struct setting){.hosts = 1, .is_loading = true, .load_step = step});
            if (loaded.rc)
                fail_msg("%s", loaded.msg);
            assert_true(loaded.state_hash == b.hash[step]);
        }
    }
}

/* Training and waiting for it write the same files. */
static void with_and_without_a_copy_the_files_are_the_same(void **state)
{
    (void)state;
    char hex[2][HASH128_HEX];
    for (int i = 0; i < 2; i++) {
        struct err e;
        dir_remove(scratch, &e);
        struct setting s = run(STRATEGY_ZERO3, 2, 1, PRECISION_BF16,
            (struct setting){.hosts = 1, .steps = 2, .is_sync = i == 1});
        char *path = base_printf("%s/host-0/step-00000002/rank-0001.safetensors", scratch);
        assert_int_equal(hash128_file(path, hex[i], &e), RC_OK);
        char *other = base_printf("%s/host-0/step-00000002/rank-0000.safetensors", scratch);
        assert_int_equal(s.report.bytes, file_size(path) + file_size(other));
        free(path);
        free(other);
    }
    assert_string_equal(hex[0], hex[1]);
}

static void a_save_that_is_given_up_does_not_count(void **state)
{
    (void)state;
    struct beside b =
        run_beside(STRATEGY_ZERO3, 0, (struct beside){.s = {.hosts = 1}, .is_cut = true});
    char *half = base_printf("%s/host-0/step-00000006", scratch);
    bool is_whole = file_exists(half); /* it may have been quicker than the end */
    struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .is_loading = true, .load_step = -1});
    if (loaded.rc)
        fail_msg("%s", loaded.msg);
    assert_int_equal(loaded.info.step, is_whole ? 6 : 3);
    assert_true(loaded.state_hash == b.hash[loaded.info.step]);
    free(half);
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
        char *path = base_printf("%s/host-0/step-%08d", scratch, i + 1);
        assert_int_equal(file_exists(path), STAYS[i]);
        free(path);
    }
    char *tmp = base_printf("%s/host-0/step-%08d.tmp", scratch, 4);
    assert_false(file_exists(tmp));
    free(tmp);
}

/* Going back to step 1 and on from there: steps 2 to 4 were another course of the same run. */
static void steps_of_an_abandoned_course_go_when_the_new_one_is_saved(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        run(STRATEGY_ZERO1, 2, 1, PRECISION_FP32,
            (struct setting){
                .hosts = 1, .steps = 1, .is_loading = i > 0, .load_step = -1, .keep = 9});
    struct setting other = run(STRATEGY_ZERO1, 2, 2, PRECISION_FP32,
        (struct setting){.hosts = 1, .steps = 2, .is_loading = true, .load_step = 1, .keep = 2});
    for (int i = 1; i < 5; i++) {
        char *path = base_printf("%s/host-0/step-%08d", scratch, i);
        assert_int_equal(file_exists(path), (i == 2) || (i == 3));
        free(path);
    }
    struct setting loaded = run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32,
        (struct setting){.hosts = 1, .is_loading = true, .load_step = -1});
    assert_int_equal(loaded.info.step, 3);
    assert_true(loaded.state_hash == other.state_hash);
}

static void a_folder_that_cannot_be_written_leaves_the_old_checkpoint(void **state)
{
    (void)state;
    run(STRATEGY_ZERO3, 2, 1, PRECISION_FP32, (struct setting){.hosts = 1, .steps = 1});
    /* a full disk is tried end to end; here a file stands where the folder should be */
    char *host = base_printf("%s/host-0", scratch);
    char *moved = base_printf("%s/kept", scratch);
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
    char *tmp = base_printf("%s/host-0/step-00000002.tmp", scratch);
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
    char *path = path_join(scratch, name);
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
#define T(f) cmocka_unit_test_setup_teardown(f, scratch_make, scratch_remove)
    const struct CMUnitTest tests[] = {
        T(random_pairs_load_what_the_other_saved),
        T(any_strategy_and_world_size_loads_what_another_saved),
        T(the_fused_attention_of_gpt2_is_kept_apart),
        T(a_resumed_run_has_the_same_bits_as_an_uninterrupted_one),
        T(a_lost_host_is_restored_from_its_partner),
        T(a_load_makes_up_for_the_copies_that_were_lost),
        T(a_rank_that_cannot_save_is_the_cause_and_the_others_say_so),
        T(without_partner_a_lost_host_is_one_clear_sentence),
        T(a_damaged_file_sends_the_load_to_the_step_before),
        T(a_truncated_manifest_is_passed_over),
        T(any_changed_byte_is_found),
        T(a_save_is_of_the_step_it_began_at_though_training_goes_on),
        T(with_and_without_a_copy_the_files_are_the_same),
        T(a_save_that_is_given_up_does_not_count),
        T(old_checkpoints_and_leavings_go_but_the_last_ones_stay),
        T(steps_of_an_abandoned_course_go_when_the_new_one_is_saved),
        T(a_folder_that_cannot_be_written_leaves_the_old_checkpoint),
        T(a_disk_that_fills_up_leaves_the_old_checkpoint_and_nothing_else),
        T(lying_headers_are_refused),
    };
    return cmocka_run_group_tests_name("engine/checkpoint", tests, NULL, NULL);
}
