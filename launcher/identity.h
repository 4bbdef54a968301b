/* Private key files: which kind a file holds, and in which order keys are offered to a server. */
#ifndef LAUNCHER_IDENTITY_H
#define LAUNCHER_IDENTITY_H

#include <stdbool.h>
#include <stddef.h>

/* In the order they are offered. */
enum key_kind { KEY_ED25519, KEY_ECDSA, KEY_RSA, KEY_OTHER };

struct identity {
    char *path;
    enum key_kind kind;
    bool is_encrypted;          /* needs a passphrase */
    unsigned char *public_blob; /* NULL where the file does not tell */
    size_t public_len;
};

enum key_kind key_kind_of(const char *type); /* "ssh-ed25519" -> KEY_ED25519 */
const char *key_kind_name(enum key_kind kind);

/* Look at a key file. False when it is absent, unreadable or no private key. */
bool identity_probe(struct identity *out, const char *path);
void identity_release(struct identity *id);

/* "~/x" below the user's home; the caller frees it. */
char *identity_expand(const char *path);

#endif
