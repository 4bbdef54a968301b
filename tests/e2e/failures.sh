#!/usr/bin/env bash
# Things die: ranks, agents, the coordinator, the launcher, the SSH servers; Ctrl-C at any moment.
# Each time: what is said, the exit code, and that nothing is left running.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
. tests/lib/sshd.sh
. tests/lib/run.sh
sshd_two_nodes e2e-failures
head -c 300000 /dev/urandom >"$tmp/data.txt"
two_node_plan "$tmp/plan2.json"

begin() { # begin NAME=VALUE...: a long run that has made some steps
    launch_fake FAKE_STEPS=100000 "$@"
    until_true 10 steps_done 3
}

a_killed_rank_ends_the_run_and_is_named() {
    begin
    kill -9 "$(rank_pid b 1 1)"
    exits 10 "$berth" wait "$run" --timeout 20s
    says "rank 1 on host '127.0.0.1:$(cat "$sshd_dir/b/port")' was killed by signal 9" "$tmp/err"
    until_true 5 nothing_left
}

a_rank_that_exits_is_named_with_its_last_line() {
    launch_fake FAKE_STEPS=100000 FAKE_FAIL=0:7
    exits 10 "$berth" wait "$run" --timeout 20s
    says "exited with status 3; its last line: rank 0 meets its end" "$tmp/err"
    until_true 5 nothing_left
}

consequences_are_not_taken_for_the_cause() {
    launch_fake FAKE_STEPS=100000 FAKE_BLAME=0:5 FAKE_FAIL=1:6
    exits 10 "$berth" wait "$run" --timeout 20s
    says "rank 1" "$tmp/err"
    grep -q '"is_consequence":true' "$BERTH_HOME/state/runs/$run/events.jsonl"
}

a_killed_agent_is_a_lost_host() {
    begin
    kill -9 "$(agent_pid b 1)"
    exits 10 "$berth" wait "$run" --timeout 30s
    says "host '127.0.0.1:$(cat "$sshd_dir/b/port")' was lost" "$tmp/err"
    until_true 5 nothing_left
}

a_killed_coordinator_ends_the_run_everywhere() {
    begin
    kill -9 "$(agent_pid a 0)"
    exits 10 "$berth" wait "$run" --timeout 30s
    says "the agent on host '127.0.0.1:$(cat "$sshd_dir/a/port")' died" "$tmp/err"
    # the other node notices by silence and ends its ranks by itself
    until_true 12 nothing_left
    [ "$(jq -r .state "$(node_dir b 1)/state.json")" = failed ]
}

a_stopped_rank_does_not_stop_the_end() {
    begin
    kill -STOP "$(rank_pid b 1 1)"
    exits 0 "$berth" stop "$run" -y --grace 1s
    nothing_left
}

a_killed_launcher_changes_nothing() {
    rm -f "$tmp/launch.out"
    "$berth" launch "$tmp/plan2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" --rank-program "$top/tests/lib/fake_rank" \
        --env FAKE_STEPS=40 >"$tmp/launch.out" 2>&1 &
    launcher=$!
    until_true 10 grep -q "step 1 of" "$tmp/launch.out"
    kill -9 $launcher
    run=$("$berth" runs --json | jq -r '.runs[0].id')
    exits 0 "$berth" wait "$run" --timeout 30s
    [ "$(wc -l <"$BERTH_HOME/state/runs/$run/metrics.jsonl")" = 40 ]
    nothing_left
}

