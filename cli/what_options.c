/* A model on so many GPUs, described by options alone: see what_options.h. */
#include "cli/what_options.h"

#include <strings.h>

#include "base/str.h"
#include "inventory/gpu.h"
#include "inventory/offer.h"
#include "inventory/sources/source.h"

static const struct option WHAT[] = {
    {.name = "model",
        .kind = OPTION_TEXT,
        .is_setting = true,
        .argument = "NAME|PATH",
        .help = "what to train: a preset, or the path of a Hugging Face config.json",
        .example = "--model llama-3.1-8b",
        .complete = "models"},
    {.name = "seq",
        .kind = OPTION_COUNT,
        .is_setting = true,
        .help = "tokens of a sequence; default 4096, or what the model can",
        .example = "--seq 8192"},
    {.name = "gpu",
        .kind = OPTION_TEXT,
        .argument = "NAME",
        .def = "h100-sxm",
        .help = "the GPU, or cpu for cores like this machine's",
        .example = "--gpu a100-80-sxm",
        .complete = "gpus"},
    {.name = "gpus",
        .kind = OPTION_COUNT,
        .def = "8",
        .help = "how many GPUs (on CPU: ranks)",
        .example = "--gpus 64"},
    {.name = "gpus-per-node",
        .kind = OPTION_COUNT,
        .help = "how many of them in a node; default 8, or all if fewer",
        .example = "--gpus-per-node 4"},
    {.name = "host-memory",
        .kind = OPTION_BYTES,
        .argument = "SIZE",
        .help = "memory of a GPU node's host; default twice that of its GPUs",
        .example = "--host-memory 1TiB"},
    {.name = "inter-gbps-per-gpu",
        .kind = OPTION_NUMBER,
        .help = "gigabit/s per GPU between nodes; default what such nodes usually have",
        .example = "--inter-gbps-per-gpu 400"},
    {.name = "cores-per-rank",
        .kind = OPTION_COUNT,
        .help = "with --gpu cpu: cores of each rank; default what this machine has",
        .example = "--cores-per-rank 4"},
    {0},
};
const struct option_group WHAT_OPTIONS = {"What on what", WHAT};

enum rc gpu_counts_from_args(struct gpu_counts *c, const struct args *args, struct err *e)
{
    c->gpus = args_int(args, "gpus", 8);
    c->per_node = args_int(args, "gpus-per-node", c->gpus < 8 ? c->gpus : 8);
    if (c->gpus < 1 || c->gpus > 1 << 20)
        return err_set(e, RC_USAGE, "option '--gpus' must be 1 to 1048576");
    if (c->per_node < 1 || c->per_node > 1024)
        return err_set(e, RC_USAGE, "option '--gpus-per-node' must be 1 to 1024");
    if (c->gpus % c->per_node != 0)
        return err_set(e, RC_USAGE, "%lld GPUs are not whole nodes of %lld", (long long)c->gpus,
            (long long)c->per_node);
    return RC_OK;
}

static enum rc cpu_offer(
    struct offer *o, const struct args *args, const struct gpu_counts *c, struct err *e)
{
    struct offers *here = offers_new();
    struct source_input in = {.ranks_per_node = c->per_node, .is_reproducible = true};
    enum rc rc = SOURCE_HERE.read(here, &in, e);
    if (!rc)
        *o = *offers_at(here, 0);
    offers_free(here);
    if (rc)
        return rc;
    o->device = DEVICE_CPU;
    if (args_has(args, "cores-per-rank") && args_int(args, "cores-per-rank", 1) < 1)
        return err_set(e, RC_USAGE, "option '--cores-per-rank' must be at least 1");
    if (args_has(args, "cores-per-rank"))
        o->vcpus = args_int(args, "cores-per-rank", 1) * c->per_node;
    return RC_OK;
}

static enum rc gpu_offer(
    struct offer *o, const char *name, const struct gpu_counts *c, struct err *e)
{
    const struct gpu *g = gpu_find(name, 0);
    const char *near = gpu_nearest(name), *family = gpu_family(name);
    struct str models = STR_INIT;
    enum rc rc = RC_OK;
    if (family && gpu_family_is_open(family, &models))
        rc = err_set(e, RC_USAGE, "which '%s' is meant? There are %s", name, str_text(&models));
    str_release(&models);
    if (rc)
        return rc;
    if (!g && near)
        return err_set(e, RC_USAGE, "unknown GPU '%s'; did you mean '%s'?", name, near);
    if (!g)
        return err_set(e, RC_USAGE, "unknown GPU '%s'", name);
    offer_put_number(o, OFFER_DEVICE, DEVICE_GPU, PROVENANCE_ASSUMED);
    offer_put_text(o, OFFER_GPU, g->id, PROVENANCE_REPORTED);
    offer_put_number(o, OFFER_GPUS_PER_NODE, (double)c->per_node, PROVENANCE_REPORTED);
    return RC_OK;
}

enum rc offer_from_args(
    struct offer *out, const struct args *args, const struct gpu_counts *c, struct err *e)
{
    const char *name = args_text(args, "gpu");
    int64_t nodes = c->gpus / c->per_node;
    bool is_cpu = strcasecmp(name, "cpu") == 0;
    struct offer o;
    offer_init(&o);
    offer_put_text(&o, OFFER_ID, "estimate", PROVENANCE_ASSUMED);
    enum rc rc = is_cpu ? cpu_offer(&o, args, c, e) : gpu_offer(&o, name, c, e);
    if (rc)
        return rc;
    if (args_has(args, "inter-gbps-per-gpu") &&
        !(args_num(args, "inter-gbps-per-gpu", 0) >= 0.001 &&
            args_num(args, "inter-gbps-per-gpu", 0) <= 1e6))
        return err_set(
            e, RC_USAGE, "option '--inter-gbps-per-gpu' must be 0.001 to 1000000 gigabit/s");
    if (nodes > 1) {
        o.fabric = is_cpu ? FABRIC_ETHERNET : FABRIC_INFINIBAND;
        if (args_has(args, "inter-gbps-per-gpu"))
            o.inter_gbps_per_node = args_num(args, "inter-gbps-per-gpu", 0) * (double)c->per_node;
    }
    offer_settle(&o);
    if (!is_cpu)
        o.ram_bytes = args_int(args, "host-memory", 2 * o.gpu_memory_bytes * o.gpus_per_node);
    if (nodes > 1 && !(o.inter_gbps_per_node > 0))
        return err_set(
            e, RC_USAGE, "how fast is the network between nodes? give --inter-gbps-per-gpu N");
    *out = o;
    return RC_OK;
}
