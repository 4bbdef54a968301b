/* Agents among each other, over TCP. Both sides prove that they know the run's token: the
 * coordinator sends a nonce, the member answers with one of its own and HMAC(token, both), the
 * coordinator answers with another HMAC over both. Nothing else is said before. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/agent.h"
#include "engine/agent_link.h"

static const double PROVE_S = 10, RETRY_S = 0.5;

static void make_nonce(char out[33])
{
    unsigned char bytes[16];
    if (hash_random(bytes, sizeof(bytes), NULL))
        abort(); /* a guessable nonce would be worse than no agent */
    hash_hex(bytes, sizeof(bytes), out);
}

static void prove(const struct agent *a, const char *role, const char *first, const char *second,
    int64_t host, char out[SHA256_HEX])
{
    char *text = base_printf("%s %s %s %lld", role, first, second, (long long)host);
    hash_hmac_sha256(a->spec.token, strlen(a->spec.token), text, strlen(text), out);
    free(text);
}

/* Compares all of it whatever differs, so that timing tells nothing. */
static bool is_proof(const char *got, const char want[SHA256_HEX])
{
    unsigned difference = strlen(got) != SHA256_HEX - 1;
    for (size_t i = 0; !difference && i < SHA256_HEX - 1; i++)
        difference |= (unsigned char)got[i] ^ (unsigned char)want[i];
    return difference == 0;
}

static void tune(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

/* --- coordinator --- */

static int open_v6(struct sockaddr_in6 *any)
{
    int zero = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof(zero));
    if (bind(fd, (struct sockaddr *)any, sizeof(*any)) == 0)
        return fd;
    close(fd);
    return -1;
}

enum rc link_open_port(int *fd, int *port, struct err *e)
{
    struct sockaddr_in6 any = {.sin6_family = AF_INET6, .sin6_addr = in6addr_any};
    struct sockaddr_in any4 = {.sin_family = AF_INET};
    socklen_t n = sizeof(any);
    *fd = open_v6(&any);
    if (*fd < 0) { /* a machine without IPv6 */
        *fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (*fd < 0 || bind(*fd, (struct sockaddr *)&any4, sizeof(any4)) != 0)
            return err_sys(e, RC_IO, "cannot open a port for the other nodes");
    }
    if (listen(*fd, 128) != 0 || getsockname(*fd, (struct sockaddr *)&any, &n) != 0)
        return err_sys(e, RC_IO, "cannot listen for the other nodes");
    *port = ntohs(any.sin6_port); /* at the same place in both families */
    return RC_OK;
}

enum rc link_listen(struct agent *a, struct err *e)
{
    return link_open_port(&a->tcp_fd, &a->tcp_port, e);
}

static size_t pending_count(const struct agent *a)
{
    size_t n = 0;
    for (size_t i = 0; i < a->member_count; i++)
        n += !a->members[i].is_in;
    return n;
}

