#include "engine/rank.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_line.h"
#include "base/str.h"
#include "engine/checkpoint.h"
#include "engine/comm.h"
#include "engine/control.h"
#include "engine/data.h"
#include "engine/disk.h"
#include "engine/executor.h"
#include "engine/init.h"
#include "engine/rank_setup.h"
#include "engine/validation.h"
#include "kernels/kernels.h"
#include "planner/training.h"
#include "run/message.h"
#include "run/record.h"
#include "run/spec.h"

struct rank_run {
    struct rank_setup setup; /* spec, schedule, comm, executor, data */
    struct control *control;
    struct training training;
    struct validation validation;
    struct checkpoint *checkpoint;
    char *checkpoint_dir;
    int *host_of;
    int64_t step;    /* finished */
    int64_t samples; /* consumed by all ranks in the finished steps */
    struct guard guard;
    int64_t rolled_back_to; /* step of the last roll-back; -1: there was none */
    bool wants_stop, wants_save, has_said_masked;
    int64_t merged;       /* requests for a save that came while another was wanted or ran */
    double saved_s;       /* when the last save began */
    int64_t memory_bytes; /* slabs and external, measured after the warm-up; -1 unknown */
    char line[RECORD_METRICS_TEXT];
};

static bool is_first(const struct rank_run *r)
{
    return r->setup.rank == 0;
}

/* --- events --- */

static struct json *event(const char *name)
{
    struct json *v = json_obj();
    json_add_str(v, "event", name);
    return v;
}

/* Kinds that a step has none of are unknown, and so is what hid of nothing. */
static void take_collectives(struct record_metrics *m, const struct step_result *out)
{
    double seconds = 0, exposed = 0;
    for (int i = 0; i < COLLECTIVE_TIMES; i++) {
        if (!(out->collective[i].seconds > 0))
            continue;
        m->collective[i] = out->collective[i];
        bool is_large = i != record_collective(OP_SCALARS);
        seconds += is_large ? out->collective[i].seconds : 0;
        exposed += is_large ? out->collective[i].exposed_s : 0;
    }
    m->overlap = seconds > 0 ? 1 - exposed / seconds : NAN;
    m->optimizer_s = out->optimizer_s;
}

static void send_step(struct rank_run *r, const struct step_result *out, double lr, bool is_spike)
{
    struct record_metrics m;
    record_metrics_init(&m);
    const struct strategy *s = &r->setup.schedule->strategy;
    m.step = r->step;
    m.wall_s = clock_wall_s();
    m.loss = out->loss;
    m.lr = lr;
    m.grad_norm = out->grad_norm;
    m.step_seconds = out->step_s;
    memcpy(m.busy_s, out->busy_s, sizeof(m.busy_s));
    memcpy(m.exposed_s, out->exposed_s, sizeof(m.exposed_s));
    take_collectives(&m, out);
    m.tokens = r->samples * s->seq;
    m.tokens_per_second = (double)strategy_tokens_per_step(s) / out->step_s;
    m.mfu = rank_setup_mfu(&r->setup, m.tokens_per_second);
    m.memory_bytes = r->memory_bytes;
    m.is_skipped = out->is_skipped;
    m.is_spike = is_spike;
    control_send_line(r->control, r->line, record_metrics_line(r->line, &m, true));
}

static void send_failure(struct rank_run *r, const struct err *e)
{
    struct json *v = event("failed");
    bool is_consequence = e->code == RC_INTERRUPTED || e->code == RC_PEER;
    json_add_int(v, "rank", r->setup.rank);
    json_add_str(v, "code", rc_word(e->code));
    json_add_str(v, "message", e->msg);
    json_add_bool(v, "is_consequence", is_consequence);
    control_send(r->control, v);
}

static void send_end(struct rank_run *r, const char *name)
{
    struct json *v = event(name);
    json_add_int(v, "step", r->step);
    control_send(r->control, v);
}

