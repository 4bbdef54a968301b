/* Collectives against plain loops, and what happens when a peer is silent, dead or a stranger. */
#include "engine/comm.h"

#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "kernels/kernels.h"

enum { MAX = 4 };

struct member {
    struct comm_options o;
    struct comm *c;
    void (*fn)(struct member *m);
    void *arg;
    struct err e;
    enum rc rc;
};

static void *member_main(void *arg)
{
    struct member *m = arg;
    m->rc = comm_open(&m->c, &m->o, &m->e);
    if (!m->rc)
        m->fn(m);
    comm_close(m->c);
    return NULL;
}

static void together(int n, int shard_degree, double deadline_s, void (*fn)(struct member *),
    void *arg, struct member *members)
{
    static char names[MAX][32];
    static const char *peers[MAX];
    static const char *const hosts[MAX] = {"alpha", "beta", "gamma", "delta"};
    pthread_t thread[MAX];
    struct err e = ERR_INIT;
    for (int i = 0; i < n; i++) {
        int port;
        members[i] = (struct member){.fn = fn, .arg = arg};
        members[i].o = (struct comm_options){.rank = i,
            .ranks = n,
            .shard_degree = shard_degree,
            .peers = peers,
            .hosts = hosts,
            .token = {9},
            .connect_deadline_s = 10,
            .deadline_s = deadline_s,
            .kernels = kernels_best()};
        assert_int_equal(comm_listen(&members[i].o.listen_fd, &port, &e), RC_OK);
        snprintf(names[i], sizeof(names[i]), "127.0.0.1:%d", port);
        peers[i] = names[i];
    }
    for (int i = 0; i < n; i++)
        pthread_create(&thread[i], NULL, member_main, &members[i]);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
}

static void all_good(int n, const struct member *m)
{
    for (int i = 0; i < n; i++)
        if (m[i].rc)
            fail_msg("rank %d: %s", i, m[i].e.msg);
}

/* --- right results --- */

static float value(int rank, int64_t i)
{
    return (float)((rank + 1) * 1000 + i % 977) / 3.0F;
}

static void reduce_and_gather(struct member *m)
{
    int n = comm_group_size(m->c, GROUP_WORLD), me = comm_rank(m->c);
    /* the last is more than scratch may hold before it is summed */
    const int64_t sizes[] = {1, 3, 1000, n == 2 ? 150001 : 75001};
    for (size_t k = 0; k < 4 && !m->rc; k++) {
        int64_t part = sizes[k], total = part * n;
        float *full = malloc((size_t)total * sizeof(float)),
              *back = calloc((size_t)total, sizeof(float));
        float *shard = calloc((size_t)part, sizeof(float));
        char *scratch = malloc((size_t)schedule_sum_scratch_bytes(n));
        for (int64_t i = 0; i < total; i++)
            full[i] = value(me, i);
        m->rc = comm_reduce_scatter(
            m->c, CHANNEL_REDUCE, GROUP_WORLD, full, shard, part, false, scratch, &m->e);
        if (!m->rc)
            m->rc = comm_all_gather(m->c, CHANNEL_GATHER, GROUP_WORLD, shard, back,
                (size_t)part * sizeof(float), &m->e);
        if (!m->rc)
            m->rc =
                comm_all_reduce(m->c, CHANNEL_REDUCE, GROUP_WORLD, full, total - 1, scratch, &m->e);
        for (int64_t i = 0; i < total && !m->rc; i++) {
            float want = value(0, i);
            for (int r = 1; r < n; r++)
                want += value(r, i);
            /* the same order of sums: the same bits */
            if (memcmp(&back[i], &want, 4) != 0 ||
                (i < total - 1 && memcmp(&full[i], &want, 4) != 0))
                m->rc = err_set(&m->e, RC_FAILED, "element %lld is wrong", (long long)i);
        }
        free(full);
        free(back);
        free(shard);
        free(scratch);
    }
}

static void sums_are_made_in_rank_order_for_all_sizes(void **state)
{
    (void)state;
    struct member m[MAX];
    for (int n = 1; n <= MAX; n++) {
        together(n, n, 20, reduce_and_gather, NULL, m);
        all_good(n, m);
    }
}

