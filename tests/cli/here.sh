#!/usr/bin/env bash
# This machine as an offer, compared with what the system's own tools say; GPUs through a stand-in
# for NVIDIA's management library.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

field() { jq -r ".offers[0].$1" "$tmp/out"; }

the_cpu_is_what_the_system_says() {
    exits 0 "$berth" offers --here --ranks-per-node 1 --json
    [ "$(field device)" = cpu ]
    [ "$(field price_usd_per_hour)" = 0 ] || [ "$(field price_usd_per_hour)" = 0.0 ]
    [ "$(field market)" = owned ]
    [ "$(field vcpus)" -ge 1 ]
    [ "$(field vcpus)" -le "$(nproc)" ]
    local kib
    kib=$(awk '/^MemTotal/{print $2}' /proc/meminfo)
    [ "$(field ram_bytes)" -le $((kib * 1024 + 4096)) ]
    [ "$(field gpu_memory_bytes)" = "$(field ram_bytes)" ]
    [ "$(field problem)" = null ]
    case $(uname -m) in x86_64) [ "$(field arch)" = x86_64 ] ;; aarch64) [ "$(field arch)" = arm64 ] ;; esac
    if [ "$(uname -m)" = x86_64 ] && ! grep -qw avx2 /proc/cpuinfo; then [ "$(field isa)" = x86-64-v2 ]; fi
}

ranks_share_the_memory() {
    exits 0 "$berth" offers --here --ranks-per-node 4 --json
    [ "$(field gpus_per_node)" = 4 ]
    [ "$(field gpu_memory_bytes)" = $(($(field ram_bytes) / 4)) ]
}

# the free disk is an input too, and others may write to it meanwhile
equal_inputs_give_equal_bytes() {
    local i
    for i in 1 2 3; do
        "$berth" offers --here --json --reproducible >"$tmp/a"
        sleep 1.1
        "$berth" offers --here --json --reproducible >"$tmp/b"
        cmp "$tmp/a" "$tmp/b" && return
    done
    return 1
}

# A library with the entry points Berth asks for: $1 GPUs, the names in $2, $3 MiB each.
fake_nvml() {
    mkdir -p "$tmp/nvml"
    cat >"$tmp/nvml.c" <<END
#include <stdio.h>
#include <stdlib.h>
struct memory { unsigned long long total, free, used; };
static const char *names[] = {$2};
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *t, unsigned n) { snprintf(t, n, "570.86.15"); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = $1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **d) { *d = (void *)&names[i]; return 0; }
int nvmlDeviceGetName(void *d, char *t, unsigned n) { snprintf(t, n, "%s", *(const char **)d); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { m->total = $3ULL << 20; return 0; }
END
    ${CC:-gcc} -shared -fPIC -o "$tmp/nvml/libnvidia-ml.so.1" "$tmp/nvml.c"
}
with_nvml() { LD_LIBRARY_PATH=$tmp/nvml "$@"; }

gpus_are_seen_through_the_driver() {
    fake_nvml 2 '"NVIDIA H100 80GB HBM3","NVIDIA H100 80GB HBM3"' 81559
    exits 0 with_nvml "$berth" offers --here --json
    [ "$(field device)" = gpu ]
    [ "$(field gpu)" = h100-sxm ]
    [ "$(field gpus_per_node)" = 2 ]
    [ "$(field gpu_memory_bytes)" = $((81559 * 1048576)) ]
    [ "$(field driver)" = 570.86.15 ]
    [ "$(field nvlink)" = nvlink4 ]
    exits 0 with_nvml "$berth" offers --here --ranks-per-node 2 --json
    [ "$(field device)" = cpu ]
}

a_mixed_or_unknown_machine_says_so() {
    fake_nvml 2 '"NVIDIA H100 80GB HBM3","Tesla T4"' 15360
    exits 0 with_nvml "$berth" offers --here --json
    says "not all the same model" "$tmp/out"
    fake_nvml 1 '"NVIDIA Z900"' 1000
    exits 0 with_nvml "$berth" offers --here --json
    [ "$(field gpu)" = "NVIDIA Z900" ]
    says "unknown GPU 'NVIDIA Z900'" "$tmp/out"
}

a_broken_driver_means_cpu() {
    fake_nvml 0 '""' 0
    exits 0 with_nvml "$berth" offers --here --json
    [ "$(field device)" = cpu ]
    echo 'int nothing;' >"$tmp/nvml.c"
    ${CC:-gcc} -shared -fPIC -o "$tmp/nvml/libnvidia-ml.so.1" "$tmp/nvml.c"
    exits 0 with_nvml "$berth" offers --here --json
    [ "$(field device)" = cpu ]
    echo garbage >"$tmp/nvml/libnvidia-ml.so.1"
    exits 0 with_nvml "$berth" offers --here --json
    [ "$(field device)" = cpu ]
}

t the_cpu_is_what_the_system_says the_cpu_is_what_the_system_says
t ranks_share_the_memory ranks_share_the_memory
t equal_inputs_give_equal_bytes equal_inputs_give_equal_bytes
t gpus_are_seen_through_the_driver gpus_are_seen_through_the_driver
t a_mixed_or_unknown_machine_says_so a_mixed_or_unknown_machine_says_so
t a_broken_driver_means_cpu a_broken_driver_means_cpu
tap_done
