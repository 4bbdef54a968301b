#include "run/bench_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/str.h"

static const char *const path_names[BENCH_PATHS] = {"shared_memory", "tcp"};

static const char *const what_names[BENCH_WHATS] = {"product", "memory", "optimizer", "disk"};

const char *bench_what_name(enum bench_what w)
{
    return what_names[w];
}

const char *bench_path_name(enum bench_path p)
{
    return path_names[p];
}

void bench_release(struct bench *b)
{
    free(b->collectives);
    free(b->parts);
    free(b->step_s);
    free(b->op_s);
    free(b->op_shared);
    *b = (struct bench){0};
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *x, size_t n)
{
    if (n == 0)
        return NAN;
    qsort(x, n, sizeof *x, by_size);
    return n % 2 ? x[n / 2] : (x[n / 2 - 1] + x[n / 2]) / 2;
}

double bench_step_s(const struct bench *b)
{
    double *x = base_alloc((b->n_steps + 1) * sizeof *x);
    if (b->n_steps)
        memcpy(x, b->step_s, b->n_steps * sizeof *x);
    double median = bench_median(x, b->n_steps);
    free(x);
    return median;
}

/* --- writing --- */

static struct json *numbers(const double *x, size_t n)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < n; i++)
        json_push_num(list, x[i]);
    return list;
}

static struct json *collectives_json(const struct bench *b)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < b->n_collectives; i++) {
        const struct bench_collective *c = &b->collectives[i];
        struct json *v = json_obj();
        json_add_str(v, "kind", op_kind_name(c->kind));
        json_add_str(v, "path", bench_path_name(c->path));
        json_add_int(v, "ranks", c->ranks);
        json_add_int(v, "bytes", c->bytes);
        json_add_num(v, "seconds", c->seconds);
        json_push(list, v);
    }
    return list;
}

static struct json *parts_json(const struct bench *b)
{
    struct json *list = json_arr();
    for (size_t i = 0; i < b->n_parts; i++) {
        const struct bench_part *p = &b->parts[i];
        struct json *v = json_obj(), *size = json_arr();
        json_add_str(v, "what", bench_what_name(p->what));
        json_add_str(v, "form", p->form);
        for (int k = 0; k < 3 && p->size[k] > 0; k++)
            json_push_num(size, (double)p->size[k]);
        json_add(v, "size", size);
        json_add_int(v, "threads", p->threads);
        json_add_int(v, "at_once", p->at_once);
        json_add_num(v, "seconds", p->seconds);
        json_push(list, v);
    }
    return list;
}

static void add_steps(struct json *v, const struct bench *b)
{
    struct json *ops = json_arr();
    char hex[HASH128_HEX];
    hash128_hex(b->schedule, hex);
    json_add_int(v, "ranks", b->ranks);
    json_add_int(v, "threads", b->threads);
    json_add_str(v, "schedule", hex);
    json_add_num(v, "external_bytes", b->external_bytes);
    json_add(v, "step_seconds", numbers(b->step_s, b->n_steps));
    for (size_t i = 0; i < b->n_ops; i++) {
        const double pair[] = {b->op_s[i], b->op_shared[i]};
        json_push(ops, numbers(pair, 2));
    }
    json_add(v, "operations", ops);
}

struct json *bench_to_json(const struct bench *b)
{
    struct json *v = json_obj();
    json_add_str(v, "schema", "bench/1");
    json_add_str(v, "program", b->program);
    json_add_str(v, "kernels", b->kernels);
    if (b->has_steps)
        add_steps(v, b);
    if (b->n_collectives > 0)
        json_add(v, "collectives", collectives_json(b));
    if (b->n_parts > 0)
        json_add(v, "parts", parts_json(b));
    return v;
}

/* --- reading --- */

static enum rc read_steps(struct bench *b, const struct json *v, struct err *e)
{
    const struct json *list;
    enum rc rc = json_need_arr(v, "step_seconds", &list, e);
    if (rc)
        return rc;
    if (json_len(list) == 0 || json_len(list) > BENCH_MAX_STEPS)
        return err_set(
            e, RC_INVALID, "'step_seconds' has no steps, or more than %d", BENCH_MAX_STEPS);
    b->step_s = base_calloc(json_len(list), sizeof *b->step_s);
    for (; b->n_steps < json_len(list); b->n_steps++) {
        double s = json_as_num(json_at(list, b->n_steps), NAN);
        if (!(s > 0 && s < 1e9))
            return err_set(
                e, RC_INVALID, "'step_seconds': entry %zu is no duration", b->n_steps + 1);
        b->step_s[b->n_steps] = s;
    }
    return RC_OK;
}

static enum rc read_ops(struct bench *b, const struct json *v, struct err *e)
{
    const struct json *list;
    enum rc rc = json_need_arr(v, "operations", &list, e);
    if (rc)
        return rc;
    if (json_len(list) > BENCH_MAX_OPS)
        return err_set(e, RC_LIMIT, "more than %d operations", BENCH_MAX_OPS);
    b->op_s = base_calloc(json_len(list) + 1, sizeof *b->op_s);
    b->op_shared = base_calloc(json_len(list) + 1, sizeof *b->op_shared);
    for (; b->n_ops < json_len(list); b->n_ops++) {
        const struct json *pair = json_at(list, b->n_ops);
        double s = json_as_num(json_at(pair, 0), NAN), shared = json_as_num(json_at(pair, 1), NAN);
        if (s < 0 || s > 1e9 || shared < 0 || shared > 1)
            return err_set(e, RC_INVALID, "operation %zu has impossible figures", b->n_ops);
        b->op_s[b->n_ops] = s;
        b->op_shared[b->n_ops] = shared;
    }
    return RC_OK;
}

