#include "base/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/alloc.h"

struct hash_stream {
    XXH3_state_t *state;
};

struct hash128 hash128(const void *data, size_t len)
{
    XXH128_hash_t h = XXH3_128bits(data, len);
    return (struct hash128){h.high64, h.low64};
}

void hash128_hex(struct hash128 h, char out[HASH128_HEX])
{
    snprintf(
        out, HASH128_HEX, "%016llx%016llx", (unsigned long long)h.hi, (unsigned long long)h.lo);
}

bool hash128_from_hex(struct hash128 *out, const char *hex)
{
    uint64_t half[2] = {0, 0};
    if (strlen(hex) != HASH128_HEX - 1)
        return false;
    for (size_t i = 0; i < HASH128_HEX - 1; i++) {
        const char *digits = "0123456789abcdef", *d = strchr(digits, hex[i]);
        if (!d)
            return false;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)(d - digits);
    }
    *out = (struct hash128){half[0], half[1]};
    return true;
}

struct hash_stream *hash_stream_new(void)
{
    struct hash_stream *h = base_alloc(sizeof(*h));
    h->state = XXH3_createState();
    XXH3_128bits_reset(h->state);
    return h;
}

void hash_stream_reset(struct hash_stream *h)
{
    XXH3_128bits_reset(h->state);
}

void hash_stream_add(struct hash_stream *h, const void *data, size_t len)
{
    XXH3_128bits_update(h->state, data, len);
}

struct hash128 hash_stream_end(const struct hash_stream *h)
{
    XXH128_hash_t d = XXH3_128bits_digest(h->state);
    return (struct hash128){d.high64, d.low64};
}

void hash_stream_free(struct hash_stream *h)
{
    if (!h)
        return;
    XXH3_freeState(h->state);
    free(h);
}

enum rc hash128_file(const char *path, char out[HASH128_HEX], struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, RC_NOT_FOUND, "cannot open '%s'", path);
    struct hash_stream *h = hash_stream_new();
    static _Thread_local char buf[1 << 18];
    ssize_t n;
    while ((n = read(fd, buf, sizeof(buf))) > 0)
        hash_stream_add(h, buf, (size_t)n);
    enum rc rc = n < 0 ? err_sys(e, RC_IO, "cannot read '%s'", path) : RC_OK;
    hash128_hex(hash_stream_end(h), out);
    hash_stream_free(h);
    close(fd);
    return rc;
}

void hash_hex(const void *data, size_t n, char *out)
{
    static const char DIGITS[] = "0123456789abcdef";
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) {
        out[2 * i] = DIGITS[bytes[i] >> 4];
        out[2 * i + 1] = DIGITS[bytes[i] & 15];
    }
    out[2 * n] = '\0';
}

void hash_sha256_bytes(const void *data, size_t len, unsigned char out[SHA256_BYTES])
{
    unsigned n = 0;
    EVP_Digest(data, len, out, &n, EVP_sha256(), NULL);
}

void hash_sha256(const void *data, size_t len, char out[SHA256_HEX])
{
    unsigned char digest[SHA256_BYTES];
    hash_sha256_bytes(data, len, digest);
    hash_hex(digest, sizeof(digest), out);
}

enum rc hash_sha256_file(const char *path, char out[SHA256_HEX], struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, RC_NOT_FOUND, "cannot open '%s'", path);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
    static _Thread_local char buf[1 << 18];
    ssize_t n;
    while ((n = read(fd, buf, sizeof(buf))) > 0)
        EVP_DigestUpdate(ctx, buf, (size_t)n);
    enum rc rc = n < 0 ? err_sys(e, RC_IO, "cannot read '%s'", path) : RC_OK;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    EVP_DigestFinal_ex(ctx, digest, &len);
    hash_hex(digest, len, out);
    EVP_MD_CTX_free(ctx);
    close(fd);
    return rc;
}

enum rc hash_random(void *out, size_t len, struct err *e)
{
    unsigned char *p = out;
    while (len) {
        ssize_t n = getrandom(p, len, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, RC_IO, "the kernel gives no random bytes");
        p += n;
        len -= (size_t)n;
    }
    return RC_OK;
}

void hash_hmac_sha1(
    const void *key, size_t key_len, const void *data, size_t len, unsigned char out[20])
{
    unsigned n = 0;
    HMAC(EVP_sha1(), key, (int)key_len, data, len, out, &n);
}

void hash_hmac_sha256(
    const void *key, size_t key_len, const void *data, size_t len, char out[SHA256_HEX])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    HMAC(EVP_sha256(), key, (int)key_len, data, len, digest, &n);
    hash_hex(digest, n, out);
}
