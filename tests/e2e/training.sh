#!/usr/bin/env bash
# The real engine under the faults a run meets: a rank killed in the middle of a step, a node's folder
# gone between stop and resume, a disk that fills up while a checkpoint is written.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
. tests/lib/sshd.sh
. tests/lib/run.sh
sshd_two_nodes e2e-training
tap_cleanup() {
    sshd_end_everything
    ! mountpoint -q "$tmp/small" || umount "$tmp/small"
}
cat /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/Apache-2.0 >"$tmp/text.txt"
"$berth" offers --here --json | jq '{schema, offers: [.offers[0] | .nodes_available = 2 |
    .max_nodes_one_fabric = 2 | .fabric = "ethernet" | .inter_gbps_per_node = 10 |
    .gpus_per_node = 1 | .provenance = null]}' >"$tmp/offers.json"
# sharded over both nodes, short steps, so many that the run does not end by itself
"$berth" plan --offers "$tmp/offers.json" --objective time --strategy zero3 --model tiny-llama \
    --tokens 4M --seq 64 --global-batch-tokens 512 --precision fp32 -q -o "$tmp/plan2.json" >"$tmp/plan.out"

# start_run [OPTION...]: launch the plan, $run is its id
start_run() {
    "$berth" launch "$tmp/plan2.json" --hosts "${hosts:-$tmp/hosts}" "${sshd_connect[@]}" \
        --data "local:$tmp/text.txt" --checkpoint-steps 20 "$@" -q -d >"$tmp/run-id"
    run=$(cat "$tmp/run-id")
}
saved() { [ "$("$berth" status "$run" --json "${sshd_connect[@]}" | jq '.checkpoint.step // 0')" -ge "$1" ]; }
loss_of() { jq -s --argjson n "$1" '[.[] | select(.step == $n)] | last | .loss' "$(node_dir a 0)/metrics.jsonl"; }

a_rank_killed_in_a_step_is_named_and_the_run_can_go_on() {
    start_run
    until_true 60 saved 20
    kill -9 "$(rank_pid b 1 1)"
    exits 10 "$berth" wait "$run" "${sshd_connect[@]}"
    "$berth" status "$run" --json "${sshd_connect[@]}" >"$tmp/status.json"
    jq . "$tmp/status.json"
    # the first cause is the rank that was killed, not those that lost it
    [ "$(jq .failure.rank "$tmp/status.json")" = 1 ]
    nothing_left
    before=$(jq .checkpoint.step "$tmp/status.json")
    exits 0 "$berth" resume "$run" "${sshd_connect[@]}" -q -d
    until_true 60 saved $((before + 20))
    exits 0 "$berth" stop "$run" "${sshd_connect[@]}" -y
    nothing_left
}

a_lost_folder_is_restored_from_the_partner_and_training_is_the_same() {
    start_run
    until_true 60 saved 20
    exits 0 "$berth" stop "$run" "${sshd_connect[@]}" -y
    step=$("$berth" status "$run" --json "${sshd_connect[@]}" | jq .checkpoint.step)
    cp -r "$sshd_dir/a/home/berth/runs" "$tmp/kept-a"
    cp -r "$sshd_dir/b/home/berth/runs" "$tmp/kept-b"
    losses=
    for lost in none b a; do
        rm -rf "$sshd_dir/a/home/berth/runs" "$sshd_dir/b/home/berth/runs"
        cp -r "$tmp/kept-a" "$sshd_dir/a/home/berth/runs"
        cp -r "$tmp/kept-b" "$sshd_dir/b/home/berth/runs"
        case $lost in
        a) rm -rf "$(node_dir a 0)" ;;
        b) rm -rf "$(node_dir b 1)" ;;
        esac
        exits 0 "$berth" resume "$run" "${sshd_connect[@]}" --step "$step" -q -d
        until_true 60 saved $((step + 1))
        exits 0 "$berth" stop "$run" "${sshd_connect[@]}" -y
        losses="$losses $(loss_of $((step + 1)))"
    done
    echo "losses of the step after resuming: $losses"
    [ "$(echo "$losses" | xargs -n1 | sort -u | wc -l)" = 1 ]
    nothing_left
}

resumed_at() { jq -s '[.[] | select(.event == "resumed")] | last | .step // 0' "$(node_dir a 0)/events.jsonl"; }
has_resumed() { [ "$(jq -s '[.[] | select(.event == "resumed")] | length' "$(node_dir a 0)/events.jsonl")" -ge "$1" ]; }

# BERTH_CRASH_ROUNDS and BERTH_CRASH_SEED: how often, and when
a_node_that_dies_while_saving_costs_no_reported_checkpoint() {
    local seed=${BERTH_CRASH_SEED:-1} rounds=${BERTH_CRASH_ROUNDS:-2} last=0
    echo "seed $seed"
    RANDOM=$seed
    start_run --checkpoint-steps 1 # one save after the other
    for i in $(seq "$rounds"); do
        until_true 60 saved $((last + 2))
        sleep "0.$(printf %03d $((RANDOM % 300)))"
        # its rank goes with it
        if [ $((RANDOM % 2)) = 0 ]; then kill -9 "$(agent_pid b 1)"; else kill -9 "$(rank_pid b 1 1)"; fi
        exits 10 "$berth" wait "$run" "${sshd_connect[@]}"
        until_true 12 nothing_left
        last=$("$berth" status "$run" --json "${sshd_connect[@]}" | jq .checkpoint.step)
        exits 0 "$berth" resume "$run" "${sshd_connect[@]}" -q -d
        until_true 60 has_resumed "$i"
        echo "reported: step $last, resumed at step $(resumed_at)"
        [ "$(resumed_at)" -ge "$last" ]
    done
    exits 0 "$berth" stop "$run" "${sshd_connect[@]}" -y
    [ -z "$(find "$(node_dir a 0)/ckpt" "$(node_dir b 1)/ckpt" -name '*.tmp*')" ]
    nothing_left
}

