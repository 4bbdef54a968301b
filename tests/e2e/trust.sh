#!/usr/bin/env bash
# Who is let in and who is believed: host keys against the real ssh, refused and unreadable user
# keys, ports that are not SSH, hosts that do not answer, noisy and odd login shells.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh
. tests/lib/sshd.sh
. tests/lib/run.sh
sshd_needed e2e-trust
tap_cleanup() { sshd_stop_all; }
sshd_setup "$tmp/sshd"
sshd_start a
port=$sshd_port
host=127.0.0.1:$port
right=$(cut -d' ' -f1,2 "$sshd_dir/a/host_key.pub")
ssh-keygen -q -t ed25519 -N '' -f "$tmp/other"
wrong=$(cut -d' ' -f1,2 "$tmp/other.pub")
ssh-keygen -q -t rsa -b 2048 -N '' -f "$tmp/rsa"
rsa=$(cut -d' ' -f1,2 "$tmp/rsa.pub")

# doctor with the known_hosts file $1
ask() {
    "$berth" doctor "$host" --identity "$sshd_dir/id" --ssh-config none --known-hosts "$1" \
        >"$tmp/out" 2>"$tmp/err" </dev/null
}

# Berth lets in exactly where ssh does, for every row of the table.
host_keys_get_openssh_s_answer() {
    local n=0 row want got
    while IFS= read -r row; do
        n=$((n + 1))
        printf "${row//%/%%}" >"$tmp/kh"
        want=0
        ssh -F none -i "$sshd_dir/id" -o BatchMode=yes -o StrictHostKeyChecking=yes \
            -o UserKnownHostsFile="$tmp/kh" -o GlobalKnownHostsFile=none -p "$port" 127.0.0.1 true \
            </dev/null >"$tmp/ssh.log" 2>&1 || want=1
        got=0
        ask "$tmp/kh" || got=1
        [ $want = $got ] || {
            echo "row $n: ssh says $want, berth $got: $row"
            cat "$tmp/ssh.log" "$tmp/err"
            return 1
        }
    done <<ROWS
127.0.0.1 $right\n
[127.0.0.1]:$port $right\n
[127.0.0.1]:$port $wrong\n127.0.0.1 $right\n
127.0.0.1 $wrong\n[127.0.0.1]:$port $right\n
[127.0.0.1]:$port $wrong\n
127.0.0.1 $rsa\n
[127.0.0.1]:$port $rsa\n
127.0.0.* $right\n
[127.0.0.*]:$port $right\n
!127.0.0.1,127.0.0.* $right\n
@revoked * $right\n127.0.0.1 $right\n
@revoked * $wrong\n127.0.0.1 $right\n
@cert-authority * $right\n
127.0.0.1 $right\r\n
garbage\n127.0.0.1 ssh-ed25519\n127.0.0.1 $right\n
# comment\nother,127.0.0.1 $right me@there\n
127.0.0.1 $wrong\n127.0.0.1 $right\n
127.0.0.1 $right

ROWS
    [ $n = 19 ]
}

hashed_names_are_found() {
    printf '[127.0.0.1]:%s %s\n' "$port" "$right" >"$tmp/hashed"
    ssh-keygen -q -H -f "$tmp/hashed" 2>/dev/null
    ! grep -q 127.0.0.1 "$tmp/hashed"
    ask "$tmp/hashed"
}

a_changed_key_stops_with_file_and_line() {
    printf '# first\n[127.0.0.1]:%s %s\n' "$port" "$wrong" >"$tmp/kh"
    exits 4 "$berth" doctor "$host" --identity "$sshd_dir/id" --ssh-config none \
        --known-hosts "$tmp/kh" --accept-new-host-keys
    one_sentence
    says "$tmp/kh:2" "$tmp/err"
}

an_unknown_key_is_shown_and_refused_without_consent() {
    : >"$tmp/empty"
    exits 7 "$berth" doctor "$host" --identity "$sshd_dir/id" --ssh-config none --known-hosts "$tmp/empty"
    says "$(ssh-keygen -lf "$sshd_dir/a/host_key.pub" | cut -d' ' -f2)" "$tmp/err"
    exits 7 "$berth" doctor "$host" --identity "$sshd_dir/id" --ssh-config none \
        --known-hosts "$tmp/empty" --yes
    [ ! -s "$tmp/empty" ]
}

