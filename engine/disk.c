#include "engine/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/units.h"
#include "kernels/parallel.h"
#include "planner/schedule.h"

enum { IN_FLIGHT = 32, FALLBACK_THREADS = 8, WAY_TEXT = 240 };

/* A piece of one file. */
struct request {
    int file;
    int64_t offset, bytes; /* in the file */
    char *memory;
    bool is_write;
};

struct disk {
    struct disk_options o;
    char *base;
    int fd[DISK_MAX_DIRS];
    bool has_ring;
    struct io_uring ring;
    struct pool *pool; /* where there is no ring */
    struct request flying[IN_FLIGHT];
    char way[WAY_TEXT];
};

/* --- striping --- */

static int64_t stripes_of(int64_t bytes)
{
    return (bytes + DISK_STRIPE_BYTES - 1) / DISK_STRIPE_BYTES;
}

/* Stripe k lies in file k modulo the number of files. */
static int64_t file_bytes(const struct disk *d, int file)
{
    int64_t stripes = stripes_of(d->o.bytes) + d->o.n_dirs - 1 - file;
    return stripes / d->o.n_dirs * DISK_STRIPE_BYTES;
}

/* Stripes that a part touches. */
static int64_t part_requests(const struct disk *d, const struct disk_part *p)
{
    int64_t at = p->at - d->base;
    return p->bytes > 0 ? (at + p->bytes - 1) / DISK_STRIPE_BYTES - at / DISK_STRIPE_BYTES + 1 : 0;
}

/* The i-th of a part. */
static struct request request_of(const struct disk *d, const struct disk_part *p, int64_t i)
{
    int64_t first = p->at - d->base, stripe = first / DISK_STRIPE_BYTES + i;
    int64_t from = stripe * DISK_STRIPE_BYTES, end = from + DISK_STRIPE_BYTES;
    from = from > first ? from : first;
    end = end < first + p->bytes ? end : first + p->bytes;
    return (struct request){.file = (int)(stripe % d->o.n_dirs),
        .offset = stripe / d->o.n_dirs * DISK_STRIPE_BYTES + from % DISK_STRIPE_BYTES,
        .bytes = end - from,
        .memory = p->memory + (from - first),
        .is_write = p->is_write};
}

/* --- failures --- */

static enum rc say_failure(const struct disk *d, const struct request *r, int error, struct err *e)
{
    return err_set(e, RC_IO,
        "cannot %s %lld bytes at offset %lld of the scratch file in '%s': %s (errno %d)",
        r->is_write ? "write" : "read", (long long)r->bytes, (long long)r->offset,
        d->o.dirs[r->file], error ? strerror(error) : "the file ends there", error);
}

/* What is left of a request of which some bytes are done; error 0 and nothing left: all of it. */
static void take_result(struct request *r, int64_t result, int *error, bool *is_failed)
{
    bool is_again = result == -EINTR || result == -EAGAIN;
    *is_failed = result <= 0 && !is_again;
    *error = result < 0 ? (int)-result : 0;
    if (result <= 0)
        return;
    r->offset += result;
    r->memory += result;
    r->bytes -= result;
}

/* --- through io_uring --- */

static void submit(struct disk *d, int slot)
{
    const struct request *r = &d->flying[slot];
    struct io_uring_sqe *q = io_uring_get_sqe(&d->ring); /* there are as many as slots */
    if (r->is_write)
        io_uring_prep_write(q, d->fd[r->file], r->memory, (unsigned)r->bytes, (uint64_t)r->offset);
    else
        io_uring_prep_read(q, d->fd[r->file], r->memory, (unsigned)r->bytes, (uint64_t)r->offset);
    io_uring_sqe_set_data64(q, (uint64_t)slot);
}

/* Requests of parts, one after the other. */
struct cursor {
    const struct disk_part *part, *end;
    int64_t i; /* of the part */
};

static bool next_request(const struct disk *d, struct cursor *c, struct request *out)
{
    while (c->part < c->end && c->i == part_requests(d, c->part)) {
        c->part++;
        c->i = 0;
    }
    if (c->part == c->end)
        return false;
    *out = request_of(d, c->part, c->i++);
    return true;
}

struct flight {
    int idle[IN_FLIGHT], n_idle;
    bool is_failed;
    int error;
    struct request failed;
};

static void land(struct disk *d, struct flight *f, const struct io_uring_cqe *c)
{
    int slot = (int)c->user_data, error;
    bool is_failed;
    struct request *r = &d->flying[slot];
    take_result(r, c->res, &error, &is_failed);
    if (is_failed && !f->is_failed) {
        f->is_failed = true;
        f->error = error;
        f->failed = *r;
    }
    if (r->bytes > 0 && !f->is_failed)
        submit(d, slot);
    else
        f->idle[f->n_idle++] = slot;
}

