/* The paths of collectives (shared memory, TCP, two levels) against plain loops, with ranks as
 * threads; and what survivors say when a peer is killed or stopped, with ranks as processes. */
#include <pthread.h>
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
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/str.h"
#include "engine/comm.h"
#include "kernels/kernels.h"

enum { MAX = 6 };

/* How ranks lie on hosts, and what they share. */
struct layout {
    const char *name;
    int ranks, shard_degree;
    const int *host_of;
    bool has_slab;
};

struct member {
    struct comm_options o;
    const struct layout *l;
    struct comm *c;
    char *memory; /* MEMORY_BYTES of the slab, or of nobody else */
    bool is_shared;
    void (*fn)(struct member *m);
    void *arg;
    struct err e;
    enum rc rc;
};

static const int ONE_HOST[MAX] = {0}, TWO_BY_2[] = {0, 0, 1, 1}, TWO_BY_3[] = {0, 0, 0, 1, 1, 1},
                 THREE_BY_2[] = {0, 0, 1, 1, 2, 2}, UNEVEN[] = {0, 0, 0, 1};

static const int64_t SIZES[] = {1, 3, 1000, 8192, 8193, 45011};
enum {
    N_SIZES = 6,
    LARGEST = 45011,        /* beyond what may come before it is summed */
    VECTOR = LARGEST * MAX, /* elements; the memory has two of them, a shard and scratch */
    /* and room for huge pages */
    SCRATCH_BYTES = 512 << 10,
    MEMORY_BYTES = (2 * VECTOR + LARGEST) * 4 + SCRATCH_BYTES + (4 << 20)
};

/* --- ranks --- */

struct addresses {
    int fd[MAX];
    char text[MAX][32];
    const char *peers[MAX];
};

static const char *const HOSTS[MAX] = {"a", "b", "c", "d", "e", "f"};

static void listen_all(struct addresses *a, int n)
{
    struct err e = ERR_INIT;
    for (int i = 0; i < n; i++) {
        int port;
        assert_int_equal(comm_listen(&a->fd[i], &port, &e), RC_OK);
        snprintf(a->text[i], sizeof(a->text[i]), "127.0.0.1:%d", port);
        a->peers[i] = a->text[i];
    }
}

static struct comm_options options_of(
    const struct layout *l, const struct addresses *a, int rank, double deadline_s)
{
    return (struct comm_options){.rank = rank,
        .ranks = l->ranks,
        .shard_degree = l->shard_degree,
        .listen_fd = a->fd[rank],
        .peers = a->peers,
        .hosts = HOSTS,
        .host_of = l->host_of,
        .token = {7},
        .connect_deadline_s = 20,
        .deadline_s = deadline_s,
        .kernels = kernels_best()};
}

static void member_run(struct member *m)
{
    void *base = NULL;
    m->rc = comm_open(&m->c, &m->o, &m->e);
    if (!m->rc && m->l->has_slab)
        m->rc = comm_map_slab(m->c, MEMORY_BYTES, &base, &m->e);
    m->is_shared = base != NULL;
    m->memory = base ? base : calloc(1, MEMORY_BYTES);
    if (!m->rc)
        m->fn(m);
    if (!m->is_shared)
        free(m->memory);
    comm_close(m->c);
}

static void *member_main(void *arg)
{
    member_run(arg);
    return NULL;
}

/* Returns whether all ranks were content; if not, one of them has said why. */
static bool run_together(const struct layout *l, void (*fn)(struct member *), void *arg)
{
    struct member m[MAX];
    struct addresses a;
    pthread_t thread[MAX];
    listen_all(&a, l->ranks);
    for (int i = 0; i < l->ranks; i++) {
        m[i] = (struct member){.o = options_of(l, &a, i, 30), .l = l, .fn = fn, .arg = arg};
        pthread_create(&thread[i], NULL, member_main, &m[i]);
    }
    for (int i = 0; i < l->ranks; i++)
        pthread_join(thread[i], NULL);
    bool is_good = true;
    for (int i = 0; i < l->ranks; i++) {
        if (m[i].rc)
            print_error("%s: rank %d: %s\n", l->name, i, m[i].e.msg);
        is_good = is_good && m[i].rc == RC_OK;
    }
    return is_good;
}

