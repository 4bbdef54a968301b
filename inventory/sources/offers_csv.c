/* The offers CSV, `berth help formats`: bare numbers are GB as sold, GiB for ram, TB for nvme,
 * gigabit per second per node; a price needs its unit. Written files read back identically. */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/csv.h"
#include "base/str.h"
#include "base/units.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"

static enum rc read_count(struct offer *o, enum offer_field f, const char *text, struct err *e);
static enum rc read_plain(struct offer *o, enum offer_field f, const char *text, struct err *e);
static enum rc read_gpu_memory(
    struct offer *o, enum offer_field f, const char *text, struct err *e);
static enum rc read_ram(struct offer *o, enum offer_field f, const char *text, struct err *e);
static enum rc read_nvme(struct offer *o, enum offer_field f, const char *text, struct err *e);
static enum rc read_fabric(struct offer *o, enum offer_field f, const char *text, struct err *e);
static enum rc read_market(struct offer *o, enum offer_field f, const char *text, struct err *e);

/* Columns with names and units of their own, in the order they are written. */
static const struct column {
    const char *name;
    enum offer_field field;
    enum rc (*read)(struct offer *o, enum offer_field f, const char *text, struct err *e);
    bool is_bytes;
} COLUMNS[] = {
    {"name", OFFER_ID, read_plain, false},
    {"gpu", OFFER_GPU, read_plain, false},
    {"gpus", OFFER_GPUS_PER_NODE, read_count, false},
    {"gpu_mem", OFFER_GPU_MEMORY, read_gpu_memory, true},
    {"nodes", OFFER_NODES_AVAILABLE, read_count, false},
    {"fabric", OFFER_FABRIC, read_fabric, false},
    {"inter_gbps", OFFER_INTER_GBPS, read_plain, false},
    {"vcpus", OFFER_VCPUS, read_count, false},
    {"ram", OFFER_RAM, read_ram, true},
    {"nvme", OFFER_NVME, read_nvme, true},
    {"price", OFFER_PRICE, NULL, false}, /* read together with its unit */
    {"price_unit", OFFER_FIELD_COUNT, NULL, false},
    {"market", OFFER_MARKET, read_market, false},
    {"region", OFFER_REGION, read_plain, false},
};

/* --- cells ------------------------------------------------------------------------------------ */

static enum rc read_plain(struct offer *o, enum offer_field f, const char *text, struct err *e)
{
    struct err why = ERR_INIT;
    if (!offer_set_text(o, f, text, PROVENANCE_REPORTED, &why))
        return RC_OK;
    const char *start = strstr(why.msg, "': "); /* the caller names the column instead */
    return err_set(e, RC_INVALID, "%s", start ? start + 3 : why.msg);
}

static enum rc read_count(struct offer *o, enum offer_field f, const char *text, struct err *e)
{
    enum rc rc = read_plain(o, f, text, e);
    if (!rc && f == OFFER_GPUS_PER_NODE && o->gpus_per_node == 0)
        return err_set(e, RC_INVALID, "must be at least 1");
    return rc;
}

static enum rc put_bytes(
    struct offer *o, enum offer_field f, double bytes, enum provenance from, struct err *e)
{
    char plain[32];
    snprintf(plain, sizeof(plain), "%.0f", bytes);
    enum rc rc = read_plain(o, f, plain, e);
    if (!rc)
        o->provenance[f] = (uint8_t)from;
    return rc;
}

static bool is_bare(const char *text)
{
    double x;
    return !units_parse_number(text, &x, NULL);
}

/* A size whose bare number has the given unit. */
static enum rc parse_size(const char *text, const char *unit, int64_t *out, struct err *e)
{
    char *with_unit = base_printf("%s%s", text, is_bare(text) ? unit : "");
    enum rc rc = units_parse_bytes(with_unit, out, e);
    free(with_unit);
    return rc;
}

