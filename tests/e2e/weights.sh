#!/usr/bin/env bash
# From weights as Hugging Face has them to a run, and back: the golden models of tests/golden, on this
# machine. With a learning rate of 0 what comes out must be what went in.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
models=$top/tests/golden
tap_cleanup() { "$berth" clean latest -y >/dev/null 2>&1; }
for i in $(seq 0 1999); do printf '%b' "\\x$(printf %02x $((i * i % 83)))\\x00"; done >"$tmp/tokens.u16"
"$berth" offers --here --json >"$tmp/here.json"

# plan MODEL RANKS STRATEGY [FIELD...]: $tmp/plan.json
plan() {
    jq --argjson n "$2" '{schema, offers: [.offers[0] | .gpus_per_node = $n | .provenance = null]}' \
        "$tmp/here.json" >"$tmp/offers.json"
    jq -n --arg m "$models/$1/config.json" --arg s "$3" --arg d "local:$tmp/tokens.u16" '{model: $m,
        tokens: 192, seq: 24, global_batch_tokens: 96, precision: "fp32", strategies: $s, data: $d,
        data_kind: "uint16", training: {lr: 0}}' >"$tmp/job.json"
    exits 0 "$berth" plan "$tmp/job.json" --offers "$tmp/offers.json" -q -o "$tmp/plan.json"
}
launch() { exits "$1" "$berth" launch "$tmp/plan.json" --here --remote-dir "$tmp/node" "${@:2}"; }

weights_come_back_as_they_went_in() {
    for model in qwen3-tiny gpt2-untied-tiny; do
        rm -rf "$tmp"/out*
        plan $model 2 zero3
        launch 0 --weights "local:$models/$model"
        exits 0 "$berth" export-weights latest "$tmp/out1" --dtype fp32 --json
        [ "$(jq .step "$tmp/out")" = 2 ]
        [ ! -e "$tmp/out1.checkpoint" ]
        # one rank goes on from several files of what two had, on the host already
        exits 0 "$berth" export-weights latest "$tmp/out2" --dtype fp32 --max-file 30kB
        [ "$(ls "$tmp/out2" | grep -c safetensors$)" -gt 1 ]
        plan $model 1 ddp
        launch 0 --weights "host:$tmp/out2"
        exits 0 "$berth" export-weights latest "$tmp/out3" --dtype fp32
        cmp "$tmp/out1/model.safetensors" "$tmp/out3/model.safetensors"
        cmp "$tmp/out1/config.json" "$tmp/out3/config.json"
    done
}

a_run_is_resumed_from_its_checkpoint_not_from_the_weights() {
    rm -rf "$tmp"/out*
    plan qwen2-tiny 2 zero1
    jq '.job.training.lr = 0.01' "$tmp/plan.json" >"$tmp/plan2.json"
    mv "$tmp/plan2.json" "$tmp/plan.json"
    launch 0 --weights "local:$models/qwen2-tiny"
    exits 0 "$berth" export-weights latest "$tmp/out1"
    find "$tmp/node/data" -name model.safetensors -delete # nobody may want them again
    exits 0 "$berth" resume latest
    exits 0 "$berth" export-weights latest "$tmp/out2"
    cmp "$tmp/out1/model.safetensors" "$tmp/out2/model.safetensors"
    find "$tmp/node/runs" -name 'step-*' -type d -exec rm -r {} +
    exits 10 "$berth" resume latest
    says "the run does not start over by itself" "$tmp/err"
}

weights_of_another_model_are_refused_before_anything_is_sent() {
    plan qwen3-tiny 2 zero3
    launch 2 --weights "local:$models/qwen2-tiny"
    says "of another model than the plan's 'qwen3-tiny': its" "$tmp/err"
    launch 2 --weights "local:$tmp"
    says "holds neither model.safetensors nor" "$tmp/err"
    launch 2 --weights host:model
    says "need an absolute path on the nodes" "$tmp/err"
}

damaged_weights_on_a_node_end_the_run_with_the_tensor() {
    plan qwen3-tiny 2 zero3
    mkdir -p "$tmp/bad"
    cp "$models/qwen3-tiny/config.json" "$tmp/bad"
    head -c 100000 "$models/qwen3-tiny/model.safetensors" >"$tmp/bad/model.safetensors"
    launch 10 --weights "host:$tmp/bad"
    says "weights: '$tmp/bad/model.safetensors' is cut short" "$tmp/err"
}

a_checkpoint_in_a_folder_is_exported_and_a_damaged_one_is_not() {
    plan smollm2-tiny 2 zero2
    launch 0 --weights "local:$models/smollm2-tiny"
    exits 0 "$berth" fetch latest "$tmp/home-again"
    exits 0 "$berth" export-weights "$tmp/home-again" "$tmp/exported"
    says "$tmp/exported: step 2, " "$tmp/out"
    exits 2 "$berth" export-weights "$tmp/home-again" "$tmp/exported"
    says "'$tmp/exported' is there already" "$tmp/err"
    step=$(echo "$tmp"/home-again/step-*)
    printf x | dd of="$step/rank-0000.safetensors" bs=1 seek=5000 conv=notrunc status=none
    exits 2 "$berth" export-weights "$step" "$tmp/other"
    says "rank-0000.safetensors' is damaged" "$tmp/err"
    [ ! -e "$tmp/other" ]
    exits 1 "$berth" export-weights "$tmp/node" "$tmp/other"
    says "is no checkpoint and holds none" "$tmp/err"
}

t 'weights come back as they went in' weights_come_back_as_they_went_in
t 'a run is resumed from its checkpoint, not from the weights' \
    a_run_is_resumed_from_its_checkpoint_not_from_the_weights
t 'weights of another model are refused before anything is sent' \
    weights_of_another_model_are_refused_before_anything_is_sent
t 'damaged weights on a node end the run with the tensor' \
    damaged_weights_on_a_node_end_the_run_with_the_tensor
t 'a checkpoint in a folder is exported and a damaged one is not' \
    a_checkpoint_in_a_folder_is_exported_and_a_damaged_one_is_not
tap_done
