/* The search, which looks at little, against trying everything. */
#include "planner/search.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"
#include "planner/adapter.h"
#include "planner/hardware.h"
#include "planner/plan_json.h"
#include "planner/search_cells.h"

#include "lib_market.h"

static struct search *run(const struct job *j, const struct offers *l, bool tries_everything)
{
    struct err e = ERR_INIT;
    struct search *s = NULL;
    struct search_input in = {
        .job = j, .offers = l, .rates = market_rates, .tries_everything = tries_everything};
    if (search_run(&s, &in, &e))
        fail_msg("%s", e.msg);
    assert_int_equal(s->searched.space,
        s->searched.pruned_by_memory + s->searched.pruned_by_bound + s->searched.simulated);
    return s;
}

static bool same_plan(const struct plan *a, const struct plan *b)
{
    return a->offer == b->offer && a->nodes == b->nodes &&
           market_same_strategy(&a->strategy, &b->strategy) && strcmp(a->why, b->why) == 0 &&
           strcmp(a->limits, b->limits) == 0 && memcmp(&a->bill, &b->bill, sizeof a->bill) == 0;
}

static bool same_point(const struct pareto_point *a, const struct pareto_point *b)
{
    return a->offer == b->offer && a->nodes == b->nodes && a->plan == b->plan &&
           a->micro_usd == b->micro_usd && market_same_strategy(&a->strategy, &b->strategy);
}

/* The winner, the runner-up and all plans behind them, the Pareto front, and what was refused; by
 * how much a group misses a limit may be said of another number of nodes, when its plan kept the
 * limit by the quick estimate and not as a whole. */
static void assert_same(const struct search *a, const struct search *b, uint32_t of_seed)
{
    bool is_same =
        a->n_plans == b->n_plans && a->n_pareto == b->n_pareto && a->n_rejected == b->n_rejected;
    if (!is_same)
        fail_msg("seed %u: %zu plans, %zu points of the front, %zu rejections, not %zu, %zu, %zu",
            of_seed, a->n_plans, a->n_pareto, a->n_rejected, b->n_plans, b->n_pareto,
            b->n_rejected);
    for (size_t i = 0; i < a->n_plans; i++)
        if (!same_plan(&a->plans[i], &b->plans[i]))
            fail_msg("seed %u: plan %zu differs", of_seed, i + 1);
    for (size_t i = 0; i < a->n_pareto; i++)
        if (!same_point(&a->pareto[i], &b->pareto[i]))
            fail_msg("seed %u: point %zu of the front differs", of_seed, i + 1);
    for (size_t i = 0; i < a->n_rejected; i++)
        if (a->rejected[i].shortage != b->rejected[i].shortage ||
            a->rejected[i].offers != b->rejected[i].offers)
            fail_msg("seed %u: rejection %zu is '%s: %s', not '%s: %s'", of_seed, i + 1,
                a->rejected[i].what, a->rejected[i].why, b->rejected[i].what, b->rejected[i].why);
}

static struct model random_model(void)
{
    static const char *const models[] = {"tiny-llama", "gpt2", "smollm2-360m", "qwen2.5-0.5b",
        "llama-3.2-1b", "gpt2-xl", "qwen2.5-7b"};
    struct err e = ERR_INIT;
    struct model m;
    assert_int_equal(model_find(&m, models[market_pick(7)], &e), RC_OK);
    if (market_pick(2))
        m.layers = 1 + market_pick(40);
    if (market_pick(2))
        m.vocab = 1000 + market_pick(100000);
    if (market_pick(2) && m.family == MODEL_LLAMA)
        m.ffn = 128 * (1 + market_pick(100));
    assert_int_equal(model_check(&m, &e), RC_OK);
    return m;
}

/* Any one or two ways of sharding, or all. */
static void pick_strategies(struct job *j)
{
    const char *a = strategy_kind_name((enum strategy_kind)market_pick(STRATEGY_HSDP + 1));
    const char *b = strategy_kind_name((enum strategy_kind)market_pick(STRATEGY_HSDP + 1));
    if (market_pick(8) > 0)
        snprintf(j->strategy, sizeof j->strategy, strcmp(a, b) ? "%s,%s" : "%s", a, b);
}

