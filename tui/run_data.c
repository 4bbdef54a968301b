#include "tui/run_data.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "base/units.h"
#include "launcher/run_dir.h"
#include "tui/mailbox.h"

enum {
    TAIL_BYTES = 64 << 10, /* of a log, when a run is opened */
    READ_BYTES = 4 << 20,  /* of one file at one look; the rest follows with the next */
    FILES_MAX = 256,       /* logs followed at once */
    RUNS_MAX = 10000
};
static const double LOOK_S = 1.0, STOP_LOOK_S = 0.1;

/* --- one run --- */

static double known_or_nan(double x)
{
    return x > 0 ? x : NAN;
}

static void fill_row(struct run_row *out, const struct run_info *r)
{
    memset(out, 0, sizeof(*out));
    str_copy(out->id, sizeof(out->id), r->id);
    str_copy(out->model, sizeof(out->model), r->model ? r->model : "?");
    out->state = r->state;
    out->attempt = r->attempt;
    out->hosts = (int64_t)r->node_count;
    for (size_t i = 0; i < r->node_count; i++)
        out->ranks += r->nodes[i].ranks;
    out->steps = r->steps;
    out->loss = NAN;
    out->created_s = r->created_wall_s;
    out->launched_s = r->launched_wall_s;
    out->ended_s = r->ended_wall_s;
    out->money = r->money;
    out->predicted_step_s = r->predicted_step_s;
    out->predicted_tokens_per_s = r->predicted_tokens_per_s;
    out->predicted_bytes = known_or_nan((double)r->predicted_bytes);
    const struct json *checkpoint = run_info_checkpoint(r);
    out->checkpoint_step = json_int(checkpoint, "step", -1);
    out->survives_host_loss = json_bool(checkpoint, "survives_host_loss", false);
    const struct json *evaluation = json_get(r->status, "evaluation");
    out->validation_loss = json_num(evaluation, "loss", NAN);
    out->validation_step = json_int(evaluation, "step", 0);
    if (r->has_failure)
        str_copy(out->sentence, sizeof(out->sentence), r->failure.message);
    else if (r->reason)
        str_copy(out->sentence, sizeof(out->sentence), r->reason);
}

double run_cost_usd(const struct run_row *r, double now_s)
{
    int64_t cost = run_money_cost(&r->money, r->ended_s > 0 ? r->ended_s : now_s);
    return cost < 0 ? NAN : (double)cost / USD_MICRO;
}

double run_usd_per_hour(const struct run_row *r)
{
    int64_t price = r->money.micro_usd_per_hour;
    return price < 0 ? NAN : (double)price / USD_MICRO;
}

static bool read_metrics_line(struct record_metrics *out, const char *line, size_t n)
{
    struct json *v = NULL;
    bool is_good = n > 0 && json_parse(&v, line, n, NULL) == RC_OK &&
                   record_metrics_from_json(out, v, NULL) == RC_OK;
    json_free(v);
    return is_good;
}

/* Newest whole record of the metrics, from the end of the file. */
static void read_last_metrics(struct run_row *row, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    char buf[4096];
    struct record_metrics m;
    if (fd < 0)
        return;
    int64_t size = lseek(fd, 0, SEEK_END);
    int64_t from = size > (int64_t)sizeof(buf) ? size - (int64_t)sizeof(buf) : 0;
    ssize_t n = pread(fd, buf, sizeof(buf), from);
    close(fd);
    for (ssize_t end = n; end > 0;) {
        ssize_t begin = end - 1;
        while (begin > 0 && buf[begin - 1] != '\n')
            begin--;
        if (buf[end - 1] == '\n' && read_metrics_line(&m, buf + begin, (size_t)(end - begin))) {
            row->step = m.step;
            row->loss = m.loss;
            return;
        }
        end = begin;
    }
}

static void open_row(struct run_row *row, const char *id)
{
    struct run_info info;
    struct err e = ERR_INIT;
    if (run_dir_open(&info, id, &e)) {
        memset(row, 0, sizeof(*row));
        str_copy(row->id, sizeof(row->id), id);
        str_copy(row->sentence, sizeof(row->sentence), e.msg);
        row->state = RUN_UNKNOWN;
        row->loss = row->predicted_step_s = NAN;
        row->money.micro_usd_per_hour = -1;
        row->predicted_tokens_per_s = row->predicted_bytes = NAN;
        row->checkpoint_step = -1;
        return;
    }
    fill_row(row, &info);
    char *path = run_dir_file(&info, RUN_FILE_METRICS);
    read_last_metrics(row, path);
    free(path);
    run_info_release(&info);
}