static void together(const struct layout *l, void (*fn)(struct member *), void *arg)
{
    assert_true(run_together(l, fn, arg));
}

/* --- the right bits --- */

static float value(int rank, int64_t i)
{
    return (float)((rank + 1) * 1000 + i % 977) / 3.0F;
}

static int rank_of(const struct member *m, enum op_group g, int member)
{
    int me = m->o.rank, s = m->l->shard_degree;
    return g == GROUP_WORLD ? member : g == GROUP_SHARD ? me / s * s + member : me % s + member * s;
}

static int host_of(const struct member *m, enum op_group g, int member)
{
    int r = rank_of(m, g, member);
    return m->l->host_of ? m->l->host_of[r] : r;
}

/* Members on each host when they are as many on all, else 1. */
static int per_host(const struct member *m, enum op_group g)
{
    int n = comm_group_size(m->c, g), count[MAX] = {0};
    for (int i = 0; i < n; i++)
        count[host_of(m, g, i)]++;
    int first = count[host_of(m, g, 0)];
    for (int i = 0; i < n; i++)
        if (count[host_of(m, g, i)] != first)
            return 1;
    return first;
}

static bool has_two_levels(const struct member *m, enum op_group g, int64_t elems)
{
    int n = comm_group_size(m->c, g), locals = per_host(m, g);
    return m->is_shared && locals > 1 && locals < n && elems * 4 > 65536;
}

/* In rank order; over two levels inside each host first. */
static float want_sum(const struct member *m, enum op_group g, int64_t elems, int64_t i)
{
    int n = comm_group_size(m->c, g), locals = has_two_levels(m, g, elems) ? per_host(m, g) : n;
    float total = 0;
    for (int h = 0; h < n; h += locals) {
        float sum = value(rank_of(m, g, h), i);
        for (int k = 1; k < locals; k++)
            sum += value(rank_of(m, g, h + k), i);
        total = h ? total + sum : sum;
    }
    return total;
}

static void check(struct member *m, const char *what, int64_t i, float got, float want)
{
    if (!m->rc && memcmp(&got, &want, sizeof(got)) != 0)
        m->rc = err_set(&m->e, RC_FAILED, "%s: element %lld is %.9g, not %.9g", what, (long long)i,
            (double)got, (double)want);
}

static void reduce_scatter_and_gather(struct member *m, enum op_group g, int64_t part)
{
    int n = comm_group_size(m->c, g);
    int64_t total = part * n;
    float *full = (float *)(void *)m->memory, *back = full + VECTOR, *shard = back + VECTOR;
    char *scratch = (char *)(shard + LARGEST);
    for (int64_t i = 0; i < total; i++)
        full[i] = value(m->o.rank, i);
    for (int again = 0; again < 2 && !m->rc; again++)
        m->rc = comm_reduce_scatter(
            m->c, CHANNEL_REDUCE, g, full, shard, part, again > 0, scratch, &m->e);
    if (!m->rc)
        m->rc = comm_all_gather(
            m->c, CHANNEL_GATHER, g, shard, back, (size_t)part * sizeof(float), &m->e);
    for (int64_t i = 0; i < total && !m->rc; i++) {
        float once = want_sum(m, g, total, i);
        check(m, "reduce-scatter", i, back[i], once + once);
        check(m, "its source", i, full[i], value(m->o.rank, i));
    }
}

