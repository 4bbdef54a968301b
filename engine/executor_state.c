/* What an executor holds between steps: where states are, in which form, and how they come and go.
 */
#include <string.h>

#include "base/alloc.h"
#include "engine/comm.h"
#include "engine/disk.h"
#include "engine/executor_inside.h"
#include "engine/moment.h"
#include "kernels/kernels.h"

bool state_exists(const struct schedule *s, enum state_kind kind)
{
    return kind != STATE_V || strategy_moments(&s->strategy) > 1;
}

static int32_t state_buffer(const struct unit_buffers *b, enum state_kind kind)
{
    if (kind == STATE_MASTER)
        return b->master >= 0 ? b->master : b->param;
    return kind == STATE_M ? b->m : b->v;
}

/* Of a unit: the first element of the rank's part. */
static int64_t first_of_part(const struct executor *x, int unit)
{
    return schedule_part_of(x->s, comm_rank(x->o.comm)) * schedule_part_elems(x->s, unit);
}

/* Where the rank's part begins in what it holds of a unit: the whole, its shard, or its part. */
static int64_t place_in(const struct executor *x, int unit, int64_t shards)
{
    int64_t first = first_of_part(x, unit);
    if (shards == 1)
        return first;
    return shards == x->s->shards ? first - x->shard_rank * x->s->unit[unit].shard_elems : 0;
}

/* It is kept in another form than fp32. */
static bool is_converted(const struct schedule *s, enum state_kind kind)
{
    if (kind == STATE_MASTER)
        return strategy_converts_master(&s->strategy);
    return s->strategy.moment_form != MOMENT_FP32;
}

/* Ranks over which that kind of state is split. */
static int64_t shards_of(const struct schedule *s, int unit, enum state_kind kind)
{
    bool is_param = kind == STATE_MASTER && s->state[unit].master < 0;
    return is_param ? strategy_parameter_shards(&s->strategy)
                    : strategy_optimizer_shards(&s->strategy);
}

/* Where its norm is taken; on the host when it is kept there. */
static struct state_view gradient_of(struct executor *x, int unit)
{
    const struct schedule *s = x->s;
    void *data = executor_buffer(x, s->state[unit].grad);
    for (int32_t i = 0; i < s->n_ops && !strategy_parks_gradients(&s->strategy); i++)
        if (s->ops[i].kind == OP_GRAD_NORM && s->ops[i].unit == unit)
            data = executor_address(x, &s->ops[i].arg[0]);
    return (struct state_view){data, first_of_part(x, unit), schedule_part_elems(s, unit)};
}

/* Where a buffer on disk goes: parameters to a place of their own, which no swap buffer of their
 * unit overlaps, states into that one, after those of the kinds before. */
static char *swap_place(struct executor *x, const struct unit_buffers *b, int32_t id)
{
    if (id == b->param)
        return executor_buffer(x, b->param_host);
    const int32_t order[] = {b->master, b->m, b->v};
    char *at = executor_buffer(x, b->swap);
    for (int i = 0; order[i] != id; i++)
        at += order[i] >= 0 ? x->s->buffers[order[i]].bytes : 0;
    return at;
}

struct state_view executor_state(struct executor *x, int unit, enum state_kind kind)
{
    if (kind == STATE_GRADIENT)
        return gradient_of(x, unit);
    const struct unit_buffers *b = &x->s->state[unit];
    int32_t id = state_buffer(b, kind);
    bool is_on_disk = x->s->buffers[id].memory == MEMORY_DISK;
    struct state_view none = {NULL, first_of_part(x, unit), schedule_part_elems(x->s, unit)};
    if (is_converted(x->s, kind))
        return none;
    void *data = is_on_disk ? swap_place(x, b, id) : executor_buffer(x, id);
    return (struct state_view){(float *)data + place_in(x, unit, shards_of(x->s, unit, kind)),
        first_of_part(x, unit), schedule_part_elems(x->s, unit)};
}

void executor_on_update(struct executor *x, update_fn *fn, void *arg)
{
    x->context.before_update = fn;
    x->context.update_arg = arg;
}

/* --- other forms --- */

/* What a rank updates of a unit: its part, or all of it where optimizer states are replicated. */
struct own {
    int64_t first, count;
};

static struct own own_of(const struct executor *x, int unit)
{
    if (strategy_optimizer_shards(&x->s->strategy) == 1)
        return (struct own){0, x->s->unit[unit].elems};
    return (struct own){first_of_part(x, unit), schedule_part_elems(x->s, unit)};
}

