/* `berth-engine reach NONCE`: can the nodes open connections to each other? Run on all of them at
 * once, before a run starts, spoken to on standard input and output:
 *
 *   says     {"type":"reach","port":p}                  it listens on all interfaces
 *   is told  {"type":"peers","peers":["ip:port"|null, ...]}
 *   says     {"type":"reached","errors":["..."|null, ...]}  per peer
 *   ends     when standard input does
 *
 * Whoever connects is greeted with the nonce, so that an answer by some other machine (a wrong
 * address, NAT) does not pass for the peer's. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/agent_link.h"
#include "engine/agent_main.h"
#include "run/message.h"

static const double CONNECT_S = 5, LIFE_S = 120;
enum { MAX_PEERS = 4096, GREETING_MAX = 128 };

struct
try {
    int fd; /* -1: over */
    bool is_connected;
    char got[GREETING_MAX];
    size_t got_bytes;
    const char *error; /* NULL: good or not tried */
};

struct reach {
    int listen_fd;
    char greeting[GREETING_MAX];
    struct msg_reader in;
    struct try *tries; /* NULL before peers came */
    size_t count;
    double deadline_s;
    bool has_answered, is_over;
};

static void say(struct json *v)
{
    struct str line = STR_INIT;
    msg_put(&line, v);
    file_write_fd(1, str_text(&line), line.len, "standard output", NULL);
    str_release(&line);
    json_free(v);
}

static void greet(const struct reach *r)
{
    int fd;
    while ((fd = accept4(r->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        /* far less than a socket's buffer: never waits, and who does not take it is no peer */
        if (send(fd, r->greeting, strlen(r->greeting), MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            errno = 0;
        shutdown(fd, SHUT_WR);
        close(fd);
    }
}

static void end_try(struct try *t, const char *error)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
    t->error = error;
}

static void begin_try(struct try *t, const char *peer)
{
    char host[64], port[8];
    struct addrinfo hints = {
        .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    *t = (struct try){.fd = -1};
    if (!peer)
        return;
    if (!link_split_address(peer, host, sizeof(host), port, sizeof(port)) ||
        getaddrinfo(host, port, &hints, &list) != 0) {
        t->error = "not an address";
        return;
    }
    t->fd = socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (t->fd < 0 || (connect(t->fd, list->ai_addr, list->ai_addrlen) != 0 && errno != EINPROGRESS))
        end_try(t, strerror(errno));
    freeaddrinfo(list);
}

static void begin_all(struct reach *r, const struct json *message)
{
    const struct json *peers = json_get(message, "peers");
    if (r->tries || json_len(peers) > MAX_PEERS)
        return;
    r->count = json_len(peers);
    r->tries = base_calloc(r->count + 1, sizeof(*r->tries));
    for (size_t i = 0; i < r->count; i++)
        begin_try(&r->tries[i], json_as_str(json_at(peers, i), NULL));
    r->deadline_s = clock_now_s() + CONNECT_S;
}

static void step_try(const struct reach *r, struct try *t)
{
    int error = 0;
    socklen_t n = sizeof(error);
    if (!t->is_connected) {
        getsockopt(t->fd, SOL_SOCKET, SO_ERROR, &error, &n);
        if (error) {
            end_try(t, strerror(error));
            return;
        }
        t->is_connected = true;
    }
    ssize_t got = recv(t->fd, t->got + t->got_bytes, GREETING_MAX - 1 - t->got_bytes, 0);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got > 0) {
        t->got_bytes += (size_t)got;
        return;
    }
    bool is_peer = got == 0 && strcmp(t->got, r->greeting) == 0;
    end_try(t, is_peer ? NULL : "something else answers there");
}

static void answer(struct reach *r)
{
    struct json *v = msg_new("reached"), *errors = json_arr();
    for (size_t i = 0; i < r->count; i++) {
        if (r->tries[i].fd >= 0)
            end_try(&r->tries[i], "no answer within 5 s");
        json_push_str(errors, r->tries[i].error);
    }
    json_add(v, "errors", errors);
    say(v);
    r->has_answered = true;
}

static void take_input(struct reach *r)
{
    char buf[1 << 14];
    struct err e;
    struct json *v;
    ssize_t n = read(0, buf, sizeof(buf));
    r->is_over = n <= 0;
    if (n > 0)
        msg_reader_feed(&r->in, buf, (size_t)n);
    while (!r->is_over) {
        r->is_over = msg_take(&r->in, &v, &e) != RC_OK;
        if (r->is_over || !v)
            return;
        if (msg_is(v, "peers"))
            begin_all(r, v);
        json_free(v);
    }
}

/* One turn of the loop. */
static void turn(struct reach *r)
{
    struct pollfd *fds = base_calloc(r->count + 2, sizeof(*fds));
    size_t open = 0;
    fds[0] = (struct pollfd){.fd = 0, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = r->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < r->count; i++) {
        const struct try *t = &r->tries[i];
        fds[i + 2] = (struct pollfd){.fd = t->fd, .events = t->is_connected ? POLLIN : POLLOUT};
        open += t->fd >= 0;
    }
    if (r->tries && !r->has_answered && (!open || clock_now_s() > r->deadline_s)) {
        answer(r);
    } else {
        size_t count = r->count; /* peers may come in this very turn */
        poll(fds, (nfds_t)(count + 2), 200);
        if (fds[1].revents)
            greet(r);
        for (size_t i = 0; i < count; i++)
            if (fds[i + 2].revents && r->tries[i].fd >= 0)
                step_try(r, &r->tries[i]);
        if (fds[0].revents)
            take_input(r);
    }
    free(fds);
}

int reach_main(int argc, char **argv)
{
    struct reach r = {0};
    struct err e = ERR_INIT;
    int port;
    signal(SIGPIPE, SIG_IGN);
    if (argc != 2 || strlen(argv[1]) > 64)
        return 2;
    snprintf(r.greeting, sizeof(r.greeting), "berth reach %s\n", argv[1]);
    msg_reader_init(&r.in);
    enum rc rc = link_open_port(&r.listen_fd, &port, &e);
    if (rc) {
        struct json *v = msg_new("error");
        json_add_str(v, "message", e.msg);
        say(v);
        return rc_exit_code(rc);
    }
    struct json *v = msg_new("reach");
    json_add_int(v, "port", port);
    say(v);
    double until_s = clock_now_s() + LIFE_S; /* whatever becomes of who asked */
    while (!r.is_over && clock_now_s() < until_s)
        turn(&r);
    for (size_t i = 0; i < r.count; i++)
        end_try(&r.tries[i], NULL);
    free(r.tries);
    msg_reader_release(&r.in);
    close(r.listen_fd);
    return 0;
}