static void sum_in_groups(struct member *m)
{
    double x[2] = {comm_rank(m->c), 1};
    m->rc = comm_sum(m->c, CHANNEL_COMPUTE, GROUP_SHARD, x, 2, &m->e);
    double y[1] = {comm_rank(m->c)};
    if (!m->rc)
        m->rc = comm_sum(m->c, CHANNEL_COMPUTE, GROUP_REPLICA, y, 1, &m->e);
    int me = comm_rank(m->c);
    if (!m->rc && (x[0] != (me < 2 ? 1 : 5) || x[1] != 2 || y[0] != (me % 2 ? 4 : 2)))
        m->rc = err_set(&m->e, RC_FAILED, "wrong groups");
}

static void groups_are_consecutive_ranks_and_their_counterparts(void **state)
{
    (void)state;
    struct member m[MAX];
    together(4, 2, 20, sum_in_groups, NULL, m);
    all_good(4, m);
}

static void ring_exchange(struct member *m)
{
    enum { N = 300000 };
    int n = comm_ranks(m->c), me = comm_rank(m->c);
    char *out = malloc(N), *in = malloc(N);
    memset(out, 'a' + me, N);
    m->rc = comm_exchange(m->c, CHANNEL_CHECKPOINT,
        &(struct comm_exchange){(me + 1) % n, out, N, (me + n - 1) % n, in, N}, &m->e);
    if (!m->rc && (in[0] != 'a' + (me + n - 1) % n || in[N - 1] != in[0]))
        m->rc = err_set(&m->e, RC_FAILED, "wrong bytes");
    free(out);
    free(in);
}

static void exchange_moves_files_both_ways_at_once(void **state)
{
    (void)state;
    struct member m[MAX];
    for (int n = 2; n <= 3; n++) {
        together(n, n, 20, ring_exchange, NULL, m);
        all_good(n, m);
    }
}

/* --- failures --- */

static void last_one_leaves(struct member *m)
{
    double x = 1;
    if (comm_rank(m->c) == comm_ranks(m->c) - 1)
        return;
    m->rc = comm_sum(m->c, CHANNEL_COMPUTE, GROUP_WORLD, &x, 1, &m->e);
}

static void a_peer_that_ends_is_named_at_once(void **state)
{
    (void)state;
    struct member m[MAX];
    double start = clock_now_s();
    together(2, 2, 30, last_one_leaves, NULL, m);
    assert_true(clock_now_s() - start < 5);
    assert_int_equal(m[0].rc, RC_PEER);
    assert_string_equal(
        m[0].e.msg, "rank 0: sum of 8 bytes: rank 1 on host 'beta' closed the connection");
}

static void last_one_sleeps(struct member *m)
{
    double x = 1;
    if (comm_rank(m->c) == comm_ranks(m->c) - 1) {
        clock_sleep_s(1.5);
        return;
    }
    m->rc = comm_sum(m->c, CHANNEL_COMPUTE, GROUP_WORLD, &x, 1, &m->e);
}

static void a_silent_peer_is_named_at_the_deadline(void **state)
{
    (void)state;
    struct member m[MAX];
    together(2, 2, 0.3, last_one_sleeps, NULL, m);
    assert_int_equal(m[0].rc, RC_NODE);
    assert_non_null(strstr(m[0].e.msg, "rank 1 on host 'beta' did not answer before the deadline"));
}

static void last_one_saves_slowly(struct member *m)
{
    double x = 1;
    comm_set_deadline(m->c, CHANNEL_CHECKPOINT, 30);
    if (comm_rank(m->c) == comm_ranks(m->c) - 1)
        clock_sleep_s(1);
    m->rc = comm_sum(m->c, CHANNEL_CHECKPOINT, GROUP_WORLD, &x, 1, &m->e);
}

static void a_channel_for_slow_things_has_a_deadline_of_its_own(void **state)
{
    (void)state;
    struct member m[MAX];
    together(2, 2, 0.3, last_one_saves_slowly, NULL, m);
    all_good(2, m);
}

