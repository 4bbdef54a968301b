#include "inventory/offer.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/text.h"
#include "base/units.h"
#include "inventory/gpu.h"
#include "inventory/offer_fields.h"

static const char *const DEVICES[] = {"gpu", "cpu", NULL};
static const char *const MARKETS[] = {"on-demand", "spot", "reserved", "owned", NULL};
static const char *const FABRICS[] = {
    "none", "ethernet", "roce", "infiniband", "efa", "tcpx", "unknown", NULL};
static const char *const PROVENANCES[] = {"unknown", "reported", "table", "assumed", NULL};

const struct field FIELDS[OFFER_FIELD_COUNT] = {
#define X(symbol, member, name, kind, max)                                                         \
    {name, kind, offsetof(struct offer, member), sizeof(((struct offer *)0)->member), max},
    OFFER_FIELDS(X)
#undef X
};

/* Enumerated kinds: their words, and the value that means unknown. */
static const char *const *words_of(enum field_kind kind, int *unknown)
{
    switch (kind) {
    case FIELD_DEVICE:
        *unknown = DEVICE_UNKNOWN;
        return DEVICES;
    case FIELD_MARKET:
        *unknown = MARKET_UNKNOWN;
        return MARKETS;
    case FIELD_FABRIC:
        *unknown = FABRIC_UNKNOWN;
        return FABRICS;
    default:
        return NULL;
    }
}

static void *at(struct offer *o, enum offer_field f)
{
    return (char *)o + FIELDS[f].offset;
}

static const void *at_const(const struct offer *o, enum offer_field f)
{
    return (const char *)o + FIELDS[f].offset;
}

int field_word(const struct offer *o, enum offer_field f)
{
    int value; /* enumerations of these kinds are ints in every ABI we build for */
    memcpy(&value, at_const(o, f), sizeof(value));
    return value;
}

static void set_word(struct offer *o, enum offer_field f, int value)
{
    memcpy(at(o, f), &value, sizeof(value));
}

static void set_unknown(struct offer *o, enum offer_field f)
{
    int unknown;
    if (FIELDS[f].kind == FIELD_TEXT)
        *(char *)at(o, f) = '\0';
    else if (FIELDS[f].kind == FIELD_NUMBER)
        *(double *)at(o, f) = OFFER_UNKNOWN;
    else if (words_of(FIELDS[f].kind, &unknown))
        set_word(o, f, unknown);
    else
        *(int64_t *)at(o, f) = OFFER_UNKNOWN;
    o->provenance[f] = PROVENANCE_UNKNOWN;
}

void offer_init(struct offer *o)
{
    memset(o, 0, sizeof(*o));
    for (int f = 0; f < OFFER_FIELD_COUNT; f++)
        set_unknown(o, (enum offer_field)f);
}

const char *offer_field_name(enum offer_field f)
{
    return FIELDS[f].name;
}

enum offer_field offer_field_find(const char *name)
{
    int f = 0;
    while (f < OFFER_FIELD_COUNT && strcasecmp(FIELDS[f].name, name) != 0)
        f++;
    return (enum offer_field)f;
}

bool offer_is_known(const struct offer *o, enum offer_field f)
{
    int unknown;
    if (FIELDS[f].kind == FIELD_TEXT)
        return *(const char *)at_const(o, f) != '\0';
    if (words_of(FIELDS[f].kind, &unknown))
        return field_word(o, f) != unknown;
    return !isnan(offer_number(o, f));
}

double offer_number(const struct offer *o, enum offer_field f)
{
    double x = NAN;
    if (FIELDS[f].kind == FIELD_NUMBER)
        x = *(const double *)at_const(o, f);
    else if (FIELDS[f].kind == FIELD_COUNT || FIELDS[f].kind == FIELD_USD)
        x = (double)*(const int64_t *)at_const(o, f);
    if (!(x >= 0))
        return NAN;
    return FIELDS[f].kind == FIELD_USD ? x / (double)USD_MICRO : x;
}

/* Shortest decimal that reads back as the same double. */
static char *exact_number(double x)
{
    char *text = base_printf("%.15g", x);
    double back = strtod(text, NULL);
    if (back >= x && back <= x)
        return text;
    free(text);
    return base_printf("%.17g", x);
}