/* GB and TB are what the price list says; MiB, GiB and B what the driver says. */
static bool is_as_sold(const char *text)
{
    size_t n = strlen(text);
    bool is_binary = n >= 2 && tolower((unsigned char)text[n - 2]) == 'i';
    bool is_plain_bytes = n >= 2 && tolower((unsigned char)text[n - 1]) == 'b' &&
                          (isdigit((unsigned char)text[n - 2]) || text[n - 2] == ' ');
    return !is_binary && !is_plain_bytes;
}

static enum rc read_gpu_memory(struct offer *o, enum offer_field f, const char *text, struct err *e)
{
    int64_t bytes;
    enum rc rc = parse_size(text, "GB", &bytes, e);
    if (rc)
        return rc;
    const struct gpu *g = o->device == DEVICE_CPU ? NULL : gpu_find(o->gpu, bytes);
    if (g && is_as_sold(text) && g->memory_bytes && gpu_has_memory(g, bytes))
        return put_bytes(o, f, (double)g->memory_bytes, PROVENANCE_TABLE, e);
    return put_bytes(o, f, (double)bytes, PROVENANCE_REPORTED, e);
}

static enum rc read_ram(struct offer *o, enum offer_field f, const char *text, struct err *e)
{
    int64_t bytes;
    enum rc rc = parse_size(text, "GiB", &bytes, e);
    return rc ? rc : put_bytes(o, f, (double)bytes, PROVENANCE_REPORTED, e);
}

/* "30.7", "2TB", "2x7.68TB". */
static enum rc read_nvme(struct offer *o, enum offer_field f, const char *text, struct err *e)
{
    long disks = 1;
    char *end;
    long n = strtol(text, &end, 10);
    while (*end == ' ')
        end++;
    if (end > text && (*end == 'x' || *end == 'X')) {
        if (n < 1 || n > 1024)
            return err_set(e, RC_INVALID, "'%s' has an absurd number of disks", text);
        disks = n;
        text = end + 1;
    }
    int64_t bytes;
    enum rc rc = parse_size(text, "TB", &bytes, e);
    return rc ? rc : put_bytes(o, f, (double)bytes * (double)disks, PROVENANCE_REPORTED, e);
}

static enum rc read_fabric(struct offer *o, enum offer_field f, const char *text, struct err *e)
{
    enum offer_fabric fabric;
    if (!offer_fabric_parse(text, &fabric))
        return err_set(e, RC_INVALID,
            "'%s' is not one of none, ethernet, roce, infiniband, efa, tcpx, unknown", text);
    if (fabric != FABRIC_UNKNOWN)
        offer_put_number(o, f, fabric, PROVENANCE_REPORTED);
    return RC_OK;
}

static enum rc read_market(struct offer *o, enum offer_field f, const char *text, struct err *e)
{
    enum offer_market market;
    if (!offer_market_parse(text, &market))
        return err_set(e, RC_INVALID, "'%s' is not one of on-demand, spot, reserved, owned", text);
    offer_put_number(o, f, market, PROVENANCE_REPORTED);
    return RC_OK;
}

/* Micro-dollars per node and hour out of a price and its unit; a month has 730 hours. */
static enum rc read_price(struct offer *o, const char *price, const char *unit, struct err *e)
{
    static const struct {
        const char *name;
        double hours;
        bool is_per_gpu;
    } UNITS[] = {{"usd/gpu/h", 1, true}, {"usd/node/h", 1, false}, {"usd/node/day", 24, false},
        {"usd/node/month", 730, false}};
    if (!*price)
        return RC_OK;
    if (!*unit)
        return err_set(e, RC_INVALID,
            "'price' has no 'price_unit' (usd/gpu/h, usd/node/h, usd/node/day or usd/node/month)");
    size_t i = 0;
    while (i < BASE_COUNT(UNITS) && strcasecmp(UNITS[i].name, unit) != 0)
        i++;
    if (i == BASE_COUNT(UNITS))
        return err_set(e, RC_INVALID,
            "'price_unit': '%s' is not one of usd/gpu/h, usd/node/h, usd/node/day, usd/node/month",
            unit);
    int64_t micro;
    if (units_parse_usd(price, &micro, e))
        return err_in(e, "'price'");
    double each = UNITS[i].is_per_gpu ? (double)o->gpus_per_node : 1;
    double node_hour = round((double)micro * each / UNITS[i].hours);
    if (node_hour > (double)OFFER_MAX_USD_MICRO)
        return err_set(e, RC_INVALID, "'price': '%s' is too large", price);
    offer_put_number(o, OFFER_PRICE, node_hour / (double)USD_MICRO, PROVENANCE_REPORTED);
    return RC_OK;
}

