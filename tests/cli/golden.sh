#!/usr/bin/env bash
# Output that people and scripts rely on, byte for byte. tests/cli/golden/NAME.cmd is run by bash in
# an empty folder with $berth and $data (tests/cli/data) set; NAME.out holds its exit status, stdout
# and stderr. tests/cli/regold rewrites the .out files.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
export berth data=$top/tests/cli/data COLUMNS=80
mkdir -p "$tmp/empty"

record() {
    local rc=0
    (cd "$tmp/empty" && bash -c "$(cat "$1")" >"$tmp/stdout" 2>"$tmp/stderr" </dev/null) || rc=$?
    {
        echo "exit $rc"
        echo "--- stdout"
        cat "$tmp/stdout"
        echo "--- stderr"
        cat "$tmp/stderr"
    } | sed "s|$top|TOP|g; s|$tmp|TMP|g; s/^berth $version /berth VERSION /" >"$2"
}
version=$("$berth" version -q | cut -d' ' -f2)

same_as_recorded() {
    record "$cmd" "$tmp/now"
    diff -u "${cmd%.cmd}.out" "$tmp/now"
}

for cmd in "$top"/tests/cli/golden/*.cmd; do
    name=$(basename "$cmd" .cmd)
    if [ "${REGOLD:-0}" = 1 ]; then
        record "$cmd" "${cmd%.cmd}.out"
    else
        t "$name" same_as_recorded
    fi
done
tap_done
