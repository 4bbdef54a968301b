/* Small allocations that end the program in one line when memory is out, and checked sizes.
 *
 * Sizes that come from input must be checked against a limit first (base_mul, a maximum) and give
 * RC_LIMIT; only then may they be allocated here. */
#ifndef BASE_ALLOC_H
#define BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *base_alloc(size_t bytes) __attribute__((malloc, returns_nonnull));
void *base_calloc(size_t count, size_t bytes) __attribute__((malloc, returns_nonnull));
void *base_realloc(void *p, size_t bytes) __attribute__((returns_nonnull));
char *base_strdup(const char *s) __attribute__((malloc, returns_nonnull, nonnull));
char *base_strndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull, nonnull));
char *base_printf(const char *fmt, ...)
    __attribute__((malloc, returns_nonnull, format(printf, 1, 2)));

/* *out = a * b; false on overflow, *out untouched. */
bool base_mul(uint64_t a, uint64_t b, uint64_t *out);

/* Grow an array so that it holds at least need elements (doubling). */
#define BASE_GROW(array, cap, need)                                                                \
    do {                                                                                           \
        if ((size_t)(need) > (size_t)(cap)) {                                                      \
            (cap) = (need) > 2 * (cap) ? (need) + 8 : 2 * (cap);                                   \
            (array) = base_realloc((array), (size_t)(cap) * sizeof(*(array)));                     \
        }                                                                                          \
    } while (0)

#define BASE_COUNT(array) (sizeof(array) / sizeof((array)[0]))

static inline uint64_t base_align_up(uint64_t x, uint64_t align)
{
    return (x + align - 1) / align * align;
}

#endif