static void all_reduce(struct member *m, enum op_group g, int64_t part)
{
    int n = comm_group_size(m->c, g);
    int64_t total = part * n - (n > 1);
    float *data = (float *)(void *)m->memory;
    char *scratch = (char *)(data + 2 * VECTOR + LARGEST);
    for (int64_t i = 0; i < part * n; i++)
        data[i] = value(m->o.rank, i);
    if (!m->rc)
        m->rc = comm_all_reduce(m->c, CHANNEL_REDUCE, g, data, total, scratch, &m->e);
    for (int64_t i = 0; i < total && !m->rc; i++)
        check(m, "all-reduce", i, data[i], want_sum(m, g, total, i));
    if (n > 1)
        check(m, "behind all-reduce", total, data[total], value(m->o.rank, total));
}

/* Of what rank a has for rank b, byte i. */
static char piece_byte(int a, int b, size_t i)
{
    return (char)(a * 31 + b * 7 + (int)(i % 113));
}

/* Pieces of as many bytes as the other collectives have elements. */
static void all_to_all(struct member *m, enum op_group g, int64_t part)
{
    int n = comm_group_size(m->c, g), me = comm_group_rank(m->c, g);
    size_t piece = (size_t)part * sizeof(float) - 1;
    char *from = m->memory, *to = m->memory + VECTOR * sizeof(float);
    for (int i = 0; i < n; i++)
        for (size_t k = 0; k < piece; k++)
            from[piece * (size_t)i + k] = piece_byte(m->o.rank, rank_of(m, g, i), k);
    if (!m->rc)
        m->rc = comm_all_to_all(m->c, CHANNEL_REDUCE, g, from, to, piece, &m->e);
    for (int i = 0; i < n && !m->rc; i++)
        for (size_t k = 0; k < piece && !m->rc; k++)
            if (to[piece * (size_t)i + k] != piece_byte(rank_of(m, g, i), rank_of(m, g, me), k))
                m->rc = err_set(&m->e, RC_FAILED, "all-to-all: byte %zu of member %d", k, i);
}

static void sum_doubles(struct member *m, enum op_group g)
{
    int n = comm_group_size(m->c, g);
    double x[2] = {m->o.rank + 0.1, 1.0 / 3}, want[2] = {0, 0};
    for (int i = 0; i < n; i++) {
        want[0] = i ? want[0] + (rank_of(m, g, i) + 0.1) : rank_of(m, g, i) + 0.1;
        want[1] = i ? want[1] + 1.0 / 3 : 1.0 / 3;
    }
    if (!m->rc)
        m->rc = comm_sum(m->c, CHANNEL_COMPUTE, g, x, 2, &m->e);
    if (!m->rc && memcmp(x, want, sizeof(x)) != 0)
        m->rc = err_set(&m->e, RC_FAILED, "sum: %.17g, not %.17g", x[0], want[0]);
}

static void run_all(struct member *m)
{
    const enum op_group groups[] = {GROUP_WORLD, GROUP_SHARD, GROUP_REPLICA};
    if (m->l->has_slab && m->l->host_of == ONE_HOST && !m->is_shared && !comm_note(m->c)[0])
        m->rc = err_set(&m->e, RC_FAILED, "memory is not shared, and nobody says why");
    for (int g = 0; g < 3; g++)
        for (int s = 0; s < N_SIZES && !m->rc; s++) {
            reduce_scatter_and_gather(m, groups[g], SIZES[s]);
            all_reduce(m, groups[g], SIZES[s]);
            all_to_all(m, groups[g], SIZES[s]);
            sum_doubles(m, groups[g]);
        }
    if (!m->rc)
        m->rc = comm_barrier(m->c, &m->e);
}