void link_accept(struct agent *a, double now_s)
{
    int fd;
    while ((fd = accept4(a->tcp_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (pending_count(a) >= AGENT_MAX_PENDING) {
            close(fd);
            continue;
        }
        BASE_GROW(a->members, a->member_cap, a->member_count + 1);
        struct member *m = &a->members[a->member_count++];
        *m = (struct member){.since_s = now_s};
        tune(fd);
        peer_init(&m->peer, fd, now_s);
        make_nonce(m->nonce);
        struct json *v = msg_new("challenge");
        json_add_str(v, "nonce", m->nonce);
        peer_send(&m->peer, v);
    }
}

static void drop_member(struct agent *a, size_t i, double now_s)
{
    struct member m = a->members[i];
    peer_close(&m.peer);
    a->members[i] = a->members[--a->member_count];
    if (!m.is_in)
        return;
    for (size_t k = 0; k < a->member_count; k++)
        if (a->members[k].is_in && a->members[k].host == m.host)
            return; /* it has joined again already */
    coord_closed(a->coord, m.host, now_s);
}

static bool let_in(struct agent *a, struct member *m, const struct json *v, double now_s)
{
    char want[SHA256_HEX], mine[SHA256_HEX];
    const char *nonce = json_str(v, "nonce", "");
    int64_t host = json_int(v, "host", -1);
    if (!msg_is(v, "join") || host < 1 || host >= (int64_t)a->spec.host_count ||
        strlen(nonce) != 32)
        return false;
    prove(a, "join", m->nonce, nonce, host, want);
    if (!is_proof(json_str(v, "proof", ""), want))
        return false;
    m->is_in = true;
    m->host = (size_t)host;
    prove(a, "welcome", m->nonce, nonce, host, mine);
    struct json *answer = msg_new("welcome");
    json_add_str(answer, "proof", mine);
    peer_send(&m->peer, answer);
    coord_joined(a->coord, m->host, now_s);
    return true;
}

static bool take_member(struct agent *a, struct member *m, const struct json *v, double now_s)
{
    if (!m->is_in)
        return let_in(a, m, v, now_s);
    if (msg_is(v, "stop"))
        agent_stop(a, json_num(v, "grace_s", a->spec.deadlines.grace_s),
            json_str(v, "reason", "stopped on a node"), now_s);
    else if (json_get(v, "event"))
        coord_event(a->coord, m->host, v, now_s);
    return true;
}

/* False when the connection is to be dropped. */
static bool serve_member(struct agent *a, struct member *m, double now_s)
{
    struct err e;
    struct json *v;
    enum rc rc = peer_read(&m->peer, now_s, &e);
    while (!peer_take(&m->peer, &v, &e)) {
        if (!v) {
            if (m->is_in && m->peer.heard_s >= now_s)
                coord_heard(a->coord, m->host, now_s);
            bool is_late = !m->is_in && now_s - m->since_s > PROVE_S;
            return !rc && !is_late && !peer_flush(&m->peer, &e);
        }
        bool is_good = take_member(a, m, v, now_s);
        json_free(v);
        if (!is_good)
            return false;
    }
    return false;
}

void link_serve(struct agent *a, double now_s)
{
    for (size_t i = a->member_count; i-- > 0;)
        if (!serve_member(a, &a->members[i], now_s))
            drop_member(a, i, now_s);
}

void link_send_member(struct agent *a, size_t host, const struct json *message)
{
    struct member *newest = NULL;
    for (size_t i = 0; i < a->member_count; i++)
        if (a->members[i].is_in && a->members[i].host == host &&
            (!newest || a->members[i].since_s >= newest->since_s))
            newest = &a->members[i];
    if (newest)
        peer_send(&newest->peer, json_clone(message));
}

/* --- the other nodes --- */

bool link_split_address(const char *text, char *host, size_t host_cap, char *port, size_t port_cap)
{
    const char *colon = strrchr(text, ':');
    bool is_bracketed = text[0] == '[' && colon && colon > text && colon[-1] == ']';
    if (!colon)
        return false;
    char *copy = base_strndup(text + is_bracketed, (size_t)(colon - text) - 2 * is_bracketed);
    bool is_whole = str_copy(host, host_cap, copy) && str_copy(port, port_cap, colon + 1);
    free(copy);
    return is_whole && host[0] && port[0];
}

enum rc link_want(struct agent *a, const char *coordinator, double now_s, struct err *e)
{
    struct uplink *u = &a->uplink;
    if (!link_split_address(coordinator, u->host, sizeof(u->host), u->port, sizeof(u->port)))
        return err_set(e, RC_INVALID, "'%s' is not the address of a coordinator", coordinator);
    u->up_s = now_s;
    u->retry_at_s = now_s;
    return RC_OK;
}

static void try_later(struct uplink *u, const char *why, double now_s)
{
    peer_close(&u->peer);
    u->state = UPLINK_NONE;
    u->retry_at_s = now_s + RETRY_S;
    str_copy(u->error, sizeof(u->error), why);
}

static void begin_connect(struct uplink *u, double now_s)
{
    struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int status = getaddrinfo(u->host, u->port, &hints, &list); /* numeric: never waits */
    if (status) {
        try_later(u, gai_strerror(status), now_s);
        return;
    }
    int fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && (connect(fd, list->ai_addr, list->ai_addrlen) == 0 || errno == EINPROGRESS)) {
        tune(fd);
        peer_init(&u->peer, fd, now_s);
        u->state = UPLINK_CONNECTING;
    } else {
        if (fd >= 0)
            close(fd);
        try_later(u, strerror(errno), now_s);
    }
    freeaddrinfo(list);
}

static void finish_connect(struct uplink *u, double now_s)
{
    struct pollfd p = {.fd = u->peer.fd, .events = POLLOUT};
    int error = 0;
    socklen_t n = sizeof(error);
    if (poll(&p, 1, 0) == 0) {
        if (now_s - u->peer.heard_s > PROVE_S)
            try_later(u, "no answer", now_s);
        return;
    }
    getsockopt(u->peer.fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (error)
        try_later(u, strerror(error), now_s);
    else
        u->state = UPLINK_PROVING;
}

/* challenge -> join, welcome -> up. False: not our coordinator. */
static bool take_proof(struct agent *a, const struct json *v, double now_s)
{
    struct uplink *u = &a->uplink;
    char proof[SHA256_HEX];
    int64_t host = (int64_t)a->spec.self;
    if (msg_is(v, "challenge")) {
        str_copy(u->their_nonce, sizeof(u->their_nonce), json_str(v, "nonce", ""));
        make_nonce(u->nonce);
        prove(a, "join", u->their_nonce, u->nonce, host, proof);
        struct json *answer = msg_new("join");
        json_add_int(answer, "host", host);
        json_add_str(answer, "nonce", u->nonce);
        json_add_str(answer, "proof", proof);
        peer_send(&u->peer, answer);
        return true;
    }
    prove(a, "welcome", u->their_nonce, u->nonce, host, proof);
    if (!msg_is(v, "welcome") || !is_proof(json_str(v, "proof", ""), proof))
        return false;
    u->state = UPLINK_UP;
    u->was_up = true;
    u->up_s = now_s;
    ranks_repeat(a->ranks); /* whatever was lost with an earlier connection */
    return true;
}

static void read_uplink(struct agent *a, double now_s)
{
    struct uplink *u = &a->uplink;
    struct err e = ERR_INIT;
    struct json *v;
    enum rc rc = peer_read(&u->peer, now_s, &e), taken;
    while (!(taken = peer_take(&u->peer, &v, &e)) && v) {
        bool is_good = u->state == UPLINK_UP || take_proof(a, v, now_s);
        if (is_good && u->state == UPLINK_UP)
            agent_command(a, v, now_s);
        json_free(v);
        if (!is_good) {
            try_later(u, "it does not know the token of this run", now_s);
            return;
        }
    }
    if (!rc && !taken)
        rc = peer_flush(&u->peer, &e);
    if (rc || taken)
        try_later(u, e.msg, now_s);
    else if (u->state == UPLINK_UP)
        u->up_s = u->peer.heard_s;
    else if (now_s - u->peer.heard_s > PROVE_S)
        try_later(u, "no answer", now_s);
}

static void check_silence(struct agent *a, double now_s)
{
    const struct uplink *u = &a->uplink;
    double patience_s = u->was_up ? a->spec.deadlines.lost_s : a->spec.deadlines.rendezvous_s;
    if (a->end || now_s - u->up_s <= patience_s)
        return;
    char *text;
    if (u->was_up)
        text = base_printf("the coordinator on host '%s' was silent for %.0f s",
            a->spec.hosts[0].name, now_s - u->up_s);
    else
        text = base_printf("host '%s' cannot reach the coordinator on host '%s' at %s port %s: %s",
            a->spec.hosts[a->spec.self].name, a->spec.hosts[0].name, u->host, u->port, u->error);
    agent_fail(a, u->was_up ? "coordinator-lost" : "rendezvous", text, now_s);
    free(text);
}

void link_follow(struct agent *a, double now_s)
{
    struct uplink *u = &a->uplink;
    if (!u->host[0])
        return;
    if (u->state == UPLINK_NONE && now_s >= u->retry_at_s && !a->end)
        begin_connect(u, now_s);
    if (u->state == UPLINK_CONNECTING)
        finish_connect(u, now_s);
    if (u->state == UPLINK_PROVING || u->state == UPLINK_UP)
        read_uplink(a, now_s);
    check_silence(a, now_s);
}

void link_send_up(struct agent *a, const struct json *message)
{
    if (a->uplink.state == UPLINK_UP)
        peer_send(&a->uplink.peer, json_clone(message));
}

void link_close(struct agent *a)
{
    for (size_t i = 0; i < a->member_count; i++)
        peer_close(&a->members[i].peer);
    free(a->members);
    a->members = NULL;
    a->member_count = 0;
    if (a->uplink.state != UPLINK_NONE)
        peer_close(&a->uplink.peer);
    a->uplink.state = UPLINK_NONE;
    if (a->tcp_fd >= 0)
        close(a->tcp_fd);
    a->tcp_fd = -1;
}
