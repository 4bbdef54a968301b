/* A model's weights as Hugging Face keeps them: model.safetensors, or several files with
 * model.safetensors.index.json, and config.json beside.
 *
 * Nothing is trusted: headers, index, names, types (F32, BF16, F16), shapes and config are checked
 * against the model before the first value is read; values must be finite. */
#ifndef ENGINE_WEIGHTS_H
#define ENGINE_WEIGHTS_H

#include <stdint.h>

#include "base/err.h"
#include "planner/model.h"

struct weights;

/* path: a folder, a .safetensors file, or an index. m is copied. On success close with
 * weights_close. */
enum rc weights_open(struct weights **out, const char *path, const struct model *m, struct err *e);
void weights_close(struct weights *w);

/* Elements first .. first + count of a tensor of ours, flattened, as fp32. Those of a tied
 * embedding are compared with the output matrix where the files hold one. */
enum rc weights_read(struct weights *w, int unit, enum tensor_role role, int64_t first,
    int64_t count, float *out, struct err *e);

#endif
