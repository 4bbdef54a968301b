#!/usr/bin/env bash
# What can be kept off the GPU: --offload of berth estimate, and plans that need it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
estimate=("$berth" estimate --model llama-2-7b --gpu h100-sxm --gpus 8 --seq 2048 --micro-batch 4
    --recompute full --json)

# 18 and 12 bytes of 6.74e9 parameters; 31 inputs of 4 x 2,048 x 4,096 x 2 bytes on each GPU
parts_of_host_memory_and_disk_are_named() {
    exits 0 "${estimate[@]}" --offload optimizer+params
    jq -e '.host.parts | (.optimizer + .parameters + .gradients) / (18 * 6738415616) |
        . > 0.999 and . < 1.001' "$tmp/out"
    jq -e '.host | .ram_bytes == ([.parts[]] | add)' "$tmp/out"
    exits 0 "${estimate[@]}" --offload nvme
    jq -e '.disk | .parts.optimizer / (12 * 6738415616) | . > 0.999 and . < 1.001' "$tmp/out"
    jq -e '.disk | .written_bytes_per_step == .parts.optimizer and
        .nvme_bytes == ([.parts[]] | add)' "$tmp/out"
    jq -e '.step | .parts.exposed_disk > 0.9 * .seconds' "$tmp/out"
    exits 0 "${estimate[@]}" --offload nvme+params
    jq -e '.disk | (.parts.optimizer / 6, .parts.parameters) / (2 * 6738415616) |
        . > 0.999 and . < 1.001' "$tmp/out"
    jq -e '.disk | .written_bytes_per_step == .parts.optimizer + .parts.parameters and
        .nvme_bytes == ([.parts[]] | add)' "$tmp/out"
    exits 0 "${estimate[@]}" --offload activations
    jq -e '.host.parts.activations == 8 * 31 * 67108864' "$tmp/out"
}

what_an_engine_lacks_is_one_sentence() {
    exits 2 "$berth" estimate --model gpt2 --gpu h100-sxm --offload disk
    says "nvme" "$tmp/err"
    exits 2 "$berth" estimate --model gpt2 --gpu h100-sxm --gpus 8 --engine fsdp2 --offload nvme
    says "engine fsdp2 has no offload 'nvme'" "$tmp/err"
    exits 2 "$berth" estimate --model gpt2 --gpu h100-sxm --gpus 8 --strategy zero2 \
        --offload optimizer+params
    says "where they are sharded, not with zero2" "$tmp/err"
}

# 6 bytes a parameter fit one A100, all states do not, nor do they fit 64 GiB of host memory
a_plan_with_states_on_disk_says_what_wears_out() {
    printf 'name,gpu,gpus,ram,nvme,price,price_unit\nlone,a100-80-sxm,1,64,4,1,usd/gpu/h\n' \
        >"$tmp/one.csv"
    plan=("$berth" plan --model llama-2-7b --tokens 100M --seq 2048 --global-batch-tokens 131072 -q)
    exits 0 "${plan[@]}" --offers "$tmp/one.csv" --json
    jq -e '.plans[0] | .offload == "nvme" and (.launchable | not) and
        (.not_launchable | contains("CPU nodes only")) and .disk.drive_writes_per_day > 1' "$tmp/out"
    exits 0 "${plan[@]}" --offers "$tmp/one.csv"
    says "optimizer states on NVMe" "$tmp/out"
    says "which wears it out early" "$tmp/out"
    exits 0 "${plan[@]}" --offers "$tmp/one.csv" -o "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json"
    says "more than drives for mostly reading are rated for" "$tmp/out"
    printf 'many,h100-sxm,8,1024,4,1,usd/gpu/h\n' >>"$tmp/one.csv"
    exits 0 "${plan[@]}" --offers "$tmp/one.csv" --json
    jq -e '(.plans | length) == 1 and
        (.rejected[0].why | startswith("refused: it fits only with the optimizer"))' "$tmp/out"
}

# 38 GiB more on each GPU would do, or 100 GiB more host memory of 1500: the latter is the obstacle
the_obstacle_is_the_memory_that_misses_least_of_what_there_is() {
    local bytes plan=("$berth" plan --model llama-3.1-70b --tokens 1B --seq 4096 -q --json)
    printf 'name,gpu,gpus,ram,price,price_unit\na,h100-sxm,8,1500GiB,1,usd/gpu/h\n' >"$tmp/host.csv"
    exits 3 "${plan[@]}" --offers "$tmp/host.csv"
    jq -e '.rejected[0] | (.why | test("needs .* of host memory per node, .* more than it has")) and
        .short_by_unit == "bytes"' "$tmp/out"
    bytes=$(jq '.rejected[0].short_by + 1500 * 1073741824' "$tmp/out")
    sed "s/1500GiB/$((bytes / 1073741824 + 2))GiB/" "$tmp/host.csv" >"$tmp/more.csv"
    exits 0 "${plan[@]}" --offers "$tmp/more.csv"
    sed "s/1500GiB/$((bytes / 1073741824 - 1))GiB/" "$tmp/host.csv" >"$tmp/less.csv"
    exits 3 "${plan[@]}" --offers "$tmp/less.csv"
}

# on CPUs what leaves the device stays in the same memory, but for the disk
cpu_nodes_keep_states_on_disk_where_memory_is_short() {
    exits 0 "$berth" offers --here --json
    jq '{schema, offers: [.offers[0] | .ram_bytes = 3221225472 | .gpu_memory_bytes = 3221225472 |
        .gpus_per_node = 1 | .nvme_bytes = 1000000000000 | .provenance = null]}' "$tmp/out" >"$tmp/small.json"
    plan=("$berth" plan --model gpt2 --tokens 1M --seq 128 --precision fp32 --global-batch-tokens 1024 -q --json)
    exits 0 "${plan[@]}" --offers "$tmp/small.json"
    jq -e '.plans[0] | .offload == "nvme" and .launchable' "$tmp/out"
    jq '.offers[0].ram_bytes *= 8 | .offers[0].gpu_memory_bytes *= 8' "$tmp/small.json" >"$tmp/large.json"
    exits 0 "${plan[@]}" --offers "$tmp/large.json"
    jq -e '.plans[0].offload == "none"' "$tmp/out"
    for offload in optimizer optimizer+params activations nvme nvme+params; do
        exits 0 "${plan[@]}" --offers "$tmp/large.json" --offload "$offload"
        jq -e --arg o "$offload" '.plans[0] | .offload == $o and .launchable' "$tmp/out"
    done
}

offloads_of_a_job_are_known_words() {
    exits 2 "$berth" plan --here --model gpt2 --tokens 1M --offload disk
    says "nvme" "$tmp/err"
    echo '{"model": "gpt2", "tokens": 1000000, "offloads": ["none", "disk"]}' >"$tmp/job.json"
    exits 2 "$berth" plan "$tmp/job.json" --here
    says "unknown offload mode 'disk'" "$tmp/err"
}

t "CPU nodes keep states on disk where memory is short" cpu_nodes_keep_states_on_disk_where_memory_is_short
t "offloads of a job are known words" offloads_of_a_job_are_known_words
t "parts of host memory and disk are named" parts_of_host_memory_and_disk_are_named
t "what an engine lacks is one sentence" what_an_engine_lacks_is_one_sentence
t "a plan with states on disk says what wears out" a_plan_with_states_on_disk_says_what_wears_out
t "the obstacle is the memory that misses least of what there is" \
    the_obstacle_is_the_memory_that_misses_least_of_what_there_is
tap_done
