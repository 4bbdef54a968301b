#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* What was read prints and reads again. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct json *v;
    if (json_parse(&v, (const char *)data, len, NULL))
        return 0;
    free(json_print(v, true));
    json_free(v);
    return 0;
}