accepted_keys_stay_with_the_run() {
    : >"$tmp/empty"
    head -c 1000 /dev/urandom >"$tmp/data.txt"
    one_node_plan "$tmp/plan1.json"
    echo "$host dir=$sshd_dir/a/home/berth" >"$tmp/hosts"
    exits 0 "$berth" launch "$tmp/plan1.json" --hosts "$tmp/hosts" --identity "$sshd_dir/id" \
        --ssh-config none --known-hosts "$tmp/empty" --accept-new-host-keys \
        --data "local:$tmp/data.txt" --rank-program "$top/tests/lib/fake_rank" --env FAKE_STEPS=1 -q
    run=$(cat "$tmp/out")
    [ "$(cut -d' ' -f1 "$BERTH_HOME/state/runs/$run/known_hosts")" = "[127.0.0.1]:$port" ]
    exits 0 "$berth" logs "$run"
    [ ! -s "$tmp/empty" ]
}

a_refused_key_is_an_authentication_failure() {
    exits 4 "$berth" doctor "$host" --identity "$tmp/other" --ssh-config none \
        --known-hosts "$sshd_dir/known_hosts"
    one_sentence
    says "refused user" "$tmp/err"
    says "$tmp/other" "$tmp/err"
}

keys_that_cannot_be_used_are_explained() {
    exits 4 "$berth" doctor "$host" --identity "$tmp/absent" "${sshd_connect[@]:2}"
    one_sentence
    ssh-keygen -q -t ed25519 -N secret -f "$tmp/locked"
    exits 4 "$berth" doctor "$host" --identity "$tmp/locked" "${sshd_connect[@]:2}"
    says "passphrase" "$tmp/err"
    cat "$tmp/rsa.pub" >>"$sshd_dir/authorized_keys"
    status=0
    "$berth" doctor "$host" --identity "$tmp/rsa" "${sshd_connect[@]:2}" >"$tmp/out" 2>"$tmp/err" || status=$?
    # works from libssh2 1.11 on; before it must be said, not tried in vain
    [ $status = 0 ] || says "RSA keys need libssh2 1.11" "$tmp/err"
}

the_key_agent_is_used() {
    eval "$(ssh-agent -s)" >/dev/null
    ssh-add -q "$tmp/other" "$sshd_dir/id"
    status=0
    HOME=$tmp/nobody "$berth" doctor "$host" "${sshd_connect[@]:2}" >"$tmp/out" 2>"$tmp/err" || status=$?
    kill "$SSH_AGENT_PID"
    cat "$tmp/err"
    [ $status = 0 ]
}

a_port_that_is_not_ssh_is_named() {
    # says something else and closes
    perl -e 'use IO::Socket::INET; $s = IO::Socket::INET->new(Listen => 9, LocalAddr => "127.0.0.1") or die;
        print $s->sockport, "\n"; close STDOUT; alarm 60; while ($c = $s->accept) { print $c "HTTP/1.0 400 Bad\r\n\r\n"; close $c }' >"$tmp/http.port" &
    http=$!
    until_true 5 test -s "$tmp/http.port"
    exits 6 "$berth" doctor "127.0.0.1:$(cat "$tmp/http.port")" "${sshd_connect[@]}"
    kill $http
    one_sentence
    says "is not an SSH server" "$tmp/err"
    # says nothing at all
    perl -e 'use IO::Socket::INET; $s = IO::Socket::INET->new(Listen => 9, LocalAddr => "127.0.0.1") or die;
        print $s->sockport, "\n"; close STDOUT; sleep 60' >"$tmp/mute.port" &
    mute=$!
    until_true 5 test -s "$tmp/mute.port"
    exits 6 "$berth" doctor "127.0.0.1:$(cat "$tmp/mute.port")" "${sshd_connect[@]}" --connect-timeout 1s
    kill $mute
    one_sentence
    says "no answer within 1 s" "$tmp/err"
    # never stops talking, in one line: deadline and Ctrl-C count all the same
    perl -e 'use IO::Socket::INET; $SIG{PIPE} = "IGNORE";
        $s = IO::Socket::INET->new(Listen => 9, LocalAddr => "127.0.0.1") or die;
        print $s->sockport, "\n"; close STDOUT; alarm 60; while ($c = $s->accept) { 1 while syswrite $c, "A" x 65536 }' >"$tmp/endless.port" &
    endless=$!
    until_true 5 test -s "$tmp/endless.port"
    exits 6 timeout -k 1 20 "$berth" doctor "127.0.0.1:$(cat "$tmp/endless.port")" "${sshd_connect[@]}" --connect-timeout 1s
    one_sentence
    says "no answer within 1 s" "$tmp/err"
    exits 130 timeout --preserve-status -k 1 -s INT 1 "$berth" doctor "127.0.0.1:$(cat "$tmp/endless.port")" "${sshd_connect[@]}" || interrupted=no
    kill $endless
    [ -z "$interrupted" ]
}

