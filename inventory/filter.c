#include "inventory/filter.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"

enum operation { OP_HAS, OP_LESS, OP_AT_MOST, OP_MORE, OP_AT_LEAST, OP_EQUAL };

struct term {
    const struct key *key;
    enum operation operation;
    bool is_negated;
    bool is_exact; /* the number had a unit: compare bytes, not what the price list says */
    double number;
    char *text; /* OP_HAS: values separated by commas */
};

struct filter {
    struct term *terms;
    size_t n, cap;
};

/* A key is either a number (value) or a text (matches). */
struct key {
    const char *name;
    const char *help;
    double (*value)(const struct offer *o, bool is_exact);
    bool (*matches)(const struct offer *o, const char *text);
    const char *unit; /* of a bare number of a size; NULL: the key is no size */
};

static bool contains(const char *text, const char *part)
{
    return strcasestr(text, part) != NULL;
}

/* --- numbers ---------------------------------------------------------------------------------- */

/* A bare "80" means what the price list says, although the driver of an H100 reports 79.6 GiB. */
static double vram(const struct offer *o, bool is_exact)
{
    double bytes = offer_number(o, OFFER_GPU_MEMORY);
    const struct gpu *g = is_exact ? NULL : offer_gpu(o);
    return g && g->memory_gb_sold > 0 && gpu_has_memory(g, o->gpu_memory_bytes)
               ? 1e9 * g->memory_gb_sold
               : bytes;
}

static double price(const struct offer *o, bool is_exact)
{
    (void)is_exact;
    int64_t micro = offer_price_per_gpu_hour(o);
    return micro < 0 ? NAN : (double)micro / (double)USD_MICRO;
}

static double node_price(const struct offer *o, bool is_exact)
{
    (void)is_exact;
    return offer_number(o, OFFER_PRICE);
}

/* Nodes that can be had together. */
static double nodes(const struct offer *o, bool is_exact)
{
    (void)is_exact;
    return fmin(offer_number(o, OFFER_NODES_AVAILABLE), offer_number(o, OFFER_MAX_NODES));
}

static double gpus(const struct offer *o, bool is_exact)
{
    (void)is_exact;
    return offer_number(o, OFFER_GPUS_PER_NODE);
}

static double gbps(const struct offer *o, bool is_exact)
{
    (void)is_exact;
    return offer_number(o, OFFER_INTER_GBPS);
}

static double vcpus(const struct offer *o, bool is_exact)
{
    (void)is_exact;
    return offer_number(o, OFFER_VCPUS);
}

static double ram(const struct offer *o, bool is_exact)
{
    (void)is_exact;
    return offer_number(o, OFFER_RAM);
}

static double nvme(const struct offer *o, bool is_exact)
{
    (void)is_exact;
    return offer_number(o, OFFER_NVME);
}

/* --- texts ------------------------------------------------------------------------------------ */

/* A family ("h100") holds for all its variants, a model's name for that model, else a part. */
static bool matches_gpu(const struct offer *o, const char *text)
{
    const struct gpu *own = offer_gpu(o);
    const char *family = gpu_family(text);
    if (family)
        return own && strcmp(own->family, family) == 0;
    const struct gpu *wanted = gpu_find(text, 0);
    return wanted ? own == wanted : contains(o->gpu, text);
}

static bool matches_provider(const struct offer *o, const char *text)
{
    return strcasecmp(o->provider, text) == 0;
}

static bool matches_region(const struct offer *o, const char *text)
{
    return contains(o->region, text);
}

static bool matches_id(const struct offer *o, const char *text)
{
    return contains(o->id, text);
}

static bool matches_fabric(const struct offer *o, const char *text)
{
    enum offer_fabric fabric;
    return offer_fabric_parse(text, &fabric) && o->fabric == fabric;
}

static bool matches_market(const struct offer *o, const char *text)
{
    enum offer_market market;
    return offer_market_parse(text, &market) && o->market == market;
}

static bool matches_device(const struct offer *o, const char *text)
{
    const char *name = offer_device_name(o->device);
    return name && strcasecmp(name, text) == 0;
}

static bool matches_arch(const struct offer *o, const char *text)
{
    return strcasecmp(o->arch, text) == 0;
}

static bool matches_anything(const struct offer *o, const char *text)
{
    return contains(o->provider, text) || contains(o->id, text) || contains(o->gpu, text) ||
           contains(o->region, text);
}

