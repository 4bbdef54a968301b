#include "lib_ranks.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "engine/comm.h"
#include "engine/init.h"
#include "engine/random.h"
#include "kernels/kernels.h"

struct start {
    const struct rank_options *o;
    struct comm_options comm;
    struct rank r;
    void (*fn)(struct rank *r);
};

/* cmocka's fail is for the test's own thread only; a rank that fails ends the whole program. */
void ranks_check(enum rc rc, const struct err *e)
{
    if (!rc)
        return;
    fprintf(stderr, "rank failed: %s\n", e->msg);
    abort();
}

struct strategy ranks_strategy(enum strategy_kind kind, int64_t ranks, int64_t accum)
{
    struct strategy s = strategy_default(kind, ranks, ranks);
    s.seq = 24;
    s.micro_batch = 1;
    s.grad_accum = accum;
    s.precision = PRECISION_FP32;
    return s;
}

struct strategy ranks_hsdp(int64_t ranks, int64_t accum)
{
    struct strategy s = ranks_strategy(STRATEGY_HSDP, ranks, accum);
    s.shard_degree = 2;
    return s;
}

static const char *const SCRATCH = "/tmp";

static void *rank_main(void *arg)
{
    struct start *s = arg;
    struct err e = ERR_INIT;
    ranks_check(comm_open(&s->r.comm, &s->comm, &e), &e);
    struct executor_options xo = {.device = &device_cpu,
        .device_options = {.threads = s->o->threads ? s->o->threads : 1,
            .is_poisoning = s->o->is_poisoning},
        .kernels = s->comm.kernels,
        .comm = s->r.comm,
        .disk_dirs = s->o->n_disk_dirs ? s->o->disk_dirs : &SCRATCH,
        .n_disk_dirs = s->o->n_disk_dirs ? s->o->n_disk_dirs : 1,
        .observe = s->r.rank == 0 && s->o->trace ? executor_write_trace : NULL,
        .observe_arg = s->o->trace};
    ranks_check(executor_open(&s->r.x, s->r.schedule, &xo, &e), &e);
    s->fn(&s->r);
    executor_close(s->r.x);
    comm_close(s->r.comm);
    return NULL;
}

static struct schedule *make_schedule(const struct rank_options *o)
{
    struct err e = ERR_INIT;
    struct model m;
    struct schedule *s;
    if (o->model)
        ranks_check(model_find(&m, o->model, &e), &e);
    else
        m = *o->config;
    ranks_check(schedule_make(&s, &m, &o->strategy, &e), &e);
    return s;
}

void ranks_run(const struct rank_options *o, void (*fn)(struct rank *r), void *arg)
{
    int n = (int)o->strategy.ranks;
    struct schedule *schedule = make_schedule(o);
    struct start *start = calloc((size_t)n, sizeof(*start));
    pthread_t *thread = calloc((size_t)n, sizeof(*thread));
    const char **peers = calloc((size_t)n, sizeof(*peers));
    char(*names)[32] = calloc((size_t)n, sizeof(*names));
    int *host_of = calloc((size_t)n, sizeof(*host_of));
    struct err e = ERR_INIT;
    for (int i = 0; i < n; i++) {
        int port = 0;
        start[i] = (struct start){
            .o = o, .fn = fn, .r = {.rank = i, .ranks = n, .schedule = schedule, .arg = arg}};
        start[i].comm = (struct comm_options){.rank = i,
            .ranks = n,
            .shard_degree = (int)schedule->shards,
            .peers = peers,
            .host_of = host_of,
            .token = {1, 2, 3},
            .connect_deadline_s = 20,
            .deadline_s = o->deadline_s > 0 ? o->deadline_s : 60,
            .kernels = o->kernels ? o->kernels : kernels_best()};
        ranks_check(comm_listen(&start[i].comm.listen_fd, &port, &e), &e);
        snprintf(names[i], sizeof(names[i]), "127.0.0.1:%d", port);
        peers[i] = names[i];
        host_of[i] = o->ranks_per_host ? i / o->ranks_per_host : 0;
    }
    for (int i = 0; i < n; i++)
        pthread_create(&thread[i], NULL, rank_main, &start[i]);
    for (int i = 0; i < n; i++)
        pthread_join(thread[i], NULL);
    free(host_of);
    free(names);
    free(peers);
    free(thread);
    free(start);
    schedule_free(schedule);
}

struct state_view ranks_state(struct rank *r, int unit, enum state_kind kind)
{
    struct err e = ERR_INIT;
    struct state_view v = executor_state(r->x, unit, kind);
    float *copy = malloc((size_t)v.count * sizeof(float));
    if (kind == STATE_GRADIENT)
        memcpy(copy, v.data, (size_t)v.count * sizeof(float));
    else
        ranks_check(
            executor_read_state(r->x, unit, kind, (struct state_range){v.first, v.count}, copy, &e),
            &e);
    v.data = copy;
    return v;
}

