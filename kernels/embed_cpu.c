/* Token and position embeddings, and rotary embedding. */
#include "kernels/variant.h"

static int64_t position_of(const int32_t *positions, int64_t token, int64_t seq)
{
    return positions ? positions[token] : token % seq;
}

/* --- lookup --- */

K_INLINE void embed_rows(const struct k_embed_fwd *a, int64_t first, int64_t last, enum k_type type)
{
    for (int64_t t = first; t < last; t++) {
        const void *token = k_at(type, a->wte, (int64_t)a->ids[t] * a->width);
        void *restrict x = k_at_mut(type, a->x, t * a->width);
        if (!a->wpe) {
            memcpy(x, token, (size_t)a->width * (type == K_BF16 ? 2 : 4));
            continue;
        }
        const void *position = k_at(type, a->wpe, position_of(a->positions, t, a->seq) * a->width);
        for (int64_t i = 0; i < a->width; i++)
            k_store(type, x, i, k_load(type, token, i) + k_load(type, position, i));
    }
}

static void embed_fwd(void *arg, int64_t first, int64_t last)
{
    const struct k_embed_fwd *a = arg;
    K_BY_TYPE(a->type, embed_rows, a, first, last);
}

void K_NAME(k_embed_fwd)(struct pool *p, const struct k_embed_fwd *a)
{
    pool_run(p, a->tokens, embed_fwd, (void *)a);
}

/* --- its gradient: threads share columns, each goes through the tokens in order --- */

enum { COLUMNS = 64 };

K_INLINE void add_row(float *restrict row, const void *dx, const int64_t n, enum k_type type)
{
    for (int64_t i = 0; i < n; i++)
        row[i] += k_load(type, dx, i);
}

K_INLINE void scatter_columns(
    const struct k_embed_bwd *a, int64_t col, const int64_t n, enum k_type type)
{
    for (int64_t t = 0; t < a->tokens; t++) {
        const void *dx = k_at(type, a->dx, t * a->width + col);
        if (a->dwte)
            add_row(a->dwte + (int64_t)a->ids[t] * a->width + col, dx, n, type);
        if (a->dwpe)
            add_row(a->dwpe + position_of(a->positions, t, a->seq) * a->width + col, dx, n, type);
    }
}

static void embed_bwd(void *arg, int64_t first, int64_t last)
{
    const struct k_embed_bwd *a = arg;
    for (int64_t i = first; i < last; i++) {
        int64_t col = i * COLUMNS, n = k_min(COLUMNS, a->width - col);
        K_BY_TYPE(a->type, scatter_columns, a, col, n);
    }
}

struct table {
    float *rows;
    int64_t width;
};

static void zero_rows(void *arg, int64_t first, int64_t last)
{
    const struct table *t = arg;
    memset(t->rows + first * t->width, 0, (size_t)((last - first) * t->width) * sizeof(float));
}

void K_NAME(k_embed_bwd)(struct pool *p, const struct k_embed_bwd *a)
{
    struct table dwte = {a->dwte, a->width}, dwpe = {a->dwpe, a->width};
    if (!a->accumulate && a->dwte)
        pool_run(p, a->vocab, zero_rows, &dwte);
    if (!a->accumulate && a->dwpe)
        pool_run(p, a->position_rows, zero_rows, &dwpe);
    pool_run(p, k_blocks(a->width, COLUMNS), embed_bwd, (void *)a);
}

/* --- rotary embedding --- */

/* (x, y) -> (x cos - y sin, y cos + x sin); sign -1 turns back. */
K_INLINE void rotate_head(
    void *restrict head, const float *restrict table, int64_t half, float sign, enum k_type type)
{
    for (int64_t i = 0; i < half; i++) {
        float x = k_load(type, head, i), y = k_load(type, head, half + i);
        float c = table[i], s = sign * table[half + i];
        k_store(type, head, i, x * c - y * s);
        k_store(type, head, half + i, y * c + x * s);
    }
}

K_INLINE void rotate_rows(
    const struct k_rope *a, int64_t first, int64_t last, float sign, enum k_type type)
{
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    for (int64_t t = first; t < last; t++) {
        const float *table = a->table + position_of(a->positions, t, a->seq) * a->head_dim;
        for (int64_t h = 0; h < a->heads + a->kv_heads; h++) {
            void *head = k_at_mut(type, a->qkv, t * width + h * a->head_dim);
            rotate_head(head, table, a->head_dim / 2, sign, type);
        }
    }
}

static void rope_fwd(void *arg, int64_t first, int64_t last)
{
    const struct k_rope *a = arg;
    K_BY_TYPE(a->type, rotate_rows, a, first, last, 1);
}

static void rope_bwd(void *arg, int64_t first, int64_t last)
{
    const struct k_rope *a = arg;
    K_BY_TYPE(a->type, rotate_rows, a, first, last, -1);
}

void K_NAME(k_rope_fwd)(struct pool *p, const struct k_rope *a)
{
    pool_run(p, a->tokens, rope_fwd, (void *)a);
}

void K_NAME(k_rope_bwd)(struct pool *p, const struct k_rope *a)
{
    pool_run(p, a->tokens, rope_bwd, (void *)a);
}
