/* How vectors travel between ranks: as they are kept, or in blocks of few bits (arXiv 2306.10209).
 *
 * A vector of n elements in blocks is n codes of a byte each, padded to 4 bytes, then a fp32 scale
 * for each WIRE_BLOCK of them. int8 is finer where a block's elements are alike in size, fp8 (E4M3)
 * where few of them are large. What a rank keeps is never changed by it: parameters are rounded as
 * every user of a gather sees them, gradients before they are summed. kernels/kernels.h says by how
 * much. */
#ifndef PLANNER_WIRE_H
#define PLANNER_WIRE_H

#include <stdint.h>

#include "base/err.h"

enum wire { WIRE_PLAIN, WIRE_INT8, WIRE_FP8, WIRE_COUNT };
enum { WIRE_BLOCK = 256 };

/* "plain", "int8", "fp8" */
const char *wire_name(enum wire w);
enum rc wire_parse(const char *name, enum wire *out, struct err *e);

/* Of so many elements in blocks. */
int64_t wire_bytes(int64_t elems);

#endif
