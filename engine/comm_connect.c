#include "engine/comm_connect.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/str.h"

enum { NONCE_BYTES = 16 };

/* Both sides prove that they know the token without sending it: the acceptor opens with a nonce,
 * the connecting side answers with a greeting, the acceptor closes with a proof over its nonce. */
struct greeting {
    uint32_t rank, channel;
    unsigned char nonce[NONCE_BYTES];
    char mac[SHA256_HEX];
};

enum rc comm_listen(int *fd, int *port, struct err *e)
{
    int s = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_v6 = s >= 0;
    if (!is_v6)
        s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return err_sys(e, RC_NETWORK, "cannot create a socket");
    int off = 0;
    if (is_v6)
        setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    struct sockaddr_storage a = {0};
    a.ss_family = is_v6 ? AF_INET6 : AF_INET;
    socklen_t len = is_v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (bind(s, (struct sockaddr *)&a, len) != 0 || listen(s, 512) != 0 ||
        getsockname(s, (struct sockaddr *)&a, &len) != 0) {
        enum rc rc = err_sys(e, RC_NETWORK, "cannot listen on a port");
        close(s);
        return rc;
    }
    *fd = s;
    *port = ntohs(
        is_v6 ? ((struct sockaddr_in6 *)&a)->sin6_port : ((struct sockaddr_in *)&a)->sin_port);
    return RC_OK;
}

/* Deadlines of operations come first; the kernel gives up on a silent host a minute later. */
static void tune(const struct comm_options *o, int fd)
{
    const int on = 1, buffer = 512 << 10, idle_s = 30, every_s = 10, probes = 3;
    unsigned give_up_ms = (unsigned)(1000 * (o->deadline_s + 60));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof(every_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &give_up_ms, sizeof(give_up_ms));
}

bool comm_wait(int fd, short events, double deadline)
{
    for (;;) {
        double left = deadline - clock_now_s();
        if (left <= 0)
            return false;
        struct pollfd p = {fd, events, 0};
        int n = poll(&p, 1, (int)(left * 1000) + 1);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
    }
}

static bool move_all(int fd, void *data, size_t len, bool is_send, double deadline)
{
    char *p = data;
    while (len) {
        if (!comm_wait(fd, is_send ? POLLOUT : POLLIN, deadline))
            return false;
        ssize_t n = is_send ? send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT)
                            : recv(fd, p, len, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (n <= 0)
            return false;
        p += n;
        len -= (size_t)n;
    }
    return true;
}

/* "host:port" or "[v6]:port". */
static enum rc split_address(const char *text, char host[256], const char **port, struct err *e)
{
    const char *colon = strrchr(text, ':');
    if (!colon || !colon[1])
        return err_set(e, RC_INVALID, "peer address '%s' has no port", text);
    size_t n = (size_t)(colon - text);
    if (n >= 2 && text[0] == '[' && text[n - 1] == ']') {
        text++;
        n -= 2;
    }
    if (n == 0 || n >= 256)
        return err_set(e, RC_INVALID, "peer address '%s' has no host", text);
    memcpy(host, text, n);
    host[n] = '\0';
    *port = colon + 1;
    return RC_OK;
}

static int try_connect(const struct addrinfo *list, double deadline)
{
    for (const struct addrinfo *a = list; a; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
            continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) {
            int error = 0;
            socklen_t len = sizeof(error);
            if (comm_wait(fd, POLLOUT, deadline) &&
                getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0)
                return fd;
        }
        close(fd);
    }
    return -1;
}

/* HMAC-SHA256 of (role, nonces, rank, channel) under the token; role keeps one side's proof from
 * serving as the other's. */
static void prove(const struct comm_options *o, char role, const unsigned char *challenge,
    const struct greeting *g, char mac[SHA256_HEX])
{
    unsigned char text[1 + 2 * NONCE_BYTES + 8];
    text[0] = (unsigned char)role;
    memcpy(text + 1, challenge, NONCE_BYTES);
    memcpy(text + 1 + NONCE_BYTES, g->nonce, NONCE_BYTES);
    memcpy(text + 1 + 2 * NONCE_BYTES, &g->rank, 4);
    memcpy(text + 5 + 2 * NONCE_BYTES, &g->channel, 4);
    hash_hmac_sha256(o->token, COMM_TOKEN_BYTES, text, sizeof(text), mac);
}

static bool same_mac(const char *a, const char *b)
{
    unsigned difference = 0;
    for (int i = 0; i < SHA256_HEX; i++)
        difference |= (unsigned char)a[i] ^ (unsigned char)b[i];
    return difference == 0;
}

