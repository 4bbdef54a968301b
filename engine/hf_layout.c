#include "engine/hf_layout.h"

#include <string.h>

/* Conv1D of transformers: all matrices of GPT-2's blocks. */
static bool is_conv1d(const struct model *m, int unit, const struct tensor *t)
{
    return m->family == MODEL_GPT2 && unit > 0 && unit <= m->layers && !t->is_vector;
}

static void start(struct hf_tensor *h, const struct model *m, int unit, const struct tensor *t)
{
    *h = (struct hf_tensor){.dims = t->is_vector ? 1 : 2, .is_transposed = is_conv1d(m, unit, t)};
    model_tensor_name(m, unit, t->role, h->name);
    h->shape[h->is_transposed ? 0 : 1] = t->is_vector ? 1 : t->cols;
}

static void add_part(struct hf_tensor *h, const struct tensor *t)
{
    h->part[h->n_parts++] = *t;
    h->shape[h->is_transposed ? 1 : 0] += t->rows;
}

int hf_unit_tensors(const struct model *m, int unit, struct hf_tensor out[MODEL_MAX_TENSORS])
{
    struct unit_layout u;
    char name[HF_NAME];
    int n = 0;
    model_unit_layout(m, unit, 1, &u);
    for (int i = 0; i < u.n; i++) {
        const struct tensor *t = &u.tensor[i];
        model_tensor_name(m, unit, t->role, name);
        if (n == 0 || strcmp(out[n - 1].name, name) != 0)
            start(&out[n++], m, unit, t);
        add_part(&out[n - 1], t);
    }
    return n;
}

int64_t hf_elems(const struct hf_tensor *t)
{
    return t->shape[0] * t->shape[1];
}

int64_t hf_outputs_before(const struct hf_tensor *t, int part)
{
    int64_t rows = 0;
    for (int i = 0; i < part; i++)
        rows += t->part[i].rows;
    return rows;
}
