#!/usr/bin/env bash
# What runs kernels of GPUs on the CPU finds the faults that it says it finds.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib/tap.sh

# build FAULT SANITIZER: $tmp/faults
build() {
    local san=() switch=-O1
    [ "$2" = none ] || san=("-fsanitize=$2")
    clang++ -std=c++17 -g -O1 -I. "${san[@]}" -DFAULT="$1" -x c++ -c tests/gpu/faults.cu -o "$tmp/faults.o"
    if [ "$2" = thread ]; then
        san=(-fsanitize=thread)
        switch=-DON_CPU_TSAN # the switch of fibers is told of it, not watched
        clang++ -std=c++17 -g -O1 -I. $switch -c tests/lib/cuda_on_cpu.cc -o "$tmp/fibers.o"
    else
        clang++ -std=c++17 -g -O1 -I. "${san[@]}" -c tests/lib/cuda_on_cpu.cc -o "$tmp/fibers.o"
    fi
    clang++ "${san[@]}" "$tmp/faults.o" "$tmp/fibers.o" -o "$tmp/faults"
}

# finds FAULT SANITIZER SENTENCE
finds() {
    build "$1" "$2"
    if "$tmp/faults" >"$tmp/out" 2>"$tmp/err"; then return 1; fi
    says "$3" "$tmp/err"
}

without_a_fault_nothing_is_found() {
    for san in none address thread; do
        build 0 $san
        CUDA_ON_CPU_SEED=3 "$tmp/faults" >"$tmp/out"
        grep -qx 100 "$tmp/out"
    done
}

accesses_outside_of_memory_are_found() {
    finds 1 address "heap-buffer-overflow"
    finds 4 address "global-buffer-overflow"
}

threads_that_never_come_are_found() {
    finds 2 none "waits for threads that never come to a barrier"
    finds 3 none "calls a warp operation whose mask leaves it out"
    finds 6 none "no GPU launches a grid of"
}

a_missing_barrier_is_a_race() {
    finds 5 thread "data race"
}

t "without a fault nothing is found" without_a_fault_nothing_is_found
t "accesses outside of memory are found" accesses_outside_of_memory_are_found
t "threads that never come are found" threads_that_never_come_are_found
t "a missing barrier is a race" a_missing_barrier_is_a_race
tap_done
