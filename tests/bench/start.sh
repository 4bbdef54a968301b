#!/usr/bin/env bash
# From `berth launch` to the first step of GPT-2 124M on two ranks of this machine, in seconds: staging,
# preflight, start, memory, warm-up, first values, step. The step alone beside it.
set -eu
cd "$(dirname "$0")/../.."
build=${BUILD:-build}
case $build in /*) ;; *) build=$PWD/$build ;; esac
work=$(mktemp -d)
export BERTH_HOME=$work/home HOME=$work/user
mkdir -p "$HOME"
trap 'rm -rf "$work"' EXIT
cat README.md docs/*.md >"$work/text.txt"
"$build/berth" plan --here --ranks-per-node 2 --model gpt2 --precision fp32 --strategy zero3 --seq 64 \
    --global-batch-tokens 512 --tokens 1024 -q -o "$work/plan.json" >/dev/null
for round in 1 2 3; do
    start=$(date +%s.%N)
    "$build/berth" launch "$work/plan.json" --here --data "local:$work/text.txt" >"$work/out" 2>&1
    metrics=$(ls "$BERTH_HOME"/state/runs/*/metrics.jsonl | tail -n 1)
    jq -rs --argjson start "$start" '"start to first step, gpt2, 2 ranks: \(.[0].wall_s - $start |
        . * 100 | round / 100) s, of which the step took \(.[0].step_seconds * 100 | round / 100) s"' "$metrics"
done