static char *exact_usd(int64_t micro)
{
    char *text =
        base_printf("%lld.%06lld", (long long)(micro / USD_MICRO), (long long)(micro % USD_MICRO));
    size_t n = strlen(text);
    while (text[n - 1] == '0')
        text[--n] = '\0';
    if (text[n - 1] == '.')
        text[n - 1] = '\0';
    return text;
}

char *offer_text(const struct offer *o, enum offer_field f)
{
    int unknown;
    const char *const *words = words_of(FIELDS[f].kind, &unknown);
    if (!offer_is_known(o, f))
        return base_strdup("");
    if (words)
        return base_strdup(words[field_word(o, f)]);
    switch (FIELDS[f].kind) {
    case FIELD_TEXT:
        return base_strdup(at_const(o, f));
    case FIELD_NUMBER:
        return exact_number(*(const double *)at_const(o, f));
    case FIELD_USD:
        return exact_usd(*(const int64_t *)at_const(o, f));
    default:
        return base_printf("%lld", (long long)*(const int64_t *)at_const(o, f));
    }
}

static bool parse_word(enum offer_field f, const char *text, int *out)
{
    int unknown;
    const char *const *words = words_of(FIELDS[f].kind, &unknown);
    if (FIELDS[f].kind == FIELD_FABRIC) {
        enum offer_fabric fabric;
        if (!offer_fabric_parse(text, &fabric))
            return false;
        *out = (int)fabric;
        return true;
    }
    for (int i = 0; words[i]; i++)
        if (strcasecmp(words[i], text) == 0) {
            *out = i;
            return true;
        }
    return false;
}

static enum rc set_value(
    struct offer *o, enum offer_field f, const char *text, enum provenance from, struct err *e)
{
    int64_t micro;
    double x;
    int word;
    enum rc rc = RC_OK;
    switch (FIELDS[f].kind) {
    case FIELD_TEXT:
        offer_put_text(o, f, text, from);
        return RC_OK;
    case FIELD_USD:
        rc = units_parse_usd(text, &micro, e);
        if (!rc && micro > (int64_t)FIELDS[f].max)
            rc = err_set(e, RC_INVALID, "'%s' is too large", text);
        if (rc)
            return rc;
        *(int64_t *)at(o, f) = micro;
        o->provenance[f] = (uint8_t)from;
        return RC_OK;
    case FIELD_COUNT:
    case FIELD_NUMBER:
        rc = units_parse_number(text, &x, e);
        return rc ? rc : offer_check_number(o, f, x, from, e);
    default:
        if (!parse_word(f, text, &word))
            return err_set(e, RC_INVALID, "'%s' is not a known word", text);
        set_word(o, f, word);
        o->provenance[f] = (uint8_t)(offer_is_known(o, f) ? from : PROVENANCE_UNKNOWN);
        return RC_OK;
    }
}

enum rc offer_set_text(
    struct offer *o, enum offer_field f, const char *text, enum provenance from, struct err *e)
{
    if (!*text) {
        set_unknown(o, f);
        return RC_OK;
    }
    enum rc rc = set_value(o, f, text, from, e);
    return rc ? err_in(e, "'%s'", FIELDS[f].name) : RC_OK;
}

enum rc offer_check_number(
    struct offer *o, enum offer_field f, double x, enum provenance from, struct err *e)
{
    if (!(x >= 0))
        return err_set(e, RC_INVALID, "%g is negative", x);
    if (x > FIELDS[f].max)
        return err_set(e, RC_INVALID, "%g is too large", x);
    if (FIELDS[f].kind == FIELD_COUNT && x > floor(x))
        return err_set(e, RC_INVALID, "%g must be a whole number", x);
    offer_put_number(o, f, x, from);
    return RC_OK;
}

void offer_put_number(struct offer *o, enum offer_field f, double value, enum provenance from)
{
    if (FIELDS[f].kind == FIELD_NUMBER)
        *(double *)at(o, f) = value;
    else if (FIELDS[f].kind == FIELD_USD)
        *(int64_t *)at(o, f) = llround(value * (double)USD_MICRO);
    else if (FIELDS[f].kind == FIELD_COUNT)
        *(int64_t *)at(o, f) = llround(value);
    else
        set_word(o, f, (int)value);
    o->provenance[f] = (uint8_t)from;
}

