#!/usr/bin/env bash
# Adapters beside a frozen model and packed documents: predicted and planned, never launched.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

estimate() { exits 0 "$berth" estimate --model llama-3.1-8b --gpus 1 --json "$@"; }
value() { jq -r "$1" "$tmp/out"; }

adapters_alone_have_gradients_and_checkpoints() {
    estimate --lora 16
    [ "$(value .adapter_parameters)" = 41943040 ]
    [ "$(value .checkpoint.bytes)" = $((12 * 41943040)) ]
    [ "$(value .model.lora)" = 16 ]
    [ "$(value .model.lora_targets)" = all ]
    jq -e '.memory.parts.gradients < 200e6' "$tmp/out"
    says "4 N + 6 A" "$tmp/out"
    frozen=$(value .memory.parts.parameters)
    estimate --lora 16 --base-bits 4
    jq -e --argjson f "$frozen" '.memory.parts.parameters < 0.45 * $f' "$tmp/out"
    says '"base_bits": 4' "$tmp/out"
    exits 0 "$berth" estimate --model llama-3.1-8b --gpus 1 --lora 8 --lora-targets q,v
    says "trained: adapters of rank 8 beside q,v, 3.41M parameters" "$tmp/out"
}

documents_make_attention_cheaper() {
    estimate --seq 32768
    whole=$(value .step.work.attention)
    estimate --seq 32768 --doc-tokens 1024
    jq -e --argjson w "$whole" '.step.work.attention < 0.07 * $w' "$tmp/out"
    [ "$(value .strategy.doc_tokens)" = 1024 ]
    says "d the mean of squares of document lengths over s" "$tmp/out"
}

their_plans_are_not_launched() {
    exits 0 "$berth" plan --here --ranks-per-node 1 --model tiny-gpt2 --tokens 2048 --seq 64 \
        --precision fp32 --lora 4 --lora-targets attention -o "$tmp/plan.json"
    says "launchable: no: the bundled engine trains whole models" <("$berth" explain "$tmp/plan.json")
    says "trained: adapters of rank 4 beside attention" <("$berth" explain "$tmp/plan.json")
    echo data >"$tmp/data.txt"
    jq '.launchable = true | .not_launchable = null' "$tmp/plan.json" >"$tmp/claims.json"
    for plan in plan claims; do
        exits 2 "$berth" launch "$tmp/$plan.json" --here --data "local:$tmp/data.txt" -n
        says "trains whole models" "$tmp/err"
    done
}

packed_documents_need_data_that_keep_them_apart() {
    exits 0 "$berth" plan --here --ranks-per-node 1 --model tiny-gpt2 --tokens 2048 --seq 64 \
        --precision fp32 --doc-tokens 20 -o "$tmp/plan.json"
    [ "$(jq .launchable "$tmp/plan.json")" = true ]
    echo data >"$tmp/data.txt"
    exits 2 "$berth" launch "$tmp/plan.json" --here --data "local:$tmp/data.txt" -n
    says "say documents=apart" "$tmp/err"
    exits 0 "$berth" launch "$tmp/plan.json" --here --data "local:$tmp/data.txt documents=apart eos=10" -n
    jq '.doc_tokens = 300 | .data = "local:web.tok"' tests/cli/data/job.json >"$tmp/job.json"
    exits 2 "$berth" plan "$tmp/job.json" --offers tests/cli/data/nodes.csv
    says "say documents=apart" "$tmp/err"
}

a_job_file_says_the_same() {
    jq '.lora = 8 | .lora_targets = "q,v" | .base_bits = 4 | .doc_tokens = 300' \
        tests/cli/data/job.json >"$tmp/job.json"
    exits 0 "$berth" plan "$tmp/job.json" --offers tests/cli/data/nodes.csv -o "$tmp/plan.json"
    [ "$(jq -c '.job.model | [.lora, .lora_targets, .base_bits]' "$tmp/plan.json")" = '[8,"q,v",4]' ]
    [ "$(jq .schedule.strategy.doc_tokens "$tmp/plan.json")" = 300 ]
    # the job of a plan is a job file
    jq .job "$tmp/plan.json" >"$tmp/again.json"
    exits 0 "$berth" plan "$tmp/again.json" --offers tests/cli/data/nodes.csv -o "$tmp/plan2.json"
    [ "$(jq -c '.schedule' "$tmp/plan.json")" = "$(jq -c '.schedule' "$tmp/plan2.json")" ]
    # a flag beats it
    exits 0 "$berth" plan "$tmp/job.json" --offers tests/cli/data/nodes.csv --lora 32 --json \
        -o "$tmp/plan.json"
    [ "$(jq .job.model.lora "$tmp/plan.json")" = 32 ]
}

exports_say_what_they_leave_out() {
    setup=(--model llama-3.1-8b --gpus 8 --lora 16 --lora-targets q,v --base-bits 4 --doc-tokens 500)
    for target in deepspeed fsdp2 accelerate slurm env; do
        exits 0 "$berth" export "${setup[@]}" --to $target
        says "adapters of rank 16 beside q,v of the frozen model" "$tmp/err"
        says "the frozen model in 4 bits" "$tmp/err"
        says "attention within packed documents alone" "$tmp/err"
    done
    exits 2 "$berth" export "${setup[@]}" --to torchtitan
    says "torchtitan trains whole models" "$tmp/err"
}

mistakes_are_named() {
    while IFS='|' read -r code options sentence; do
        # shellcheck disable=SC2086
        exits "$code" "$berth" estimate --model llama-3.1-8b $options
        says "$sentence" "$tmp/err"
    done <<'END'
2|--lora 0|option '--lora': it must be more than 0; leave it out for training the whole model
2|--lora 5000|it must lie in 1 to 4096
2|--base-bits 4|give their rank too
2|--lora-targets q|give their rank too
2|--lora 8 --lora-targets x|no matrices 'x' to adapt
2|--lora 8 --base-bits 5|'5' is not one of
2|--doc-tokens 0|it must be more than 0
2|--doc-tokens 10T|too long
END
    exits 2 "$berth" estimate --model gpt2 --lora 8 --lora-targets gate
    says "has no gate to adapt" "$tmp/err"
    echo '{"model": "gpt2", "tokens": 1000000, "base_bits": 7}' >"$tmp/job.json"
    exits 2 "$berth" plan "$tmp/job.json"
    says "job field 'base_bits': it must be 16, 8 or 4" "$tmp/err"
}

published_runs_of_adapters_are_scored_apart() {
    head -1 planner/facts/measured.csv >"$tmp/runs.csv"
    grep -E ',(lora|qlora),' planner/facts/measured.csv >>"$tmp/runs.csv"
    exits 0 "$berth" validate "$tmp/runs.csv"
    says "adapters, not among the above: 47 of 58 rows predicted" "$tmp/out"
    exits 0 "$berth" validate "$tmp/runs.csv" --json
    [ "$(value .throughput.rows)" = 0 ]
    jq -e '.adapters.throughput.groups >= 20' "$tmp/out"
}

t adapters_alone_have_gradients_and_checkpoints adapters_alone_have_gradients_and_checkpoints
t documents_make_attention_cheaper documents_make_attention_cheaper
t packed_documents_need_data_that_keep_them_apart packed_documents_need_data_that_keep_them_apart
t their_plans_are_not_launched their_plans_are_not_launched
t a_job_file_says_the_same a_job_file_says_the_same
t exports_say_what_they_leave_out exports_say_what_they_leave_out
t mistakes_are_named mistakes_are_named
t published_runs_of_adapters_are_scored_apart published_runs_of_adapters_are_scored_apart
tap_done
