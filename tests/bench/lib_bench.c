#include "tests/bench/lib_bench.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "engine/init.h"
#include "kernels/kernels.h"

void need(enum rc rc, const struct err *e)
{
    if (!rc)
        return;
    fprintf(stderr, "bench: %s\n", e->msg);
    exit(1);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double median(double *x, int n)
{
    qsort(x, (size_t)n, sizeof(*x), by_size);
    return x[n / 2];
}

/* --- a rank --- */

static void open_alone(struct comm **out)
{
    struct err e = ERR_INIT;
    int port;
    struct comm_options o = {
        .ranks = 1, .shard_degree = 1, .deadline_s = 60, .kernels = kernels_best()};
    need(comm_listen(&o.listen_fd, &port, &e), &e);
    need(comm_open(out, &o, &e), &e);
}

void trainer_open(struct trainer *t, const struct trainer_options *o)
{
    struct err e = ERR_INIT;
    struct model m;
    *t = (struct trainer){0};
    need(model_find(&m, o->model, &e), &e);
    need(schedule_make(&t->schedule, &m, &o->strategy, &e), &e);
    if (o->comm)
        need(comm_open(&t->comm, o->comm, &e), &e);
    else
        open_alone(&t->comm);
    struct executor_options xo = {.device = &device_cpu,
        .device_options = {.threads = o->threads},
        .kernels = kernels_best(),
        .comm = t->comm,
        .disk_dirs = o->disk_dir ? &o->disk_dir : NULL,
        .n_disk_dirs = o->disk_dir ? 1 : 0,
        .observe = o->observe,
        .observe_arg = o->observe_arg};
    need(executor_open(&t->x, t->schedule, &xo, &e), &e);
    need(init_state(t->x, 1, &e), &e);
}

void trainer_close(struct trainer *t)
{
    executor_close(t->x);
    comm_close(t->comm);
    schedule_free(t->schedule);
}

static enum rc fill(void *arg, int64_t micro, const struct micro_data *out, struct err *e)
{
    const struct schedule *s = arg;
    int64_t n = s->strategy.seq * s->strategy.micro_batch;
    for (int64_t i = 0; i < n; i++) {
        out->tokens[i] = (int32_t)(i * 7919 % s->model.vocab);
        out->targets[i] = (int32_t)((i + 1) * 7919 % s->model.vocab);
    }
    return RC_OK;
}

double trainer_step(struct trainer *t)
{
    struct err e = ERR_INIT;
    const struct strategy *s = &t->schedule->strategy;
    struct step_params p = {.step = ++t->step,
        .lr = 1e-4,
        .beta1 = 0.9,
        .beta2 = 0.95,
        .eps = 1e-8,
        .weight_decay = 0.1,
        .clip_norm = 1,
        .local_targets = (double)(s->seq * s->micro_batch * s->grad_accum)};
    struct step_result out;
    need(executor_step(t->x, &p, fill, t->schedule, &out, &e), &e);
    return out.step_s;
}

/* --- ranks of this machine --- */

void ranks_listen(struct ranks *r, int ranks, bool shares_memory)
{
    static const int one_host[BENCH_MAX_RANKS] = {0};
    struct err e = ERR_INIT;
    for (int i = 0; i < ranks; i++) {
        int port;
        struct comm_options *o = &r->o[i];
        *o = (struct comm_options){.rank = i, .ranks = ranks, .shard_degree = ranks};
        o->peers = r->peers;
        o->host_of = shares_memory ? one_host : NULL;
        o->connect_deadline_s = o->deadline_s = 60;
        o->kernels = kernels_best();
        need(comm_listen(&o->listen_fd, &port, &e), &e);
        snprintf(r->text[i], sizeof(r->text[i]), "127.0.0.1:%d", port);
        r->peers[i] = r->text[i];
    }
}

void ranks_forget(struct ranks *r, int ranks)
{
    for (int i = 0; i < ranks; i++)
        close(r->o[i].listen_fd);
}

/* --- a peer --- */

/* The Python that has the packages, "" for none. */
static void find_python(char *out, size_t size, const char *packages)
{
    char *command = base_printf("tests/bench/peers %s", packages);
    FILE *f = popen(command, "r");
    if (!f || !fgets(out, (int)size, f))
        *out = '\0';
    if (f)
        pclose(f);
    out[strcspn(out, "\n")] = '\0';
    free(command);
}

static void start_script(struct peer *p, char *python, const char *script, const char *const *args)
{
    enum { MOST = 4 };
    char *argv[MOST + 3] = {python, base_printf("tests/bench/%s", script)};
    int pair[2];
    for (int i = 0; i < MOST && args[i]; i++)
        argv[2 + i] = base_strdup(args[i]);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) != 0)
        exit(1);
    p->pid = fork();
    if (p->pid == 0) {
        dup2(pair[1], STDIN_FILENO);
        dup2(pair[1], STDOUT_FILENO);
        close(pair[0]);
        execv(python, argv);
        _exit(127);
    }
    close(pair[1]);
    p->f = fdopen(pair[0], "r+");
    for (int i = 1; argv[i]; i++)
        free(argv[i]);
}

bool peer_open(struct peer *p, const char *packages, const char *script, const char *const *args)
{
    char python[512], line[128];
    *p = (struct peer){0};
    find_python(python, sizeof(python), packages);
    if (!*python)
        return false;
    start_script(p, python, script, args);
    if (fgets(line, sizeof(line), p->f) && strncmp(line, "ready", 5) == 0)
        return true;
    peer_close(p);
    return false;
}

bool peer_round(struct peer *p, double *out, int n)
{
    char line[256];
    if (!p->f)
        return false;
    fputs("go\n", p->f);
    fflush(p->f);
    if (!fgets(line, sizeof(line), p->f))
        return false;
    char *at = line;
    for (int i = 0; i < n; i++)
        out[i] = strtod(at, &at);
    return true;
}

void peer_close(struct peer *p)
{
    if (p->f)
        fclose(p->f);
    if (p->pid > 0)
        waitpid(p->pid, NULL, 0);
    *p = (struct peer){0};
}
