#!/usr/bin/env bash
# Unreadable, truncated and absurd inventory files: one sentence, the right exit code, never a crash.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
data=$top/tests/cli/data
cd "$tmp"

# refused CODE TEXT FILE: reading FILE ends with CODE and one sentence that contains TEXT
refused() {
    exits "$1" "$berth" offers --offers "$3"
    one_sentence
    says "$2" "$tmp/err"
    [ ! -s "$tmp/out" ]
    fails env LC_ALL=C grep -q $'[\x01-\x09\x0b-\x1f\x7f]' "$tmp/err"
}

files_that_cannot_be_read() {
    refused 2 "cannot open 'absent.csv': No such file" absent.csv
    mkdir -p folder
    refused 2 "cannot read 'folder'" folder
    if [ "$(id -u)" != 0 ]; then
        echo x >secret.csv
        chmod 000 secret.csv
        refused 2 "cannot open 'secret.csv': Permission denied" secret.csv
    fi
}

files_with_nothing_in_them() {
    : >empty
    refused 2 "'empty' is empty" empty
    printf ' \n\t\n' >blank
    refused 2 "'blank' is empty" blank
    printf '# only a comment\n' >comment
    refused 2 "no header line" comment
}

json_that_is_not_offers() {
    echo '{' >a.json
    refused 2 "'a.json': not valid JSON" a.json
    echo '{}' >a.json
    refused 2 "'schema' must be" a.json
    echo '[]' >a.json
    refused 2 "'schema' must be" a.json
    echo '{"schema":"offers/2","offers":[]}' >a.json
    refused 2 "'schema' must be" a.json
    echo '{"schema":"offers/1"}' >a.json
    refused 2 "'offers' is missing" a.json
    echo '{"schema":"offers/1","offers":{}}' >a.json
    refused 2 "'offers' must be an array" a.json
    echo '{"schema":"offers/1","offers":[{},7]}' >a.json
    refused 2 "offer 2: must be an object" a.json
    echo '{"schema":"offers/1","offers":[{"price_usd_per_hour":NaN}]}' >a.json
    refused 2 "not valid JSON" a.json
    echo '{"schema":"offers/1","offers":[{"price_usd_per_hour":1e999}]}' >a.json
    refused 2 "not valid JSON" a.json
    echo '{"schema":"offers/1","offers":[],"offers":[]}' >a.json
    refused 2 "not valid JSON" a.json
    printf '{"schema":"offers/1","offers":[{"id":"\xff"}]}' >a.json
    refused 2 "not valid JSON" a.json
    printf '{"schema":"offers/1","offers":[{"id":"\x1b[2J"' >a.json
    refused 2 "not valid JSON" a.json
}

bombs() {
    { printf '{"schema":"offers/1","offers":'; head -c 100000 /dev/zero | tr '\0' '['; } >deep.json
    refused 2 "nested deeper than 64 levels" deep.json
    head -c 67108865 /dev/zero | tr '\0' '[' >big.json
    refused 2 "'big.json' is larger than 67108864 bytes" big.json
    rm big.json
    head -c 67108864 /dev/zero | tr '\0' 'a' >big.csv
    refused 2 "column 'gpus' is missing" big.csv
    rm big.csv
    { echo name,gpu,gpus; head -c 3000 /dev/zero | tr '\0' ','; } >wide.csv
    refused 2 "line 2 has more than 256 columns" wide.csv
    printf 'name,gpu,gpus\na\0b,h100,8\n' >nul.csv
    refused 2 "NUL byte" nul.csv
    { echo name,gpu,gpus; yes 'a,h100,8' | head -n 200001; } >long.csv
    refused 2 "more than 200000 offers" long.csv
    rm long.csv
}

rows_that_make_no_sense() {
    cut -c1-150 "$data/nodes.csv" | head -c 250 >cut.csv
    exits 0 "$berth" offers --offers cut.csv
    printf 'name,gpu,gpus,price\na,h100,8,5\n' >a.csv
    refused 2 "'a.csv': line 2: 'price' has no 'price_unit'" a.csv
    printf 'name,gpu,gpus,price,price_unit\n"a\x1b[2J",h100,8,5,usd/\x1b[31m\n' >a.csv
    refused 2 "is not one of usd/gpu/h" a.csv
    printf 'name,gpu,gpus\n"a,h100,8\n' >a.csv
    refused 2 "a quoted cell is not closed" a.csv
}