/* "gpu_memory_bytes=table;fabric=assumed": where values not reported come from. */
static enum rc read_provenance(struct offer *o, const char *text, struct err *e)
{
    char *copy = base_strdup(text), *save = NULL;
    enum rc rc = RC_OK;
    for (char *p = strtok_r(copy, ";", &save); p && !rc; p = strtok_r(NULL, ";", &save)) {
        char *equals = strchr(p, '=');
        if (equals)
            *equals = '\0';
        enum offer_field f = offer_field_find(p);
        const char *word = equals ? equals + 1 : "";
        bool is_table = strcmp(word, "table") == 0;
        if (f == OFFER_FIELD_COUNT || (!is_table && strcmp(word, "assumed") != 0))
            rc =
                err_set(e, RC_INVALID, "'provenance': '%s' is not FIELD=table or FIELD=assumed", p);
        else if (offer_is_known(o, f))
            o->provenance[f] = is_table ? PROVENANCE_TABLE : PROVENANCE_ASSUMED;
    }
    free(copy);
    return rc;
}

/* --- the table -------------------------------------------------------------------------------- */

/* Where in the file each thing is; -1: not there. */
struct places {
    int own[BASE_COUNT(COLUMNS)];
    int field[OFFER_FIELD_COUNT];
    int provenance, problem;
};

static const struct column *own_column(const char *name)
{
    for (size_t i = 0; i < BASE_COUNT(COLUMNS); i++)
        if (strcasecmp(COLUMNS[i].name, name) == 0)
            return &COLUMNS[i];
    return NULL;
}

/* A column nobody knows is somebody's note, unless it looks like a slip of the pen. */
static enum rc check_unknown_column(const char *name, struct str *unknown, struct err *e)
{
    const char *near = NULL;
    int best = 3;
    for (size_t i = 0; i < BASE_COUNT(COLUMNS) + OFFER_FIELD_COUNT; i++) {
        const char *known = i < BASE_COUNT(COLUMNS)
                                ? COLUMNS[i].name
                                : offer_field_name((enum offer_field)(i - BASE_COUNT(COLUMNS)));
        int d = str_distance(name, known);
        if (d < best && d < (int)strlen(name) / 2) {
            best = d;
            near = known;
        }
    }
    if (near)
        return err_set(e, RC_INVALID, "unknown column '%s'; did you mean '%s'?", name, near);
    if (unknown)
        str_addf(unknown, "%s'%s'", unknown->len ? ", " : "", name);
    return RC_OK;
}

