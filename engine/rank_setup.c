#include "engine/rank_setup.h"

#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "engine/comm.h"
#include "engine/control.h"
#include "engine/data.h"
#include "engine/executor.h"
#include "kernels/kernels.h"
#include "planner/checkpoint_room.h"
#include "planner/plan_file.h"

/* --- the plan --- */

static enum rc check_plan(const struct rank_setup *s, const struct plan_file *p, struct err *e)
{
    if (!p->is_launchable)
        return err_set(e, RC_INVALID, "the plan cannot be launched: %s", p->not_launchable);
    if (p->strategy.ranks != run_spec_ranks(&s->spec))
        return err_set(e, RC_INVALID, "the plan is for %lld ranks, the run has %lld",
            (long long)p->strategy.ranks, (long long)run_spec_ranks(&s->spec));
    if (s->rank >= p->strategy.ranks)
        return err_set(e, RC_INVALID, "rank %d of %lld", s->rank, (long long)p->strategy.ranks);
    return RC_OK;
}

static enum rc make_schedule(struct rank_setup *s, struct err *e)
{
    struct plan_file p;
    enum rc rc = plan_file_from_json(&p, s->spec.plan, e);
    if (rc)
        return rc;
    rc = check_plan(s, &p, e);
    if (!rc)
        rc = schedule_make(&s->schedule, &p.job.model, &p.strategy, e);
    if (!rc) {
        struct hash128 h = schedule_hash(s->schedule);
        if (h.hi != p.schedule_hash.hi || h.lo != p.schedule_hash.lo)
            rc = err_set(e, RC_INVALID,
                "this engine would run another schedule than planned (the plan was made by '%s'); "
                "plan again with the same version",
                p.program);
    }
    s->planned_threads = rank_setup_planned_threads(&p.offer);
    double rate = p.tokens_per_s_per_rank * (double)p.strategy.ranks;
    s->mfu_per_token_rate = p.mfu > 0 && rate > 0 ? p.mfu / rate : NAN;
    s->planned_external_bytes = p.external_bytes;
    s->planned_checkpoint_bytes = CHECKPOINT_TRANSFER_BYTES;
    if (!rc && s->rank < s->schedule->parts)
        s->planned_checkpoint_bytes +=
            checkpoint_room_of(s->schedule, checkpoint_can_copy(&p.strategy));
    plan_file_release(&p);
    return rc;
}

double rank_setup_mfu(const struct rank_setup *s, double tokens_per_second)
{
    return s->mfu_per_token_rate * tokens_per_second;
}

/* --- connections --- */

static enum rc take_peers(
    const struct json *v, char **peers, int64_t ranks, int64_t *known, struct err *e)
{
    int64_t first = json_int(v, "first", 0);
    const struct json *list = json_get(v, "peers");
    if (first < 0 || first > ranks || (int64_t)json_len(list) > ranks - first)
        return err_set(
            e, RC_INVALID, "the agent's peer table does not fit %lld ranks", (long long)ranks);
    for (size_t i = 0; i < json_len(list); i++) {
        char **slot = &peers[first + (int64_t)i];
        *known += !*slot;
        free(*slot);
        *slot = base_strdup(json_as_str(json_at(list, i), ""));
    }
    return RC_OK;
}

static void hex_to_bytes(const char *hex, unsigned char *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char pair[3] = {hex[2 * i], hex[2 * i + 1], '\0'};
        out[i] = (unsigned char)strtoul(pair, NULL, 16);
    }
}

static enum rc wait_for_peers(
    const struct rank_setup *s, struct control *control, char **peers, struct err *e)
{
    int64_t ranks = run_spec_ranks(&s->spec), known = 0;
    enum rc rc = RC_OK;
    while (!rc && known < ranks) {
        struct json *v;
        rc = control_wait(control, "peers", s->spec.deadlines.rendezvous_s, &v, e);
        if (!rc)
            rc = take_peers(v, peers, ranks, &known, e);
        json_free(v);
    }
    return rc;
}

static enum rc open_comm(
    struct rank_setup *s, const char *const *peers, const char *const *hosts, int fd, struct err *e)
{
    struct comm_options o = {.rank = s->rank,
        .ranks = (int)s->schedule->strategy.ranks,
        .shard_degree = (int)s->schedule->shards,
        .listen_fd = fd,
        .peers = peers,
        .hosts = hosts,
        .host_of = s->host_of,
        .connect_deadline_s = s->spec.deadlines.rendezvous_s,
        .deadline_s = s->spec.deadlines.collective_s,
        .kernels = kernels_best()};
    hex_to_bytes(s->spec.token, o.token, sizeof(o.token));
    return comm_open(&s->comm, &o, e);
}

static enum rc connect_ranks(struct rank_setup *s, struct control *control, struct err *e)
{
    int fd, port;
    int64_t ranks = run_spec_ranks(&s->spec);
    enum rc rc = comm_listen(&fd, &port, e);
    if (rc)
        return rc;
    struct json *v = json_obj();
    json_add_str(v, "event", "listening");
    json_add_int(v, "rank", s->rank);
    json_add_int(v, "port", port);
    control_send(control, v);
    char **peers = base_calloc((size_t)ranks, sizeof(*peers));
    const char **hosts = base_calloc((size_t)ranks, sizeof(*hosts));
    s->host_of = base_calloc((size_t)ranks, sizeof(*s->host_of));
    for (int64_t r = 0; r < ranks; r++) {
        s->host_of[r] = (int)run_spec_host_of(&s->spec, r);
        hosts[r] = s->spec.hosts[s->host_of[r]].name;
    }
    s->peers = peers;
    s->host_names = hosts;
    rc = wait_for_peers(s, control, peers, e);
    return rc ? rc : open_comm(s, (const char *const *)peers, hosts, fd, e);
}