static enum rc wait_for_some(struct disk *d, struct flight *f, struct err *e)
{
    int rc = io_uring_submit_and_wait(&d->ring, 1);
    if (rc < 0 && rc != -EINTR && rc != -EAGAIN)
        return err_set(
            e, RC_IO, "io_uring does not take requests: %s (errno %d)", strerror(-rc), -rc);
    struct io_uring_cqe *c;
    unsigned head, n = 0;
    io_uring_for_each_cqe(&d->ring, head, c)
    {
        land(d, f, c);
        n++;
    }
    io_uring_cq_advance(&d->ring, n);
    return RC_OK;
}

static enum rc move_by_ring(struct disk *d, const struct disk_part *parts, int n, struct err *e)
{
    struct cursor c = {parts, parts + n, 0};
    struct flight f = {.n_idle = IN_FLIGHT};
    enum rc rc = RC_OK;
    for (int i = 0; i < IN_FLIGHT; i++)
        f.idle[i] = i;
    for (;;) {
        while (
            f.n_idle > 0 && !f.is_failed && next_request(d, &c, &d->flying[f.idle[f.n_idle - 1]]))
            submit(d, f.idle[--f.n_idle]);
        if (f.n_idle == IN_FLIGHT)
            break;
        rc = wait_for_some(d, &f, e);
        if (rc)
            return rc;
    }
    return f.is_failed ? say_failure(d, &f.failed, f.error, e) : RC_OK;
}

/* --- by threads --- */

struct share {
    struct disk *d;
    const struct disk_part *part;
    atomic_bool is_failed;
    int error; /* of the first failure */
    struct request failed;
};

static void move_share(void *arg, int64_t first, int64_t last)
{
    struct share *s = arg;
    for (int64_t i = first; i < last && !atomic_load(&s->is_failed); i++) {
        struct request r = request_of(s->d, s->part, i);
        while (r.bytes > 0) {
            int fd = s->d->fd[r.file], error;
            bool is_failed;
            ssize_t n = r.is_write ? pwrite(fd, r.memory, (size_t)r.bytes, r.offset)
                                   : pread(fd, r.memory, (size_t)r.bytes, r.offset);
            take_result(&r, n < 0 ? -errno : n, &error, &is_failed);
            if (!is_failed)
                continue;
            if (!atomic_exchange(&s->is_failed, true)) {
                s->error = error;
                s->failed = r;
            }
            return;
        }
    }
}

static enum rc move_by_threads(struct disk *d, const struct disk_part *parts, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        struct share s = {.d = d, .part = &parts[i]};
        pool_run(d->pool, part_requests(d, s.part), move_share, &s);
        if (atomic_load(&s.is_failed))
            return say_failure(d, &s.failed, s.error, e);
    }
    return RC_OK;
}

enum rc disk_move(struct disk *d, const struct disk_part *parts, int n, struct err *e)
{
    return d->has_ring ? move_by_ring(d, parts, n, e) : move_by_threads(d, parts, n, e);
}

/* --- opening --- */

static enum rc too_little(const char *dir, int64_t bytes, const struct statvfs *room, struct err *e)
{
    char need[UNITS_TEXT], has[UNITS_TEXT], more[UNITS_TEXT];
    double free_bytes = (double)room->f_bavail * (double)room->f_frsize;
    return err_set(e, RC_LIMIT,
        "'%s' has %s free, and what a rank keeps on disk needs %s there: %s too few; free some or "
        "name other folders with --nvme-dir",
        dir, units_bytes(has, free_bytes), units_bytes_up(need, (double)bytes),
        units_bytes_up(more, (double)bytes - free_bytes));
}

static enum rc reserve(struct disk *d, int file, struct err *e)
{
    int64_t bytes = file_bytes(d, file);
    struct statvfs room;
    const char *dir = d->o.dirs[file];
    if (fstatvfs(d->fd[file], &room) != 0)
        return err_sys(e, RC_IO, "cannot see how much is free in '%s'", dir);
    if ((double)bytes > (double)room.f_bavail * (double)room.f_frsize)
        return too_little(dir, bytes, &room, e);
    if (bytes == 0 || fallocate(d->fd[file], 0, 0, bytes) == 0)
        return RC_OK;
    if (errno == ENOSPC && fstatvfs(d->fd[file], &room) == 0)
        return too_little(dir, bytes, &room, e);
    if (errno == EOPNOTSUPP && ftruncate(d->fd[file], bytes) == 0)
        return RC_OK;
    return err_sys(e, RC_IO, "cannot reserve %lld bytes in '%s'", (long long)bytes, dir);
}

static enum rc open_file(struct disk *d, int file, struct err *e)
{
    char *path = base_printf("%s/berth-scratch-XXXXXX", d->o.dirs[file]);
    d->fd[file] = mkostemp(path, O_CLOEXEC);
    enum rc rc = RC_OK;
    if (d->fd[file] < 0)
        rc = err_sys(e, RC_IO, "cannot make a scratch file in '%s'", d->o.dirs[file]);
    else
        unlink(path);
    free(path);
    return rc ? rc : reserve(d, file, e);
}

