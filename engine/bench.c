#include "engine/bench.h"

#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/bench_collectives.h"
#include "engine/bench_parts.h"
#include "engine/comm.h"
#include "engine/executor.h"
#include "engine/init.h"
#include "engine/random.h"
#include "engine/rank_setup.h"
#include "kernels/kernels.h"
#include "kernels/parallel.h"
#include "planner/plan_file.h"
#include "planner/price.h"
#include "run/bench_record.h"
#include "run/spec.h"

/* Of a section that repeats within a step, so many executions are looked at. */
enum {
    MAX_REPEATS = 4,
    DEFAULT_STEPS = 20,
    DEFAULT_WARM_UP = 5,
    CONNECT_S = 60,
    COLLECTIVE_S = 300
};
/* Of the stream that says where made-up documents end. */
enum { DOCUMENT_STREAM = 1 << 24 };
#define MAX_SHARED_BYTES (2.0 * 1073741824.0)

struct span {
    double start_s, end_s;
};

/* What a rank tells the parent: in memory that all processes share. */
struct report {
    bool is_done;
    struct err err;
    double external_bytes;
};

struct bench_job {
    struct plan_file plan;
    struct schedule *schedule;
    int64_t steps, warm_up;
    const char *plan_path; /* NULL: no steps are run */
    int64_t group;         /* ranks of collectives that are timed by themselves; 0: none are */
    int64_t products, memory, optimizer; /* threads with which parts are; 0: not */
    int ranks, threads;
    struct run_disk disk; /* for what the plan keeps on disk */
    int *listen_fd;
    char (*address)[32];
    const char **peers;
    int *host_of; /* one host */
    unsigned char token[COMM_TOKEN_BYTES];
    /* places of spans: of a section's first execution, in a step */
    size_t first_slot[SCHEDULE_MAX_SECTIONS], slots;
    void *shared;
    size_t shared_bytes;
    struct report *report; /* by rank */
    double *step_s;        /* by rank, step */
    struct span *spans;    /* by rank, step, slot */
};

/* --- places --- */

static int64_t repeats_of(const struct section *sec)
{
    return sec->repeat < MAX_REPEATS ? sec->repeat : MAX_REPEATS;
}

static struct span *spans_of(const struct bench_job *b, int rank, int64_t step)
{
    return b->spans + ((size_t)rank * (size_t)b->steps + (size_t)step) * b->slots;
}

