#include "launcher/ssh.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <libssh2.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "launcher/known_hosts.h"
#include "launcher/resolve.h"
#include "launcher/ssh_private.h"

/* RSA host keys need rsa-sha2, which libssh2 has from 1.11 on. */
#if LIBSSH2_VERSION_NUM >= 0x010B00
#define LIBSSH2_RSA_HOSTKEYS ",rsa-sha2-512,rsa-sha2-256"
#else
#define LIBSSH2_RSA_HOSTKEYS ""
#endif

enum {
    MAX_TRIES = 5,
    MAX_OPEN_TRIES = 10,
    SEND_TIMEOUT_MS = 20000,
    READS_PER_STEP = 256,
    READS_ENDED = -1
};

static const double STEP_MAX_S = 30;

/* exec stages */
enum { EXEC_OPEN, EXEC_START, EXEC_PUMP, EXEC_CLOSE, EXEC_FREE };

const char *ssh_library_version(void)
{
    return libssh2_version(0);
}

const char *ssh_last_error(struct ssh *s)
{
    char *text = NULL;
    if (s->session && libssh2_session_last_error(s->session, &text, NULL, 0) && text && *text)
        return text;
    return "the connection broke";
}

bool ssh_would_block(struct ssh *s)
{
    return libssh2_session_last_errno(s->session) == LIBSSH2_ERROR_EAGAIN;
}

bool ssh_unknown_key(const struct transport *t, const void **blob, size_t *len)
{
    const struct ssh *s = (const struct ssh *)t;
    *blob = s->unknown_key;
    *len = s->unknown_len;
    return s->unknown_key != NULL;
}

/* --- reaching the server --- */

static void end_jump(struct ssh *s)
{
    if (s->jump_pid <= 0)
        return;
    kill(s->jump_pid, SIGKILL);
    waitpid(s->jump_pid, NULL, 0);
    s->jump_pid = 0;
}

/* Everything of the connection goes; the session is freed without a word to the server, since
 * waiting for its answer could take for ever. */
static void ssh_drop(struct transport *t)
{
    struct ssh *s = ssh_of(t);
    if (s->fd >= 0)
        shutdown(s->fd, SHUT_RDWR); /* makes every call below fail instead of wait */
    sftp_release(s);
    ssh_auth_release(s);
    if (s->session) {
        s->reads_left = READS_ENDED;
        libssh2_session_set_blocking(s->session, 1); /* the socket is shut: nothing blocks */
        libssh2_session_free(s->session);
    }
    s->session = NULL;
    s->channel = NULL;
    s->exec_stage = EXEC_OPEN;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
    end_jump(s);
    resolve_free(s->resolve);
    s->resolve = NULL;
    s->next_address = NULL;
    s->stage = SSH_IDLE;
}

static void ssh_free(struct transport *t)
{
    struct ssh *s = ssh_of(t);
    ssh_drop(t);
    free(s->unknown_key);
    free(s->chunk);
    free(s);
}

/* "[user@]host[:port]" or several of them with commas: the last one is asked to connect on, the
 * ones before lead to it. The ssh program checks the keys of all of them. */
static void run_jump(const char *jump, const char *target)
{
    const char *argv[12] = {"ssh", "-o", "BatchMode=yes", "-W", target};
    int n = 5;
    char *copy = base_strdup(jump), *last = strrchr(copy, ',');
    if (last) {
        *last++ = '\0';
        argv[n++] = "-J";
        argv[n++] = copy;
    } else {
        last = copy;
    }
    char *port = strrchr(last, ':');
    if (port && !strchr(last, ']')) {
        *port++ = '\0';
        argv[n++] = "-p";
        argv[n++] = port;
    }
    argv[n++] = "--";
    argv[n++] = last;
    setpgid(0, 0);
    execvp("ssh", (char *const *)(uintptr_t)argv);
    _exit(127);
}

static enum progress start_jump(struct ssh *s, struct err *e)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        err_sys(e, RC_IO, "cannot make a socket pair");
        return PROGRESS_FAILED;
    }
    char *target =
        base_printf(strchr(s->opt.host, ':') ? "[%s]:%d" : "%s:%d", s->opt.host, s->opt.port);
    s->jump_pid = fork();
    if (s->jump_pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(pair[1], 0);
        dup2(pair[1], 1);
        dup2(null, 2);
        run_jump(s->opt.jump, target);
    }
    free(target);
    close(pair[1]);
    s->fd = pair[0];
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
    s->stage = SSH_HANDSHAKE;
    return PROGRESS_WAIT;
}

