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
    says "were changed after it was made, it was made with other constants" "$tmp/err"
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

figures_out_of_range_are_said_as_they_were_given() {
    while IFS='|' read -r flags sentence; do
        exits 2 "$berth" $flags
        one_sentence
        says "$sentence" "$tmp/err"
    done <<END
estimate --model gpt2 --prefetch 1000000|option '--prefetch' is 1000000; it must lie in 1 to 14
estimate --model gpt2 --prefetch 4294967297|option '--prefetch' is 4294967297
estimate --model gpt2 --loss-chunks 5000000000|option '--loss-chunks' is 5000000000
estimate --model gpt2 --micro-batch 1000000T|the micro batch is 1000000000000000000
estimate --model gpt2 --global-batch-tokens 1|a global batch of 1 token is not a whole number of micro steps of 8192 tokens; the nearest is 8192
estimate --model gpt2 --global-batch-tokens 20000|the nearest is 16384
estimate --model gpt2 --global-batch-tokens 1000T|a global batch of 1000000000000000 tokens is too large
plan --model gpt2 --tokens 1B --global-batch-tokens 1|a global batch of 1 token is not a whole number of sequences of 1024 tokens; the nearest is 1024
plan --model gpt2 --tokens 1B --global-batch-tokens 1024T|sequences is too large; it may have up to 16777216
plan --tokens 1B --model meta-llama/Llama-3.1-8B|did you mean the preset 'llama-3.1-8b'? Else give the path
plan --tokens 1B --model Qwen/Qwen2.5-7B-Instruct|did you mean the preset 'qwen2.5-7b'?
plan --tokens 1B --model acme/wonderful-model-of-ours|give a preset (berth help models) or the path of the model's config.json
END
    exits 2 "$berth" plan "--$(head -c 100000 /dev/zero | tr '\0' x)"
    one_sentence
    [ "$(wc -c <"$tmp/err")" -lt 300 ]
}

checkpoints_are_billed_as_often_as_they_are_saved() {
    head -c 100000 /dev/zero >"$tmp/tokens"
    for job in '{"model": "tiny-llama", "tokens": "1M"}' \
        '{"model": "tiny-llama", "tokens": "1M", "checkpoint_every": "7m"}'; do
        echo "$job" >"$tmp/job.json"
        exits 0 "$berth" plan "$tmp/job.json" --here -o "$tmp/plan.json"
        exits 0 "$berth" launch "$tmp/plan.json" --here --data "local:$tmp/tokens" \
            --data-kind bytes -n
        says "every $(jq .job.checkpoint_every "$tmp/plan.json") s" "$tmp/out"
    done
}

a_family_means_all_its_models() {
    local name
    for name in a100 A100 "NVIDIA A100"; do
        exits 0 "$berth" offers --gpu "$name" --json
        jq -e '[.offers[].gpu] | unique == ["a100-40-sxm", "a100-80-pcie", "a100-80-sxm"]' "$tmp/out"
        exits 0 "$berth" plan --model gpt2 --tokens 1B --gpu "$name" --top 50 --json
        jq -e '[.plans[].offer.gpu] | unique == ["a100-40-sxm", "a100-80-pcie", "a100-80-sxm"]' "$tmp/out"
        exits 2 "$berth" estimate --model gpt2 --gpu "$name"
        one_sentence
        says "which '$name' is meant? There are a100-40-pcie, a100-80-pcie, a100-40-sxm," "$tmp/err"
    done
    exits 0 "$berth" estimate --model gpt2 --gpu rtx4090
    exits 0 "$berth" estimate --model gpt2 --gpu "NVIDIA L4"
}

switches_and_columns_are_checked() {
    exits 0 env BERTH_NO_INPUT=1 "$berth" offers -q
    exits 0 env BERTH_NO_INPUT=no "$berth" offers -q
    exits 2 env BERTH_NO_INPUT=perhaps "$berth" offers -q
    says "'perhaps' must be true or false" "$tmp/err"
    exits 2 "$berth" offers --columns nope --json
    says "unknown column 'nope'" "$tmp/err"
    exits 2 "${plan[@]}" --columns nope --json
    says "unknown column 'nope'" "$tmp/err"
}

a_file_among_the_words_is_pointed_out() {
    cp "$data/nodes.csv" "$tmp/inv.csv"
    exits 0 "$berth" offers "$tmp/inv.csv"
    says "--offers $tmp/inv.csv reads the file" "$tmp/err"
}

an_interrupt_leaves_one_document() {
    local rc signal
    mkfifo "$tmp/never"
    exec 9<>"$tmp/never"
    for signal in INT TERM; do
        rc=0
        timeout --preserve-status -k 10 -s $signal 1 "$berth" plan "$tmp/never" --json \
            >"$tmp/out" || rc=$?
        [ "$rc" = 130 ]
        [ "$(jq -s length "$tmp/out")" = 1 ]
        jq -e '.schema == "error/1" and .code == "interrupted"' "$tmp/out"
    done
    exec 9>&-
}

for name in no_limit_is_said_by_leaving_it_out words_that_fit_no_offer_are_named \
    edited_plans_are_noticed a_dash_is_standard_output \
    what_nobody_reads_is_named figures_out_of_range_are_said_as_they_were_given \
    checkpoints_are_billed_as_often_as_they_are_saved a_family_means_all_its_models \
    switches_and_columns_are_checked a_file_among_the_words_is_pointed_out an_interrupt_leaves_one_document; do
    t "$name" "$name"
done
tap_done
