#include "launcher/reach.h"

#include <arpa/inet.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "base/text.h"
#include "launcher/fan.h"
#include "launcher/hosts.h"
#include "run/message.h"

enum { REACH_TIMEOUT_S = 30 };

/* --- addresses --- */

static bool is_loopback(const char *address)
{
    return str_starts(address, "127.") || strcmp(address, "::1") == 0;
}

static bool is_numeric(const char *address)
{
    unsigned char buf[16];
    return inet_pton(AF_INET, address, buf) == 1 || inet_pton(AF_INET6, address, buf) == 1;
}

enum rc reach_addresses(struct fan *fan, const struct hosts *hosts, const char *const *names,
    char **addresses, struct err *e)
{
    size_t loopback = 0, known = 0;
    for (size_t i = 0; i < fan->count; i++)
        addresses[i] = NULL;
    for (size_t i = 0; i < fan->count; i++) {
        struct transport *t = fan->v[i].t;
        if (fan->v[i].err.code)
            continue;
        const char *said = hosts->v[i].address, *address = said ? said : t->ops->address(t);
        if (!*address)
            return err_set(e, RC_USAGE,
                "host '%s' is reached through a jump host; say address=IP in the host list, where "
                "the other nodes reach it",
                names[i]);
        if (!is_numeric(address))
            return err_set(
                e, RC_USAGE, "address '%s' of host '%s' must be numeric", address, names[i]);
        addresses[i] = base_strdup(address);
        loopback += is_loopback(address);
        known++;
    }
    if (loopback && loopback < known)
        return err_set(e, RC_USAGE,
            "some hosts are on this machine (127.0.0.1), which the others cannot reach; say "
            "address=IP for them in the host list");
    return RC_OK;
}

/* --- trying --- */

struct side {
    struct exec exec;
    struct msg_reader in;
    int64_t port; /* 0: not told yet */
    bool is_asked, is_done;
};

struct reaching {
    struct fan *fan;
    const char *const *engines, *const *addresses, *const *names;
    char **problems;
    struct side *v;
    char nonce[33];
};

static bool tries_pair(const struct reaching *r, size_t from, size_t to)
{
    size_t n = r->fan->count;
    if (from == to || r->fan->v[to].err.code)
        return false;
    return n <= REACH_ALL_PAIRS || to == 0 || to == (from + 1) % n || from == (to + 1) % n;
}

static void begin(struct reaching *r, size_t i)
{
    struct str s = STR_INIT;
    str_add(&s, "exec ");
    str_add_shell_quoted(&s, r->engines[i]);
    str_addf(&s, " reach %s", r->nonce);
    char *command = shell_wrap(str_text(&s));
    exec_init(&r->v[i].exec, command);
    r->v[i].exec.keeps_in_open = true; /* it listens as long as its input is open */
    msg_reader_init(&r->v[i].in);
    free(command);
    str_release(&s);
}

/* All ports are known, of the hosts that are still in. */
static bool are_ports_known(const struct reaching *r)
{
    for (size_t i = 0; i < r->fan->count; i++)
        if (!r->fan->v[i].err.code && !r->v[i].port)
            return false;
    return true;
}

static bool are_all_done(const struct reaching *r)
{
    for (size_t i = 0; i < r->fan->count; i++)
        if (!r->fan->v[i].err.code && !r->v[i].is_done)
            return false;
    return true;
}

static void ask(struct reaching *r, size_t from)
{
    struct json *v = msg_new("peers"), *peers = json_arr();
    for (size_t to = 0; to < r->fan->count; to++) {
        const char *address = r->addresses[to] ? r->addresses[to] : "";
        char *text = base_printf(
            strchr(address, ':') ? "[%s]:%lld" : "%s:%lld", address, (long long)r->v[to].port);
        json_push_str(peers, tries_pair(r, from, to) ? text : NULL);
        free(text);
    }
    json_add(v, "peers", peers);
    msg_put(&r->v[from].exec.in, v);
    json_free(v);
    r->v[from].is_asked = true;
}

static void took_errors(struct reaching *r, size_t from, const struct json *errors)
{
    for (size_t to = 0; to < json_len(errors) && to < r->fan->count; to++) {
        const char *error = json_as_str(json_at(errors, to), NULL);
        if (!error || r->problems[from])
            continue;
        char *safe = text_safe(error);
        r->problems[from] =
            base_printf("host '%s' cannot reach host '%s' at %s port %lld: %.100s; a "
                        "firewall, or an address only good elsewhere (address= in "
                        "the host list)?",
                r->names[from], r->names[to], r->addresses[to], (long long)r->v[to].port, safe);
        free(safe);
    }
    r->v[from].is_done = true;
}

static enum rc take_messages(struct reaching *r, size_t i, struct err *e)
{
    struct side *s = &r->v[i];
    struct json *v;
    const char *text = str_text(&s->exec.out), *start = strstr(text, "{\"type\"");
    if (start) /* behind whatever login files print */
        msg_reader_feed(&s->in, start, s->exec.out.len - (size_t)(start - text));
    if (start)
        str_reset(&s->exec.out);
    for (;;) {
        if (msg_take(&s->in, &v, e) || !v)
            return e->code;
        if (msg_is(v, "reach"))
            s->port = json_int(v, "port", 0);
        else if (msg_is(v, "reached"))
            took_errors(r, i, json_get(v, "errors"));
        else
            err_set(e, RC_NODE, "%.300s", json_str(v, "message", "no answer"));
        json_free(v);
    }
}

static enum progress step(void *ctx, size_t i, struct err *e)
{
    struct reaching *r = ctx;
    struct side *s = &r->v[i];
    struct transport *t = r->fan->v[i].t;
    if (!s->exec.command)
        begin(r, i);
    if (!s->is_asked && are_ports_known(r))
        ask(r, i);
    if (are_all_done(r))
        s->exec.keeps_in_open = false;
    enum progress p = t->ops->exec(t, &s->exec, e);
    if (take_messages(r, i, e) || p == PROGRESS_FAILED)
        return PROGRESS_FAILED;
    if (p == PROGRESS_DONE && !s->is_done) {
        err_set(e, RC_NODE, "the check of the network ended early (status %d)", s->exec.status);
        return PROGRESS_FAILED;
    }
    return p;
}

enum rc reach_run(struct fan *fan, const char *const *engines, const char *const *addresses,
    const char *const *names, char **problems, struct err *e)
{
    struct reaching r = {fan, engines, addresses, names, problems, NULL, ""};
    unsigned char bytes[16];
    int fanout = fan->fanout;
    enum rc rc = hash_random(bytes, sizeof(bytes), e);
    if (rc)
        return rc;
    hash_hex(bytes, sizeof(bytes), r.nonce);
    r.v = base_calloc(fan->count, sizeof(*r.v));
    for (size_t i = 0; i < fan->count; i++)
        problems[i] = NULL;
    fan->fanout = (int)fan->count; /* all must listen before any connects */
    rc = fan_run(fan, "checking the network between hosts", step, &r, REACH_TIMEOUT_S, e);
    fan->fanout = fanout;
    for (size_t i = 0; i < fan->count; i++) {
        if (r.v[i].exec.command)
            msg_reader_release(&r.v[i].in);
        exec_release(&r.v[i].exec);
    }
    free(r.v);
    return rc;
}
