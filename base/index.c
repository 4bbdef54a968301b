#include "base/index.h"

#include "base/alloc.h"

ptrdiff_t index_find(
    const struct index *x, uint64_t hash, index_same *same, const void *array, const void *key)
{
    if (x->n_slots == 0)
        return INDEX_NONE;
    for (size_t i = hash & (x->n_slots - 1); x->slots[i].at; i = (i + 1) & (x->n_slots - 1))
        if (x->slots[i].hash == hash && same(array, x->slots[i].at - 1, key))
            return (ptrdiff_t)x->slots[i].at - 1;
    return INDEX_NONE;
}

static void put(struct index *x, struct index_slot s)
{
    size_t i = s.hash & (x->n_slots - 1);
    while (x->slots[i].at)
        i = (i + 1) & (x->n_slots - 1);
    x->slots[i] = s;
}

/* At most half full, so that searches stay short. */
static void grow(struct index *x)
{
    struct index_slot *old = x->slots;
    size_t n = x->n_slots;
    if (x->n * 2 < n)
        return;
    x->n_slots = n ? n * 2 : 64;
    x->slots = base_calloc(x->n_slots, sizeof *x->slots);
    for (size_t i = 0; i < n; i++)
        if (old[i].at)
            put(x, old[i]);
    free(old);
}

void index_add(struct index *x, uint64_t hash, size_t i)
{
    grow(x);
    put(x, (struct index_slot){hash, i + 1});
    x->n++;
}

void index_release(struct index *x)
{
    free(x->slots);
    *x = (struct index){0};
}

uint64_t index_hash_word(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15u;
    return h ^ (h >> 29);
}

uint64_t index_hash_text(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3u;
    return index_hash_word(h, 0xff);
}