hostile_texts_are_shown_harmless() {
    printf 'name,gpu,gpus\n"\x1b]0;owned\x07\xe2\x80\xae\xff",h100,8\n' >a.csv
    exits 0 "$berth" offers --offers a.csv --columns id
    says '?]0;owned???' "$tmp/out"
    exits 0 "$berth" offers --offers a.csv --json
    jq -e '.offers[0].id == "?]0;owned???"' "$tmp/out" >/dev/null
}

every_truncation_of_a_document_is_refused_or_read() {
    local n size
    "$berth" offers --offers "$data/nodes.csv" --json -q >whole.json
    size=$(wc -c <whole.json)
    for n in $(seq 1 97 "$((size - 2))"); do
        head -c "$n" whole.json >part.json
        exits 2 "$berth" offers --offers part.json
        one_sentence
    done
}

several_sources_are_one_list() {
    exits 0 "$berth" offers --offers "$data/nodes.csv" --offers "$data/odd.json" --here --json
    jq -e '.offers | length == 13' "$tmp/out" >/dev/null
    exits 0 bash -c '"$0" offers --offers - --json <"$1"' "$berth" "$data/nodes.csv"
    jq -e '.offers | length == 4' "$tmp/out" >/dev/null
}

flags_that_make_no_sense() {
    while IFS='|' read -r flags sentence; do
        exits 2 "$berth" offers -q $flags
        one_sentence
        says "$sentence" "$tmp/err"
    done <<'END'
--ranks-per-node 2|option '--ranks-per-node' needs --here
--here --ranks-per-node 0|option '--ranks-per-node' must be 1 to 1024
--here --ranks-per-node 5000|option '--ranks-per-node' must be 1 to 1024
--csv --json|options '--json' and '--csv' exclude each other
--gpu h100-smx|option '--gpu': unknown GPU 'h100-smx'; did you mean 'h100-sxm'?
--min-vram lots|'lots' is not a size
--max-price free|'free' is not an amount of dollars
--min-nodes -1|option '--min-nodes': count '-1' is negative
--market stolen|'stolen' is not one of on-demand|
--columns price|unknown column 'price'
END
}

a_mixed_inventory_is_refused_with_the_reason() {
    cat >"$tmp/mixed.csv" <<'END'
name,gpu,gpus,nodes,ram,price,price_unit
h100s,h100-sxm,8,1,256,2,usd/gpu/h
a100s,a100-80-sxm,8,1,256,1.2,usd/gpu/h
END
    local job=(--model qwen2.5-32b --tokens 1B --offers "$tmp/mixed.csv" -q)
    exits 3 "$berth" plan "${job[@]}"
    says 'local a100s with local h100s: 1 x 8 a100-80-sxm and 1 x 8 h100-sxm together would hold it' "$tmp/out"
    grep -Eq 'but unequal GPUs are not mixed: the slowest sets the pace, 3[0-9] % of what h100-sxm can' "$tmp/out"
    exits 3 "$berth" plan "${job[@]}" --json
    jq -e '.rejected[0].what == "local a100s with local h100s" and .rejected[0].short_by == null' "$tmp/out"
    exits 0 "$berth" plan "${job[@]}" --json --model llama-3.1-8b
    jq -e '[.rejected[] | select(.why | test("together"))] == []' "$tmp/out"
}

t files_that_cannot_be_read files_that_cannot_be_read
t files_with_nothing_in_them files_with_nothing_in_them
t json_that_is_not_offers json_that_is_not_offers
t bombs bombs
t rows_that_make_no_sense rows_that_make_no_sense
t hostile_texts_are_shown_harmless hostile_texts_are_shown_harmless
t every_truncation_of_a_document_is_refused_or_read every_truncation_of_a_document_is_refused_or_read
t several_sources_are_one_list several_sources_are_one_list
t flags_that_make_no_sense flags_that_make_no_sense
what_costs_nothing_is_said_to() {
    printf 'name,gpu,gpus,nodes,price,price_unit,market\nown,h100-sxm,8,1,0,usd/node/h,owned\nrent,h100-sxm,8,1,20,usd/node/h,on-demand\n' >"$tmp/own.csv"
    exits 0 "$berth" plan --model gpt2 --tokens 100M --offers "$tmp/own.csv" --json
    [ "$(jq -r '.plans[0].why' "$tmp/out")" = "it costs nothing" ]
}

t a_mixed_inventory_is_refused_with_the_reason a_mixed_inventory_is_refused_with_the_reason
t what_costs_nothing_is_said_to what_costs_nothing_is_said_to
tap_done
