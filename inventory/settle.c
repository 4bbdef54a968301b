/* What an offer does not say: filled from the tables, then from cautious defaults. */
#include <math.h>
#include <string.h>
#include <strings.h>

#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "inventory/shape.h"

#define GIB 1073741824.0

static void fill(struct offer *o, enum offer_field f, double value, enum provenance from)
{
    if (!offer_is_known(o, f) && value >= 0)
        offer_put_number(o, f, value, from);
}

static void fill_text(struct offer *o, enum offer_field f, const char *text, enum provenance from)
{
    if (!offer_is_known(o, f) && *text)
        offer_put_text(o, f, text, from);
}

static void fill_from_shape(struct offer *o)
{
    const struct shape *s = shape_find(o->provider, o->id);
    if (!s)
        return;
    enum provenance from = s->is_guess ? PROVENANCE_ASSUMED : PROVENANCE_TABLE;
    fill_text(o, OFFER_GPU, s->gpu, from);
    fill(o, OFFER_GPUS_PER_NODE, (double)s->gpus, from);
    fill_text(o, OFFER_NVLINK, s->nvlink, from);
    if (s->fabric != FABRIC_UNKNOWN)
        fill(o, OFFER_FABRIC, s->fabric, from);
    fill(o, OFFER_INTER_GBPS, s->inter_gbps, from);
    fill(o, OFFER_MAX_NODES, (double)s->max_nodes, from);
    fill(o, OFFER_VCPUS, (double)s->vcpus, from);
    fill(o, OFFER_RAM, (double)s->ram_bytes, from);
    fill(o, OFFER_NVME, (double)s->nvme_bytes, from);
    fill_text(o, OFFER_ARCH, s->arch, from);
}

/* The name of an instance says "ib", "gdr" or "cluster": sellers mark fabric that way. */
static bool is_marked_as_cluster(const char *name)
{
    static const char *const MARKS[] = {"ib", "gdr", "cluster", "infiniband"};
    for (const char *p = name; *p;) {
        size_t n = strcspn(p, "-_. ()/");
        for (size_t i = 0; i < sizeof(MARKS) / sizeof(MARKS[0]); i++)
            if (n == strlen(MARKS[i]) && strncasecmp(p, MARKS[i], n) == 0)
                return true;
        p += n + (p[n] != '\0');
    }
    return strstr(name, "gdr") != NULL;
}

/* Gigabit per second that eight-GPU boards are sold with when they have RDMA at all. */
static double usual_gbps(const struct gpu *g)
{
    static const struct {
        const char *family;
        double gbps;
    } USUAL[] = {{"a100", 1600}, {"h100", 3200}, {"h200", 3200}, {"b200", 3200}, {"b300", 6400}};
    for (size_t i = 0; i < sizeof(USUAL) / sizeof(USUAL[0]); i++)
        if (strcmp(USUAL[i].family, g->family) == 0)
            return USUAL[i].gbps;
    return OFFER_UNKNOWN;
}

static bool is_board_of_eight(const struct offer *o, const struct gpu *g)
{
    return o->gpus_per_node == 8 && strcmp(g->form, "sxm") == 0;
}

static void assume_network(struct offer *o, const struct gpu *g)
{
    bool has_board = g && is_board_of_eight(o, g);
    if (!offer_is_known(o, OFFER_FABRIC) && has_board && is_marked_as_cluster(o->id))
        fill(o, OFFER_FABRIC, FABRIC_INFINIBAND, PROVENANCE_ASSUMED);
    if (has_board && (o->fabric == FABRIC_INFINIBAND || o->fabric == FABRIC_ROCE))
        fill(o, OFFER_INTER_GBPS, usual_gbps(g), PROVENANCE_ASSUMED);
    if (o->fabric == FABRIC_NONE)
        fill(o, OFFER_INTER_GBPS, 0, PROVENANCE_ASSUMED);
    bool has_network =
        o->fabric != FABRIC_NONE && o->fabric != FABRIC_UNKNOWN && o->inter_gbps_per_node > 0;
    /* Nobody may be planned onto a fabric that nobody has promised. */
    double nodes = has_network && o->nodes_available > 1 ? (double)o->nodes_available : 1;
    fill(o, OFFER_MAX_NODES, nodes, PROVENANCE_ASSUMED);
}

