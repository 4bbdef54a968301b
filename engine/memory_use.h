/* Resident memory of this process, from /proc, without allocating. */
#ifndef ENGINE_MEMORY_USE_H
#define ENGINE_MEMORY_USE_H

#include <stdint.h>

/* Now; -1 when the kernel does not tell. */
int64_t memory_now_bytes(void);
/* The part of it that is not backed by files. */
int64_t memory_anonymous_bytes(void);

struct memory_range {
    const void *base;
    int64_t bytes;
};

/* Of these, bytes in the mappings that meet any of the ranges, each mapping once; pages that were
 * only read and still share the kernel's zero page do not count. -1 when the kernel does not tell.
 * Allocates: for start-up. */
int64_t memory_resident_bytes(const struct memory_range *ranges, int n);

#endif
