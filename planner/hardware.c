#include "planner/hardware.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/index.h"
#include "base/str.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"

/* Bridges join pairs: a ring over more cards is as slow as its slowest link, the PCIe bus. */
static bool has_direct_links(const struct offer *o)
{
    bool is_bridge = strstr(o->nvlink, "bridge") != NULL;
    if (o->nvlink[0] == '\0' || strcmp(o->nvlink, "none") == 0)
        return false;
    return !is_bridge || o->gpus_per_node <= 2;
}

static enum rc fill_gpu(struct hardware *hw, const struct offer *o, struct err *e)
{
    const struct gpu *g = offer_gpu(o);
    if (!g)
        return err_set(e, RC_INVALID, "unknown GPU '%s'", o->gpu);
    str_copy(hw->gpu, sizeof hw->gpu, g->id);
    hw->is_gpu = true;
    hw->peak_flops[PRECISION_FP32] = g->fp32_flops_per_s;
    hw->peak_flops[PRECISION_BF16] = g->bf16_flops_per_s;
    hw->peak_flops[PRECISION_FP16] = g->fp16_flops_per_s;
    hw->peak_flops[PRECISION_FP8] = g->fp8_flops_per_s;
    hw->measured_flops = g->bf16_measured_flops_per_s;
    hw->memory_bytes_per_s = g->memory_bytes_per_s;
    hw->pcie_bytes_per_s = g->pcie_bytes_per_s;
    hw->is_link_pcie = !has_direct_links(o);
    hw->link_bytes_per_s = hw->is_link_pcie ? g->pcie_bytes_per_s : g->link_bytes_per_s;
    return RC_OK;
}

/* Words of a processor's name that do not tell kinds apart. */
static bool is_noise(const char *word)
{
    size_t n = strlen(word);
    return n == 0 || strcmp(word, "cpu") == 0 || strcmp(word, "processor") == 0 ||
           (n > 5 && strcmp(word + n - 5, "-core") == 0);
}

/* The next word in lower case, without what stands in parentheses; returns where it ends. */
static const char *cpu_word(const char *p, char word[RATES_NAME])
{
    size_t n = 0;
    for (p += strspn(p, " "); *p && *p != ' ' && *p != '@'; p++) {
        if (*p == '(')
            p += strcspn(p, ")");
        if (!*p)
            break;
        bool is_kept = isalnum((unsigned char)*p) || *p == '-' || *p == '.';
        if (is_kept && n + 1 < RATES_NAME)
            word[n++] = (char)tolower((unsigned char)*p);
    }
    word[n] = '\0';
    return p;
}

char *hardware_cpu(const char *model, char buf[RATES_NAME])
{
    char word[RATES_NAME];
    size_t n = 0;
    buf[0] = '\0';
    for (const char *p = model; *p && *p != '@';) {
        p = cpu_word(p, word);
        if (strcmp(word, "with") == 0) /* graphics */
            break;
        if (is_noise(word))
            continue;
        n += (size_t)snprintf(buf + n, RATES_NAME - n, "%s%s", n ? "-" : "", word);
        if (n >= RATES_NAME)
            break;
    }
    return buf;
}

/* Unknown is 0 in struct hardware. */
static int64_t known(int64_t x)
{
    return x > 0 ? x : 0;
}

enum rc hardware_from_offer(
    struct hardware *out, const struct offer *o, int64_t nodes, struct err *e)
{
    struct hardware hw = {.nodes = nodes,
        .ranks_per_node = o->gpus_per_node,
        .memory_bytes = o->gpu_memory_bytes,
        .vcpus = known(o->vcpus),
        .ram_bytes = known(o->ram_bytes),
        .nvme_bytes = known(o->nvme_bytes)};
    if (o->problem[0])
        return err_set(e, RC_INVALID, "%s", o->problem);
    if (o->inter_gbps_per_node > 0 && o->fabric != FABRIC_NONE && o->fabric != FABRIC_UNKNOWN)
        hw.fabric_bytes_per_s = o->inter_gbps_per_node * 1e9 / 8;
    hw.is_fabric_rdma =
        o->fabric == FABRIC_INFINIBAND || o->fabric == FABRIC_ROCE || o->fabric == FABRIC_EFA;
    str_copy(hw.isa, sizeof hw.isa, o->isa);
    if (o->device == DEVICE_CPU)
        hardware_cpu(o->gpu, hw.cpu);
    enum rc rc = o->device == DEVICE_GPU ? fill_gpu(&hw, o, e) : RC_OK;
    if (!rc)
        *out = hw;
    return rc;
}

int64_t hardware_max_nodes(const struct offer *o)
{
    bool has_fabric = o->fabric != FABRIC_NONE && o->fabric != FABRIC_UNKNOWN;
    if (!has_fabric || !(o->inter_gbps_per_node > 0) || o->max_nodes_one_fabric < 1)
        return 1;
    int64_t n = o->max_nodes_one_fabric;
    return o->nodes_available > 0 && o->nodes_available < n ? o->nodes_available : n;
}

bool hardware_same(const struct hardware *a, const struct hardware *b)
{
    return a->is_gpu == b->is_gpu && strcmp(a->gpu, b->gpu) == 0 && strcmp(a->isa, b->isa) == 0 &&
           strcmp(a->cpu, b->cpu) == 0 && a->ranks_per_node == b->ranks_per_node &&
           a->memory_bytes == b->memory_bytes && a->is_link_pcie == b->is_link_pcie &&
           a->fabric_bytes_per_s <= b->fabric_bytes_per_s &&
           a->fabric_bytes_per_s >= b->fabric_bytes_per_s &&
           a->is_fabric_rdma == b->is_fabric_rdma && a->vcpus == b->vcpus &&
           a->ram_bytes == b->ram_bytes && a->nvme_bytes == b->nvme_bytes;
}

uint64_t hardware_hash(const struct hardware *hw)
{
    const uint64_t words[] = {hw->is_gpu, (uint64_t)hw->ranks_per_node, (uint64_t)hw->memory_bytes,
        hw->is_link_pcie, (uint64_t)hw->fabric_bytes_per_s, hw->is_fabric_rdma, (uint64_t)hw->vcpus,
        (uint64_t)hw->ram_bytes, (uint64_t)hw->nvme_bytes};
    uint64_t h = index_hash_text(index_hash_text(index_hash_text(0, hw->gpu), hw->isa), hw->cpu);
    for (size_t i = 0; i < BASE_COUNT(words); i++)
        h = index_hash_word(h, words[i]);
    return h;
}

char *hardware_text(const struct hardware *hw, char buf[64])
{
    if (hw->is_gpu)
        snprintf(buf, 64, "%lld x %s", (long long)(hw->nodes * hw->ranks_per_node), hw->gpu);
    else
        snprintf(buf, 64, "%lld CPU rank%s", (long long)(hw->nodes * hw->ranks_per_node),
            hw->nodes * hw->ranks_per_node == 1 ? "" : "s");
    return buf;
}