static void tune_socket(int fd)
{
    int one = 1, ms = SEND_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

/* Begin with the next address that takes a connect at all. */
static enum progress connect_next(struct ssh *s, struct err *e)
{
    for (; s->next_address; s->next_address = s->next_address->ai_next) {
        const struct addrinfo *a = s->next_address;
        s->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (s->fd < 0) {
            s->last_errno = errno;
            continue;
        }
        tune_socket(s->fd);
        getnameinfo(
            a->ai_addr, a->ai_addrlen, s->address, sizeof(s->address), NULL, 0, NI_NUMERICHOST);
        if (connect(s->fd, a->ai_addr, a->ai_addrlen) == 0 || errno == EINPROGRESS) {
            s->next_address = a->ai_next;
            s->stage = SSH_CONNECT;
            return PROGRESS_WAIT;
        }
        s->last_errno = errno;
        close(s->fd);
        s->fd = -1;
    }
    err_set(e, RC_NODE, "cannot connect to %s port %d: %s",
        s->address[0] ? s->address : s->opt.host, s->opt.port, strerror(s->last_errno));
    return PROGRESS_FAILED;
}

static enum progress step_resolve(struct ssh *s, struct err *e)
{
    const struct addrinfo *list;
    if (resolve_take(s->resolve, &list, e))
        return PROGRESS_FAILED;
    if (!list)
        return PROGRESS_WAIT;
    s->next_address = list;
    return connect_next(s, e);
}

static enum progress step_connect(struct ssh *s, struct err *e)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};
    int error = 0;
    socklen_t n = sizeof(error);
    if (poll(&p, 1, 0) == 0)
        return PROGRESS_WAIT;
    getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &n);
    if (!error) {
        s->stage = SSH_HANDSHAKE;
        return PROGRESS_WAIT;
    }
    s->last_errno = error;
    close(s->fd);
    s->fd = -1;
    return connect_next(s, e);
}

/* --- handshake and host key --- */

/* libssh2 goes on inside one call for as long as there is something to read: a server that never
 * stops sending (one line without an end, say) would keep it there past deadlines and Ctrl-C. */
static ssize_t read_some(libssh2_socket_t fd, void *buf, size_t n, int flags, void **abstract)
{
    struct ssh *s = *abstract;
    if (s->reads_left == READS_ENDED || clock_now_s() - s->step_s > STEP_MAX_S)
        return -ENOTCONN; /* some of its loops wait by asking again and again */
    if (s->reads_left == 0)
        return -EAGAIN;
    ssize_t got = recv(fd, buf, n, flags);
    if (got > 0)
        s->reads_left--;
    return got < 0 ? -errno : got;
}

void ssh_begin_step(struct ssh *s)
{
    s->reads_left = READS_PER_STEP;
    s->step_s = clock_now_s();
}

static enum rc open_session(struct ssh *s, struct err *e)
{
    char types[KNOWN_TYPES_TEXT];
    s->session = libssh2_session_init_ex(NULL, NULL, NULL, s);
    if (!s->session)
        return err_set(e, RC_FAILED, "libssh2 gives no session");
#if LIBSSH2_VERSION_NUM >= 0x010B01
    libssh2_session_callback_set2(
        s->session, LIBSSH2_CALLBACK_RECV, (libssh2_cb_generic *)read_some);
#else
    libssh2_session_callback_set(s->session, LIBSSH2_CALLBACK_RECV, (void *)read_some);
#endif
    libssh2_session_set_blocking(s->session, 0);
    /* Without this 1.10 negotiates ecdsa first, and a host known by ed25519 would look changed. */
    known_hosts_types(s->opt.known, s->opt.known_name, s->opt.port, types);
    if (types[0])
        libssh2_session_method_pref(s->session, LIBSSH2_METHOD_HOSTKEY, types);
    else
        libssh2_session_method_pref(s->session, LIBSSH2_METHOD_HOSTKEY,
            "ssh-ed25519,ecdsa-sha2-nistp256,ecdsa-sha2-nistp384,ecdsa-sha2-"
            "nistp521" LIBSSH2_RSA_HOSTKEYS);
    return RC_OK;
}

