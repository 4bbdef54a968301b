#include "tui/plan_search.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "inventory/offer.h"
#include "planner/break_even.h"
#include "planner/job.h"
#include "planner/plan_file.h"
#include "planner/plan_json.h"
#include "planner/plan_reasons.h"
#include "planner/rates.h"
#include "planner/search.h"
#include "tui/mailbox.h"
#include "tui/plan_data.h"

/* --- shared things --- */

struct shared_offers {
    atomic_int refs;
    struct offers *list;
};

struct shared_offers *shared_offers_new(struct offers *list)
{
    struct shared_offers *s = base_calloc(1, sizeof(*s));
    atomic_init(&s->refs, 1);
    s->list = list;
    return s;
}

struct shared_offers *shared_offers_ref(struct shared_offers *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void shared_offers_unref(struct shared_offers *s)
{
    if (!s || atomic_fetch_sub(&s->refs, 1) > 1)
        return;
    offers_free(s->list);
    free(s);
}

const struct offers *shared_offers_list(const struct shared_offers *s)
{
    return s->list;
}

struct plan_found {
    atomic_int refs;
    struct shared_offers *offers;
    struct job job;
    struct rates *rates;
    struct search *search;
    struct plan_list *list;
};

struct plan_found *plan_found_ref(struct plan_found *f)
{
    atomic_fetch_add(&f->refs, 1);
    return f;
}

void plan_found_unref(struct plan_found *f)
{
    if (!f || atomic_fetch_sub(&f->refs, 1) > 1)
        return;
    plan_list_free(f->list);
    search_free(f->search);
    rates_free(f->rates);
    job_release(&f->job);
    shared_offers_unref(f->offers);
    free(f);
}

const struct plan_list *plan_found_list(const struct plan_found *f)
{
    return f->list;
}

/* --- searching --- */

void plan_request_free(void *request)
{
    struct plan_request *r = request;
    json_free(r->job);
    shared_offers_unref(r->offers);
    free(r->calibration);
    free(r);
}

void plan_answer_free(void *answer)
{
    struct plan_answer *a = answer;
    plan_found_unref(a->found);
    free(a);
}

/* The rows of the screens come from the same document that `berth plan --json` prints. */
static struct plan_list *list_of(const struct plan_found *f)
{
    struct json *doc = json_obj();
    plan_list_fill(doc, f->search, &f->job, f->offers->list, f->rates, -1);
    struct plan_list *list = plan_list_from_json(doc);
    json_free(doc);
    return list;
}

static enum rc find(
    struct plan_found *f, const struct plan_request *r, const atomic_bool *stop, struct err *e)
{
    enum rc rc = job_read_json(&f->job, r->job, e);
    if (!rc)
        rc = job_finish(&f->job, e);
    if (!rc)
        rc = r->calibration ? rates_with_file(&f->rates, r->calibration, e)
                            : rates_builtin(&f->rates, e);
    if (rc)
        return rc;
    struct search_input in = {.job = &f->job,
        .offers = f->offers->list,
        .rates = f->rates,
        .max_plans = PLAN_SEARCH_TOP,
        .is_cancelled = stop};
    rc = search_run(&f->search, &in, e);
    if (!rc)
        rc = search_find_network(f->search, &in, e);
    if (!rc)
        f->list = list_of(f);
    return rc;
}

void plan_search(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context)
{
    (void)context;
    const struct plan_request *r = request;
    struct plan_answer *a = base_calloc(1, sizeof(*a));
    struct err e = ERR_INIT;
    double begin_s = clock_now_s();
    a->serial = r->serial;
    a->found = base_calloc(1, sizeof(*a->found));
    atomic_init(&a->found->refs, 1);
    job_init(&a->found->job);
    a->found->offers = shared_offers_ref(r->offers);
    if (find(a->found, r, is_cancelled, &e)) {
        plan_found_unref(a->found);
        a->found = NULL;
        str_copy(a->error, sizeof(a->error), e.msg);
    }
    a->seconds = clock_now_s() - begin_s;
    if (atomic_load(is_cancelled))
        plan_answer_free(a);
    else
        mailbox_post(mb, (struct message){r->kind, a, plan_answer_free});
}

/* --- writing --- */

void plan_write_free(void *request)
{
    struct plan_write *w = request;
    plan_found_unref(w->found);
    free(w->path);
    free(w);
}

static enum rc write_plan(const struct plan_write *w, struct err *e)
{
    const struct plan_found *f = w->found;
    struct search_input in = {
        .job = &f->job, .offers = f->offers->list, .rates = f->rates, .max_plans = PLAN_SEARCH_TOP};
    struct json *break_even;
    char now[CLOCK_TEXT];
    if (w->index >= f->search->n_plans)
        return err_set(e, RC_NOT_FOUND, "there is no plan %zu", w->index + 1);
    const struct plan *p = &f->search->plans[w->index];
    break_even_find_json(&break_even, &in, f->search, w->index, NULL); /* else it is not said */
    struct json *doc = plan_file_make(p, &f->job, offers_at(f->offers->list, p->offer), f->rates,
        BERTH_VERSION, clock_rfc3339(now, clock_wall_s()));
    plan_reasons_add(doc, f->search, w->index, &f->job, f->offers->list);
    json_add(doc, "break_even", break_even);
    char *text = json_print(doc, true);
    enum rc rc = file_write(w->path, text, strlen(text), 0644, e);
    free(text);
    json_free(doc);
    return rc;
}

void plan_write_run(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context)
{
    (void)context;
    (void)is_cancelled; /* whoever asked twice gets both */
    const struct plan_write *w = request;
    struct plan_written *done = base_calloc(1, sizeof(*done));
    struct err e = ERR_INIT;
    done->index = w->index;
    str_copy(done->path, sizeof(done->path), w->path);
    if (write_plan(w, &e))
        str_copy(done->error, sizeof(done->error), e.msg);
    mailbox_post(mb, (struct message){w->kind, done, NULL});
}