/* Some file systems take the flag and refuse the reads. */
static bool make_direct(int fd, void *page)
{
    int flags = fcntl(fd, F_GETFL);
    if (fcntl(fd, F_SETFL, flags | O_DIRECT) != 0)
        return false;
    if (pread(fd, page, DISK_ALIGN, 0) == DISK_ALIGN)
        return true;
    fcntl(fd, F_SETFL, flags);
    return false;
}

/* The folder that refuses direct access, NULL for none. */
static const char *make_all_direct(struct disk *d)
{
    const char *refuses = NULL;
    void *page = aligned_alloc(DISK_ALIGN, DISK_ALIGN);
    for (int i = 0; page && i < d->o.n_dirs; i++)
        if (file_bytes(d, i) > 0 && (d->o.has_no_direct || !make_direct(d->fd[i], page)))
            refuses = d->o.dirs[i];
    free(page);
    return refuses;
}

static enum rc find_way(struct disk *d, struct err *e)
{
    int refused = d->o.has_no_uring ? -EPERM : io_uring_queue_init(IN_FLIGHT, &d->ring, 0);
    const char *buffered = make_all_direct(d);
    d->has_ring = refused == 0;
    if (!d->has_ring && !(d->pool = pool_new(FALLBACK_THREADS)))
        return err_set(e, RC_LIMIT, "cannot start %d threads; see ulimit -u", FALLBACK_THREADS);
    char why[100] = "", cache[100] = "direct";
    if (!d->has_ring)
        snprintf(
            why, sizeof why, " (this system refuses io_uring: %s; slower)", strerror(-refused));
    if (buffered)
        snprintf(cache, sizeof cache, "through the page cache ('%.40s' refuses O_DIRECT; slower)",
            buffered);
    snprintf(d->way, sizeof d->way, "%s%s, %s", d->has_ring ? "io_uring" : "threads", why, cache);
    return RC_OK;
}

static enum rc reserve_addresses(struct disk *d, struct err *e)
{
    size_t bytes = (size_t)d->o.bytes;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return err_sys(e, RC_LIMIT, "cannot reserve %zu addresses; see ulimit -v", bytes);
    d->base = base;
    return RC_OK;
}

/* Room first: what is too much for the drives may be too many addresses as well. */
enum rc disk_open(struct disk **out, const struct disk_options *o, struct err *e)
{
    *out = NULL;
    if (o->n_dirs < 1 || o->n_dirs > DISK_MAX_DIRS)
        return err_set(e, RC_LIMIT, "%d folders for what is kept on disk; 1 to %d can be used",
            o->n_dirs, DISK_MAX_DIRS);
    struct disk *d = base_calloc(1, sizeof *d);
    enum rc rc = RC_OK;
    d->o = *o;
    memset(d->fd, 0xff, sizeof d->fd);
    for (int i = 0; i < o->n_dirs && !rc; i++)
        rc = open_file(d, i, e);
    if (!rc)
        rc = reserve_addresses(d, e);
    if (!rc)
        rc = find_way(d, e);
    if (rc) {
        disk_close(d);
        return rc;
    }
    *out = d;
    return RC_OK;
}

void disk_close(struct disk *d)
{
    if (!d)
        return;
    if (d->has_ring)
        io_uring_queue_exit(&d->ring);
    pool_free(d->pool);
    for (int i = 0; i < DISK_MAX_DIRS; i++)
        if (d->fd[i] >= 0)
            close(d->fd[i]);
    if (d->base)
        munmap(d->base, (size_t)d->o.bytes);
    free(d);
}

char *disk_base(const struct disk *d)
{
    return d->base;
}

const char *disk_way(const struct disk *d)
{
    return d->way;
}

/* --- rate --- */

/* One half of the memory is written while the other is read: once without the clock, since first
 * writes into reserved room are slower. */
enum rc disk_measure(
    struct disk *d, char *memory, int64_t bytes, double *bytes_per_s, struct err *e)
{
    static const double enough_s = 0.2;
    int64_t most = 32 << 20, half = bytes < d->o.bytes ? bytes : d->o.bytes;
    half = (half < most ? half : most) / 2 / DISK_ALIGN * DISK_ALIGN;
    struct disk_part parts[] = {
        {d->base, memory, half, true}, {d->base + half, memory + half, half, false}};
    double start = 0, took = 0, moved = 0;
    enum rc rc = disk_move(d, parts, 2, e);
    start = clock_now_s();
    while (!rc && took < enough_s && half > 0) {
        rc = disk_move(d, parts, 2, e);
        moved += 2 * (double)half;
        took = clock_now_s() - start;
    }
    *bytes_per_s = took > 0 ? moved / took : 0;
    return rc;
}
