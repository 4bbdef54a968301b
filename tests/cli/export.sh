#!/usr/bin/env bash
# Plans as configuration of other software: files that their readers take, and hostile texts in them.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

plan() {
    exits 0 "$berth" plan tests/cli/data/job.json --offers tests/cli/data/nodes.csv -q \
        -o "$tmp/plan.json" "$@"
}

a_plan_becomes_a_deepspeed_file() {
    plan --engine deepspeed
    exits 0 "$berth" export "$tmp/plan.json" --to deepspeed -o "$tmp/ds.json"
    says "left to you: sequences of 2048 tokens" "$tmp/err"
    jq -e --slurpfile p "$tmp/plan.json" '$p[0].schedule.strategy as $s |
        .train_batch_size * $s.seq == $p[0].job.global_batch_tokens and
        .train_micro_batch_size_per_gpu == $s.micro_batch and
        .scheduler.params.total_num_steps == $p[0].steps' "$tmp/ds.json"
}

a_script_for_sbatch_is_a_script() {
    plan
    exits 0 "$berth" export "$tmp/plan.json" --to slurm
    bash -n "$tmp/out"
    says "#SBATCH --nodes=1" "$tmp/out"
    head -n 1 "$tmp/out" | grep -qx '#!/bin/bash'
}

# what stands in the file is not left to anybody
clipping_is_either_written_or_left_out() {
    jq '.training = {clip_norm: 0.5}' tests/cli/data/job.json >"$tmp/job.json"
    for engine in deepspeed fsdp2; do
        exits 0 "$berth" plan "$tmp/job.json" --offers tests/cli/data/nodes.csv -q \
            -o "$tmp/clip.json" --engine $engine
        exits 0 "$berth" export "$tmp/clip.json" --to accelerate -o "$tmp/clip.yaml"
        if [ $engine = deepspeed ]; then
            says "gradient_clipping: 0.5" "$tmp/clip.yaml"
            says "left to you: optimizer and learning rate" "$tmp/err"
            fails grep -q clipping "$tmp/err"
        else
            fails grep -q clipping "$tmp/clip.yaml"
            says "left to you: optimizer, learning rate and clipping" "$tmp/err"
        fi
    done
}

# the same name in a file of every kind
texts_of_the_plan_cannot_leave_their_quotes() {
    local name=$'x\'; touch '"$tmp/gone"$'; "\n#SBATCH --evil\nb = $(touch '"$tmp/gone"')'
    plan --engine fsdp2
    jq --arg name "$name" '.job.model.name = ($name | .[0:60]) | .job.data = "local:" + $name' \
        "$tmp/plan.json" >"$tmp/evil.json"
    for to in env slurm fsdp2 accelerate torchtitan; do
        exits 0 "$berth" export "$tmp/evil.json" --to "$to" -o "$tmp/evil.$to"
    done
    for to in slurm fsdp2 accelerate torchtitan; do
        fails grep -q -e '^#SBATCH --evil' -e '^b = ' "$tmp/evil.$to"
    done
    bash -n "$tmp/evil.slurm"
    (. "$tmp/evil.env" && [ "$PLAN_DATA" = "local:$name" ])
    [ ! -e "$tmp/gone" ]
}

what_cannot_be_is_refused() {
    exits 2 "$berth" export --model gpt2 --gpus 8 --strategy zero1 --to fsdp2
    says "FSDP has no zero1" "$tmp/err"
    exits 2 "$berth" export --model gpt2 --gpus 8
    says "give --to TARGET" "$tmp/err"
    exits 2 "$berth" export --to slurm
    says "give a plan file, or --model NAME" "$tmp/err"
    plan
    exits 2 "$berth" export "$tmp/plan.json" --micro-batch 2 --to env
    says "--micro-batch" "$tmp/err"
    exits 2 "$berth" export "$tmp/plan.json" --model gpt2 --to env
    says "exclude each other" "$tmp/err"
    exits 2 "$berth" export "$tmp/none.json" --to env
}

json_holds_the_file_and_what_is_left() {
    exits 0 "$berth" export --model llama-3.1-8b --gpus 16 --engine fsdp2 --to fsdp2 --json
    jq -e '.schema == "export/1" and (.text | contains("fsdp_version: 2")) and
        (.left_out | length > 1)' "$tmp/out"
    [ ! -s "$tmp/err" ]
}

for name in a_plan_becomes_a_deepspeed_file clipping_is_either_written_or_left_out a_script_for_sbatch_is_a_script \
    texts_of_the_plan_cannot_leave_their_quotes what_cannot_be_is_refused \
    json_holds_the_file_and_what_is_left; do
    t "$name" "$name"
done
tap_done