half_sent() { ls "$sshd_dir"/?/home/berth/data/*/.*-[01]; }

ctrl_c_while_staging_takes_back_what_was_half_sent() {
    truncate -s 200M "$tmp/big.txt"
    env --default-signal=INT "$berth" launch "$tmp/plan2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/big.txt" --rank-program "$top/tests/lib/fake_rank" >"$tmp/launch.out" 2>&1 &
    launcher=$!
    until_true 20 half_sent
    kill -INT $launcher
    status=0
    wait $launcher || status=$?
    rm "$tmp/big.txt"
    [ $status = 130 ]
    fails half_sent
    nothing_left
}

a_launcher_killed_before_the_start_leaves_agents_that_stop_at_once() {
    launch_fake FAKE_STEPS=1
    exits 0 "$berth" wait "$run"
    # as it was between the start of the agents and the word that starts their ranks
    for k in "a 0" "b 1"; do
        rm "$(node_dir $k)/state.json"
        "$engine" agent --dir "$(node_dir $k)"
    done
    jq '.state = "staging"' "$BERTH_HOME/state/runs/$run/run.json" >"$tmp/run.json"
    cp "$tmp/run.json" "$BERTH_HOME/state/runs/$run/run.json"
    exits 0 timeout 20 "$berth" stop "$run" -y
    exits 12 "$berth" status "$run" --exit-code
    nothing_left
}

a_launcher_killed_while_it_writes_the_specs_can_be_cleaned_up() {
    launch_fake FAKE_STEPS=1
    exits 0 "$berth" wait "$run"
    # as it was before the first word on one node, in the middle of it on the other
    find "$(node_dir a 0)" "$(node_dir b 1)" -mindepth 1 -delete
    echo half >"$(node_dir b 1)/spec.json.new"
    exits 0 "$berth" clean "$run" -y
    [ ! -e "$sshd_dir/a/home/berth/runs/$run" ] && [ ! -e "$sshd_dir/b/home/berth/runs/$run" ]
}

a_launcher_killed_while_staging_leaves_nothing() {
    truncate -s 100M "$tmp/big.txt"
    rm -f "$tmp/launch.out" # what an earlier test left there must not be taken for an answer
    "$berth" launch "$tmp/plan2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/big.txt" --rank-program "$top/tests/lib/fake_rank" >"$tmp/launch.out" 2>&1 &
    launcher=$!
    until_true 20 grep -q "staging data" "$tmp/launch.out"
    kill -9 $launcher
    wait $launcher || : # its lock is gone when it is
    rm "$tmp/big.txt"
    exits 11 "$berth" status --exit-code
    exits 0 "$berth" stop -y
    exits 12 "$berth" status --exit-code
    exits 2 "$berth" resume
    one_sentence
    exits 0 "$berth" clean latest -y --local
    nothing_left
}

a_resume_that_fails_early_hides_nothing() {
    begin
    exits 0 "$berth" stop "$run" -y
    sshd_hosts a >"$tmp/new-hosts"
    echo "127.0.0.1:1 dir=$tmp/never" >>"$tmp/new-hosts"
    exits 6 "$berth" resume "$run" --hosts "$tmp/new-hosts" --rank-program "$top/tests/lib/fake_rank"
    exits 12 "$berth" status "$run" --exit-code --json
    [ "$(jq -r '.attempt, .hosts[1]' "$tmp/out" | xargs)" = "1 127.0.0.1:$(cat "$sshd_dir/b/port")" ]
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" -d
    until_true 10 grep -q "resumes from step" "$(node_dir b 1)/rank-1.log"
    exits 0 "$berth" stop "$run" -y
    nothing_left
}

one_berth_at_a_time_starts_or_ends_a_run() {
    local again=("$berth" resume --rank-program "$top/tests/lib/fake_rank" -d) first status=0
    begin
    exits 0 "$berth" stop "$run" -y
    # of two at once the one goes on undisturbed
    "${again[@]}" "$run" >"$tmp/first.out" 2>&1 &
    first=$!
    "${again[@]}" "$run" >"$tmp/second.out" 2>&1 || status=$?
    wait $first || status=$((status + $?))
    [ $status = 2 ]
    exits 11 "$berth" status "$run" --exit-code
    # as long as somebody starts it nobody is told that it ended
    exec 8>>"$BERTH_HOME/state/runs/$run/.lock"
    flock 8
    exits 2 "$berth" stop "$run" -y -q
    says "just being started" "$tmp/err"
    one_sentence
    exits 2 "$berth" clean "$run" -y
    exec 8>&-
    # two that end it do not disturb each other
    "$berth" stop "$run" -y >"$tmp/first.out" 2>&1 &
    first=$!
    exits 0 "$berth" stop "$run" -y
    wait $first
    nothing_left
}

a_run_folder_without_a_run_is_none() {
    begin
    exits 0 "$berth" stop "$run" -y
    mkdir "$BERTH_HOME/state/runs/29991231-235959-aaaa"
    exits 12 "$berth" status --exit-code
    echo '{' >"$BERTH_HOME/state/runs/29991231-235959-aaaa/run.json"
    exits 2 "$berth" clean 29991231-235959-aaaa -y
    says "run.json" "$tmp/err"
    rm -r "$BERTH_HOME/state/runs/29991231-235959-aaaa"
}

servers_that_restart_do_not_matter() {
    launch_fake FAKE_STEPS=80
    "$berth" attach "$run" >"$tmp/attach.out" 2>"$tmp/attach.err" </dev/null &
    attached=$!
    until_true 10 grep -q "rank 0 step 5" "$tmp/attach.out"
    port=$(cat "$sshd_dir/a/port")
    sshd_stop a
    until_true 10 grep -q "lost the connection" "$tmp/attach.err"
    sshd_restart a
    wait $attached
    says "is back" "$tmp/attach.err"
    # nothing missing and nothing twice
    [ "$(grep -c "rank 0: rank 0 step" "$tmp/attach.out")" = 80 ]
    [ "$(sort -u "$BERTH_HOME/state/runs/$run/logs/rank-0.log" | grep -c step)" = 80 ]
    nothing_left
}

an_unreachable_host_makes_stop_honest() {
    begin
    sshd_stop b
    exits 6 "$berth" stop "$run" -y --connect-timeout 3s
    says "could not be proven to be gone on 1 of 2 hosts" "$tmp/err"
    says "verify-gone" "$tmp/err"
    sshd_restart b
    exits 0 "$berth" stop "$run" -y
    nothing_left
}

# the servers take the connection, and nothing of the run is there to answer
logs_of_a_run_whose_nodes_were_wiped_are_the_copies() {
    begin
    exits 0 "$berth" logs "$run" --tail 1
    exits 0 "$berth" stop "$run" -y
    rm -rf "$sshd_dir/a/home/berth" "$sshd_dir/b/home/berth"
    exits 0 timeout 40 "$berth" logs "$run" --tail 1
    says "could not be reached" "$tmp/err"
    grep -q step "$tmp/out"
}

a_deleted_run_folder_ends_its_agent() {
    begin
    rm -rf "$(node_dir b 1)"
    until_true 15 nothing_left
    exits 10 "$berth" status "$run" --exit-code
}

ctrl_c_leaves_a_run_running() {
    rm -f "$tmp/launch.out"
    "$berth" launch "$tmp/plan2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" --rank-program "$top/tests/lib/fake_rank" \
        --env FAKE_STEPS=100000 >"$tmp/launch.out" 2>&1 &
    launcher=$!
    until_true 10 grep -q "step 1 of" "$tmp/launch.out"
    kill -INT $launcher
    status=0
    wait $launcher || status=$?
    [ $status = 130 ]
    says "goes on on 2 nodes; \`berth attach" "$tmp/launch.out"
    run=$("$berth" runs --json | jq -r '.runs[0].id')
    exits 11 "$berth" status "$run" --exit-code
    exits 0 "$berth" stop "$run" -y
    nothing_left
}

ctrl_c_at_any_moment_leaves_nothing_half() {
    for ms in 20 80 150 250 350 450 600 800 1000 1300; do
        # a shell starts background jobs deaf to SIGINT; in the middle of a key exchange libssh2 keeps
        # numbers of it, which is no leak of a program that ends
        ASAN_OPTIONS=detect_leaks=0 env --default-signal=INT "$berth" launch "$tmp/plan2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
            --data "local:$tmp/data.txt" --rank-program "$top/tests/lib/fake_rank" \
            --env FAKE_STEPS=100000 >"$tmp/launch.out" 2>&1 &
        launcher=$!
        sleep "$(printf '0.%03d' $((ms % 1000)))"
        [ $ms -lt 1000 ] || sleep 1
        kill -INT $launcher 2>/dev/null
        status=0
        wait $launcher || status=$?
        [ $status = 130 ] || {
            echo "after $ms ms: exit $status"
            cat "$tmp/launch.out"
            return 1
        }
        run=$("$berth" runs --json | jq -r '.runs[0].id')
        if grep -q "goes on" "$tmp/launch.out"; then
            # not the newest of the list: two of these may start within a second
            run=$(sed -n 's/^run \([^ ]*\) goes on.*/\1/p' "$tmp/launch.out")
            exits 0 "$berth" stop "$run" -y
        elif [ "$run" != null ]; then
            [ "$("$berth" runs --json | jq -r '.runs[0].state')" = cancelled ]
        fi
        nothing_left || {
            echo "after $ms ms"
            cat "$tmp/launch.out"
            return 1
        }
    done
}

