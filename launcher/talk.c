#include "launcher/talk.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/text.h"
#include "launcher/fan.h"

enum { MAX_BANNER_BYTES = 64 << 10 };

char *talk_command(const struct talk_node *node)
{
    struct str s = STR_INIT;
    str_add(&s, "exec ");
    str_add_shell_quoted(&s, node->engine);
    str_add(&s, " agentctl --dir ");
    str_add_shell_quoted(&s, node->dir);
    char *command = shell_wrap(str_text(&s));
    str_release(&s);
    return command;
}

/* --- streams --- */

void talk_stream_init(struct talk_stream *s)
{
    *s = (struct talk_stream){0};
    msg_reader_init(&s->in);
}

void talk_stream_release(struct talk_stream *s)
{
    msg_reader_release(&s->in);
}

/* Drop whole lines that are no messages, until the first that looks like one. */
static void skip_banner(struct msg_reader *in)
{
    while (in->buf.len) {
        const char *text = str_text(&in->buf), *nl = memchr(text, '\n', in->buf.len);
        if (str_starts(text, "{\"type\"") || !nl)
            return;
        str_drop(&in->buf, (size_t)(nl + 1 - text));
        in->scanned = 0;
    }
}

void talk_stream_feed(struct talk_stream *s, const char *bytes, size_t n)
{
    msg_reader_feed(&s->in, bytes, n);
    if (!s->is_greeted)
        skip_banner(&s->in);
}

enum rc talk_stream_take(struct talk_stream *s, struct json **out, struct err *e)
{
    for (;;) {
        enum rc rc = msg_take(&s->in, out, e);
        if (rc || !*out)
            return rc ? err_set(e, RC_NODE, "the agent speaks nonsense: %.200s", e->msg) : RC_OK;
        if (s->is_greeted || msg_is(*out, "error"))
            return RC_OK;
        rc = msg_check_hello(*out, e);
        json_free(*out);
        *out = NULL;
        if (rc)
            return err_set(e, RC_NODE, "%s", e->msg);
        s->is_greeted = true;
    }
}

/* --- questions --- */

struct talk {
    struct fan *fan;
    const struct talk_node *nodes;
    struct json *const *requests;
    struct json **answers;
    struct exec *exec;
    struct talk_stream *streams;
};

static void begin(struct talk *t, size_t i)
{
    char *command = talk_command(&t->nodes[i]);
    struct json *hello = msg_hello();
    exec_init(&t->exec[i], command);
    talk_stream_init(&t->streams[i]);
    msg_put(&t->exec[i].in, hello);
    msg_put(&t->exec[i].in, t->requests[i]);
    json_free(hello);
    free(command);
}

static enum progress not_an_agent(const struct exec *x, struct err *e)
{
    char *said = text_safe(str_text(x->err.len ? &x->err : &x->out));
    said[strcspn(said, "\n")] = '\0';
    err_set(e, RC_NODE, "no answer from the agent's control program (status %d): %.300s", x->status,
        *said ? said : "it printed nothing");
    free(said);
    return PROGRESS_FAILED;
}

static enum progress take_answer(struct talk *t, size_t i, struct err *e)
{
    const struct exec *x = &t->exec[i];
    talk_stream_feed(&t->streams[i], str_text(&x->out), x->out.len);
    if (talk_stream_take(&t->streams[i], &t->answers[i], e))
        return PROGRESS_FAILED;
    if (!t->answers[i])
        return not_an_agent(x, e);
    if (!msg_is(t->answers[i], "error"))
        return PROGRESS_DONE;
    char *said = text_safe(json_str(t->answers[i], "message", "it failed"));
    bool is_gone = strcmp(json_str(t->answers[i], "code", ""), rc_word(RC_NOT_FOUND)) == 0;
    err_set(e, is_gone ? RC_NOT_FOUND : RC_NODE, "%s", said);
    free(said);
    json_free(t->answers[i]);
    t->answers[i] = NULL;
    return PROGRESS_FAILED;
}

static enum progress step(void *ctx, size_t i, struct err *e)
{
    struct talk *t = ctx;
    struct transport *transport = t->fan->v[i].t;
    if (!t->requests[i])
        return PROGRESS_DONE;
    if (!t->exec[i].command)
        begin(t, i);
    enum progress p = transport->ops->exec(transport, &t->exec[i], e);
    return p == PROGRESS_DONE ? take_answer(t, i, e) : p;
}

enum rc talk_ask(struct fan *fan, const struct talk_node *nodes, const char *doing,
    struct json *const *requests, struct json **answers, double timeout_s, struct err *e)
{
    struct talk t = {.fan = fan, .nodes = nodes, .requests = requests, .answers = answers};
    t.exec = base_calloc(fan->count, sizeof(*t.exec));
    t.streams = base_calloc(fan->count, sizeof(*t.streams));
    for (size_t i = 0; i < fan->count; i++)
        answers[i] = NULL;
    enum rc rc = fan_run(fan, doing, step, &t, timeout_s, e);
    for (size_t i = 0; i < fan->count; i++) {
        exec_release(&t.exec[i]);
        talk_stream_release(&t.streams[i]);
    }
    free(t.exec);
    free(t.streams);
    return rc;
}

enum rc talk_ask_all(struct fan *fan, const struct talk_node *nodes, const char *doing,
    const struct json *request, struct json **answers, double timeout_s, struct err *e)
{
    struct json **requests = base_calloc(fan->count, sizeof(*requests));
    struct json *copy = json_clone(request);
    for (size_t i = 0; i < fan->count; i++)
        requests[i] = copy;
    enum rc rc = talk_ask(fan, nodes, doing, requests, answers, timeout_s, e);
    json_free(copy);
    free(requests);
    return rc;
}
