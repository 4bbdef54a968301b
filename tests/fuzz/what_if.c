#include "planner/what_if.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/offer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(enum rc rc)
{
    if (rc)
        abort();
}

/* A small job on one GPU. */
static void answer(const struct what_if *w)
{
    static struct rates *rates;
    struct err e = ERR_INIT;
    struct job j;
    struct offer o;
    struct offers *l = offers_new();
    struct what_if_outcome x;
    struct str text = STR_INIT;
    if (!rates)
        must(rates_judged(&rates, &e));
    job_init(&j);
    must(model_find(&j.model, "gpt2", &e));
    j.has_model = true;
    j.tokens = 1 << 20;
    must(job_finish(&j, &e));
    offer_init(&o);
    offer_put_text(&o, OFFER_GPU, "h100-sxm", PROVENANCE_REPORTED);
    o.device = DEVICE_GPU;
    o.gpus_per_node = 1;
    o.price_usd_micro_per_hour = USD_MICRO;
    offer_settle(&o);
    must(offers_add(l, &o, &e));
    struct search_input in = {.job = &j, .offers = l, .rates = rates};
    must(what_if_plan(&x, w, &in, NULL, &e));
    what_if_describe(&text, w, &x, NULL, &in);
    json_free(what_if_json(w, &x, NULL, &in));
    str_release(&text);
    offers_free(l);
    job_release(&j);
}

/* What is taken can be planned; what is not is refused in words. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = base_strndup((const char *)data, len);
    struct what_if w;
    struct err e = ERR_INIT;
    if (what_if_parse(&w, text, &e) == RC_OK)
        answer(&w);
    else if (!e.msg[0])
        abort();
    free(text);
    return 0;
}
