/* Speed of planning on one core: whole estimates a second, against operation-by-operation
 * simulation of the same lists in alternation, and whole plans over 10,000 offers that are in
 * memory already. */
#include <math.h>
#include <sys/resource.h>
#include <time.h>

#include "base/alloc.h"
#include "base/units.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "planner/hardware.h"
#include "planner/search.h"
#include "planner/space.h"
#include "tests/bench/lib_bench.h"

enum { OFFERS = 10000, ROUNDS = 7, MACHINES = 8 };

static const double bar_per_s = 100000, bar_plan_ms = 100, bar_plan_mib = 64;

/* Of this thread: what one core needs, whatever else the machine does. */
static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static struct rates *rates;

static struct job job_of(const char *model, double tokens)
{
    struct err e = ERR_INIT;
    struct job j;
    job_init(&j);
    need(model_find(&j.model, model, &e), &e);
    j.has_model = true;
    j.tokens = (int64_t)tokens;
    need(job_finish(&j, &e), &e);
    return j;
}

static uint32_t seed = 20261130;
static int64_t pick(int64_t n)
{
    seed = seed * 1664525u + 1013904223u;
    return (int64_t)(seed >> 8) % n;
}

/* --- estimates --- */

static void machines_of(struct machine out[MACHINES], int64_t nodes)
{
    static const char *const gpus[] = {"h100-sxm", "a100-80-sxm", "h200-sxm", "b200"};
    for (int i = 0; i < MACHINES; i++) {
        struct err e = ERR_INIT;
        struct hardware hw;
        struct offer o;
        offer_init(&o);
        offer_put_text(&o, OFFER_GPU, gpus[i % 4], PROVENANCE_REPORTED);
        o.device = DEVICE_GPU;
        o.gpus_per_node = 8;
        o.fabric = FABRIC_INFINIBAND;
        o.inter_gbps_per_node = 400 << (i / 4 * 3);
        o.max_nodes_one_fabric = nodes;
        offer_settle(&o);
        need(hardware_from_offer(&hw, &o, nodes, &e), &e);
        need(machine_make(&out[i], rates, &hw, "berth", &e), &e);
    }
}

struct throughput {
    double prepare_s, estimate_s, plain_s, sum;
    size_t prepared, estimates, plain;
};

static void add(struct throughput *to, const struct throughput *t)
{
    to->prepare_s += t->prepare_s;
    to->estimate_s += t->estimate_s;
    to->plain_s += t->plain_s;
    to->prepared += t->prepared;
    to->estimates += t->estimates;
    to->plain += t->plain;
    to->sum += t->sum;
}

static double estimates_per_s(const struct throughput *t)
{
    return (double)t->estimates / t->estimate_s;
}

/* A strategy prepared once and priced on each machine, and its operations one at a time. */
static struct throughput time_strategy(
    const struct job *j, const struct strategy *s, const struct machine *machines)
{
    struct err e = ERR_INIT;
    struct throughput t = {.prepared = 1};
    struct prepared *p = NULL;
    struct schedule *whole = NULL;
    need(schedule_make(&whole, &j->model, s, &e), &e);
    struct op_span *spans = base_calloc((size_t)whole->n_ops + 1, sizeof *spans);
    double start = cpu_s();
    need(prepared_make(&p, &j->model, s, false, &e), &e);
    t.prepare_s = cpu_s() - start;
    for (int i = 0; i < MACHINES; i++) {
        struct estimate x;
        struct simulation plain;
        start = cpu_s();
        for (int r = 0; r < ROUNDS; r++) {
            prepared_estimate(&x, p, &machines[i]);
            t.sum += x.step_s;
        }
        t.estimate_s += cpu_s() - start;
        t.estimates += ROUNDS;
        if (i % 4)
            continue;
        start = cpu_s();
        simulate(&plain, whole, &machines[i], spans);
        t.plain_s += cpu_s() - start;
        t.plain++;
    }
    prepared_free(p);
    schedule_free(whole);
    free(spans);
    return t;
}

/* Every seventh strategy of the default space. */
static void bench_estimates(const char *model, int64_t nodes)
{
    struct job j = job_of(model, 1e10);
    struct machine machines[MACHINES];
    struct shape_of_ranks shape = {nodes * 8, 8, true};
    struct space space;
    machines_of(machines, nodes);
    space_make(&space, &j, &shape, SPACE_USUAL);
    struct throughput all = {0}, kind[STRATEGY_HSDP + 1] = {{0}};
    for (size_t i = 0; i < space.n; i += 7) {
        struct strategy s = estimate_least(&space.items[i], &j.model);
        struct throughput t = time_strategy(&j, &s, machines);
        add(&all, &t);
        add(&kind[space.items[i].kind], &t);
    }
    double plain_per_s = (double)all.plain / all.plain_s;
    printf(
        "estimates %s on %lld x 8 GPUs: %.0f a second, %.2f of the bar (%.0f); each operation of "
        "the whole list: %.0f a second, ratio %.0f\n   ",
        model, (long long)nodes, estimates_per_s(&all), estimates_per_s(&all) / bar_per_s,
        bar_per_s, plain_per_s, estimates_per_s(&all) / plain_per_s);
    for (int k = 0; k <= STRATEGY_HSDP; k++)
        if (kind[k].estimates)
            printf(
                " %s %.0f", strategy_kind_name((enum strategy_kind)k), estimates_per_s(&kind[k]));
    printf("; preparing a strategy: %.0f us\n", 1e6 * all.prepare_s / (double)all.prepared);
    fflush(stdout);
    space_release(&space);
    job_release(&j);
}

