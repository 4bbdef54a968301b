#!/usr/bin/env bash
# An input file that is absent or cannot be read is bad input, exit code 2, as a broken one is.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

"$berth" plan --here --ranks-per-node 1 --model tiny-gpt2 --tokens 2048 --seq 64 --precision fp32 \
    -q -o "$tmp/plan.json" >/dev/null
gpt2=(plan --model gpt2 --tokens 1B)

# refused FILE: every command that takes an input file, with this one
refused() {
    exits 2 "$berth" offers --offers "$1"
    exits 2 "$berth" "${gpt2[@]}" --offers "$1"
    exits 2 "$berth" plan "$1"
    exits 2 "$berth" plan --model "$1" --tokens 1B
    exits 2 "$berth" estimate --model "$1"
    exits 2 "$berth" explain "$1"
    exits 2 "$berth" launch "$1" --here --data "local:$tmp/plan.json" -n
    exits 2 "$berth" launch "$tmp/plan.json" --hosts "$1" --data "local:$tmp/plan.json" -n
    exits 2 "$berth" launch "$tmp/plan.json" --here --data "local:$1" -n
    exits 2 "$berth" doctor "$1"
}

an_absent_file_is_bad_input() {
    refused "$tmp/none.json"
    says "'$tmp/none.json'" "$tmp/err"
    exits 2 "$berth" plan "$tmp/none.json" --json
    [ "$(jq -r .code "$tmp/out")" = invalid ]
}

a_folder_is_bad_input() {
    refused "$tmp"
}

an_unreadable_settings_file_is_bad_input() {
    mkdir -p "$BERTH_HOME/config/config.json"
    exits 2 "$berth" offers
    rmdir "$BERTH_HOME/config/config.json"
}

a_run_that_does_not_exist_is_not_an_input_file() {
    exits 1 "$berth" status nothing
}

runs_that_cannot_be_listed_are_not_no_runs() {
    mkdir -p "$BERTH_HOME/state" && touch "$BERTH_HOME/state/runs"
    exits 1 "$berth" runs
    says "cannot read folder" "$tmp/err"
    exits 1 "$berth" status
    says "cannot read folder" "$tmp/err"
    rm "$BERTH_HOME/state/runs"
}

a_work_folder_is_the_same_on_every_host_or_bad_input() {
    local dir
    for dir in rel '~nobody/x' $'/x\ny'; do
        exits 2 "$berth" doctor 127.0.0.1:1 --ssh-config none --remote-dir "$dir"
        one_sentence
        exits 2 "$berth" clean 127.0.0.1:1 --ssh-config none -y --remote-dir "$dir"
    done
}

t an_absent_file_is_bad_input an_absent_file_is_bad_input
t a_folder_is_bad_input a_folder_is_bad_input
t an_unreadable_settings_file_is_bad_input an_unreadable_settings_file_is_bad_input
t a_run_that_does_not_exist_is_not_an_input_file a_run_that_does_not_exist_is_not_an_input_file
t runs_that_cannot_be_listed_are_not_no_runs runs_that_cannot_be_listed_are_not_no_runs
t a_work_folder_is_the_same_on_every_host_or_bad_input a_work_folder_is_the_same_on_every_host_or_bad_input
tap_done
