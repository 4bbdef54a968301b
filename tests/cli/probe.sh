#!/usr/bin/env bash
# probe: constants of this machine from steps of a plan, and what plans make of them.
. "$(dirname "$0")/../lib/tap.sh"

plan() {
    "$berth" plan --here --ranks-per-node "$1" --model tiny-llama --precision fp32 --seq 64 \
        --global-batch-tokens 512 --tokens 100k --strategy "$2" -q -o "$tmp/$3.json" "${@:4}" >"$tmp/list"
}
plan 1 ddp one
plan 2 zero3 two
data=$("$berth" paths --json | jq -r .data)

# how wide the band gets is a matter of how quiet the machine is: not asserted
later_plans_are_made_of_what_a_probe_saw() {
    jq -e '.prediction.basis.nearest == "prior"' "$tmp/one.json"
    exits 0 "$berth" probe --plan "$tmp/one.json" --plan "$tmp/two.json" --steps 12 -q --json
    jq -e '.schema == "probe/1" and (.plans | length == 2) and
        (.plans | all(.step_seconds > 0 and .after.seconds > 0))' "$tmp/out"
    jq -e '.calibration.entries[0] | .device == "cpu" and .stack == "berth" and .prior == false and
        .values.matmul_fp32_of_peak > 0 and .values.attention_efficiency > 0 and
        .values.link_bytes_per_s > 0 and .values.external_bytes > 0 and
        .values.host_bytes_per_s > 0 and .values.host_adam_bytes_per_param > 0 and
        .values.matmul_fp8_speedup > 0 and .values.matmul_thread_loss > 0 and
        .values.fabric_stream_bytes_per_s > 0 and .values.fabric_tcp_hop_s >= 50e-6' "$tmp/out"
    plan 1 ddp again
    jq -e '.constants.matmul_fp32_of_peak.source | startswith("berth probe: 2 plans")' "$tmp/again.json"
    jq -e '.prediction.basis.nearest == "calibrated"' "$tmp/again.json"
}

another_probe_of_the_processor_takes_the_place_of_the_first() {
    jq '.entries[0] + {chip: "another-cpu"}' "$data/calibration.json" >"$tmp/other"
    jq --slurpfile o "$tmp/other" '.entries += $o' "$data/calibration.json" >"$tmp/both"
    cp "$tmp/both" "$data/calibration.json"
    exits 0 "$berth" probe --plan "$tmp/one.json" --steps 4 -q
    jq -e '.entries | length == 2 and .[0].chip == "another-cpu"' "$data/calibration.json"
    jq -e '.entries[1].source == "berth probe: 1 plan, 4 steps each"' "$data/calibration.json"
}

what_is_written_elsewhere_is_used_on_demand_only() {
    rm "$data/calibration.json"
    exits 0 "$berth" probe --plan "$tmp/one.json" --steps 4 -q -o "$tmp/mine.json"
    [ ! -e "$data/calibration.json" ]
    plan 1 ddp without
    jq -e '.constants.matmul_fp32_of_peak.source | startswith("berth probe") | not' "$tmp/without.json"
    plan 1 ddp with --calibration "$tmp/mine.json"
    jq -e '.constants.matmul_fp32_of_peak.source | startswith("berth probe")' "$tmp/with.json"
}

parts_are_benched_without_a_plan() {
    exits 0 "$engine" bench --products 2 --memory 2 --optimizer 1 --nvme-dir "$tmp"
    jq -e '.schema == "bench/1" and (has("step_seconds") | not) and
        ([.parts[] | select(.what == "product") | .form] | unique == ["bf16", "fp32", "fp8"]) and
        ([.parts[] | select(.what == "product") | [.threads, .at_once]] | unique == [[1, 2], [2, 1]]) and
        ([.parts[].what] | unique == ["disk", "memory", "optimizer", "product"]) and
        (.parts | all(.seconds > 0 and .size[0] > 0))' "$tmp/out"
    exits 2 "$engine" bench
    says "usage: berth-engine bench" "$tmp/err"
    exits 2 "$engine" bench --products 100000
}

a_broken_file_of_constants_is_named() {
    echo '{"schema": "calibration/1", "entries": [{"device": "cpu"}]}' >"$data/calibration.json"
    exits 2 "$berth" plan --here --model tiny-llama --tokens 100k
    says "calibration.json': calibration entry 1: field 'chip' is missing" "$tmp/err"
    exits 2 "$berth" probe --plan "$tmp/one.json" --steps 4 -q
    says "calibration.json': calibration entry 1: field 'chip' is missing" "$tmp/err"
    rm "$data/calibration.json"
}

what_a_plan_keeps_on_disk_goes_to_folders_that_are_empty_afterwards() {
    mkdir -p "$tmp/nvme0" "$tmp/nvme1"
    plan 2 zero3 disk --offload nvme
    exits 2 "$berth" probe --plan "$tmp/disk.json" --steps 4 -q -o "$tmp/mine.json"
    says 'name folders for it with --nvme-dir' "$tmp/err"
    exits 0 "$berth" probe --plan "$tmp/disk.json" --steps 4 -q -o "$tmp/mine.json" \
        --nvme-dir "$tmp/nvme0,$tmp/nvme1"
    jq -e '.entries[0].values.disk_bytes_per_s > 0' "$tmp/mine.json"
    [ -z "$(ls -A "$tmp/nvme0" "$tmp/nvme1" | grep -v :)" ]
    exits 2 "$berth" probe --plan "$tmp/disk.json" --steps 4 -q --nvme-dir nvme0
    says "'nvme0' for states on disk needs an absolute path" "$tmp/err"
}

what_cannot_be_probed_is_refused() {
    exits 2 "$berth" probe
    says 'berth plan --here' "$tmp/err"
    exits 2 "$berth" probe --plan "$tmp/none.json"
    says "none.json" "$tmp/err"
    exits 2 "$berth" probe --plan "$tmp/one.json" --steps 0
    jq '.schedule.hash = "00000000000000000000000000000000"' "$tmp/one.json" >"$tmp/other.json"
    exits 2 "$berth" probe --plan "$tmp/other.json"
    says 'schedule' "$tmp/err"
    "$berth" plan --model gpt2 --tokens 1B --gpu h100 --max-gpus 8 -q -o "$tmp/gpu.json" >"$tmp/list"
    exits 2 "$berth" probe --plan "$tmp/gpu.json"
    says 'cannot be launched' "$tmp/err"
    [ ! -e "$data/calibration.json" ]
}

nothing_is_left_when_it_is_interrupted() {
    plan 2 zero2 long
    "$berth" probe --plan "$tmp/long.json" --steps 4000 -q >"$tmp/out" 2>"$tmp/err" &
    local pid=$! i
    for i in $(seq 100); do
        pgrep -f "bench --plan $tmp/long.json" >/dev/null && break
        sleep 0.1
    done
    kill -TERM "$pid"
    wait "$pid" || [ $? = 130 ]
    for i in $(seq 50); do
        pgrep -f "bench --plan $tmp/long.json" >/dev/null || return 0
        sleep 0.1
    done
    return 1
}

for f in later_plans_are_made_of_what_a_probe_saw \
    another_probe_of_the_processor_takes_the_place_of_the_first \
    what_is_written_elsewhere_is_used_on_demand_only parts_are_benched_without_a_plan \
    a_broken_file_of_constants_is_named \
    what_a_plan_keeps_on_disk_goes_to_folders_that_are_empty_afterwards \
    what_cannot_be_probed_is_refused nothing_is_left_when_it_is_interrupted; do
    t "$f" "$f"
done
tap_done
