#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Offers that were read can be written, and read back as they were. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct offers *l = offers_new();
    char *text = base_calloc(1, len + 1);
    memcpy(text, data, len);
    struct source_input in = {.text = text, .len = len};
    struct err e = ERR_INIT;
    if (SOURCE_OFFERS_JSON.read(l, &in, &e) == RC_OK)
        for (size_t i = 0; i < offers_count(l); i++) {
            struct json *v = offer_to_json(offers_at(l, i));
            struct offer again;
            if (offer_from_json(&again, v, &e))
                abort();
            offer_settle(&again);
            struct json *w = offer_to_json(&again);
            char *first = json_print(v, false), *second = json_print(w, false);
            if (strcmp(first, second) != 0)
                abort();
            free(first);
            free(second);
            json_free(v);
            json_free(w);
        }
    else if (!e.msg[0])
        abort();
    free(text);
    offers_free(l);
    return 0;
}
