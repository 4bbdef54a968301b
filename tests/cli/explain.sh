#!/usr/bin/env bash
# berth explain: what figures are made of, what came second, what was rejected.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
data=$top/tests/cli/data
plan=("$berth" plan "$data/job.json" --offers "$data/nodes.csv" --reproducible)

memory_is_the_sum_of_products() {
    exits 0 "${plan[@]}" -o "$tmp/plan.json"
    exits 0 "$berth" explain "$tmp/plan.json" --json
    jq -e '.prediction.memory.peak_bytes as $peak | .prediction.memory.parts.packing as $packing |
        ([.made_of.memory[].total] | add) + $packing == $peak and
        all(.made_of.memory[]; . as $t |
            (reduce .factors[].value as $x (1; . * $x)) / (.divided_by.value // 1) + .padding
            | . / $t.total | . > 0.999999 and . < 1.000001)' "$tmp/out"
    jq -e '.prediction.step.work as $work | all(.made_of.work[]; .total == $work[.part])' "$tmp/out"
}

the_runner_up_is_the_second_plan_of_the_list() {
    exits 0 "${plan[@]}" --json -o "$tmp/plan.json"
    cp "$tmp/out" "$tmp/list.json"
    exits 0 "$berth" explain "$tmp/plan.json" --json
    jq -e --slurpfile list "$tmp/list.json" '$list[0].plans as $p |
        def close($a; $b): ($a - $b) | . < 1e-6 and . > -1e-6;
        .runner_up | .id == $p[1].offer.id and .provider == $p[1].offer.provider and
            .nodes == $p[1].nodes and
            close(.margin.cost_usd; $p[1].cost_usd.mid - $p[0].cost_usd.mid) and
            close(.margin.hours; $p[1].hours.mid - $p[0].hours.mid) and
            close(.margin.ratio; $p[1].cost_usd.mid / $p[0].cost_usd.mid - 1) and
            (.differs | map(.what) | index("offer") != null and index("hardware") != null)' \
        "$tmp/out"
    exits 0 "${plan[@]}" --pick 2 -o "$tmp/second.json"
    exits 0 "$berth" explain "$tmp/second.json" --json
    jq -e '.runner_up | .rank == 1 and .rank_of_this_plan == 2 and .margin.cost_usd < 0' "$tmp/out"
    exits 0 "$berth" explain "$tmp/second.json"
    says 'plan 1 of the list, this being plan 2' "$tmp/out"
    grep -q '^  margin: .* less, ' "$tmp/out"
}

what_was_rejected_is_kept_with_its_miss_and_the_change() {
    exits 0 "${plan[@]}" --model llama-3.1-70b --deadline 900d --offload none --offload optimizer \
        --offload optimizer+params --json -o "$tmp/plan.json"
    jq .rejected "$tmp/out" >"$tmp/rejected.json"
    [ "$(jq length "$tmp/rejected.json")" -gt 0 ]
    exits 0 "$berth" explain "$tmp/plan.json" --json
    jq -e --slurpfile r "$tmp/rejected.json" '.rejected == $r[0] and .rejected_more == 0' "$tmp/out"
    exits 0 "$berth" explain "$tmp/plan.json"
    says 'Rejected' "$tmp/out"
    says 'x rtx4090: does not fit: ' "$tmp/out"
    grep -q ' GiB too much$' "$tmp/out"
    grep -q '^    would do: .* nodes on one fabric' "$tmp/out"
    [ -z "$(awk 'length > 80' "$tmp/out")" ]
}

a_file_without_reasons_is_explained_without_them() {
    exits 0 "${plan[@]}" -o "$tmp/plan.json"
    jq 'del(.runner_up, .rejected, .rejected_more)' "$tmp/plan.json" >"$tmp/old.json"
    exits 0 "$berth" explain "$tmp/old.json"
    fails grep -q '^Runner-up' "$tmp/out"
    exits 0 "$berth" explain "$tmp/old.json" --json
    jq -e '.runner_up == null and .rejected == null' "$tmp/out"
}

t memory_is_the_sum_of_products memory_is_the_sum_of_products
t the_runner_up_is_the_second_plan_of_the_list the_runner_up_is_the_second_plan_of_the_list
t what_was_rejected_is_kept_with_its_miss_and_the_change what_was_rejected_is_kept_with_its_miss_and_the_change
t a_file_without_reasons_is_explained_without_them a_file_without_reasons_is_explained_without_them
tap_done