static void assume_links(struct offer *o, const struct gpu *g)
{
    bool is_all = g->link_scope == GPU_LINK_ALL || g->link_scope == GPU_LINK_MESH ||
                  g->link_scope == GPU_LINK_RACK;
    /* Bridges between PCIe cards are an extra that sellers name when they have it. */
    const char *link = o->gpus_per_node > 1 && is_all ? g->link : "none";
    fill_text(o, OFFER_NVLINK, link, PROVENANCE_ASSUMED);
}

static void fill_gpu_offer(struct offer *o)
{
    const struct gpu *g = offer_gpu(o);
    if (g) {
        offer_put_text(o, OFFER_GPU, g->id, (enum provenance)o->provenance[OFFER_GPU]);
        if (g->memory_bytes)
            fill(o, OFFER_GPU_MEMORY, (double)g->memory_bytes, PROVENANCE_TABLE);
        assume_links(o, g);
        fill_text(o, OFFER_ARCH, g->host_arch, PROVENANCE_ASSUMED);
    }
    if (o->gpus_per_node > 0) {
        double each = g && is_board_of_eight(o, g) ? 128 * GIB : 32 * GIB;
        fill(o, OFFER_RAM, each * (double)o->gpus_per_node, PROVENANCE_ASSUMED);
    }
    assume_network(o, g);
}

static void fill_cpu_offer(struct offer *o)
{
    fill(o, OFFER_GPUS_PER_NODE, 1, PROVENANCE_ASSUMED);
    if (o->ram_bytes > 0)
        fill(o, OFFER_GPU_MEMORY, floor((double)o->ram_bytes / (double)o->gpus_per_node),
            PROVENANCE_ASSUMED);
    fill_text(o, OFFER_NVLINK, "none", PROVENANCE_ASSUMED);
    assume_network(o, NULL);
}

static void judge_gpu(struct offer *o)
{
    const struct gpu *g = offer_gpu(o);
    const char *near = g ? NULL : gpu_nearest(o->gpu);
    if (!o->gpu[0])
        offer_problem(o, "no GPU is named");
    else if (gpu_is_slice(o->gpu))
        offer_problem(o, "a slice of a GPU (MIG) cannot be planned");
    else if (!g && near)
        offer_problem(o, "unknown GPU '%s'; the nearest known is '%s'", o->gpu, near);
    else if (!g)
        offer_problem(o, "unknown GPU '%s'", o->gpu);
    else if (g->vendor == GPU_AMD)
        offer_problem(o, "AMD GPUs cannot be planned");
    if (o->gpus_per_node < 1)
        offer_problem(o, "the number of GPUs in a node is unknown");
    if (o->gpu_memory_bytes <= 0)
        offer_problem(o, "the memory of the GPU is unknown");
}

static void judge(struct offer *o)
{
    if (o->device == DEVICE_CPU && o->gpu_memory_bytes <= 0)
        offer_problem(o, "the memory of the machine is unknown");
    if (o->device == DEVICE_GPU)
        judge_gpu(o);
    if (o->price_usd_micro_per_hour == 0 && o->market != MARKET_OWNED)
        offer_problem(o, "the price is 0; only owned nodes are free");
    if (o->nodes_available == 0)
        offer_problem(o, "none is available now");
}

void offer_settle(struct offer *o)
{
    if (o->device == DEVICE_UNKNOWN)
        fill(o, OFFER_DEVICE, DEVICE_GPU, PROVENANCE_ASSUMED);
    if (o->price_usd_micro_per_hour >= 0)
        fill(o, OFFER_MARKET, MARKET_ON_DEMAND, PROVENANCE_ASSUMED);
    fill_from_shape(o);
    if (o->device == DEVICE_CPU)
        fill_cpu_offer(o);
    else
        fill_gpu_offer(o);
    judge(o);
}
