#include "tui/work.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"
#include "tui/child.h"
#include "tui/mailbox.h"
#include "tui/plan_data.h"
#include "tui/ui.h"
#include "tui/worker.h"

enum { MESSAGES_AT_ONCE = 256 };
static const double WAIT_S = 0.5; /* for a thread to notice that the program ends */

enum work_kind { WORK_OFFERS, WORK_PLAN };

struct work {
    struct mailbox *mb;
    struct worker *offers, *plan;
    uint64_t serial;
};

/* --- offers --- */

struct offers_answer {
    struct offers *list; /* NULL when it failed */
    char error[400];
    char source[200];
};

static void offers_answer_free(void *answer)
{
    struct offers_answer *a = answer;
    offers_free(a->list);
    free(a);
}

static enum rc read_offers(const struct tui_options *o, struct offers *out, struct err *e)
{
    struct source_input in = {.ranks_per_node = o->ranks_per_node};
    enum rc rc = RC_OK;
    for (size_t i = 0; i < o->n_offers_paths && !rc; i++)
        rc = source_read_file(out, o->offers_paths[i], e);
    if (!rc && o->has_here)
        rc = SOURCE_HERE.read(out, &in, e);
    if (!rc && !o->has_here && o->n_offers_paths == 0)
        rc = SOURCE_SAMPLE.read(out, &in, e);
    return rc;
}

static void name_source(const struct tui_options *o, char *text, size_t cap)
{
    const char *here = !o->has_here ? "" : o->n_offers_paths ? " and this machine" : "this machine";
    if (o->n_offers_paths > 1)
        snprintf(text, cap, "%zu files%s", o->n_offers_paths, here);
    else if (o->n_offers_paths == 1)
        snprintf(text, cap, "%s%s", o->offers_paths[0], here);
    else
        str_copy(text, cap, o->has_here ? here : "the bundled sample of list prices");
}

static void load_offers(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context)
{
    (void)context;
    const struct tui_options *const *o = request;
    struct offers_answer *a = base_calloc(1, sizeof(*a));
    struct err e = ERR_INIT;
    a->list = offers_new();
    name_source(*o, a->source, sizeof(a->source));
    if (read_offers(*o, a->list, &e)) {
        offers_free(a->list);
        a->list = NULL;
        str_copy(a->error, sizeof(a->error), e.msg);
    }
    if (atomic_load(is_cancelled))
        offers_answer_free(a);
    else
        mailbox_post(mb, (struct message){WORK_OFFERS, a, offers_answer_free});
}

static void ask_offers(struct work *w, struct ui *ui)
{
    const struct tui_options **r = base_calloc(1, sizeof(*r));
    *r = ui->options;
    ui->offers.is_loading = true;
    ui->offers.since_s = ui->now_s;
    worker_request(w->offers, r);
}

static void take_offers(struct ui *ui, struct offers_answer *a)
{
    str_copy(ui->offers.source, sizeof(ui->offers.source), a->source);
    offers_view_answer(&ui->offers, a->list, a->error);
    a->list = NULL;
}

/* --- plans --- */

static void prepare(int kind, struct child_answer *a)
{
    if (kind != WORK_PLAN || !a->doc || a->error[0])
        return;
    a->derived = plan_list_from_json(a->doc);
    a->release_derived = plan_list_free;
    json_free(a->doc); /* the rows say all; the document may be large */
    a->doc = NULL;
}

static void ask_plan(struct work *w, struct ui *ui)
{
    struct plans_view *v = &ui->plans;
    if (!job_form_is_good(&ui->job)) {
        worker_cancel(w->plan);
        v->is_searching = false;
        return;
    }
    struct child_request *r = child_request_new(WORK_PLAN, ++w->serial);
    ui_plan_argv(ui, &r->argv);
    argv_add(&r->argv, "--json");
    v->serial = w->serial;
    v->is_searching = true;
    v->since_s = ui->now_s;
    worker_request(w->plan, r);
}

static void take_plan(struct ui *ui, struct child_answer *a)
{
    if (a->serial != ui->plans.serial)
        return;
    plans_view_answer(&ui->plans, a->derived, a->error, a->seconds);
    a->derived = NULL;
}

/* --- all together --- */

static struct child_context queries = {prepare};

struct work *work_new(struct mailbox *mb)
{
    struct work *w = base_calloc(1, sizeof(*w));
    w->mb = mb;
    w->offers = worker_new(load_offers, NULL, mb, NULL);
    w->plan = worker_new(child_query, child_request_free, mb, &queries);
    return w;
}

bool work_free(struct work *w)
{
    bool has_ended = worker_free(w->offers, WAIT_S);
    has_ended = worker_free(w->plan, WAIT_S) && has_ended;
    free(w);
    return has_ended;
}

void work_start(struct work *w, struct ui *ui)
{
    unsigned wants = ui->wants;
    ui->wants = 0;
    if (wants & WANT_OFFERS)
        ask_offers(w, ui);
    if (wants & (WANT_PLAN | WANT_OFFERS))
        ask_plan(w, ui);
}

bool work_collect(struct work *w, struct ui *ui)
{
    struct message m;
    int n = 0;
    while (n < MESSAGES_AT_ONCE && mailbox_take(w->mb, &m)) {
        if (m.kind == WORK_OFFERS)
            take_offers(ui, m.payload);
        else if (m.kind == WORK_PLAN)
            take_plan(ui, m.payload);
        message_release(&m);
        n++;
    }
    return n > 0;
}
