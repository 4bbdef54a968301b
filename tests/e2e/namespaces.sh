#!/usr/bin/env bash
# Two hosts with addresses of their own and a link between them, in network namespaces that go with
# this script: a run over it, and what is said when the link goes down in the middle of a step.
cd "$(dirname "$0")/../.." || exit 1
if [ "${1:-}" != inside ]; then
    if [ -x /usr/sbin/sshd ] && unshare -n ip link add left type veth peer name right 2>/dev/null; then
        exec unshare -n "$0" inside
    fi
    . tests/lib/tap.sh
    skip e2e-namespaces "network namespaces with a link between them need root, iproute2 and sshd"
    tap_done
fi
. tests/lib/tap.sh
. tests/lib/sshd.sh
. tests/lib/run.sh
tap_cleanup() {
    sshd_stop_all
    for p in $(left_of "$sshd_dir" | cut -d' ' -f1); do kill -9 "$p"; done
    kill "$other"
}
# this is host a; host b is where that process is
unshare -n sleep 1000 &
other=$!
on_b() { nsenter -t "$other" -n "$@"; }
until_true 5 eval '[ "$(readlink /proc/$other/ns/net)" != "$(readlink /proc/$$/ns/net)" ]'
ip link set lo up
ip link add left type veth peer name right netns "$other"
ip address add 10.111.0.1/24 dev left
ip link set left up
on_b ip link set lo up
on_b ip address add 10.111.0.2/24 dev right
on_b ip link set right up
sshd_setup "$tmp/sshd"
sshd_address=10.111.0.1
sshd_start a
sshd_address=10.111.0.2
sshd_in=(nsenter -t "$other" -n)
sshd_start b
sshd_hosts a b >"$tmp/hosts"
head -c 300000 /dev/urandom >"$tmp/data.txt"
two_node_plan "$tmp/plan2.json"

# start_run PLAN OPTION...: $run is its id
start_run() {
    "$berth" launch "$1" --hosts "$tmp/hosts" "${sshd_connect[@]}" --data "local:$tmp/data.txt" \
        --checkpoint-steps 1000 "${@:2}" -q -d >"$tmp/run-id"
    run=$(cat "$tmp/run-id")
}

a_run_over_a_link_between_namespaces_finishes() {
    shorter "$tmp/plan2.json" 5 >"$tmp/short.json"
    start_run "$tmp/short.json"
    exits 0 "$berth" wait "$run" "${sshd_connect[@]}" --timeout 60s
    [ "$(wc -l <"$(node_dir a 0)/metrics.jsonl")" = 5 ]
    # its ranks have met over the link: two gathers and a reduction of each step, and more
    [ "$(on_b awk '/right:/ {print $2}' /proc/net/dev)" -gt 3000000 ]
}

has_failed() { grep -q '"event":"failure"' "$(node_dir a 0)/events.jsonl"; }

# Which collective it is that stands still is a matter of chance.
a_link_that_goes_down_is_a_rank_that_did_not_answer_in_time() {
    local start took
    start_run "$tmp/plan2.json" --collective-timeout 2s --lost-after 8s
    until_true 30 steps_done 3
    on_b ip link set right down
    start=$(date +%s%N)
    until_true 10 has_failed
    took=$((($(date +%s%N) - start) / 1000000))
    echo "known after $took ms"
    exits 10 "$berth" wait "$run" "${sshd_connect[@]}" --timeout 60s
    cat "$tmp/err"
    grep -Eq "rank 0: (all-gather|reduce-scatter|all-reduce|sum) of [0-9]+ bytes: rank 1 on host '10.111.0.2[^']*' did not (answer|take the data) before the deadline" "$tmp/err"
    [ "$took" -gt 1500 ] && [ "$took" -lt 5000 ]
}

e2e a_run_over_a_link_between_namespaces_finishes \
    a_link_that_goes_down_is_a_rank_that_did_not_answer_in_time
tap_done
