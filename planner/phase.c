#include "planner/phase.h"

#include <string.h>

#include "base/alloc.h"

const char *phase_name(enum phase p)
{
    static const char *const names[] = {
#define X(name, word) word,
        PHASE_MAP(X)
#undef X
    };
    return names[p];
}

/* Operations during which logits are live: from first to last, -1 and -1 for none. */
struct stretch_of_loss {
    int32_t first, last;
};

static struct stretch_of_loss loss_of(const struct schedule *s, int section)
{
    struct stretch_of_loss loss = {-1, -1};
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        if (b->section != section || b->part != PART_LOGITS)
            continue;
        loss.first = loss.first < 0 || b->first_op < loss.first ? b->first_op : loss.first;
        loss.last = b->last_op > loss.last ? b->last_op : loss.last;
    }
    return loss;
}

static enum phase phase_of(const struct section *sec, struct stretch_of_loss loss, int32_t op)
{
    if (sec->kind == SECTION_BOUNDARY)
        return PHASE_UPDATE;
    return op < loss.first ? PHASE_FORWARD : op <= loss.last ? PHASE_LOSS : PHASE_BACKWARD;
}

/* Sweeps first and last uses of a section's own buffers, above what lies there for good. */
static void add_section(
    int64_t bytes[PHASE_COUNT], const struct schedule *s, int section, enum memory memory)
{
    const struct section *sec = &s->section[section];
    struct stretch_of_loss loss = loss_of(s, section);
    int64_t *delta = base_calloc((size_t)sec->n_ops + 2, sizeof *delta), live = 0;
    for (int32_t i = 0; i < s->n_buffers; i++) {
        const struct buffer *b = &s->buffers[i];
        if (b->memory != memory)
            continue;
        if (b->lifetime == LIFETIME_RUN) {
            live += b->bytes;
        } else if (b->section == section) {
            delta[b->first_op - sec->first_op] += b->bytes;
            delta[b->last_op - sec->first_op + 1] -= b->bytes;
        }
    }
    for (int32_t i = 0; i < sec->n_ops; i++) {
        enum phase p = phase_of(sec, loss, sec->first_op + i);
        live += delta[i];
        bytes[p] = live > bytes[p] ? live : bytes[p];
    }
    free(delta);
}

void phase_peaks(int64_t bytes[PHASE_COUNT], const struct schedule *s, enum memory memory)
{
    memset(bytes, 0, PHASE_COUNT * sizeof *bytes);
    for (int i = 0; i < s->n_sections; i++)
        add_section(bytes, s, i, memory);
}
