#include "launcher/hosts.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A list that was read survives hosts.json of the run folder. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct hosts hosts, again;
    struct err e = ERR_INIT;
    if (hosts_parse(&hosts, (const char *)data, len, "hosts", &e)) {
        if (!e.msg[0])
            abort();
        return 0;
    }
    struct json *v = hosts_to_json(&hosts);
    if (hosts_from_json(&again, v, "hosts.json", &e) || again.count != hosts.count)
        abort();
    for (size_t i = 0; i < hosts.count; i++)
        free(host_label(&hosts.v[i]));
    json_free(v);
    hosts_release(&again);
    hosts_release(&hosts);
    return 0;
}
