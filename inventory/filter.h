/* The filter language of offers, as the command line and the offers view take it:
 *
 *   gpu:h100 vram>=80 price<2.5 nodes>=4 fabric:ib !spot provider:aws,gcp
 *
 * Terms are separated by spaces and must all hold; '!' in front negates one. KEY:A,B holds when the
 * key is A or B. Comparisons (< <= > >= =) never hold for an unknown value. A word without a key
 * holds when it occurs in provider, id, GPU or region. */
#ifndef INVENTORY_FILTER_H
#define INVENTORY_FILTER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct filter;
struct offer;

/* RC_USAGE names the term and the nearest key. An empty text matches everything. On success *out
 * must be freed with filter_free. */
enum rc filter_parse(struct filter **out, const char *text, struct err *e);
void filter_free(struct filter *f);
bool filter_match(const struct filter *f, const struct offer *o);

/* The i-th key with what it compares, for help and completion; false behind the end. */
bool filter_key_at(size_t i, const char **key, const char **help);

#endif
