/* The field table of struct offer, for the files that read and write offers. */
#ifndef INVENTORY_OFFER_FIELDS_H
#define INVENTORY_OFFER_FIELDS_H

#include <stddef.h>

#include "inventory/offer.h"

enum field_kind {
    FIELD_TEXT,
    FIELD_COUNT,  /* int64_t, whole */
    FIELD_NUMBER, /* double */
    FIELD_USD,    /* int64_t micro-dollars */
    FIELD_DEVICE,
    FIELD_MARKET,
    FIELD_FABRIC
};

struct field {
    const char *name; /* in offers/1 */
    enum field_kind kind;
    size_t offset, size;
    double max; /* largest sensible value; micro-dollars for FIELD_USD */
};

extern const struct field FIELDS[OFFER_FIELD_COUNT];

/* Value of an enumerated field. */
int field_word(const struct offer *o, enum offer_field f);
/* Put a foreign number that is not negative, not absurd and whole where it must be. */
enum rc offer_check_number(
    struct offer *o, enum offer_field f, double x, enum provenance from, struct err *e);

#endif
