#!/usr/bin/env bash
# Engines other than the bundled one: predicted and planned, with the reason why not launched.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

plan() { exits 0 "$berth" plan tests/cli/data/job.json --offers tests/cli/data/nodes.csv "$@"; }

their_plans_say_that_they_are_exported_not_launched() {
    plan --engine fsdp2 --json -o "$tmp/plan.json"
    [ "$(jq -r '.plans[0].launchable' "$tmp/out")" = false ]
    jq -r '.plans[0].not_launchable' "$tmp/out" >"$tmp/why"
    says "berth export --to fsdp2" "$tmp/why"
    [ "$(jq -r '.schedule.strategy.engine' "$tmp/plan.json")" = fsdp2 ]
    exits 0 "$berth" explain "$tmp/plan.json"
    says "fsdp2 zero" "$tmp/out"
    fails grep -q "differ" "$tmp/err"
    exits 2 "$berth" launch "$tmp/plan.json" --here -n
    says "berth export --to fsdp2" "$tmp/err"
}

only_their_strategies_are_searched() {
    plan --engine megatron --json
    [ "$(jq -r '[.plans[].strategy] | unique | join(",")' "$tmp/out")" = zero1 ]
    [ "$(jq -r '[.plans[].engine] | unique | join(",")' "$tmp/out")" = megatron ]
    # layers are split, so fewer ranks than all have data of their own
    exits 0 "$berth" plan --model llama-3.1-70b --tokens 1B --gpu h100-sxm --max-gpus 32 -q \
        --engine megatron -o "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json"
    jq -r '"\(.schedule.strategy | .ranks / (.tensor * .pipeline)) data ranks"' "$tmp/plan.json" >"$tmp/want"
    says "$(cat "$tmp/want")" "$tmp/out"
    plan --engine deepspeed --json
    jq -e '[.plans[].strategy] | all(. == "zero1" or . == "zero2" or . == "zero3")' "$tmp/out"
    exits 3 "$berth" plan tests/cli/data/job.json --offers tests/cli/data/nodes.csv \
        --engine megatron --strategy zero3
    says "engine megatron has no zero3 for" "$tmp/out"
    exits 3 "$berth" plan --here --ranks-per-node 1 --model gpt2 --tokens 1M --strategy hsdp
    says "engine berth has no hsdp for 1 rank" "$tmp/out"
}

memory_is_what_the_allocator_holds() {
    exits 0 "$berth" estimate --model llama-3.1-8b --gpus 8 --engine deepspeed --recompute full --json
    jq -e '.memory | .peak_bytes - .allocated_bytes == .parts.packing' "$tmp/out"
    jq -e '.memory | .nvidia_smi_bytes == .peak_bytes + .external_bytes' "$tmp/out"
    jq -e '.basis.calibration.stack == "deepspeed" and .basis.nearest == "sibling"' "$tmp/out"
    exits 0 "$berth" estimate --model llama-3.1-8b --gpus 8 --json
    jq -e '.memory | has("allocated_bytes") | not' "$tmp/out"
    for chunks in 1 8; do
        exits 0 "$berth" estimate --model llama-3.1-8b --gpus 8 --engine fsdp2 --json --loss-chunks $chunks
        jq .memory.parts.logits "$tmp/out" >"$tmp/logits.$chunks"
    done
    [ "$(cat "$tmp/logits.8")" -lt "$(cat "$tmp/logits.1")" ]
}

# Megatron-LM's paper (arXiv 2104.04473): bubble of p - 1 micro batches, less with virtual stages
splits_change_the_step() {
    local args=(--model llama-3-70b --gpus 64 --engine megatron --tensor 8 --pipeline 4 --json)
    exits 0 "$berth" estimate "${args[@]}" --grad-accum 4
    jq .step.tokens_per_second_per_gpu "$tmp/out" >"$tmp/few"
    exits 0 "$berth" estimate "${args[@]}" --grad-accum 4 --virtual-stages 5
    jq .step.tokens_per_second_per_gpu "$tmp/out" >"$tmp/interleaved"
    jq -en --slurpfile a "$tmp/few" --slurpfile b "$tmp/interleaved" '$b[0] > 1.2 * $a[0]'
    exits 0 "$berth" estimate --model llama-3-70b --gpus 64 --engine megatron --tp 8 --pp=4 --vp 5 \
        --grad-accum 4 --json
    jq .step.tokens_per_second_per_gpu "$tmp/out" | cmp - "$tmp/interleaved"
    exits 0 "$berth" estimate "${args[@]}" --global-batch-tokens 131072
    [ "$(jq .strategy.grad_accum "$tmp/out")" = 16 ]
}

