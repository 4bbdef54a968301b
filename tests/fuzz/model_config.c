#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "planner/model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A model that was accepted can be laid out for any number of shards without overflow. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct err e = ERR_INIT;
    struct json *v = NULL;
    struct model m;
    if (json_parse(&v, (const char *)data, len, &e) == RC_OK) {
        e = (struct err)ERR_INIT;
        if (model_from_config(&m, v, &e) == RC_OK) {
            struct unit_layout u;
            for (int unit = 0; unit < model_units(&m); unit += 1 + model_units(&m) / 3)
                model_unit_layout(&m, unit, 1 << 20, &u);
            if (model_params(&m) <= 0 || u.shard_elems * (1 << 20) != u.elems)
                abort();
        } else if (!e.msg[0]) {
            abort();
        }
    }
    json_free(v);
    return 0;
}