/* A server that closes before or during the handshake is most likely over its MaxStartups. */
static enum progress retry_or_fail(struct ssh *s, struct err *e)
{
    char *why = base_strdup(ssh_last_error(s));
    int code = s->session ? libssh2_session_last_errno(s->session) : 0;
    bool is_named =
        code != LIBSSH2_ERROR_BANNER_RECV && s->session && libssh2_session_banner_get(s->session);
    bool is_drop = code == LIBSSH2_ERROR_SOCKET_RECV || code == LIBSSH2_ERROR_SOCKET_SEND ||
                   code == LIBSSH2_ERROR_SOCKET_DISCONNECT || code == LIBSSH2_ERROR_BANNER_RECV;
    ssh_drop(&s->base);
    if (is_drop && s->tries < MAX_TRIES && !s->opt.jump) {
        unsigned char jitter = 0;
        hash_random(&jitter, 1, NULL);
        s->not_before_s = clock_now_s() + 0.1 * s->tries * (0.5 + jitter / 255.0);
        free(why);
        return PROGRESS_WAIT;
    }
    if (s->opt.jump)
        err_set(e, RC_NODE, "no SSH server answered through jump host '%s': %s", s->opt.jump, why);
    else if (!is_named)
        err_set(e, RC_NODE, "port %d of %s is not an SSH server, or it accepts no more connections",
            s->opt.port, s->address);
    else
        err_set(e, RC_NODE, "the SSH handshake with %s port %d failed: %s", s->address, s->opt.port,
            why);
    free(why);
    return PROGRESS_FAILED;
}

static enum progress check_host_key(struct ssh *s, struct err *e)
{
    size_t len;
    int type;
    const char *where = NULL;
    const char *blob = libssh2_session_hostkey(s->session, &len, &type);
    if (!blob) {
        err_set(e, RC_NODE, "the server showed no host key");
        return PROGRESS_FAILED;
    }
    switch (known_hosts_check(s->opt.known, s->opt.known_name, s->opt.port, blob, len, &where)) {
    case KNOWN_MATCH:
        s->stage = SSH_METHODS;
        return PROGRESS_WAIT;
    case KNOWN_UNKNOWN:
        free(s->unknown_key);
        s->unknown_key = base_alloc(len);
        memcpy(s->unknown_key, blob, len);
        s->unknown_len = len;
        err_set(e, RC_CONFIRM,
            "the host key is not known; check it and pass --accept-new-host-keys, or connect once "
            "with ssh");
        return PROGRESS_FAILED;
    case KNOWN_CHANGED:
        err_set(e, RC_AUTH,
            "the host key is not the one in %s: the machine was replaced or somebody is in "
            "between; remove that line if you know it was replaced",
            where);
        return PROGRESS_FAILED;
    case KNOWN_REVOKED:
        err_set(e, RC_AUTH, "the host key is revoked by %s", where);
        return PROGRESS_FAILED;
    }
    return PROGRESS_FAILED;
}

static enum progress step_handshake(struct ssh *s, struct err *e)
{
    if (!s->session && open_session(s, e))
        return PROGRESS_FAILED;
    int r = libssh2_session_handshake(s->session, s->fd);
    if (r == LIBSSH2_ERROR_EAGAIN)
        return PROGRESS_WAIT;
    if (r == LIBSSH2_ERROR_KEX_FAILURE || r == LIBSSH2_ERROR_METHOD_NONE) {
        err_set(e, RC_NODE, "no key exchange or host key type in common with %s (libssh2 %s): %s",
            s->address, ssh_library_version(), ssh_last_error(s));
        return PROGRESS_FAILED;
    }
    if (r)
        return retry_or_fail(s, e);
    return check_host_key(s, e);
}

static enum progress begin(struct ssh *s, struct err *e)
{
    if (clock_now_s() < s->not_before_s)
        return PROGRESS_WAIT;
    s->tries++;
    if (s->opt.jump)
        return start_jump(s, e);
    s->resolve = resolve_new(s->opt.host, s->opt.port);
    s->stage = SSH_RESOLVE;
    return PROGRESS_WAIT;
}

