#!/usr/bin/env bash
# berth plan --what-if: the same job if something were otherwise; break-even prices; what the network
# must carry.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
data=$top/tests/cli/data
plan=("$berth" plan "$data/job.json" --offers "$data/nodes.csv" -q)

# halves the network of the table, and makes the 4090 two dollars a GPU-hour
otherwise() {
    sed -e 's/,1600,/,800,/; s/,25,/,12.5,/; s/"3,200"/1600/; s/,100,96/,50,96/' \
        -e 's|,0.10,usd/gpu/h|,2,usd/gpu/h|' "$data/nodes.csv" >"$tmp/otherwise.csv"
}

each_question_is_answered_as_a_plan_of_the_changed_table() {
    otherwise
    exits 0 "${plan[@]}" --json --what-if network=0.5x price.rtx4090=2 --what-if mfu=1x
    cp "$tmp/out" "$tmp/asked.json"
    exits 0 "$berth" plan "$data/job.json" --offers "$tmp/otherwise.csv" -q --json
    jq -e --slurpfile planned "$tmp/out" '.what_if | length == 2 and
        (.[0] | .change == "network=0.5x price.rtx4090=2" and .flips and
            .plan.id == $planned[0].plans[0].offer.id and
            .plan.nodes == $planned[0].plans[0].nodes and
            .plan.cost_usd == $planned[0].plans[0].cost_usd.mid and
            .plan.step_seconds == $planned[0].plans[0].step.seconds and
            .stated_offer.id == "lab-4090") and
        (.[1] | (.flips | not) and (.other_strategy | not) and .plan.change.cost == 0)' \
        "$tmp/asked.json"
}

commas_spaces_and_equal_signs_are_all_right() {
    exits 0 "${plan[@]}" --json --what-if=network=0.5x,price=+10% --what-if 'mfu=0.9x memory=-1GiB'
    jq -e '[.what_if[].change] == ["network=0.5x price=+10%", "mfu=0.9x memory=-1GiB"]' "$tmp/out"
    cd "$data"
    exits 0 "$berth" plan --offers nodes.csv -q --json --what-if network=0.5x price=+10% job.json
    jq -e '.what_if[0].change == "network=0.5x price=+10%"' "$tmp/out"
}

the_text_says_what_becomes_of_the_first_plan() {
    exits 0 "${plan[@]}" --what-if price=+10% --what-if price.rtx4090=20x --what-if memory=1GiB
    says 'What if:' "$tmp/out"
    grep -Eq '^    the same plan: \$[0-9.]+ \(\+10\.0 %\), [0-9.]+ h \(\+0\.0 %\), a step of [0-9.]+ s \(\+0\.0 %\)$' \
        "$tmp/out"
    says '    another choice: 1 x local leased-h100' "$tmp/out"
    says '    the offer that was first would cost $5' "$tmp/out"
    says '    no plan: ' "$tmp/out"
    [ -z "$(awk 'length > 80' "$tmp/out")" ]
    exits 0 "${plan[@]}" --gpu h100 --objective time --what-if network=0x
    says '    the same offer, 1 node instead of ' "$tmp/out"
}

a_job_that_comes_too_late_may_be_in_time_then() {
    local late=("${plan[@]}" --gpu rtx4090 --deadline 1h --what-if mfu=20x)
    exits 3 "${late[@]}"
    says '    there is a plan: ' "$tmp/out"
    exits 3 "${late[@]}" --json
    jq -e '.plans == [] and .what_if[0].flips and .what_if[0].stated_offer == null and
        .what_if[0].plan.hours < 1' "$tmp/out"
}

bad_questions_are_refused_in_one_sentence() {
    local bad
    for bad in nework=0.5x network network=fast network=10% price.h100x=2x failures.h100=2x price=-200% \
        network=1e30 network=+2e6 memory=32TiB interruptions=1e9 price=2e6; do
        exits 2 "${plan[@]}" --what-if "$bad"
        one_sentence
        says "option '--what-if': " "$tmp/err"
    done
    exits 2 "${plan[@]}" --what-if
    one_sentence
    exits 2 "${plan[@]}" --plain --what-if mfu=0.9x
    one_sentence
    exits 2 "${plan[@]}" -o - --what-if mfu=0.9x
    one_sentence
}

prices_that_tie_are_where_the_first_changes() {
    exits 0 "${plan[@]}" --json
    local tie
    tie=$(jq -r '.break_even[] | select(.gpu == "h100-sxm") | .break_even_usd_per_gpu_hour' "$tmp/out")
    local below above
    below=$(jq -n "$tie - 0.01") above=$(jq -n "$tie + 0.01")
    exits 0 "${plan[@]}" --json --what-if "price.h100-sxm=$below" --what-if "price.h100-sxm=$above"
    jq -e '.what_if[0].flips and .what_if[0].plan.gpu == "h100-sxm" and (.what_if[1].flips | not)' \
        "$tmp/out"
    exits 0 "${plan[@]}" --json --pick 2
    jq -e '.break_even_with_rank == 2 and
        any(.break_even[]; .gpu == "rtx4090" and .break_even_usd_per_gpu_hour > .price_usd_per_gpu_hour)' \
        "$tmp/out"
}

a_plan_file_keeps_them_and_explain_prints_them() {
    exits 0 "${plan[@]}" -o "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json"
    says 'Break-even prices' "$tmp/out"
    grep -Eq '^    would win below \$0\.[0-9]+ per GPU-hour; it is \$6\.00 now' "$tmp/out"
    exits 0 "$berth" explain "$tmp/plan.json" --json
    jq -e '(.break_even | length > 0) and .network.inside_nodes.required_bytes_per_second_per_gpu > 0' \
        "$tmp/out"
    jq 'del(.break_even)' "$tmp/plan.json" >"$tmp/older.json"
    exits 0 "$berth" explain "$tmp/older.json" --json
    jq -e '.break_even == null and .figures_agree' "$tmp/out"
}

the_network_that_is_required_binds_just_below() {
    exits 0 "${plan[@]}" --json --gpu h100 --objective time
    jq -e '.plans[0].nodes > 1' "$tmp/out"
    local need
    need=$(jq .plans[0].network.between_nodes.required_gbps_per_node "$tmp/out")
    local at
    for at in 1.02 0.98; do
        sed "s/\"3,200\"/$(jq -n "$need * $at")/" "$data/nodes.csv" >"$tmp/at-$at.csv"
        exits 0 "$berth" plan "$data/job.json" --offers "$tmp/at-$at.csv" -q --json --gpu h100 \
            --objective time
        jq -c '.plans[0] | [.nodes, .strategy, .micro_batch, .network.between_nodes.is_bound]' "$tmp/out"
    done >"$tmp/bound"
    cat "$tmp/bound"
    sed -n 1p "$tmp/bound" | grep -q 'false]$'
    sed -n 2p "$tmp/bound" | grep -q 'true]$'
}

t "each question is answered as a plan of the changed table" each_question_is_answered_as_a_plan_of_the_changed_table
t "commas, spaces and equal signs are all right" commas_spaces_and_equal_signs_are_all_right
t "the text says what becomes of the first plan" the_text_says_what_becomes_of_the_first_plan
t "a job that comes too late may be in time then" a_job_that_comes_too_late_may_be_in_time_then
t "bad questions are refused in one sentence" bad_questions_are_refused_in_one_sentence
t "prices that tie are where the first changes" prices_that_tie_are_where_the_first_changes
t "a plan file keeps them, and explain prints them" a_plan_file_keeps_them_and_explain_prints_them
t "the network that is required binds just below" the_network_that_is_required_binds_just_below
tap_done
