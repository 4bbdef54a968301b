/* Finding members of an array by what they are: an open hash table of their indexes. The caller
 * keeps the array and says when two things are the same. */
#ifndef BASE_INDEX_H
#define BASE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Starts zeroed; release with index_release. */
struct index {
    struct index_slot {
        uint64_t hash;
        size_t at; /* index + 1, 0: empty */
    } * slots;
    size_t n, n_slots;
};

enum { INDEX_NONE = -1 };

/* Is the i-th member the same as key? */
typedef bool index_same(const void *array, size_t i, const void *key);
/* Index of the first one added with the hash that is the same, INDEX_NONE when there is none. */
ptrdiff_t index_find(
    const struct index *x, uint64_t hash, index_same *same, const void *array, const void *key);
/* Add member i; it is not looked for first. */
void index_add(struct index *x, uint64_t hash, size_t i);
void index_release(struct index *x);

/* Hashes for it, seeded by h: start with 0 and chain. Not for what an adversary may choose. */
uint64_t index_hash_word(uint64_t h, uint64_t word);
uint64_t index_hash_text(uint64_t h, const char *text);

#endif
