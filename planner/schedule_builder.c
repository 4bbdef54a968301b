/* The containers of a schedule that is being built: buffers and operations. */
#include "planner/schedule_builder.h"

#include <assert.h>
#include <string.h>

#include "base/alloc.h"
#include "base/str.h"

int32_t builder_buffer(struct builder *b, const char *name, enum part part, int unit, int64_t bytes)
{
    struct schedule *s = b->s;
    BASE_GROW(s->buffers, b->buffers_cap, s->n_buffers + 1);
    struct buffer *buf = &s->buffers[s->n_buffers];
    memset(buf, 0, sizeof(*buf));
    str_copy(buf->name, sizeof(buf->name), name);
    buf->memory = MEMORY_DEVICE;
    buf->lifetime = b->section < 0 ? LIFETIME_RUN : LIFETIME_OP;
    buf->part = (uint8_t)part;
    buf->unit = (int16_t)unit;
    buf->section = (int16_t)b->section;
    buf->bytes = (int64_t)base_align_up((uint64_t)bytes, BUFFER_ALIGN);
    buf->align = BUFFER_ALIGN;
    buf->first_op = buf->last_op = -1;
    buf->offset = -1;
    return s->n_buffers++;
}

void builder_align(struct builder *b, int32_t buffer, int32_t align)
{
    struct buffer *buf = &b->s->buffers[buffer];
    buf->align = align;
    buf->bytes = (int64_t)base_align_up((uint64_t)buf->bytes, (uint64_t)align);
}

/* There are thousands of them: printf would take longer than all else. */
int32_t builder_unit_buffer(
    struct builder *b, const char *what, enum part part, int unit, int64_t bytes)
{
    char name[32], digits[12];
    size_t n = 0, k = 0;
    int of = unit;
    assert(unit >= 0);
    for (; what[n] && n < sizeof(name) - sizeof(digits) - 1; n++)
        name[n] = what[n];
    name[n++] = '.';
    do {
        digits[k++] = (char)('0' + unit % 10);
    } while (unit /= 10);
    while (k > 0)
        name[n++] = digits[--k];
    name[n] = '\0';
    return builder_buffer(b, name, part, of, bytes);
}

struct op *builder_op(struct builder *b, enum op_kind kind, enum lane lane, int unit)
{
    struct schedule *s = b->s;
    BASE_GROW(s->ops, b->ops_cap, s->n_ops + 1);
    struct op *op = &s->ops[s->n_ops++];
    memset(op, 0, sizeof(*op));
    op->kind = (uint8_t)kind;
    op->lane = (uint8_t)lane;
    op->unit = (int16_t)unit;
    for (int i = 0; i < LANE_COUNT; i++)
        op->waits[i] = -1;
    return op;
}