static enum progress ssh_connect(struct transport *t, struct err *e)
{
    struct ssh *s = ssh_of(t);
    enum ssh_stage before;
    enum progress p;
    ssh_begin_step(s);
    do { /* go on while there is something to do without waiting */
        before = s->stage;
        switch (s->stage) {
        case SSH_IDLE:
            p = begin(s, e);
            break;
        case SSH_RESOLVE:
            p = step_resolve(s, e);
            break;
        case SSH_CONNECT:
            p = step_connect(s, e);
            break;
        case SSH_HANDSHAKE:
            p = step_handshake(s, e);
            break;
        case SSH_METHODS:
        case SSH_AUTH:
            p = ssh_auth_step(s, e);
            break;
        default:
            p = PROGRESS_DONE;
        }
    } while (p == PROGRESS_WAIT && s->stage != before && s->stage != SSH_IDLE);
    if (p == PROGRESS_FAILED)
        ssh_drop(t);
    return p;
}

/* --- commands --- */

static enum progress exec_broke(struct ssh *s, const char *what, struct err *e)
{
    err_set(e, RC_NETWORK, "%s: %s", what, ssh_last_error(s));
    ssh_drop(&s->base);
    return PROGRESS_FAILED;
}

bool ssh_open_again(struct ssh *s)
{
    if (libssh2_session_last_errno(s->session) != LIBSSH2_ERROR_CHANNEL_FAILURE ||
        s->open_tries >= MAX_OPEN_TRIES)
        return false;
    s->open_tries++;
    s->not_before_s = clock_now_s() + 0.05 * s->open_tries;
    return true;
}

static enum progress exec_open(struct ssh *s, struct err *e)
{
    if (clock_now_s() < s->not_before_s || !sftp_end(s))
        return PROGRESS_WAIT;
    s->channel = libssh2_channel_open_session(s->session);
    if (!s->channel)
        return ssh_would_block(s) || ssh_open_again(s) ? PROGRESS_WAIT
                                                       : exec_broke(s, "cannot open a channel", e);
    s->open_tries = 0;
    s->is_eof_sent = false;
    s->exec_stage = EXEC_START;
    return PROGRESS_WAIT;
}

static enum progress exec_start(struct ssh *s, const struct exec *x, struct err *e)
{
    int r = libssh2_channel_exec(s->channel, x->command);
    if (r == LIBSSH2_ERROR_EAGAIN || (r && ssh_would_block(s)))
        return PROGRESS_WAIT;
    if (r)
        return exec_broke(s, "the server runs no command", e);
    s->exec_stage = EXEC_PUMP;
    return PROGRESS_WAIT;
}

/* Read one stream dry; negative on a broken connection. */
static int pump_out(struct ssh *s, struct exec *x, int stream)
{
    char buf[1 << 15];
    for (;;) {
        ssize_t n = libssh2_channel_read_ex(s->channel, stream - 1, buf, sizeof(buf));
        if (n == LIBSSH2_ERROR_EAGAIN || n == 0)
            return 0;
        if (n < 0)
            return (int)n;
        if (x->sink)
            x->sink(x->ctx, stream, buf, (size_t)n);
        else
            str_addn(stream == 1 ? &x->out : &x->err, buf, (size_t)n);
    }
}

static int pump_in(struct ssh *s, struct exec *x)
{
    while (x->in.len) {
        ssize_t n = libssh2_channel_write(s->channel, x->in.p, x->in.len);
        if (n == LIBSSH2_ERROR_EAGAIN)
            return 0;
        if (n < 0)
            return (int)n;
        str_drop(&x->in, (size_t)n);
    }
    if (x->keeps_in_open || s->is_eof_sent)
        return 0;
    int r = libssh2_channel_send_eof(s->channel);
    s->is_eof_sent = r == 0;
    return r == LIBSSH2_ERROR_EAGAIN ? 0 : r;
}

static enum progress exec_pump(struct ssh *s, struct exec *x, struct err *e)
{
    /* a write may pull output in, so read again behind it */
    bool is_eof = libssh2_channel_eof(s->channel) == 1;
    if (pump_out(s, x, 1) < 0 || pump_out(s, x, 2) < 0)
        return exec_broke(s, "the connection broke while a command ran", e);
    if (!is_eof && pump_in(s, x) < 0 && libssh2_channel_eof(s->channel) != 1)
        return exec_broke(s, "the connection broke while a command ran", e);
    if (pump_out(s, x, 1) < 0 || pump_out(s, x, 2) < 0)
        return exec_broke(s, "the connection broke while a command ran", e);
    if (libssh2_channel_eof(s->channel) == 1)
        s->exec_stage = EXEC_CLOSE;
    return PROGRESS_WAIT;
}