what_cannot_be_is_refused() {
    exits 2 "$berth" estimate --model gpt2 --gpus 8 --tensor 2
    says "engine berth is data-parallel" "$tmp/err"
    exits 2 "$berth" estimate --model gpt2 --gpus 8 --engine fsdp1 --tensor 2
    says "fsdp1 is data-parallel" "$tmp/err"
    exits 2 "$berth" estimate --model gpt2 --gpus 8 --engine fsdp2 --tensor 3
    says "not a multiple" "$tmp/err"
    exits 2 "$berth" estimate --model gpt2 --gpus 8 --engine megatron --strategy zero3
    says "has no zero3" "$tmp/err"
    exits 2 "$berth" estimate --model gpt2 --gpus 8 --engine fsdp2 --reshard never
    says "by the name of zero2" "$tmp/err"
    exits 2 "$berth" estimate --model gpt2 --gpus 8 --precision fp4
    says "bf16, fp32 and fp8" "$tmp/err"
    exits 2 "$berth" estimate --model gpt2 --gpus 8 --engine fsdp2 --stack nothing
    says "fsdp2-torchtitan" "$tmp/err"
    exits 0 "$berth" estimate --model gpt2 --gpus 8 --engine fsdp2 --precision fp8
    exits 2 "$berth" estimate --model gpt2 --gpus 2 --gpu cpu --engine fsdp2
    says "predicted on GPUs only" "$tmp/err"
    exits 3 "$berth" plan --here --model tiny-gpt2 --tokens 2048 --engine fsdp2
    says "predicted on GPUs only" "$tmp/out"
}

a_calibration_of_ones_own_counts() {
    cat >"$tmp/mine.json" <<'END'
{"schema": "calibration/1", "entries": [{"device": "gpu", "chip": "*", "stack": "*", "date":
"2026-01-01", "rows": 1, "residual": 0, "prior": false, "source": "mine", "values": {"step_overhead_s": 5}}]}
END
    exits 0 "$berth" estimate --model gpt2 --gpus 8 --calibration "$tmp/mine.json" --json
    jq -e '.step.seconds > 5' "$tmp/out"
    plan --calibration "$tmp/mine.json" --json
    jq -e '.plans[0].step.seconds > 5' "$tmp/out"
    plan --calibration "$tmp/mine.json" -o "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json"
    says "the figures of the plan" "$tmp/err"
    exits 0 "$berth" explain "$tmp/plan.json" --calibration "$tmp/mine.json"
    fails grep -q "the figures of the plan" "$tmp/err"
}

precisions_of_other_engines_are_named_as_such() {
    exits 2 "$berth" estimate --model gpt2 --gpu h100-sxm --precision fp4
    one_sentence
    says "the bundled engine computes in bf16, fp32 and fp8, not in fp4; other engines" "$tmp/err"
    exits 0 "$berth" estimate --model llama-3.1-8b --gpu h100-sxm --gpus 8 --precision fp8 \
        --engine megatron --strategy zero1
}

experts_are_split_over_gpus() {
    local estimate=("$berth" estimate --model mixtral-8x7b --gpu h100-sxm --gpus 64 --engine megatron
        --strategy zero1 --seq 4096 --json)
    exits 0 "${estimate[@]}" --tensor 2 --pipeline 4
    cp "$tmp/out" "$tmp/whole.json"
    exits 0 "${estimate[@]}" --tensor 2 --pipeline 4 --expert 8
    jq -e --slurpfile whole "$tmp/whole.json" '.parameters == 46702792704 and
        .active_parameters / 12.9e9 > 0.99 and .active_parameters / 12.9e9 < 1.01 and
        .memory.parts.parameters < $whole[0].memory.parts.parameters / 2 and
        .step.seconds != $whole[0].step.seconds' "$tmp/out"
    exits 2 "${estimate[@]}" --expert 3
    says "does not divide the 8 experts" "$tmp/err"
    exits 2 "$berth" estimate --model llama-3.1-8b --gpu h100-sxm --gpus 8 --engine megatron \
        --strategy zero1 --expert 8
    says "has no experts" "$tmp/err"
    exits 0 "$berth" compare --model mixtral-8x22b --gpu h100-sxm --gpus 64 --engine fsdp2,berth --json
    jq -e '[.engines[] | select(.engine == "fsdp2") | .strategy.expert] == [8]' "$tmp/out"
    exits 0 "$berth" plan --model mixtral-8x7b --tokens 1B --gpu h100-sxm --engine fsdp2 --json \
        -o "$tmp/moe.json"
    jq -e '.plans[0].expert == 8 and (.plans[0].launchable | not)' "$tmp/out"
    exits 0 "$berth" export "$tmp/moe.json" --to torchtitan
    says "expert_parallel_degree = 8" "$tmp/out"
    exits 0 "$berth" plan --model mixtral-8x7b --tokens 1B --gpu h100-sxm --json
    jq -e '.plans[0].not_launchable | contains("mixtures of experts are only planned")' "$tmp/out"
}

for name in their_plans_say_that_they_are_exported_not_launched only_their_strategies_are_searched \
    memory_is_what_the_allocator_holds splits_change_the_step what_cannot_be_is_refused \
    a_calibration_of_ones_own_counts precisions_of_other_engines_are_named_as_such \
    experts_are_split_over_gpus; do
    t "$name" "$name"
done
tap_done