/* --- all runs --- */

void run_rows_free(void *rows)
{
    struct run_rows *r = rows;
    free(r->row);
    free(r);
}

void run_list_read(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context)
{
    (void)context;
    const struct run_list_request *r = request;
    struct run_rows *rows = base_calloc(1, sizeof(*rows));
    struct err e = ERR_INIT;
    char **ids = NULL;
    size_t count = 0;
    if (run_dir_list(&ids, &count, &e))
        str_copy(rows->error, sizeof(rows->error), e.msg);
    rows->row = base_calloc(count + 1, sizeof(*rows->row));
    for (size_t i = 0; i < count && i < RUNS_MAX && !atomic_load(is_cancelled); i++)
        open_row(&rows->row[rows->n++], ids[i]);
    run_dir_list_free(ids, count);
    mailbox_post(mb, (struct message){r->kind, rows, run_rows_free});
}

/* --- following one --- */

void run_news_free(void *news)
{
    struct run_news *n = news;
    free(n->metrics);
    free(n->log);
    free(n);
}

/* A file that grows. */
struct tail {
    char name[64];
    int64_t at; /* bytes already read */
    struct str rest;
};

struct following {
    char *dir, *run_json, *metrics_path, *events_path, *logs;
    struct timespec info_time;
    struct tail metrics, events;
    struct tail *log;
    size_t n_logs, cap_logs;
};

/* Append the new bytes of the file to t->rest. True when it became shorter: it starts over. */
static bool read_tail(struct tail *t, const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool starts_over = fstat(fd, &st) == 0 && st.st_size < t->at;
    if (starts_over) {
        t->at = 0;
        str_reset(&t->rest);
    }
    char *buf = base_alloc(64 << 10);
    ssize_t n;
    for (size_t total = 0; total < READ_BYTES; total += (size_t)n) {
        n = pread(fd, buf, 64 << 10, t->at);
        if (n <= 0)
            break;
        str_addn(&t->rest, buf, (size_t)n);
        t->at += n;
    }
    free(buf);
    close(fd);
    return starts_over;
}

/* Length of the next whole line including its end; 0 when there is none. */
static size_t line_length(const struct tail *t, size_t at)
{
    const char *text = str_text(&t->rest);
    const char *end = at < t->rest.len ? memchr(text + at, '\n', t->rest.len - at) : NULL;
    return end ? (size_t)(end - text) - at + 1 : 0;
}

static void look_at_metrics(struct following *f, struct run_news *news)
{
    size_t at = 0, n, cap = 0;
    news->starts_over = read_tail(&f->metrics, f->metrics_path);
    while ((n = line_length(&f->metrics, at))) {
        BASE_GROW(news->metrics, cap, news->n_metrics + 1);
        if (read_metrics_line(&news->metrics[news->n_metrics], str_text(&f->metrics.rest) + at, n))
            news->n_metrics++;
        at += n;
    }
    str_drop(&f->metrics.rest, at);
}

static struct tail *find_log(struct following *f, const char *name)
{
    for (size_t i = 0; i < f->n_logs; i++) {
        if (strcmp(f->log[i].name, name) == 0)
            return &f->log[i];
    }
    if (f->n_logs == FILES_MAX)
        return NULL;
    BASE_GROW(f->log, f->cap_logs, f->n_logs + 1);
    struct tail *t = &f->log[f->n_logs++];
    memset(t, 0, sizeof(*t));
    str_copy(t->name, sizeof(t->name), name);
    char *path = path_join(f->logs, name);
    int64_t size = file_size(path);
    t->at = size > TAIL_BYTES ? size - TAIL_BYTES : 0;
    free(path);
    return t;
}

/* New lines of a log, each behind the name of its file. */
static void look_at_log(struct following *f, struct tail *t, struct str *out)
{
    char *path = path_join(f->logs, t->name);
    size_t at = 0, n;
    int stem = (int)strcspn(t->name, ".");
    read_tail(t, path);
    while ((n = line_length(t, at))) {
        str_addf(out, "%.*s  ", stem, t->name);
        str_addn(out, str_text(&t->rest) + at, n);
        at += n;
    }
    str_drop(&t->rest, at);
    if (t->rest.len > READ_BYTES) /* a line without an end */
        str_reset(&t->rest);
    free(path);
}

