#!/usr/bin/env bash
# Tables of measured runs: what validate and calibrate say of good, bad and odd ones. TAP output.
. "$(dirname "$0")/../lib/tap.sh"
cd "$tmp" || exit 1

header=id,framework,model,gpu,n_gpus,n_layers,d_model,n_heads,d_ff,mlp,vocab,seq_len,strategy,micro_batch,grad_accum,precision,act_ckpt,flash_attn,tokens_per_s_per_gpu
row() { echo "$1,llm-foundry,m,$2,$3,$4,4096,32,14336,swiglu,32000,2048,zero3,$5,1,bf16,full,yes,$6"; }
{
    echo "$header"
    for i in 1 2 3 4 5 6; do row "run-$i" h100-sxm 8 32 $i $((8000 + 100 * i)); done
} >good.csv

a_fit_brings_predictions_to_the_measurements() {
    exits 0 "$berth" validate good.csv --json
    before=$(jq .throughput.mean_abs_rel_error "$tmp/out")
    exits 0 "$berth" calibrate good.csv --date 2026-01-01 -o mine.json
    says "from 6 runs" "$tmp/out"
    jq -e '.schema == "calibration/1" and all(.entries[]; .date == "2026-01-01" and .source == "good.csv")' mine.json
    exits 0 "$berth" validate good.csv --calibration mine.json --json --rows
    jq -e --argjson before "$before" \
        '.throughput.mean_abs_rel_error < $before / 3 and .throughput.mean_abs_rel_error < 0.05' "$tmp/out"
    jq -e '[.rows[].calibrated] | unique == ["yes"]' "$tmp/out"
}

rows_that_cannot_be_predicted_are_listed_with_the_reason() {
    {
        cat good.csv
        row unit-1 h100-sxm "8 GPUs" 32 1 8000
        row gpu-1 abacus 8 32 1 8000
        row gpus-1 h100-sxm "" 32 1 8000
        row model-1 h100-sxm 8 "" 1 8000
        row huge-1 h100-sxm 99999999999 32 1 8000
        row inf-1 h100-sxm 8 32 1 1e999
    } >odd.csv
    exits 0 "$berth" validate odd.csv --json
    jq -r '.skipped[] | "\(.id) \(.why)"' "$tmp/out" >skipped
    cat skipped
    diff skipped - <<'END'
unit-1 bad-cell
gpu-1 gpu-unknown
gpus-1 gpus-unknown
model-1 model-unknown
huge-1 bad-cell
inf-1 bad-cell
END
    exits 0 "$berth" validate odd.csv
    says "skipped: 6 of 12 rows of full training" "$tmp/out"
}

# a row that is good but for one cell
odd() { paste -d, <(printf '%s,%s\n' "$header" "$1"; sed 1d good.csv | head -1) <(echo; echo "$2") |
    sed '1s/,$//' >odd.csv; }

units_and_contradictions_are_skipped_with_the_reason() {
    while IFS='|' read -r column cell why; do
        odd "$column" "$cell"
        exits 0 "$berth" validate odd.csv --json
        [ "$(jq -c '[.skipped[].why]' "$tmp/out")" = "[\"$why\"]" ] ||
            { echo "$column=$cell: $(jq -c '[.skipped[].why]' "$tmp/out")"; false; }
    done <<'END'
peak_mem_gib|60 GiB|bad-cell
peak_mem_gib|nan|bad-cell
peak_mem_gib|0x20|bad-cell
peak_mem_gib|-4|bad-cell
peak_mem_gib|200|contradictory
step_time_s|1e-300|bad-cell
shard_degree|all|bad-cell
n_kv_heads|5|contradictory
n_kv_heads|64|contradictory
tp|16|layout-impossible
pp|16|layout-impossible
pp|1e300|bad-cell
cp|3|layout-impossible
global_batch_seqs|17|contradictory
END
    # throughput, step time and batch: 8 GPUs x 8,100 tokens/s are not 16,384 tokens in 2 seconds
    odd global_batch_seqs,step_time_s 8,2.0
    exits 0 "$berth" validate odd.csv --json
    [ "$(jq -c '[.skipped[].why]' "$tmp/out")" = '["contradictory"]' ]
    odd global_batch_seqs,step_time_s 8,0.25
    exits 0 "$berth" validate odd.csv --json
    [ "$(jq -c .skipped "$tmp/out")" = '[]' ]
    # more products than the GPU can compute
    { echo "$header"; row fast-1 h100-sxm 8 32 1 90000; } >odd.csv
    exits 0 "$berth" validate odd.csv --json
    [ "$(jq -c '[.skipped[].why]' "$tmp/out")" = '["contradictory"]' ]
    odd gpu h100-sxm
    exits 2 "$berth" validate odd.csv
    says "there are two columns 'gpu'" "$tmp/err"
}

