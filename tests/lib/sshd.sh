# Sourced: OpenSSH servers of our own on loopback, each with throw-away keys, its own configuration
# and its own home for the "node" behind it. Works as root and as an ordinary user, touches nothing
# outside $sshd_dir.
#
#   sshd_needed NAME          no server on this machine: the tests of NAME are skipped
#   sshd_setup DIR            keys and folders (once)
#   sshd_two_nodes NAME       all of a script that runs on two nodes, a and b: $tmp/hosts lists them,
#                             and what is left of servers and runs is ended with the script
#   sshd_start NAME [LINE...] a server; LINEs are added to its sshd_config. Sets sshd_port
#   sshd_stop NAME            ends the server and its sessions
#   sshd_restart NAME         starts a stopped one again, with its keys and on its port
#   sshd_stop_all
#   sshd_hosts NAME...        a host list for berth, one line per server, on stdout
#   $sshd_dir/id              private key to log in with;  $sshd_dir/known_hosts   all host keys
#   sshd_connect              array: options of berth that reach these servers and nothing else
#   sshd_address, sshd_in     of the servers started from then on: where they listen, and a command in
#                             front of them (array), for hosts in other network namespaces
sshd_address=127.0.0.1
sshd_in=()
sshd_binary=$(command -v sshd || echo /usr/sbin/sshd)

sshd_needed() {
    [ ! -x "$sshd_binary" ] || return 0
    skip "$1" "no sshd"
    tap_done
}

sshd_setup() {
    sshd_dir=$1
    mkdir -p "$sshd_dir"
    chmod 700 "$sshd_dir"
    ssh-keygen -q -t ed25519 -N '' -C test -f "$sshd_dir/id"
    cp "$sshd_dir/id.pub" "$sshd_dir/authorized_keys"
    : >"$sshd_dir/known_hosts"
    sshd_connect=(--identity "$sshd_dir/id" --known-hosts "$sshd_dir/known_hosts" --ssh-config none)
    # sshd of root wants this folder of Debian's, whatever its configuration says
    [ "$(id -u)" != 0 ] || mkdir -p /run/sshd
}

sshd_is_up() {
    (exec 3<>"/dev/tcp/$sshd_address/$1") 2>/dev/null
}

# Start the server NAME with the configuration it has, on its port; wait until it answers.
sshd_restart() {
    local dir=$sshd_dir/$1 port
    port=$(sed -n 's/^Port //p' "$dir/sshd_config")
    "${sshd_in[@]}" "$sshd_binary" -f "$dir/sshd_config" -E "$dir/log" || return 1
    for _ in $(seq 200); do
        [ -s "$dir/pid" ] && sshd_is_up "$port" && return 0
        sleep 0.05
    done
    sshd_stop "$1"
    return 1
}

sshd_start() {
    local name=$1 dir=$sshd_dir/$1 try
    shift
    mkdir -p "$dir/home"
    [ -f "$dir/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C "$name" -f "$dir/host_key"
    for try in 1 2 3 4 5 6 7 8 9 10; do
        sshd_port=$((20000 + (RANDOM * 32768 + RANDOM) % 12000))
        sshd_is_up "$sshd_port" && continue
        {
            echo "Port $sshd_port"
            echo "ListenAddress $sshd_address"
            echo "HostKey $dir/host_key"
            echo "PidFile $dir/pid"
            echo "AuthorizedKeysFile $sshd_dir/authorized_keys"
            echo "StrictModes no"
            echo "UsePAM no"
            echo "PasswordAuthentication no"
            echo "KbdInteractiveAuthentication no"
            echo "PermitRootLogin prohibit-password"
            echo "PrintMotd no"
            echo "LogLevel VERBOSE"
            echo "Subsystem sftp internal-sftp"
            # each server is a node with a home of its own
            echo "SetEnv HOME=$dir/home"
            printf '%s\n' "$@"
        } >"$dir/sshd_config"
        sshd_restart "$name" || continue
        echo "$sshd_port" >"$dir/port"
        echo "$sshd_address" >"$dir/address"
        echo "[$sshd_address]:$sshd_port $(cut -d' ' -f1,2 "$dir/host_key.pub")" >>"$sshd_dir/known_hosts"
        return 0
    done
    echo "sshd does not start:" >&2
    cat "$dir/log" >&2
    return 1
}

# Pids of the listeners of a server: more than the pid file may know of.
sshd_pids() {
    local p
    for p in /proc/[0-9]*; do
        tr '\0' ' ' <"$p/cmdline" | grep -q "^[^ ]*sshd.* -f $sshd_dir/$1/sshd_config " && echo "${p#/proc/}"
    done 2>/dev/null || :
}

# The server's process and those it forked for sessions; what sessions started detached stays.
sshd_stop() {
    local pid child
    for pid in $(sshd_pids "$1"); do
        for child in $(cat "/proc/$pid/task/$pid/children" 2>/dev/null || :); do
            kill "$child" 2>/dev/null || : # it may have ended by itself
        done
        kill "$pid" 2>/dev/null || :
        for _ in $(seq 100); do
            [ -n "$(tr -d '\0' <"/proc/$pid/cmdline")" ] || break # gone, or dead and not collected
            sleep 0.05
        done 2>/dev/null
    done
    rm -f "$sshd_dir/$1/pid"
}

sshd_stop_all() {
    local d
    for d in "$sshd_dir"/*/; do
        [ ! -f "$d/sshd_config" ] || sshd_stop "$(basename "$d")"
    done
}

sshd_hosts() {
    local name
    for name in "$@"; do
        echo "$(cat "$sshd_dir/$name/address"):$(cat "$sshd_dir/$name/port") dir=$sshd_dir/$name/home/berth"
    done
}

sshd_end_everything() {
    local p
    sshd_stop_all
    for p in $(left_of "$sshd_dir" | cut -d' ' -f1); do kill -9 "$p"; done
}

sshd_two_nodes() {
    sshd_needed "$1"
    tap_cleanup() { sshd_end_everything; }
    sshd_setup "$tmp/sshd"
    sshd_start a
    sshd_start b
    sshd_hosts a b >"$tmp/hosts"
}

# Processes that carry a run folder below DIR in environment or arguments, one per line; none is the
# proof that nothing is left. The caller's own shell and its children are not asked.
left_of() {
    local p
    for p in /proc/[0-9]*; do
        [ "${p#/proc/}" != "$$" ] || continue
        if tr '\0' '\n' <"$p/environ" | grep -q "^BERTH_RUN_DIR=$1" ||
            { tr '\0' '\n' <"$p/cmdline" | sed -n 2p | grep -qx agent &&
                tr '\0' '\n' <"$p/cmdline" | grep -q "^$1"; }; then
            echo "${p#/proc/} $(tr '\0' ' ' <"$p/cmdline")"
        fi
    done 2>/dev/null
}
