#!/usr/bin/env bash
# The largest that can be asked for: an answer or one sentence, and no figure that is none.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

# llama LAYERS WIDTH HEADS KV_HEADS HEAD_DIM FFN VOCAB
llama() {
    jq -n --argjson d "[$(IFS=,; echo "$*")]" '{family: "llama", name: "large", layers: $d[0],
        width: $d[1], heads: $d[2], kv_heads: $d[3], head_dim: $d[4], ffn: $d[5], vocab: $d[6],
        max_positions: 268435456}' >"$tmp/model.json"
}
# estimate CODE SENTENCE OPTION...: figures that are none are null in JSON; of those asked for none is
estimate() {
    code=$1 sentence=$2
    exits "$code" timeout 60 "$berth" estimate --model "$tmp/model.json" --json "${@:3}"
    fails grep -q "runtime error" "$tmp/err"
    [ "$code" = 0 ] || { says "$sentence" "$tmp/err"; return; }
    jq -e '.step.seconds > 0 and .memory.peak_bytes > 0 and .memory.peak_bytes < 9e18 and .host.ram_bytes > 0' "$tmp/out"
}

a_hundred_trillion_parameters_on_a_million_gpus() {
    llama 400 131072 1024 64 128 524288 1000000
    for options in "" "--strategy ddp" "--recompute full --offload optimizer" "--seq 1048576" \
        "--strategy hsdp --shard-degree 8" "--lora 131072 --base-bits 4" \
        "--engine deepspeed --offload optimizer --strategy zero1" \
        "--engine megatron --tensor 8 --pipeline 16 --gpus-per-node 8"; do
        # shellcheck disable=SC2086
        estimate 0 "" --gpus 1048576 $options
    done
    estimate 0 "" --gpus 1000000
    estimate 2 "must be 1 to 1048576" --gpus 1048577
    estimate 2 "a micro step of 1048576 sequences of 2047 tokens is too large" --gpus 1048576 \
        --micro-batch 1048576 --seq 2047
    estimate 2 "a step of more than 10^18 tokens" --gpus 1048576 --grad-accum 16777216 \
        --micro-batch 64 --seq 4096
}

odd_shapes_are_counted_or_refused() {
    llama 1024 2 1 1 2 8388608 16777216
    estimate 0 "" --gpus 8
    estimate 0 "" --gpus 8 --engine fsdp2
    for engine in berth fsdp2 megatron; do
        estimate 2 "is too large" --gpus 8 --seq 268435456 --micro-batch 7 --engine $engine
    done
    llama 1024 2 16384 16384 2 1 1
    estimate 0 "" --gpus 8 --seq 1048576
    estimate 2 "is too large" --gpus 8 --seq 1048576 --engine deepspeed --stack deepspeed+plain
    llama 1025 64 1 1 64 64 64
    estimate 2 "has layers 1025; it must lie in 1 to 1024" --gpus 1
}

they_are_planned() {
    llama 400 131072 1024 64 128 524288 1000000
    jq '{schema, offers: [{provider: "p", id: "a", device: "gpu", gpu: "h100-sxm", gpus_per_node: 8,
        ram_bytes: 2199023255552, price_usd_per_hour: 20, market: "on-demand",
        fabric: "infiniband", inter_gbps_per_node: 3200, max_nodes_one_fabric: 131072,
        nodes_available: 131072}]}' <<<'{"schema": "offers/1"}' >"$tmp/offers.json"
    exits 3 timeout 100 "$berth" plan --model "$tmp/model.json" --tokens 1000T \
        --offers "$tmp/offers.json" --global-batch-tokens 4294967296
    says "Rejected:" "$tmp/out"
    exits 0 timeout 100 "$berth" plan --model llama-3.1-8b --tokens 1000000T \
        --offers "$tmp/offers.json" --global-batch-tokens 4294967296 --json
    jq -e '.plans[0].cost_usd.mid > 0 and .plans[0].hours.mid > 0' "$tmp/out"
}

t a_hundred_trillion_parameters_on_a_million_gpus a_hundred_trillion_parameters_on_a_million_gpus
t odd_shapes_are_counted_or_refused odd_shapes_are_counted_or_refused
t they_are_planned they_are_planned
tap_done
