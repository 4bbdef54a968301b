/* One thing that can be rented (or is owned): a node, its GPUs, its network and its price.
 *
 * struct offer has exactly the fields of an `offers/1` document. One table (OFFER_FIELDS) drives
 * JSON, CSV, filters and comparisons. Unknown is a state of its own: OFFER_UNKNOWN for numbers,
 * "" for texts, the last enumerator for words; never 0. Texts are safe for a terminal. */
#ifndef INVENTORY_OFFER_H
#define INVENTORY_OFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct gpu;
struct json;
struct str;

enum { OFFER_UNKNOWN = -1 };

enum offer_device { DEVICE_GPU, DEVICE_CPU, DEVICE_UNKNOWN };
enum offer_market { MARKET_ON_DEMAND, MARKET_SPOT, MARKET_RESERVED, MARKET_OWNED, MARKET_UNKNOWN };
enum offer_fabric {
    FABRIC_NONE,
    FABRIC_ETHERNET,
    FABRIC_ROCE,
    FABRIC_INFINIBAND,
    FABRIC_EFA,
    FABRIC_TCPX,
    FABRIC_UNKNOWN
};
/* Where a value comes from. */
enum provenance {
    PROVENANCE_UNKNOWN,
    PROVENANCE_REPORTED, /* by the seller, the machine, or the user's file */
    PROVENANCE_TABLE,    /* from facts/ */
    PROVENANCE_ASSUMED   /* a cautious default */
};

/* A million dollars: beyond it a price is a mistake. */
#define OFFER_MAX_USD_MICRO (1000000LL * 1000000)

/* symbol, member, name in offers/1, kind, largest sensible value (base units) */
#define OFFER_FIELDS(X)                                                                            \
    X(OFFER_PROVIDER, provider, "provider", FIELD_TEXT, 0)                                         \
    X(OFFER_ID, id, "id", FIELD_TEXT, 0)                                                           \
    X(OFFER_REGION, region, "region", FIELD_TEXT, 0)                                               \
    X(OFFER_DEVICE, device, "device", FIELD_DEVICE, 0)                                             \
    X(OFFER_GPU, gpu, "gpu", FIELD_TEXT, 0)                                                        \
    X(OFFER_GPUS_PER_NODE, gpus_per_node, "gpus_per_node", FIELD_COUNT, 1024)                      \
    X(OFFER_NODES_AVAILABLE, nodes_available, "nodes_available", FIELD_COUNT, 1000000)             \
    X(OFFER_MAX_NODES, max_nodes_one_fabric, "max_nodes_one_fabric", FIELD_COUNT, 1000000)         \
    X(OFFER_GPU_MEMORY, gpu_memory_bytes, "gpu_memory_bytes", FIELD_COUNT, (1LL << 44))            \
    X(OFFER_PRICE, price_usd_micro_per_hour, "price_usd_per_hour", FIELD_USD, OFFER_MAX_USD_MICRO) \
    X(OFFER_MARKET, market, "market", FIELD_MARKET, 0)                                             \
    X(OFFER_FABRIC, fabric, "fabric", FIELD_FABRIC, 0)                                             \
    X(OFFER_INTER_GBPS, inter_gbps_per_node, "inter_gbps_per_node", FIELD_NUMBER, 1000000)         \
    X(OFFER_NICS, nics_per_node, "nics_per_node", FIELD_COUNT, 1024)                               \
    X(OFFER_NVLINK, nvlink, "nvlink", FIELD_TEXT, 0)                                               \
    X(OFFER_VCPUS, vcpus, "vcpus", FIELD_COUNT, 65536)                                             \
    X(OFFER_ISA, isa, "isa", FIELD_TEXT, 0)                                                        \
    X(OFFER_ARCH, arch, "arch", FIELD_TEXT, 0)                                                     \
    X(OFFER_RAM, ram_bytes, "ram_bytes", FIELD_COUNT, (1LL << 50))                                 \
    X(OFFER_NVME, nvme_bytes, "nvme_bytes", FIELD_COUNT, (1LL << 56))                              \
    X(OFFER_GRANULARITY, granularity_s, "billing.granularity_seconds", FIELD_NUMBER, 1e9)          \
    X(OFFER_MINIMUM, minimum_s, "billing.minimum_seconds", FIELD_NUMBER, 1e9)                      \
    X(OFFER_SETUP, setup_usd_micro, "billing.setup_usd", FIELD_USD, OFFER_MAX_USD_MICRO)           \
    X(OFFER_MIN_HOURS, min_hours, "billing.min_hours", FIELD_NUMBER, 1e6)                          \
    X(OFFER_AVAILABLE_UNTIL, available_until, "billing.available_until", FIELD_TEXT, 0)            \
    X(OFFER_STORAGE, storage_usd_micro_per_gib_month, "storage_usd_per_gib_month", FIELD_USD,      \
        OFFER_MAX_USD_MICRO)                                                                       \
    X(OFFER_EGRESS, egress_usd_micro_per_gib, "egress_usd_per_gib", FIELD_USD,                     \
        OFFER_MAX_USD_MICRO)                                                                       \
    X(OFFER_INTERRUPTIONS, interruptions_per_hour, "interruptions_per_hour", FIELD_NUMBER, 3600)   \
    X(OFFER_NOTICE, notice_s, "notice_seconds", FIELD_NUMBER, 1e6)                                 \
    X(OFFER_DRIVER, driver, "driver", FIELD_TEXT, 0)                                               \
    X(OFFER_FETCHED_AT, fetched_at, "fetched_at", FIELD_TEXT, 0)

