#!/usr/bin/env bash
# The interface in a real terminal: start, views, keys, sizes, signals, odd terminals.
. "$(dirname "$0")/../lib/tap.sh"
. "$(dirname "$0")/../lib/screen.sh"

first_screen_is_the_offers() {
    open 80x24 "$berth"
    shows 'Berth   1 Offers' '$/GPU/H' '? help  q quit'
    [ "$(screen | wc -l)" = 24 ]
}

keys_lead_through_all_views_and_back() {
    open 80x24 "$berth"
    shows '$/GPU/H'
    keys 2
    shows ' Job ' 'llama-3.1-8b' 'tokens'
    keys 3
    shows ' Plans '
    keys 4
    shows ' Launch '
    keys 6
    shows ' Runs '
    keys '?'
    shows 'Help Runs' 'Everywhere'
    keys q
    shows ' Runs '
    keys Tab
    shows 'Offers'
    keys q
    shows 'exit 0'
    restored
}

filter_narrows_the_offers_while_it_is_typed() {
    open 80x24 "$berth"
    shows 'rtx4090'
    keys / 'gpu:h100'
    shows ' of ' 'h100-sxm' "berth offers gpu:h100"
    hides 'rtx4090'
    keys Escape
    shows 'rtx4090'
}

escape_acts_at_once() {
    open 80x24 "$berth"
    shows '$/GPU/H'
    keys /
    shows 'enter done'
    keys Escape
    sleep 0.25 # far less than curses' own second
    screen | grep -qF 'enter details'
    keys Escape Escape
    shows 'press q to leave'
}

field_errors_stand_beside_the_field() {
    open 80x24 "$berth"
    shows '$/GPU/H'
    keys 2 Down Enter C-u 'ten'
    shows "tokens        ten" "'ten'"
    keys C-u '2B' Enter
    hides "'ten'"
    shows 'berth plan --model llama-3.1-8b --tokens 2B'
}

any_size_is_survived() {
    open 80x24 "$berth"
    shows '$/GPU/H'
    local i
    RANDOM=7
    for i in $(seq 60); do
        tm resize-window -x $((RANDOM % 220 + 1)) -y $((RANDOM % 60 + 1))
        [ $((i % 10)) = 0 ] && keys $((RANDOM % 6 + 1))
        sleep 0.012
    done
    tm resize-window -x 30 -y 8
    shows 'needs 40x10'
    tm resize-window -x 50 -y 14
    keys 1
    shows '1 Offers' 'q quit'
    tm resize-window -x 100 -y 30
    shows '$/GPU/H' '? help  q quit'
    [ "$(screen | wc -l)" = 30 ]
}

signals_restore_the_terminal() {
    local signal pid
    for signal in TERM INT QUIT; do
        open 80x24 "$berth"
        shows '$/GPU/H'
        pid=$(pane_pid berth)
        kill -$signal "$pid"
        shows 'berth: interrupted; runs on the nodes go on' 'exit 130'
        restored
    done
    open 80x24 "$berth"
    shows '$/GPU/H'
    keys C-c
    shows 'exit 130'
    restored
}

crash_restores_the_terminal_and_says_what_goes_on() {
    local pid
    open 80x24 "ulimit -c 0; $berth"
    shows '$/GPU/H'
    pid=$(pane_pid berth)
    kill -SEGV "$pid"
    shows 'berth: crashed' 'runs on the nodes go on' 'exit 139'
    restored
}

vanished_terminal_ends_the_program() {
    open 80x24 "$berth"
    shows '$/GPU/H'
    local pid i
    pid=$(pane_pid berth)
    tm kill-server
    for i in $(seq 10); do
        # whoever inherits the process may be slow to notice its end
        kill -0 "$pid" 2>/dev/null || return 0
        ! grep -q '^State:.*Z' /proc/"$pid"/status || return 0
        sleep 0.1
    done
    echo "process $pid lives on"
    return 1
}