static enum rc find_places(
    struct places *p, const struct csv *t, struct str *unknown, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(COLUMNS); i++)
        p->own[i] = csv_column(t, COLUMNS[i].name);
    for (int f = 0; f < OFFER_FIELD_COUNT; f++)
        p->field[f] = own_column(offer_field_name((enum offer_field)f))
                          ? -1
                          : csv_column(t, offer_field_name((enum offer_field)f));
    p->provenance = csv_column(t, "provenance");
    p->problem = csv_column(t, "problem");
    bool has_gpus = csv_column(t, "gpus") >= 0 || p->field[OFFER_GPUS_PER_NODE] >= 0;
    if (csv_column(t, "gpu") < 0 || !has_gpus)
        return err_set(e, RC_INVALID,
            "column '%s' is missing; the header is name,gpu,gpus,gpu_mem,nodes,fabric,"
            "inter_gbps,vcpus,ram,nvme,price,price_unit,market,region",
            has_gpus ? "gpu" : "gpus");
    for (size_t i = 0; i < t->columns; i++) {
        const char *name = t->header[i];
        bool is_known = own_column(name) || offer_field_find(name) != OFFER_FIELD_COUNT ||
                        strcasecmp(name, "provenance") == 0 || strcasecmp(name, "problem") == 0;
        enum rc rc = is_known ? RC_OK : check_unknown_column(name, unknown, e);
        if (rc)
            return rc;
    }
    return RC_OK;
}

static enum rc read_own_columns(
    struct offer *o, const struct csv *t, const struct places *p, size_t row, struct err *e)
{
    for (size_t i = 0; i < BASE_COUNT(COLUMNS); i++) {
        const char *text = csv_cell(t, row, p->own[i]);
        if (!*text || !COLUMNS[i].read)
            continue;
        if (COLUMNS[i].read(o, COLUMNS[i].field, text, e))
            return err_in(e, "'%s'", COLUMNS[i].name);
    }
    return RC_OK;
}

static enum rc read_row(
    struct offer *o, const struct csv *t, const struct places *p, size_t row, struct err *e)
{
    offer_init(o);
    enum rc rc = RC_OK;
    /* First what the own columns depend on: the device decides what gpu_mem means. */
    for (int f = 0; f < OFFER_FIELD_COUNT && !rc; f++) {
        const char *text = csv_cell(t, row, p->field[f]);
        if (*text)
            rc = offer_set_text(o, (enum offer_field)f, text, PROVENANCE_REPORTED, e);
    }
    if (!rc)
        rc = read_own_columns(o, t, p, row, e);
    /* what we wrote ourselves may lack them, and says what is wrong with it */
    const char *problem = csv_cell(t, row, p->problem);
    if (!rc && o->gpus_per_node < 1 && !*problem)
        rc = err_set(e, RC_INVALID, "'gpus' is empty");
    if (!rc && !o->gpu[0] && !*problem)
        rc = err_set(e, RC_INVALID, "'gpu' is empty");
    if (!rc)
        rc = read_price(o, csv_cell(t, row, csv_column(t, "price")),
            csv_cell(t, row, csv_column(t, "price_unit")), e);
    if (!rc)
        rc = read_provenance(o, csv_cell(t, row, p->provenance), e);
    offer_problem(o, "%s", problem);
    return rc;
}

/* Rows without a provider or a name still need an identity; rows we wrote stay as they are. */
static void name_offer(struct offer *o, size_t line)
{
    char name[32];
    snprintf(name, sizeof(name), "line-%zu", line);
    if (!o->provider[0])
        offer_put_text(o, OFFER_PROVIDER, "local", PROVENANCE_ASSUMED);
    if (!o->id[0])
        offer_put_text(o, OFFER_ID, name, PROVENANCE_ASSUMED);
}

static enum rc read_table(
    struct offers *out, const struct csv *t, struct str *unknown, struct err *e)
{
    struct places p;
    enum rc rc = find_places(&p, t, unknown, e);
    for (size_t row = 0; row < t->rows && !rc; row++) {
        struct offer o;
        rc = read_row(&o, t, &p, row, e);
        if (rc)
            return err_in(e, "line %zu", t->lines[row]);
        if (p.provenance < 0)
            name_offer(&o, t->lines[row]);
        offer_settle(&o);
        rc = offers_add(out, &o, e);
    }
    return rc;
}

static bool recognises(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (!isspace((unsigned char)text[i]))
            return true;
    return false;
}

