/* Updates on the host that run beside the next step's forward: a course of steps with accumulation,
 * clipping, another learning rate each time, a step without an update, evaluations, saves and a
 * return to a save in between is the same to the bit as with everything on the device. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/checkpoint.h"
#include "engine/init.h"
#include "engine/poison.h"
#include "lib_ranks.h"
#include "lib_scratch.h"

enum { STEPS = 6, SKIPPED = 3, EVALUATED = 2, SAVED = 4, HASHES = 2 };

/* What rank 0 saw. */
struct course {
    bool is_saving; /* after step SAVED, while the steps after it run; then back to it and on */
    double loss[STEPS], norm[STEPS], evaluated;
    bool is_skipped[STEPS];
    uint64_t hash[HASHES]; /* at the end, and at the end after going back */
};

static enum rc one_step(struct rank *r, int64_t step, struct step_result *out, struct err *e)
{
    const struct strategy *s = &r->schedule->strategy;
    struct batch b = {r, step};
    struct step_params p = {.step = step,
        .lr = 1e-3 / (double)step,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .momentum = 0.9,
        .weight_decay = 0.1,
        .clip_norm = step % 2 ? 0.5 : 0,
        .max_grad_norm = step == SKIPPED ? 1e-6 : 0,
        .local_targets = (double)(s->seq * s->micro_batch * s->grad_accum)};
    return executor_step(r->x, &p, batch_fill, &b, out, e);
}

static void go_on(struct rank *r, int64_t first)
{
    struct course *c = r->arg;
    struct err e = ERR_INIT;
    for (int64_t i = first; i <= STEPS; i++) {
        struct step_result out;
        struct evaluation seen;
        struct batch b = {r, 100};
        ranks_check(one_step(r, i, &out, &e), &e);
        if (r->rank == 0) {
            c->loss[i - 1] = out.loss;
            c->norm[i - 1] = out.grad_norm;
            c->is_skipped[i - 1] = out.is_skipped;
        }
        if (i == EVALUATED) {
            ranks_check(executor_evaluate(r->x, 1, batch_fill, &b, &seen, &e), &e);
            if (r->rank == 0)
                c->evaluated = seen.loss;
        }
        if (i == SAVED && c->is_saving && first == 1)
            return;
    }
}

static uint64_t end_hash(struct rank *r)
{
    struct err e = ERR_INIT;
    ranks_check(executor_flush(r->x, &e), &e);
    return ranks_state_hash(r);
}

/* A save begins while an update is still to be made; steps beside it; back to it, while another
 * update is. */
static void save_and_return(struct rank *r)
{
    struct course *c = r->arg;
    struct err e = ERR_INIT, passed_over = ERR_INIT;
    int host_of[4] = {0};
    char *dir = base_printf("%s/%s-%s-%lld", scratch,
        strategy_kind_name(r->schedule->strategy.kind), offload_name(r->schedule->strategy.offload),
        (long long)r->schedule->strategy.grad_accum);
    struct checkpoint *cp;
    struct checkpoint_report report;
    struct checkpoint_info info = {.step = SAVED, .seed = 1};
    struct checkpoint_options o = {.dir = dir,
        .host_of = host_of,
        .is_async = !(r->schedule->strategy.offload & OFFLOAD_DISK),
        .keep = 2,
        .collective_s = 60};
    ranks_check(checkpoint_open(&cp, r->x, &o, &e), &e);
    go_on(r, 1);
    ranks_check(checkpoint_start(cp, &info, &e), &e);
    go_on(r, SAVED + 1);
    ranks_check(checkpoint_end(cp, true, &report, &e), &e);
    uint64_t hash = end_hash(r);
    if (r->rank == 0)
        c->hash[0] = hash;
    struct step_result out;
    ranks_check(one_step(r, STEPS + 1, &out, &e), &e); /* is given up */
    ranks_check(checkpoint_load(cp, -1, &info, &passed_over, &e), &e);
    go_on(r, info.step + 1);
    hash = end_hash(r);
    if (r->rank == 0)
        c->hash[1] = hash;
    if (!checkpoint_close(cp))
        ranks_check(err_set(&e, RC_FAILED, "the writer did not end"), &e);
    free(dir);
}

static void take_course(struct rank *r)
{
    struct course *c = r->arg;
    struct err e = ERR_INIT;
    ranks_check(executor_warm_up(r->x, &e), &e);
    ranks_check(init_state(r->x, 42, &e), &e);
    if (c->is_saving) {
        save_and_return(r);
        return;
    }
    go_on(r, 1);
    uint64_t hash = end_hash(r);
    if (r->rank == 0)
        c->hash[0] = hash;
}

static struct course course_of(const char *model, struct strategy s, bool is_saving)
{
    struct course c = {.is_saving = is_saving};
    struct rank_options ro = {
        .model = model, .strategy = s, .threads = 2, .is_poisoning = POISON_WORKS && !is_saving};
    ranks_run(&ro, take_course, &c);
    return c;
}