rows_say_whether_a_fit_has_seen_them() {
    exits 0 "$berth" validate good.csv --rows --json
    jq -e '.folds == null and ([.rows[].seen_in_fit] | unique == [false])' "$tmp/out"
    jq -e '.classes | has("dense_calibrated") and has("model_parallel")' "$tmp/out"
    exits 0 "$berth" calibrate good.csv -o seen.json
    exits 0 "$berth" validate good.csv --rows --json --calibration seen.json
    jq -e '[.rows[] | select(.tokens_per_second_per_gpu.measured != null) | .seen_in_fit] |
        unique == [true]' "$tmp/out"
    { cat good.csv && for g in a b c d e f; do row "$g-1" a100-80-sxm 8 32 1 4000; done; } >groups.csv
    exits 0 "$berth" validate groups.csv --folds 2 --rows --json --calibration seen.json
    jq -e '.folds == 2 and (.in_sample | has("dense_calibrated")) and
        ([.rows[].seen_in_fit] | unique == [false])' "$tmp/out"
    exits 0 "$berth" validate groups.csv --folds 2
    says "IN_SAMPLE" "$tmp/out"
}

files_that_are_no_tables_are_refused() {
    printf 'id,gpu\n1,h100\n' >short.csv
    exits 2 "$berth" validate short.csv
    says "there is no column 'n_gpus'" "$tmp/err"
    printf '\0\1\2' >binary.csv
    exits 2 "$berth" calibrate binary.csv
    one_sentence
    exits 2 "$berth" validate absent.csv
    one_sentence
    echo "$header" >empty.csv
    for command in calibrate validate; do
        exits 2 "$berth" $command empty.csv
        one_sentence
        says "there are no rows below the header" "$tmp/err"
    done
    { cat empty.csv; row run-1 h100-sxm 8 32 1 ""; } >silent.csv
    exits 2 "$berth" calibrate silent.csv
    says "nothing to calibrate with" "$tmp/err"
    exits 2 "$berth" validate good.csv --folds 1
    says "2 to 1000" "$tmp/err"
    echo '{"schema": "calibration/1", "entries": [{"device": "gpu"}]}' >bad.json
    exits 2 "$berth" validate good.csv --calibration bad.json
    says "calibration entry 1" "$tmp/err"
    echo '{"schema": "calibration/1", "entries": [{"device": "gpu", "chip": "*", "stack": "*",
        "source": "x", "date": "2026-11-30", "rows": 1, "values": {"time_log_sd": 800}}]}' >wild.json
    exits 2 "$berth" estimate --model gpt2 --calibration wild.json
    says "'time_log_sd' above 0 and up to 2" "$tmp/err"
    exits 1 "$berth" calibrate good.csv -o absent/mine.json
    one_sentence
}

# the table that this one writes has lines 2 to 7 of good.csv
rows_of_one_id_repeat_or_contradict_each_other() {
    {
        cat good.csv
        row run-2 h100-sxm 8 32 2 8200
        row run-3 h100-sxm 8 32 3 9900
    } >twins.csv
    exits 0 "$berth" validate twins.csv --rows --json
    jq -e '[.rows[].id] == ["run-1", "run-2", "run-4", "run-5", "run-6"] and
        ([.skipped[] | .id + " " + .why] ==
            ["run-3 contradictory", "run-2 repeated", "run-3 contradictory"])' "$tmp/out"
    exits 0 "$berth" validate twins.csv --rows
    grep -Eq '^  line 4  run-3 +contradictory$' "$tmp/out"
    grep -Eq '^  line 8  run-2 +repeated$' "$tmp/out"
    exits 0 "$berth" validate twins.csv --rows --plain
    fails grep -q repeated "$tmp/out"
}

for name in a_fit_brings_predictions_to_the_measurements \
    rows_that_cannot_be_predicted_are_listed_with_the_reason \
    units_and_contradictions_are_skipped_with_the_reason rows_say_whether_a_fit_has_seen_them \
    files_that_are_no_tables_are_refused rows_of_one_id_repeat_or_contradict_each_other; do
    t "$name" "$name"
done
tap_done
