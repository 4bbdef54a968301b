#include "tui/work.h"

#include "base/alloc.h"
#include "base/file.h"
#include "base/str.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"
#include "tui/child.h"
#include "tui/mailbox.h"
#include "tui/plan_data.h"
#include "tui/plan_search.h"
#include "tui/ui.h"
#include "tui/worker.h"

enum { MESSAGES_AT_ONCE = 256 };
static const double WAIT_S = 0.5; /* for a thread to notice that the program ends */

enum work_kind {
    WORK_OFFERS,
    WORK_PLAN,
    WORK_WRITE,
    WORK_RUNS,
    WORK_RUN,
    WORK_ATTACH,
    WORK_ACTING
};

struct work {
    struct mailbox *mb;
    struct worker *offers, *plan, *write, *runs, *run;
    struct child_stream *attach, *acting;
    uint64_t attach_serial;
    uint64_t serial;
};

/* --- offers --- */

/* A copy of what the options say: a source that hangs outlives them. */
struct offers_request {
    char **paths;
    size_t n_paths;
    bool has_here;
    int64_t ranks_per_node;
};

struct offers_answer {
    struct offers *list; /* NULL when it failed */
    char error[400];
    char source[200];
};

static void offers_request_free(void *request)
{
    struct offers_request *r = request;
    for (size_t i = 0; i < r->n_paths; i++)
        free(r->paths[i]);
    free(r->paths);
    free(r);
}

static struct offers_request *offers_request_new(const struct tui_options *o)
{
    struct offers_request *r = base_calloc(1, sizeof(*r));
    r->n_paths = o->n_offers_paths;
    r->paths = base_calloc(r->n_paths + 1, sizeof(*r->paths));
    for (size_t i = 0; i < r->n_paths; i++)
        r->paths[i] = base_strdup(o->offers_paths[i]);
    r->has_here = o->has_here;
    r->ranks_per_node = o->ranks_per_node;
    return r;
}

static void offers_answer_free(void *answer)
{
    struct offers_answer *a = answer;
    offers_free(a->list);
    free(a);
}

static enum rc read_offers(const struct offers_request *o, struct offers *out, struct err *e)
{
    struct source_input in = {.ranks_per_node = o->ranks_per_node};
    enum rc rc = RC_OK;
    for (size_t i = 0; i < o->n_paths && !rc; i++)
        rc = source_read_file(out, o->paths[i], NULL, e);
    if (!rc && o->has_here)
        rc = SOURCE_HERE.read(out, &in, e);
    if (!rc && !o->has_here && o->n_paths == 0)
        rc = SOURCE_SAMPLE.read(out, &in, e);
    return rc;
}

static void name_source(const struct offers_request *o, char *text, size_t cap)
{
    const char *here = !o->has_here ? "" : o->n_paths ? " and this machine" : "this machine";
    if (o->n_paths > 1)
        snprintf(text, cap, "%zu files%s", o->n_paths, here);
    else if (o->n_paths == 1)
        snprintf(text, cap, "%s%s", o->paths[0], here);
    else
        str_copy(text, cap, o->has_here ? here : "the bundled sample of list prices");
}

static void load_offers(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context)
{
    (void)context;
    const struct offers_request *o = request;
    struct offers_answer *a = base_calloc(1, sizeof(*a));
    struct err e = ERR_INIT;
    a->list = offers_new();
    name_source(o, a->source, sizeof(a->source));
    if (read_offers(o, a->list, &e)) {
        offers_free(a->list);
        a->list = NULL;
        str_copy(a->error, sizeof(a->error), e.msg);
    }
    if (atomic_load(is_cancelled))
        offers_answer_free(a);
    else
        mailbox_post(mb, (struct message){WORK_OFFERS, a, offers_answer_free});
}

static void ask_plan(struct work *w, struct ui *ui);

static void ask_offers(struct work *w, struct ui *ui)
{
    ui->offers.is_loading = true;
    ui->offers.since_s = ui->now_s;
    worker_request(w->offers, offers_request_new(ui->options));
}

