/* Softmax cross-entropy, its gradient in place of the logits. */
#include <math.h>

#include "kernels/variant.h"

/* Losses of this many rows wait on the stack until they are summed in order. */
enum { BATCH_ROWS = 256 };

struct batch {
    const struct k_cross_entropy *a;
    float scale;
    int64_t row;
    double loss[BATCH_ROWS];
};

K_INLINE float row_max(const void *x, int64_t n, enum k_type type)
{
    float buf[K_BLOCK], best = k_load(type, x, 0);
    for (int64_t i = 0; i < n; i += K_BLOCK) {
        int64_t len = k_min(K_BLOCK, n - i);
        float m = k_max(k_block(type, x, i, len, buf), len);
        best = m > best ? m : best;
    }
    return best;
}

/* Sum of e^(x - max), in double over blocks. */
K_INLINE double row_exp_sum(const void *x, int64_t n, float max, enum k_type type)
{
    float buf[K_BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < n; i += K_BLOCK) {
        int64_t len = k_min(K_BLOCK, n - i);
        for (int64_t j = 0; j < len; j++)
            buf[j] = k_exp(k_load(type, x, i + j) - max);
        sum += (double)k_sum(buf, len);
    }
    return sum;
}

K_INLINE void row_gradient(void *x, int64_t n, float max, float factor, enum k_type type)
{
    for (int64_t i = 0; i < n; i++)
        k_store(type, x, i, k_exp(k_load(type, x, i) - max) * factor);
}

/* Turns a row of logits into its gradient; returns its loss. */
K_INLINE double loss_row(const struct batch *b, void *x, int32_t target, enum k_type type)
{
    const struct k_cross_entropy *a = b->a;
    if (target < 0) {
        memset(x, 0, (size_t)a->vocab * (type == K_BF16 ? 2 : 4));
        return 0;
    }
    float max = row_max(x, a->vocab, type), at_target = k_load(type, x, target);
    double sum = row_exp_sum(x, a->vocab, max, type);
    float factor = (float)((double)b->scale / sum);
    row_gradient(x, a->vocab, max, factor, type);
    float p = k_exp(at_target - max) * factor;
    k_store(type, x, target, p - b->scale);
    return log(sum) + (double)max - (double)at_target;
}

K_INLINE void loss_rows(struct batch *b, int64_t first, int64_t last, enum k_type type)
{
    const struct k_cross_entropy *a = b->a;
    for (int64_t i = first; i < last; i++) {
        void *x = k_at_mut(type, a->logits, (b->row + i) * a->vocab);
        b->loss[i] = loss_row(b, x, a->targets[b->row + i], type);
    }
}

static void cross_entropy(void *arg, int64_t first, int64_t last)
{
    struct batch *b = arg;
    K_BY_TYPE(b->a->type, loss_rows, b, first, last);
}

void K_NAME(k_cross_entropy)(struct pool *p, const struct k_cross_entropy *a)
{
    struct batch b = {.a = a, .scale = *a->divisor > 0 ? (float)(1 / *a->divisor) : 0};
    for (b.row = 0; b.row < a->tokens; b.row += BATCH_ROWS) {
        int64_t rows = k_min(BATCH_ROWS, a->tokens - b.row);
        pool_run(p, rows, cross_entropy, &b);
        for (int64_t i = 0; i < rows; i++)
            *a->loss_sum += b.loss[i];
    }
}
