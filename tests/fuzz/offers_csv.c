#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static struct offers *read_csv(const char *text, size_t len)
{
    struct offers *l = offers_new();
    struct source_input in = {.text = text, .len = len};
    struct err e = ERR_INIT;
    if (SOURCE_OFFERS_CSV.read(l, &in, &e) == RC_OK)
        return l;
    if (!e.msg[0])
        abort();
    offers_free(l);
    return NULL;
}

/* What was read reads back identically from what is written. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct offers *l = read_csv((const char *)data, len);
    if (!l)
        return 0;
    struct str s = STR_INIT;
    offers_write_csv(l, &s);
    struct offers *again = read_csv(str_text(&s), s.len);
    if (!again || offers_count(again) != offers_count(l))
        abort();
    for (size_t i = 0; i < offers_count(l); i++)
        if (memcmp(offers_at(l, i), offers_at(again, i), sizeof(struct offer)) != 0)
            abort();
    str_release(&s);
    offers_free(again);
    offers_free(l);
    return 0;
}