/* Equal to the loops, bit by bit, so to each other where the loops are the same. */
static void every_path_gives_the_bits_of_plain_loops(void **state)
{
    (void)state;
    const struct layout layouts[] = {
        {"TCP", 4, 2, NULL, false},
        {"shared memory, 2 ranks", 2, 2, ONE_HOST, true},
        {"shared memory, 3 ranks", 3, 3, ONE_HOST, true},
        {"shared memory, groups", 4, 2, ONE_HOST, true},
        {"shared memory, 3 groups", 6, 2, ONE_HOST, true},
        {"no slab", 4, 2, ONE_HOST, false},
        {"two hosts, groups inside", 4, 2, TWO_BY_2, true},
        {"two hosts, groups across", 4, 4, TWO_BY_2, true},
        {"two hosts of three, groups over the border", 6, 2, TWO_BY_3, true},
        {"three hosts", 6, 6, THREE_BY_2, true},
        {"three hosts, two replicas in each", 6, 1, THREE_BY_2, true},
        {"two hosts without a slab", 4, 4, TWO_BY_2, false},
        {"hosts of three and one", 4, 2, UNEVEN, true},
    };
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
        together(&layouts[i], run_all, NULL);
}

/* --- volumes --- */

static void send_known_amounts(struct member *m)
{
    struct comm_volume *v = m->arg;
    float *full = (float *)(void *)m->memory, *shard = full + 2 * VECTOR;
    char *scratch = (char *)(shard + LARGEST);
    const int64_t part = 20000;
    struct comm_volume start = comm_sent(m->c);
    m->rc = comm_all_gather(m->c, CHANNEL_GATHER, GROUP_WORLD, shard, full, part * 4, &m->e);
    struct comm_volume gathered = comm_sent(m->c);
    if (!m->rc)
        m->rc = comm_reduce_scatter(
            m->c, CHANNEL_REDUCE, GROUP_WORLD, full, shard, part, false, scratch, &m->e);
    struct comm_volume reduced = comm_sent(m->c);
    if (!m->rc)
        m->rc = comm_all_reduce(
            m->c, CHANNEL_REDUCE, GROUP_WORLD, full, part * m->l->ranks, scratch, &m->e);
    struct comm_volume all = comm_sent(m->c);
    if (!m->rc)
        m->rc = comm_all_to_all(
            m->c, CHANNEL_REDUCE, GROUP_WORLD, full, full + VECTOR, part * 4, &m->e);
    struct comm_volume swapped = comm_sent(m->c);
    struct comm_volume *mine = &v[4 * m->o.rank];
    mine[0] = (struct comm_volume){gathered.inside - start.inside, gathered.across - start.across};
    mine[1] =
        (struct comm_volume){reduced.inside - gathered.inside, reduced.across - gathered.across};
    mine[2] = (struct comm_volume){all.inside - reduced.inside, all.across - reduced.across};
    mine[3] = (struct comm_volume){swapped.inside - all.inside, swapped.across - all.across};
    if (!m->is_shared)
        m->rc = err_set(&m->e, RC_FAILED, "%s", comm_note(m->c));
}

/* H hosts of L ranks and a vector of V bytes: between hosts V / (H L) times H - 1 a rank, which is
 * (H - 1) / H of a vector a host; inside (L - 1) / L of V a rank. All-reduce is both twice. Of an
 * all-to-all every piece is for one rank: it goes where that is. */
static void two_levels_send_each_byte_to_a_host_once(void **state)
{
    (void)state;
    const struct layout layouts[] = {
        {"two by two", 4, 4, TWO_BY_2, true},
        {"two by three", 6, 6, TWO_BY_3, true},
        {"three by two", 6, 6, THREE_BY_2, true},
        {"one host", 4, 4, ONE_HOST, true},
    };
    const uint64_t hosts[] = {2, 2, 3, 1};
    for (int i = 0; i < 4; i++) {
        struct comm_volume v[4 * MAX];
        uint64_t n = (uint64_t)layouts[i].ranks, locals = n / hosts[i], bytes = 20000 * 4 * n;
        together(&layouts[i], send_known_amounts, v);
        for (uint64_t k = 0; k < 4 * n; k++) {
            uint64_t passes = k % 4 == 2 ? 2 : 1;
            if (k % 4 == 3) {
                assert_int_equal(v[k].across, bytes / n * (n - locals));
                assert_int_equal(v[k].inside, bytes / n * (locals - 1));
                continue;
            }
            assert_int_equal(v[k].across, passes * bytes / n * (hosts[i] - 1));
            assert_int_equal(v[k].inside, passes * bytes / locals * (locals - 1));
        }
    }
}

