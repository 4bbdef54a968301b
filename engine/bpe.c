#include "engine/bpe.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

/* Longer words keep their candidates in a heap: looking through all of them for each merge grows
 * with the square of the length. */
enum { SHORT_WORD = 48 };

#define NO_RANK UINT32_MAX

struct slot {
    uint64_t pair; /* left << 32 | right */
    uint32_t rank, merged;
};

struct bpe {
    struct slot *slots; /* open addressing; rank NO_RANK: empty */
    size_t mask;
};

/* --- pairs --- */

static size_t home(const struct bpe *b, uint64_t pair)
{
    uint64_t h = pair * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ h >> 32) & b->mask;
}

static struct slot *find(const struct bpe *b, uint32_t left, uint32_t right)
{
    uint64_t pair = (uint64_t)left << 32 | right;
    size_t i = home(b, pair);
    while (b->slots[i].rank != NO_RANK && b->slots[i].pair != pair)
        i = (i + 1) & b->mask;
    return &b->slots[i];
}

struct bpe *bpe_new(size_t merges)
{
    struct bpe *b = base_calloc(1, sizeof(*b));
    size_t n = 16;
    while (n < 2 * merges + 2)
        n *= 2;
    b->mask = n - 1;
    b->slots = base_calloc(n, sizeof(*b->slots));
    for (size_t i = 0; i < n; i++)
        b->slots[i].rank = NO_RANK;
    return b;
}

void bpe_free(struct bpe *b)
{
    if (!b)
        return;
    free(b->slots);
    free(b);
}

void bpe_add(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged)
{
    *find(b, left, right) = (struct slot){(uint64_t)left << 32 | right, rank, merged};
}

/* --- short words: the ranks of all neighbours side by side --- */

static size_t merge_short(const struct bpe *b, uint32_t *ids, size_t n)
{
    uint32_t rank[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = find(b, ids[i], ids[i + 1])->rank;
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best])
                best = i;
        if (rank[best] == NO_RANK)
            break;
        ids[best] = find(b, ids[best], ids[best + 1])->merged;
        memmove(ids + best + 1, ids + best + 2, (n - best - 2) * sizeof(*ids));
        n--;
        if (best + 1 < n)
            memmove(rank + best, rank + best + 1, (n - 1 - best) * sizeof(*rank));
        if (best > 0)
            rank[best - 1] = find(b, ids[best - 1], ids[best])->rank;
        if (best + 1 < n)
            rank[best] = find(b, ids[best], ids[best + 1])->rank;
    }
    return n;
}

/* --- long words: a linked list of tokens, and a heap of pairs that may merge --- */

struct bpe_candidate {
    uint32_t rank, left_id, right_id;
    size_t at;
};

static bool is_before(const struct bpe_candidate *a, const struct bpe_candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void heap_push(struct bpe_work *w, struct bpe_candidate c)
{
    if (w->heap_n == w->heap_cap) {
        w->heap_cap = w->heap_cap ? 2 * w->heap_cap : 256;
        w->heap = base_realloc(w->heap, w->heap_cap * sizeof(*w->heap));
    }
    size_t i = w->heap_n++;
    while (i > 0 && is_before(&c, &w->heap[(i - 1) / 2])) {
        w->heap[i] = w->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    w->heap[i] = c;
}

static struct bpe_candidate heap_pop(struct bpe_work *w)
{
    struct bpe_candidate top = w->heap[0], last = w->heap[--w->heap_n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < w->heap_n; i = child) {
        if (child + 1 < w->heap_n && is_before(&w->heap[child + 1], &w->heap[child]))
            child++;
        if (!is_before(&w->heap[child], &last))
            break;
        w->heap[i] = w->heap[child];
    }
    w->heap[i] = last;
    return top;
}

static void offer(const struct bpe *b, struct bpe_work *w, const uint32_t *ids, int64_t at)
{
    if (at < 0 || w->right[at] < 0)
        return;
    uint32_t left = ids[at], right = ids[w->right[at]];
    uint32_t rank = find(b, left, right)->rank;
    if (rank != NO_RANK)
        heap_push(w, (struct bpe_candidate){rank, left, right, (size_t)at});
}

static void link_all(struct bpe_work *w, size_t n)
{
    if (n > w->cap) {
        w->cap = 2 * n;
        w->left = base_realloc(w->left, w->cap * sizeof(*w->left));
        w->right = base_realloc(w->right, w->cap * sizeof(*w->right));
    }
    for (size_t i = 0; i < n; i++) {
        w->left[i] = (int64_t)i - 1;
        w->right[i] = i + 1 < n ? (int64_t)i + 1 : -1;
    }
    w->heap_n = 0;
}

#define GONE UINT32_MAX /* the id of a token that was merged into its left neighbour */

static void take(const struct bpe *b, struct bpe_work *w, uint32_t *ids, struct bpe_candidate c)
{
    int64_t at = (int64_t)c.at, right = w->right[at];
    /* what it was made for may have merged with something else in the meantime */
    if (ids[at] != c.left_id || right < 0 || ids[right] != c.right_id)
        return;
    ids[at] = find(b, c.left_id, c.right_id)->merged;
    ids[right] = GONE;
    w->right[at] = w->right[right];
    if (w->right[at] >= 0)
        w->left[w->right[at]] = at;
    offer(b, w, ids, w->left[at]);
    offer(b, w, ids, at);
}

static size_t merge_long(const struct bpe *b, struct bpe_work *w, uint32_t *ids, size_t n)
{
    link_all(w, n);
    for (size_t i = 0; i < n; i++)
        offer(b, w, ids, (int64_t)i);
    while (w->heap_n > 0)
        take(b, w, ids, heap_pop(w));
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (ids[i] != GONE)
            ids[kept++] = ids[i];
    return kept;
}

size_t bpe_merge(const struct bpe *b, struct bpe_work *w, uint32_t *ids, size_t n)
{
    return n <= SHORT_WORD ? merge_short(b, ids, n) : merge_long(b, w, ids, n);
}

void bpe_work_release(struct bpe_work *w)
{
    free(w->left);
    free(w->right);
    free(w->heap);
    *w = (struct bpe_work){0};
}