static enum rc map_shared(struct bench_job *b, struct err *e)
{
    const struct schedule *s = b->schedule;
    for (int i = 0; i < s->n_sections; i++) {
        b->first_slot[i] = b->slots;
        b->slots += (size_t)s->section[i].n_ops * (size_t)repeats_of(&s->section[i]);
    }
    size_t ranks = (size_t)b->ranks, steps = ranks * (size_t)b->steps;
    double wanted = (double)steps * (double)b->slots * sizeof(struct span);
    if (wanted > MAX_SHARED_BYTES)
        return err_set(e, RC_LIMIT,
            "%lld steps of %lld operations are too many to keep; take fewer", (long long)b->steps,
            (long long)b->slots);
    b->shared_bytes = ranks * sizeof(struct report) + steps * sizeof(double) +
                      steps * b->slots * sizeof(struct span);
    b->shared =
        mmap(NULL, b->shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (b->shared == MAP_FAILED) {
        b->shared = NULL;
        return err_sys(e, RC_LIMIT, "cannot map %zu bytes of memory", b->shared_bytes);
    }
    b->report = b->shared;
    b->step_s = (double *)(void *)(b->report + ranks);
    b->spans = (struct span *)(void *)(b->step_s + steps);
    return RC_OK;
}

/* --- a rank --- */

struct rank_state {
    const struct bench_job *b;
    int rank;
    int64_t step; /* < 0: does not count */
};

static void observe(
    void *arg, const struct section *sec, int64_t micro, const struct task_log *log, int32_t n)
{
    const struct rank_state *r = arg;
    const struct schedule *s = r->b->schedule;
    int64_t before = 0;
    int k = 0;
    for (; &s->section[k] != sec; k++)
        before += s->section[k].kind == SECTION_BOUNDARY ? 0 : s->section[k].repeat;
    int64_t again = sec->kind == SECTION_BOUNDARY ? 0 : micro - before;
    if (r->step < 0 || again >= repeats_of(sec))
        return;
    struct span *to = spans_of(r->b, r->rank, r->step) + r->b->first_slot[k] + again * sec->n_ops;
    for (int32_t i = 0; i < n; i++)
        to[log[i].index - sec->first_op] = (struct span){log[i].start_s, log[i].end_s};
}

/* Documents end as likely behind one token as behind another, and at the end of a sequence. */
static void fill_positions(const struct rank_state *r, uint64_t first, int32_t *positions)
{
    const struct strategy *s = &r->b->schedule->strategy;
    int32_t at = 0;
    for (int64_t i = 0; i < s->seq * s->micro_batch; i++, at++) {
        uint64_t bits = random_bits((uint64_t)r->rank + DOCUMENT_STREAM, first + (uint64_t)i);
        if (i % s->seq == 0 || bits % (uint64_t)s->doc_tokens == 0)
            at = 0;
        positions[i] = at;
    }
}

static enum rc fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    const struct rank_state *r = arg;
    const struct schedule *s = r->b->schedule;
    uint64_t vocab = (uint64_t)s->model.vocab;
    int64_t n = s->strategy.seq * s->strategy.micro_batch;
    uint64_t first = (uint64_t)((r->step + 1024) * s->strategy.grad_accum + micro) * (uint64_t)n;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = first + (uint64_t)i;
        out->tokens[i] = (int32_t)(random_bits((uint64_t)r->rank, at) % vocab);
        out->targets[i] = (int32_t)(random_bits((uint64_t)r->rank, at + 1) % vocab);
    }
    if (out->positions)
        fill_positions(r, first, out->positions);
    return RC_OK;
}

static enum rc run_steps(struct rank_state *r, struct executor *x, struct err *e)
{
    const struct strategy *s = &r->b->schedule->strategy;
    struct step_result out;
    enum rc rc = RC_OK;
    for (r->step = -r->b->warm_up; r->step < r->b->steps && !rc; r->step++) {
        struct step_params p = {.step = r->step + r->b->warm_up + 1,
            .lr = 1e-4,
            .beta1 = 0.9,
            .beta2 = 0.95,
            .eps = 1e-8,
            .momentum = 0.9,
            .weight_decay = 0.1,
            .clip_norm = 1,
            .local_targets = (double)(s->seq * s->micro_batch * s->grad_accum)};
        rc = executor_step(x, &p, fill, r, &out, e);
        if (!rc && r->step >= 0)
            r->b->step_s[r->rank * r->b->steps + r->step] = out.step_s;
    }
    return rc;
}

static enum rc run_rank(const struct bench_job *b, int rank, struct err *e)
{
    struct rank_state r = {.b = b, .rank = rank};
    struct comm *comm = NULL;
    struct executor *x = NULL;
    struct comm_options o = {.rank = rank,
        .ranks = b->ranks,
        .shard_degree = (int)b->schedule->shards,
        .listen_fd = b->listen_fd[rank],
        .peers = b->peers,
        .host_of = b->host_of,
        .connect_deadline_s = CONNECT_S,
        .deadline_s = COLLECTIVE_S,
        .kernels = kernels_best()};
    memcpy(o.token, b->token, sizeof o.token);
    struct executor_options xo = {.device = &device_cpu,
        .device_options = {.threads = b->threads},
        .kernels = o.kernels,
        .disk_dirs = (const char *const *)b->disk.dirs,
        .n_disk_dirs = (int)b->disk.count,
        .observe = observe,
        .observe_arg = &r};
    enum rc rc = comm_open(&comm, &o, e);
    xo.comm = comm;
    r.step = -1;
    if (!rc)
        rc = executor_open(&x, b->schedule, &xo, e);
    if (!rc)
        rc = executor_warm_up(x, e);
    if (!rc)
        b->report[rank].external_bytes = (double)executor_external_bytes(x);
    if (!rc)
        rc = init_state(x, 1, e);
    if (!rc)
        rc = run_steps(&r, x, e);
    if (!rc)
        rc = comm_barrier(comm, e);
    executor_close(x);
    comm_close(comm);
    return rc;
}

