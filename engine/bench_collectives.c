#include "engine/bench_collectives.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "engine/comm.h"
#include "kernels/kernels.h"

/* Small ones are timed several at once. */
enum { ROUNDS = 7, SMALL_REPEATS = 20, CONNECT_S = 60, COLLECTIVE_S = 60 };
static const int64_t SIZES[] = {4096, 65536, 1 << 20, 16 << 20};
enum { N_SIZES = 4, SMALL_BYTES = 65536, LARGEST = 16 << 20 };
static const enum op_kind KINDS[] = {OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_REDUCE};
enum { N_KINDS = 3, CASES = BENCH_PATHS * N_KINDS * N_SIZES };

struct report {
    struct err err;
    bool is_done, has_shared_memory;
    double seconds[CASES][ROUNDS];
};

struct job {
    int ranks;
    struct comm_options o[BENCH_PATHS];
    int *listen_fd[BENCH_PATHS];
    const char **peers[BENCH_PATHS];
    char (*address[BENCH_PATHS])[32];
    int *host_of;
    struct report *report; /* by rank, in memory that all processes share */
};

/* --- a rank --- */

struct vectors {
    char *full, *part, *scratch;
};

static enum rc one(
    struct comm *c, enum op_kind kind, int64_t bytes, const struct vectors *v, struct err *e)
{
    int64_t n = comm_ranks(c), part = bytes / n / 64 * 64;
    switch (kind) {
    case OP_ALL_GATHER:
        return comm_all_gather(c, CHANNEL_GATHER, GROUP_WORLD, v->full + part * comm_rank(c),
            v->full, (size_t)part, e);
    case OP_REDUCE_SCATTER:
        return comm_reduce_scatter(c, CHANNEL_GATHER, GROUP_WORLD, (float *)(void *)v->full,
            (float *)(void *)v->part, part / 4, false, v->scratch, e);
    default:
        return comm_all_reduce(
            c, CHANNEL_GATHER, GROUP_WORLD, (float *)(void *)v->full, part * n / 4, v->scratch, e);
    }
}

/* The first round warms up. */
static enum rc time_case(struct report *r, struct comm *c, int at, enum op_kind kind, int64_t bytes,
    const struct vectors *v, struct err *e)
{
    int repeats = bytes <= SMALL_BYTES ? SMALL_REPEATS : 1;
    enum rc rc = RC_OK;
    for (int round = -1; round < ROUNDS && !rc; round++) {
        rc = comm_barrier(c, e);
        double start = clock_now_s();
        for (int i = 0; i < repeats && !rc; i++)
            rc = one(c, kind, bytes, v, e);
        if (round >= 0)
            r->seconds[at][round] = (clock_now_s() - start) / repeats;
    }
    return rc;
}

static enum rc time_path(
    struct report *r, struct comm *c, enum bench_path path, const struct vectors *v, struct err *e)
{
    enum rc rc = RC_OK;
    for (int k = 0; k < N_KINDS; k++)
        for (int s = 0; s < N_SIZES && !rc; s++)
            rc = time_case(r, c, ((int)path * N_KINDS + k) * N_SIZES + s, KINDS[k], SIZES[s], v, e);
    return rc;
}

static char *private_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE);
    return p;
}

static enum rc run_rank(const struct job *j, int rank, struct err *e)
{
    size_t scratch = (size_t)schedule_sum_scratch_bytes(j->ranks), bytes = 2 * LARGEST + scratch;
    struct report *r = &j->report[rank];
    struct comm *c[BENCH_PATHS] = {NULL};
    void *slab = NULL;
    enum rc rc = RC_OK;
    for (int p = 0; p < BENCH_PATHS && !rc; p++) {
        struct comm_options o = j->o[p];
        o.rank = rank;
        o.listen_fd = j->listen_fd[p][rank];
        rc = comm_open(&c[p], &o, e);
    }
    if (!rc)
        rc = comm_map_slab(c[BENCH_SHARED_MEMORY], bytes, &slab, e);
    r->has_shared_memory = slab != NULL;
    char *memory = slab ? slab : private_memory(bytes);
    if (!rc && !memory)
        rc = err_sys(e, RC_LIMIT, "cannot map %zu bytes of memory", bytes);
    if (!rc) {
        struct vectors v = {memory, memory + LARGEST, memory + 2 * (size_t)LARGEST};
        memset(memory, 0, bytes);
        if (slab)
            rc = time_path(r, c[BENCH_SHARED_MEMORY], BENCH_SHARED_MEMORY, &v, e);
        if (!rc)
            rc = time_path(r, c[BENCH_TCP], BENCH_TCP, &v, e);
        if (!rc)
            rc = comm_barrier(c[BENCH_TCP], e);
    }
    for (int p = 0; p < BENCH_PATHS; p++)
        comm_close(c[p]);
    return rc;
}

