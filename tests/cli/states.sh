#!/usr/bin/env bash
# How weights are updated and kept: --optimizer, --master, --moments of berth estimate and plan, and of jobs.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
estimate=("$berth" estimate --model llama-2-7b --gpu h100-sxm --gpus 8 --seq 2048 --recompute full --json)

# 8 bytes a parameter, of 6.74e9 over 8 ranks
sgd_keeps_a_moment_less() {
    exits 0 "${estimate[@]}" --optimizer sgd
    jq -e '.memory.parts.optimizer / (8 * 6738415616 / 8) | . > 0.999 and . < 1.001' "$tmp/out"
    jq -e '.checkpoint.bytes == 8 * 6738415616' "$tmp/out"
    exits 0 "${estimate[@]}"
    jq -e '.checkpoint.bytes == 12 * 6738415616' "$tmp/out"
    exits 2 "$berth" estimate --model gpt2 --gpu h100-sxm --gpus 8 --engine megatron --optimizer sgd
    says "the distributed optimizer of engine megatron is adamw, not sgd" "$tmp/err"
}

a_job_with_sgd_is_planned_explained_and_exported() {
    printf '{"model": "nano-llama", "tokens": "1M", "training": {"optimizer": "sgd", "momentum": 0.8}}' \
        >"$tmp/job.json"
    printf 'name,gpu,gpus,price,price_unit\na,h100-sxm,8,1,usd/gpu/h\n' >"$tmp/one.csv"
    exits 0 "$berth" plan "$tmp/job.json" --offers "$tmp/one.csv" -q -o "$tmp/plan.json"
    jq -e '.schedule.strategy.optimizer == "sgd"' "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json"
    says ", sgd" "$tmp/out"
    says "momentum: " "$tmp/out"
    exits 0 "$berth" export --to deepspeed "$tmp/plan.json"
    jq -e '.optimizer | .type == "SGD" and .params.momentum == 0.8' "$tmp/out"
    jq '.job.training = {}' "$tmp/plan.json" >"$tmp/other.json"
    exits 2 "$berth" explain "$tmp/other.json"
    says "its strategy updates by sgd, the training of its job by adamw" "$tmp/err"
    printf '{"model": "nano-llama", "tokens": "1M", "training": {"momentum": 0.8}}' >"$tmp/job.json"
    exits 2 "$berth" plan "$tmp/job.json" --offers "$tmp/one.csv"
    says "training field 'momentum' is of optimizer sgd" "$tmp/err"
}

# 2 bytes of a parameter in place of 4, and none
master_weights_take_what_their_form_does() {
    local bytes
    for form in fp32:12 split:10 pure:8; do
        exits 0 "${estimate[@]}" --master "${form%:*}"
        bytes=$(jq '.memory.parts.optimizer * 8 / 6738415616' "$tmp/out")
        jq -e -n --argjson b "$bytes" "\$b / ${form#*:} | . > 0.999 and . < 1.001"
        jq -e '.checkpoint.bytes == 12 * 6738415616' "$tmp/out"
    done
    exits 2 "${estimate[@]}" --master split --offload optimizer
    says "master 'split' goes with weights and optimizer on the device" "$tmp/err"
    exits 2 "${estimate[@]}" --master pure --precision fp32
    says "weights in fp32 are their own master copy" "$tmp/err"
    exits 2 "${estimate[@]}" --master pure --engine fsdp2
    says "how engine fsdp2 keeps weights and moments is its own affair" "$tmp/err"
}

# two codes of a byte, with a scale of 4 bytes for each block of 128 or next to none
moments_in_8_bits_take_a_byte_each() {
    local bytes
    for form in fp32:12 8bit:6.0625 fp8:6; do
        exits 0 "${estimate[@]}" --moments "${form%:*}"
        bytes=$(jq '.memory.parts.optimizer * 8 / 6738415616' "$tmp/out")
        jq -e -n --argjson b "$bytes" "\$b / ${form#*:} | . > 0.999 and . < 1.001"
    done
    exits 0 "${estimate[@]}" --moments 8bit --offload nvme
    jq -e '.disk.parts.optimizer / (6.0625 * 6738415616) | . > 0.999 and . < 1.001' "$tmp/out"
    exits 2 "${estimate[@]}" --moments fp8 --engine deepspeed
    says "how engine deepspeed keeps weights and moments is its own affair" "$tmp/err"
}

a_job_says_how_weights_are_kept() {
    printf 'name,gpu,gpus,price,price_unit\na,h100-sxm,8,1,usd/gpu/h\n' >"$tmp/one.csv"
    plan=("$berth" plan --offers "$tmp/one.csv" -q)
    echo '{"model": "nano-llama", "tokens": "1M", "master": "split"}' >"$tmp/job.json"
    exits 0 "${plan[@]}" "$tmp/job.json" -o "$tmp/plan.json"
    jq -e '.schedule.strategy.master == "split" and .job.master == "split"' "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json"
    says "split master weights" "$tmp/out"
    says "lower halves of master copies" "$tmp/out"
    exits 0 "$berth" export --to deepspeed "$tmp/plan.json"
    says "split master weights" "$tmp/err"
    exits 0 "${plan[@]}" "$tmp/job.json" --master pure --json
    jq -e '.plans[0].master == "pure"' "$tmp/out"
    exits 0 "${plan[@]}" --model nano-llama --tokens 1M --json
    jq -e '.plans[0].master == null' "$tmp/out"
    exits 0 "${plan[@]}" "$tmp/job.json" --moments 8bit -o "$tmp/plan.json"
    jq -e '.schedule.strategy.moments == "8bit" and .job.moments == "8bit"' "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json"
    says "split master weights, 8bit moments" "$tmp/out"
    exits 0 "$berth" export --to deepspeed "$tmp/plan.json"
    says "8bit moments" "$tmp/err"
    exits 2 "${plan[@]}" "$tmp/job.json" --precision fp32
    says "master 'split' is for bf16" "$tmp/err"
    echo '{"model": "nano-llama", "tokens": "1M", "master": "half"}' >"$tmp/job.json"
    exits 2 "${plan[@]}" "$tmp/job.json"
    says "unknown form of master weights 'half'" "$tmp/err"
    echo '{"model": "nano-llama", "tokens": "1M"}' >"$tmp/job.json"
    exits 2 "${plan[@]}" "$tmp/job.json" --gradients fp8 --strategy ddp
    says "with zero2, zero3 or hsdp, and the job allows none of them" "$tmp/err"
}

t "sgd keeps a moment less" sgd_keeps_a_moment_less
t "a job with sgd is planned, explained and exported" a_job_with_sgd_is_planned_explained_and_exported
t "master weights take what their form does" master_weights_take_what_their_form_does
t "moments in 8 bits take a byte each" moments_in_8_bits_take_a_byte_each
t "a job says how weights are kept" a_job_says_how_weights_are_kept
tap_done