/* --- the ranks together --- */

static pid_t start_rank(const struct bench_job *b, int rank)
{
    pid_t parent = getpid(), pid = fork();
    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    for (int i = 0; i < b->ranks; i++)
        if (i != rank)
            close(b->listen_fd[i]);
    struct report *r = &b->report[rank];
    enum rc rc = run_rank(b, rank, &r->err);
    r->is_done = rc == RC_OK;
    _exit(rc ? 1 : 0);
}

/* The first rank that says why, before those that only lost their peers. */
static enum rc first_cause(const struct bench_job *b, struct err *e)
{
    const struct err *cause = NULL;
    for (int i = 0; i < b->ranks; i++) {
        const struct report *r = &b->report[i];
        bool is_consequence = r->err.code == RC_PEER || r->err.code == RC_INTERRUPTED;
        if (!r->is_done && r->err.code && (!cause || (cause->code == RC_PEER && !is_consequence)))
            cause = &r->err;
    }
    if (cause)
        *e = *cause;
    return cause ? cause->code : err_set(e, RC_FAILED, "a rank ended without saying why");
}

static enum rc run_ranks(struct bench_job *b, struct err *e)
{
    pid_t *pids = base_calloc((size_t)b->ranks, sizeof *pids);
    bool is_good = true;
    fflush(NULL);
    for (int i = 0; i < b->ranks; i++) {
        pids[i] = start_rank(b, i);
        is_good = is_good && pids[i] > 0;
    }
    for (int i = 0; i < b->ranks; i++) {
        int status;
        if (pids[i] > 0 && (waitpid(pids[i], &status, 0) != pids[i] || status != 0))
            is_good = false;
    }
    free(pids);
    return is_good ? RC_OK : first_cause(b, e);
}

static enum rc listen_all(struct bench_job *b, struct err *e)
{
    size_t n = (size_t)b->ranks;
    b->listen_fd = base_calloc(n, sizeof *b->listen_fd);
    b->address = base_calloc(n, sizeof *b->address);
    b->peers = base_calloc(n, sizeof *b->peers);
    b->host_of = base_calloc(n, sizeof *b->host_of);
    for (size_t i = 0; i < n; i++)
        b->listen_fd[i] = -1;
    enum rc rc = hash_random(b->token, sizeof b->token, e);
    for (size_t i = 0; i < n && !rc; i++) {
        int port = 0;
        rc = comm_listen(&b->listen_fd[i], &port, e);
        snprintf(b->address[i], sizeof b->address[i], "127.0.0.1:%d", port);
        b->peers[i] = b->address[i];
    }
    return rc;
}

/* --- what came out --- */

/* Seconds of other lanes' operations inside each operation of one execution of a section, added to
 * inside. Both lists are in order, so one cursor over the other lane is enough. */
static void add_overlaps(
    double *inside, const struct op *ops, const struct span *t, int32_t n, int mine, int other)
{
    int32_t from = 0;
    for (int32_t i = 0; i < n; i++) {
        if (ops[i].lane != mine)
            continue;
        while (from < n && (ops[from].lane != other || t[from].end_s <= t[i].start_s))
            from++;
        for (int32_t j = from; j < n; j++) {
            if (ops[j].lane != other)
                continue;
            if (t[j].start_s >= t[i].end_s)
                break;
            inside[i] += fmin(t[i].end_s, t[j].end_s) - fmax(t[i].start_s, t[j].start_s);
        }
    }
}

