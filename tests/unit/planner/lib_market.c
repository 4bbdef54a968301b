#include "lib_market.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"

struct rates *market_rates;

int market_setup(void **state)
{
    (void)state;
    return rates_judged(&market_rates, NULL);
}

int market_setup_fitted(void **state)
{
    (void)state;
    return rates_builtin(&market_rates, NULL);
}

int market_teardown(void **state)
{
    (void)state;
    rates_free(market_rates);
    return 0;
}

struct offer market_offer(
    const char *id, const char *gpu, int64_t gpus, int64_t nodes, int64_t price_micro)
{
    struct offer o;
    offer_init(&o);
    offer_put_text(&o, OFFER_PROVIDER, "test", PROVENANCE_REPORTED);
    offer_put_text(&o, OFFER_ID, id, PROVENANCE_REPORTED);
    offer_put_text(&o, OFFER_GPU, gpu, PROVENANCE_REPORTED);
    o.device = DEVICE_GPU;
    o.gpus_per_node = gpus;
    o.price_usd_micro_per_hour = price_micro;
    o.market = MARKET_ON_DEMAND;
    o.ram_bytes = 512LL << 30;
    if (nodes > 1) {
        o.fabric = FABRIC_INFINIBAND;
        o.inter_gbps_per_node = 400;
        o.max_nodes_one_fabric = nodes;
    }
    offer_settle(&o);
    return o;
}

void market_add(struct offers *l, struct offer o)
{
    struct err e = ERR_INIT;
    assert_int_equal(offers_add(l, &o, &e), RC_OK);
}

struct offers *market_with(const struct offers *l, size_t i, struct offer o)
{
    struct offers *changed = offers_new();
    for (size_t k = 0; k < offers_count(l); k++)
        market_add(changed, k == i ? o : *offers_at(l, k));
    return changed;
}

struct job market_job(const char *model, int64_t tokens, int64_t seq, int64_t sequences)
{
    struct err e = ERR_INIT;
    struct job j;
    job_init(&j);
    assert_int_equal(model_find(&j.model, model, &e), RC_OK);
    j.has_model = true;
    j.tokens = tokens;
    j.seq = seq;
    j.global_batch_tokens = seq * sequences;
    assert_int_equal(job_finish(&j, &e), RC_OK);
    return j;
}

struct search *market_plans(const struct job *j, const struct offers *l, size_t n)
{
    struct err e = ERR_INIT;
    struct search *s = NULL;
    struct search_input in = {.job = j, .offers = l, .rates = market_rates, .max_plans = n};
    if (search_run(&s, &in, &e))
        fail_msg("%s", e.msg);
    return s;
}

bool market_same_strategy(const struct strategy *a, const struct strategy *b)
{
    struct json *v = strategy_to_json(a), *w = strategy_to_json(b);
    char *one = json_print(v, false), *two = json_print(w, false);
    bool is_same = strcmp(one, two) == 0;
    free(one);
    free(two);
    json_free(v);
    json_free(w);
    return is_same;
}

uint32_t market_seed;

int64_t market_pick(int64_t n)
{
    market_seed = market_seed * 1664525u + 1013904223u;
    return (int64_t)(market_seed >> 8) % n;
}
