/* Byte-pair merges: of all neighbours in a word that may merge, the pair of the lowest rank does,
 * the leftmost first among equals, until none may. */
#ifndef ENGINE_BPE_H
#define ENGINE_BPE_H

#include <stddef.h>
#include <stdint.h>

struct bpe;
/* What one thread needs; starts zeroed, release with bpe_work_release. */
struct bpe_work {
    int64_t *left, *right;
    struct bpe_candidate *heap;
    size_t cap, heap_n, heap_cap;
};

/* For at most so many merges. */
struct bpe *bpe_new(size_t merges);
void bpe_free(struct bpe *b);
/* Tokens left and right, side by side, become merged. A pair that was added before is replaced. */
void bpe_add(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);

/* Merge ids[0..n) in place; returns how many are left. */
size_t bpe_merge(const struct bpe *b, struct bpe_work *w, uint32_t *ids, size_t n);
void bpe_work_release(struct bpe_work *w);

#endif