/* --- plans --- */

/* Offers of sellers with a few shapes, or of hosts of which each is a little different. */
static struct offers *market(bool is_each_different)
{
    static const int64_t gpus[] = {1, 2, 4, 8};
    struct offers *l = offers_new();
    for (int i = 0; i < OFFERS; i++) {
        struct err e = ERR_INIT;
        struct offer o;
        char id[32];
        snprintf(id, sizeof id, "offer-%d", i);
        offer_init(&o);
        offer_put_text(&o, OFFER_PROVIDER, "bench", PROVENANCE_REPORTED);
        offer_put_text(&o, OFFER_ID, id, PROVENANCE_REPORTED);
        offer_put_text(
            &o, OFFER_GPU, gpu_at((size_t)pick((int64_t)gpu_count()))->id, PROVENANCE_REPORTED);
        o.device = DEVICE_GPU;
        o.gpus_per_node = gpus[pick(4)];
        o.market = MARKET_ON_DEMAND;
        o.price_usd_micro_per_hour = o.gpus_per_node * (USD_MICRO / 2 + pick(4 * USD_MICRO));
        o.vcpus = is_each_different ? 8 + pick(248) : 16 * o.gpus_per_node;
        o.ram_bytes = (is_each_different ? 32 + pick(2000) : 128 * o.gpus_per_node) << 30;
        o.nvme_bytes = (is_each_different ? 1 + pick(8000) : 2000) << 30;
        if (o.gpus_per_node == 8 && pick(4) == 0) {
            o.fabric = FABRIC_INFINIBAND;
            o.inter_gbps_per_node = 400 << pick(4);
            o.max_nodes_one_fabric = 16;
        }
        offer_settle(&o);
        need(offers_add(l, &o, &e), &e);
    }
    return l;
}

static double peak_mib(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)u.ru_maxrss / 1024;
}

struct workload {
    const char *model;
    double tokens;
    bool is_each_different;
    double budget_usd; /* 0: none */
};

static void bench_plan(const struct workload *w)
{
    struct job j = job_of(w->model, w->tokens);
    struct offers *l = market(w->is_each_different);
    struct searched said = {0};
    double best = INFINITY, worst = 0;
    j.budget_micro_usd = (int64_t)(w->budget_usd * USD_MICRO);
    for (int r = 0; r < ROUNDS; r++) {
        struct err e = ERR_INIT;
        struct search_input in = {.job = &j, .offers = l, .rates = rates};
        struct search *s = NULL;
        double start = cpu_s();
        need(search_run(&s, &in, &e), &e);
        double took = cpu_s() - start;
        best = fmin(best, took);
        worst = fmax(worst, took);
        said = s->searched;
        search_free(s);
    }
    printf("plan %s, %.0e tokens%s over %d offers of %lld kinds: %.0f ms, slowest of %d %.0f (bar: "
           "%.0f)\n    %lld candidates, %lld simulated; peak of the program %.0f MiB (bar: %.0f)\n",
        w->model, w->tokens, w->budget_usd > 0 ? ", budget" : "", OFFERS, (long long)said.hardware,
        1e3 * best, ROUNDS, 1e3 * worst, bar_plan_ms, (long long)said.space,
        (long long)said.simulated, peak_mib(), bar_plan_mib);
    fflush(stdout);
    offers_free(l);
    job_release(&j);
}

int main(void)
{
    static const struct workload workloads[] = {{"gpt2", 1e9, false, 0},
        {"llama-3.1-8b", 1e10, false, 0}, {"llama-3.1-8b", 1, false, 0},
        {"llama-3.1-70b", 1e10, false, 0}, {"llama-3.1-8b", 1e10, true, 0},
        {"llama-3.1-70b", 1e10, true, 0}, {"llama-3.1-8b", 1e10, false, 200}};
    struct err e = ERR_INIT;
    need(rates_builtin(&rates, &e), &e);
    for (size_t i = 0; i < BASE_COUNT(workloads); i++)
        bench_plan(&workloads[i]);
    bench_estimates("llama-3.1-8b", 1);
    bench_estimates("llama-3.1-8b", 8);
    bench_estimates("gpt2", 1);
    rates_free(rates);
    return 0;
}