static void take_offers(struct work *w, struct ui *ui, struct offers_answer *a)
{
    bool was_waiting = ui->plans.is_searching || ui->plans.data;
    str_copy(ui->offers.source, sizeof(ui->offers.source), a->source);
    offers_view_answer(&ui->offers, a->list ? shared_offers_new(a->list) : NULL, a->error);
    a->list = NULL;
    if (was_waiting && ui->offers.shared)
        ask_plan(w, ui);
}

/* --- plans --- */

static void ask_plan(struct work *w, struct ui *ui)
{
    struct plans_view *v = &ui->plans;
    v->is_searching = job_form_is_good(&ui->job);
    if (!v->is_searching || !ui->offers.shared) {
        worker_cancel(w->plan); /* with offers on their way the search follows them */
        return;
    }
    struct plan_request *r = base_calloc(1, sizeof(*r));
    r->kind = WORK_PLAN;
    r->serial = v->serial = ++w->serial;
    r->job = job_form_json(&ui->job);
    r->offers = shared_offers_ref(ui->offers.shared);
    if (ui->options->calibration_path)
        r->calibration = base_strdup(ui->options->calibration_path);
    v->since_s = ui->now_s;
    job_form_summary(&ui->job, v->asked, sizeof(v->asked));
    worker_request(w->plan, r);
}

static void take_plan(struct ui *ui, struct plan_answer *a)
{
    if (a->serial != ui->plans.serial)
        return;
    plans_view_answer(&ui->plans, a->found, a->error, a->seconds);
    a->found = NULL;
}

static void ask_write(struct work *w, struct ui *ui)
{
    const struct plan_row *r = plans_view_selected(&ui->plans);
    if (!ui->plans.found || !r) {
        ui->plans.is_writing = false;
        return;
    }
    struct plan_write *p = base_calloc(1, sizeof(*p));
    p->kind = WORK_WRITE;
    p->found = plan_found_ref(ui->plans.found);
    p->index = (size_t)r->rank - 1;
    p->path = base_strdup(ui->plans.write_path);
    worker_request(w->write, p);
}

static void take_write(struct ui *ui, const struct plan_written *p)
{
    ui->plans.is_writing = false;
    if (p->error[0])
        ui_note(ui, ROLE_BAD, "%s", p->error);
    else
        ui_note(ui, ROLE_GOOD, "plan %zu is in %s", p->index + 1, p->path);
}

/* --- runs --- */

static void ask_runs(struct work *w, struct ui *ui)
{
    struct run_list_request *r = base_calloc(1, sizeof(*r));
    r->kind = WORK_RUNS;
    ui->runs.is_loading = true;
    worker_request(w->runs, r);
}

static void take_runs(struct ui *ui, struct message *m)
{
    runs_view_answer(&ui->runs, m->payload);
    m->payload = NULL;
    m->release = NULL;
}

static void ask_run(struct work *w, struct ui *ui)
{
    struct run_follow_request *r = base_calloc(1, sizeof(*r));
    r->kind = WORK_RUN;
    r->serial = ui->run.serial = ++w->serial;
    str_copy(r->id, sizeof(r->id), ui->run.id);
    worker_request(w->run, r);
}

/* The client that brings news of a live run into its folder, where the follower finds them. */
static void attach(struct work *w, struct ui *ui)
{
    struct argv a;
    argv_init(&a);
    argv_add(&a, "attach");
    argv_add(&a, ui->run.id);
    argv_add(&a, "--no-input");
    child_stream_free(w->attach);
    w->attach_serial = ++w->serial;
    w->attach = child_stream_start(&a, WORK_ATTACH, w->attach_serial, NULL, w->mb);
    ui->run.attached_attempt = ui->run.row.attempt;
    argv_release(&a);
}

static void take_run(struct work *w, struct ui *ui, const struct run_news *news)
{
    if (news->serial != ui->run.serial)
        return;
    run_view_news(ui, news);
    const struct run_row *r = &ui->run.row;
    bool is_new = r->attempt != ui->run.attached_attempt;
    if (news->has_row && is_new && !run_state_is_final(r->state))
        attach(w, ui);
}

