#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "planner/job.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* A job that was read and finished can be written, and reads back as it was. A model may be named
 * by path; texts with a slash are left out, so that no file is opened. */
static void read_job(const struct json *v)
{
    struct err e = ERR_INIT;
    struct job j, again;
    job_init(&j);
    job_init(&again);
    const char *model = json_str(v, "model", "");
    bool is_path = strchr(model, '/') || strstr(model, ".json") || strcmp(model, "-") == 0;
    if (!is_path && job_read_json(&j, v, &e) == RC_OK && job_finish(&j, &e) == RC_OK) {
        struct json *first = job_to_json(&j);
        if (job_read_json(&again, first, &e))
            abort();
        struct json *second = job_to_json(&again);
        char *a = json_print(first, false), *b = json_print(second, false);
        if (strcmp(a, b) != 0 || job_steps(&j) < 1)
            abort();
        free(a);
        free(b);
        json_free(first);
        json_free(second);
    } else if (!is_path && !e.msg[0]) {
        abort();
    }
    job_release(&j);
    job_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct err e = ERR_INIT;
    struct json *v = NULL;
    if (json_parse(&v, (const char *)data, len, &e) == RC_OK)
        read_job(v);
    json_free(v);
    return 0;
}
