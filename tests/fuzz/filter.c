#include "inventory/filter.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "inventory/offer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char *text = base_strndup((const char *)data, len);
    struct filter *f;
    struct err e = ERR_INIT;
    struct offer o;
    offer_init(&o);
    offer_put_text(&o, OFFER_GPU, "h100", PROVENANCE_REPORTED);
    offer_settle(&o);
    if (filter_parse(&f, text, &e) == RC_OK)
        filter_match(f, &o);
    else if (!e.msg[0])
        abort();
    filter_free(f);
    free(text);
    return 0;
}