/* One or two ways of recompute, and when parameters are freed and gradients reduced. */
static void pick_moves(struct job *j)
{
    static const char *const recomputes[] = {
        "mixed", "none,mixed", "selective-ffn", "full", "selective,selective-ffn,mixed"};
    static const char *const reshards[] = {"always", "never", "40MB", "300MB"};
    if (market_pick(4) == 0)
        snprintf(j->recompute, sizeof j->recompute, "%s", recomputes[market_pick(5)]);
    if (market_pick(4) == 0)
        snprintf(j->reshard, sizeof j->reshard, "%s", reshards[market_pick(4)]);
    if (market_pick(8) == 0)
        snprintf(j->bucket, sizeof j->bucket, "%s", market_pick(2) ? "64MB" : "unlimited");
    str_copy(j->gather_format, sizeof j->gather_format, j->tokens / 1000000 % 4 ? "" : "int8");
    str_copy(j->reduce_format, sizeof j->reduce_format, j->tokens / 1000000 % 3 ? "" : "int8");
}

/* Large models on few GPUs, so that the later stages of the space have work. */
static bool is_tight;

static struct job random_job(void)
{
    static const int64_t seqs[] = {256, 512};
    static const int64_t batches[] = {2, 4, 4, 6, 8};
    static const char sgd[] = "{\"optimizer\": \"sgd\"}";
    struct err e = ERR_INIT;
    struct job j = market_job("gpt2", 1000000 + market_pick(100) * 1000000, seqs[market_pick(2)],
        batches[market_pick(5)]);
    j.model = random_model();
    if (is_tight) {
        model_find(&j.model, market_pick(2) ? "llama-3.1-8b" : "llama-3.2-3b", &e);
        j.seq = j.seq == 256 ? 32768 : 512;
        j.global_batch_tokens = j.seq * 4;
    }
    j.objective = (enum objective)market_pick(3);
    j.spot = market_pick(2) ? SPOT_ALLOW : (enum spot)market_pick(3);
    if (market_pick(4) == 0)
        j.tokens = 1; /* a single step: boot and checkpoint are all there is */
    if (market_pick(4) == 0)
        j.deadline_s = 600.0 * (double)(1 + market_pick(100));
    if (market_pick(4) == 0)
        j.budget_micro_usd = USD_MICRO / 10 * (1 + market_pick(100));
    if (market_pick(4) == 0)
        j.allow_fp32 = true;
    j.allow_fp8 = market_seed % 5 == 0;
    if (market_pick(8) == 0)
        j.max_gpus = 1 + market_pick(8);
    if (market_pick(4) == 0)
        j.checkpoint_every_s = 60.0 * (double)(1 + market_pick(60));
    if (!is_tight || market_pick(4) == 0)
        pick_strategies(&j);
    pick_moves(&j);
    if (j.allow_bf16 || j.precision == PRECISION_BF16)
        j.master_bytes = MASTER_FP32 - (int)(j.tokens / 1000000 % 5 % 3) * 2;
    j.moment_form = (enum moment_form)(j.tokens / 1000000 % 7 % 3);
    if (j.tokens / 1000000 % 4 == 1)
        assert_int_equal(json_parse(&j.training, sgd, strlen(sgd), &e), RC_OK);
    assert_int_equal(job_finish(&j, &e), RC_OK);
    return j;
}

