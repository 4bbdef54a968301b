#!/usr/bin/env bash
# berth data: text to tokens, what is in a file, other formats; and what launch makes of data.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

golden=tests/golden/tokenizers
number() { jq -r "$1" "$tmp/out"; }
data() { "$berth" data "$@"; }

# a line a document, with what JSON and Unicode make awkward; 1.2 MB, so that it is taken in parts
awk 'BEGIN { for (i = 0; i < 12000; i++)
    printf "{\"id\": %d, \"text\": \"Line %d: caf\\u00e9 \\ud83d\\ude42 \\\"quoted\\\"\\n\\n  the end, %d.\"}\n", i, i, i * 7919 }' >"$tmp/web.jsonl"

the_result_does_not_depend_on_threads() {
    local n
    for n in 1 2 5; do
        exits 0 data tokenize "$tmp/web.jsonl" --tokenizer $golden/llama3.json -o "$tmp/$n.tok" --threads $n --json
    done
    cmp "$tmp/1.tok" "$tmp/2.tok" && cmp "$tmp/1.tok" "$tmp/5.tok"
    [ "$(number .schema)" = data-tokenize/1 ]
    [ "$(number .documents)" = 12000 ]
    [ "$(number .vocab)" = 701 ]
    [ -z "$(ls "$tmp" | grep tmp-)" ]
}

a_text_file_is_a_document_and_decodes_to_itself() {
    printf 'It'"'"'s 12 naïve 🙂 lines.\nNext  one' >"$tmp/a.txt"
    exits 0 data tokenize "$tmp/a.txt" --tokenizer $golden/qwen2.json -o "$tmp/a.tok"
    says 'in 1 document, berth, 2 bytes each' "$tmp/out"
    exits 0 data inspect "$tmp/a.tok" --tokenizer $golden/qwen2.json --json
    [ "$(number .end_of_text)" = 0 ]
    [ "$(number .documents)" = 1 ]
    [ "$(number .first_outside)" = null ]
    number .first_text | grep -q "^It's 12 naïve"
    exits 0 data tokenize "$tmp/a.txt" -o "$tmp/b.tok" --json
    [ "$(number .tokens)" = "$(wc -c <"$tmp/a.txt")" ]
}

formats_are_turned_into_each_other() {
    exits 0 data convert "$tmp/1.tok" --to megatron -o "$tmp/m.bin"
    exits 0 data inspect "$tmp/m.bin" --json
    [ "$(number .kind)" = megatron ]
    [ "$(number .documents)" = 12000 ]
    exits 0 data convert "$tmp/m.bin" --to uint32 -o "$tmp/m.u32"
    exits 0 data convert "$tmp/m.u32" --to llmc -o "$tmp/l.bin"
    exits 0 data convert "$tmp/l.bin" -o "$tmp/l.tok" --eos 1 --json
    [ "$(number .documents)" = 12000 ]
    # the same tokens and ends of documents; the header also says what the first file knew
    cmp -i 64 "$tmp/1.tok" "$tmp/l.tok"
}

a_vocabulary_that_is_too_small_is_told_with_the_place() {
    exits 2 data inspect "$tmp/1.tok" --vocab 300
    says '300: token 1 is 312, outside it' "$tmp/out"
    exits 0 data inspect "$tmp/1.tok" --vocab 701
    says 'every id is below it' "$tmp/out"
}

prompts_are_read_and_not_learnt() {
    printf '%s\n' '{"q": "What is 2+2? ", "a": "4"}' '' '{"q": "Say the word: ", "a": "9"}' '{"q": "x", "a": ""}' >"$tmp/qa.jsonl"
    exits 0 data tokenize "$tmp/qa.jsonl" --tokenizer $golden/llama3.json --field a --prompt-field q -o "$tmp/qa.tok" --json
    [ "$(number .documents)" = 2 ]
    [ "$(number .skipped_documents)" = 1 ]
    [ "$(number .targets)" = 4 ] # an answer and its end each
    [ "$(number .tokens)" -gt 12 ] # and the prompts
    exits 0 data inspect "$tmp/qa.tok" --json
    [ "$(number .targets)" = 4 ]
    exits 2 data convert "$tmp/qa.tok" --to llmc -o "$tmp/qa.bin"
    says 'loss mask' "$tmp/err"
    [ ! -e "$tmp/qa.bin" ]
}

