/* Base64 of RFC 4648, standard alphabet: keys and salts of SSH files. */
#ifndef BASE_BASE64_H
#define BASE_BASE64_H

#include <stddef.h>

#include "base/err.h"

/* Decode exactly len characters (padding required). The caller frees *out; *out_len may be 0.
 * RC_INVALID for anything that is not base64. */
enum rc base64_decode(
    unsigned char **out, size_t *out_len, const char *text, size_t len, struct err *e);

/* Text of len bytes, padded. The caller frees it. */
char *base64_encode(const void *data, size_t len);

#endif
