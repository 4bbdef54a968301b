#include "launcher/identity.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/base64.h"
#include "base/file.h"
#include "base/str.h"
#include "launcher/known_hosts.h"

enum { KEY_FILE_MAX_BYTES = 1 << 20 };

enum key_kind key_kind_of(const char *type)
{
    if (strcmp(type, "ssh-ed25519") == 0)
        return KEY_ED25519;
    if (str_starts(type, "ecdsa-sha2-"))
        return KEY_ECDSA;
    if (strcmp(type, "ssh-rsa") == 0)
        return KEY_RSA;
    return KEY_OTHER;
}

const char *key_kind_name(enum key_kind kind)
{
    static const char *const names[] = {"ed25519", "ecdsa", "RSA", "unsupported"};
    return names[kind];
}

void identity_release(struct identity *id)
{
    free(id->path);
    free(id->public_blob);
    *id = (struct identity){0};
}

/* Length-prefixed string at *at of bytes; false at the end. */
static bool take_string(
    const unsigned char *bytes, size_t len, size_t *at, const unsigned char **out, size_t *n)
{
    if (len - *at < 4)
        return false;
    const unsigned char *p = bytes + *at;
    *n = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
    if (*n > len - *at - 4)
        return false;
    *out = p + 4;
    *at += 4 + *n;
    return true;
}

/* openssh-key-v1: magic, cipher, kdf, kdf options, count, public key (PROTOCOL.key of OpenSSH). */
static bool read_openssh(struct identity *id, const unsigned char *bytes, size_t len)
{
    static const char magic[] = "openssh-key-v1";
    const unsigned char *s;
    size_t n, at = sizeof(magic);
    char type[64];
    if (len < sizeof(magic) || memcmp(bytes, magic, sizeof(magic)) != 0)
        return false;
    if (!take_string(bytes, len, &at, &s, &n))
        return false;
    id->is_encrypted = n != 4 || memcmp(s, "none", 4) != 0;
    if (!take_string(bytes, len, &at, &s, &n) || !take_string(bytes, len, &at, &s, &n) ||
        len - at < 4)
        return false;
    at += 4;
    if (!take_string(bytes, len, &at, &s, &n) || !known_hosts_blob_type(s, n, type, sizeof(type)))
        return false;
    id->kind = key_kind_of(type);
    id->public_blob = base_alloc(n + 1);
    memcpy(id->public_blob, s, n);
    id->public_len = n;
    return true;
}

static bool read_armoured(struct identity *id, const char *begin, const char *end)
{
    struct str s = STR_INIT;
    unsigned char *bytes = NULL;
    size_t len;
    struct err ignored;
    for (const char *p = begin; p < end; p++)
        if (*p != '\n' && *p != '\r')
            str_addc(&s, *p);
    bool is_key =
        !base64_decode(&bytes, &len, str_text(&s), s.len, &ignored) && read_openssh(id, bytes, len);
    free(bytes);
    str_release(&s);
    return is_key;
}

static bool read_text(struct identity *id, const char *text)
{
    static const char openssh[] = "-----BEGIN OPENSSH PRIVATE KEY-----";
    const char *at = strstr(text, openssh);
    if (at) {
        const char *begin = at + sizeof(openssh) - 1;
        const char *end = strstr(begin, "-----END");
        return end && read_armoured(id, begin, end);
    }
    id->is_encrypted = strstr(text, "ENCRYPTED") != NULL;
    if (strstr(text, "-----BEGIN RSA PRIVATE KEY"))
        id->kind = KEY_RSA;
    else if (strstr(text, "-----BEGIN EC PRIVATE KEY"))
        id->kind = KEY_ECDSA;
    else if (strstr(text, "PRIVATE KEY-----"))
        id->kind = KEY_OTHER; /* PKCS#8 does not show its kind in clear */
    else
        return false;
    return true;
}

bool identity_probe(struct identity *out, const char *path)
{
    struct str s;
    struct err ignored;
    *out = (struct identity){.kind = KEY_OTHER};
    str_init(&s, KEY_FILE_MAX_BYTES);
    bool is_key =
        !file_read(&s, path, KEY_FILE_MAX_BYTES, &ignored) && read_text(out, str_text(&s));
    memset(s.p ? s.p : (char[1]){0}, 0, s.len); /* it was a private key */
    str_release(&s);
    if (is_key)
        out->path = base_strdup(path);
    else
        identity_release(out);
    return is_key;
}

char *identity_expand(const char *path)
{
    const char *home = getenv("HOME");
    return str_starts(path, "~/") && home ? path_join(home, path + 2) : base_strdup(path);
}
