/* Counts allocations of our own code (the linker wraps malloc, calloc and realloc). */
#ifndef TESTS_LIB_COUNT_H
#define TESTS_LIB_COUNT_H

void count_start(void);
/* Allocations of all threads since count_start. */
int count_stop(void);

#endif