/* Weights of a unit from element first on, which is one of the own. */
static struct k_weights weights_from(struct executor *x, int unit, int64_t first)
{
    const struct strategy *st = &x->s->strategy;
    const struct unit_buffers *b = &x->s->state[unit];
    bool is_shard = strategy_parameter_shards(st) > 1, is_split = st->master_bytes == MASTER_SPLIT;
    int64_t before = is_shard ? x->shard_rank * x->s->unit[unit].shard_elems : 0;
    struct k_weights w = {.form = is_split ? K_WEIGHTS_SPLIT : K_WEIGHTS_PURE};
    w.param = (uint16_t *)executor_buffer(x, b->param) + (first - before);
    if (is_split)
        w.low = (uint16_t *)executor_buffer(x, b->master) + (first - own_of(x, unit).first);
    return w;
}

static enum rc move_state(
    struct executor *x, int unit, enum state_kind kind, bool is_write, struct err *e)
{
    const struct unit_buffers *b = &x->s->state[unit];
    int32_t id = state_buffer(b, kind);
    if (x->s->buffers[id].memory != MEMORY_DISK || (!is_write && x->fetched == id))
        return RC_OK;
    struct disk_part part = {
        executor_buffer(x, id), swap_place(x, b, id), x->s->buffers[id].bytes, is_write};
    x->fetched = -1;
    enum rc rc = disk_move(x->context.disk, &part, 1, e);
    x->fetched = rc ? -1 : id;
    return rc;
}

enum rc executor_fetch_state(struct executor *x, int unit, enum state_kind kind, struct err *e)
{
    return move_state(x, unit, kind, false, e);
}

enum rc executor_store_state(struct executor *x, int unit, enum state_kind kind, struct err *e)
{
    return move_state(x, unit, kind, true, e);
}

int64_t executor_range_end(int64_t first, int64_t end)
{
    int64_t next = (first + STATE_RANGE) / MODEL_ALIGN * MODEL_ALIGN;
    return next < end ? next : end;
}

/* A moment in 8 bits, where it is in memory. */
static struct moment_place place_of(struct executor *x, int unit, enum state_kind kind)
{
    const struct unit_buffers *b = &x->s->state[unit];
    struct own own = own_of(x, unit);
    int32_t id = state_buffer(b, kind);
    bool is_on_disk = x->s->buffers[id].memory == MEMORY_DISK;
    return (struct moment_place){.schedule = x->s,
        .unit = unit,
        .is_square = kind == STATE_V,
        .first = own.first,
        .elems = own.count,
        .base = is_on_disk ? swap_place(x, b, id) : executor_buffer(x, id)};
}

static void read_moment(
    struct executor *x, const struct moment_place *p, struct state_range r, float *out)
{
    for (int64_t at = r.first, end = r.first + r.count, next; at < end; at = next) {
        struct k_moment m;
        next = moment_run(&m, p, at, end);
        if (m.code)
            x->o.kernels->moment_read(NULL, out + (at - r.first), &m, next - at);
        else
            memset(out + (at - r.first), 0, (size_t)(next - at) * sizeof(*out));
    }
}

static void write_moment(
    struct executor *x, const struct moment_place *p, struct state_range r, const float *in)
{
    int64_t begin = moment_run_begin(p, r.first);
    struct k_moment_range to = {.at = r.first - begin, .n = r.count};
    to.elems = moment_run(&to.moment, p, begin, p->first + p->elems) - begin;
    x->o.kernels->moment_write(NULL, &to, in);
}

enum rc executor_begin_state(struct executor *x, int unit, enum state_kind kind, struct err *e)
{
    enum rc rc = executor_fetch_state(x, unit, kind, e);
    if (!rc && kind != STATE_MASTER && is_converted(x->s, kind)) {
        struct moment_place p = place_of(x, unit, kind);
        memset(p.base, 0, (size_t)moment_bytes(&p));
    }
    return rc;
}

enum rc executor_read_state(struct executor *x, int unit, enum state_kind kind,
    struct state_range r, float *out, struct err *e)
{
    enum rc rc = executor_fetch_state(x, unit, kind, e);
    struct state_view v = executor_state(x, unit, kind);
    if (rc)
        return rc;
    if (v.data) {
        memcpy(out, v.data + (r.first - v.first), (size_t)r.count * sizeof(*out));
    } else if (kind == STATE_MASTER) {
        struct k_weights w = weights_from(x, unit, r.first);
        x->o.kernels->weights_read(NULL, out, &w, r.count);
    } else {
        struct moment_place p = place_of(x, unit, kind);
        read_moment(x, &p, r, out);
    }
    return RC_OK;
}

void executor_write_state(
    struct executor *x, int unit, enum state_kind kind, struct state_range r, const float *in)
{
    struct state_view v = executor_state(x, unit, kind);
    if (v.data) {
        memcpy(v.data + (r.first - v.first), in, (size_t)r.count * sizeof(*in));
    } else if (kind == STATE_MASTER) {
        struct k_weights w = weights_from(x, unit, r.first);
        x->o.kernels->weights_write(NULL, &w, in, r.count);
    } else {
        struct moment_place p = place_of(x, unit, kind);
        write_moment(x, &p, r, in);
    }
}