the_end_is_told_on_a_full_disk() {
    [ "$(id -u)" = 0 ] && mkdir -p "$tmp/filled" && mount -t tmpfs -o size=80m tmpfs "$tmp/filled" 2>/dev/null || {
        echo "cannot mount a small file system here"
        return 0
    }
    echo "127.0.0.1:$(cat "$sshd_dir/a/port") dir=$tmp/filled/berth" >"$tmp/full"
    sshd_hosts b >>"$tmp/full"
    hosts=$tmp/full launch_fake FAKE_STEPS=100000 FAKE_STEP_S=0.02
    local dir=$tmp/filled/berth/runs/$run/node-0 good=0
    until_true 10 [ -s "$dir/metrics.jsonl" ]
    head -c 100m /dev/zero >"$tmp/filled/fill" 2>/dev/null || true
    sleep 1
    kill -9 "$(pgrep -f -- "rank --dir $dir --rank 0\$" | head -n 1)"
    exits 10 "$berth" wait "$run" --timeout 20s &&
        says "rank 0 on host '127.0.0.1:$(cat "$sshd_dir/a/port")' was killed by signal 9" "$tmp/err" &&
        [ "$(jq -r .state "$dir/state.json")" = failed ] &&
        jq -e .step "$dir/metrics.jsonl" >"$tmp/steps" && # no torn line
        [ "$(tail -c 1 "$dir/metrics.jsonl" | od -An -c | tr -d ' ')" = '\n' ] || good=1
    umount -l "$tmp/filled"
    until_true 5 nothing_left
    return $good
}

