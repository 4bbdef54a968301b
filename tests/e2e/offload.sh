#!/usr/bin/env bash
# What leaves the device, in real runs on this machine: the same losses wherever it lies, resumed
# onto another set and number of ranks; a disk too small, and one that fails, end a run with the
# reason.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
. tests/lib/run.sh
tap_cleanup() { ! mountpoint -q "$tmp/small" || umount "$tmp/small"; }
cat /usr/share/common-licenses/GPL-3 >"$tmp/text.txt"
mkdir -p "$tmp/nvme0" "$tmp/nvme1" "$tmp/small"

# plan FILE RANKS OPTION...
plan() {
    local file=$1 ranks=$2
    shift 2
    exits 0 "$berth" plan --here --ranks-per-node "$ranks" --model tiny-llama --tokens 4096 --seq 64 \
        --global-batch-tokens 512 --precision fp32 --strategy zero3 "$@" -q -o "$file" --json
}
run_of() { # run_of OPTION...: launch and follow to its end; $run is its id
    exits 0 "$berth" launch --here --data "local:$tmp/text.txt" "$@"
    run=$("$berth" status latest --json | jq -r .id) # two may start in one second
}
losses() { jq -r '"\(.step) \(.loss) \(.grad_norm)"' "$BERTH_HOME"/state/runs/"$1"/metrics.jsonl; }

losses_do_not_depend_on_where_things_lie() {
    for offload in none optimizer optimizer+params activations nvme nvme+params; do
        plan "$tmp/$offload.json" 2 --offload "$offload"
        jq -e --arg o "$offload" '.plans[0] | .offload == $o and .launchable' "$tmp/out"
        where=()
        [ "${offload%+*}" != nvme ] || where=(--nvme-dir "$tmp/nvme0,$tmp/nvme1" --nvme-endurance 1TB)
        run_of "$tmp/$offload.json" "${where[@]}"
        losses "$run" >"$tmp/losses.$offload"
        [ "$(wc -l <"$tmp/losses.$offload")" = 8 ]
        cmp "$tmp/losses.none" "$tmp/losses.$offload"
        exits 0 "$berth" export-weights "$run" "$tmp/weights.$offload"
        cmp "$tmp/weights.none/model.safetensors" "$tmp/weights.$offload/model.safetensors"
        # the slabs are those of the plan, to the byte, and so is what checkpoints take
        "$berth" status "$run" --json >"$tmp/status"
        jq -e --slurpfile p "$tmp/$offload.json" '.memory.slab_bytes == $p[0].prediction.memory.peak_bytes' \
            "$tmp/status"
        jq -e --slurpfile p "$tmp/$offload.json" '.memory.checkpoint_bytes > 4194304 and
            .memory.checkpoint_bytes == .memory.planned_checkpoint_bytes and
            2 * .memory.checkpoint_bytes == $p[0].prediction.host.parts.checkpoint_snapshot' "$tmp/status"
    done
    jq -e '.disk | .bytes == .written_bytes_per_step and .bytes_per_s > 0 and (.way | length) > 0' "$tmp/status"
    jq -e '.predicted.off_device_exposed_seconds >= 0 and .measured.exposed_seconds.host_compute >= 0' "$tmp/status"
    exits 0 "$berth" status "$run"
    says "written a step" "$tmp/out"
    # what a step waited for the host and the disk, beside what was planned of it
    says "off device" "$tmp/out"
    [ -z "$(ls "$tmp/nvme0" "$tmp/nvme1" | grep scratch)" ]
}

room_and_wear_are_said_before_the_start() {
    exits 0 "$berth" launch "$tmp/nvme.json" --here --data "local:$tmp/text.txt" --dry-run \
        --nvme-dir "$tmp/nvme0,$tmp/nvme1" --nvme-endurance 1TB
    says "of states per node in $tmp/nvme0, $tmp/nvme1; a step writes" "$tmp/out"
    says "% of the 931.3 GiB they are rated for" "$tmp/out"
    exits 2 "$berth" launch "$tmp/none.json" --here --data "local:$tmp/text.txt" --nvme-dir "$tmp/nvme0"
    says "the plan keeps nothing on disk" "$tmp/err"
    exits 2 "$berth" launch "$tmp/nvme.json" --here --data "local:$tmp/text.txt" --nvme-dir nvme0
    says "'nvme0' for states on disk needs an absolute path" "$tmp/err"
}

a_run_goes_on_with_another_set_and_number_of_ranks() {
    plan "$tmp/first.json" 2 --offload nvme --tokens 2M
    exits 0 "$berth" launch "$tmp/first.json" --here --data "local:$tmp/text.txt" --checkpoint-steps 2 -q -d
    run=$(cat "$tmp/out")
    until_true 60 saved 2
    exits 0 "$berth" stop "$run" -y
    for next in '1 optimizer+params' '2 nvme+params' '2 activations' '1 nvme+params' '1 nvme'; do
        step=$("$berth" status "$run" --json | jq .checkpoint.step)
        plan "$tmp/next.json" "${next% *}" --offload "${next#* }" --strategy ddp --tokens 2M
        exits 0 "$berth" resume "$run" --plan "$tmp/next.json" -q -d
        until_true 60 saved $((step + 2))
        exits 0 "$berth" stop "$run" -y
    done
}
saved() { [ "$("$berth" status "$run" --json | jq '.checkpoint.step // 0')" -ge "$1" ]; }

a_disk_too_small_is_refused_by_how_much() {
    mount -t tmpfs -o size=1m berth-small "$tmp/small"
    exits 10 "$berth" launch "$tmp/nvme.json" --here --data "local:$tmp/text.txt" --nvme-dir "$tmp/small"
    says "free, and what a rank keeps on disk needs 1.0 MiB there" "$tmp/err"
    says "too few" "$tmp/err"
    umount "$tmp/small"
}

a_disk_that_fails_ends_the_run_with_folder_and_errno() {
    exits 0 "$berth" launch "$tmp/first.json" --here --data "local:$tmp/text.txt" \
        --nvme-dir "$tmp/nvme0,$tmp/nvme1" --checkpoint-steps 1000000 -q -d
    run=$(cat "$tmp/out")
    until_true 60 stepped
    prlimit --pid "$(pgrep -f "berth-engine rank.*$run.*--rank 1")" --fsize=4096
    exits 10 "$berth" wait "$run"
    exits 0 "$berth" status "$run"
    says "of the scratch file in '$tmp/nvme" "$tmp/out"
    says "(errno 27)" "$tmp/out"
}
stepped() { [ "$("$berth" status "$run" --json | jq '.step // 0')" -ge 1 ]; }

t "losses do not depend on where things lie" losses_do_not_depend_on_where_things_lie
t "room and wear are said before the start" room_and_wear_are_said_before_the_start
t "a run goes on with another set and number of ranks" a_run_goes_on_with_another_set_and_number_of_ranks
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=1m berth-small "$tmp/small" 2>/dev/null; then
    umount "$tmp/small"
    t "a disk too small is refused by how much" a_disk_too_small_is_refused_by_how_much
else
    skip e2e-small-disk "cannot mount a small file system"
fi
t "a disk that fails ends the run with folder and errno" a_disk_that_fails_ends_the_run_with_folder_and_errno
tap_done
