#include "lib_count.h"

#include <stdatomic.h>
#include <stddef.h>

static atomic_int is_counting, count;

void *__real_malloc(size_t n);
void *__real_calloc(size_t k, size_t n);
void *__real_realloc(void *p, size_t n);

static void note(void)
{
    if (atomic_load(&is_counting))
        atomic_fetch_add(&count, 1);
}

void *__wrap_malloc(size_t n)
{
    note();
    return __real_malloc(n);
}

void *__wrap_calloc(size_t k, size_t n)
{
    note();
    return __real_calloc(k, n);
}

void *__wrap_realloc(void *p, size_t n)
{
    note();
    return __real_realloc(p, n);
}

void count_start(void)
{
    atomic_store(&count, 0);
    atomic_store(&is_counting, 1);
}

int count_stop(void)
{
    atomic_store(&is_counting, 0);
    return atomic_load(&count);
}