/* What the warm-up showed against the plan, before the first step. */
static void send_memory(struct rank_run *r, int64_t external)
{
    const struct rank_setup *s = &r->setup;
    if (external >= 0)
        r->memory_bytes = s->schedule->slab_bytes[MEMORY_DEVICE] +
                          s->schedule->slab_bytes[MEMORY_HOST] + external;
    struct json *v = event("memory");
    json_add_int(v, "slab_bytes", s->schedule->slab_bytes[MEMORY_DEVICE]);
    json_add_int(v, "host_slab_bytes", s->schedule->slab_bytes[MEMORY_HOST]);
    json_add_int(v, "external_bytes", external);
    json_add_int(v, "planned_external_bytes", s->planned_external_bytes);
    json_add_int(v, "checkpoint_bytes", checkpoint_memory_bytes(r->checkpoint));
    json_add_int(v, "planned_checkpoint_bytes", s->planned_checkpoint_bytes);
    control_send(r->control, v);
    if (s->planned_external_bytes > 0 && external > s->planned_external_bytes)
        fprintf(stderr,
            "berth-engine: rank %d uses %.1f MiB outside the slab, %.1f MiB were planned\n",
            s->rank, (double)external / 1048576, (double)s->planned_external_bytes / 1048576);
}

/* The ways that large vectors take between the ranks of a group. */
static void send_paths(struct rank_run *r)
{
    static const struct {
        enum op_group group;
        const char *name;
    } groups[] = {{GROUP_WORLD, "world"}, {GROUP_SHARD, "shard"}, {GROUP_REPLICA, "replica"}};
    struct json *v = event("paths");
    for (size_t i = 0; i < BASE_COUNT(groups); i++)
        json_add_str(v, groups[i].name, comm_path_name(r->setup.comm, groups[i].group));
    json_add_str(v, "note", comm_note(r->setup.comm));
    control_send(r->control, v);
}

/* How states on disk are reached, how fast, and what a step writes. */
static void send_disk(struct rank_run *r)
{
    const struct rank_setup *s = &r->setup;
    double bytes_per_s = 0, written = schedule_written_bytes(s->schedule);
    const struct disk *disk = executor_disk(s->x, &bytes_per_s);
    if (!disk)
        return;
    struct json *v = event("disk");
    json_add_int(v, "bytes", s->schedule->slab_bytes[MEMORY_DISK]);
    json_add_int(v, "written_bytes_per_step", (int64_t)written);
    json_add_num(v, "bytes_per_s", bytes_per_s);
    json_add_str(v, "way", disk_way(disk));
    control_send(r->control, v);
    fprintf(stderr,
        "berth-engine: rank %d keeps %.1f MiB of states on disk by %s at %.0f MB/s; a step writes "
        "%.1f MiB and takes at least %.3f s for it\n",
        s->rank, (double)s->schedule->slab_bytes[MEMORY_DISK] / 1048576, disk_way(disk),
        bytes_per_s / 1e6, written / 1048576, bytes_per_s > 0 ? 2 * written / bytes_per_s : 0);
}

/* --- checkpoints --- */

static enum rc set_up_checkpoints(struct rank_run *r, struct err *e)
{
    const struct run_spec *spec = &r->setup.spec;
    bool is_shared = spec->checkpoint.store == RUN_STORE_SHARED;
    int ranks = (int)run_spec_ranks(spec);
    r->host_of = base_calloc((size_t)ranks, sizeof(*r->host_of));
    for (int i = 0; i < ranks && !is_shared; i++)
        r->host_of[i] = (int)run_spec_host_of(spec, i);
    r->checkpoint_dir = run_checkpoint_dir(spec, r->setup.dir);
    struct checkpoint_options o = {.dir = r->checkpoint_dir,
        .host_of = r->host_of,
        .has_partner = spec->checkpoint.store == RUN_STORE_PARTNER,
        /* of states on disk there is no copy */
        .is_async =
            spec->checkpoint.is_async && !(r->setup.schedule->strategy.offload & OFFLOAD_DISK),
        .keep = spec->checkpoint.keep,
        .collective_s = spec->deadlines.collective_s};
    return checkpoint_open(&r->checkpoint, r->setup.x, &o, e);
}

static bool survives_host_loss(const struct rank_run *r)
{
    const struct run_spec *spec = &r->setup.spec;
    return spec->checkpoint.store == RUN_STORE_SHARED ||
           (spec->checkpoint.store == RUN_STORE_PARTNER && spec->host_count > 1);
}

/* What has ended of saves, for rank 0 to tell. */
static enum rc end_save(struct rank_run *r, bool is_waiting, struct err *e)
{
    struct checkpoint_report done;
    enum rc rc = checkpoint_end(r->checkpoint, is_waiting, &done, e);
    if (rc || done.step < 0 || !is_first(r))
        return rc;
    struct json *v = event("checkpoint");
    json_add_int(v, "step", done.step);
    json_add_bool(v, "survives_host_loss", survives_host_loss(r));
    json_add_int(v, "bytes", done.bytes);
    json_add_num(v, "seconds", done.seconds);
    json_add_num(v, "stall_seconds", done.stall_s);
    json_add_int(v, "merged_requests", r->merged);
    control_send(r->control, v);
    return RC_OK;
}