/* --- arithmetic and device --- */

static const char *const LEVELS[] = {"base", "v2", "v3", "v4"};

/* All ranks compute with the instruction set that every one of them has. */
static enum rc common_kernels(struct rank_setup *s, const struct kernels **out, struct err *e)
{
    unsigned char mine = 0, all[COMM_MAX_RANKS];
    for (unsigned char i = 0; i < BASE_COUNT(LEVELS); i++)
        if (strcmp(kernels_best()->name, LEVELS[i]) == 0)
            mine = i;
    enum rc rc = comm_all_gather(s->comm, CHANNEL_COMPUTE, GROUP_WORLD, &mine, all, 1, e);
    for (int r = 0; r < comm_ranks(s->comm) && !rc; r++)
        mine = all[r] < mine ? all[r] : mine;
    *out = kernels_by_name(LEVELS[mine]);
    if (!rc && !*out)
        rc = err_set(e, RC_INVALID, "the hosts have no instruction set in common");
    if (!rc)
        comm_set_kernels(s->comm, *out);
    return rc;
}

int rank_setup_planned_threads(const struct offer *o)
{
    bool is_known = o->device == DEVICE_CPU && o->vcpus > 0 && o->gpus_per_node > 0;
    return is_known ? (int)(o->vcpus / o->gpus_per_node) : 0;
}

int rank_setup_threads(int64_t ranks_here, int planned)
{
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    int share = cores / (int)ranks_here;
    if (planned > 0 && share > planned)
        share = planned;
    return share > 1 ? share : 1;
}

static enum rc open_executor(struct rank_setup *s, struct err *e)
{
    struct executor_options o = {.device = &device_cpu,
        .device_options = {.threads = rank_setup_threads(
                               s->spec.hosts[s->spec.self].ranks, s->planned_threads)},
        .comm = s->comm,
        .disk_dirs = s->spec.disk.count ? (const char *const *)s->spec.disk.dirs : &s->run_dir,
        .n_disk_dirs = s->spec.disk.count ? (int)s->spec.disk.count : 1,
        .observe = s->trace ? executor_write_trace : NULL,
        .observe_arg = s->trace};
    enum rc rc = common_kernels(s, &o.kernels, e);
    if (!rc)
        rc = executor_open(&s->x, s->schedule, &o, e);
    if (comm_note(s->comm)[0])
        fprintf(stderr, "berth-engine: rank %d: %s\n", s->rank, comm_note(s->comm));
    return rc ? rc : executor_warm_up(s->x, e);
}

/* --- life cycle --- */

enum rc rank_setup_open(struct rank_setup *s, const char *dir, int rank, const char *trace,
    struct control *control, struct err *e)
{
    s->dir = base_strdup(dir);
    s->run_dir = s->dir;
    s->rank = rank;
    enum rc rc = run_spec_read(&s->spec, dir, e);
    if (!rc)
        rc = make_schedule(s, e);
    if (!rc && trace && !(s->trace = fopen(trace, "we")))
        rc = err_sys(e, RC_IO, "cannot create trace file '%s'", trace);
    if (!rc)
        rc = connect_ranks(s, control, e);
    return rc ? rc : open_executor(s, e);
}

/* --- data --- */

static const double TOKENIZE_DEADLINE_S = 24 * 3600;

/* A path that names another file on each host would train on nonsense without a word. */
static enum rc agree_on_data(const struct rank_setup *s, const struct data *d, struct err *e)
{
    uint64_t mine = data_fingerprint(d), all[COMM_MAX_RANKS];
    enum rc rc =
        comm_all_gather(s->comm, CHANNEL_COMPUTE, GROUP_WORLD, &mine, all, sizeof(mine), e);
    for (int r = 0; r < comm_ranks(s->comm) && !rc; r++)
        if (all[r] != all[0])
            rc = err_set(e, RC_INVALID,
                "the data on host '%s' are not those on host '%s'; every host needs the same files",
                s->host_names[r], s->host_names[0]);
    return rc;
}

enum rc rank_setup_open_data(const struct rank_setup *s, const struct data_sources *sources,
    uint64_t seed, struct data **out, struct err *e)
{
    char *text_dir = run_tokens_dir(s->dir);
    struct data_options o = {.sources = sources->v,
        .n = sources->n,
        .seq = s->schedule->strategy.seq,
        .vocab = s->schedule->model.vocab,
        .seed = seed,
        .text_dir = text_dir,
        .threads = rank_setup_threads(1, 0)};
    enum rc rc = data_open(out, &o, e);
    free(text_dir);
    /* a large text takes longer to become tokens than anything else that ranks wait for */
    comm_set_deadline(s->comm, CHANNEL_COMPUTE, TOKENIZE_DEADLINE_S);
    if (!rc)
        rc = agree_on_data(s, *out, e);
    comm_set_deadline(s->comm, CHANNEL_COMPUTE, s->spec.deadlines.collective_s);
    return rc;
}

enum rc rank_setup_data(struct rank_setup *s, uint64_t seed, struct err *e)
{
    return rank_setup_open_data(s, &s->spec.data, seed, &s->data, e);
}

void rank_setup_close(struct rank_setup *s)
{
    data_close(s->data);
    executor_close(s->x);
    comm_close(s->comm);
    schedule_free(s->schedule);
    if (s->trace)
        fclose(s->trace);
    for (int64_t r = 0; s->peers && r < run_spec_ranks(&s->spec); r++)
        free(s->peers[r]);
    free(s->peers);
    free(s->host_names);
    free(s->host_of);
    run_spec_release(&s->spec);
    free(s->dir);
}
