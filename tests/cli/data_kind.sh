#!/usr/bin/env bash
# How a data file holds tokens, from the job or the flag, checked before anything is sent.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

plan() {
    "$berth" plan --here --ranks-per-node 1 --model tiny-gpt2 --tokens 2048 --seq 64 \
        --global-batch-tokens 1024 --precision fp32 -q -o "$@" >/dev/null
}
plan "$tmp/plan.json"
head -c 40000 /dev/zero >"$tmp/train.bin"

dry() { "$berth" launch "$1" --here --data "local:$tmp/train.bin" -n "${@:2}"; }

a_bin_file_is_refused_until_its_kind_is_said() {
    exits 2 dry "$tmp/plan.json"
    says "say --data-kind uint16 (nanoGPT), uint32 or bytes" "$tmp/err"
    exits 0 dry "$tmp/plan.json" --data-kind uint16
    exits 0 dry "$tmp/plan.json" --data-kind bytes
    exits 2 dry "$tmp/plan.json" --data-kind uint8
}

the_job_may_say_it_and_the_plan_keeps_it() {
    plan "$tmp/kind.json" --data-kind uint16
    [ "$(jq -r .job.data_kind "$tmp/kind.json")" = uint16 ]
    exits 0 dry "$tmp/kind.json"
    jq '.job.data_kind = "int7"' "$tmp/kind.json" >"$tmp/odd.json"
    exits 2 dry "$tmp/odd.json"
    says "data kind 'int7' is unknown" "$tmp/err"
}

t a_bin_file_is_refused_until_its_kind_is_said a_bin_file_is_refused_until_its_kind_is_said
t the_job_may_say_it_and_the_plan_keeps_it the_job_may_say_it_and_the_plan_keeps_it
tap_done
