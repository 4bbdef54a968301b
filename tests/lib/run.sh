# Sourced behind tap.sh and sshd.sh: plans and runs for tests of launching.

# one_node_plan FILE, two_node_plan FILE: real plans of a tiny model for this kind of machine, a
# thousand small steps long
small=(--model tiny-gpt2 --tokens 1024000 --seq 64 --global-batch-tokens 1024 --precision fp32)
one_node_plan() {
    "$berth" plan --here --ranks-per-node 1 "${small[@]}" -q -o "$1" >/dev/null
}
two_node_plan() {
    "$berth" offers --here --json | jq '{schema, offers: [.offers[0] | .nodes_available = 2 |
        .max_nodes_one_fabric = 2 | .fabric = "ethernet" | .inter_gbps_per_node = 100 |
        .gpus_per_node = 1 | .provenance = null]}' >"$tmp/offers.json"
    "$berth" plan --offers "$tmp/offers.json" --strategy zero3 --objective time "${small[@]}" \
        -q -o "$1" >/dev/null
    [ "$(jq .nodes "$1")" = 2 ]
}
# shorter PLAN STEPS: the same plan with fewer steps, on stdout
shorter() {
    jq --argjson n "$2" '.job.tokens = 1024 * $n | .steps = $n' "$1"
}
# e2e NAME...: run these tests; what one leaves running does not disturb the next
e2e() {
    local name pid
    for name in "$@"; do
        t "$name" "$name"
        for pid in $(left_of "$sshd_dir" | cut -d' ' -f1); do kill -9 "$pid"; done
    done
}
# launch_fake NAME=VALUE... [-- OPTION...]: start the plan with fake ranks; $run is its id
launch_fake() {
    local env=() opts=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do
        env+=(--env "$1")
        shift
    done
    [ $# = 0 ] || shift
    opts=("$@")
    "$berth" launch "${plan:-$tmp/plan2.json}" --hosts "${hosts:-$tmp/hosts}" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" --rank-program "$top/tests/lib/fake_rank" --lost-after 4s \
        "${env[@]}" "${opts[@]}" -q -d >"$tmp/run-id"
    run=$(cat "$tmp/run-id")
    [ -n "$run" ]
}
# node_dir NAME K: run folder of node K on server NAME
node_dir() {
    echo "$sshd_dir/$1/home/berth/runs/$run/node-$2"
}
# agent_pid NAME K, rank_pid NAME K RANK
agent_pid() {
    jq .pid "$(node_dir "$1" "$2")/agent.pid"
}
rank_pid() {
    local p
    for p in $(pgrep -f -- "rank --dir $(node_dir "$1" "$2") --rank $3\$"); do
        echo "$p"
        return
    done
}
# until_true SECONDS COMMAND...
until_true() {
    local n=$(($1 * 10))
    shift
    while ! "$@" >/dev/null 2>&1; do
        n=$((n - 1))
        [ $n -gt 0 ] || {
            echo "never came true: $*"
            return 1
        }
        sleep 0.1
    done
}
steps_done() {
    [ "$(wc -l <"$(node_dir a 0)/metrics.jsonl" 2>/dev/null || echo 0)" -ge "$1" ]
}
nothing_left() {
    local left
    left=$(left_of "$sshd_dir")
    [ -z "$left" ] || {
        echo "left running: $left"
        return 1
    }
}
