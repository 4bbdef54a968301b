#include "planner/schedule.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/layout.h"

static const char *const OP_NAMES[] = {
#define X(name, word) word,
    OP_MAP(X)
#undef X
};

static const char *const PART_NAMES[] = {
#define X(name, word) word,
    PART_MAP(X)
#undef X
};

static const char *const LANE_NAMES[] = {
    "compute", "gather", "reduce", "copy_down", "copy_up", "host_compute", "disk"};
static const char *const SECTION_NAMES[] = {
    "first", "middle", "last", "only", "boundary", "evaluation", "flush"};

bool op_is_update(enum op_kind k)
{
    return k == OP_ADAMW || k == OP_SGD || k == OP_UPDATE_8BIT;
}

enum op_kind op_of_update(const struct strategy *s)
{
    if (s->moment_form != MOMENT_FP32)
        return OP_UPDATE_8BIT;
    return s->optimizer == OPTIMIZER_SGD ? OP_SGD : OP_ADAMW;
}

const char *op_kind_name(enum op_kind k)
{
    return OP_NAMES[k];
}

const char *lane_name(enum lane l)
{
    return LANE_NAMES[l];
}

const char *part_name(enum part p)
{
    return PART_NAMES[p];
}

const char *section_name(enum section_kind k)
{
    return SECTION_NAMES[k];
}

const struct section *schedule_section(const struct schedule *s, enum section_kind k)
{
    for (int i = 0; i < s->n_sections; i++)
        if (s->section[i].kind == k)
            return &s->section[i];
    return NULL;
}

double schedule_written_bytes(const struct schedule *s)
{
    double bytes = 0;
    for (int k = 0; (s->strategy.offload & OFFLOAD_DISK) && k < s->n_sections; k++) {
        const struct section *sec = &s->section[k];
        for (int32_t i = sec->first_op; i < sec->first_op + sec->n_ops; i++)
            if (s->ops[i].kind == OP_DISK_WRITE)
                bytes += s->ops[i].bytes * (double)sec->repeat;
    }
    return bytes;
}

void schedule_free(struct schedule *s)
{
    if (!s)
        return;
    free(s->ops);
    free(s->buffers);
    free(s->unit);
    free(s->state);
    free(s);
}

enum rc schedule_make(
    struct schedule **out, const struct model *m, const struct strategy *s, struct err *e)
{
    enum rc rc = schedule_build(out, m, s, e);
    if (rc)
        return rc;
    layout_assign(*out);
    schedule_link(*out);
    return RC_OK;
}

/* A shard is cut into one part for each replica. */
int64_t schedule_sum_scratch_bytes(int ranks)
{
    const int64_t each = 64 << 10, least = 512 << 10;
    return ranks * each > least ? ranks * each : least;
}

int64_t schedule_part_of(const struct schedule *s, int64_t rank)
{
    int64_t per_shard = s->parts / s->shards, shard = rank % s->shards;
    return shard * per_shard + rank / s->shards % per_shard;
}

int64_t schedule_part_elems(const struct schedule *s, int unit)
{
    return s->unit[unit].elems / s->parts;
}

int64_t schedule_moment_scales(enum moment_form f, const struct unit_layout *u, int64_t part_elems)
{
    return u->n + (f == MOMENT_BLOCKS ? part_elems / MODEL_ALIGN : 0);
}

static void hash_ints(struct hash_stream *h, const int64_t *x, size_t n)
{
    hash_stream_add(h, x, n * sizeof(*x));
}

static void hash_op(struct hash_stream *h, const struct op *op)
{
    int64_t head[] = {op->kind, op->lane, op->group, op->flags, op->n_args, op->unit};
    hash_ints(h, head, BASE_COUNT(head));
    hash_ints(h, op->dim, BASE_COUNT(op->dim));
    for (int i = 0; i < op->n_args; i++) {
        const struct ref *r = &op->arg[i];
        int64_t row[] = {r->buffer, r->access, r->owner, r->offset, r->bytes};
        hash_ints(h, row, BASE_COUNT(row));
    }
    for (int i = 0; i < LANE_COUNT; i++) {
        int64_t wait = op->waits[i];
        if (i != LANE_DISK || wait >= 0) /* hashes are older than the lane */
            hash_ints(h, &wait, 1);
    }
}

struct hash128 schedule_hash(const struct schedule *s)
{
    struct hash_stream *h = hash_stream_new();
    for (int32_t i = 0; i < s->n_ops; i++)
        hash_op(h, &s->ops[i]);
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        int64_t row[] = {b->memory, b->lifetime, b->section, b->bytes, b->offset};
        hash_ints(h, row, BASE_COUNT(row));
    }
    for (int i = 0; i < s->n_sections; i++) {
        const struct section *sec = &s->section[i];
        int64_t row[] = {sec->kind, sec->first_op, sec->n_ops, sec->repeat};
        hash_ints(h, row, BASE_COUNT(row));
    }
    hash_ints(h, s->slab_bytes, s->slab_bytes[MEMORY_DISK] > 0 ? MEMORY_COUNT : MEMORY_DISK);
    struct hash128 out = hash_stream_end(h);
    hash_stream_free(h);
    return out;
}
