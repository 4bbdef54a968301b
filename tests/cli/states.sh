#!/usr/bin/env bash
# How weights are updated: --optimizer of berth estimate, training.optimizer of jobs.
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

t "sgd keeps a moment less" sgd_keeps_a_moment_less
t "a job with sgd is planned, explained and exported" a_job_with_sgd_is_planned_explained_and_exported
tap_done