/* Some that differ in price or host memory alone. */
static struct offers *random_offers(void)
{
    static const char *const gpus[] = {
        "rtx4090", "a10", "l4", "a100-80-sxm", "h100-sxm", "v100-32"};
    struct offers *l = offers_new();
    struct offer o = {0};
    for (int i = 0; i < 3; i++) {
        char id[32];
        snprintf(id, sizeof id, "offer-%d", i);
        int64_t price = market_pick(8) == 0 ? OFFER_UNKNOWN : USD_MICRO / 2 * (1 + market_pick(20));
        if (i == 0 || market_pick(3) > 0)
            o = market_offer(id, gpus[market_pick(6)], (int64_t)1 << market_pick(is_tight ? 2 : 3),
                1 + market_pick(2), price);
        offer_put_text(&o, OFFER_ID, id, PROVENANCE_REPORTED);
        o.price_usd_micro_per_hour = price;
        o.ram_bytes = (16 + market_pick(400)) << 30;
        o.nvme_bytes = market_pick(3) ? (20 + market_pick(2000)) << 30 : OFFER_UNKNOWN;
        o.market = market_pick(4) ? MARKET_ON_DEMAND : MARKET_SPOT;
        o.granularity_s = market_pick(2) ? 3600 : 1;
        o.interruptions_per_hour = o.market == MARKET_SPOT ? 0.2 * (double)market_pick(10) : -1;
        o.notice_s = market_pick(2) ? 120 : -1;
        o.storage_usd_micro_per_gib_month = market_pick(2) ? 70000 : -1;
        str_copy(o.fetched_at, sizeof o.fetched_at, "2026-11-30T00:00:00Z");
        str_copy(o.available_until, sizeof o.available_until,
            market_pick(4)   ? ""
            : market_pick(2) ? "2026-12-02T00:00:00Z"
                             : "2026-11-30T02:00:00Z");
        market_add(l, o);
    }
    return l;
}

static bool has_offer_of(const struct offers *l, const char *gpu)
{
    for (size_t i = 0; i < offers_count(l); i++)
        if (strcmp(offers_at(l, i)->gpu, gpu) == 0)
            return true;
    return false;
}

/* Adapters, of one kind or another, and packed documents. */
static void tune(struct job *j, uint32_t i)
{
    static const struct adapter adapters[] = {{8, ADAPT_ATTENTION, 16}, {16, ADAPT_ALL, 4},
        {1, ADAPT_DOWN, 8}, {32, ADAPT_Q | ADAPT_UP, 16}};
    j->model.adapter = adapters[i % 4];
    j->allow_fp8 = false;
    j->doc_tokens = i % 3 * 100;
    j->gather_format[0] = j->reduce_format[0] = '\0'; /* what is beside a frozen model has none */
}

struct tally {
    size_t plans, refused, of[16]; /* by what plans offload */
    size_t mixed, split;           /* recompute, optimizer states over replicas */
};

static void count(struct tally *t, const struct search *s)
{
    t->plans += s->n_plans;
    for (size_t k = 0; k < s->n_plans; k++)
        t->of[s->plans[k].strategy.offload]++;
    for (size_t k = 0; k < s->n_plans; k++) {
        t->mixed += s->plans[k].strategy.full_blocks > 0;
        t->split += s->plans[k].strategy.splits_over_replicas;
        assert_true(s->plans[k].strategy.full_blocks >= 0);
    }
    for (size_t k = 0; k < s->n_rejected; k++)
        t->refused += str_starts(s->rejected[k].why, "refused: it fits only");
}

static struct tally compare_with_everything(uint32_t jobs, uint32_t first_seed)
{
    struct tally tally = {0};
    for (uint32_t i = 0; i < jobs; i++) {
        uint32_t of_seed = market_seed = first_seed + i * 7919;
        struct job j = random_job();
        if (i % 4 == 3)
            tune(&j, i / 4);
        struct offers *l = random_offers();
        struct search *bounded = run(&j, l, false), *full = run(&j, l, true);
        assert_same(bounded, full, of_seed);
        count(&tally, full);
        /* only what the hardware has no rate for is left out: bf16 on a V100, fp8 on most */
        if (!has_offer_of(l, "v100-32") && !j.allow_fp8)
            assert_int_equal(full->searched.simulated, full->searched.space);
        search_free(bounded);
        search_free(full);
        offers_free(l);
        job_release(&j);
    }
    return tally;
}

static void equals_trying_everything_on_200_random_small_jobs(void **state)
{
    (void)state;
    struct tally t = compare_with_everything(200, 20261130);
    assert_true(t.plans > 150);
}

