#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "run/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A spec that was accepted is written and accepted again, unchanged. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct json *v;
    struct run_spec spec, again;
    struct err e = ERR_INIT;
    if (json_parse(&v, (const char *)data, len, NULL))
        return 0;
    if (run_spec_from_json(&spec, v, &e)) {
        if (!e.msg[0])
            abort();
        json_free(v);
        return 0;
    }
    struct json *first = run_spec_to_json(&spec);
    if (run_spec_from_json(&again, first, &e))
        abort();
    struct json *second = run_spec_to_json(&again);
    char *a = json_print(first, false), *b = json_print(second, false);
    if (strcmp(a, b) != 0)
        abort();
    free(a);
    free(b);
    json_free(first);
    json_free(second);
    run_spec_release(&spec);
    run_spec_release(&again);
    json_free(v);
    return 0;
}