/* --- when memory cannot be shared --- */

static void expect_note(struct member *m)
{
    const char *word = m->arg;
    if (m->is_shared || !strstr(comm_note(m->c), word))
        m->rc = err_set(&m->e, RC_FAILED, "'%s' does not say '%s'", comm_note(m->c), word);
    if (!m->rc)
        run_all(m);
}

/* In a child, where files (and shared memory is one) may be no larger than that. */
static void with_small_files(const struct layout *l, rlim_t bytes, const char *word)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {bytes, bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(run_together(l, expect_note, (void *)(uintptr_t)word) ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void ranks_that_cannot_share_memory_say_why_and_use_tcp(void **state)
{
    (void)state;
    const struct layout one = {"one host", 4, 2, ONE_HOST, true},
                        two = {"two hosts", 4, 4, TWO_BY_2, true};
    with_small_files(&one, 2 << 20, "see ulimit -f"); /* the control blocks fit, slabs do not */
    with_small_files(&two, 4096, "exchange over TCP: files are limited");
}

/* --- when a peer is killed or stopped --- */

struct report {
    atomic_int rounds; /* collectives done */
    double end_s;
    enum rc rc;
    char msg[256];
    bool is_shared;
};

struct victim_case {
    const struct layout *l;
    int operation;
    struct report *r; /* by rank, in memory of all processes */
};

static const char *const OPERATIONS[] = {"all-gather of 480000 bytes",
    "reduce-scatter of 480000 bytes", "all-reduce of 480000 bytes", "sum of 8 bytes",
    "all-to-all of 480000 bytes"};
enum { OPERATION_COUNT = 5 };

static enum rc one_collective(struct member *m, int operation)
{
    int n = m->l->ranks;
    int64_t part = 120000 / n;
    float *full = (float *)(void *)m->memory;
    char *scratch = (char *)(full + 2 * VECTOR + LARGEST);
    double x = 1;
    switch (operation) {
    case 0:
        return comm_all_gather(m->c, CHANNEL_GATHER, GROUP_WORLD, full + part * m->o.rank, full,
            (size_t)part * 4, &m->e);
    case 1:
        return comm_reduce_scatter(
            m->c, CHANNEL_REDUCE, GROUP_WORLD, full, full + VECTOR, part, false, scratch, &m->e);
    case 2:
        return comm_all_reduce(m->c, CHANNEL_REDUCE, GROUP_WORLD, full, part * n, scratch, &m->e);
    case 4:
        return comm_all_to_all(
            m->c, CHANNEL_REDUCE, GROUP_WORLD, full, full + VECTOR, (size_t)part * 4, &m->e);
    default:
        return comm_sum(m->c, CHANNEL_COMPUTE, GROUP_WORLD, &x, 1, &m->e);
    }
}

static void loop_until_failure(struct member *m)
{
    const struct victim_case *v = m->arg;
    struct report *r = &v->r[m->o.rank];
    r->is_shared = m->is_shared;
    while (!m->rc) {
        m->rc = one_collective(m, v->operation);
        atomic_fetch_add(&r->rounds, 1);
    }
    r->rc = m->rc;
    r->end_s = clock_now_s();
    str_copy(r->msg, sizeof(r->msg), m->e.msg);
}

static void start_members(const struct victim_case *v, pid_t *pid, double deadline_s)
{
    struct addresses a;
    listen_all(&a, v->l->ranks);
    fflush(NULL);
    for (int i = 0; i < v->l->ranks; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (int k = 0; k < v->l->ranks; k++)
                if (k != i)
                    close(a.fd[k]);
            struct member m = {.o = options_of(v->l, &a, i, deadline_s),
                .l = v->l,
                .fn = loop_until_failure,
                .arg = (void *)(uintptr_t)v};
            member_run(&m);
            v->r[i].rc = m.rc; /* also when it never came to the loop */
            _exit(0);
        }
    }
    for (int i = 0; i < v->l->ranks; i++)
        close(a.fd[i]);
}

/* Send the signal to the last rank in the middle of its collectives; how long the last survivor
 * needed to notice. */
static double strike(const struct victim_case *v, int signal_number, double deadline_s)
{
    pid_t pid[MAX];
    int n = v->l->ranks, status;
    memset(v->r, 0, sizeof(*v->r) * (size_t)n);
    start_members(v, pid, deadline_s);
    for (int i = 0; i < n; i++)
        while (atomic_load(&v->r[i].rounds) < 20 && !v->r[i].rc)
            clock_sleep_s(0.001);
    double start = clock_now_s(), last = 0;
    kill(pid[n - 1], signal_number);
    for (int i = 0; i < n - 1; i++) {
        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        last = v->r[i].end_s > last ? v->r[i].end_s : last;
    }
    kill(pid[n - 1], SIGKILL);
    waitpid(pid[n - 1], &status, 0);
    return last - start;
}

/* Everybody fails; who names the victim names its host, the operation and its bytes too. */
static void expect_named(const struct victim_case *v, enum rc rc, const char *what)
{
    char want[256];
    int named = 0, n = v->l->ranks;
    snprintf(want, sizeof(want), "%s: rank %d on host '%s' %s", OPERATIONS[v->operation], n - 1,
        HOSTS[n - 1], what);
    for (int i = 0; i < n - 1; i++) {
        assert_int_not_equal(v->r[i].rc, RC_OK);
        named += v->r[i].rc == rc && strstr(v->r[i].msg, want);
    }
    if (named == 0)
        fail_msg("%s: nobody says '%s', but '%s'", v->l->name, want, v->r[0].msg);
}

static const struct layout STRUCK[] = {
    {"TCP", 2, 2, NULL, false},
    {"shared memory", 3, 3, ONE_HOST, true},
    {"two levels", 4, 4, TWO_BY_2, true},
};

static void strike_all(int signal_number, double deadline_s, enum rc rc, const char *what)
{
    size_t bytes = sizeof(struct report) * MAX;
    struct report *r = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < 3; i++) {
        for (int op = 0; op < OPERATION_COUNT; op++) {
            struct victim_case v = {&STRUCK[i], op, r};
            double s = strike(&v, signal_number, deadline_s);
            expect_named(&v, rc, what);
            print_message(
                "    %s, %s: all knew after %.1f ms\n", STRUCK[i].name, OPERATIONS[op], s * 1e3);
        }
    }
    munmap(r, bytes);
}

/* Not by the deadline: that would be RC_NODE. */
static void a_killed_peer_is_named_in_every_collective_on_every_path(void **state)
{
    (void)state;
    strike_all(SIGKILL, 60, RC_PEER, "closed the connection");
}

static void a_stopped_peer_is_named_at_the_deadline_on_every_path(void **state)
{
    (void)state;
    strike_all(SIGSTOP, 0.4, RC_NODE, "did not");
}

int test_comm_paths(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_path_gives_the_bits_of_plain_loops),
        cmocka_unit_test(two_levels_send_each_byte_to_a_host_once),
        cmocka_unit_test(ranks_that_cannot_share_memory_say_why_and_use_tcp),
        cmocka_unit_test(a_killed_peer_is_named_in_every_collective_on_every_path),
        cmocka_unit_test(a_stopped_peer_is_named_at_the_deadline_on_every_path),
    };
    return cmocka_run_group_tests_name("engine/comm_paths", tests, NULL, NULL);
}
