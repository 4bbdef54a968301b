#!/usr/bin/env bash
# What must work when something around the program is broken.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

help_works_beside_a_broken_config_file() {
    mkdir -p "$tmp/here"
    echo '{ "seq": ' >"$tmp/here/berth.json"
    cd "$tmp/here"
    exits 0 "$berth" help
    exits 0 "$berth" version
    exits 0 "$berth" paths
    exits 0 "$berth" completion bash
    exits 2 "$berth" estimate --model gpt2
    one_sentence
    says "berth.json" "$tmp/err"
}

a_missing_home_is_taken_from_the_password_file() {
    exits 0 env -u HOME -u BERTH_HOME "$berth" paths --json
    [ "$(jq -r '.. | strings | select(startswith("/tmp/.config"))' "$tmp/out")" = "" ]
}

output_to_a_pipe_goes_through_it() {
    mkfifo "$tmp/pipe"
    cat "$tmp/pipe" >"$tmp/plan.json" &
    exits 0 "$berth" plan --here --model tiny-gpt2 --tokens 1M -o "$tmp/pipe"
    wait $!
    [ -p "$tmp/pipe" ]
    [ "$(jq -r .schema "$tmp/plan.json")" = plan/1 ]
}

a_price_with_a_decimal_comma_is_refused() {
    printf 'name,gpu,gpus,price,price_unit\nn,h100-sxm,8,"2,49",usd/gpu/h\n' >"$tmp/offers.csv"
    exits 2 "$berth" offers --offers "$tmp/offers.csv"
    says "2,49" "$tmp/err"
}

offers_with_a_byte_order_mark_are_read() {
    { printf '\xef\xbb\xbf'; "$berth" offers --json 2>/dev/null; } >"$tmp/mark.json"
    exits 0 "$berth" offers --offers "$tmp/mark.json" --json
    [ "$(jq '.offers | length' "$tmp/out")" -gt 50 ]
}

cores_that_are_unknown_or_none_are_no_plan() {
    printf 'name,gpu,gpus,gpu_mem,device\nbox,Xeon,2,16GiB,cpu\n' >"$tmp/cpu.csv"
    exits 3 "$berth" plan --model tiny-llama --tokens 1M --offers "$tmp/cpu.csv"
    says "how many cores" "$tmp/out"
    exits 2 "$berth" estimate --model gpt2 --gpu cpu --cores-per-rank 0
    one_sentence
}

for f in help_works_beside_a_broken_config_file a_missing_home_is_taken_from_the_password_file \
    output_to_a_pipe_goes_through_it a_price_with_a_decimal_comma_is_refused \
    offers_with_a_byte_order_mark_are_read cores_that_are_unknown_or_none_are_no_plan; do
    t "$f" "$f"
done
tap_done
