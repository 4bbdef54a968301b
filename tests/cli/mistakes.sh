#!/usr/bin/env bash
# What people get wrong in jobs, options and files is said, never silently taken as something else.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
data=$top/tests/cli/data
plan=("$berth" plan --model gpt2 --tokens 1B --offers "$data/nodes.csv")

# job TEXT: a job file with it
job() {
    printf '{"model": "gpt2", "tokens": "1B", %s}' "$1" >"$tmp/job.json"
}

no_limit_is_said_by_leaving_it_out() {
    local pair
    for pair in budget_usd:budget-usd deadline:deadline max_gpus:max-gpus; do
        job "\"${pair%:*}\": 0"
        exits 2 "$berth" plan "$tmp/job.json" --offers "$data/nodes.csv"
        one_sentence
        says "'${pair%:*}': it must be more than 0; leave it out for no limit" "$tmp/err"
        exits 2 "${plan[@]}" "--${pair#*:}" 0
        one_sentence
        says "'--${pair#*:}': it must be more than 0; leave it out for no limit" "$tmp/err"
    done
}

words_that_fit_no_offer_are_named() {
    exits 0 "${plan[@]}" --provider local --provider lcoal --region rack-12 --region mars
    says "warning: no offer has provider 'lcoal', region 'mars'" "$tmp/err"
    exits 0 "${plan[@]}" --fabric ib
    fails grep -q warning "$tmp/err"
    exits 3 "${plan[@]}" --provider lcoal -q
    says "limits: of 4 offers, provider leaves out 4" "$tmp/err"
    exits 3 "${plan[@]}" --provider lcoal --json
    jq -e '.rejected[0].offers == 4 and (.rejected[0].why | test("provider"))' "$tmp/out"
    job '"fabrics": ["infinband"]'
    exits 2 "$berth" plan "$tmp/job.json" --offers "$data/nodes.csv"
    says "unknown fabric 'infinband'" "$tmp/err"
    exits 0 "$berth" offers --fabric ib -q
    [ -s "$tmp/out" ]
}

edited_plans_are_noticed() {
    exits 0 "${plan[@]}" -q --gpu rtx4090 -o "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json" --json
    fails grep -q warning "$tmp/err"
    jq -e .figures_agree "$tmp/out"
    jq '.prediction.cost_usd.mid = 0.01' "$tmp/plan.json" >"$tmp/edited.json"
    exits 0 "$berth" explain "$tmp/edited.json" --json
    says "changed after it was made, or another version" "$tmp/err"
    jq -e '.figures_agree == false' "$tmp/out"
    jq '.schedule.hash |= sub("^..."; "000")' "$tmp/plan.json" >"$tmp/edited.json"
    exits 2 "$berth" explain "$tmp/edited.json"
    one_sentence
    says "the file was changed after it was made, or another version" "$tmp/err"
}

a_dash_is_standard_output() {
    mkdir -p "$tmp/dash"
    cd "$tmp/dash"
    exits 0 "${plan[@]}" --gpu rtx4090 -o -
    jq -e '.schema == "plan/1"' "$tmp/out"
    [ "$(jq -s length "$tmp/out")" = 1 ]
    [ ! -e ./- ]
    exits 0 bash -c '"$@" 2>/dev/null | "$0" explain - >/dev/null' "$berth" "${plan[@]}" --gpu rtx4090 -o -
    exits 2 "${plan[@]}" -o - --json
    says "exclude each other" "$tmp/err"
    [ ! -e ./- ]
}

what_nobody_reads_is_named() {
    printf 'gpu,gpus,usd an hour\nh100,8,3\n' >"$tmp/odd.csv"
    exits 0 "$berth" offers --offers "$tmp/odd.csv"
    says "holds what is not read: 'usd an hour'" "$tmp/err"
    jq -n '{schema: "offers/1", offers: [{gpu: "h100-sxm", gpus_per_node: 8, price_usd: 3}]}' >"$tmp/odd.json"
    exits 0 "$berth" offers --offers "$tmp/odd.json" --json
    says "holds what is not read: 'price_usd'" "$tmp/err"
    exits 0 "$berth" offers --offers "$data/odd.json" --json --reproducible -q
    cp "$tmp/out" "$tmp/first"
    exits 0 "$berth" offers --offers "$data/odd.json" --csv -q
    cp "$tmp/out" "$tmp/again.csv"
    exits 0 "$berth" offers --offers "$tmp/again.csv" --json --reproducible -q
    diff "$tmp/first" "$tmp/out"
}

for name in no_limit_is_said_by_leaving_it_out words_that_fit_no_offer_are_named \
    edited_plans_are_noticed a_dash_is_standard_output \
    what_nobody_reads_is_named; do
    t "$name" "$name"
done
tap_done
