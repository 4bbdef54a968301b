#include "launcher/fan.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/text.h"

void fan_init(struct fan *f, size_t count)
{
    *f = (struct fan){.count = count, .interrupt_fd = -1};
    f->v = base_calloc(count ? count : 1, sizeof(*f->v));
}

void fan_release(struct fan *f)
{
    for (size_t i = 0; i < f->count; i++) {
        if (f->v[i].t)
            f->v[i].t->ops->free(f->v[i].t);
        free(f->v[i].label);
    }
    free(f->v);
    *f = (struct fan){.interrupt_fd = -1};
}

size_t fan_in_count(const struct fan *f)
{
    size_t n = 0;
    for (size_t i = 0; i < f->count; i++)
        n += f->v[i].t && !f->v[i].err.code;
    return n;
}

/* The error of the first host that skip does not mark, and which others failed. */
static enum rc first_error(const struct fan *f, const bool *skip, struct err *e)
{
    enum { NAMED = 3 };
    const struct fan_host *first = NULL;
    struct str others = STR_INIT;
    size_t bad = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct fan_host *h = &f->v[i];
        if (!h->err.code || (skip && skip[i]))
            continue;
        if (bad == 0)
            first = h;
        else if (bad <= NAMED)
            str_addf(&others, "%s'%s'", bad > 1 ? ", " : "", h->label);
        bad++;
    }
    if (bad > NAMED + 1)
        str_addf(&others, " and %zu more", bad - NAMED - 1);
    enum rc rc = RC_OK;
    if (bad == 1)
        rc = err_set(e, first->err.code, "host '%s': %s", first->label, first->err.msg);
    else if (bad > 1)
        rc = err_set(e, first->err.code, "host '%s': %s (also failed: %s)", first->label,
            first->err.msg, str_text(&others));
    str_release(&others);
    return rc;
}

enum rc fan_first_error(const struct fan *f, struct err *e)
{
    return first_error(f, NULL, e);
}

/* --- the loop --- */

enum job_state { JOB_WAITING, JOB_GOING, JOB_OVER };

struct loop {
    struct fan *fan;
    const char *doing;
    fan_step step;
    void *ctx;
    double timeout_s;
    enum job_state *state;
    double *deadline_s;
    struct pollfd *fds;
    size_t going, next;
};

static void end_job(struct loop *l, size_t i)
{
    l->state[i] = JOB_OVER;
    l->going--;
}

static void step_job(struct loop *l, size_t i)
{
    struct fan_host *h = &l->fan->v[i];
    struct err e = ERR_INIT;
    enum progress p = l->step(l->ctx, i, &e);
    if (p == PROGRESS_WAIT && l->timeout_s > 0 && clock_now_s() > l->deadline_s[i]) {
        err_set(&e, RC_NODE, "no answer within %g s while %s (%s)", l->timeout_s, l->doing,
            h->t->ops->stage(h->t));
        h->t->ops->drop(h->t);
        p = PROGRESS_FAILED;
    }
    if (p == PROGRESS_FAILED) {
        if (!e.code)
            err_set(&e, RC_FAILED, "%s failed", l->doing);
        h->err = e;
    }
    if (p != PROGRESS_WAIT)
        end_job(l, i);
}

static void start_jobs(struct loop *l)
{
    size_t limit = l->fan->fanout > 0 ? (size_t)l->fan->fanout : FAN_DEFAULT;
    while (l->going < limit && l->next < l->fan->count) {
        size_t i = l->next++;
        if (l->state[i] == JOB_OVER)
            continue;
        l->state[i] = JOB_GOING;
        l->deadline_s[i] = clock_now_s() + l->timeout_s;
        l->going++;
        step_job(l, i);
    }
}

/* Sleep until something may go on; false when interrupted. */
static bool wait_for_any(struct loop *l)
{
    size_t n = 0;
    for (size_t i = 0; i < l->fan->count; i++)
        if (l->state[i] == JOB_GOING)
            n += (size_t)l->fan->v[i].t->ops->poll(l->fan->v[i].t, l->fds + n);
    size_t interrupt_at = n;
    if (l->fan->interrupt_fd >= 0)
        l->fds[n++] = (struct pollfd){.fd = l->fan->interrupt_fd, .events = POLLIN};
    /* bounded: libssh2 may name no direction although it waits */
    int ready = poll(l->fds, (nfds_t)n, 50);
    return !(ready > 0 && n > interrupt_at && l->fds[interrupt_at].revents);
}

enum rc fan_run(
    struct fan *f, const char *doing, fan_step step, void *ctx, double timeout_s, struct err *e)
{
    struct loop l = {.fan = f, .doing = doing, .step = step, .ctx = ctx, .timeout_s = timeout_s};
    l.state = base_calloc(f->count + 1, sizeof(*l.state));
    l.deadline_s = base_calloc(f->count + 1, sizeof(*l.deadline_s));
    l.fds = base_calloc((f->count + 1) * TRANSPORT_FDS, sizeof(*l.fds));
    bool *was_out = base_calloc(f->count + 1, sizeof(*was_out));
    enum rc rc = RC_OK;
    for (size_t i = 0; i < f->count; i++) {
        was_out[i] = !f->v[i].t || f->v[i].err.code;
        l.state[i] = was_out[i] ? JOB_OVER : JOB_WAITING;
    }
    start_jobs(&l);
    while (l.going && !rc) {
        if (!wait_for_any(&l)) {
            rc = err_set(e, RC_INTERRUPTED, "interrupted while %s", doing);
            break;
        }
        for (size_t i = 0; i < f->count; i++)
            if (l.state[i] == JOB_GOING)
                step_job(&l, i);
        start_jobs(&l);
    }
    for (size_t i = 0; rc && i < f->count; i++)
        if (l.state[i] == JOB_GOING) {
            f->v[i].t->ops->drop(f->v[i].t);
            err_set(&f->v[i].err, rc, "interrupted");
        }
    free(l.state);
    free(l.deadline_s);
    free(l.fds);
    if (!rc)
        rc = first_error(f, was_out, e);
    free(was_out);
    return rc;
}

/* --- commands --- */

struct exec_all {
    struct fan *fan;
    struct exec *exec;
};

static enum progress step_exec(void *ctx, size_t i, struct err *e)
{
    struct exec_all *all = ctx;
    struct transport *t = all->fan->v[i].t;
    return all->exec[i].command ? t->ops->exec(t, &all->exec[i], e) : PROGRESS_DONE;
}

enum rc fan_exec(
    struct fan *f, const char *doing, struct exec *exec, double timeout_s, struct err *e)
{
    struct exec_all all = {f, exec};
    return fan_run(f, doing, step_exec, &all, timeout_s, e);
}
