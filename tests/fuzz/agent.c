/* What comes over the wire to an agent: bytes to messages, messages to the coordinator and to the
 * readers of specs, records and states. */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "engine/agent_coordinator.h"
#include "run/message.h"
#include "run/spec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void ignore_message(void *ctx, size_t host, const struct json *message)
{
    (void)ctx;
    (void)host;
    char *text = json_print(message, false);
    free(text);
}

static void ignore_event(void *ctx, const struct json *event)
{
    (void)ctx;
    (void)event;
}

static void take(struct coord *c, const struct json *v, double now_s)
{
    struct run_spec spec;
    struct record_failure f;
    struct err e = ERR_INIT;
    coord_event(c, 1, v, now_s);
    coord_tick(c, now_s);
    json_free(coord_status(c, now_s));
    record_failure_from_json(&f, v);
    msg_check_hello(v, &e);
    if (run_spec_from_json(&spec, v, &e) == RC_OK) {
        json_free(run_spec_to_json(&spec));
        run_spec_release(&spec);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static const struct coord_ops ops = {ignore_message, ignore_event};
    struct run_spec spec;
    struct msg_reader in;
    struct err e = ERR_INIT;
    struct json *v;
    double now_s = 1;
    run_spec_init(&spec);
    run_spec_add_host(&spec, "a", "10.0.0.1", 0, 2);
    run_spec_add_host(&spec, "b", "10.0.0.2", 1, 2);
    struct coord *c = coord_new(&spec, &ops, NULL, 0, 0);
    coord_joined(c, 0, 0);
    coord_joined(c, 1, 0);
    msg_reader_init(&in);
    for (size_t at = 0; at < len; at += 4096) {
        msg_reader_feed(&in, (const char *)data + at, len - at < 4096 ? len - at : 4096);
        while (msg_take(&in, &v, &e) == RC_OK && v) {
            take(c, v, now_s += 0.5);
            json_free(v);
        }
        if (e.code)
            break;
    }
    msg_reader_release(&in);
    coord_free(c);
    run_spec_release(&spec);
    return 0;
}
