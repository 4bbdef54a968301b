#!/usr/bin/env bash
# A run over two real SSH servers, from launch to clean: with the real engine once, else with ranks
# that only speak the protocol.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
. tests/lib/sshd.sh
. tests/lib/run.sh
sshd_two_nodes e2e-launch
head -c 300000 /dev/urandom >"$tmp/data.txt"
two_node_plan "$tmp/plan2.json"
one_node_plan "$tmp/plan1.json"

trains_on_two_nodes_and_tells_the_result() {
    cat /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/Apache-2.0 >"$tmp/text.txt"
    shorter "$tmp/plan2.json" 4 >"$tmp/short.json"
    exits 0 "$berth" launch "$tmp/short.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/text.txt" --json
    [ "$(jq -r .state "$tmp/out")" = finished ]
    [ "$(jq -r .step "$tmp/out")" = 4 ]
    run=$(jq -r .id "$tmp/out")
    # measured and predicted memory are both with what lies outside the slabs
    [ "$(jq .predicted.memory_bytes "$tmp/out")" = \
        "$(jq '.prediction.memory | .peak_bytes + .external_bytes' "$tmp/short.json")" ]
    [ "$(wc -l <"$BERTH_HOME/state/runs/$run/metrics.jsonl")" = 4 ]
    cmp "$BERTH_HOME/state/runs/$run/metrics.jsonl" "$(node_dir a 0)/metrics.jsonl"
    cmp "$BERTH_HOME/state/runs/$run/events.jsonl" "$(node_dir a 0)/events.jsonl"
    exits 0 "$berth" fetch "$run" "$tmp/results" --json
    [ "$(jq .step "$tmp/out")" = 4 ]
    for f in $(jq -r '.files[].name' "$tmp/results/step-00000004/manifest.json"); do
        cmp "$tmp/results/step-00000004/$f" "$(node_dir a 0)/ckpt/step-00000004/$f" ||
            cmp "$tmp/results/step-00000004/$f" "$(node_dir b 1)/ckpt/step-00000004/$f"
    done
    nothing_left
}

a_real_run_resumes_on_one_node_with_the_same_data() {
    for n in 1 2; do shorter "$tmp/plan$n.json" 120 >"$tmp/real$n.json"; done
    "$berth" launch "$tmp/real2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/text.txt" -q -d >"$tmp/run-id"
    run=$(cat "$tmp/run-id")
    until_true 30 steps_done 3
    exits 0 "$berth" stop "$run" -y
    exits 12 "$berth" status "$run" --exit-code --json
    step=$(jq .checkpoint.step "$tmp/out")
    [ "$(jq .checkpoint.survives_host_loss "$tmp/out")" = true ]
    [ "$step" -ge 3 ] && [ "$step" -lt 120 ]
    exits 0 "$berth" resume "$run" --hosts <(sshd_hosts a) --plan "$tmp/real1.json"
    # each step once, in order, on the same tokens as a run that was never stopped
    [ "$(jq .step "$BERTH_HOME/state/runs/$run/metrics.jsonl" | xargs)" = "$(seq 120 | xargs)" ]
    exits 0 "$berth" launch "$tmp/real1.json" --hosts <(sshd_hosts b) "${sshd_connect[@]}" \
        --data "local:$tmp/text.txt" -q
    whole=$(cat "$tmp/out")
    paste <(jq .loss "$BERTH_HOME/state/runs/$run/metrics.jsonl") \
        <(jq .loss "$BERTH_HOME/state/runs/$whole/metrics.jsonl") |
        awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-4 * $1) { print "step " NR ": " $0; bad = 1 } }
             END { exit bad || NR != 120 }'
    nothing_left
}

