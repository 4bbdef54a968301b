/* Host keys we already know: a matcher of our own for OpenSSH's known_hosts files.
 *
 * libssh2's own is not enough: it forgives a wrong key for [host]:port when a line for the bare
 * host has the right one, takes a host known with another key type for a new one, ignores
 * @revoked, patterns and everything behind a malformed line. This one answers as OpenSSH does. */
#ifndef LAUNCHER_KNOWN_HOSTS_H
#define LAUNCHER_KNOWN_HOSTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum known_answer {
    KNOWN_MATCH,
    KNOWN_UNKNOWN, /* nothing is known of this host and port */
    KNOWN_CHANGED, /* the host is known with other keys only, of whatever type */
    KNOWN_REVOKED  /* this very key is marked @revoked */
};

struct known_hosts;

enum { KNOWN_MAX_BYTES = 64 << 20, KNOWN_FINGERPRINT_TEXT = 56, KNOWN_TYPES_TEXT = 256 };

struct known_hosts *known_hosts_new(void);
void known_hosts_free(struct known_hosts *k);
/* Add the lines of one file; malformed ones are skipped. */
void known_hosts_add(struct known_hosts *k, const char *path, const char *text, size_t len);
/* Add a file; an absent one is fine. */
enum rc known_hosts_load(struct known_hosts *k, const char *path, struct err *e);

/* What is known of key blob for host and port. For KNOWN_CHANGED and KNOWN_REVOKED *where becomes
 * "FILE:LINE" of the offending line (borrowed, valid until the next call on k). */
enum known_answer known_hosts_check(struct known_hosts *k, const char *host, int port,
    const void *blob, size_t len, const char **where);

/* Key types known for host and port as a comma list ("ssh-ed25519,ecdsa-sha2-nistp256"), so that
 * the handshake asks for one that can be checked; "" when none. */
void known_hosts_types(
    struct known_hosts *k, const char *host, int port, char out[KNOWN_TYPES_TEXT]);

/* The line that makes the key known, with newline; the caller frees it. NULL when blob is no key.
 */
char *known_hosts_line(const char *host, int port, const void *blob, size_t len);

/* "SHA256:..." as ssh-keygen prints it. */
void known_hosts_fingerprint(const void *blob, size_t len, char out[KNOWN_FINGERPRINT_TEXT]);
/* Type inside the blob ("ssh-ed25519"), cut to cap; false when there is none. */
bool known_hosts_blob_type(const void *blob, size_t len, char *out, size_t cap);

#endif
