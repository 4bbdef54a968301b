/* Text as tokenizers want it: valid UTF-8, and composed (NFC). The only user of utf8proc. */
#ifndef ENGINE_UNICODE_H
#define ENGINE_UNICODE_H

#include <stddef.h>

#include "base/err.h"

struct str;

/* Length of the longest valid UTF-8 prefix of text, n when all of it is. */
size_t utf8_valid_prefix(const char *text, size_t n);

/* Append text with each maximal invalid sequence replaced by U+FFFD, as the Unicode standard
 * recommends (section 3.9) and decoders of other languages do. */
void utf8_repair(struct str *out, const char *text, size_t n);

/* Normalization form C of valid UTF-8: *out is text itself when nothing had to change, else *owned,
 * which the caller frees. RC_LIMIT when it is too long. The Unicode version is that of utf8proc;
 * the tokenizers package 0.20 has an older one, in which marks such as U+11D44 keep their place. */
enum rc unicode_nfc(
    const char *text, size_t n, const char **out, size_t *out_n, char **owned, struct err *e);

#endif