static enum rc save(struct rank_run *r, bool is_final, struct err *e)
{
    struct checkpoint_info info = {r->step, r->samples, r->training.seed, r->guard};
    enum rc rc = end_save(r, true, e);
    r->saved_s = clock_now_s();
    if (!rc)
        rc = checkpoint_start(r->checkpoint, &info, e);
    r->wants_save = false;
    return rc ? rc : end_save(r, is_final, e);
}

static void send_resumed(struct rank_run *r, const struct err *passed_over)
{
    struct json *v = event("resumed");
    json_add_int(v, "step", r->step);
    if (passed_over->code) {
        char *text =
            base_printf("%s; going on from step %lld", passed_over->msg, (long long)r->step);
        fprintf(stderr, "berth-engine: %s\n", text);
        json_add_str(v, "message", text);
        free(text);
    }
    control_send(r->control, v);
}

static enum rc restore(struct rank_run *r, struct err *e)
{
    int64_t wanted = r->setup.spec.resume_step;
    struct checkpoint_info info = {.step = -1};
    struct err passed_over = ERR_INIT;
    enum rc rc = RC_OK;
    if (wanted != RUN_RESUME_NONE)
        rc = checkpoint_load(
            r->checkpoint, wanted == RUN_RESUME_NEWEST ? -1 : wanted, &info, &passed_over, e);
    if (!rc && info.step < 0 && wanted != RUN_RESUME_NONE && r->setup.spec.saved_step >= 0)
        rc = err_set(e, RC_NOT_FOUND,
            "no checkpoint is left in '%s', and that of step %" PRId64
            " was there; the run does not "
            "start over by itself",
            r->checkpoint_dir, r->setup.spec.saved_step);
    if (!rc && info.step < 0)
        rc = r->setup.spec.weights ? init_from_weights(r->setup.x, r->setup.spec.weights, e)
                                   : init_state(r->setup.x, r->training.seed, e);
    if (rc || info.step < 0)
        return rc;
    if (info.step > r->setup.spec.steps)
        return err_set(e, RC_INVALID,
            "the checkpoint is of step %lld, beyond the %lld steps of this run; was it another "
            "job?",
            (long long)info.step, (long long)r->setup.spec.steps);
    r->step = info.step;
    r->samples = info.samples;
    r->training.seed = info.seed;
    r->guard = info.guard;
    if (is_first(r))
        send_resumed(r, &passed_over);
    return RC_OK;
}

/* --- validation --- */

static enum rc validate(struct rank_run *r, struct err *e)
{
    struct evaluation out;
    enum rc rc = validation_run(&r->validation, &out, e);
    if (rc || !is_first(r))
        return rc;
    struct json_line l;
    json_line_begin(&l, r->line, sizeof(r->line));
    json_line_word(&l, "event", "evaluation");
    json_line_int(&l, "step", r->step);
    json_line_num(&l, "loss", out.loss);
    json_line_int(&l, "tokens", (int64_t)out.targets);
    json_line_num(&l, "seconds", out.seconds);
    control_send_line(r->control, r->line, json_line_end(&l));
    return RC_OK;
}

/* --- steps --- */

/* Rank r of N takes, in micro step a, positions c + (a N + r) b .. + b of the data order. */
static int64_t first_position(const struct rank_run *r, int64_t micro)
{
    const struct strategy *s = &r->setup.schedule->strategy;
    return r->samples + (micro * s->ranks + r->setup.rank) * s->micro_batch;
}

static enum rc fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    const struct rank_run *r = arg;
    const struct strategy *s = &r->setup.schedule->strategy;
    int64_t first = first_position(r, micro);
    enum rc rc = RC_OK;
    for (int64_t i = 0; i < s->micro_batch && !rc; i++) {
        struct micro_data row = micro_data_from(out, i * s->seq);
        rc = data_sample(r->setup.data, first + i, &row, e);
    }
    return rc;
}

/* Targets of this rank in the step to come; losses and gradients are means over those of all ranks,
 * so masks may leave any number anywhere. */
static int64_t count_targets(const struct rank_run *r)
{
    const struct strategy *s = &r->setup.schedule->strategy;
    int64_t n = 0;
    for (int64_t micro = 0; micro < s->grad_accum; micro++)
        for (int64_t i = 0; i < s->micro_batch; i++)
            n += data_targets(r->setup.data, first_position(r, micro) + i);
    return n;
}

