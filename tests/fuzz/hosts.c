#include "launcher/hosts.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Any text is a list or one sentence; what was read can be written and read again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct hosts h, again;
    struct err e = ERR_INIT;
    if (hosts_parse(&h, (const char *)data, len, "fuzz", &e)) {
        if (!e.msg[0] || h.v)
            abort();
        return 0;
    }
    struct json *v = hosts_to_json(&h);
    /* a name that is no UTF-8 is not the same afterwards; two of them may become equal */
    if (hosts_from_json(&again, v, "fuzz", &e) == RC_OK) {
        if (again.count != h.count)
            abort();
        hosts_release(&again);
    }
    json_free(v);
    hosts_release(&h);
    return 0;
}