stop_and_continue_repaints() {
    open 80x24 "HISTFILE= bash --norc -i"
    sleep 0.5
    keys "$berth" Enter
    shows '$/GPU/H'
    keys C-z
    shows 'Stopped'
    keys fg Enter
    shows '$/GPU/H' 'q quit'
}

pasted_text_is_no_command() {
    open 80x24 "$berth"
    shows '$/GPU/H'
    tm set-buffer 'q2?'
    tm paste-buffer -p
    shows 'pasted text is ignored here'
    keys /
    tm set-buffer 'gpu:h200'
    tm paste-buffer -p
    shows 'berth offers gpu:h200'
}

dumb_terminal_is_refused_with_a_hint() {
    open 80x24 "TERM=dumb $berth"
    shows "terminal 'dumb' cannot place its cursor" 'exit 2'
}

unknown_terminal_is_taken_as_a_common_one() {
    open 80x24 "TERM=no-such-thing $berth"
    shows '$/GPU/H'
}

pipes_get_no_escapes() {
    exits 2 bash -c "script -qec '$berth tui >$tmp/piped' /dev/null"
    [ ! -s "$tmp/piped" ]
    exits 2 "$berth" tui
    says 'need a terminal' "$tmp/err"
    ! grep -q $'\033' "$tmp/err" "$tmp/out"
}

without_colour_and_without_utf8_all_is_readable() {
    open 80x24 "NO_COLOR=1 $berth"
    shows '$/GPU/H'
    ! screen -e | grep -q $'\033\\[[0-9;]*3[0-9]'
    open 80x24 "LC_ALL=C $berth"
    shows '- Offers ' '$/GPU/H^'
    ! screen | LC_ALL=C grep -q '[^ -~]'
}

read_only_offers_nothing_that_acts() {
    open 80x24 "$berth tui --read-only"
    shows 'read-only'
    keys 3
    shows ' Plans '
    ! screen | grep -q 'l launch'
}

idle_screen_costs_nothing() {
    local pid before after
    open 80x24 "$berth"
    shows '$/GPU/H'
    keys 1
    sleep 1
    pid=$(pane_pid berth)
    before=$(awk '/^(non)?voluntary_ctxt/ {n += $2} END {print n}' /proc/"$pid"/task/*/status)
    sleep 2
    after=$(awk '/^(non)?voluntary_ctxt/ {n += $2} END {print n}' /proc/"$pid"/task/*/status)
    [ $((after - before)) -le 4 ] || { echo "$((after - before)) wake-ups in 2 s"; return 1; }
}

a_source_that_hangs_blocks_nothing() {
    mkfifo "$tmp/never.csv"
    open 80x24 "$berth tui --offers $tmp/never.csv"
    shows 'reading for'
    keys 2
    shows ' Job ' 'llama-3.1-8b'
    keys 3
    shows ' Plans '
    keys '?'
    shows 'Help Plans'
    keys q q
    shows 'exit 0'
    restored
}

whole_command_can_be_seen() {
    open 60x20 "$berth tui --offers $top/tests/cli/data/nodes.csv"
    shows '1 Offers'
    keys /
    keys -l 'gpu:h100 price<2.5 !spot'
    keys Enter '!'
    shows 'As a command' "'price<2.5'"
    keys x
    hides 'As a command'
}

readme_shows_what_the_tests_draw() {
    "$top/tests/lib/readme_screens"
}

for test in first_screen_is_the_offers keys_lead_through_all_views_and_back \
    filter_narrows_the_offers_while_it_is_typed escape_acts_at_once \
    field_errors_stand_beside_the_field any_size_is_survived signals_restore_the_terminal \
    crash_restores_the_terminal_and_says_what_goes_on vanished_terminal_ends_the_program \
    stop_and_continue_repaints pasted_text_is_no_command dumb_terminal_is_refused_with_a_hint \
    unknown_terminal_is_taken_as_a_common_one pipes_get_no_escapes \
    without_colour_and_without_utf8_all_is_readable read_only_offers_nothing_that_acts \
    idle_screen_costs_nothing a_source_that_hangs_blocks_nothing whole_command_can_be_seen readme_shows_what_the_tests_draw; do
    t $test $test
done
tap_done
