/* Collectives of ranks on this machine, over shared memory and over TCP on loopback. 64 MiB against
 * what the bytes cost without a collective: a memcpy by every rank at once of what it receives
 * (and, for sums, of as much memory traffic), and a bare stream over one socket each way. Small
 * ones in microseconds. A time is that of the slowest rank; ratios are medians of pairs taken in
 * turns. */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/comm.h"
#include "kernels/kernels.h"
#include "tests/bench/lib_bench.h"

enum { MAX = BENCH_MAX_RANKS, ROUNDS = 15, SMALL_REPEATS = 2000, BUFFER = 512 << 10 };
#define BYTES ((size_t)64 << 20)

struct shared {
    atomic_int come, round;
    double seconds[MAX];
};

struct bench {
    int ranks, rank;
    struct shared *shared;
    struct comm *shm, *tcp;
    char *full, *private_full; /* BYTES and more, in the slab and in huge pages of its own */
    char *out, *scratch;
    int to, from; /* bare sockets round the ranks */
};

/* --- what is timed --- */

typedef void work_fn(struct bench *b, size_t bytes);

static size_t part_of(const struct bench *b, size_t bytes)
{
    return bytes / (size_t)b->ranks;
}

static void copy_received(struct bench *b, size_t bytes)
{
    size_t n = bytes - part_of(b, bytes);
    memcpy(b->private_full, b->private_full + BYTES, n);
}

/* As many bytes read and written as for a sum: every rank's part read, the own one written. */
static void copy_like_sum(struct bench *b, size_t bytes)
{
    size_t n = part_of(b, bytes) * (size_t)(b->ranks + 1) / 2;
    memcpy(b->private_full, b->private_full + BYTES, n);
}

