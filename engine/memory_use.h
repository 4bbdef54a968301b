/* Resident memory of this process, from /proc, without allocating. */
#ifndef ENGINE_MEMORY_USE_H
#define ENGINE_MEMORY_USE_H

#include <stdint.h>

/* Now; -1 when the kernel does not tell. */
int64_t memory_now_bytes(void);
/* The part of it that is not backed by files. */
int64_t memory_anonymous_bytes(void);
/* How much of a mapping is resident; p on a page border. -1 when the kernel does not tell. */
int64_t memory_resident_bytes(void *p, int64_t bytes);

#endif