/* --- publishing --- */

/* The parts of the peers in a group. */
static enum rc gather_parts(
    struct executor *x, enum op_group group, char *whole, size_t bytes, struct err *e)
{
    size_t part = bytes / (size_t)comm_group_size(x->o.comm, group);
    char *own = whole + part * (size_t)comm_group_rank(x->o.comm, group);
    return comm_all_gather(x->o.comm, CHANNEL_GATHER, group, own, whole, part, e);
}

/* The parts of a state that is kept whole, as they are kept. */
static enum rc gather_state(struct executor *x, int unit, enum state_kind kind, struct err *e)
{
    size_t elems = (size_t)x->s->unit[unit].elems;
    struct state_view v = executor_state(x, unit, kind);
    if (v.data)
        return gather_parts(x, GROUP_SHARD, (char *)(v.data - v.first), elems * sizeof(float), e);
    if (kind == STATE_MASTER)
        return gather_parts(
            x, GROUP_SHARD, executor_buffer(x, x->s->state[unit].master), elems * 2, e);
    struct moment_place p = place_of(x, unit, kind);
    enum rc rc = gather_parts(x, GROUP_SHARD, p.base, elems, e);
    size_t scales = (size_t)moment_bytes(&p) - elems;
    return rc ? rc : gather_parts(x, GROUP_SHARD, p.base + elems, scales, e);
}

/* A replicated optimizer: its other parts come from the peers. */
static enum rc publish_states(struct executor *x, int unit, struct err *e)
{
    static const enum state_kind kinds[] = {STATE_M, STATE_V, STATE_MASTER};
    const struct unit_buffers *b = &x->s->state[unit];
    enum rc rc = RC_OK;
    if (x->s->shards == 1 || shards_of(x->s, unit, STATE_M) > 1)
        return RC_OK;
    for (size_t i = 0; i < BASE_COUNT(kinds) && !rc; i++) {
        bool is_param = kinds[i] == STATE_MASTER && b->master < 0;
        if (is_param || !state_exists(x->s, kinds[i]))
            continue;
        rc = executor_fetch_state(x, unit, kinds[i], e);
        if (!rc)
            rc = gather_state(x, unit, kinds[i], e);
        if (!rc)
            rc = executor_store_state(x, unit, kinds[i], e);
    }
    return rc;
}

/* New parameters in memory go where they are kept. */
static enum rc store_params(struct executor *x, const struct unit_buffers *b, struct err *e)
{
    struct disk_part part = {executor_buffer(x, b->param), swap_place(x, b, b->param),
        x->s->buffers[b->param].bytes, true};
    return disk_move(x->context.disk, &part, 1, e);
}

/* The own part of the parameters, rounded from the master values; then those of the peers. */
static enum rc publish_params(struct executor *x, int unit, struct err *e)
{
    const struct unit_layout *u = &x->s->unit[unit];
    const struct unit_buffers *b = &x->s->state[unit];
    int64_t bytes = precision_bytes(x->s->strategy.precision);
    bool has_all = strategy_parameter_shards(&x->s->strategy) == 1;
    bool is_on_disk = x->s->buffers[b->param].memory == MEMORY_DISK;
    char *param = is_on_disk ? swap_place(x, b, b->param) : executor_buffer(x, b->param);
    char *own = param + place_in(x, unit, strategy_parameter_shards(&x->s->strategy)) * bytes;
    bool has_copy = b->master >= 0 && !is_converted(x->s, STATE_MASTER);
    enum rc rc = has_copy ? executor_fetch_state(x, unit, STATE_MASTER, e) : RC_OK;
    if (rc)
        return rc;
    struct state_view v = executor_state(x, unit, STATE_MASTER);
    if (has_copy && x->s->strategy.precision != PRECISION_FP32)
        x->o.kernels->fp32_to_bf16(NULL, (uint16_t *)(void *)own, v.data, v.count);
    else if (has_copy)
        memcpy(own, v.data, (size_t)v.count * sizeof(float));
    if (is_on_disk && has_copy)
        return store_params(x, b, e);
    if (x->s->parts > x->s->shards)
        rc = gather_parts(x, GROUP_REPLICA, param, (size_t)(u->shard_elems * bytes), e);
    else if (has_all && x->s->shards > 1)
        rc = gather_parts(x, GROUP_SHARD, param, (size_t)(u->elems * bytes), e);
    return rc;
}

enum rc executor_publish(struct executor *x, struct err *e)
{
    enum rc rc = RC_OK;
    x->is_pending = false; /* it was of other values */
    for (int u = 0; u < x->s->n_units && !rc; u++) {
        rc = publish_states(x, u, e);
        if (!rc)
            rc = publish_params(x, u, e);
    }
    return rc;
}
