# Sourced by shell tests: TAP output. Each test is a function; run it with `t NAME function`.
# A function fails when a command in it fails (set -e in a subshell).
tap_n=0
tap_bad=0
BUILD=${BUILD:-build}
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
case $BUILD in /*) ;; *) BUILD=$top/$BUILD ;; esac
berth=$BUILD/berth
engine=$BUILD/berth-engine
tmp=$(mktemp -d "${TMPDIR:-/tmp}/berth-test.XXXXXX")
tap_cleanup() { :; }
trap 'tap_cleanup; rm -rf "$tmp"' EXIT
# what a run puts below a home stays here too
export BERTH_HOME=$tmp/home HOME=$tmp/user LC_ALL=C.UTF-8 TZ=UTC
export LSAN_OPTIONS=suppressions=$top/tests/lib/lsan.supp:print_suppressions=0
mkdir -p "$BERTH_HOME" "$HOME"

t() {
    tap_n=$((tap_n + 1))
    # not as the condition of an if: set -e would be ignored everywhere below it
    (
        set -e
        "$2"
    ) >"$tmp/tap.log" 2>&1
    if [ $? = 0 ]; then
        echo "ok $tap_n - $1"
    else
        echo "not ok $tap_n - $1"
        sed 's/^/# /' "$tmp/tap.log" | tail -n 40
        tap_bad=1
    fi
}
skip() {
    tap_n=$((tap_n + 1))
    echo "ok $tap_n # SKIP $1: $2"
}
tap_done() {
    echo "1..$tap_n"
    exit $tap_bad
}
# exits CODE COMMAND...: the command must exit with exactly CODE; its output goes to $tmp/out, $tmp/err
exits() {
    local want=$1 got=0
    shift
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null || got=$?
    if [ "$got" != "$want" ]; then
        echo "expected exit $want, got $got: $*"
        cat "$tmp/out" "$tmp/err"
        return 1
    fi
}
# fails COMMAND...: the command must not succeed (a bare ! would not stop a test under set -e)
fails() {
    ! "$@"
}
# says TEXT FILE: the file contains the fixed text
says() {
    grep -qF -- "$1" "$2" || {
        echo "'$1' is not in:"
        cat "$2"
        return 1
    }
}
# one_sentence: stderr of the last `exits` is exactly one line starting with "berth: "
one_sentence() {
    [ "$(wc -l <"$tmp/err")" = 1 ] && grep -q '^berth\(-engine\)\?: ' "$tmp/err" || {
        echo "not one sentence:"
        cat "$tmp/err"
        return 1
    }
}