static enum rc read_text(struct offers *out, const struct source_input *in, struct err *e)
{
    struct csv t;
    enum rc rc = csv_parse(&t, in->text, in->len, e);
    if (rc)
        return rc;
    rc = read_table(out, &t, in->unknown, e);
    csv_release(&t);
    return rc;
}

const struct source SOURCE_OFFERS_CSV = {
    .name = "offers-csv",
    .summary = "a CSV table of nodes",
    .recognises = recognises,
    .read = read_text,
};

/* --- writing ---------------------------------------------------------------------------------- */

/* In the largest binary unit that loses nothing. */
static char *exact_bytes(double bytes)
{
    static const struct {
        double size;
        const char *name;
    } UNITS[] = {{1099511627776.0, "TiB"}, {1073741824.0, "GiB"}, {1048576.0, "MiB"}, {1, "B"}};
    size_t i = 0;
    while (bytes < UNITS[i].size || fmod(bytes, UNITS[i].size) > 0)
        if (++i == BASE_COUNT(UNITS) - 1)
            break;
    return base_printf("%.0f%s", bytes / UNITS[i].size, UNITS[i].name);
}

static char *own_cell(const struct offer *o, const struct column *c)
{
    if (c->field == OFFER_FIELD_COUNT)
        return base_strdup(o->price_usd_micro_per_hour >= 0 ? "usd/node/h" : "");
    if (c->is_bytes && offer_is_known(o, c->field))
        return exact_bytes(offer_number(o, c->field));
    return offer_text(o, c->field);
}

static void put_cell(struct str *s, char *text, bool is_first)
{
    str_add(s, is_first ? "" : ",");
    csv_put(s, text);
    free(text);
}

static char *provenance_cell(const struct offer *o)
{
    struct str s = STR_INIT;
    for (int f = 0; f < OFFER_FIELD_COUNT; f++)
        if (o->provenance[f] == PROVENANCE_TABLE || o->provenance[f] == PROVENANCE_ASSUMED)
            str_addf(&s, "%s%s=%s", s.len ? ";" : "", offer_field_name((enum offer_field)f),
                provenance_name((enum provenance)o->provenance[f]));
    return str_steal(&s);
}

/* Fields that have no column of their own and that some offer knows. */
static void choose_fields(const struct offers *l, bool used[OFFER_FIELD_COUNT])
{
    for (int f = 0; f < OFFER_FIELD_COUNT; f++) {
        used[f] = false;
        bool is_own = false;
        for (size_t i = 0; i < BASE_COUNT(COLUMNS); i++)
            is_own = is_own || COLUMNS[i].field == (enum offer_field)f;
        for (size_t i = 0; i < offers_count(l) && !is_own && !used[f]; i++)
            used[f] = offer_is_known(offers_at(l, i), (enum offer_field)f);
    }
}

void offers_write_csv(const struct offers *l, struct str *s)
{
    bool used[OFFER_FIELD_COUNT];
    choose_fields(l, used);
    for (size_t i = 0; i < BASE_COUNT(COLUMNS); i++)
        str_addf(s, "%s%s", i ? "," : "", COLUMNS[i].name);
    for (int f = 0; f < OFFER_FIELD_COUNT; f++)
        if (used[f])
            str_addf(s, ",%s", offer_field_name((enum offer_field)f));
    str_add(s, ",provenance,problem\n");
    for (size_t row = 0; row < offers_count(l); row++) {
        const struct offer *o = offers_at(l, row);
        for (size_t i = 0; i < BASE_COUNT(COLUMNS); i++)
            put_cell(s, own_cell(o, &COLUMNS[i]), i == 0);
        for (int f = 0; f < OFFER_FIELD_COUNT; f++)
            if (used[f])
                put_cell(s, offer_text(o, (enum offer_field)f), false);
        put_cell(s, provenance_cell(o), false);
        put_cell(s, base_strdup(o->problem), false);
        str_addc(s, '\n');
    }
}