bool comm_greet(const struct comm_options *o, int fd, int channel, double deadline)
{
    unsigned char challenge[NONCE_BYTES];
    char answer[SHA256_HEX], want[SHA256_HEX];
    struct greeting g = {.rank = (uint32_t)o->rank, .channel = (uint32_t)channel};
    if (!move_all(fd, challenge, sizeof(challenge), false, deadline) ||
        hash_random(g.nonce, sizeof(g.nonce), NULL) != RC_OK)
        return false;
    prove(o, 'c', challenge, &g, g.mac);
    prove(o, 'a', challenge, &g, want);
    return move_all(fd, &g, sizeof(g), true, deadline) &&
           move_all(fd, answer, sizeof(answer), false, deadline) && same_mac(answer, want);
}

static enum rc connect_one(
    const struct comm_options *o, int peer, int channel, double deadline, int *out, struct err *e)
{
    char host[256];
    const char *port = "";
    enum rc rc = split_address(o->peers[peer], host, &port, e);
    if (rc)
        return rc;
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    int gai = getaddrinfo(host, port, &hints, &list);
    if (gai != 0)
        return err_set(e, RC_NETWORK, "cannot resolve rank %d's address '%s': %s", peer, host,
            gai_strerror(gai));
    int fd = try_connect(list, deadline);
    freeaddrinfo(list);
    if (fd < 0)
        return err_sys(e, RC_NETWORK, "rank %d cannot connect to rank %d at '%s'", o->rank, peer,
            o->peers[peer]);
    tune(o, fd);
    if (!comm_greet(o, fd, channel, deadline)) {
        close(fd);
        return err_set(e, RC_NETWORK, "rank %d at '%s' did not prove that it belongs to this run",
            peer, o->peers[peer]);
    }
    *out = fd;
    return RC_OK;
}

bool comm_welcome(const struct comm_options *o, int fd, int *rank, int *channel, double deadline)
{
    struct greeting g;
    unsigned char challenge[NONCE_BYTES];
    char mac[SHA256_HEX];
    double patience = clock_now_s() + 5;
    patience = patience < deadline ? patience : deadline;
    if (hash_random(challenge, sizeof(challenge), NULL) != RC_OK ||
        !move_all(fd, challenge, sizeof(challenge), true, patience) ||
        !move_all(fd, &g, sizeof(g), false, patience))
        return false;
    prove(o, 'c', challenge, &g, mac);
    if (!same_mac(mac, g.mac))
        return false;
    *rank = (int)g.rank;
    *channel = (int)g.channel;
    prove(o, 'a', challenge, &g, mac);
    return move_all(fd, mac, sizeof(mac), true, deadline);
}

/* Accept one connection; strangers are closed and not counted. */
static void accept_one(int *fd, const struct comm_options *o, double deadline)
{
    int rank, channel, s = accept4(o->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (s < 0)
        return;
    bool is_good = comm_welcome(o, s, &rank, &channel, deadline) && rank >= 0 && rank < o->rank &&
                   channel >= 0 && channel < COMM_CHANNELS;
    if (!is_good || fd[channel * o->ranks + rank] >= 0) {
        close(s);
        return;
    }
    tune(o, s);
    fd[channel * o->ranks + rank] = s;
}

static int first_missing(const int *fd, const struct comm_options *o)
{
    for (int r = 0; r < o->rank; r++)
        for (int ch = 0; ch < COMM_CHANNELS; ch++)
            if (fd[ch * o->ranks + r] < 0)
                return r;
    return -1;
}

enum rc comm_connect(int *fd, const struct comm_options *o, struct err *e)
{
    double deadline = clock_now_s() + o->connect_deadline_s;
    /* connecting needs no accept on the other side yet: the backlog takes it, and the answer is
     * awaited; so ranks accept from the lower ones first, then connect upwards */
    int missing;
    while ((missing = first_missing(fd, o)) >= 0) {
        if (!comm_wait(o->listen_fd, POLLIN, deadline))
            return err_set(e, RC_NETWORK, "rank %d: rank %d did not connect within %.0f s", o->rank,
                missing, o->connect_deadline_s);
        accept_one(fd, o, deadline);
    }
    for (int r = o->rank + 1; r < o->ranks; r++)
        for (int ch = 0; ch < COMM_CHANNELS; ch++) {
            enum rc rc = connect_one(o, r, ch, deadline, &fd[ch * o->ranks + r], e);
            if (rc)
                return rc;
        }
    return RC_OK;
}
