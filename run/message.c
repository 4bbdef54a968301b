#include "run/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

void msg_reader_init(struct msg_reader *r)
{
    /* room for one message and for what one read may bring behind it */
    str_init(&r->buf, 2 * MSG_MAX_BYTES + (64 << 10));
    r->scanned = 0;
}

void msg_reader_release(struct msg_reader *r)
{
    str_release(&r->buf);
    r->scanned = 0;
}

void msg_reader_feed(struct msg_reader *r, const char *bytes, size_t n)
{
    str_addn(&r->buf, bytes, n);
}

static enum rc parse_line(struct json **out, const char *line, size_t len, struct err *e)
{
    enum rc rc = json_parse(out, line, len, e);
    if (rc)
        return err_in(e, "message");
    if (!json_is_obj(*out)) {
        json_free(*out);
        *out = NULL;
        return err_set(e, RC_INVALID, "message is not a JSON object");
    }
    return RC_OK;
}

enum rc msg_take(struct msg_reader *r, struct json **out, struct err *e)
{
    *out = NULL;
    if (r->buf.is_truncated)
        return err_set(e, RC_INVALID, "peer sends faster than its messages are taken");
    const char *text = str_text(&r->buf);
    const char *nl =
        r->buf.len > r->scanned ? memchr(text + r->scanned, '\n', r->buf.len - r->scanned) : NULL;
    size_t len = nl ? (size_t)(nl - text) : r->buf.len;
    if (len > MSG_MAX_BYTES)
        return err_set(e, RC_INVALID, "message is longer than %d bytes", MSG_MAX_BYTES);
    if (!nl) {
        r->scanned = r->buf.len;
        return RC_OK;
    }
    enum rc rc = parse_line(out, text, len, e);
    str_drop(&r->buf, len + 1);
    r->scanned = 0;
    return rc;
}

void msg_put(struct str *out, const struct json *v)
{
    char *text = json_print(v, false);
    if (strlen(text) <= MSG_MAX_BYTES)
        str_add(out, text);
    else
        str_add(out, "{\"type\":\"error\",\"message\":\"the answer is too long for a message\"}");
    str_addc(out, '\n');
    free(text);
}

struct json *msg_new(const char *type)
{
    struct json *v = json_obj();
    json_add_str(v, "type", type);
    return v;
}

struct json *msg_hello(void)
{
    struct json *v = msg_new("hello");
    json_add_str(v, "protocol", MSG_PROTOCOL);
    json_add_str(v, "version", BERTH_VERSION);
    return v;
}

bool msg_is(const struct json *v, const char *type)
{
    return strcmp(json_str(v, "type", ""), type) == 0;
}

enum rc msg_check_hello(const struct json *v, struct err *e)
{
    if (!msg_is(v, "hello"))
        return err_set(e, RC_INVALID, "peer does not speak %s: no hello", MSG_PROTOCOL);
    const char *protocol = json_str(v, "protocol", "");
    if (strcmp(protocol, MSG_PROTOCOL) != 0)
        return err_set(e, RC_INVALID, "peer speaks '%s' (version '%s'), this is %s (version %s)",
            protocol, json_str(v, "version", "?"), MSG_PROTOCOL, BERTH_VERSION);
    return RC_OK;
}
