#include "engine/moment.h"

_Static_assert((int)K_MOMENT_BLOCK == (int)MODEL_ALIGN, "parts are whole blocks");

static int64_t part_elems(const struct moment_place *p)
{
    return schedule_part_elems(p->schedule, p->unit);
}

static int64_t scales_of_part(const struct moment_place *p)
{
    return schedule_moment_scales(
        p->schedule->strategy.moment_form, &p->schedule->unit[p->unit], part_elems(p));
}

int64_t moment_bytes(const struct moment_place *p)
{
    return p->elems + p->elems / part_elems(p) * scales_of_part(p) * (int64_t)sizeof(float);
}

/* Index of the tensor; -1 in a gap, of which *end becomes the end. */
static int tensor_at(const struct unit_layout *u, int64_t at, int64_t *end)
{
    for (int i = 0; i < u->n; i++) {
        const struct tensor *t = &u->tensor[i];
        int64_t t_end = t->offset + t->rows * t->cols;
        if (at < t->offset) {
            *end = t->offset < *end ? t->offset : *end;
            return -1;
        }
        if (at < t_end) {
            *end = t_end < *end ? t_end : *end;
            return i;
        }
    }
    return -1;
}

int64_t moment_run(struct k_moment *moment, const struct moment_place *p, int64_t at, int64_t end)
{
    const struct unit_layout *u = &p->schedule->unit[p->unit];
    bool is_blocks = p->schedule->strategy.moment_form == MOMENT_BLOCKS;
    int64_t part = at / part_elems(p), part_first = part * part_elems(p);
    end = end < part_first + part_elems(p) ? end : part_first + part_elems(p);
    int tensor = tensor_at(u, at, &end);
    *moment = (struct k_moment){.form = is_blocks ? K_MOMENT_BLOCKS : K_MOMENT_FP8,
        .is_square = p->is_square,
        .first = at,
        .key = p->key};
    if (tensor < 0)
        return end;
    int64_t before = (part - p->first / part_elems(p)) * scales_of_part(p);
    moment->code = (uint8_t *)p->base + (at - p->first);
    moment->scale = (float *)(void *)(p->base + p->elems) + before + tensor;
    if (is_blocks)
        moment->scale += (at - part_first) / K_MOMENT_BLOCK;
    return end;
}

int64_t moment_run_begin(const struct moment_place *p, int64_t at)
{
    const struct unit_layout *u = &p->schedule->unit[p->unit];
    int64_t end = at + 1, begin = at / part_elems(p) * part_elems(p);
    int tensor = tensor_at(u, at, &end);
    return tensor >= 0 && u->tensor[tensor].offset > begin ? u->tensor[tensor].offset : begin;
}