static void disagree(struct member *m)
{
    double x = 1;
    float y[8] = {0};
    char *scratch = malloc((size_t)schedule_sum_scratch_bytes(2));
    m->rc = comm_rank(m->c) == 0
                ? comm_sum(m->c, CHANNEL_COMPUTE, GROUP_WORLD, &x, 1, &m->e)
                : comm_all_reduce(m->c, CHANNEL_COMPUTE, GROUP_WORLD, y, 8, scratch, &m->e);
    free(scratch);
}

static void ranks_at_different_operations_find_out(void **state)
{
    (void)state;
    struct member m[MAX];
    together(2, 2, 5, disagree, NULL, m);
    assert_true(m[0].rc == RC_NODE && m[1].rc == RC_NODE);
    assert_true(strstr(m[0].e.msg, "disagree about the schedule") ||
                strstr(m[1].e.msg, "disagree about the schedule"));
}

static void *stranger(void *arg)
{
    int port = *(int *)arg;
    for (int i = 0; i < 3; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        struct sockaddr_in a = {.sin_family = AF_INET,
            .sin_port = htons((uint16_t)port),
            .sin_addr = {htonl(INADDR_LOOPBACK)}};
        if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 && i > 0) {
            char junk[64];
            memset(junk, 'x', sizeof(junk));
            ssize_t ignored = send(fd, junk, sizeof(junk), MSG_NOSIGNAL);
            (void)ignored;
        }
        close(fd);
    }
    return NULL;
}

static void strangers_without_the_token_change_nothing(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct member m[2];
    static char names[2][32];
    static const char *peers[2];
    pthread_t thread[3];
    int port[2];
    for (int i = 0; i < 2; i++) {
        m[i] = (struct member){.fn = reduce_and_gather};
        m[i].o = (struct comm_options){.rank = i,
            .ranks = 2,
            .shard_degree = 2,
            .peers = peers,
            .token = {9},
            .connect_deadline_s = 10,
            .deadline_s = 10,
            .kernels = kernels_best()};
        assert_int_equal(comm_listen(&m[i].o.listen_fd, &port[i], &e), RC_OK);
        snprintf(names[i], sizeof(names[i]), "127.0.0.1:%d", port[i]);
        peers[i] = names[i];
    }
    pthread_create(&thread[2], NULL, stranger, &port[1]);
    pthread_join(thread[2], NULL);
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, member_main, &m[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    all_good(2, m);
}

static void a_wrong_token_is_refused(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct member m[2];
    static char names[2][32];
    static const char *peers[2];
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        int port;
        m[i] = (struct member){.fn = reduce_and_gather};
        m[i].o = (struct comm_options){.rank = i,
            .ranks = 2,
            .shard_degree = 2,
            .peers = peers,
            .token = {(unsigned char)i},
            .connect_deadline_s = 1,
            .deadline_s = 5,
            .kernels = kernels_best()};
        assert_int_equal(comm_listen(&m[i].o.listen_fd, &port, &e), RC_OK);
        snprintf(names[i], sizeof(names[i]), "127.0.0.1:%d", port);
        peers[i] = names[i];
    }
    for (int i = 0; i < 2; i++)
        pthread_create(&thread[i], NULL, member_main, &m[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(m[0].rc, RC_NETWORK);
    assert_int_equal(m[1].rc, RC_NETWORK);
    assert_non_null(strstr(m[0].e.msg, "did not prove that it belongs to this run"));
}

int test_comm(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_made_in_rank_order_for_all_sizes),
        cmocka_unit_test(groups_are_consecutive_ranks_and_their_counterparts),
        cmocka_unit_test(exchange_moves_files_both_ways_at_once),
        cmocka_unit_test(a_peer_that_ends_is_named_at_once),
        cmocka_unit_test(a_silent_peer_is_named_at_the_deadline),
        cmocka_unit_test(a_channel_for_slow_things_has_a_deadline_of_its_own),
        cmocka_unit_test(ranks_at_different_operations_find_out),
        cmocka_unit_test(strangers_without_the_token_change_nothing),
        cmocka_unit_test(a_wrong_token_is_refused),
    };
    return cmocka_run_group_tests_name("engine/comm", tests, NULL, NULL);
}