void offer_put_text(struct offer *o, enum offer_field f, const char *text, enum provenance from)
{
    char *safe = text_safe(text);
    char *start = safe;
    while (*start == ' ')
        start++;
    size_t n = strlen(start);
    /* cut at a character, not inside one */
    if (n >= FIELDS[f].size)
        for (n = FIELDS[f].size - 1; n && ((unsigned char)start[n] & 0xC0) == 0x80;)
            n--;
    while (n && start[n - 1] == ' ')
        n--;
    memset(at(o, f), 0, FIELDS[f].size); /* no rests: equal offers have equal bytes */
    memcpy(at(o, f), start, n);
    o->provenance[f] = (uint8_t)(n ? from : PROVENANCE_UNKNOWN);
    free(safe);
}

void offer_problem(struct offer *o, const char *fmt, ...)
{
    if (o->problem[0])
        return;
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return;
    char *safe = text_safe(text);
    str_copy(o->problem, sizeof(o->problem), safe);
    free(safe);
    free(text);
}

const char *offer_device_name(enum offer_device d)
{
    return DEVICES[d];
}

const char *offer_market_name(enum offer_market m)
{
    return MARKETS[m];
}

const char *offer_fabric_name(enum offer_fabric f)
{
    return FABRICS[f];
}

const char *provenance_name(enum provenance p)
{
    return PROVENANCES[p];
}

bool offer_fabric_parse(const char *text, enum offer_fabric *out)
{
    static const struct {
        const char *start;
        enum offer_fabric fabric;
    } NAMES[] = {{"infiniband", FABRIC_INFINIBAND}, {"ib", FABRIC_INFINIBAND},
        {"roce", FABRIC_ROCE}, {"rdma over converged", FABRIC_ROCE}, {"efa", FABRIC_EFA},
        {"tcpx", FABRIC_TCPX}, {"gpudirect-tcpx", FABRIC_TCPX}, {"eth", FABRIC_ETHERNET},
        {"tcp", FABRIC_ETHERNET}, {"none", FABRIC_NONE}, {"unknown", FABRIC_UNKNOWN}};
    for (size_t i = 0; i < BASE_COUNT(NAMES); i++) {
        size_t n = strlen(NAMES[i].start);
        /* "ib" and "ib ndr", but not "ibm" */
        bool is_whole = n > 2 || !isalpha((unsigned char)text[strnlen(text, n)]);
        if (strncasecmp(text, NAMES[i].start, n) == 0 && is_whole) {
            *out = NAMES[i].fabric;
            return true;
        }
    }
    return false;
}

bool offer_market_parse(const char *text, enum offer_market *out)
{
    static const struct {
        const char *name;
        enum offer_market market;
    } NAMES[] = {{"on-demand", MARKET_ON_DEMAND}, {"ondemand", MARKET_ON_DEMAND},
        {"demand", MARKET_ON_DEMAND}, {"on_demand", MARKET_ON_DEMAND}, {"spot", MARKET_SPOT},
        {"preemptible", MARKET_SPOT}, {"interruptible", MARKET_SPOT}, {"bid", MARKET_SPOT},
        {"reserved", MARKET_RESERVED}, {"owned", MARKET_OWNED}, {"own", MARKET_OWNED}};
    for (size_t i = 0; i < BASE_COUNT(NAMES); i++)
        if (strcasecmp(text, NAMES[i].name) == 0) {
            *out = NAMES[i].market;
            return true;
        }
    return false;
}

const struct gpu *offer_gpu(const struct offer *o)
{
    return o->device == DEVICE_GPU
               ? gpu_find(o->gpu, o->gpu_memory_bytes > 0 ? o->gpu_memory_bytes : 0)
               : NULL;
}

double offer_seconds_left(const struct offer *o)
{
    if (!o->available_until[0] || !o->fetched_at[0])
        return NAN;
    double until = clock_parse_rfc3339(o->available_until);
    double now = clock_parse_rfc3339(o->fetched_at);
    return until < 0 || now < 0 ? NAN : fmax(0, until - now);
}

int64_t offer_price_per_gpu_hour(const struct offer *o)
{
    if (o->price_usd_micro_per_hour < 0 || o->gpus_per_node <= 0)
        return OFFER_UNKNOWN;
    return (o->price_usd_micro_per_hour + o->gpus_per_node - 1) / o->gpus_per_node;
}
