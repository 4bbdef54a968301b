#include "launcher/script.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/text.h"
#include "launcher/fan.h"

struct script *scripts_new(size_t count)
{
    return base_calloc(count ? count : 1, sizeof(struct script));
}

void scripts_free(struct script *s, size_t count)
{
    for (size_t i = 0; s && i < count; i++) {
        str_release(&s[i].text);
        str_release(&s[i].out);
    }
    free(s);
}

void script_set(struct str *text, const char *name, const char *value)
{
    str_addf(text, "%s=", name);
    str_add_shell_quoted(text, value);
    str_addc(text, '\n');
}

char *script_value(const struct str *out, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = str_text(out); *p;) {
        const char *end = strchr(p, '\n');
        size_t len = end ? (size_t)(end - p) : strlen(p);
        if (len > n && p[n] == '=' && memcmp(p, key, n) == 0)
            return base_strndup(p + n + 1, len - n - 1);
        p += len + (end != NULL);
    }
    return NULL;
}

struct script_run {
    struct fan *fan;
    struct script *scripts;
    struct exec *exec;
    char nonce[33];
};

/* Cut the part between the marks out of what came. */
static void take_output(struct script *s, const struct exec *x, const char *nonce)
{
    char begin[64], end[64];
    snprintf(begin, sizeof(begin), "begin-%s\n", nonce);
    snprintf(end, sizeof(end), "end-%s ", nonce);
    const char *from = strstr(str_text(&x->out), begin);
    const char *to = from ? strstr(from, end) : NULL;
    s->done_wall_s = clock_wall_s();
    s->status = -1;
    if (!to)
        return;
    from += strlen(begin);
    str_addn(&s->out, from, (size_t)(to - from));
    s->status = (int)strtol(to + strlen(end), NULL, 10);
}

static enum progress step(void *ctx, size_t i, struct err *e)
{
    struct script_run *r = ctx;
    struct script *s = &r->scripts[i];
    struct exec *x = &r->exec[i];
    struct transport *t = r->fan->v[i].t;
    if (!s->text.len)
        return PROGRESS_DONE;
    if (!x->command) {
        exec_init(x, "/bin/sh -s");
        str_addf(&x->in, "echo; echo begin-%s\n(\n%s\n)\necho \"end-%s $?\"\n", r->nonce,
            str_text(&s->text), r->nonce);
        s->sent_wall_s = clock_wall_s();
    }
    enum progress p = t->ops->exec(t, x, e);
    if (p != PROGRESS_DONE)
        return p;
    take_output(s, x, r->nonce);
    if (s->status >= 0)
        return PROGRESS_DONE;
    char *said = text_safe(str_text(x->err.len ? &x->err : &x->out));
    err_set(e, RC_NODE, "no working shell there: %.200s", *said ? said : "it printed nothing");
    free(said);
    return PROGRESS_FAILED;
}

enum rc scripts_run(
    struct fan *f, const char *doing, struct script *s, double timeout_s, struct err *e)
{
    struct script_run r = {.fan = f, .scripts = s};
    unsigned char bytes[16];
    enum rc rc = hash_random(bytes, sizeof(bytes), e);
    if (rc)
        return rc;
    hash_hex(bytes, sizeof(bytes), r.nonce);
    r.exec = base_calloc(f->count, sizeof(*r.exec));
    for (size_t i = 0; i < f->count; i++) {
        str_reset(&s[i].out);
        s[i].status = -1;
    }
    rc = fan_run(f, doing, step, &r, timeout_s, e);
    for (size_t i = 0; i < f->count; i++)
        exec_release(&r.exec[i]);
    free(r.exec);
    return rc;
}
