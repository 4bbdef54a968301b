# Sourced by tests of the full-screen interface, after tap.sh: a private tmux server as the terminal.
socket=$tmp/tmux.0
terminals=0
unset TMUX NO_COLOR ESCDELAY
export TERM=xterm-256color

tm() { tmux -S "$socket" -f /dev/null "$@"; }
tap_cleanup() {
    for socket in "$tmp"/tmux.*; do tm kill-server 2>/dev/null || :; done
}

# open COLSxROWS COMMAND...: run the shell command in a new terminal of that size; its exit status is
# shown as "exit N" and the terminal stays.
open() {
    local size=$1
    shift
    tm kill-server 2>/dev/null || :
    terminals=$((terminals + 1)) # a dying server must not take the new session
    socket=$tmp/tmux.$BASHPID.$terminals
    tm new-session -d -x "${size%x*}" -y "${size#*x}" "stty -g >$tmp/before; $*; s=\$?; stty -g >$tmp/after; echo exit \$s; exec sleep 1000"
    tm set-option -g status off
    tm resize-window -x "${size%x*}" -y "${size#*x}"
}
screen() { tm capture-pane -p "$@"; }
keys() { tm send-keys "$@"; }
# shows TEXT...: within ten seconds the screen contains each fixed text
shows() {
    local text i
    for text in "$@"; do
        for i in $(seq 100); do
            screen | grep -qF -- "$text" && continue 2
            sleep 0.1
        done
        echo "'$text' does not appear:"
        screen
        return 1
    done
}
# hides TEXT: within ten seconds the screen no longer contains it
hides() {
    local i
    for i in $(seq 100); do
        screen | grep -qF -- "$1" || return 0
        sleep 0.1
    done
    echo "'$1' stays:"
    screen
    return 1
}
pane_pid() { pgrep -P "$(tm display-message -p '#{pane_pid}')" -f "$1" | head -n 1; }
# restored: cooked modes as before, main screen, cursor shown
restored() {
    cmp "$tmp/before" "$tmp/after"
    [ "$(tm display-message -p '#{alternate_on} #{cursor_flag}')" = "0 1" ]
}