the_second_launch_sends_nothing_again() {
    local engine
    launch_fake FAKE_STEPS=2
    engine=$(echo "$sshd_dir"/a/home/berth/engine/*/berth-engine)
    touch -d '2020-01-01' "$engine"
    exits 0 "$berth" wait "$run"
    # one killed launch long ago, one that is still sending
    touch -d '10 minutes ago' "${engine%/*}/.0123456789ab-0"
    touch "${engine%/*}/.0123456789cd-0"
    launch_fake FAKE_STEPS=2
    [ "$(date -r "$engine" +%Y)" = 2020 ]
    [ ! -e "${engine%/*}/.0123456789ab-0" ] && [ -e "${engine%/*}/.0123456789cd-0" ]
    exits 0 "$berth" wait "$run"
    # what was damaged there is sent anew; a copy, for the last agent may be on its way out
    cp -p "$engine" "$tmp/damaged"
    echo damage >>"$tmp/damaged"
    mv "$tmp/damaged" "$engine"
    launch_fake FAKE_STEPS=2
    cmp "$engine" "$BUILD/berth-engine"
    exits 0 "$berth" wait "$run"
}

survives_its_launcher_and_can_be_attached() {
    launch_fake FAKE_STEPS=60
    until_true 10 steps_done 5
    exits 11 "$berth" status "$run" --exit-code --json
    [ "$(jq -r .state "$tmp/out")" = running ]
    exits 11 "$berth" wait "$run" --timeout 1s
    exits 0 "$berth" attach "$run"
    says "rank 1: rank 1 step 60" "$tmp/out"
    exits 0 "$berth" status "$run" --exit-code
    exits 0 "$berth" logs "$run" --rank 0 --tail 1
    says "rank 0: rank 0 step 60" "$tmp/out"
    [ "$(wc -l <"$tmp/out")" = 1 ]
    [ "$(grep -c . "$BERTH_HOME/state/runs/$run/metrics.jsonl")" = 60 ]
    nothing_left
}

stop_saves_ends_and_proves_it() {
    launch_fake FAKE_STEPS=100000 FAKE_CHILD=1
    until_true 10 steps_done 3
    exits 7 "$berth" stop "$run"
    one_sentence
    exits 0 "$berth" stop "$run" -y --json
    [ "$(jq -r '.state, .is_gone' "$tmp/out" | xargs)" = "cancelled true" ]
    [ -n "$(ls "$(node_dir a 0)/ckpt")" ]
    nothing_left
    exits 12 "$berth" wait "$run"
    exits 0 "$berth" stop "$run" -y
    says "was already cancelled" "$tmp/out"
}

what_ignores_stop_is_killed() {
    launch_fake FAKE_STEPS=100000 FAKE_STUBBORN=1
    until_true 10 steps_done 3
    exits 0 "$berth" stop "$run" -y --grace 1s
    nothing_left
    exits 12 "$berth" status "$run" --exit-code
    says "were killed" "$tmp/out"
}

resumes_where_it_stopped_with_another_number_of_nodes() {
    launch_fake FAKE_STEPS=100000
    until_true 10 steps_done 5
    exits 0 "$berth" stop "$run" -y
    step=$(ls "$(node_dir a 0)/ckpt" | sed 's/step-//')
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" --hosts <(sshd_hosts a) \
        --plan "$tmp/plan1.json" --env "FAKE_STEPS=$((step + 5))" --json
    [ "$(jq -r '.state, .attempt, .step' "$tmp/out" | xargs)" = "finished 2 $((step + 5))" ]
    exits 0 "$berth" logs "$run" --rank 0
    says "resumes from step $step" "$tmp/out"
    # a run that is over cannot be resumed while another attempt goes on
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" \
        --env FAKE_STEPS=100000 -d
    exits 2 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" -d
    one_sentence
    exits 0 "$berth" stop "$run" -y
    nothing_left
}

a_deleted_folder_between_stop_and_resume_is_named() {
    launch_fake FAKE_STEPS=100000
    until_true 10 steps_done 3
    exits 0 "$berth" stop "$run" -y
    rm -rf "$(node_dir b 1)"
    exits 10 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank"
    says "rank 1 finds no checkpoint" "$tmp/err"
    nothing_left
}

environment_arrives_byte_by_byte() {
    launch_fake "FAKE_STEPS=1" "ODD=it's \"\$HOME\" \\ a;b  \`c\`"
    exits 0 "$berth" wait "$run"
    [ "$(jq -r .env.ODD "$(node_dir a 0)/spec.json")" = "it's \"\$HOME\" \\ a;b  \`c\`" ]
}

work_folders_may_have_spaces_and_quotes() {
    local odd="$sshd_dir/a/home/it's a \"dir\""
    one=$tmp/plan1.json
    "$berth" launch "$one" --hosts "127.0.0.1:$(cat "$sshd_dir/a/port")" "${sshd_connect[@]}" \
        --remote-dir "$odd" --data "local:$tmp/data.txt" --rank-program "$top/tests/lib/fake_rank" \
        --env FAKE_STEPS=2 >"$tmp/out"
    says finished "$tmp/out"
    [ -d "$odd/runs" ]
    exits 0 "$berth" clean "127.0.0.1:$(cat "$sshd_dir/a/port")" "${sshd_connect[@]}" \
        --remote-dir "$odd" -y
    [ ! -e "$odd" ]
}

data_may_have_any_name_but_must_have_an_end() {
    local name long
    long=$(printf 'x%.0s' $(seq 255))
    for name in 'back\slash' $'two\nlines' "$long" '$(touch no)'; do
        { echo "$name" && cat "$tmp/data.txt"; } >"$tmp/$name" # else they are the same content, there already
        exits 0 "$berth" launch "$tmp/plan1.json" --hosts "127.0.0.1:$(cat "$sshd_dir/a/port")" \
            "${sshd_connect[@]}" --remote-dir "$sshd_dir/a/home/berth" --data "local:$tmp/$name" \
            --data-kind bytes --rank-program "$top/tests/lib/fake_rank" --env FAKE_STEPS=1
        rm "$tmp/$name"
    done
    mkfifo "$tmp/pipe"
    for name in /dev/zero "$tmp/pipe" "$tmp"; do
        exits 2 timeout 5 "$berth" launch "$tmp/plan1.json" --hosts "$tmp/hosts" --data "local:$name" -n
        says "is not a plain file" "$tmp/err"
    done
}

dry_run_says_all_and_does_nothing() {
    before=$(ls "$BERTH_HOME/state/runs" | wc -l)
    exits 0 "$berth" launch "$tmp/plan2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" -n
    says "rank --dir" "$tmp/out"
    says "coordinator" "$tmp/out"
    [ "$(ls "$BERTH_HOME/state/runs" | wc -l)" = "$before" ]
    # what acts on a run, too: it goes on as if nobody had asked, and every file stays
    launch_fake FAKE_STEPS=100000
    until_true 10 steps_done 2
    exits 0 "$berth" stop "$run" -n
    says "host 127.0.0.1" "$tmp/out"
    says "agentctl --dir $(node_dir a 0)" "$tmp/out"
    exits 0 "$berth" stop "$run" --grace 5m -n --json
    [ "$(jq '.dry_run and (.steps | length) == 3' "$tmp/out")" = true ]
    [ "$("$berth" status "$run" --json | jq -r .state)" = running ]
    exits 0 "$berth" stop "$run" -y
    find "$sshd_dir/a/home" "$sshd_dir/b/home" "$BERTH_HOME/state" -type f | sort >"$tmp/files"
    exits 0 "$berth" stop "$run" -n
    says "was already cancelled" "$tmp/out"
    exits 0 "$berth" clean "$run" --local -n
    for n in "$(node_dir a 0)" "$(node_dir b 1)" "$BERTH_HOME/state/runs/$run"; do
        says "remove   $n" "$tmp/out"
    done
    exits 0 "$berth" clean "$tmp/hosts" --remote-dir "$sshd_dir/a/home/berth" -n
    says "/home/berth/data" "$tmp/out"
    exits 0 "$berth" fetch "$run" "$tmp/nowhere" --checkpoint 2 -n
    says "read     $(node_dir b 1)/ckpt/step-00000002" "$tmp/out"
    says "write    $tmp/nowhere/step-00000002" "$tmp/out"
    [ ! -e "$tmp/nowhere" ]
    find "$sshd_dir/a/home" "$sshd_dir/b/home" "$BERTH_HOME/state" -type f | sort | cmp - "$tmp/files"
}

money_is_asked_for() {
    sed 's/$/ price=2.50/' "$tmp/hosts" >"$tmp/paid"
    exits 7 "$berth" launch "$tmp/plan2.json" --hosts "$tmp/paid" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt"
    says '$5.00 an hour' "$tmp/err"
    exits 2 "$berth" launch "$tmp/plan2.json" --hosts "$tmp/paid" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" -y
    says "needs --max-usd" "$tmp/err"
    # a limit ends the run with a checkpoint although nobody watches: a cent is 7 seconds
    hosts=$tmp/paid launch_fake FAKE_STEPS=100000 -- -y --max-usd 0.01
    exits 12 "$berth" wait "$run" --timeout 40s
    says "spending limit" "$tmp/err"
    [ -n "$(ls "$(node_dir a 0)/ckpt")" ]
    nothing_left
}

what_a_run_costs_goes_on_with_its_attempts() {
    sed 's/$/ price=2.50/' "$tmp/hosts" >"$tmp/paid"
    hosts=$tmp/paid launch_fake FAKE_STEPS=100000 -- -y --max-usd 0.02
    until_true 10 steps_done 3
    exits 0 "$berth" stop "$run" -y
    says "the 2 nodes still cost" "$tmp/err"
    first=$("$berth" status "$run" --json | jq .cost_usd)
    launched=$("$berth" status "$run" --json | jq .launched_at)
    # the run keeps its limit, so that none need be given again
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" -y -d
    "$berth" status "$run" --json | tee "$tmp/status.json"
    [ "$(jq --argjson c "$first" '.cost_usd > $c' "$tmp/status.json")" = true ]
    [ "$(jq .launched_at "$tmp/status.json")" = "$launched" ]
    # two cents are 14.4 seconds of both attempts together, however it is resumed
    exits 12 "$berth" wait "$run" --timeout 40s
    says "spending limit" "$tmp/err"
    "$berth" status "$run" --json | tee "$tmp/status.json"
    [ "$(jq '.cost_usd >= 0.018 and .cost_usd < 0.03' "$tmp/status.json")" = true ]
    exits 2 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" -y --max-usd 0.02 -d
    says "has cost" "$tmp/err"
    one_sentence
}

hours_go_on_with_the_attempts_of_a_run() {
    hosts=$tmp/hosts launch_fake FAKE_STEPS=100000 -- --max-hours 0.003 # 10.8 seconds
    sleep 5
    exits 0 "$berth" stop "$run" -y
    sleep 3 # a pause does not count
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" -d
    exits 12 "$berth" wait "$run" --timeout 9s
    says "time limit of 10.8 s" "$tmp/err"
    exits 2 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" -d
    says "raise --max-hours" "$tmp/err"
    one_sentence
}

owned_nodes_cost_nothing_which_is_a_number() {
    sed 's/$/ price=0/' "$tmp/hosts" >"$tmp/owned"
    hosts=$tmp/owned launch_fake FAKE_STEPS=2
    exits 0 "$berth" wait "$run"
    exits 0 "$berth" status "$run"
    says 'cost so far: $0.00' "$tmp/out"
    [ "$("$berth" runs --json | jq '.runs[0].cost_usd')" = 0 ]
}

a_resumed_run_stays_the_same_training() {
    launch_fake FAKE_STEPS=100000
    until_true 10 steps_done 3
    exits 0 "$berth" stop "$run" -y
    local other here=(--here --ranks-per-node 1 --precision fp32 -q)
    same=(--model tiny-gpt2 --tokens 1M)
    batch=$(jq .job.global_batch_tokens "$tmp/plan2.json") seq=$(jq .job.seq "$tmp/plan2.json")
    "$berth" plan "${here[@]}" --model tiny-llama --tokens 1M -o "$tmp/model.json" >/dev/null
    "$berth" plan "${here[@]}" "${same[@]}" --seq $((seq / 2)) --global-batch-tokens "$batch" \
        -o "$tmp/sequence.json" >/dev/null
    "$berth" plan "${here[@]}" "${same[@]}" --seq "$seq" --global-batch-tokens $((batch * 2)) \
        -o "$tmp/batch.json" >/dev/null
    "$berth" plan "${here[@]}" --model tiny-gpt2 --tokens 2M --seq "$seq" \
        --global-batch-tokens "$batch" -o "$tmp/steps.json" >/dev/null
    for other in model sequence batch steps; do
        exits 2 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" \
            --hosts <(sshd_hosts a) --plan "$tmp/$other.json" -d
        one_sentence
        says "$other" "$tmp/err"
        says "$tmp/$other.json" "$tmp/err"
    done
    nothing_left
}

fetch_takes_what_is_whole_from_whoever_has_it() {
    shorter "$tmp/plan2.json" 4 >"$tmp/short.json"
    exits 0 "$berth" launch "$tmp/short.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/text.txt" --checkpoint-steps 2 --json
    run=$(jq -r .id "$tmp/out")
    local new=ckpt/step-00000004 old=ckpt/step-00000002 part
    part=$(jq -r '.files[-1].name' "$(node_dir a 0)/$new/manifest.json")
    cp "$(node_dir a 0)/$new/$part" "$tmp/whole"
    # damaged on the first host that lists it, the other has it whole
    printf X | dd of="$(node_dir a 0)/$new/$part" bs=1 seek=5000 conv=notrunc 2>/dev/null
    exits 0 "$berth" fetch "$run" "$tmp/first"
    cmp "$tmp/first/step-00000004/$part" "$tmp/whole"
    # on no host: the newest step that is complete; asked for, its lack is named
    rm "$(node_dir a 0)/$new/$part" "$(node_dir b 1)/$new/$part"
    exits 0 "$berth" fetch "$run" "$tmp/second" --json
    [ "$(jq .step "$tmp/out")" = 2 ]
    cmp "$tmp/second/step-00000002/$part" "$(node_dir b 1)/$old/$part"
    [ "$(ls "$tmp/second" | grep -c step)" = 1 ]
    exits 6 "$berth" fetch "$run" "$tmp/third" --checkpoint 4
    says "'$part' of step 4 is on no node that answers" "$tmp/err"
    # damaged everywhere is said, not delivered
    for f in "$(node_dir a 0)/$old/$part" "$(node_dir b 1)/$old/$part"; do
        printf X | dd of="$f" bs=1 seek=5000 conv=notrunc 2>/dev/null
    done
    exits 6 "$berth" fetch "$run" "$tmp/fourth" --checkpoint 2
    says "did not arrive as its manifest says from any node" "$tmp/err"
    [ ! -e "$tmp/fourth/step-00000002" ]
}

runs_do_not_mix_in_a_shared_store() {
    shorter "$tmp/plan2.json" 4 >"$tmp/short.json"
    mkdir "$tmp/shared"
    for n in 1 2; do
        exits 0 "$berth" launch "$tmp/short.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
            --data "local:$tmp/text.txt" --store "shared:$tmp/shared" --json
        run=$(jq -r .id "$tmp/out")
        [ -s "$tmp/shared/berth-$run/ckpt/step-00000004/manifest.json" ]
        [ ! -e "$tmp/shared/berth-$run/.probe" ]
    done
    [ "$(ls "$tmp/shared" | wc -l)" = 2 ] && [ ! -e "$tmp/shared/ckpt" ]
    exits 0 "$berth" fetch "$run" "$tmp/from-shared"
    [ -s "$tmp/from-shared/step-00000004/manifest.json" ]
    # clean takes the run's own part and no other
    exits 0 "$berth" clean "$run" -y
    [ ! -e "$tmp/shared/berth-$run" ] && [ "$(ls "$tmp/shared" | wc -l)" = 1 ]
}

a_store_that_is_not_shared_is_refused() {
    unshare -rm true 2>/dev/null || {
        echo "no mount namespaces here"
        return 0
    }
    mkdir -p "$tmp/apart"
    sshd_start alone "ForceCommand unshare -rm sh -c 'mount -t tmpfs none $tmp/apart && eval \"\$SSH_ORIGINAL_COMMAND\"'"
    exits 6 "$berth" launch "$tmp/plan2.json" --hosts <(sshd_hosts a alone) "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" --store "shared:$tmp/apart"
    sshd_stop alone
    says "host '127.0.0.1:$(cat "$sshd_dir/alone/port")' does not see in '$tmp/apart'" "$tmp/err"
    [ -z "$(ls -A "$tmp/apart")" ]
    nothing_left
}

clean_finds_the_nodes_of_earlier_attempts() {
    launch_fake FAKE_STEPS=100000
    until_true 10 steps_done 3
    exits 0 "$berth" stop "$run" -y
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" \
        --hosts <(sshd_hosts a) --plan "$tmp/plan1.json" -d
    exits 0 "$berth" stop "$run" -y
    [ -d "$(node_dir b 1)" ]
    # a host that comes back has its number and its folder as before
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" \
        --hosts "$tmp/hosts" --plan "$tmp/plan2.json" -d
    exits 0 "$berth" stop "$run" -y
    [ ! -e "$(node_dir b 2)" ]
    says "resumes from step" "$(node_dir b 1)/rank-1.log"
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" \
        --hosts <(sshd_hosts b) --plan "$tmp/plan1.json" -d
    exits 0 "$berth" stop "$run" -y
    exits 0 "$berth" clean "$run" -y
    says "removed from 2 nodes" "$tmp/out"
    exits 12 "$berth" status "$run" --exit-code
    says "its nodes hold nothing of it any more" "$tmp/out"
    fails grep -q checkpoint "$tmp/out"
    [ ! -e "$sshd_dir/a/home/berth/runs/$run" ] && [ ! -e "$sshd_dir/b/home/berth/runs/$run" ]
    exits 0 "$berth" clean "$run" -y # once more does no harm
}

# ids of one second sort by their random letters
latest_is_the_run_launched_last() {
    local runs=$BERTH_HOME/state/runs twin
    launch_fake FAKE_STEPS=1
    exits 0 "$berth" wait "$run"
    twin=${run%-*}-zzzz
    cp -r "$runs/$run" "$runs/$twin"
    sed -i "s/$run/$twin/" "$runs/$twin/run.json"
    exits 0 "$berth" status latest --json
    [ "$(jq -r .id "$tmp/out")" = "$run" ]
    rm "$runs/latest"
    exits 0 "$berth" status latest --json
    [ "$(jq -r .id "$tmp/out")" = "$twin" ]
    rm -r "$runs/$twin"
}

clean_leaves_no_file_on_the_nodes() {
    launch_fake FAKE_STEPS=100000
    until_true 10 steps_done 1
    exits 6 "$berth" clean "$tmp/hosts" "${sshd_connect[@]}" -y
    says "still goes on" "$tmp/err"
    exits 6 "$berth" clean "$run" -y
    exits 0 "$berth" stop "$run" -y
    exits 0 "$berth" clean "$run" -y --local
    [ ! -e "$(node_dir a 0)" ] && [ ! -e "$BERTH_HOME/state/runs/$run" ]
    exits 0 "$berth" clean "$tmp/hosts" "${sshd_connect[@]}" -y
    [ -z "$(find "$sshd_dir/a/home" "$sshd_dir/b/home" -mindepth 1 -not -path '*/.*')" ]
    nothing_left
}

e2e trains_on_two_nodes_and_tells_the_result a_real_run_resumes_on_one_node_with_the_same_data \
    the_second_launch_sends_nothing_again \
    survives_its_launcher_and_can_be_attached stop_saves_ends_and_proves_it \
    what_ignores_stop_is_killed resumes_where_it_stopped_with_another_number_of_nodes \
    a_deleted_folder_between_stop_and_resume_is_named environment_arrives_byte_by_byte \
    work_folders_may_have_spaces_and_quotes data_may_have_any_name_but_must_have_an_end \
    dry_run_says_all_and_does_nothing money_is_asked_for \
    what_a_run_costs_goes_on_with_its_attempts hours_go_on_with_the_attempts_of_a_run owned_nodes_cost_nothing_which_is_a_number \
    a_resumed_run_stays_the_same_training \
    fetch_takes_what_is_whole_from_whoever_has_it runs_do_not_mix_in_a_shared_store \
    a_store_that_is_not_shared_is_refused clean_finds_the_nodes_of_earlier_attempts latest_is_the_run_launched_last \
    clean_leaves_no_file_on_the_nodes
tap_done
