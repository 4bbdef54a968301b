/* Quantities as people write them, in and out. All parsers take the whole string and refuse rests.
 *
 * Commas group thousands and nothing else.
 * Money is integer micro-dollars (1 USD = 1,000,000), bytes and tokens are int64, time is double
 * seconds. Formatters write into the caller's buffer and return it; what no longer says anything
 * (infinite, or beyond 10^15 seconds, 10^24 bytes, 10^12 dollars) is "too large". */
#ifndef BASE_UNITS_H
#define BASE_UNITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { UNITS_TEXT = 32 };
#define USD_MICRO 1000000LL

/* "10B", "4M", "512k", "1.5T", "4096", "1_000_000": decimal multiples of a count. */
enum rc units_parse_count(const char *text, int64_t *out, struct err *e);
/* "80GiB", "80GB", "24564MiB", "1.5TiB", "512": GB is 10^9, GiB is 2^30. */
enum rc units_parse_bytes(const char *text, int64_t *out, struct err *e);
/* "7d", "12h", "30m", "90s", "1.5h", "2d12h"; a bare number is seconds. */
enum rc units_parse_seconds(const char *text, double *out, struct err *e);
/* "1500", "$1,500.25", "0.10", "1500 USD": exact decimals, at most six places. */
enum rc units_parse_usd(const char *text, int64_t *micro_usd, struct err *e);
/* Plain number ("3,200" allowed), finite. */
enum rc units_parse_number(const char *text, double *out, struct err *e);

/* "63.2 GiB". */
char *units_bytes(char buf[UNITS_TEXT], double bytes);
/* "8.03B", "512k". */
char *units_count(char buf[UNITS_TEXT], double count);
/* "412 ms", "3.2 s", "31 min", "4.5 h", "3.2 d". */
char *units_seconds(char buf[UNITS_TEXT], double seconds);
/* The same rounded up: what is said is enough. */
char *units_bytes_up(char buf[UNITS_TEXT], double bytes);
char *units_seconds_up(char buf[UNITS_TEXT], double seconds);
/* "$1,042.10", rounded up to the cent. */
char *units_usd(char buf[UNITS_TEXT], int64_t micro_usd);

#endif
