#include "planner/wire.h"

#include <stddef.h>
#include <string.h>

static const char *const names[WIRE_COUNT] = {"plain", "int8", "fp8"};

const char *wire_name(enum wire w)
{
    return names[w];
}

enum rc wire_parse(const char *name, enum wire *out, struct err *e)
{
    for (int w = 0; name && w < WIRE_COUNT; w++) {
        if (strcmp(names[w], name) != 0)
            continue;
        *out = (enum wire)w;
        return RC_OK;
    }
    return err_set(e, RC_USAGE,
        "unknown format '%s' of what travels between ranks; there are "
        "plain, int8 and fp8",
        name ? name : "");
}

int64_t wire_bytes(int64_t elems)
{
    return (elems + 3) / 4 * 4 + (elems + WIRE_BLOCK - 1) / WIRE_BLOCK * 4;
}
