#include "engine/agent_follow.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/json.h"
#include "run/message.h"
#include "run/spec.h"

/* A byte of a log may take six in JSON ("\u001b"), and a message holds 64 KiB. */
enum { PIECE_BYTES = 8 << 10, STEP_BYTES = 1 << 20 };
static const double BEAT_S = 5;

/* One file that only grows. */
struct tail {
    char *path;
    const char *type; /* of its messages */
    int64_t rank;     /* logs only, -1 else */
    int fd;           /* -1 until it exists */
    int64_t offset;   /* of the next byte to send */
};

struct follow {
    struct tail *v;
    size_t count;
    double beat_at_s;
};

static void add_tail(
    struct follow *f, char *path, const char *type, int64_t rank, const struct json *from)
{
    int64_t offset = json_as_int(from, 0);
    f->v = base_realloc(f->v, (f->count + 1) * sizeof(*f->v));
    f->v[f->count++] = (struct tail){path, type, rank, -1, offset > 0 ? offset : 0};
}

static bool has_null(const struct json *obj, const char *key)
{
    const struct json *value;
    const char *name;
    void *cursor = NULL;
    while (json_next(obj, &cursor, &name, &value))
        if (strcmp(name, key) == 0)
            return !json_get(obj, key);
    return false;
}

struct follow *follow_new(const struct run_spec *spec, const struct json *from)
{
    struct follow *f = base_calloc(1, sizeof(*f));
    const struct run_host *self = &spec->hosts[spec->self];
    const struct json *logs = json_get(from, "logs");
    if (!has_null(from, "metrics"))
        add_tail(f, base_strdup(RUN_FILE_METRICS), "metrics", -1, json_get(from, "metrics"));
    if (!has_null(from, "events"))
        add_tail(f, base_strdup(RUN_FILE_EVENTS), "event", -1, json_get(from, "events"));
    for (int64_t r = self->first_rank; r < self->first_rank + self->ranks; r++) {
        char key[24];
        snprintf(key, sizeof(key), "%lld", (long long)r);
        if (!has_null(from, "logs") && !has_null(logs, key))
            add_tail(f, run_rank_log(".", r), "log", r, json_get(logs, key));
    }
    return f;
}

void follow_free(struct follow *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->count; i++) {
        free(f->v[i].path);
        if (f->v[i].fd >= 0)
            close(f->v[i].fd);
    }
    free(f->v);
    free(f);
}

static void put(const struct tail *t, const char *key, const char *text, struct str *out)
{
    struct json *v = msg_new(t->type);
    if (t->rank >= 0)
        json_add_int(v, "rank", t->rank);
    json_add_int(v, "offset", t->offset);
    json_add_str(v, key, text);
    msg_put(out, v);
    json_free(v);
}

/* Whole lines of buf become messages; returns how many bytes were used. */
static size_t put_lines(struct tail *t, char *buf, size_t n, struct str *out)
{
    size_t used = 0;
    char *nl;
    while ((nl = memchr(buf + used, '\n', n - used))) {
        *nl = '\0';
        t->offset += nl + 1 - (buf + used);
        put(t, "line", buf + used, out);
        used = (size_t)(nl + 1 - buf);
    }
    return used;
}

/* Logs go in pieces that end with a line where there is one; NUL bytes show as '?'. */
static size_t put_text(struct tail *t, char *buf, size_t n, bool is_last, struct str *out)
{
    const char *last = memrchr(buf, '\n', n);
    size_t used = last ? (size_t)(last + 1 - buf) : n == PIECE_BYTES || is_last ? n : 0;
    if (!used)
        return 0;
    for (size_t i = 0; i < used; i++)
        if (!buf[i])
            buf[i] = '?';
    buf[used] = '\0'; /* behind it lies what the next read brings again */
    t->offset += (int64_t)used;
    put(t, "text", buf, out);
    return used;
}

static bool step_tail(struct tail *t, bool is_last, struct str *out)
{
    char buf[PIECE_BYTES + 1];
    if (t->fd < 0)
        t->fd = open(t->path, O_RDONLY | O_CLOEXEC);
    if (t->fd < 0)
        return false;
    bool has_more = false;
    while (out->len < STEP_BYTES) {
        ssize_t n = pread(t->fd, buf, PIECE_BYTES, t->offset);
        size_t used = 0;
        if (n > 0)
            used = t->rank >= 0 ? put_text(t, buf, (size_t)n, is_last, out)
                                : put_lines(t, buf, (size_t)n, out);
        if (!used && n == PIECE_BYTES) { /* a line nobody of ours writes: pass over it */
            t->offset += n;
            used = (size_t)n;
        }
        if (!used)
            return has_more;
        has_more = true;
    }
    return true;
}

bool follow_step(struct follow *f, bool is_last, struct str *out)
{
    bool has_more = false;
    for (size_t i = 0; i < f->count; i++)
        has_more |= step_tail(&f->v[i], is_last, out);
    return has_more;
}

void follow_beat(struct follow *f, struct str *out, double now_s)
{
    if (now_s < f->beat_at_s)
        return;
    f->beat_at_s = now_s + BEAT_S;
    struct json *v = msg_new("beat");
    msg_put(out, v);
    json_free(v);
}
