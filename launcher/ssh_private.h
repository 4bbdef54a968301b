/* What launcher/ssh*.c and launcher/sftp.c share; nobody else includes it. */
#ifndef LAUNCHER_SSH_PRIVATE_H
#define LAUNCHER_SSH_PRIVATE_H

#include <netinet/in.h>
#include <sys/types.h>

#include "launcher/identity.h"
#include "launcher/ssh.h"
#include "launcher/transport.h"

struct _LIBSSH2_SESSION;
struct _LIBSSH2_CHANNEL;
struct _LIBSSH2_AGENT;
struct _LIBSSH2_SFTP;
struct _LIBSSH2_SFTP_HANDLE;
struct libssh2_agent_publickey;
struct addrinfo;
struct resolve;

enum ssh_stage {
    SSH_IDLE,
    SSH_RESOLVE,
    SSH_CONNECT,
    SSH_HANDSHAKE,
    SSH_METHODS, /* which ways to log in the server allows */
    SSH_AUTH,
    SSH_READY
};

/* One key that may be offered: the agent's, or a file. */
struct ssh_candidate {
    enum key_kind kind;
    struct libssh2_agent_publickey *from_agent;
    const struct identity *file;
};

enum { SSH_MAX_CANDIDATES = 6 }; /* sshd's MaxAuthTries */

struct ssh {
    struct transport base;
    struct ssh_options opt;
    enum ssh_stage stage;
    int fd;
    struct resolve *resolve;
    const struct addrinfo *next_address;
    char address[INET6_ADDRSTRLEN];
    int last_errno; /* of the address tried last */
    int tries;
    int open_tries;      /* of a channel */
    double not_before_s; /* pause between tries */
    pid_t jump_pid;
    int reads_left; /* of the socket, in this step */
    double step_s;  /* when it began */
    struct _LIBSSH2_SESSION *session;

    struct _LIBSSH2_AGENT *agent;
    struct ssh_candidate candidate[SSH_MAX_CANDIDATES];
    size_t candidate_count, candidate_at;
    size_t rsa_skipped, encrypted_skipped;

    void *unknown_key;
    size_t unknown_len;

    struct _LIBSSH2_CHANNEL *channel;
    int exec_stage;
    bool is_eof_sent;

    struct _LIBSSH2_SFTP *sftp;
    struct _LIBSSH2_SFTP_HANDLE *handle;
    int file_fd; /* local end of a transfer, -1 when none */
    int file_stage;
    char *chunk;
    size_t chunk_at, chunk_len;
};

static inline struct ssh *ssh_of(struct transport *t)
{
    return (struct ssh *)t;
}

/* The session's last sentence, or a plain one; safe to show. Borrowed until the next call on s. */
const char *ssh_last_error(struct ssh *s);
bool ssh_would_block(struct ssh *s);
/* At the start of every step: allow the reads of one. */
void ssh_begin_step(struct ssh *s);
/* A channel was refused: servers that allow few sessions count one until they have collected its
 * process, a moment behind its end. True when it is worth another try, after s->not_before_s. */
bool ssh_open_again(struct ssh *s);

/* launcher/ssh_auth.c */
enum progress ssh_auth_step(struct ssh *s, struct err *e);
void ssh_auth_release(struct ssh *s);

/* launcher/sftp.c */
enum progress sftp_put(struct transport *t, struct put *p, struct err *e);
enum progress sftp_get(struct transport *t, struct get *g, struct err *e);
/* Give the channel of transfers back, as servers may allow one at a time; false: call again. */
bool sftp_end(struct ssh *s);
void sftp_release(struct ssh *s);

#endif
