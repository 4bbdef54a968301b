#!/usr/bin/env bash
# A run from the form to its end, by keys alone: planned, launched on this machine, watched, stopped.
. "$(dirname "$0")/../lib/tap.sh"
. "$(dirname "$0")/../lib/screen.sh"
export BERTH_REMOTE_DIR=$tmp/nodes

head -c 300000 /dev/urandom | base64 >"$tmp/text"

# job TOKENS: fill in the form, choose the plan, fill in the launch
job() {
    open 100x30 "$berth tui --here --ranks-per-node 2"
    shows 'this machine'
    keys 2 Enter C-u tiny-llama Tab C-u "$1" Tab 128 Tab 2048 Enter
    shows 'Best plans 1' "$1 tokens"
    keys 3
    shows 'the only plan there is'
    keys l
    shows 'plan 1 is in' 'hosts'
    keys Enter here Tab "local:$tmp/text" Enter
    shows "berth launch $BERTH_HOME/state/plan.json --here --data local:"
}

dry_run_says_what_would_happen_and_does_nothing() {
    job 200k
    keys d
    shows 'Dry run done' 'rank'
    [ ! -e "$BERTH_REMOTE_DIR/runs" ]
}

launch_needs_the_word_and_leads_to_the_run() {
    job 20k
    keys L
    shows 'Start this run?' 'Type yes'
    keys no Enter
    shows 'not done'
    [ ! -e "$BERTH_REMOTE_DIR/runs" ]
    keys L
    shows 'Start this run?'
    keys yes Enter
    shows ' Run 2' 'tiny-llama, 2 ranks on 1 host' 'loss' 'tokens/s'
    for i in 1 2 3 4 5 6; do
        shows 'finished  step 10 of 10' && break
    done
    shows 'newest good checkpoint: step 10' 'event  finished'
    keys 6
    shows '10/10' 'Runs 1'
    keys q
    shows 'exit 0'
}

stop_and_resume_ask_then_act() {
    job 20M
    keys L
    shows 'Start this run?'
    keys yes Enter
    shows 'running  step '
    keys X
    shows 'Stop this run?' 'It saves a checkpoint'
    keys Enter
    shows 'not done'
    keys X
    shows 'Stop this run?'
    keys yes Enter
    shows 'cancelled  step ' ': done'
    keys X
    shows 'the run is already cancelled'
    keys R
    shows 'Resume this run?' 'newest good checkpoint'
    keys yes Enter
    shows 'resume 2' 'running  step ' 'attempt 2'
    "$berth" stop --yes
    shows 'cancelled  step '
    ! pgrep -f "$BERTH_REMOTE_DIR" >/dev/null
}

quitting_leaves_the_run_running() {
    job 20M
    keys L
    shows 'Start this run?'
    keys yes Enter
    shows 'running  step '
    keys 1 q
    shows 'exit 0'
    [ "$("$berth" status --json | jq -r .state)" = running ]
    "$berth" stop --yes
    ! pgrep -f "$BERTH_REMOTE_DIR" >/dev/null
}

for test in dry_run_says_what_would_happen_and_does_nothing launch_needs_the_word_and_leads_to_the_run \
    stop_and_resume_ask_then_act quitting_leaves_the_run_running; do
    t $test $test
done
tap_done