static const struct key KEYS[] = {
    {"gpu", "GPU family, model or part of its name", NULL, matches_gpu, NULL},
    {"provider", "provider", NULL, matches_provider, NULL},
    {"region", "part of the region's name", NULL, matches_region, NULL},
    {"id", "part of the offer's id", NULL, matches_id, NULL},
    {"fabric", "network: none, ethernet, roce, ib, efa, tcpx", NULL, matches_fabric, NULL},
    {"market", "on-demand, spot, reserved, owned", NULL, matches_market, NULL},
    {"device", "gpu or cpu", NULL, matches_device, NULL},
    {"arch", "x86_64 or arm64", NULL, matches_arch, NULL},
    {"vram", "memory of a GPU; a bare number is GB as sold", vram, NULL, "GB"},
    {"price", "USD per GPU and hour", price, NULL, NULL},
    {"node_price", "USD per node and hour", node_price, NULL, NULL},
    {"nodes", "nodes to be had on one fabric", nodes, NULL, NULL},
    {"gpus", "GPUs of a node", gpus, NULL, NULL},
    {"gbps", "gigabit per second between nodes", gbps, NULL, NULL},
    {"vcpus", "virtual CPUs of a node", vcpus, NULL, NULL},
    {"ram", "memory of a node; a bare number is GiB", ram, NULL, "GiB"},
    {"nvme", "local disk of a node; a bare number is TB", nvme, NULL, "TB"},
};
static const struct key ANYTHING = {"", "", NULL, matches_anything, NULL};

/* Words that stand for a whole term. */
static const struct {
    const char *word, *term;
} FLAGS[] = {{"spot", "market:spot"}, {"on-demand", "market:on-demand"}, {"owned", "market:owned"},
    {"reserved", "market:reserved"}, {"cpu", "device:cpu"}, {"ib", "fabric:ib"},
    {"infiniband", "fabric:ib"}, {"priced", "price>=0"}};

bool filter_key_at(size_t i, const char **key, const char **help)
{
    if (i >= BASE_COUNT(KEYS))
        return false;
    *key = KEYS[i].name;
    *help = KEYS[i].help;
    return true;
}

/* --- parsing ---------------------------------------------------------------------------------- */

static const struct key *find_key(const char *name, size_t len)
{
    for (size_t i = 0; i < BASE_COUNT(KEYS); i++)
        if (strlen(KEYS[i].name) == len && strncasecmp(KEYS[i].name, name, len) == 0)
            return &KEYS[i];
    return NULL;
}

static enum rc unknown_key(const char *term, size_t len, struct err *e)
{
    char *name = base_strndup(term, len);
    const char *near = NULL;
    int best = 3;
    for (size_t i = 0; i < BASE_COUNT(KEYS); i++) {
        int d = str_distance(name, KEYS[i].name);
        if (d < best && d < (int)strlen(name)) {
            best = d;
            near = KEYS[i].name;
        }
    }
    if (near)
        err_set(e, RC_USAGE, "filter '%s': unknown key '%s'; did you mean '%s'?", term, name, near);
    else
        err_set(e, RC_USAGE,
            "filter '%s': unknown key '%s'; keys are gpu, provider, region, id, fabric, market, "
            "device, arch, vram, price, node_price, nodes, gpus, gbps, vcpus, ram, nvme",
            term, name);
    free(name);
    return RC_USAGE;
}

static enum operation take_operation(const char **p)
{
    static const struct {
        const char *text;
        enum operation operation;
    } OPERATIONS[] = {{"<=", OP_AT_MOST}, {">=", OP_AT_LEAST}, {"==", OP_EQUAL}, {"<", OP_LESS},
        {">", OP_MORE}, {"=", OP_EQUAL}, {":", OP_HAS}};
    for (size_t i = 0; i < BASE_COUNT(OPERATIONS); i++)
        if (str_starts(*p, OPERATIONS[i].text)) {
            *p += strlen(OPERATIONS[i].text);
            return OPERATIONS[i].operation;
        }
    return OP_HAS;
}

static enum rc parse_number(struct term *t, const char *text, struct err *e)
{
    double x;
    int64_t n;
    bool is_bare = !units_parse_number(text, &x, NULL);
    if (t->key->unit) {
        char *with_unit = base_printf("%s%s", text, is_bare ? t->key->unit : "");
        enum rc rc = units_parse_bytes(with_unit, &n, e);
        free(with_unit);
        t->number = (double)n;
        t->is_exact = !is_bare;
        return rc;
    }
    if (t->key->value == price || t->key->value == node_price) {
        enum rc rc = units_parse_usd(text, &n, e);
        t->number = (double)n / (double)USD_MICRO;
        return rc;
    }
    enum rc rc = units_parse_number(text, &t->number, e);
    return rc;
}