a_folder_is_no_file_of_host_keys() {
    exits 2 "$berth" doctor "$host" --identity "$sshd_dir/id" --ssh-config none --known-hosts "$tmp"
    one_sentence
    says "Is a directory" "$tmp/err"
}

hosts_that_cannot_be_reached_are_named() {
    exits 6 "$berth" doctor 127.0.0.1:1 "${sshd_connect[@]}"
    one_sentence
    says "Connection refused" "$tmp/err"
    exits 6 "$berth" doctor no-such-host.invalid "${sshd_connect[@]}"
    one_sentence
    says "does not resolve" "$tmp/err"
    exits 6 "$berth" doctor "127.0.0.1:1,$host,127.0.0.1:2" "${sshd_connect[@]}"
    says "Connection refused (also failed: '127.0.0.1:2')" "$tmp/err"
}

many_connections_at_once_are_not_mistaken_for_refusals() {
    sshd_start crowded "MaxStartups 2:50:4"
    list=127.0.0.1:$sshd_port
    for i in 2 3 4 5 6 7 8 9 10 11 12; do list=$list,127.0.0.$i:$sshd_port; done
    sshd_stop crowded
    sed -i 's/^ListenAddress.*/ListenAddress 0.0.0.0/' "$sshd_dir/crowded/sshd_config"
    sshd_restart crowded
    echo "* $(cut -d' ' -f1,2 "$sshd_dir/crowded/host_key.pub")" >"$tmp/kh"
    exits 0 "$berth" doctor "$list" --identity "$sshd_dir/id" --ssh-config none --known-hosts "$tmp/kh"
    sshd_stop crowded
}

a_bad_host_does_not_hide_what_the_others_can() {
    : >"$sshd_dir/a/home/file"
    echo "127.0.0.1:$(cat "$sshd_dir/a/port") dir=$sshd_dir/a/home/file/berth" >"$tmp/bad"
    sshd_start good
    sshd_hosts good >>"$tmp/bad"
    exits 6 "$berth" doctor "$tmp/bad" "${sshd_connect[@]}"
    says "fail     work folder" "$tmp/out"
    grep -q "^pass     engine .*$(cat "$sshd_dir/good/port"): runs" "$tmp/out"
}

one_session_at_a_time_is_enough() {
    sshd_start narrow "MaxSessions 1"
    one_node_plan "$tmp/plan1.json"
    head -c 1000 /dev/urandom >"$tmp/data.txt"
    sshd_hosts narrow >"$tmp/hosts"
    exits 0 "$berth" launch "$tmp/plan1.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" --rank-program "$top/tests/lib/fake_rank" --env FAKE_STEPS=1
    sshd_stop narrow
}

