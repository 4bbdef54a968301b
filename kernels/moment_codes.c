#include "kernels/moment_codes.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

static struct k_moment_codes tables[K_MOMENT_CODE_KINDS];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Decade i of seven, from 1e-6 on, is cut into so many equal pieces; their middles are codes. */
static int add_decades(float *size, int at, int first_pieces)
{
    double decade = 1e-6;
    for (int pieces = first_pieces; pieces < first_pieces << 7; pieces *= 2, decade *= 10)
        for (int k = 0; k < pieces; k++)
            size[at++] = (float)(decade * (0.1 + 0.9 * (k + 0.5) / pieces));
    return at;
}

static void fill_signed(struct k_moment_codes *t)
{
    t->bits = 7;
    int n = add_decades(t->size, 1, 1);
    t->size[n - 1] = 1; /* both ends of the range are codes, so that they stay what they are */
}

static void fill_unsigned(struct k_moment_codes *t)
{
    t->bits = 8;
    int n = add_decades(t->size, 1, 2);
    t->size[n] = 1;
}

/* Four bits of exponent, bias 7, three of mantissa; 127 would be NaN. */
static void fill_e4m3(struct k_moment_codes *t)
{
    t->bits = 7;
    for (int c = 0; c < 127; c++) {
        int exponent = c >> 3, mantissa = c & 7;
        t->size[c] =
            exponent ? ldexpf((float)(8 + mantissa), exponent - 10) : ldexpf((float)mantissa, -9);
    }
    t->size[127] = INFINITY;
}

static void fill_cells(struct k_moment_codes *t)
{
    int32_t c = 0;
    for (uint32_t cell = 0; cell < K_MOMENT_CELLS; cell++) {
        uint32_t bits = (cell + K_MOMENT_LOW_CELL) << 16;
        float begin;
        memcpy(&begin, &bits, sizeof(begin));
        while (cell > 0 && t->size[c + 1] <= begin)
            c++;
        t->cell[cell] = (struct k_moment_cell){c, t->size[c + 1]};
    }
}

static void fill_all(void)
{
    fill_signed(&tables[K_MOMENT_CODE_SIGNED]);
    fill_unsigned(&tables[K_MOMENT_CODE_UNSIGNED]);
    fill_e4m3(&tables[K_MOMENT_CODE_E4M3]);
    for (int k = 0; k < K_MOMENT_CODE_KINDS; k++) {
        struct k_moment_codes *t = &tables[k];
        int n = 1 << t->bits;
        t->size[n] = INFINITY;
        for (int c = 0; c < n; c++)
            t->step[c] = (struct k_moment_step){
                t->size[c], isinf(t->size[c + 1]) ? 0 : 1 / (t->size[c + 1] - t->size[c])};
        fill_cells(t);
        for (int c = 0; c < 256; c++)
            t->value[c] = c < n ? t->size[c] : -t->size[c - n];
    }
}

const struct k_moment_codes *k_moment_codes(const struct k_moment *m)
{
    pthread_once(&once, fill_all);
    if (m->form == K_MOMENT_FP8)
        return &tables[K_MOMENT_CODE_E4M3];
    return &tables[m->is_square ? K_MOMENT_CODE_UNSIGNED : K_MOMENT_CODE_SIGNED];
}
