/* Checkpoints against what bounds them, in alternating pairs within one run: the rate of a save
 * against the same bytes written with O_DIRECT and synced, the longest stall against one memcpy of
 * the state, and the tokens of an interval with a save in it against one without.
 *
 * The files go to BERTH_BENCH_DIR, default the build folder: it should lie on a disk. */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "engine/checkpoint.h"
#include "engine/durable_file.h"
#include "tests/bench/lib_bench.h"

enum { ROUNDS = 7, SAVE_TIMES = 4 };

struct run {
    struct trainer t;
    struct checkpoint *c;
    char *dir;
};

static void run_open(struct run *r, int threads)
{
    static const int hosts[1];
    struct err e = ERR_INIT;
    struct trainer_options to = {
        .model = "gpt2", .strategy = strategy_default(STRATEGY_DDP, 1, 1), .threads = threads};
    to.strategy.seq = 64;
    to.strategy.micro_batch = 1;
    trainer_open(&r->t, &to);
    const char *base = getenv("BERTH_BENCH_DIR");
    r->dir = base_printf("%s/checkpoints", base ? base : "build/bench");
    struct checkpoint_options o = {
        .dir = r->dir, .host_of = hosts, .is_async = true, .keep = 1, .collective_s = 60};
    need(checkpoint_open(&r->c, r->t.x, &o, &e), &e);
}

static void run_close(struct run *r)
{
    struct err e;
    checkpoint_close(r->c);
    trainer_close(&r->t);
    dir_remove(r->dir, &e);
    free(r->dir);
}

/* --- what is measured --- */

static void start_save(struct run *r)
{
    struct err e = ERR_INIT;
    struct checkpoint_info info = {.step = r->t.step};
    need(checkpoint_start(r->c, &info, &e), &e);
}

static struct checkpoint_report end_save(struct run *r, bool is_waiting)
{
    struct err e = ERR_INIT;
    struct checkpoint_report report;
    need(checkpoint_end(r->c, is_waiting, &report, &e), &e);
    return report;
}

/* As many bytes from aligned memory to a file of the same folder, and nothing else. */
static double raw_write_s(const struct run *r, size_t bytes, const char *from)
{
    char *path = path_join(r->dir, "raw");
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    double start = clock_now_s();
    if (fd < 0 || fallocate(fd, 0, 0, (off_t)bytes) != 0)
        perror("raw");
    for (size_t at = 0; at < bytes; at += DURABLE_PIECE_BYTES)
        if (pwrite(fd, from + at, DURABLE_PIECE_BYTES, (off_t)at) != DURABLE_PIECE_BYTES)
            perror("raw");
    fsync(fd);
    double s = clock_now_s() - start;
    close(fd);
    unlink(path);
    free(path);
    return s;
}

static char *map(size_t bytes)
{
    char *p = mmap(
        NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (p == MAP_FAILED) {
        perror("map");
        exit(1);
    }
    memset(p, 1, bytes);
    return p;
}

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double bench_rate(struct run *r)
{
    start_save(r);
    size_t bytes = (size_t)end_save(r, true).bytes;
    size_t rounded = base_align_up(bytes, DURABLE_PIECE_BYTES);
    char *from = map(rounded);
    double save[ROUNDS], raw[ROUNDS], cpu[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        raw[i] = raw_write_s(r, rounded, from) * (double)bytes / (double)rounded;
        cpu[i] = cpu_s();
        r->t.step++;
        start_save(r);
        save[i] = end_save(r, true).seconds;
        cpu[i] = cpu_s() - cpu[i];
    }
    munmap(from, rounded);
    double s = median(save, ROUNDS), w = median(raw, ROUNDS), gb = (double)bytes / 1e9;
    printf(
        "save, gpt2, %.2f GB: %.2f s, %.2f GB/s = %.2f of the durable O_DIRECT rate (%.2f GB/s); "
        "%.2f s of CPU\n",
        gb, s, gb / s, w / s, gb / w, median(cpu, ROUNDS));
    fflush(stdout);
    return s;
}

static double memcpy_s(char *to, const char *from, size_t bytes)
{
    double start = clock_now_s();
    memcpy(to, from, bytes);
    return clock_now_s() - start;
}

/* Seconds of n steps, with or without a save that begins in front of them. */
static double interval_s(struct run *r, int n, bool is_saving, double *stall_s)
{
    double start = clock_now_s();
    if (is_saving)
        start_save(r);
    for (int i = 0; i < n; i++)
        trainer_step(&r->t);
    double s = clock_now_s() - start;
    if (is_saving)
        *stall_s = end_save(r, true).stall_s;
    return s;
}

static void bench_interval(struct run *r, int threads, double save_s)
{
    double without[ROUNDS], with[ROUNDS], stall[ROUNDS], copy[ROUNDS], longest = 0;
    size_t bytes = (size_t)3 * sizeof(float) * (size_t)model_params(&r->t.schedule->model);
    char *a = map(bytes), *b = map(bytes);
    interval_s(r, 1, false, NULL);
    int n = (int)ceil(SAVE_TIMES * save_s / (interval_s(r, 3, false, NULL) / 3));
    for (int i = 0; i < ROUNDS; i++) {
        copy[i] = memcpy_s(a, b, bytes);
        without[i] = interval_s(r, n, false, NULL);
        with[i] = interval_s(r, n, true, &stall[i]);
        longest = fmax(longest, stall[i]);
    }
    munmap(a, bytes);
    munmap(b, bytes);
    double ratio[ROUNDS];
    for (int i = 0; i < ROUNDS; i++)
        ratio[i] = without[i] / with[i];
    printf(
        "interval of %d steps, %.1f s, %d thread(s): %.3f of tokens/s kept; longest stall %.3f s, "
        "memcpy of the state %.3f s\n",
        n, median(without, ROUNDS), threads, median(ratio, ROUNDS), longest, median(copy, ROUNDS));
    fflush(stdout);
}

int main(void)
{
    for (int threads = 1; threads <= 2 && threads <= sysconf(_SC_NPROCESSORS_ONLN); threads++) {
        struct run r;
        run_open(&r, threads);
        double save_s = bench_rate(&r);
        bench_interval(&r, threads, save_s);
        run_close(&r);
    }
    return 0;
}
