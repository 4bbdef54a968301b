/* An offer as a member of offers/1, both ways, field by field from the table in offer_fields.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "inventory/offer.h"
#include "inventory/offer_fields.h"

static const char BILLING[] = "billing.";

static const char *leaf_name(enum offer_field f)
{
    const char *name = FIELDS[f].name;
    return str_starts(name, BILLING) ? name + strlen(BILLING) : name;
}

static bool is_billing(enum offer_field f)
{
    return str_starts(FIELDS[f].name, BILLING);
}

static void add_field(struct json *obj, const struct offer *o, enum offer_field f)
{
    const char *name = leaf_name(f);
    if (f == OFFER_FABRIC) {
        json_add_str(obj, name, offer_fabric_name(o->fabric));
    } else if (!offer_is_known(o, f)) {
        json_add_null(obj, name);
    } else if (FIELDS[f].kind == FIELD_COUNT) {
        json_add_int(obj, name, (int64_t)offer_number(o, f));
    } else if (FIELDS[f].kind == FIELD_NUMBER || FIELDS[f].kind == FIELD_USD) {
        json_add_num(obj, name, offer_number(o, f));
    } else {
        char *text = offer_text(o, f);
        json_add_str(obj, name, text);
        free(text);
    }
}

struct json *offer_to_json(const struct offer *o)
{
    struct json *obj = json_obj(), *billing = json_obj(), *provenance = json_obj();
    for (int i = 0; i < OFFER_FIELD_COUNT; i++) {
        enum offer_field f = (enum offer_field)i;
        add_field(is_billing(f) ? billing : obj, o, f);
        if (f == OFFER_AVAILABLE_UNTIL)
            json_add(obj, "billing", billing);
        json_add_str(
            provenance, FIELDS[f].name, provenance_name((enum provenance)o->provenance[f]));
    }
    json_add(obj, "provenance", provenance);
    json_add_str(obj, "problem", o->problem[0] ? o->problem : NULL);
    return obj;
}

/* Names of the type a field wants, for the sentence. */
static const char *wanted(enum field_kind kind)
{
    if (kind == FIELD_COUNT)
        return "a whole number";
    return kind == FIELD_NUMBER || kind == FIELD_USD ? "a number" : "a text";
}

static void read_field(
    struct offer *o, enum offer_field f, const struct json *v, enum provenance from)
{
    struct err e = ERR_INIT;
    enum field_kind kind = FIELDS[f].kind;
    bool is_number = kind == FIELD_COUNT || kind == FIELD_NUMBER || kind == FIELD_USD;
    if (is_number ? !json_is_num(v) : !json_is_str(v)) {
        offer_problem(o, "'%s' must be %s", FIELDS[f].name, wanted(kind));
        return;
    }
    enum rc rc;
    if (!is_number)
        rc = offer_set_text(o, f, json_as_str(v, ""), from, &e);
    else if (kind == FIELD_USD && json_as_num(v, 0) * 1e6 > FIELDS[f].max)
        rc = err_set(&e, RC_INVALID, "'%s': %g is too large", FIELDS[f].name, json_as_num(v, 0));
    else if (kind == FIELD_USD && !(json_as_num(v, 0) >= 0))
        rc = err_set(&e, RC_INVALID, "'%s': %g is negative", FIELDS[f].name, json_as_num(v, 0));
    else
        rc = offer_check_number(o, f, json_as_num(v, 0), from, &e);
    if (rc && is_number && kind != FIELD_USD)
        err_in(&e, "'%s'", FIELDS[f].name);
    if (rc)
        offer_problem(o, "%s", e.msg);
}

/* The word of the document; a value without one was reported by whoever wrote the document. */
static enum provenance read_provenance(const struct json *v, enum offer_field f)
{
    const char *word = json_str(json_get(v, "provenance"), FIELDS[f].name, "reported");
    for (int p = PROVENANCE_REPORTED; p <= PROVENANCE_ASSUMED; p++)
        if (strcmp(word, provenance_name((enum provenance)p)) == 0)
            return (enum provenance)p;
    return PROVENANCE_REPORTED;
}

enum rc offer_from_json(struct offer *out, const struct json *v, struct err *e)
{
    offer_init(out);
    if (!json_is_obj(v))
        return err_set(e, RC_INVALID, "must be an object");
    const struct json *billing = json_get(v, "billing");
    for (int i = 0; i < OFFER_FIELD_COUNT; i++) {
        enum offer_field f = (enum offer_field)i;
        const struct json *value = json_get(is_billing(f) ? billing : v, leaf_name(f));
        if (value)
            read_field(out, f, value, read_provenance(v, f));
    }
    if (billing && !json_is_obj(billing))
        offer_problem(out, "'billing' must be an object");
    offer_problem(out, "%s", json_str(v, "problem", ""));
    return RC_OK;
}

/* --- what nobody reads --- */

static bool is_member(const char *name, bool in_billing)
{
    static const char *const OTHERS[] = {"billing", "provenance", "problem"};
    for (size_t i = 0; !in_billing && i < sizeof(OTHERS) / sizeof(OTHERS[0]); i++)
        if (strcmp(name, OTHERS[i]) == 0)
            return true;
    for (int f = 0; f < OFFER_FIELD_COUNT; f++)
        if (is_billing((enum offer_field)f) == in_billing &&
            strcmp(name, leaf_name((enum offer_field)f)) == 0)
            return true;
    return false;
}

static void add_unknown(const struct json *obj, bool in_billing, struct str *unknown)
{
    void *cursor = NULL;
    const char *name;
    const struct json *value;
    while (json_next(obj, &cursor, &name, &value)) {
        if (is_member(name, in_billing))
            continue;
        struct str quoted = STR_INIT;
        str_addf(&quoted, "'%s%s'", in_billing ? BILLING : "", name);
        if (!strstr(str_text(unknown), str_text(&quoted)))
            str_addf(unknown, "%s%s", unknown->len ? ", " : "", str_text(&quoted));
        str_release(&quoted);
    }
}

void offer_json_unknown(const struct json *v, struct str *unknown)
{
    add_unknown(v, false, unknown);
    add_unknown(json_get(v, "billing"), true, unknown);
}
