/* Ranks killed at random points of a save, over and over: the newest good checkpoint always loads,
 * has the bits of its step, and is no older than the last one that was reported; a host whose
 * folder is gone takes nothing else with it.
 *
 * Each round is a set of processes, one for each rank, that load, train and save all the time until
 * some of them are killed. BERTH_CRASH_ROUNDS and BERTH_CRASH_SEED set how many rounds there are
 * and how they fall. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/checkpoint.h"
#include "engine/comm.h"
#include "engine/init.h"
#include "engine/random.h"
#include "kernels/kernels.h"
#include "lib_ranks.h"

enum { RANKS = 3, HOSTS = 3, MAX_STEPS = 100000, QUICK_ROUNDS = 12, END_PATIENCE_S = 60 };

/* Between the processes; what a killed one was writing is never read. */
struct board {
    atomic_int_fast64_t loaded;  /* step; -1: not yet, 0: from the start */
    atomic_int_fast64_t started; /* step of the newest save that began */
    atomic_int_fast64_t durable; /* step of the newest save that was reported */
    atomic_uint_fast64_t loaded_hash;
    atomic_int_fast64_t save_us; /* what the last one took */
    atomic_uint_fast64_t hash[MAX_STEPS];
};

struct crash {
    char *root;
    struct board *board;
    struct schedule *schedule;
    uint64_t seed, draw;
    pid_t pid[RANKS];
    int64_t lost_at; /* durable step when a folder was last removed */
};

static uint64_t draw(struct crash *c, uint64_t below)
{
    return random_bits(c->seed, c->draw++) % below;
}

/* --- a rank --- */

static char *host_dir(const struct crash *c, int host)
{
    return base_printf("%s/host-%d", c->root, host);
}

static void load(struct rank *r, struct checkpoint *k, struct board *b, int64_t *step)
{
    struct err e = ERR_INIT, passed_over;
    struct checkpoint_info info = {.step = -1};
    ranks_check(checkpoint_load(k, -1, &info, &passed_over, &e), &e);
    *step = info.step < 0 ? 0 : info.step;
    if (info.step < 0)
        ranks_check(init_state(r->x, 5, &e), &e);
    uint64_t hash = ranks_state_hash(r);
    if (r->rank == 0) {
        atomic_store(&b->loaded_hash, hash);
        atomic_store(&b->loaded, *step);
    }
}

/* Until it is killed, or loses a peer. */
static enum rc train(struct rank *r, struct checkpoint *k, struct board *b, int64_t step)
{
    struct err e = ERR_INIT;
    enum rc rc = RC_OK;
    while (!rc && step + 1 < MAX_STEPS) {
        struct checkpoint_report done;
        step++;
        rc = ranks_try_step(r, step, &e);
        if (rc)
            break;
        uint64_t hash = ranks_state_hash(r);
        if (r->rank == 0)
            atomic_store(&b->hash[step], hash);
        struct checkpoint_info info = {.step = step, .samples = step * RANKS, .seed = 5};
        rc = checkpoint_end(k, step % 2, &done, &e);
        if (r->rank == 0 && done.step > 0) {
            atomic_store(&b->save_us, (int64_t)(1e6 * done.seconds));
            atomic_store(&b->durable, done.step);
        }
        if (!rc && r->rank == 0)
            atomic_store(&b->started, step);
        if (!rc)
            rc = checkpoint_start(k, &info, &e);
    }
    return rc;
}

static void run_rank(const struct crash *c, const struct comm_options *co)
{
    static const int host_of[RANKS] = {0, 1, 2};
    struct err e = ERR_INIT;
    struct rank r = {.rank = co->rank, .ranks = RANKS, .schedule = c->schedule};
    struct checkpoint *k;
    struct checkpoint_options o = {.dir = host_dir(c, host_of[co->rank]),
        .host_of = host_of,
        .has_partner = true,
        .is_async = true,
        .keep = 2,
        .collective_s = 60};
    int64_t step;
    ranks_check(comm_open(&r.comm, co, &e), &e);
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    struct executor_options xo = {.device = &device_cpu,
        .device_options = {.threads = 1},
        .kernels = co->kernels,
        .comm = r.comm};
    ranks_check(executor_open(&r.x, r.schedule, &xo, &e), &e);
    ranks_check(checkpoint_open(&k, r.x, &o, &e), &e);
    load(&r, k, c->board, &step);
    /* what it says when it loses its peers is no news */
    if (!freopen("/dev/null", "w", stderr))
        _exit(1);
    train(&r, k, c->board, step);
    checkpoint_close(k);
    _exit(1);
}

/* --- a round --- */

static void start_ranks(struct crash *c)
{
    struct comm_options o[RANKS];
    const char *peers[RANKS];
    char names[RANKS][32];
    struct err e = ERR_INIT;
    for (int i = 0; i < RANKS; i++) {
        int port;
        o[i] = (struct comm_options){.rank = i,
            .ranks = RANKS,
            .shard_degree = (int)c->schedule->shards,
            .peers = peers,
            .token = {1, 2, 3},
            .connect_deadline_s = 60,
            .deadline_s = 60,
            .kernels = kernels_best()};
        ranks_check(comm_listen(&o[i].listen_fd, &port, &e), &e);
        snprintf(names[i], sizeof(names[i]), "127.0.0.1:%d", port);
        peers[i] = names[i];
    }
    for (int i = 0; i < RANKS; i++) {
        c->pid[i] = fork();
        assert_true(c->pid[i] >= 0);
        if (c->pid[i])
            continue;
        for (int other = 0; other < RANKS; other++)
            if (other != i)
                close(o[other].listen_fd);
        run_rank(c, &o[i]);
    }
    for (int i = 0; i < RANKS; i++)
        close(o[i].listen_fd);
}