/* "key:value", "key<number" or a word, without the '!'. */
static enum rc parse_term(struct term *t, const char *text, struct err *e)
{
    size_t len = strcspn(text, ":<>=");
    const char *p = text + len;
    if (!*p) {
        t->key = &ANYTHING;
        t->text = base_strdup(text);
        return RC_OK;
    }
    t->key = find_key(text, len);
    if (!t->key)
        return unknown_key(text, len, e);
    t->operation = take_operation(&p);
    if (!*p)
        return err_set(e, RC_USAGE, "filter '%s': the value is missing", text);
    if (t->key->matches && t->operation != OP_HAS && t->operation != OP_EQUAL)
        return err_set(e, RC_USAGE, "filter '%s': '%s' is a text, write %s:VALUE", text,
            t->key->name, t->key->name);
    if (t->key->matches) {
        t->operation = OP_HAS;
        t->text = base_strdup(p);
        return RC_OK;
    }
    if (t->operation == OP_HAS)
        t->operation = OP_EQUAL;
    if (parse_number(t, p, e)) {
        err_in(e, "filter '%s'", text);
        e->code = RC_USAGE;
        return RC_USAGE;
    }
    return RC_OK;
}

/* Words for fabrics and markets are few: a wrong one is a mistake, not a filter nothing meets. */
static enum rc check_words(const struct term *t, struct err *e)
{
    enum offer_fabric fabric;
    enum offer_market market;
    if (t->operation != OP_HAS || !t->text)
        return RC_OK;
    char *copy = base_strdup(t->text), *save = NULL;
    enum rc rc = RC_OK;
    for (char *p = strtok_r(copy, ",", &save); p && !rc; p = strtok_r(NULL, ",", &save)) {
        bool is_bad = (t->key->matches == matches_fabric && !offer_fabric_parse(p, &fabric)) ||
                      (t->key->matches == matches_market && !offer_market_parse(p, &market));
        if (is_bad)
            rc = err_set(e, RC_USAGE, "filter '%s:%s': '%s' is not one of %s", t->key->name,
                t->text, p, t->key->help);
    }
    free(copy);
    return rc;
}

static const char *expand_flag(const char *word)
{
    for (size_t i = 0; i < BASE_COUNT(FLAGS); i++)
        if (strcasecmp(FLAGS[i].word, word) == 0)
            return FLAGS[i].term;
    return word;
}

static enum rc add_term(struct filter *f, const char *word, struct err *e)
{
    struct term t = {0};
    while (*word == '!') {
        t.is_negated = !t.is_negated;
        word++;
    }
    if (!*word)
        return err_set(e, RC_USAGE, "filter '!': nothing to negate");
    enum rc rc = parse_term(&t, expand_flag(word), e);
    if (!rc)
        rc = check_words(&t, e);
    BASE_GROW(f->terms, f->cap, f->n + 1);
    f->terms[f->n++] = t;
    return rc;
}

enum rc filter_parse(struct filter **out, const char *text, struct err *e)
{
    struct filter *f = base_calloc(1, sizeof(*f));
    char *copy = base_strdup(text), *save = NULL;
    enum rc rc = RC_OK;
    for (char *p = strtok_r(copy, " \t\n", &save); p && !rc; p = strtok_r(NULL, " \t\n", &save))
        rc = add_term(f, p, e);
    free(copy);
    if (rc) {
        filter_free(f);
        f = NULL;
    }
    *out = f;
    return rc;
}

void filter_free(struct filter *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++)
        free(f->terms[i].text);
    free(f->terms);
    free(f);
}

/* --- matching --------------------------------------------------------------------------------- */

static bool has_any(const struct key *key, const struct offer *o, const char *values)
{
    for (const char *p = values; *p;) {
        char value[128];
        size_t n = strcspn(p, ",");
        if (n && n < sizeof(value)) {
            memcpy(value, p, n);
            value[n] = '\0';
            if (key->matches(o, value))
                return true;
        }
        p += n + (p[n] == ',');
    }
    return false;
}

static bool compares(double x, enum operation operation, double y)
{
    switch (operation) {
    case OP_LESS:
        return x < y;
    case OP_AT_MOST:
        return x <= y;
    case OP_MORE:
        return x > y;
    case OP_AT_LEAST:
        return x >= y;
    default:
        return x <= y && x >= y;
    }
}

bool filter_match(const struct filter *f, const struct offer *o)
{
    for (size_t i = 0; i < f->n; i++) {
        const struct term *t = &f->terms[i];
        bool holds = t->key->matches
                         ? has_any(t->key, o, t->text)
                         : compares(t->key->value(o, t->is_exact), t->operation, t->number);
        if (holds == t->is_negated)
            return false;
    }
    return true;
}