static void overlaps(double *inside, const struct op *ops, const struct span *t, int32_t n)
{
    memset(inside, 0, (size_t)n * sizeof *inside);
    for (int a = 0; a < LANE_COUNT; a++)
        for (int b = 0; b < LANE_COUNT; b++)
            if (a != b)
                add_overlaps(inside, ops, t, n, a, b);
}

static bool is_collective(const struct op *op)
{
    return op_work((enum op_kind)op->kind) == WORK_COLLECTIVES;
}

/* A rank that comes early waits for the others: bytes move from when the last one has come. */
static double transfer_s(const struct bench_job *b, int64_t step, size_t slot)
{
    double start = -INFINITY, end = -INFINITY;
    for (int r = 0; r < b->ranks; r++) {
        const struct span *t = spans_of(b, r, step) + slot;
        start = fmax(start, t->start_s);
        end = fmax(end, t->end_s);
    }
    return end - start;
}

/* Samples of one operation: of every rank, counted step and execution. */
struct samples {
    double *seconds, *shared;
    size_t n;
};

static void sample_section(
    struct samples *of_op, const struct bench_job *b, int k, int64_t step, int rank, double *inside)
{
    const struct section *sec = &b->schedule->section[k];
    const struct op *ops = &b->schedule->ops[sec->first_op];
    for (int64_t again = 0; again < repeats_of(sec); again++) {
        size_t slot = b->first_slot[k] + (size_t)again * (size_t)sec->n_ops;
        const struct span *t = spans_of(b, rank, step) + slot;
        overlaps(inside, ops, t, sec->n_ops);
        for (int32_t i = 0; i < sec->n_ops; i++) {
            struct samples *to = &of_op[sec->first_op + i];
            double busy = t[i].end_s - t[i].start_s;
            double seconds = is_collective(&ops[i]) ? transfer_s(b, step, slot + (size_t)i) : busy;
            to->seconds[to->n] = fmax(0, seconds);
            to->shared[to->n++] = busy > 0 ? fmin(1, inside[i] / busy) : 0;
        }
    }
}

static void collect_ops(struct bench *out, const struct bench_job *b)
{
    const struct schedule *s = b->schedule;
    size_t each = (size_t)b->ranks * (size_t)b->steps * MAX_REPEATS, n = (size_t)s->n_ops;
    struct samples *of_op = base_calloc(n, sizeof *of_op);
    double *values = base_alloc(2 * n * each * sizeof *values);
    double *inside = base_alloc(n * sizeof *inside);
    for (size_t i = 0; i < n; i++) {
        of_op[i].seconds = values + 2 * i * each;
        of_op[i].shared = of_op[i].seconds + each;
    }
    for (int k = 0; k < s->n_sections; k++)
        for (int64_t step = 0; step < b->steps; step++)
            for (int r = 0; r < b->ranks; r++)
                sample_section(of_op, b, k, step, r, inside);
    out->n_ops = n;
    out->op_s = base_alloc(n * sizeof *out->op_s);
    out->op_shared = base_alloc(n * sizeof *out->op_shared);
    for (size_t i = 0; i < n; i++) {
        out->op_s[i] = bench_median(of_op[i].seconds, of_op[i].n);
        out->op_shared[i] = bench_median(of_op[i].shared, of_op[i].n);
    }
    free(inside);
    free(values);
    free(of_op);
}

