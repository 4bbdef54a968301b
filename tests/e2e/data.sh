#!/usr/bin/env bash
# Data of every kind through a whole run: text becomes tokens on each node, sources are blended, masks
# decide what is learnt; one rank and two see the same batches.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
. tests/lib/sshd.sh
. tests/lib/run.sh
sshd_two_nodes e2e-data
mv "$tmp/hosts" "$tmp/hosts2"
head -n 1 "$tmp/hosts2" >"$tmp/hosts1"

tokenizer=$top/tests/golden/tokenizers/llama3.json
# every paragraph a document
awk 'BEGIN { RS = "" } { gsub(/[\\"]/, " "); gsub(/[\n\t\f]/, " "); printf "{\"text\": \"%s\"}\n", $0 }' \
    /usr/share/common-licenses/Apache-2.0 >"$tmp/web.jsonl"
for i in $(seq 200); do
    printf '{"question": "What is %d and %d? ", "answer": "It is %d."}\n' "$i" "$((i * 7))" "$((i * 8))"
done >"$tmp/chat.jsonl"
"$berth" data tokenize "$tmp/chat.jsonl" --tokenizer "$tokenizer" --field answer \
    --prompt-field question -o "$tmp/chat.tok" --json >"$tmp/chat.json"
"$berth" offers --here --json | jq '{schema, offers: [.offers[0] | .nodes_available = 2 |
    .max_nodes_one_fabric = 2 | .fabric = "ethernet" | .inter_gbps_per_node = 10 |
    .gpus_per_node = 1 | .provenance = null]}' >"$tmp/offers.json"
echo '{"model": {"name": "small", "family": "llama", "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "head_dim": 8,
    "ffn": 64, "vocab": 704, "max_positions": 64}, "tokens": 12288, "seq": 64,
    "global_batch_tokens": 512, "precision": "fp32", "training": {"lr": 3e-3}}' >"$tmp/job.json"

# train_on NODES [WORD...]: losses of all steps in $tmp/loss-NODES; words of the first source
job=$tmp/job.json
train_on() {
    "$berth" plan --offers "$tmp/offers.json" "$job" --max-gpus "$1" --objective time \
        --strategy $([ "$1" = 1 ] && echo ddp || echo zero3) -q -o "$tmp/plan.json" >/dev/null
    exits 0 "$berth" launch "$tmp/plan.json" --hosts "$tmp/hosts$1" "${sshd_connect[@]}" \
        --data "local:$tmp/web.jsonl" tokenizer="$tokenizer" weight=0.75 "${@:2}" --data "$tmp/chat.tok" weight=0.25
    run=$("$berth" status latest --json "${sshd_connect[@]}" | jq -r .id)
    jq -c '[.step, .loss]' "$(node_dir a 0)/metrics.jsonl" >"$tmp/loss-$1"
    nothing_left
}

text_and_a_masked_file_are_blended_and_learnt() {
    train_on 2
    [ "$(wc -l <"$tmp/loss-2")" = 24 ]
    first=$(head -n 1 "$tmp/loss-2" | jq '.[1]')
    last=$(tail -n 1 "$tmp/loss-2" | jq '.[1]')
    jq -n "$last < $first - 0.5" | grep -qx true
    # each node made its own tokens of the text, once
    for host in a b; do [ "$(ls "$sshd_dir/$host/home/berth/data/tokens" | grep -c 'tok$')" = 1 ]; done
}

one_rank_sees_the_same_batches_as_two() {
    train_on 1
    losses_agree
}

losses_agree() {
    paste -d' ' "$tmp/loss-1" "$tmp/loss-2" >"$tmp/both"
    cat "$tmp/both"
    jq -s '[range(0; length; 2) as $i | (.[$i][1] - .[$i + 1][1]) / .[$i][1] | fabs] | max < 1e-4' \
        "$tmp/both" | grep -qx true
}

the_fields_that_hold_prompt_and_text_can_be_named() {
    jq -c '{question: .text[:80], answer: .text[80:]}' "$tmp/web.jsonl" >"$tmp/qa.jsonl"
    exits 0 "$berth" data tokenize "$tmp/qa.jsonl" --tokenizer "$tokenizer" --field answer \
        --prompt-field question -o "$tmp/qa.tok"
    rm -r "$sshd_dir/a/home/berth/data/tokens"
    exits 0 "$berth" launch "$tmp/plan.json" --hosts "$tmp/hosts1" "${sshd_connect[@]}" \
        --data "local:$tmp/qa.jsonl" tokenizer="$tokenizer" field=answer prompt-field=question
    cmp "$tmp/qa.tok" "$sshd_dir"/a/home/berth/data/tokens/*.tok
    exits 2 "$berth" launch "$tmp/plan.json" --hosts "$tmp/hosts1" "${sshd_connect[@]}" \
        --data "local:$tmp/qa.jsonl" field=answer
    says "only text with a tokenizer=FILE has" "$tmp/err"
    nothing_left
}

# Documents packed into sequences, each seen by itself: another loss than of joined ones, the same on
# any number of ranks; memory is that of the plan to the byte.
packed_documents_are_learnt_apart() {
    cp "$tmp/loss-1" "$tmp/loss-joined"
    jq '.doc_tokens = 40' "$tmp/job.json" >"$tmp/packed.json"
    job=$tmp/packed.json
    train_on 2 documents=apart
    train_on 1 documents=apart
    "$berth" status "$run" --json "${sshd_connect[@]}" >"$tmp/status"
    jq -e --slurpfile p "$tmp/plan.json" '.memory.slab_bytes == $p[0].prediction.memory.peak_bytes' "$tmp/status"
    losses_agree
    [ "$(jq -s '.[0][1] == .[1][1]' <(head -n 1 "$tmp/loss-1") <(head -n 1 "$tmp/loss-joined"))" = false ]
    exits 2 "$berth" launch "$tmp/plan.json" --hosts "$tmp/hosts1" "${sshd_connect[@]}" --data "$tmp/chat.tok"
    says "say documents=apart" "$tmp/err"
    job=$tmp/job.json
}

hosts_whose_files_differ_are_named() {
    own=$(ls "$sshd_dir"/b/home/berth/data/tokens/*.tok)
    dd if=/dev/zero of="$own" bs=64 seek=1 count=100 conv=notrunc 2>/dev/null
    "$berth" plan --offers "$tmp/offers.json" "$tmp/job.json" --max-gpus 2 --objective time \
        --strategy zero3 -q -o "$tmp/plan.json" >/dev/null
    exits 10 "$berth" launch "$tmp/plan.json" --hosts "$tmp/hosts2" "${sshd_connect[@]}" \
        --data "local:$tmp/web.jsonl" tokenizer="$tokenizer"
    says "the data on host" "$tmp/err"
    says "every host needs the same files" "$tmp/err"
    nothing_left
}

for f in text_and_a_masked_file_are_blended_and_learnt one_rank_sees_the_same_batches_as_two \
    the_fields_that_hold_prompt_and_text_can_be_named packed_documents_are_learnt_apart \
    hosts_whose_files_differ_are_named; do
    t "$f" "$f"
done
tap_done