static enum rc read_collective(struct bench_collective *c, const struct json *v, struct err *e)
{
    static const enum op_kind kinds[] = {
        OP_ALL_GATHER, OP_REDUCE_SCATTER, OP_ALL_REDUCE, OP_ALL_TO_ALL};
    const char *kind = json_str(v, "kind", ""), *path = json_str(v, "path", "");
    bool has_kind = false, has_path = false;
    for (size_t i = 0; i < BASE_COUNT(kinds) && !has_kind; i++) {
        c->kind = kinds[i];
        has_kind = strcmp(kind, op_kind_name(kinds[i])) == 0;
    }
    for (int i = 0; i < BENCH_PATHS && !has_path; i++) {
        c->path = (enum bench_path)i;
        has_path = strcmp(path, path_names[i]) == 0;
    }
    c->seconds = json_num(v, "seconds", NAN);
    if (!has_kind || !has_path || !(c->seconds > 0 && c->seconds < 1e9))
        return err_set(e, RC_INVALID, "no kind, path or duration that makes sense");
    enum rc rc = json_need_int(v, "ranks", 2, 65536, &c->ranks, e);
    return rc ? rc : json_need_int(v, "bytes", 1, INT64_MAX, &c->bytes, e);
}

static enum rc read_collectives(struct bench *b, const struct json *v, struct err *e)
{
    const struct json *list = json_get(v, "collectives");
    size_t n = json_len(list);
    if (n > BENCH_MAX_COLLECTIVES)
        return err_set(e, RC_LIMIT, "more than %d collectives", BENCH_MAX_COLLECTIVES);
    b->collectives = base_calloc(n + 1, sizeof *b->collectives);
    for (; b->n_collectives < n; b->n_collectives++) {
        const struct json *one = json_at(list, b->n_collectives);
        enum rc rc = read_collective(&b->collectives[b->n_collectives], one, e);
        if (rc)
            return err_in(e, "collective %zu", b->n_collectives + 1);
    }
    return RC_OK;
}

static enum rc read_part(struct bench_part *p, const struct json *v, struct err *e)
{
    const char *what = json_str(v, "what", ""), *form = json_str(v, "form", "");
    const struct json *size = json_get(v, "size");
    int w = 0;
    while (w < BENCH_WHATS && strcmp(what_names[w], what) != 0)
        w++;
    p->what = (enum bench_what)w;
    str_copy(p->form, sizeof p->form, form);
    p->seconds = json_num(v, "seconds", NAN);
    for (size_t i = 0; i < 3 && i < json_len(size); i++) {
        double x = json_as_num(json_at(size, i), 0);
        p->size[i] = x >= 1 && x < 1e15 ? (int64_t)x : 0;
    }
    bool is_sized = p->size[0] > 0 && (w != BENCH_PRODUCT || (p->size[1] > 0 && p->size[2] > 0));
    if (w == BENCH_WHATS || !is_sized || !(p->seconds > 0 && p->seconds < 1e9))
        return err_set(e, RC_INVALID, "nothing known, no size or no duration that makes sense");
    enum rc rc = json_need_int(v, "threads", 1, 65536, &p->threads, e);
    return rc ? rc : json_need_int(v, "at_once", 1, 65536, &p->at_once, e);
}

static enum rc read_parts(struct bench *b, const struct json *v, struct err *e)
{
    const struct json *list = json_get(v, "parts");
    size_t n = json_len(list);
    if (n > BENCH_MAX_PARTS)
        return err_set(e, RC_LIMIT, "more than %d parts", BENCH_MAX_PARTS);
    b->parts = base_calloc(n + 1, sizeof *b->parts);
    for (; b->n_parts < n; b->n_parts++) {
        enum rc rc = read_part(&b->parts[b->n_parts], json_at(list, b->n_parts), e);
        if (rc)
            return err_in(e, "part %zu", b->n_parts + 1);
    }
    return RC_OK;
}

static enum rc read_plan(struct bench *b, const struct json *v, struct err *e)
{
    const char *hex = "";
    b->has_steps = json_get(v, "schedule");
    if (!b->has_steps)
        return RC_OK;
    enum rc rc = json_need_int(v, "ranks", 1, 65536, &b->ranks, e);
    if (!rc)
        rc = json_need_int(v, "threads", 1, 65536, &b->threads, e);
    if (!rc)
        rc = json_need_str(v, "schedule", &hex, e);
    if (!rc && !hash128_from_hex(&b->schedule, hex))
        rc = err_set(e, RC_INVALID, "'schedule' is not 32 hex digits");
    if (!rc)
        rc = read_steps(b, v, e);
    return rc ? rc : read_ops(b, v, e);
}

enum rc bench_from_json(struct bench *out, const struct json *v, struct err *e)
{
    struct bench b = {0};
    const char *program = "", *kernels = "";
    enum rc rc = json_need_schema(v, "bench/1", e);
    if (!rc)
        rc = json_need_str(v, "program", &program, e);
    if (!rc)
        rc = json_need_str(v, "kernels", &kernels, e);
    if (!rc)
        rc = read_plan(&b, v, e);
    if (!rc)
        rc = read_collectives(&b, v, e);
    if (!rc)
        rc = read_parts(&b, v, e);
    if (rc) {
        bench_release(&b);
        return rc;
    }
    str_copy(b.program, sizeof b.program, program);
    str_copy(b.kernels, sizeof b.kernels, kernels);
    b.external_bytes = json_num(v, "external_bytes", NAN);
    *out = b;
    return RC_OK;
}