enum offer_field {
#define X(symbol, member, name, kind, max) symbol,
    OFFER_FIELDS(X)
#undef X
        OFFER_FIELD_COUNT
};

/* Value type: copied freely, owns nothing. */
struct offer {
    char provider[48];
    char id[128];
    char region[64];
    enum offer_device device;
    char gpu[96];          /* id of gpu.h; the seller's name when unknown; a CPU's model name */
    int64_t gpus_per_node; /* on CPU: ranks per node */
    int64_t nodes_available;
    int64_t max_nodes_one_fabric;
    int64_t gpu_memory_bytes;         /* per GPU as the driver reports; on CPU: RAM of one rank */
    int64_t price_usd_micro_per_hour; /* of one node */
    enum offer_market market;
    enum offer_fabric fabric;
    double inter_gbps_per_node; /* gigabit per second, one way, all NICs */
    int64_t nics_per_node;
    char nvlink[24]; /* "nvlink4", "bridge-pair", "none" */
    int64_t vcpus;
    char isa[24];  /* "x86-64-v4" */
    char arch[16]; /* "x86_64", "arm64" */
    int64_t ram_bytes;
    int64_t nvme_bytes;
    double granularity_s, minimum_s; /* billing */
    int64_t setup_usd_micro;
    double min_hours;
    char available_until[32]; /* RFC 3339 */
    int64_t storage_usd_micro_per_gib_month;
    int64_t egress_usd_micro_per_gib;
    double interruptions_per_hour;
    double notice_s;
    char driver[32];
    char fetched_at[32];                   /* RFC 3339 */
    uint8_t provenance[OFFER_FIELD_COUNT]; /* enum provenance */
    char problem[192];                     /* why it cannot be planned; "" when it can */
};

/* Every field unknown. */
void offer_init(struct offer *o);

/* Name of a field in offers/1 ("billing.min_hours" for a nested one). */
const char *offer_field_name(enum offer_field f);
/* Field by its offers/1 name, OFFER_FIELD_COUNT when there is none. */
enum offer_field offer_field_find(const char *name);
bool offer_is_known(const struct offer *o, enum offer_field f);
/* A numeric field as double in its base unit (dollars for money), NAN when unknown or no number. */
double offer_number(const struct offer *o, enum offer_field f);
/* Any field as text, in base units and without loss; "" when unknown. Caller frees. */
char *offer_text(const struct offer *o, enum offer_field f);
/* Set a field from such a text; "" makes it unknown. RC_INVALID names the field. */
enum rc offer_set_text(
    struct offer *o, enum offer_field f, const char *text, enum provenance from, struct err *e);

const char *offer_device_name(enum offer_device d); /* NULL when unknown, likewise below */
const char *offer_market_name(enum offer_market m);
const char *offer_fabric_name(enum offer_fabric f); /* "unknown" is a word of offers/1 */
const char *provenance_name(enum provenance p);
/* As people write them: "IB NDR", "eth", "RoCE v2". False when it is no fabric. */
bool offer_fabric_parse(const char *text, enum offer_fabric *out);
bool offer_market_parse(const char *text, enum offer_market *out);

/* Copy a foreign text into a text field: made safe, trimmed, cut to the size. */
void offer_put_text(struct offer *o, enum offer_field f, const char *text, enum provenance from);
void offer_put_number(struct offer *o, enum offer_field f, double value, enum provenance from);
/* Record the first thing that is wrong. */
void offer_problem(struct offer *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Finish an offer whose reported fields are in: GPU name to id, gaps from the shape and GPU tables,
 * then cautious defaults, each with its provenance; problem for what cannot be planned. Settling
 * twice changes nothing. */
void offer_settle(struct offer *o);

/* The GPU's facts, NULL on CPU and for unknown models. */
const struct gpu *offer_gpu(const struct offer *o);
/* Seconds from when it was fetched until it is no longer available, 0 when that is past; NAN when
 * either is unknown. */
double offer_seconds_left(const struct offer *o);
/* Price of one GPU (or CPU rank) for an hour in micro-dollars, OFFER_UNKNOWN when unknown. */
int64_t offer_price_per_gpu_hour(const struct offer *o);

/* An element of offers/1. Caller frees. */
struct json *offer_to_json(const struct offer *o);
/* Fields with a wrong type become unknown and give the offer a problem. RC_INVALID only when v is
 * not an object. Does not settle. */
enum rc offer_from_json(struct offer *out, const struct json *v, struct err *e);

/* Add the members of such an object that nobody reads: "'a', 'b'", each name once. */
void offer_json_unknown(const struct json *v, struct str *unknown);

/* --- lists --- */

struct offers;
enum { OFFERS_MAX = 200000 };

struct offers *offers_new(void);
void offers_free(struct offers *l);
/* Append a copy; RC_LIMIT beyond OFFERS_MAX. */
enum rc offers_add(struct offers *l, const struct offer *o, struct err *e);
size_t offers_count(const struct offers *l);
/* Returns borrowed, valid until the list changes; NULL behind the end. */
const struct offer *offers_at(const struct offers *l, size_t i);
/* Stable; unknown values last in either direction. */
void offers_sort(struct offers *l, enum offer_field by, bool is_descending);
/* By price per GPU-hour. */
void offers_sort_by_gpu_price(struct offers *l, bool is_descending);
/* Keep those for which keep returns true, in order. */
void offers_keep(
    struct offers *l, bool (*keep)(const struct offer *o, void *context), void *context);

#endif
