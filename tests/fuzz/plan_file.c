#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/str.h"
#include "planner/explain.h"
#include "planner/plan_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A plan that was accepted can be explained. Models in plans are objects, so no file is opened. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct err e = ERR_INIT;
    struct json *v = NULL;
    struct plan_file p;
    if (json_parse(&v, (const char *)data, len, &e) == RC_OK &&
        json_is_obj(json_get(json_get(v, "job"), "model"))) {
        e = (struct err)ERR_INIT;
        if (plan_file_from_json(&p, v, &e) == RC_OK) {
            struct str s = STR_INIT;
            explain_plan_file(&s, &p, NULL);
            str_release(&s);
            plan_file_release(&p);
        } else if (!e.msg[0]) {
            abort();
        }
    }
    json_free(v);
    return 0;
}
