#!/usr/bin/env bash
# A plan for a device that this build's engine lacks says so, and launch refuses it.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

a_gpu_plan_says_that_it_cannot_be_launched() {
    exits 0 "$berth" plan tests/cli/data/job.json --offers tests/cli/data/nodes.csv --json \
        -o "$tmp/plan.json"
    [ "$(jq -r '.plans[0].launchable' "$tmp/out")" = false ]
    jq -r '.plans[0].not_launchable' "$tmp/out" >"$tmp/why"
    says "CPU nodes only" "$tmp/why"
    echo data >"$tmp/data.txt"
    # what the file claims does not count
    jq '.launchable = true | .not_launchable = null' "$tmp/plan.json" >"$tmp/claims.json"
    for plan in plan claims; do
        exits 2 "$berth" launch "$tmp/$plan.json" --here --data "local:$tmp/data.txt" -n
        says "CPU nodes only" "$tmp/err"
    done
}

a_cpu_plan_can_be_launched() {
    exits 0 "$berth" plan --here --ranks-per-node 1 --model tiny-gpt2 --tokens 2048 --seq 64 \
        --precision fp32 --json
    [ "$(jq -r '.plans[0].launchable' "$tmp/out")" = true ]
}

t a_gpu_plan_says_that_it_cannot_be_launched a_gpu_plan_says_that_it_cannot_be_launched
t a_cpu_plan_can_be_launched a_cpu_plan_can_be_launched
tap_done
