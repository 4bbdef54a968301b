/* Source: an offers/1 document, as `berth offers --json` prints it. */
#include <ctype.h>
#include <string.h>

#include "base/json.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"

static bool recognises(const char *text, size_t len)
{
    size_t i = len >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
    while (i < len && isspace((unsigned char)text[i]))
        i++;
    return i < len && (text[i] == '{' || text[i] == '[');
}

static enum rc read_offers(
    struct offers *out, const struct json *doc, struct str *unknown, struct err *e)
{
    const char *schema = json_str(doc, "schema", "");
    if (strcmp(schema, "offers/1") != 0)
        return err_set(e, RC_INVALID, "'schema' must be \"offers/1\"");
    const struct json *list = NULL;
    enum rc rc = json_need_arr(doc, "offers", &list, e);
    for (size_t i = 0; !rc && i < json_len(list); i++) {
        struct offer o;
        rc = offer_from_json(&o, json_at(list, i), e);
        if (rc)
            return err_in(e, "offer %zu", i + 1);
        if (unknown)
            offer_json_unknown(json_at(list, i), unknown);
        offer_settle(&o);
        rc = offers_add(out, &o, e);
    }
    return rc;
}

static enum rc read_text(struct offers *out, const struct source_input *in, struct err *e)
{
    struct json *doc;
    enum rc rc = json_parse(&doc, in->text, in->len, e);
    if (rc)
        return rc;
    rc = read_offers(out, doc, in->unknown, e);
    json_free(doc);
    return rc;
}

const struct source SOURCE_OFFERS_JSON = {
    .name = "offers-json",
    .summary = "an offers/1 document",
    .recognises = recognises,
    .read = read_text,
};