static int signal_number(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } signals[] = {{"KILL", SIGKILL}, {"TERM", SIGTERM}, {"INT", SIGINT}, {"HUP", SIGHUP},
        {"SEGV", SIGSEGV}, {"ABRT", SIGABRT}, {"PIPE", SIGPIPE}, {"QUIT", SIGQUIT}};
    for (size_t i = 0; i < BASE_COUNT(signals); i++)
        if (strcmp(name, signals[i].name) == 0)
            return signals[i].number;
    return 127;
}

static enum progress exec_close(struct ssh *s, struct exec *x)
{
    /* until the server has closed too, the session counts against its MaxSessions */
    if (libssh2_channel_close(s->channel) == LIBSSH2_ERROR_EAGAIN ||
        libssh2_channel_wait_closed(s->channel) == LIBSSH2_ERROR_EAGAIN)
        return PROGRESS_WAIT;
    /* a killed command has exit status 0 here: look for the signal first */
    char *name = NULL;
    libssh2_channel_get_exit_signal(s->channel, &name, NULL, NULL, NULL, NULL, NULL);
    x->status = name ? 128 + signal_number(name) : libssh2_channel_get_exit_status(s->channel);
    if (name)
        libssh2_free(s->session, name);
    s->exec_stage = EXEC_FREE;
    return PROGRESS_WAIT;
}

static enum progress ssh_exec(struct transport *t, struct exec *x, struct err *e)
{
    struct ssh *s = ssh_of(t);
    if (s->stage != SSH_READY) {
        err_set(e, RC_NETWORK, "the connection is gone");
        return PROGRESS_FAILED;
    }
    enum progress p = PROGRESS_WAIT;
    int before;
    ssh_begin_step(s);
    do {
        before = s->exec_stage;
        switch (s->exec_stage) {
        case EXEC_OPEN:
            p = exec_open(s, e);
            break;
        case EXEC_START:
            p = exec_start(s, x, e);
            break;
        case EXEC_PUMP:
            p = exec_pump(s, x, e);
            break;
        case EXEC_CLOSE:
            p = exec_close(s, x);
            break;
        default:
            if (libssh2_channel_free(s->channel) == LIBSSH2_ERROR_EAGAIN)
                return PROGRESS_WAIT;
            s->channel = NULL;
            s->exec_stage = EXEC_OPEN;
            return PROGRESS_DONE;
        }
    } while (p == PROGRESS_WAIT && s->exec_stage != before);
    return p;
}

/* --- polling --- */

static int ssh_poll(struct transport *t, struct pollfd fds[TRANSPORT_FDS])
{
    struct ssh *s = ssh_of(t);
    if (s->stage == SSH_RESOLVE) {
        fds[0] = (struct pollfd){.fd = resolve_fd(s->resolve), .events = POLLIN};
        return 1;
    }
    if (s->fd < 0)
        return 0;
    short events = POLLIN;
    if (s->stage == SSH_CONNECT)
        events = POLLOUT;
    else if (s->session &&
             (libssh2_session_block_directions(s->session) & LIBSSH2_SESSION_BLOCK_OUTBOUND))
        events |= POLLOUT;
    fds[0] = (struct pollfd){.fd = s->fd, .events = events};
    return 1;
}

static const char *ssh_address(struct transport *t)
{
    return ssh_of(t)->address;
}

static const char *ssh_stage_name(struct transport *t)
{
    static const char *const names[] = {"waiting to connect", "resolving the name", "connecting",
        "waiting for the SSH handshake", "logging in", "logging in", "working"};
    return names[ssh_of(t)->stage];
}

static const struct transport_ops ssh_ops = {
    .name = "ssh",
    .connect = ssh_connect,
    .exec = ssh_exec,
    .put = sftp_put,
    .get = sftp_get,
    .drop = ssh_drop,
    .poll = ssh_poll,
    .address = ssh_address,
    .stage = ssh_stage_name,
    .free = ssh_free,
};

struct transport *ssh_new(const struct ssh_options *options)
{
    static bool is_ready;
    if (!is_ready)
        libssh2_init(0);
    is_ready = true;
    struct ssh *s = base_calloc(1, sizeof(*s));
    s->base.ops = &ssh_ops;
    s->opt = *options;
    s->fd = s->file_fd = -1;
    return &s->base;
}