static void assert_same(const struct course *a, const struct course *b, const struct strategy *s)
{
    bool is_same = memcmp(a->loss, b->loss, sizeof(a->loss)) == 0 &&
                   memcmp(a->norm, b->norm, sizeof(a->norm)) == 0 &&
                   memcmp(&a->evaluated, &b->evaluated, sizeof(double)) == 0 &&
                   a->hash[0] == b->hash[0];
    for (int i = 0; i < STEPS; i++)
        is_same = is_same && a->is_skipped[i] == b->is_skipped[i] &&
                  b->is_skipped[i] == (i + 1 == SKIPPED);
    if (b->is_saving)
        is_same = is_same && b->hash[1] == b->hash[0];
    if (!is_same)
        fail_msg("%s, offload %s, accumulation %lld: another course", strategy_kind_name(s->kind),
            offload_name(s->offload), (long long)s->grad_accum);
}

static struct strategy base(enum strategy_kind kind, int64_t accum, enum precision precision)
{
    struct strategy s = strategy_default(kind, 2, 2);
    s.seq = 24;
    s.micro_batch = 1;
    s.grad_accum = accum;
    s.precision = precision;
    s.evaluates = true;
    strategy_take_optimizer(&s, accum == 3 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW);
    return s;
}

static void compare_placements(const char *model, struct strategy s, bool is_saving)
{
    struct course want = course_of(model, s, false);
    int deferred = 0;
    for (size_t i = 0; i < OFFLOAD_SETS; i++) {
        struct err e = ERR_INIT;
        struct model m;
        ranks_check(model_find(&m, model, &e), &e);
        s.offload = offload_at(i);
        if (strategy_check(&s, &m, &e) || !strategy_defers_update(&s))
            continue;
        struct course got = course_of(model, s, is_saving);
        assert_same(&want, &got, &s);
        deferred++;
    }
    assert_int_equal(deferred, s.kind >= STRATEGY_ZERO3 ? 6 : 3);
}

static void every_placement_takes_the_same_course(void **state)
{
    (void)state;
    static const enum precision precisions[] = {PRECISION_FP32, PRECISION_BF16, PRECISION_FP8};
    for (int k = STRATEGY_DDP; k <= STRATEGY_HSDP; k++)
        for (int64_t accum = 1; accum <= 3; accum++)
            compare_placements(k % 2 ? "tiny-gpt2" : "tiny-llama",
                base((enum strategy_kind)k, accum, precisions[accum - 1]), false);
}

static void states_over_replicas_take_the_same_course(void **state)
{
    (void)state;
    struct strategy s = strategy_default(STRATEGY_HSDP, 4, 4);
    s.shard_degree = 2;
    s.seq = 24;
    s.evaluates = true;
    s.splits_over_replicas = true;
    struct course want = course_of("tiny-llama", s, false);
    s.offload = OFFLOAD_OPTIMIZER;
    struct course got = course_of("tiny-llama", s, false);
    assert_same(&want, &got, &s);
}

static void saves_and_returns_find_no_update_missing_and_none_too_many(void **state)
{
    (void)state;
    for (int k = STRATEGY_DDP; k <= STRATEGY_ZERO3; k++)
        compare_placements("tiny-llama", base((enum strategy_kind)k, 2, PRECISION_FP32), true);
}

/* --- what ran when --- */

static void two_steps(struct rank *r)
{
    struct err e = ERR_INIT;
    struct step_result out;
    ranks_check(init_state(r->x, 1, &e), &e);
    for (int64_t step = 1; step <= 2; step++)
        ranks_check(one_step(r, step, &out, &e), &e);
}

/* Seconds of updates in each step. */
static void add_times(double s[2], const char *text)
{
    for (int step = -1; *text; text = strchr(text, '\n') + 1) {
        struct err e = ERR_INIT;
        struct json *v = NULL;
        ranks_check(json_parse(&v, text, (size_t)(strchr(text, '\n') - text), &e), &e);
        step += json_int(v, "order", -1) == 0 && strcmp(json_str(v, "section", ""), "only") == 0;
        if (strcmp(json_str(v, "kind", ""), "adamw") == 0)
            s[step] += json_num(v, "end_s", 0) - json_num(v, "start_s", 0);
        json_free(v);
    }
}

/* Each unit once, in the section that the next step begins with; nothing in the first. */
static void the_first_step_updates_nothing_and_the_second_does(void **state)
{
    (void)state;
    char *text = NULL;
    size_t len = 0;
    struct rank_options o = {
        .model = "nano-llama", .strategy = base(STRATEGY_ZERO3, 1, PRECISION_FP32)};
    double s[2] = {0, 0};
    o.strategy.offload = OFFLOAD_OPTIMIZER;
    o.trace = open_memstream(&text, &len);
    ranks_run(&o, two_steps, NULL);
    fclose(o.trace);
    add_times(s, text);
    assert_true(s[1] > 20 * s[0]);
    free(text);
}

int test_deferred(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_placement_takes_the_same_course),
        cmocka_unit_test(states_over_replicas_take_the_same_course),
        cmocka_unit_test(saves_and_returns_find_no_update_missing_and_none_too_many),
        cmocka_unit_test(the_first_step_updates_nothing_and_the_second_does),
    };
    return cmocka_run_group_tests_name("engine/deferred", tests, scratch_make, scratch_remove);
}