static void want_save(struct rank_run *r)
{
    r->merged += r->wants_save || checkpoint_is_saving(r->checkpoint);
    r->wants_save = true;
}

/* Rank 0 decides for all when a save begins: it knows when the last one is over everywhere. What
 * comes earlier waits, and becomes one save of the newest step. */
static void take_commands(struct rank_run *r, int64_t step)
{
    struct json *v;
    while ((v = control_poll(r->control))) {
        const char *cmd = json_str(v, "cmd", "");
        r->wants_stop |= strcmp(cmd, "stop") == 0;
        if (strcmp(cmd, "checkpoint") == 0)
            want_save(r);
        json_free(v);
    }
    const struct run_checkpoint *c = &r->setup.spec.checkpoint;
    bool is_late = c->every_s > 0 && clock_now_s() - r->saved_s >= c->every_s;
    if ((is_late && !r->wants_save) || (c->every_steps > 0 && step % c->every_steps == 0))
        want_save(r);
}

/* Back to the newest checkpoint; the data go on from here, so that those of the divergence are left
 * out. A second divergence without a newer checkpoint ends the run. */
static enum rc roll_back(struct rank_run *r, struct err *e)
{
    struct checkpoint_info info = {.step = -1};
    struct err passed_over;
    int64_t from = r->step;
    enum rc rc = end_save(r, true, e);
    if (!rc)
        rc = checkpoint_load(r->checkpoint, -1, &info, &passed_over, e);
    if (rc)
        return rc;
    if (info.step < 0 || info.step <= r->rolled_back_to)
        return err_set(e, RC_FAILED,
            "the run diverged at step %" PRId64
            " and there is no %scheckpoint to go back to; try a "
            "lower learning rate",
            from, info.step < 0 ? "" : "newer ");
    r->step = r->rolled_back_to = info.step;
    r->guard = info.guard;
    guard_forgive(&r->guard);
    if (is_first(r)) {
        struct json *v = event("rollback");
        json_add_int(v, "step", r->step);
        json_add_int(v, "from_step", from);
        control_send(r->control, v);
    }
    return RC_OK;
}

/* Said once: there may be many. */
static void note_masked(struct rank_run *r)
{
    if (is_first(r) && !r->has_said_masked)
        fprintf(stderr,
            "berth-engine: all targets of step %" PRId64 " are masked: it has no loss and makes no "
            "update; such steps say so in the metrics (is_skipped) from here on\n",
            r->step);
    r->has_said_masked = true;
}

static enum rc check_numbers(struct rank_run *r, const struct step_result *out, struct err *e)
{
    const struct training *t = &r->training;
    if (!(out->targets > 0)) { /* of the data, and no sign of divergence */
        note_masked(r);
        return RC_OK;
    }
    guard_note(&r->guard, out->loss, out->grad_norm, out->is_skipped);
    if (!guard_has_diverged(&r->guard, t->max_skipped))
        return RC_OK;
    if (t->divergence == DIVERGENCE_ROLL_BACK)
        return roll_back(r, e);
    return err_set(e, RC_FAILED,
        "too many steps without an update, the last %" PRId64 " in a row, up to step %" PRId64
        ": gradients not finite, or spikes; the last checkpoint is untouched, try a lower learning "
        "rate",
        r->guard.skipped_in_row, r->step);
}

static enum rc one_step(struct rank_run *r, bool *is_stop, struct err *e)
{
    const struct training *t = &r->training;
    const struct strategy *s = &r->setup.schedule->strategy;
    int64_t step = r->step + 1;
    struct guard_limits limits = guard_limits(&r->guard, t->spike_sigma);
    take_commands(r, step);
    struct step_params p = {.step = step,
        .seed = (uint64_t)t->seed,
        .lr = training_lr(t, step, r->setup.spec.steps),
        .beta1 = t->beta1,
        .beta2 = t->beta2,
        .eps = t->eps,
        .momentum = t->momentum,
        .weight_decay = t->weight_decay,
        .clip_norm = t->clip_norm,
        .max_loss = t->spike == SPIKE_SKIP ? limits.loss : 0,
        .max_grad_norm = t->spike == SPIKE_SKIP ? limits.grad_norm : 0,
        .wants_stop = r->wants_stop,
        .wants_save = is_first(r) && r->wants_save && !checkpoint_is_saving(r->checkpoint),
        .local_targets = (double)count_targets(r)};
    struct step_result out;
    enum rc rc = executor_step(r->setup.x, &p, fill, r, &out, e);
    if (rc)
        return err_in(e, "step %lld", (long long)step);
    r->step = step;
    r->samples += s->ranks * s->grad_accum * s->micro_batch;
    *is_stop = out.is_stop;
    bool is_spike =
        isfinite(out.grad_norm) && (out.loss > limits.loss || out.grad_norm > limits.grad_norm);
    if (is_first(r))
        send_step(r, &out, p.lr, is_spike);
    rc = check_numbers(r, &out, e);
    if (!rc && validation_is_due(&r->validation, r->step) && !out.is_stop)
        rc = validate(r, e);
    if (!rc)
        rc = end_save(r, false, e);
    /* a step without an update is not worth a checkpoint, but one at the end has what came before
     */
    bool is_end = step == r->setup.spec.steps || out.is_stop, has_rolled_back = r->step != step;
    bool is_due = is_end || (out.is_save && !out.is_skipped);
    if (!rc && is_due && !has_rolled_back)
        rc = save(r, is_end, e);
    return rc;
}

