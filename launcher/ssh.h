/* The SSH transport, over libssh2 in non-blocking mode. Host keys are always verified. */
#ifndef LAUNCHER_SSH_H
#define LAUNCHER_SSH_H

#include <stdbool.h>
#include <stddef.h>

struct identity;
struct known_hosts;
struct transport;

/* Everything is borrowed and must outlive the transport. */
struct ssh_options {
    const char *host;       /* name or address to connect to */
    const char *known_name; /* name looked up in known */
    int port;
    const char *user;
    const char *jump;       /* [user@]host[:port], through the ssh program; NULL: direct */
    const char *agent_path; /* socket of the key agent; NULL: none */
    const struct identity *identities;
    size_t identity_count;
    bool identities_only; /* of the agent's keys offer only those in identities */
    struct known_hosts *known;
};

/* Not connected yet. The connection is dropped and tried again up to five times while servers
 * close it during the handshake (sshd's MaxStartups), never after a refused key. */
struct transport *ssh_new(const struct ssh_options *options);

/* The key of the server if connect failed because known has never seen it; borrowed, valid until
 * free. False when it did not fail for that reason. */
bool ssh_unknown_key(const struct transport *t, const void **blob, size_t *len);

/* "1.10.0" */
const char *ssh_library_version(void);

#endif