/* Its lines are in the folder already; only the end matters. */
static void take_attach(struct work *w, struct ui *ui, const struct child_lines *l)
{
    if (!l->is_ended || l->serial != w->attach_serial)
        return;
    bool is_over = l->status == 0 || l->status == rc_exit_code(RC_RUN_FAILED) ||
                   l->status == rc_exit_code(RC_CANCELLED);
    str_copy(ui->run.link, sizeof(ui->run.link), is_over ? "" : l->error);
}

/* --- the command that acts --- */

/* Its output goes through a file when it has to outlive the screens. */
static void start_acting(struct work *w, struct ui *ui)
{
    struct acting *a = &ui->acting;
    char *state = path_user(PATH_STATE), *log = path_join(state, "last-command.log");
    child_stream_free(w->acting);
    a->serial = ++w->serial;
    w->acting =
        child_stream_start(&a->argv, WORK_ACTING, a->serial, a->is_kept ? log : NULL, w->mb);
    if (!w->acting)
        acting_end(ui, 1, "cannot start the berth program");
    free(log);
    free(state);
}

static void take_acting(struct ui *ui, const struct child_lines *l)
{
    if (l->serial != ui->acting.serial)
        return;
    acting_lines(&ui->acting, l->text);
    if (l->is_ended)
        acting_end(ui, l->status, l->error);
}

/* --- all together --- */

struct work *work_new(struct mailbox *mb)
{
    struct work *w = base_calloc(1, sizeof(*w));
    w->mb = mb;
    w->offers = worker_new(load_offers, offers_request_free, mb, NULL);
    w->plan = worker_new(plan_search, plan_request_free, mb, NULL);
    w->write = worker_new(plan_write_run, plan_write_free, mb, NULL);
    w->runs = worker_new(run_list_read, NULL, mb, NULL);
    w->run = worker_new(run_follow, NULL, mb, NULL);
    return w;
}

bool work_free(struct work *w)
{
    bool has_ended = worker_free(w->offers, WAIT_S);
    has_ended = worker_free(w->plan, WAIT_S) && has_ended;
    has_ended = worker_free(w->write, WAIT_S) && has_ended;
    has_ended = worker_free(w->runs, WAIT_S) && has_ended;
    has_ended = worker_free(w->run, WAIT_S) && has_ended;
    has_ended = child_stream_free(w->attach) && has_ended;
    has_ended = child_stream_free(w->acting) && has_ended;
    free(w);
    return has_ended;
}

void work_start(struct work *w, struct ui *ui)
{
    unsigned wants = ui->wants;
    ui->wants = 0;
    if (wants & WANT_OFFERS)
        ask_offers(w, ui);
    if (wants & WANT_PLAN)
        ask_plan(w, ui);
    if (wants & WANT_NO_PLAN) {
        worker_cancel(w->plan);
        ui->plans.is_searching = false;
        ui->plans.serial = ++w->serial;
    }
    if (wants & WANT_WRITE)
        ask_write(w, ui);
    if (wants & WANT_RUNS)
        ask_runs(w, ui);
    if (wants & WANT_RUN)
        ask_run(w, ui);
    if (wants & WANT_ACTING)
        start_acting(w, ui);
}

bool work_collect(struct work *w, struct ui *ui)
{
    struct message m;
    int n = 0;
    while (n < MESSAGES_AT_ONCE && mailbox_take(w->mb, &m)) {
        if (m.kind == WORK_OFFERS)
            take_offers(w, ui, m.payload);
        else if (m.kind == WORK_PLAN)
            take_plan(ui, m.payload);
        else if (m.kind == WORK_WRITE)
            take_write(ui, m.payload);
        else if (m.kind == WORK_RUNS)
            take_runs(ui, &m);
        else if (m.kind == WORK_RUN)
            take_run(w, ui, m.payload);
        else if (m.kind == WORK_ATTACH)
            take_attach(w, ui, m.payload);
        else if (m.kind == WORK_ACTING)
            take_acting(ui, m.payload);
        message_release(&m);
        n++;
    }
    return n > 0;
}