static enum rc train(struct rank_run *r, struct err *e)
{
    bool is_stop = false;
    enum rc rc = RC_OK;
    r->saved_s = clock_now_s();
    while (!rc && !is_stop && r->step < r->setup.spec.steps) {
        if (control_is_gone(r->control))
            return err_set(e, RC_INTERRUPTED, "the agent is gone");
        rc = one_step(r, &is_stop, e);
    }
    if (!rc)
        rc = executor_flush(r->setup.x, e);
    if (!rc)
        rc = end_save(r, true, e);
    if (!rc)
        rc = comm_barrier(r->setup.comm, e);
    if (!rc)
        send_end(r, r->step >= r->setup.spec.steps ? "finished" : "stopped");
    return rc;
}

/* --- start --- */

struct arguments {
    const char *dir, *trace;
    int rank;
};

static enum rc parse(struct arguments *a, int argc, char **argv, struct err *e)
{
    *a = (struct arguments){.rank = -1};
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return err_set(e, RC_USAGE, "option '%s' needs a value", argv[i]);
        if (strcmp(argv[i], "--dir") == 0)
            a->dir = argv[i + 1];
        else if (strcmp(argv[i], "--rank") == 0)
            a->rank = (int)strtol(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--trace") == 0)
            a->trace = argv[i + 1];
        else
            return err_set(e, RC_USAGE, "unknown option '%s'", argv[i]);
    }
    if (!a->dir || a->rank < 0)
        return err_set(e, RC_USAGE, "usage: berth-engine rank --dir RUNDIR --rank N");
    return RC_OK;
}

static enum rc run(struct rank_run *r, const struct arguments *a, struct err *e)
{
    enum rc rc = rank_setup_open(&r->setup, a->dir, a->rank, a->trace, r->control, e);
    if (!rc)
        rc = training_from_json(&r->training, r->setup.spec.training, r->setup.spec.steps, e);
    if (!rc) {
        int64_t external = executor_external_bytes(r->setup.x);
        rc = set_up_checkpoints(r, e);
        if (!rc)
            send_memory(r, external);
        send_disk(r);
        if (is_first(r) && !rc)
            send_paths(r);
    }
    if (!rc)
        rc = restore(r, e);
    if (!rc)
        rc = rank_setup_data(&r->setup, r->training.seed, e);
    if (!rc)
        rc = validation_open(&r->validation, &r->setup, e);
    if (!rc)
        rc = train(r, e);
    return rc && r->checkpoint ? checkpoint_blame(r->checkpoint, e) : rc;
}

int rank_main(int argc, char **argv)
{
    struct arguments a;
    struct err e = ERR_INIT;
    enum rc rc = parse(&a, argc, argv, &e);
    if (rc) {
        fprintf(stderr, "berth-engine: %s\n", e.msg);
        return rc_exit_code(rc);
    }
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error like a full disk, not the end */
    struct rank_run r = {
        .control = control_new(MSG_CONTROL_FD), .memory_bytes = -1, .rolled_back_to = -1};
    r.setup.rank = a.rank;
    rc = run(&r, &a, &e);
    if (rc) {
        fprintf(stderr, "berth-engine: rank %d: %s\n", a.rank, e.msg);
        send_failure(&r, &e);
    }
    validation_close(&r.validation);
    if (!checkpoint_close(r.checkpoint))
        _exit(rc_exit_code(rc)); /* what its thread uses must stay until the process is gone */
    rank_setup_close(&r.setup);
    control_free(r.control);
    free(r.checkpoint_dir);
    free(r.host_of);
    return rc_exit_code(rc);
}