/* {"at":"...","event":"checkpoint","step":196} as "event  checkpoint step 196". */
static void add_event(struct str *out, const char *line, size_t n)
{
    struct json *v = NULL;
    void *cursor = NULL;
    const char *key;
    const struct json *value;
    if (json_parse(&v, line, n, NULL) != RC_OK)
        return;
    str_addf(out, "event  %s", json_str(v, "event", "?"));
    while (json_is_obj(v) && json_next(v, &cursor, &key, &value)) {
        if (strcmp(key, "at") == 0 || strcmp(key, "event") == 0 || strcmp(key, "attempt") == 0)
            continue;
        if (json_is_str(value))
            str_addf(out, ", %s %s", key, json_as_str(value, ""));
        else if (json_is_num(value))
            str_addf(out, ", %s %.15g", key, json_as_num(value, 0));
    }
    str_addc(out, '\n');
    json_free(v);
}

static void look_at_events(struct following *f, struct str *out)
{
    size_t at = 0, n;
    read_tail(&f->events, f->events_path);
    while ((n = line_length(&f->events, at))) {
        add_event(out, str_text(&f->events.rest) + at, n);
        at += n;
    }
    str_drop(&f->events.rest, at);
}

static void look_at_logs(struct following *f, struct run_news *news)
{
    struct str out = STR_INIT;
    look_at_events(f, &out);
    DIR *dir = opendir(f->logs);
    const struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        struct tail *t = str_ends(entry->d_name, ".log") ? find_log(f, entry->d_name) : NULL;
        if (t)
            look_at_log(f, t, &out);
    }
    if (dir)
        closedir(dir);
    news->log = out.len ? str_steal(&out) : base_strdup("");
    str_release(&out);
}

static void look_at_info(struct following *f, struct run_news *news, const char *id)
{
    struct stat st;
    if (stat(f->run_json, &st) != 0)
        return;
    bool is_same =
        st.st_mtim.tv_sec == f->info_time.tv_sec && st.st_mtim.tv_nsec == f->info_time.tv_nsec;
    if (is_same)
        return;
    f->info_time = st.st_mtim;
    open_row(&news->row, id);
    news->has_row = true;
}

static void following_open(struct following *f, const char *id)
{
    memset(f, 0, sizeof(*f));
    f->dir = run_user_dir(id);
    f->run_json = path_join(f->dir, RUN_USER_RUN);
    f->metrics_path = path_join(f->dir, RUN_FILE_METRICS);
    f->events_path = path_join(f->dir, RUN_FILE_EVENTS);
    f->logs = path_join(f->dir, RUN_USER_LOGS);
}

static void following_release(struct following *f)
{
    for (size_t i = 0; i < f->n_logs; i++)
        str_release(&f->log[i].rest);
    free(f->log);
    str_release(&f->metrics.rest);
    str_release(&f->events.rest);
    free(f->logs);
    free(f->events_path);
    free(f->metrics_path);
    free(f->run_json);
    free(f->dir);
}

void run_follow(
    const void *request, const atomic_bool *is_cancelled, struct mailbox *mb, void *context)
{
    (void)context;
    const struct run_follow_request *r = request;
    struct following f;
    following_open(&f, r->id);
    bool is_first = true;
    while (!atomic_load(is_cancelled)) {
        struct run_news *news = base_calloc(1, sizeof(*news));
        news->serial = r->serial;
        news->is_first = is_first;
        look_at_info(&f, news, r->id);
        look_at_metrics(&f, news);
        look_at_logs(&f, news);
        bool has_any = news->has_row || news->starts_over || news->n_metrics > 0 || *news->log;
        if (has_any)
            mailbox_post(mb, (struct message){r->kind, news, run_news_free});
        else
            run_news_free(news);
        is_first = is_first && !has_any;
        for (double s = 0; s < LOOK_S && !atomic_load(is_cancelled); s += STOP_LOOK_S)
            clock_sleep_s(STOP_LOOK_S);
    }
    following_release(&f);
}