without_any_copy_the_missing_file_is_named() {
    start_run --store local
    until_true 60 saved 20
    exits 0 "$berth" stop "$run" "${sshd_connect[@]}" -y
    rm -rf "$(node_dir b 1)"
    exits 10 "$berth" resume "$run" "${sshd_connect[@]}"
    says "rank-0001.safetensors' is missing or damaged on every host" "$tmp/err"
    nothing_left
}

a_disk_full_while_saving_ends_the_run_with_the_old_checkpoint_whole() {
    sshd_hosts a >"$tmp/full"
    echo "127.0.0.1:$(cat "$sshd_dir/b/port") dir=$tmp/small/berth" >>"$tmp/full"
    hosts=$tmp/full start_run
    until_true 60 saved 20
    # nothing is left, nor when an old checkpoint makes room for the next one
    while [ -d "$tmp/small" ] && sleep 0.05; do cat /dev/zero >>"$tmp/small/fill" || true; done 2>/dev/null &
    local filler=$!
    exits 10 "$berth" wait "$run" "${sshd_connect[@]}"
    kill "$filler"
    wait "$filler" || true
    "$berth" status "$run" --json "${sshd_connect[@]}" >"$tmp/status.json"
    jq . "$tmp/status.json"
    jq -r .failure.message "$tmp/status.json" >"$tmp/message"
    says "checkpoint of step" "$tmp/message"
    says "No space left on device" "$tmp/message"
    rm "$tmp/small/fill"
    [ -z "$(find "$sshd_dir/a/home/berth/runs/$run" "$tmp/small/berth/runs/$run" -name '*.tmp*')" ]
    exits 0 "$berth" resume "$run" "${sshd_connect[@]}" -q -d
    until_true 60 saved $(($(jq .checkpoint.step "$tmp/status.json") + 1))
    exits 0 "$berth" stop "$run" "${sshd_connect[@]}" -y
    nothing_left
}

held_out_text_is_staged_and_its_loss_falls() {
    head -c 20000 /usr/share/common-licenses/MPL-2.0 >"$tmp/held-out.txt"
    echo '{"model": "tiny-llama", "tokens": 16384, "seq": 64, "global_batch_tokens": 512,
        "precision": "fp32", "strategies": ["zero3"], "eval_data": "local:'"$tmp"'/held-out.txt",
        "eval_every_steps": 8, "eval_tokens": 4096, "training": {"lr": 3e-3, "schedule": "wsd"}}' \
        >"$tmp/job.json"
    "$berth" plan --offers "$tmp/offers.json" --objective time "$tmp/job.json" -q \
        -o "$tmp/plan-eval.json" >/dev/null
    "$berth" launch "$tmp/plan-eval.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/text.txt" >"$tmp/out" 2>"$tmp/err"
    says "validation loss" "$tmp/err"
    run=$("$berth" status latest --json "${sshd_connect[@]}" | jq -r .id)
    "$berth" status "$run" --json "${sshd_connect[@]}" | jq -c .evaluation | tee "$tmp/evaluation"
    [ "$(jq .step "$tmp/evaluation")" = 32 ]
    [ "$(jq .tokens "$tmp/evaluation")" = 4096 ]
    "$berth" status "$run" "${sshd_connect[@]}" >"$tmp/status"
    says "validation" "$tmp/status"
    grep -h '"evaluation"' "$(node_dir a 0)/events.jsonl" | jq .loss >"$tmp/losses"
    cat "$tmp/losses"
    [ "$(wc -l <"$tmp/losses")" = 4 ]
    [ "$(sort -rg "$tmp/losses" | cmp - "$tmp/losses" && echo falls)" = falls ]
    nothing_left
    rm "$tmp/held-out.txt"
    exits 2 "$berth" launch "$tmp/plan-eval.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/text.txt"
    says "eval_data: cannot open '$tmp/held-out.txt'" "$tmp/err"
}

for f in a_rank_killed_in_a_step_is_named_and_the_run_can_go_on \
    a_lost_folder_is_restored_from_the_partner_and_training_is_the_same \
    a_node_that_dies_while_saving_costs_no_reported_checkpoint \
    without_any_copy_the_missing_file_is_named \
    held_out_text_is_staged_and_its_loss_falls; do
    t "$f" "$f"
done
mkdir -p "$tmp/small"
if mount -t tmpfs -o size=200m tmpfs "$tmp/small" 2>/dev/null; then
    t a_disk_full_while_saving_ends_the_run_with_the_old_checkpoint_whole \
        a_disk_full_while_saving_ends_the_run_with_the_old_checkpoint_whole
else
    skip e2e-full-disk "a small file system cannot be mounted here (needs root)"
fi
tap_done
