#!/usr/bin/env bash
# stdout is the answer and nothing else, exit codes mean what `berth help exit-codes` says, and
# nothing hangs, whatever the streams are connected to.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
data=$top/tests/cli/data
commands=$("$berth" help | sed -n '/^usage/,/^Topics/s/^  \([a-z][a-z-]*\)  *[a-z].*/\1/p')

every_command_explains_itself() {
    local c
    for c in $commands; do
        exits 0 "$berth" "$c" -h
        says "usage: berth $c" "$tmp/out"
        says "Examples:" "$tmp/out"
        exits 0 "$berth" "$c" --help
        says "Global options:" "$tmp/out"
        [ ! -s "$tmp/err" ]
    done
}

help_topics_answer() {
    local topic
    for topic in $("$berth" help | sed -n '/^Topics/,$s/^  \([a-z-]*\) .*/\1/p'); do
        exits 0 "$berth" help "$topic"
        [ -s "$tmp/out" ]
    done
    exits 2 "$berth" help exit-code
    says "did you mean 'exit-codes'?" "$tmp/err"
}

json_is_one_document_whatever_happens() {
    local line
    while read -r code line; do
        exits "$code" "$berth" $line --json
        jq -e 'has("schema") and has("generated_at")' "$tmp/out" >/dev/null
        [ "$(jq -s length "$tmp/out")" = 1 ]
    done <<END
0 offers
0 offers --here
0 offers --offers $data/nodes.csv
0 offers gpu:nothing
0 paths
0 version
0 config show
2 offers --nonsense
2 offers --sort sideways
2 offers prise<2
2 nonsense
0 help
0 help exit-codes
2 help nonsense
0 offers --help
0 completion bash
2 completion csh
1 status nothing
2 offers --offers $tmp/absent.csv
2 offers --offers $data/../golden.sh
END
}

every_command_answers_json_with_one_document() {
    local c
    for c in $commands; do
        [ "$c" != tui ] || continue
        timeout 20 "$berth" "$c" --json >"$tmp/out" 2>"$tmp/err" </dev/null || [ $? -lt 100 ]
        [ "$(jq -s length "$tmp/out")" = 1 ]
        jq -e 'has("schema") and has("generated_at")' "$tmp/out" >/dev/null
    done
}

without_command_and_terminal_it_says_how_to_use_it() {
    exits 2 "$berth"
    [ ! -s "$tmp/out" ]
    says "usage: berth [command]" "$tmp/err"
    says "berth: no command" "$tmp/err"
}

errors_go_to_stderr_only() {
    exits 2 "$berth" offers --sort sideways
    [ ! -s "$tmp/out" ]
    one_sentence
}

quiet_leaves_only_the_answer() {
    exits 0 "$berth" offers -q
    [ ! -s "$tmp/err" ]
    [ -s "$tmp/out" ]
}

a_reader_that_leaves_is_no_error() {
    "$berth" offers --json 2>"$tmp/err" | head -c 10 >/dev/null
    [ ! -s "$tmp/err" ] || says "no offers given" "$tmp/err"
    # the same with the signal ignored, as some callers leave it
    (trap '' PIPE && "$berth" offers --json 2>"$tmp/err" | head -c 10 >/dev/null)
    fails grep -q 'Broken pipe' "$tmp/err"
}

a_full_disk_is_an_error() {
    local rc=0
    "$berth" offers -q >/dev/full 2>"$tmp/err" || rc=$?
    [ "$rc" = 1 ]
    says "berth: cannot write standard output: No space left on device" "$tmp/err"
}

closed_streams_do_no_harm() {
    local rc=0
    "$berth" version >&- 2>&- <&- || rc=$?
    [ "$rc" = 0 ] || [ "$rc" = 1 ]
}

ctrl_c_exits_130() {
    local rc=0
    mkfifo "$tmp/fifo"
    # a real Ctrl-C needs the default disposition, which background jobs of scripts lack
    env --default-signal=INT "$berth" offers --offers "$tmp/fifo" >/dev/null 2>&1 &
    local pid=$!
    exec 9<>"$tmp/fifo"
    sleep 0.3
    kill -INT "$pid"
    wait "$pid" || rc=$?
    exec 9>&-
    [ "$rc" = 130 ]
}

global_options_may_stand_in_front() {
    exits 0 "$berth" --json --reproducible paths
    jq -e '.schema == "paths/1" and .generated_at == null' "$tmp/out" >/dev/null
    exits 0 "$berth" --color never version
    exits 0 "$berth" --version
    says "berth " "$tmp/out"
    exits 0 "$berth" --help
    says "Plan:" "$tmp/out"
}