/* A step is over when its last rank is through. */
static void collect(struct bench *out, const struct bench_job *b)
{
    out->has_steps = true;
    out->ranks = b->ranks;
    out->threads = b->threads;
    out->external_bytes = -1;
    out->schedule = schedule_hash(b->schedule);
    out->n_steps = (size_t)b->steps;
    out->step_s = base_calloc(out->n_steps, sizeof *out->step_s);
    for (int r = 0; r < b->ranks; r++) {
        out->external_bytes = fmax(out->external_bytes, b->report[r].external_bytes);
        for (size_t i = 0; i < out->n_steps; i++)
            out->step_s[i] = fmax(out->step_s[i], b->step_s[(size_t)r * out->n_steps + i]);
    }
    if (out->external_bytes < 0)
        out->external_bytes = NAN;
    collect_ops(out, b);
}

/* --- start --- */

static enum rc read_count(int64_t *out, const char *name, const char *text, struct err *e)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*end || end == text || n < 0 || n > BENCH_MAX_STEPS)
        return err_set(e, RC_USAGE, "option '%s' takes a number up to %d, not '%s'", name,
            BENCH_MAX_STEPS, text);
    *out = n;
    return RC_OK;
}

static enum rc parse_one(struct bench_job *b, const char *name, const char *value, struct err *e)
{
    const struct {
        const char *name;
        int64_t *count;
        const char **text;
    } options[] = {
        {"--plan", NULL, &b->plan_path},
        {"--steps", &b->steps, NULL},
        {"--warm-up", &b->warm_up, NULL},
        {"--collectives", &b->group, NULL},
        {"--products", &b->products, NULL},
        {"--memory", &b->memory, NULL},
        {"--optimizer", &b->optimizer, NULL},
    };
    for (size_t i = 0; i < BASE_COUNT(options); i++) {
        if (strcmp(name, options[i].name) != 0)
            continue;
        if (!value)
            return err_set(e, RC_USAGE, "option '%s' needs a value", name);
        if (options[i].count)
            return read_count(options[i].count, name, value, e);
        *options[i].text = value;
        return RC_OK;
    }
    if (strcmp(name, "--nvme-dir") == 0)
        return value ? run_disk_parse(&b->disk, value, e)
                     : err_set(e, RC_USAGE, "option '%s' needs a value", name);
    return err_set(e, RC_USAGE, "unknown option '%s'", name);
}

static enum rc parse(struct bench_job *b, int argc, char **argv, struct err *e)
{
    enum rc rc = RC_OK;
    b->steps = DEFAULT_STEPS;
    b->warm_up = DEFAULT_WARM_UP;
    for (int i = 1; i < argc && !rc; i += 2)
        rc = parse_one(b, argv[i], i + 1 < argc ? argv[i + 1] : NULL, e);
    bool has_parts = b->products || b->memory || b->optimizer || b->disk.count || b->group;
    if (!rc && !has_parts && (!b->plan_path || b->steps < 1))
        rc = err_set(e, RC_USAGE,
            "usage: berth-engine bench [--plan FILE [--steps N] [--warm-up N]] [--products "
            "THREADS] "
            "[--memory THREADS] [--optimizer THREADS] [--collectives RANKS] [--nvme-dir DIR,DIR]");
    if (!rc && (b->group == 1 || b->group > COMM_MAX_LOCALS))
        rc = err_set(e, RC_USAGE, "option '--collectives' takes 2 to %d ranks", COMM_MAX_LOCALS);
    if (!rc && (b->products > POOL_MAX_THREADS || b->memory > POOL_MAX_THREADS ||
                   b->optimizer > POOL_MAX_THREADS))
        rc = err_set(e, RC_USAGE, "parts take at most %d threads", POOL_MAX_THREADS);
    return rc;
}