mistakes_are_named_with_their_place() {
    printf '%s\n' '{"text": "a"}' '{"text": "b"' >"$tmp/bad.jsonl"
    exits 2 data tokenize "$tmp/bad.jsonl" -o "$tmp/bad.tok"
    says "bad.jsonl', line 2 (byte 14)" "$tmp/err"
    printf '%s\n' '{"content": "a"}' >"$tmp/field.jsonl"
    exits 2 data tokenize "$tmp/field.jsonl" -o "$tmp/bad.tok"
    says "line 1 (byte 0): field 'text' is missing" "$tmp/err"
    exits 2 data tokenize "$tmp/a.txt" --field content -o "$tmp/bad.tok"
    says "is no .jsonl file, so it has no field 'content'" "$tmp/err"
    exits 2 data tokenize "$tmp/a.txt" --tokenizer $golden/gpt2.json --eos '<|nope|>' -o "$tmp/bad.tok"
    says "has no token '<|nope|>'" "$tmp/err"
    exits 2 data tokenize "$tmp/a.txt" --tokenizer "$tmp/a.txt" -o "$tmp/bad.tok"
    exits 2 data tokenize "$tmp/a.txt" -o "$tmp/bad.tok" --vocab 5
    says 'not for berth data tokenize' "$tmp/err"
    exits 2 data tokenize "$tmp/a.txt"
    says 'give -o FILE' "$tmp/err"
    exits 2 data inspect "$tmp/a.tok" "$tmp/b.tok"
    exits 2 data look "$tmp/a.tok"
    : >"$tmp/empty.txt"
    exits 2 data tokenize "$tmp/empty.txt" -o "$tmp/bad.tok"
    says 'is empty' "$tmp/err"
    head -c 100 "$tmp/1.tok" >"$tmp/cut.tok"
    exits 2 data inspect "$tmp/cut.tok"
    says 'it ends at byte 100' "$tmp/err"
    [ ! -e "$tmp/bad.tok" ]
}

an_interrupted_one_leaves_nothing() {
    local pid got
    for i in 1 2 3 4 5 6 7 8 9 10; do cat "$tmp/web.jsonl"; done >"$tmp/large.jsonl"
    "$engine" data tokenize --output "$tmp/large.tok" --tokenizer $golden/llama3.json --threads 1 "$tmp/large.jsonl" >/dev/null 2>"$tmp/err" &
    pid=$!
    sleep 0.2
    kill -INT $pid
    got=0
    wait $pid || got=$?
    [ "$got" = 130 ]
    [ -z "$(ls "$tmp" | grep 'large.tok')" ]
}

plan() {
    "$berth" plan --here --ranks-per-node 1 --model tiny-gpt2 --tokens 2048 --seq 64 \
        --global-batch-tokens 1024 --precision fp32 -q -o "$@" >/dev/null
}
dry() { "$berth" launch "$tmp/plan.json" --here -n "$@"; }

all_files_of_all_sources_go_along() {
    plan "$tmp/plan.json"
    printf '\1%.0s' $(seq "$(wc -c <"$tmp/a.txt")") >"$tmp/a.mask"
    exits 0 dry --data "local:$tmp/web.jsonl" tokenizer=$golden/gpt2.json weight=0.7 \
        --data "$tmp/m.bin" weight=0.2 --data "$tmp/a.txt" mask="$tmp/a.mask" weight=0.1 --data host:/x/y.tok
    [ "$(grep -c '^  data ' "$tmp/out")" = 7 ]
    says "m.idx" "$tmp/out"
    says "/x/y.tok (must be there)" "$tmp/out"
    exits 2 dry --data "$tmp/m.bin" weight=0
    says "'weight=0'" "$tmp/err"
    exits 0 dry --data "$tmp/m.bin" documents=apart --data "$tmp/m.u32" documents=apart eos=1
    exits 2 dry --data "$tmp/m.bin" documents=away
    says "documents are joined or apart" "$tmp/err"
    exits 2 dry --data "$tmp/a.txt" kind=text
    says 'tokenizer=FILE' "$tmp/err"
    exits 2 dry --data host:/x tokenizer=t.json
    says 'absolute path' "$tmp/err"
    exits 2 dry --data "$tmp/m.idx"
    says 'name the .bin file' "$tmp/err"
}

a_job_may_name_several() {
    cat >"$tmp/job.json" <<EOF
{"model": "tiny-gpt2", "tokens": 2048, "seq": 64, "global_batch_tokens": 1024, "precision": "fp32",
 "data": ["$tmp/1.tok weight=3", "host:/x/y.tok kind=berth"]}
EOF
    exits 0 "$berth" plan "$tmp/job.json" --here --ranks-per-node 1 -q -o "$tmp/plan.json"
    [ "$(jq -r '.job.data | length' "$tmp/plan.json")" = 2 ]
    exits 0 dry
    says "/x/y.tok (must be there)" "$tmp/out"
    jq '.data[1] = "host:x"' "$tmp/job.json" >"$tmp/odd.json"
    exits 2 "$berth" plan "$tmp/odd.json" --here
    says 'absolute path on the nodes' "$tmp/err"
}

t the_result_does_not_depend_on_threads the_result_does_not_depend_on_threads
t a_text_file_is_a_document_and_decodes_to_itself a_text_file_is_a_document_and_decodes_to_itself
t formats_are_turned_into_each_other formats_are_turned_into_each_other
t a_vocabulary_that_is_too_small_is_told_with_the_place a_vocabulary_that_is_too_small_is_told_with_the_place
t prompts_are_read_and_not_learnt prompts_are_read_and_not_learnt
t mistakes_are_named_with_their_place mistakes_are_named_with_their_place
t an_interrupted_one_leaves_nothing an_interrupted_one_leaves_nothing
t all_files_of_all_sources_go_along all_files_of_all_sources_go_along
t a_job_may_name_several a_job_may_name_several
tap_done
