/* The numbers that moments in 8 bits can be, of the scale; tables shared by all variants.
 *
 * Blocks: the dynamic code of bitsandbytes (create_dynamic_map; Dettmers et al., arXiv 2110.02861),
 * seven decades with half as many codes in each lower one; of the signed one the last is 1 on both
 * sides. fp8: E4M3, whose scale is the least power of two with which the largest fits. */
#ifndef KERNELS_MOMENT_CODES_H
#define KERNELS_MOMENT_CODES_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { K_MOMENT_CODE_SIGNED, K_MOMENT_CODE_UNSIGNED, K_MOMENT_CODE_E4M3, K_MOMENT_CODE_KINDS };

/* Cells of numbers, by exponent and seven bits of the mantissa, from 2^-22 (and below) to 2. In
 * each lies one code at most, beside where it begins. */
enum { K_MOMENT_LOW_CELL = (127 - 22) << 7, K_MOMENT_CELLS = 23 << 7 };

/* What is looked up together lies together. */
struct k_moment_cell {
    int32_t code; /* the largest that is not above where the cell begins */
    float next;   /* the size of the one after it */
};
struct k_moment_step {
    float size;
    float per_gap; /* 1 over what the next size is more; 0 of the last */
};
struct k_moment_codes {
    int bits;        /* of the size; one more is the sign */
    float size[257]; /* by those bits, ascending, and infinity behind */
    float value[256];
    struct k_moment_step step[256];
    struct k_moment_cell cell[K_MOMENT_CELLS]; /* not of E4M3, which is arithmetic */
};

/* Those of a moment that is not in fp32. Lives as long as the program. */
const struct k_moment_codes *k_moment_codes(const struct k_moment *m);

#ifdef __cplusplus
}
#endif

#endif
