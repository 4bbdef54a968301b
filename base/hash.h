/* Hashes and random bytes: xxHash for speed (128 bit), SHA-256 for what travels between machines.
 */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct hash128 {
    uint64_t hi, lo;
};

enum { HASH128_HEX = 33, SHA256_HEX = 65, SHA256_BYTES = 32 };

struct hash128 hash128(const void *data, size_t len);
/* 32 hex digits, and back; false when hex is anything else. */
void hash128_hex(struct hash128 h, char out[HASH128_HEX]);
bool hash128_from_hex(struct hash128 *out, const char *hex);

/* Running 128-bit hash over pieces. */
struct hash_stream;
struct hash_stream *hash_stream_new(void);
void hash_stream_add(struct hash_stream *h, const void *data, size_t len);
/* As new. */
void hash_stream_reset(struct hash_stream *h);
struct hash128 hash_stream_end(const struct hash_stream *h);
void hash_stream_free(struct hash_stream *h);
/* 32 hex digits of a file's content. */
enum rc hash128_file(const char *path, char out[HASH128_HEX], struct err *e);

/* 64 hex digits of a file's content. */
enum rc hash_sha256_file(const char *path, char out[SHA256_HEX], struct err *e);
void hash_sha256(const void *data, size_t len, char out[SHA256_HEX]);
void hash_sha256_bytes(const void *data, size_t len, unsigned char out[SHA256_BYTES]);
/* 2 n hex digits and a NUL. */
void hash_hex(const void *data, size_t n, char *out);

/* Random bytes from the kernel. */
enum rc hash_random(void *out, size_t len, struct err *e);

/* HMAC-SHA256 as 64 hex digits: proof of knowing a key without showing it. */
void hash_hmac_sha256(
    const void *key, size_t key_len, const void *data, size_t len, char out[SHA256_HEX]);

/* HMAC-SHA1 (20 bytes): only for the hashed host names of known_hosts. */
void hash_hmac_sha1(
    const void *key, size_t key_len, const void *data, size_t len, unsigned char out[20]);

#endif