colour_follows_option_then_environment() {
    local esc=$'\x1b'
    env -u NO_COLOR -u FORCE_COLOR "$berth" offers -q >"$tmp/out"
    fails grep -q "$esc" "$tmp/out"
    FORCE_COLOR=1 "$berth" offers -q >"$tmp/out"
    grep -q "$esc" "$tmp/out"
    NO_COLOR=1 FORCE_COLOR=1 "$berth" offers -q >"$tmp/out"
    fails grep -q "$esc" "$tmp/out"
    NO_COLOR=1 "$berth" offers -q --color always >"$tmp/out"
    grep -q "$esc" "$tmp/out"
    mkdir -p "$BERTH_HOME/config"
    echo '{"color": "always"}' >"$BERTH_HOME/config/config.json"
    NO_COLOR=1 "$berth" offers -q >"$tmp/out"
    grep -q "$esc" "$tmp/out"
    rm "$BERTH_HOME/config/config.json"
}

settings_are_found_in_the_order_promised() {
    mkdir -p "$BERTH_HOME/config" "$tmp/project"
    echo '{"offers": ["'"$data/nodes.csv"'"]}' >"$BERTH_HOME/config/config.json"
    cd "$tmp/project"
    [ "$("$berth" offers --csv | wc -l)" = 5 ]
    cp "$data/odd.json" mine.json
    echo '{"offers": "mine.json"}' >berth.json
    [ "$("$berth" offers --csv | wc -l)" = 9 ]
    [ "$(BERTH_OFFERS="$data/nodes.csv" "$berth" offers --csv | wc -l)" = 5 ]
    [ "$(BERTH_OFFERS="$data/nodes.csv" "$berth" offers --offers mine.json --csv | wc -l)" = 9 ]
    rm "$BERTH_HOME/config/config.json"
}

a_broken_settings_file_is_named() {
    mkdir -p "$BERTH_HOME/config"
    local file=$BERTH_HOME/config/config.json
    echo '{"color": "never",' >"$file"
    exits 2 "$berth" offers
    one_sentence
    says "$file" "$tmp/err"
    echo '[1]' >"$file"
    exits 2 "$berth" offers
    one_sentence
    echo '{"color": {"a": 1}}' >"$file"
    exits 2 "$berth" offers
    says "setting 'color'" "$tmp/err"
    echo '{"color": "blue"}' >"$file"
    exits 2 "$berth" offers
    says "'blue' is not one of auto|always|never" "$tmp/err"
    echo '{"colour": "never"}' >"$file"
    exits 0 "$berth" offers
    says "'colour' is not a setting" "$tmp/err"
    rm "$file"
}

the_man_page_is_valid() {
    [ -s "$BUILD/berth.1" ] || "$berth" help --man >"$tmp/berth.1"
    "$berth" help --man | grep -q '^\.TH BERTH 1'
    if command -v man >/dev/null && command -v groff >/dev/null; then
        "$berth" help --man | groff -K utf8 -man -Tutf8 -ww 2>&1 >/dev/null | tee "$tmp/groff"
        [ ! -s "$tmp/groff" ]
    fi
}

completion_scripts_load_and_complete() {
    "$berth" completion bash >"$tmp/berth.bash"
    PATH=$(dirname "$berth"):$PATH bash -c '
        source "$1"
        complete_line() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _berth; }
        complete_line berth off; [ "${COMPREPLY[*]}" = offers ] || exit 1
        complete_line berth offers --max; [ "${COMPREPLY[*]}" = --max-price ] || exit 2
        complete_line berth offers --market re; [ "${COMPREPLY[*]}" = reserved ] || exit 3
        complete_line berth --color never pat; [ "${COMPREPLY[*]}" = paths ] || exit 4
        complete_line berth completion z; [ "${COMPREPLY[*]}" = zsh ] || exit 5
        complete_line berth offers --gpu rtx40; [ "${COMPREPLY[*]}" = rtx4090 ] || exit 7
        complete_line berth help exit; [ "${COMPREPLY[*]}" = exit-codes ] || exit 6
    ' _ "$tmp/berth.bash"
    for shell in zsh fish; do
        "$berth" completion $shell >"$tmp/berth.$shell"
        ! command -v $shell >/dev/null || $shell -n "$tmp/berth.$shell"
    done
}

t every_command_explains_itself every_command_explains_itself
t help_topics_answer help_topics_answer
t json_is_one_document_whatever_happens json_is_one_document_whatever_happens
t every_command_answers_json_with_one_document every_command_answers_json_with_one_document
t without_command_and_terminal_it_says_how_to_use_it without_command_and_terminal_it_says_how_to_use_it
t errors_go_to_stderr_only errors_go_to_stderr_only
t quiet_leaves_only_the_answer quiet_leaves_only_the_answer
t a_reader_that_leaves_is_no_error a_reader_that_leaves_is_no_error
t a_full_disk_is_an_error a_full_disk_is_an_error
t closed_streams_do_no_harm closed_streams_do_no_harm
t ctrl_c_exits_130 ctrl_c_exits_130
t global_options_may_stand_in_front global_options_may_stand_in_front
t colour_follows_option_then_environment colour_follows_option_then_environment
t settings_are_found_in_the_order_promised settings_are_found_in_the_order_promised
t a_broken_settings_file_is_named a_broken_settings_file_is_named
t the_man_page_is_valid the_man_page_is_valid
t completion_scripts_load_and_complete completion_scripts_load_and_complete
tap_done