static int n_alive(struct crash *c)
{
    int n = 0;
    for (int i = 0; i < RANKS; i++) {
        if (c->pid[i] && waitpid(c->pid[i], NULL, WNOHANG) == c->pid[i])
            c->pid[i] = 0;
        n += c->pid[i] != 0;
    }
    return n;
}

/* Those that are left notice and end by themselves. */
static void wait_for_end(struct crash *c)
{
    double deadline = clock_now_s() + END_PATIENCE_S;
    while (n_alive(c) > 0) {
        if (clock_now_s() > deadline)
            fail_msg("seed %llu: a rank is still there", (unsigned long long)c->seed);
        clock_sleep_s(0.002);
    }
}

static void wait_for(struct crash *c, const atomic_int_fast64_t *what, int64_t least)
{
    while (atomic_load(what) < least) {
        if (n_alive(c) < RANKS)
            fail_msg("seed %llu: a rank ended by itself", (unsigned long long)c->seed);
        clock_sleep_s(0.0005);
    }
}

/* One rank, as when a node goes, or all of them at once. */
static void kill_some(struct crash *c)
{
    bool is_all = draw(c, 4) == 0;
    int one = (int)draw(c, RANKS);
    for (int i = 0; i < RANKS; i++)
        if (is_all || i == one)
            kill(c->pid[i], SIGKILL);
}

/* A second loss before anything new is durable may cost what was only there. */
static void lose_a_folder(struct crash *c, int64_t durable)
{
    if (draw(c, 3) > 0 || durable <= c->lost_at)
        return;
    struct err e;
    char *dir = host_dir(c, (int)draw(c, HOSTS));
    assert_int_equal(dir_remove(dir, &e), RC_OK);
    free(dir);
    c->lost_at = atomic_load(&c->board->started); /* of those that are written from now on */
}

static void check_loaded(struct crash *c, int64_t durable)
{
    int64_t loaded = atomic_load(&c->board->loaded);
    if (loaded < durable || loaded > atomic_load(&c->board->started))
        fail_msg("seed %llu: step %lld was durable, step %lld was loaded",
            (unsigned long long)c->seed, (long long)durable, (long long)loaded);
    if (loaded > 0 && atomic_load(&c->board->loaded_hash) != atomic_load(&c->board->hash[loaded]))
        fail_msg("seed %llu: the checkpoint of step %lld has other bits",
            (unsigned long long)c->seed, (long long)loaded);
}

static void play_round(struct crash *c)
{
    struct board *b = c->board;
    int64_t durable = atomic_load(&b->durable);
    atomic_store(&b->loaded, -1);
    start_ranks(c);
    wait_for(c, &b->loaded, 0);
    check_loaded(c, durable);
    int64_t loaded = atomic_load(&b->loaded);
    /* what was reported before may be beyond what is trained again */
    atomic_store(&b->started, loaded);
    atomic_store(&b->durable, loaded);
    wait_for(c, &b->started, loaded + 1 + (int64_t)draw(c, 4));
    clock_sleep_s(1e-6 * (double)draw(c, 1000 + (uint64_t)(3 * atomic_load(&b->save_us) / 2)));
    kill_some(c);
    wait_for_end(c);
    lose_a_folder(c, atomic_load(&b->durable));
}

static uint64_t number_of(const char *variable, uint64_t usual)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : usual;
}

static void whatever_dies_in_a_save_the_newest_good_checkpoint_loads(void **state)
{
    (void)state;
    char name[] = "/tmp/berth-crash-XXXXXX";
    struct crash c = {.seed = number_of("BERTH_CRASH_SEED", 1), .lost_at = -1};
    struct strategy st = strategy_default(STRATEGY_ZERO2, RANKS, 1);
    struct model m;
    struct err e = ERR_INIT;
    st.seq = 8;
    ranks_check(model_find(&m, "tiny-llama", &e), &e);
    ranks_check(schedule_make(&c.schedule, &m, &st, &e), &e);
    c.root = mkdtemp(name);
    assert_non_null(c.root);
    c.board =
        mmap(NULL, sizeof(*c.board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(c.board != MAP_FAILED);
    uint64_t rounds = number_of("BERTH_CRASH_ROUNDS", QUICK_ROUNDS);
    if (rounds != QUICK_ROUNDS)
        printf(
            "# %llu rounds, seed %llu\n", (unsigned long long)rounds, (unsigned long long)c.seed);
    for (uint64_t i = 0; i < rounds; i++)
        play_round(&c);
    munmap(c.board, sizeof(*c.board));
    schedule_free(c.schedule);
    assert_int_equal(dir_remove(c.root, &e), RC_OK);
}

int test_crash(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_dies_in_a_save_the_newest_good_checkpoint_loads),
    };
    return cmocka_run_group_tests_name("engine/crash", tests, NULL, NULL);
}