a_dead_agent_s_last_failure_is_the_cause() {
    begin
    # what it told before it died without an end
    printf '{"event":"failure","rank":1,"host":"b","code":"io","message":"cannot write: No space left","attempt":1}\n' \
        >>"$(node_dir a 0)/events.jsonl"
    kill -9 "$(agent_pid a 0)"
    exits 10 "$berth" wait "$run" --timeout 30s
    says "No space left" "$tmp/err"
    until_true 12 nothing_left
}

resume_shows_no_events_of_earlier_attempts() {
    begin
    exits 0 "$berth" stop "$run" -y
    exits 0 "$berth" resume "$run" --rank-program "$top/tests/lib/fake_rank" \
        --env FAKE_STEPS=$(($(wc -l <"$(node_dir a 0)/metrics.jsonl") + 5))
    fails grep "stop: " "$tmp/err"
    jq -es 'map(select(.event == "summary")) | map(.outcome) == ["cancelled", "finished"]' \
        "$BERTH_HOME/state/runs/$run/events.jsonl"
}

a_full_disk_on_a_node_is_one_sentence() {
    [ "$(id -u)" = 0 ] && mkdir -p "$tmp/small" && mount -t tmpfs -o size=2m tmpfs "$tmp/small" 2>/dev/null || {
        echo "cannot mount a small file system here"
        return 0
    }
    echo "127.0.0.1:$(cat "$sshd_dir/a/port") dir=$tmp/small/berth" >"$tmp/full"
    echo "127.0.0.1:$(cat "$sshd_dir/b/port") dir=$sshd_dir/b/home/berth" >>"$tmp/full"
    result=0
    exits 6 "$berth" launch "$tmp/plan2.json" --hosts "$tmp/full" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" || result=1
    grep '^berth: ' "$tmp/err" || result=1
    umount "$tmp/small"
    nothing_left && return $result
}

e2e a_killed_rank_ends_the_run_and_is_named a_rank_that_exits_is_named_with_its_last_line \
    consequences_are_not_taken_for_the_cause a_killed_agent_is_a_lost_host \
    a_killed_coordinator_ends_the_run_everywhere a_stopped_rank_does_not_stop_the_end \
    a_killed_launcher_changes_nothing ctrl_c_while_staging_takes_back_what_was_half_sent \
    a_launcher_killed_before_the_start_leaves_agents_that_stop_at_once \
    a_launcher_killed_while_it_writes_the_specs_can_be_cleaned_up a_launcher_killed_while_staging_leaves_nothing \
    a_resume_that_fails_early_hides_nothing one_berth_at_a_time_starts_or_ends_a_run \
    a_run_folder_without_a_run_is_none servers_that_restart_do_not_matter \
    an_unreachable_host_makes_stop_honest \
    logs_of_a_run_whose_nodes_were_wiped_are_the_copies a_deleted_run_folder_ends_its_agent \
    ctrl_c_leaves_a_run_running ctrl_c_at_any_moment_leaves_nothing_half \
    the_end_is_told_on_a_full_disk a_dead_agent_s_last_failure_is_the_cause \
    resume_shows_no_events_of_earlier_attempts a_full_disk_on_a_node_is_one_sentence
tap_done
