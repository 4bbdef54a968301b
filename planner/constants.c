#include "planner/constants.h"

#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "planner/schedule.h"

static const struct constant CONSTANTS[] = {
    {"matmul_of_measured", "products, of the best rate measured on it"},
    {"matmul_of_peak", "products, of the peak (CPU: of the cores)"},
    {"matmul_fp32_of_peak", "products in fp32, over their peak"},
    {"matmul_fp8_speedup", "products in fp8, over those in bf16"},
    {"matmul_fp4_speedup", "products in fp4, over those in bf16"},
    {"matmul_half_k", "inner dimension that reaches half of it"},
    {"matmul_tile_m", "rows of a tile"},
    {"matmul_tile_n", "columns of a tile"},
    {"matmul_lanes", "multiprocessors that share the tiles"},
    {"matmul_thread_loss", "CPU: rate lost by each doubling of threads"},
    {"attention_efficiency", "attention forward, of peak"},
    {"attention_backward_efficiency", "attention backward, of peak"},
    {"memory_efficiency", "streaming operations, of memory bandwidth"},
    {"elementwise_of_memory", "table by operation: share of that"},
    {"op_floor_s", "no operation is shorter, in seconds"},
    {"moe_efficiency", "products of experts, over others"},
    {"stack_matmul", "products of a stack, over those of the chip"},
    {"stack_attention", "attention of a stack, over that of the chip"},
    {"stack_fabric", "fabric of a stack, over that of the chip"},
    {"tensor_exposed", "share of a tensor sum that is not hidden"},
    {"context_exposed", "the same of the exchange of keys and values"},
    {"expert_exposed", "the same of the exchange of tokens"},
    {"link_efficiency", "collectives inside a node, of the links' rate"},
    {"link_pcie_efficiency", "the same over PCIe"},
    {"link_bytes_per_s", "CPU: collectives inside a node"},
    {"link_hop_s", "seconds of a hop inside a node"},
    {"link_ramp", "table: rate by payload, inside a node"},
    {"link_ramp_bytes_per_s", "rate at which that was measured"},
    {"fabric_rdma_efficiency", "between nodes, of the line rate: RDMA"},
    {"fabric_tcp_efficiency", "the same: TCP"},
    {"fabric_rdma_hop_s", "seconds of a hop between nodes: RDMA"},
    {"fabric_tcp_hop_s", "the same: TCP"},
    {"fabric_stream_bytes_per_s", "CPU: one rank's connection between nodes"},
    {"fabric_ramp", "table: rate by payload, between nodes"},
    {"fabric_ramp_bytes_per_s", "rate at which that was measured"},
    {"unhidden", "share of hidden collectives that costs time"},
    {"overlap_slowdown", "compute beside a collective, over alone"},
    {"jitter_per_doubling", "growth of a step by doublings over 8 ranks"},
    {"step_overhead_s", "seconds of a step that nothing else explains"},
    {"copy_efficiency", "between GPU and host, of the PCIe rate"},
    {"host_bytes_per_s", "memory bandwidth of a node's host"},
    {"host_adam_bytes_per_param", "bytes that a host AdamW moves for a parameter"},
    {"disk_bytes_per_s", "disk of a node, sustained"},
    {"core_flops_fp32", "CPU: peak of a core in fp32"},
    {"core_flops_bf16", "CPU: peak of a core in bf16"},
    {"core_bytes_per_s", "CPU: memory bandwidth that a core can use"},
    {"cores_per_vcpu", "CPU: cores behind a vCPU"},
    {"external_bytes", "of a rank, outside what is planned"},
    {"external_sd_bytes", "how much that varies"},
    {"reserved_of_allocated", "what allocators take, over tensors"},
    {"time_log_sd", "spread of steps around predictions (log)"},
    {"memory_log_sd", "the same of other engines' memory"},
    {NULL, NULL},
};

const struct constant *constant_at(int i)
{
    return &CONSTANTS[i];
}

static bool is_known(const char *name)
{
    for (const struct constant *c = CONSTANTS; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return true;
    return false;
}

static const char *nearest(const char *name)
{
    const char *best = CONSTANTS[0].name;
    int least = INT32_MAX;
    for (const struct constant *c = CONSTANTS; c->name; c++) {
        int distance = str_distance(name, c->name);
        best = distance < least ? c->name : best;
        least = distance < least ? distance : least;
    }
    return best;
}

static bool is_operation(const char *name)
{
    for (int k = 0; k < OP_KIND_COUNT; k++)
        if (strcmp(op_kind_name((enum op_kind)k), name) == 0)
            return true;
    return false;
}

static enum rc check_operations(const struct json *shares, struct err *e)
{
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    while (json_next(shares, &cursor, &key, &v))
        if (!is_operation(key))
            return err_set(e, RC_INVALID,
                "'elementwise_of_memory' names the operation '%s', which there is not", key);
    return RC_OK;
}

enum rc constants_check(const struct json *values, struct err *e)
{
    void *cursor = NULL;
    const char *key;
    const struct json *v;
    while (json_next(values, &cursor, &key, &v))
        if (!is_known(key))
            return err_set(e, RC_INVALID,
                "there is no constant '%s'; the nearest is '%s', `berth help constants` lists all",
                key, nearest(key));
    return check_operations(json_get(values, "elementwise_of_memory"), e);
}