/* --- the ranks together --- */

static enum rc listen_all(struct job *j, enum bench_path p, struct err *e)
{
    size_t n = (size_t)j->ranks;
    j->listen_fd[p] = base_calloc(n, sizeof *j->listen_fd[p]);
    j->address[p] = base_calloc(n, sizeof *j->address[p]);
    j->peers[p] = base_calloc(n, sizeof *j->peers[p]);
    for (size_t i = 0; i < n; i++)
        j->listen_fd[p][i] = -1;
    j->o[p] = (struct comm_options){.ranks = j->ranks,
        .shard_degree = j->ranks,
        .peers = j->peers[p],
        .host_of = p == BENCH_SHARED_MEMORY ? j->host_of : NULL,
        .connect_deadline_s = CONNECT_S,
        .deadline_s = COLLECTIVE_S,
        .kernels = kernels_best()};
    enum rc rc = hash_random(j->o[p].token, sizeof j->o[p].token, e);
    for (size_t i = 0; i < n && !rc; i++) {
        int port = 0;
        rc = comm_listen(&j->listen_fd[p][i], &port, e);
        snprintf(j->address[p][i], sizeof j->address[p][i], "127.0.0.1:%d", port);
        j->peers[p][i] = j->address[p][i];
    }
    return rc;
}

static void close_others(const struct job *j, int rank)
{
    for (int p = 0; p < BENCH_PATHS; p++)
        for (int i = 0; i < j->ranks; i++)
            if (i != rank && j->listen_fd[p][i] >= 0)
                close(j->listen_fd[p][i]);
}

static enum rc run_ranks(const struct job *j, struct err *e)
{
    enum { NOBODY = -1 };
    pid_t parent = getpid(), *pids = base_calloc((size_t)j->ranks, sizeof *pids);
    const struct report *cause = NULL;
    bool is_good = true;
    fflush(NULL);
    for (int i = 0; i < j->ranks; i++) {
        pids[i] = fork();
        if (pids[i] != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        close_others(j, i);
        j->report[i].is_done = run_rank(j, i, &j->report[i].err) == RC_OK;
        _exit(0);
    }
    close_others(j, NOBODY);
    for (int i = 0; i < j->ranks; i++) {
        int status;
        if (pids[i] > 0)
            waitpid(pids[i], &status, 0);
        is_good = is_good && j->report[i].is_done;
        if (!j->report[i].is_done && j->report[i].err.code && !cause)
            cause = &j->report[i];
    }
    free(pids);
    if (cause)
        *e = cause->err;
    return is_good ? RC_OK
           : cause ? cause->err.code
                   : err_set(e, RC_FAILED, "a rank ended without saying why");
}

/* --- what came out --- */

static void append(struct bench *out, const struct job *j)
{
    size_t n = out->n_collectives;
    out->collectives = base_realloc(out->collectives, (n + CASES) * sizeof *out->collectives);
    for (int at = 0; at < CASES; at++) {
        double slowest[ROUNDS] = {0};
        enum bench_path path = (enum bench_path)(at / N_SIZES / N_KINDS);
        if (path == BENCH_SHARED_MEMORY && !j->report[0].has_shared_memory)
            continue;
        for (int k = 0; k < ROUNDS; k++)
            for (int r = 0; r < j->ranks; r++)
                if (j->report[r].seconds[at][k] > slowest[k])
                    slowest[k] = j->report[r].seconds[at][k];
        out->collectives[out->n_collectives++] =
            (struct bench_collective){.kind = KINDS[at / N_SIZES % N_KINDS],
                .path = path,
                .ranks = j->ranks,
                .bytes = SIZES[at % N_SIZES] / j->ranks / 64 * 64 * j->ranks,
                .seconds = bench_median(slowest, ROUNDS)};
    }
}

enum rc bench_collectives(struct bench *out, int ranks, struct err *e)
{
    struct job j = {.ranks = ranks, .host_of = base_calloc((size_t)ranks, sizeof *j.host_of)};
    size_t bytes = (size_t)ranks * sizeof *j.report;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    enum rc rc = shared == MAP_FAILED ? err_sys(e, RC_LIMIT, "cannot map %zu bytes", bytes) : RC_OK;
    j.report = shared;
    for (int p = 0; p < BENCH_PATHS && !rc; p++)
        rc = listen_all(&j, (enum bench_path)p, e);
    if (!rc)
        rc = run_ranks(&j, e);
    if (!rc)
        append(out, &j);
    for (int p = 0; p < BENCH_PATHS; p++) {
        free(j.listen_fd[p]);
        free(j.address[p]);
        free(j.peers[p]);
    }
    free(j.host_of);
    if (shared != MAP_FAILED)
        munmap(shared, bytes);
    return rc ? err_in(e, "collectives among %d ranks", ranks) : RC_OK;
}
