#include "base/base64.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int digit(char c)
{
    const char *at = c ? strchr(alphabet, c) : NULL;
    return at ? (int)(at - alphabet) : -1;
}

enum rc base64_decode(
    unsigned char **out, size_t *out_len, const char *text, size_t len, struct err *e)
{
    *out = NULL;
    *out_len = 0;
    if (len % 4 != 0)
        return err_set(e, RC_INVALID, "not base64: %zu characters", len);
    size_t pad = len && text[len - 1] == '=' ? 1 + (text[len - 2] == '=') : 0;
    unsigned char *bytes = base_alloc(len / 4 * 3 + 1);
    size_t n = 0;
    for (size_t i = 0; i < len; i += 4) {
        uint32_t word = 0;
        for (size_t k = 0; k < 4; k++) {
            int d = i + k >= len - pad ? 0 : digit(text[i + k]);
            if (d < 0) {
                free(bytes);
                return err_set(e, RC_INVALID, "not base64: character %zu", i + k + 1);
            }
            word = word << 6 | (uint32_t)d;
        }
        bytes[n++] = (unsigned char)(word >> 16);
        bytes[n++] = (unsigned char)(word >> 8);
        bytes[n++] = (unsigned char)word;
    }
    *out = bytes;
    *out_len = n - pad;
    return RC_OK;
}

char *base64_encode(const void *data, size_t len)
{
    const unsigned char *p = data;
    char *out = base_alloc((len + 2) / 3 * 4 + 1), *q = out;
    for (size_t i = 0; i < len; i += 3) {
        size_t have = len - i < 3 ? len - i : 3;
        uint32_t word = (uint32_t)p[i] << 16;
        word |= have > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        word |= have > 2 ? p[i + 2] : 0;
        *q++ = alphabet[word >> 18];
        *q++ = alphabet[word >> 12 & 63];
        *q++ = have > 1 ? alphabet[word >> 6 & 63] : '=';
        *q++ = have > 2 ? alphabet[word & 63] : '=';
    }
    *q = '\0';
    return out;
}