/* All bits of masters and moments, each weighed by its place; sums of 64 bits do not depend on how
 * they were split. What lies between tensors is zero and weighs nothing. */
uint64_t ranks_state_hash(struct rank *r)
{
    struct err e = ERR_INIT;
    const struct schedule *s = r->schedule;
    uint64_t sum = 0;
    for (int u = 0; u < s->n_units; u++)
        for (int k = 0; k < STATE_KINDS; k++) {
            if (!state_exists(s, (enum state_kind)k))
                continue;
            struct state_view v = ranks_state(r, u, (enum state_kind)k);
            for (int64_t i = 0; i < v.count; i++) {
                uint32_t bits;
                memcpy(&bits, &v.data[i], 4);
                sum += bits * random_bits((uint64_t)(u * STATE_KINDS + k), (uint64_t)(v.first + i));
            }
            free(v.data);
        }
    double halves[2] = {(double)(sum >> 32), (double)(sum & 0xffffffff)};
    enum op_group g = s->parts > s->shards ? GROUP_WORLD : GROUP_SHARD;
    ranks_check(comm_sum(r->comm, CHANNEL_COMPUTE, g, halves, 2, &e), &e);
    return ((uint64_t)halves[0] << 32) + (uint64_t)halves[1];
}

float *ranks_whole(struct rank *r, int unit, enum state_kind kind)
{
    struct err e = ERR_INIT;
    const struct schedule *s = r->schedule;
    struct state_view v = ranks_state(r, unit, kind);
    size_t bytes = (size_t)v.count * sizeof(float);
    float *parts = malloc(bytes * (size_t)r->ranks);
    float *whole = malloc((size_t)s->unit[unit].elems * sizeof(float));
    ranks_check(
        comm_all_gather(r->comm, CHANNEL_COMPUTE, GROUP_WORLD, v.data, parts, bytes, &e), &e);
    for (int k = 0; k < r->ranks; k++)
        memcpy(whole + schedule_part_of(s, k) * v.count, parts + k * v.count, bytes);
    free(parts);
    free(v.data);
    return whole;
}

enum rc batch_fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    const struct batch *b = arg;
    const struct strategy *s = &b->r->schedule->strategy;
    int64_t vocab = b->r->schedule->model.vocab;
    int64_t global = s->ranks * s->grad_accum * s->micro_batch;
    for (int64_t i = 0; i < s->micro_batch; i++) {
        int64_t sample = b->step * global + (micro * s->ranks + b->r->rank) * s->micro_batch + i;
        for (int64_t t = 0; t < s->seq; t++) {
            uint64_t at = (uint64_t)(sample * (s->seq + 1) + t);
            int64_t k = i * s->seq + t;
            out->tokens[k] = (int32_t)(random_bits(7, at) % (uint64_t)vocab);
            out->targets[k] = (int32_t)(random_bits(7, at + 1) % (uint64_t)vocab);
            if (out->positions)
                out->positions[k] = t > 0 && random_bits(8, at) % 5 ? out->positions[k - 1] + 1 : 0;
        }
    }
    return RC_OK;
}

static enum rc try_step(struct rank *r, int64_t step, struct step_result *out, struct err *e)
{
    const struct strategy *s = &r->schedule->strategy;
    struct batch b = {r, step};
    struct step_params p = {.step = step,
        .lr = 1e-3,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .momentum = 0.9,
        .seed = 11,
        .weight_decay = 0.1,
        .clip_norm = 1.0,
        .local_targets = (double)(s->seq * s->micro_batch * s->grad_accum)};
    return executor_step(r->x, &p, batch_fill, &b, out, e);
}

enum rc ranks_try_step(struct rank *r, int64_t step, struct err *e)
{
    struct step_result out;
    return try_step(r, step, &out, e);
}

void ranks_train(struct rank *r, int64_t first, int64_t n, double *losses)
{
    struct err e = ERR_INIT;
    for (int64_t i = 0; i < n; i++) {
        struct step_result out;
        ranks_check(try_step(r, first + i, &out, &e), &e);
        if (losses && r->rank == 0)
            losses[i] = out.loss;
    }
    ranks_check(executor_flush(r->x, &e), &e);
}

void ranks_count_bytes(struct rank *r)
{
    struct comm_volume *sent = r->arg;
    struct err e = ERR_INIT;
    ranks_check(init_state(r->x, 1, &e), &e);
    ranks_check(comm_barrier(r->comm, &e), &e);
    struct comm_volume before = comm_sent(r->comm);
    ranks_train(r, 1, 1, NULL);
    struct comm_volume after = comm_sent(r->comm);
    if (r->rank == 0)
        *sent = (struct comm_volume){after.inside - before.inside, after.across - before.across};
}