static enum rc take_plan(struct bench_job *b, const char *path, struct err *e)
{
    struct plan_file *p = &b->plan;
    enum rc rc = plan_file_read(p, path, e);
    if (!rc && !p->is_launchable)
        rc = err_set(e, RC_INVALID, "the plan cannot be launched: %s", p->not_launchable);
    if (!rc && p->nodes != 1)
        rc = err_set(e, RC_INVALID,
            "the plan is for %lld nodes; what one machine can be measured with is a plan for one",
            (long long)p->nodes);
    if (!rc)
        rc = plan_file_check_hash(p, e);
    if (!rc)
        rc = schedule_make(&b->schedule, &p->job.model, &p->strategy, e);
    if (!rc && b->schedule->slab_bytes[MEMORY_DISK] > 0 && b->disk.count == 0)
        rc = err_set(e, RC_USAGE,
            "the plan keeps a part of its states on disk: name folders for it with --nvme-dir");
    if (rc)
        return rc;
    b->ranks = (int)p->strategy.ranks;
    b->threads = rank_setup_threads(b->ranks, rank_setup_planned_threads(&p->offer));
    return RC_OK;
}

static void release(struct bench_job *b)
{
    for (int i = 0; b->listen_fd && i < b->ranks; i++)
        if (b->listen_fd[i] >= 0)
            close(b->listen_fd[i]);
    if (b->shared)
        munmap(b->shared, b->shared_bytes);
    free(b->listen_fd);
    free(b->address);
    free(b->peers);
    free(b->host_of);
    run_disk_release(&b->disk);
    schedule_free(b->schedule);
    plan_file_release(&b->plan);
}

static void print(const struct bench *result)
{
    struct json *v = bench_to_json(result);
    char *text = json_print(v, false);
    puts(text);
    free(text);
    json_free(v);
}

/* Among two, and among more where those are asked for. */
static enum rc add_collectives(struct bench *out, int64_t group, struct err *e)
{
    enum rc rc = group > 0 ? bench_collectives(out, 2, e) : RC_OK;
    return !rc && group > 2 ? bench_collectives(out, (int)group, e) : rc;
}

/* What is asked for with as many threads is done in turns. */
static enum rc add_parts(struct bench *out, const struct bench_job *b, struct err *e)
{
    const int64_t threads[] = {b->products, b->memory, b->optimizer};
    unsigned done = 0;
    enum rc rc = RC_OK;
    for (unsigned i = 0; i < 3 && !rc; i++) {
        unsigned what = 0;
        for (unsigned k = i; k < 3; k++)
            what |= threads[k] == threads[i] ? (1u << k) & ~done : 0;
        done |= what;
        if (threads[i] > 0 && what)
            rc = bench_parts(out, what, (int)threads[i], b->schedule, e);
    }
    return !rc && b->disk.count > 0
               ? bench_disk(out, (const char *const *)b->disk.dirs, (int)b->disk.count, e)
               : rc;
}

static enum rc run_steps_of_plan(struct bench *out, struct bench_job *b, struct err *e)
{
    enum rc rc = map_shared(b, e);
    if (!rc)
        rc = listen_all(b, e);
    if (!rc)
        rc = run_ranks(b, e);
    if (!rc)
        collect(out, b);
    return rc;
}

int bench_main(int argc, char **argv)
{
    struct bench_job b;
    struct bench result;
    struct err e = ERR_INIT;
    memset(&b, 0, sizeof b);
    memset(&result, 0, sizeof result);
    snprintf(result.program, sizeof result.program, "berth-engine %s", BERTH_VERSION);
    str_copy(result.kernels, sizeof result.kernels, kernels_best()->name);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody would read the answer */
    enum rc rc = parse(&b, argc, argv, &e);
    if (!rc && b.plan_path)
        rc = take_plan(&b, b.plan_path, &e);
    if (!rc && b.plan_path && b.steps > 0)
        rc = run_steps_of_plan(&result, &b, &e);
    if (!rc)
        rc = add_collectives(&result, b.group, &e);
    if (!rc)
        rc = add_parts(&result, &b, &e);
    if (!rc)
        print(&result);
    else
        fprintf(stderr, "berth-engine: %s\n", e.msg);
    bench_release(&result);
    release(&b);
    return rc_exit_code(rc);
}