static void equals_trying_everything_on_120_jobs_that_hardly_fit(void **state)
{
    (void)state;
    is_tight = true;
    struct tally t = compare_with_everything(120, 20261201);
    is_tight = false;
    assert_true(t.of[OFFLOAD_OPTIMIZER] > 10 && t.of[OFFLOAD_ACTIVATIONS] > 0);
    assert_true(t.of[OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS] > 10);
    assert_true(t.of[OFFLOAD_OPTIMIZER | OFFLOAD_DISK] > 0 && t.refused > 5);
    assert_true(t.of[OFFLOAD_OPTIMIZER | OFFLOAD_PARAMETERS | OFFLOAD_DISK] > 0);
    assert_true(t.mixed > 0);
}

static void bounds_stay_below_what_is_simulated(void **state)
{
    (void)state;
    static const char *const gpus[] = {"l4", "a100-80-sxm", "h100-sxm"};
    struct job j = market_job("llama-3.2-1b", 1000000000, 1024, 32);
    for (uint32_t k = 0; k < 12; k++) {
        uint32_t g = k % 3;
        if (k >= 6)
            tune(&j, k);
        str_copy(j.gather_format, sizeof j.gather_format, k == 3 || k == 4 ? "int8" : "");
        str_copy(j.reduce_format, sizeof j.reduce_format, k == 4 || k == 5 ? "int8" : "");
        struct err e = ERR_INIT;
        struct offer o = market_offer("x", gpus[g], 4, 2, USD_MICRO);
        struct hardware hw;
        assert_int_equal(hardware_from_offer(&hw, &o, 2, &e), RC_OK);
        struct track t = {.offer = &o};
        assert_int_equal(machine_make(&t.machine, market_rates, &hw, "berth", &e), RC_OK);
        struct shape_of_ranks shape = {8, 4, true};
        struct space space;
        struct bounds *b = NULL;
        struct works *works = works_new(&j.model, j.seq);
        space_make(&space, &j, &shape, SPACE_USUAL);
        assert_int_equal(bounds_new(&b, works, &space, true, &e), RC_OK);
        double *step_s = base_calloc(space.n + 1, sizeof *step_s);
        bounds_step_s(b, &t, step_s);
        for (size_t i = 0; i < space.n; i += 7) {
            struct estimate x;
            const struct strategy *s = &space.items[i];
            assert_int_equal(estimate_quick(&x, &j.model, s, &t.machine, &e), RC_OK);
            if (isinf(step_s[i]))
                assert_true(x.peak_bytes > x.capacity_bytes);
            else if (step_s[i] > x.step_s)
                fail_msg(
                    "strategy %zu on %s: bound %.9g above %.9g", i, gpus[g], step_s[i], x.step_s);
            assert_true(bounds_live_bytes(b, i) <= (double)(x.peak_bytes - x.packing_bytes));
            assert_true(bounds_node_bytes(b, i).host <= x.host_ram_bytes);
        }
        free(step_s);
        free(t.compute_s);
        bounds_free(b);
        works_free(works);
        space_release(&space);
    }
    job_release(&j);
}

static void says_the_same_twice_and_stops_when_told(void **state)
{
    (void)state;
    market_seed = 20261130;
    struct job j = market_job("gpt2", 1000000000, 1024, 64);
    struct offers *l = random_offers();
    char *text[2];
    for (int i = 0; i < 2; i++) {
        struct search *s = run(&j, l, false);
        struct json *doc = json_obj();
        plan_list_fill(doc, s, &j, l, market_rates, -1);
        text[i] = json_print(doc, true);
        json_free(doc);
        search_free(s);
    }
    assert_string_equal(text[0], text[1]);
    free(text[0]);
    free(text[1]);
    atomic_bool stop = true;
    struct err e = ERR_INIT;
    struct search *s = NULL;
    struct search_input in = {.job = &j, .offers = l, .rates = market_rates, .is_cancelled = &stop};
    assert_int_equal(search_run(&s, &in, &e), RC_CANCELLED);
    assert_null(s);
    offers_free(l);
    job_release(&j);
}

int test_search_exact(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_trying_everything_on_200_random_small_jobs),
        cmocka_unit_test(equals_trying_everything_on_120_jobs_that_hardly_fit),
        cmocka_unit_test(bounds_stay_below_what_is_simulated),
        cmocka_unit_test(says_the_same_twice_and_stops_when_told),
    };
    return cmocka_run_group_tests_name("search_exact", tests, market_setup, market_teardown);
}