what_login_files_print_does_no_harm() {
    sshd_start noisy "ForceCommand echo Welcome to the machine; echo more >&2; exec /bin/sh -c \"\$SSH_ORIGINAL_COMMAND\""
    # files go through SFTP, which a forced command replaces: a launch would fail, and doctor says so
    exits 6 "$berth" doctor "127.0.0.1:$sshd_port" "${sshd_connect[@]}"
    says "cannot be put there" "$tmp/out"
    one_node_plan "$tmp/plan1.json"
    head -c 1000 /dev/urandom >"$tmp/data.txt"
    echo "127.0.0.1:$sshd_port dir=$sshd_dir/noisy/home/berth" >"$tmp/hosts"
    # let it through
    sed -i 's/^ForceCommand.*/ForceCommand case "$SSH_ORIGINAL_COMMAND" in internal-sftp) exec \/usr\/lib\/openssh\/sftp-server ;; *) echo Welcome; exec \/bin\/sh -c "$SSH_ORIGINAL_COMMAND" ;; esac/' \
        "$sshd_dir/noisy/sshd_config"
    sshd_stop noisy
    sshd_restart noisy
    exits 0 "$berth" doctor "127.0.0.1:$sshd_port" "${sshd_connect[@]}"
    exits 0 "$berth" launch "$tmp/plan1.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt" --rank-program "$top/tests/lib/fake_rank" --env FAKE_STEPS=1
}

nodes_that_cannot_reach_each_other_are_named() {
    sshd_start b
    two_node_plan "$tmp/plan2.json"
    head -c 1000 /dev/urandom >"$tmp/data.txt"
    sshd_hosts a b >"$tmp/hosts"
    exits 0 "$berth" doctor "$tmp/hosts" "${sshd_connect[@]}" --json
    [ "$(jq -r '.checks[] | select(.check == "network") | .verdict' "$tmp/out")" = pass ]
    # 192.0.2.0/24 is nobody's (RFC 5737)
    sed -i 's/$/ address=192.0.2.1/' "$tmp/hosts"
    exits 6 "$berth" doctor "$tmp/hosts" "${sshd_connect[@]}"
    says "cannot reach host" "$tmp/out"
    exits 6 "$berth" launch "$tmp/plan2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt"
    says "cannot reach host" "$tmp/err"
    says "192.0.2.1" "$tmp/err"
    # one on this machine only, one elsewhere: that cannot be a run
    sed -i '1s/ address=.*//' "$tmp/hosts"
    exits 2 "$berth" launch "$tmp/plan2.json" --hosts "$tmp/hosts" "${sshd_connect[@]}" \
        --data "local:$tmp/data.txt"
    says "some hosts are on this machine" "$tmp/err"
    exits 0 "$berth" clean "127.0.0.1:$(cat "$sshd_dir/b/port")" "${sshd_connect[@]}" -y \
        --remote-dir "$sshd_dir/b/home/berth"
    sshd_stop b
}

a_host_behind_another_is_reached() {
    sshd_start inner
    printf 'Host *\n  UserKnownHostsFile %s\n  IdentityFile %s\n  GlobalKnownHostsFile none\n' \
        "$sshd_dir/known_hosts" "$sshd_dir/id" >"$tmp/ssh_config"
    mkdir -p "$tmp/jumphome/.ssh"
    # the ssh program does the first hop with the user's own configuration
    cat >"$tmp/ssh" <<SSH
#!/bin/sh
exec $(command -v ssh) -F "$tmp/ssh_config" "\$@"
SSH
    chmod +x "$tmp/ssh"
    echo "127.0.0.1:$sshd_port jump=127.0.0.1:$port" >"$tmp/hosts"
    PATH="$tmp:$PATH" exits 0 "$berth" doctor "$tmp/hosts" "${sshd_connect[@]}"
    sshd_stop inner
}

e2e host_keys_get_openssh_s_answer hashed_names_are_found a_changed_key_stops_with_file_and_line \
    an_unknown_key_is_shown_and_refused_without_consent accepted_keys_stay_with_the_run \
    a_refused_key_is_an_authentication_failure keys_that_cannot_be_used_are_explained \
    the_key_agent_is_used a_port_that_is_not_ssh_is_named a_folder_is_no_file_of_host_keys hosts_that_cannot_be_reached_are_named \
    many_connections_at_once_are_not_mistaken_for_refusals one_session_at_a_time_is_enough \
    a_bad_host_does_not_hide_what_the_others_can what_login_files_print_does_no_harm \
    nodes_that_cannot_reach_each_other_are_named a_host_behind_another_is_reached
tap_done