static void stream(struct bench *b, size_t bytes)
{
    size_t left = bytes - part_of(b, bytes), in = left;
    char *p = b->private_full, *q = b->private_full + BYTES;
    while (left || in) {
        ssize_t n = left ? send(b->to, p, left, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        ssize_t m = in ? recv(b->from, q, in, MSG_DONTWAIT) : 0;
        if (n > 0) {
            p += n;
            left -= (size_t)n;
        }
        if (m > 0) {
            q += m;
            in -= (size_t)m;
        }
        struct pollfd f[2] = {{left ? b->to : -1, POLLOUT, 0}, {in ? b->from : -1, POLLIN, 0}};
        if (n <= 0 && m <= 0)
            poll(f, 2, -1);
    }
}

static void gather(struct bench *b, struct comm *c, size_t bytes)
{
    struct err e = ERR_INIT;
    size_t part = part_of(b, bytes);
    need(comm_all_gather(
             c, CHANNEL_GATHER, GROUP_WORLD, b->full + part * (size_t)b->rank, b->full, part, &e),
        &e);
}

static void reduce(struct bench *b, struct comm *c, size_t bytes)
{
    struct err e = ERR_INIT;
    need(comm_reduce_scatter(c, CHANNEL_REDUCE, GROUP_WORLD, (float *)(void *)b->full,
             (float *)(void *)b->out, (int64_t)(part_of(b, bytes) / sizeof(float)), false,
             b->scratch, &e),
        &e);
}

static void all_reduce(struct bench *b, struct comm *c, size_t bytes)
{
    struct err e = ERR_INIT;
    need(comm_all_reduce(c, CHANNEL_REDUCE, GROUP_WORLD, (float *)(void *)b->full,
             (int64_t)(bytes / sizeof(float)), b->scratch, &e),
        &e);
}

static void shm_gather(struct bench *b, size_t bytes)
{
    gather(b, b->shm, bytes);
}

static void tcp_gather(struct bench *b, size_t bytes)
{
    gather(b, b->tcp, bytes);
}

static void shm_reduce(struct bench *b, size_t bytes)
{
    reduce(b, b->shm, bytes);
}

static void tcp_reduce(struct bench *b, size_t bytes)
{
    reduce(b, b->tcp, bytes);
}

static void shm_all_reduce(struct bench *b, size_t bytes)
{
    all_reduce(b, b->shm, bytes);
}

static void tcp_all_reduce(struct bench *b, size_t bytes)
{
    all_reduce(b, b->tcp, bytes);
}

static void barrier(struct bench *b, size_t bytes)
{
    struct err e = ERR_INIT;
    need(comm_barrier(b->shm, &e), &e);
}

/* --- timing --- */

static void meet(struct bench *b)
{
    int round = atomic_load(&b->shared->round);
    if (atomic_fetch_add(&b->shared->come, 1) == b->ranks - 1) {
        atomic_store(&b->shared->come, 0);
        atomic_store(&b->shared->round, round + 1);
        return;
    }
    while (atomic_load(&b->shared->round) == round)
        sched_yield();
}

static double slowest_s(struct bench *b, work_fn *work, size_t bytes, int repeats)
{
    meet(b);
    double start = clock_now_s(), most = 0;
    for (int i = 0; i < repeats; i++)
        work(b, bytes);
    b->shared->seconds[b->rank] = (clock_now_s() - start) / repeats;
    meet(b);
    for (int r = 0; r < b->ranks; r++)
        most = b->shared->seconds[r] > most ? b->shared->seconds[r] : most;
    meet(b);
    return most;
}

static const char *only = ""; /* pairs with this word */

static void pair(struct bench *b, const char *what, work_fn *work, const char *beside, work_fn *ref)
{
    double t[ROUNDS], r[ROUNDS], ratio[ROUNDS];
    if (!strstr(what, only))
        return;
    for (int i = -2; i < ROUNDS; i++) {
        double reference = slowest_s(b, ref, BYTES, 1), seconds = slowest_s(b, work, BYTES, 1);
        if (i < 0)
            continue;
        t[i] = seconds;
        r[i] = reference;
        ratio[i] = seconds / reference;
    }
    double times = median(ratio, ROUNDS), each = median(t, ROUNDS), other = median(r, ROUNDS);
    if (b->rank == 0)
        printf("%d ranks, 64 MiB, %-30s %6.2f ms (best %.2f) = %.2f of %s, %.2f ms (best %.2f)\n",
            b->ranks, what, each * 1e3, t[0] * 1e3, times, beside, other * 1e3, r[0] * 1e3);
}

static void small(struct bench *b, const char *what, work_fn *work, size_t bytes)
{
    double t[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        t[i] = slowest_s(b, work, bytes, SMALL_REPEATS / ROUNDS);
    if (b->rank == 0)
        printf("%d ranks, %6zu bytes, %-28s %7.1f us\n", b->ranks, bytes, what,
            median(t, ROUNDS) * 1e6);
}

/* --- ranks --- */

static char *huge_pages(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        exit(1);
    madvise(p, bytes, MADV_HUGEPAGE);
    memset(p, 1, bytes);
    return p;
}

static void run(struct bench *b)
{
    pair(b, "all-gather, shared memory", shm_gather, "a memcpy", copy_received);
    pair(b, "reduce-scatter, shared memory", shm_reduce, "a memcpy", copy_received);
    pair(
        b, "reduce-scatter, shared memory", shm_reduce, "a memcpy of equal traffic", copy_like_sum);
    pair(b, "all-reduce, shared memory", shm_all_reduce, "a memcpy", copy_received);
    pair(b, "all-gather, TCP", tcp_gather, "a bare stream", stream);
    pair(b, "reduce-scatter, TCP", tcp_reduce, "a bare stream", stream);
    pair(b, "all-reduce, TCP", tcp_all_reduce, "a bare stream", stream);
    for (size_t bytes = 1024; bytes <= 65536; bytes *= 64) {
        small(b, "all-gather, shared memory", shm_gather, bytes);
        small(b, "reduce-scatter, shared memory", shm_reduce, bytes);
        small(b, "all-reduce, shared memory", shm_all_reduce, bytes);
        small(b, "all-gather, TCP", tcp_gather, bytes);
        small(b, "reduce-scatter, TCP", tcp_reduce, bytes);
        small(b, "all-reduce, TCP", tcp_all_reduce, bytes);
    }
    small(b, "barrier, shared memory", barrier, 8);
}

static void run_rank(
    struct bench *b, const struct comm_options *shm, const struct comm_options *tcp)
{
    struct err e = ERR_INIT;
    void *slab;
    need(comm_open(&b->shm, shm, &e), &e);
    need(comm_map_slab(b->shm, 2 * BYTES, &slab, &e), &e);
    need(comm_open(&b->tcp, tcp, &e), &e);
    if (!slab && b->rank == 0)
        printf("%s\n", comm_note(b->shm));
    b->full = slab ? slab : huge_pages(2 * BYTES);
    memset(b->full, 0, 2 * BYTES);
    b->out = b->full + BYTES;
    b->scratch = b->full + 2 * BYTES - schedule_sum_scratch_bytes(MAX);
    b->private_full = huge_pages(2 * BYTES);
    run(b);
    comm_close(b->tcp);
    comm_close(b->shm);
}

/* A connection as comm_connect makes it between the addresses of ranks_listen, without more. */
static void connect_ring(int (*fd)[2], int ranks)
{
    for (int i = 0; i < ranks; i++) {
        int port, listening, to, size = BUFFER;
        struct err e = ERR_INIT;
        need(comm_listen(&listening, &port, &e), &e);
        struct sockaddr_in a = {.sin_family = AF_INET,
            .sin_port = htons((uint16_t)port),
            .sin_addr = {htonl(INADDR_LOOPBACK)}};
        to = socket(a.sin_family, SOCK_STREAM, 0);
        if (connect(to, (struct sockaddr *)&a, sizeof(a)) != 0)
            exit(1);
        setsockopt(to, SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
        fd[i][0] = to;
        fd[(i + 1) % ranks][1] = accept(listening, NULL, NULL);
        close(listening);
    }
}

static void run_ranks(int ranks)
{
    static struct ranks shm, tcp;
    int ring[MAX][2];
    struct shared *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ranks_listen(&shm, ranks, true);
    ranks_listen(&tcp, ranks, false);
    connect_ring(ring, ranks);
    fflush(stdout);
    for (int i = 0; i < ranks; i++) {
        if (fork() != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct bench b = {
            .ranks = ranks, .rank = i, .shared = shared, .to = ring[i][0], .from = ring[i][1]};
        run_rank(&b, &shm.o[i], &tcp.o[i]);
        exit(0);
    }
    ranks_forget(&shm, ranks);
    ranks_forget(&tcp, ranks);
    while (wait(NULL) > 0)
        continue;
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : "";
    run_ranks(2);
    run_ranks(4);
    return 0;
}
