#!/usr/bin/env bash
# Engines side by side; every figure says where it comes from.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

every_engine_has_a_row() {
    exits 0 "$berth" compare --model llama-3.1-8b --gpus 32 --plain --no-header
    [ "$(cut -f 1 "$tmp/out" | sort | uniq | wc -l)" = 8 ]
    cut -f 2 "$tmp/out" | sort -u >"$tmp/sources"
    [ "$(cat "$tmp/sources")" = derived ]
}

chosen_engines_alone_are_compared() {
    exits 0 "$berth" compare --model llama-3.1-8b --gpus 32 --engine fsdp2,deepspeed --engine berth --json
    jq -e '[.engines[].engine] | sort == ["berth", "deepspeed", "fsdp2"]' "$tmp/out"
    jq -e '[.engines[].step.seconds] | . == sort' "$tmp/out"
    jq -e '.engines[] | select(.engine == "berth") | .strategy | has("engine") | not' "$tmp/out"
    exits 2 "$berth" compare --model llama-3.1-8b --engine fsdp2,horovod
    says "megatron-deepspeed" "$tmp/err"
}

the_standard_offload_case_fits_without() {
    exits 0 "$berth" compare --model llama-3.1-70b --gpu h100-sxm --gpus 32 --engine deepspeed
    says "deepspeed fits without offload" "$tmp/out"
    # the row is the faster of both, and the sentence compares the other one with it
    if grep -q 'optimizer on the host  ' "$tmp/out"; then
        says 'as shown' "$tmp/out"
    fi
    fails grep -Eq 'takes (0\.[0-9]+|1\.00) times' "$tmp/out"
    exits 0 "$berth" compare --model llama-3.1-70b --gpu h100-sxm --gpus 32 --engine deepspeed --json
    jq -e '.engines[0] | .fits and (.needs_offload | not) and .plain_step_seconds > 0' "$tmp/out"
}

claims_are_marked_and_refuted_ones_kept_away() {
    exits 0 "$berth" compare --model llama-3.1-405b --gpus 512 --engine deepspeed,fsdp1 --plain
    grep -P '^deepspeed\tclaimed\tunverifiable' "$tmp/out"
    fails grep -q refuted "$tmp/out"
    exits 0 "$berth" compare --claims --json
    jq -e '.claims | length > 20 and all(.verdict == "holds" or .verdict == "refuted" or
        .verdict == "unverifiable") and all(.source | length > 0)' "$tmp/out"
    jq -r '.claims[] | select(.id == "offload-standard") | .verdict' "$tmp/out" | grep -qx refuted
    exits 0 "$berth" compare --claims
    says "offload-standard: refuted" "$tmp/out"
    [ "$(awk '{ if (length($0) > 80) n++ } END { print n + 0 }' "$tmp/out")" = 0 ]
}

# what the claims point at is in the table of runs
sources_of_claims_exist() {
    local id
    for id in $(grep -v '^#' planner/facts/claims.csv | grep -oE '\b[a-z][a-z0-9]+(-[a-z0-9]+)*-[0-9]{3}\b' | sort -u); do
        grep -q "^$id," planner/facts/measured.csv || { echo "no run $id"; return 1; }
    done
}

runs_are_shown_beside() {
    exits 0 "$berth" compare --model llama-3.1-8b --gpus 128 --seq 8192 --engine megatron \
        --measured planner/facts/measured.csv --json
    jq -e '.measured | length == 1 and .[0].source == "measured" and
        .[0].tokens_per_second_per_gpu > 1000' "$tmp/out"
    local id
    id=$(jq -r '.measured[0].id' "$tmp/out")
    grep "^$id," planner/facts/measured.csv | grep -q ',8192,128,h100-sxm,'
}

a_price_gives_a_cost() {
    exits 0 "$berth" compare --model llama-3.1-8b --gpus 32 --engine fsdp2 --json \
        --price-usd-per-gpu-hour 2 --tokens 1B
    jq -e '.engines[0] | (.cost_usd - 1e9 / .step.tokens_per_second_per_gpu / 3600 * 2 | fabs) < 1e-6' "$tmp/out"
    exits 0 "$berth" compare --model llama-3.1-8b --gpus 32 --engine fsdp2 --json
    jq -e '.engines[0].cost_usd == null' "$tmp/out"
}

when_nothing_fits_it_says_so() {
    exits 3 "$berth" compare --model llama-3.1-405b --gpus 8 --engine fsdp2,ddp
    says "fsdp2 does not fit: it lacks" "$tmp/out"
    exits 3 "$berth" compare --model llama-3.1-405b --gpus 8 --engine fsdp2 --json
    jq -e '.engines[0] | .fits == false and .short_by_bytes > 0' "$tmp/out"
    exits 2 "$berth" compare --model gpt2 --gpus 24 --global-batch-tokens 524288
    says "--global-batch-tokens" "$tmp/err"
}

what_is_trained_and_how_it_is_kept_counts() {
    local of="--model llama-3.1-8b --gpus 8 --engine berth,fsdp2 --json"
    exits 0 "$berth" compare $of
    cp "$tmp/out" "$tmp/plain"
    exits 0 "$berth" compare $of --moments 8bit --master split
    jq -es 'map(.engines | map({(.engine): .step.seconds}) | add) |
        .[0].berth != .[1].berth and .[0].fsdp2 == .[1].fsdp2' "$tmp/plain" "$tmp/out"
    exits 0 "$berth" compare $of --doc-tokens 512
    jq -es 'map(.engines | map({(.engine): .step.seconds}) | add) |
        .[0].berth > .[1].berth and .[0].fsdp2 > .[1].fsdp2' "$tmp/plain" "$tmp/out"
    exits 0 "$berth" compare $of --lora 16
    jq -es 'map(.engines | map({(.engine): .memory.peak_bytes}) | add) |
        .[0].berth > .[1].berth' "$tmp/plain" "$tmp/out"
    exits 2 "$berth" compare --model gpt2 --moments 3bit
    says "fp32|8bit|fp8" "$tmp/err"
}

for name in what_is_trained_and_how_it_is_kept_counts every_engine_has_a_row chosen_engines_alone_are_compared \
    the_standard_offload_case_fits_without claims_are_marked_and_refuted_ones_kept_away \
    sources_of_claims_exist runs_are_shown_beside a_price_gives_a_cost when_nothing_fits_it_says_so; do
    t "$name" "$name"
done
tap_done
