#include "engine/checkpoint_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/comm.h"
#include "engine/safetensors.h"
#include "run/names.h"

const char *checkpoint_state_name(enum optimizer o, enum state_kind kind)
{
    static const char *const names[][STATE_KINDS] = {
        [OPTIMIZER_ADAMW] = {"master", "exp_avg", "exp_avg_sq"},
        [OPTIMIZER_SGD] = {"master", "momentum_buffer", NULL}};
    return names[o][kind];
}

/* GPT-2's query, key and value are one tensor in Hugging Face's naming, but three here. */
static const char *fused_part(const struct model *m, enum tensor_role role)
{
    if (m->family != MODEL_GPT2)
        return "";
    switch (role) {
    case T_Q_W:
    case T_Q_B:
        return ".q";
    case T_K_W:
    case T_K_B:
        return ".k";
    case T_V_W:
    case T_V_B:
        return ".v";
    default:
        return "";
    }
}

void checkpoint_piece_name(
    char out[CKPT_NAME], const struct model *m, int unit, enum tensor_role role, const char *state)
{
    char name[128];
    snprintf(out, CKPT_NAME, "%s%s.%s", model_tensor_name(m, unit, role, name), fused_part(m, role),
        state);
}

static void add_piece(const struct schedule *s, int unit, const struct tensor *t,
    enum state_kind kind, int64_t part_first, struct piece *out)
{
    int64_t first = t->offset > part_first ? t->offset : part_first;
    int64_t end = t->offset + t->rows * t->cols,
            part_end = part_first + schedule_part_elems(s, unit);
    end = end < part_end ? end : part_end;
    *out = (struct piece){.rows = t->rows,
        .cols = t->is_vector ? 0 : t->cols,
        .first = first - t->offset,
        .count = end - first,
        .unit = unit,
        .kind = kind,
        .unit_first = first};
    checkpoint_piece_name(
        out->name, &s->model, unit, t->role, checkpoint_state_name(s->strategy.optimizer, kind));
}

size_t checkpoint_pieces(const struct schedule *s, int rank, struct piece **out)
{
    size_t n = 0, cap = 0;
    int64_t part = schedule_part_of(s, rank);
    *out = NULL;
    for (int unit = 0; unit < s->n_units; unit++)
        for (int kind = 0; kind < STATE_KINDS; kind++) {
            if (!state_exists(s, (enum state_kind)kind))
                continue;
            const struct unit_layout *u = &s->unit[unit];
            int64_t elems = schedule_part_elems(s, unit), part_first = part * elems;
            for (int i = 0; i < u->n; i++) {
                const struct tensor *t = &u->tensor[i];
                if (t->offset >= part_first + elems || t->offset + t->rows * t->cols <= part_first)
                    continue;
                BASE_GROW(*out, cap, n + 1);
                add_piece(s, unit, t, (enum state_kind)kind, part_first, &(*out)[n++]);
            }
        }
    return n;
}

char *checkpoint_file_name(char buf[40], int rank)
{
    snprintf(buf, 40, "rank-%04d.safetensors", rank);
    return buf;
}

char *checkpoint_step_dir(const char *dir, int64_t step, const char *suffix)
{
    char name[RUN_STEP_TEXT];
    return base_printf("%s/%s%s", dir, run_step_name(name, step), suffix);
}

static struct json *shape_of(const struct piece *p)
{
    struct json *shape = json_arr();
    json_push_int(shape, p->rows);
    if (p->cols > 0)
        json_push_int(shape, p->cols);
    return shape;
}

static void add_extents(const struct schedule *s, int rank, struct json *tensors)
{
    struct piece *pieces;
    size_t n = checkpoint_pieces(s, rank, &pieces);
    for (size_t i = 0; i < n; i++) {
        struct json *t = (struct json *)(uintptr_t)json_get(tensors, pieces[i].name);
        if (!t) {
            t = json_obj();
            json_add(t, "shape", shape_of(&pieces[i]));
            json_add(t, "extents", json_arr());
            json_add(tensors, pieces[i].name, t);
        }
        struct json *extent = json_arr();
        json_push_int(extent, rank);
        json_push_int(extent, pieces[i].first);
        json_push_int(extent, pieces[i].count);
        json_push((struct json *)(uintptr_t)json_get(t, "extents"), extent);
    }
    free(pieces);
}

static struct json *manifest_json(
    const struct schedule *s, const struct checkpoint_info *info, const struct file_entry *files)
{
    struct json *root = json_obj(), *list = json_arr(), *tensors = json_obj();
    json_add_str(root, "schema", "checkpoint/1");
    json_add_int(root, "step", info->step);
    json_add_int(root, "samples", info->samples);
    json_add_int(root, "seed", (int64_t)info->seed);
    json_add(root, "guard", guard_to_json(&info->guard));
    json_add(root, "model", model_to_json(&s->model));
    json_add(root, "strategy", strategy_to_json(&s->strategy));
    for (int r = 0; r < (int)s->parts; r++) {
        struct json *f = json_obj();
        char name[40], hex[HASH128_HEX];
        hash128_hex(files[r].hash, hex);
        json_add_str(f, "name", checkpoint_file_name(name, r));
        json_add_int(f, "bytes", (int64_t)files[r].bytes);
        json_add_str(f, "xxh128", hex);
        json_push(list, f);
        add_extents(s, r, tensors);
    }
    json_add(root, "files", list);
    json_add(root, "tensors", tensors);
    return root;
}

/* The last member of the object is the hash of the text in front of it. */
#define SEAL     ",\n  \"manifest_xxh128\": \""
#define SEAL_END "\"\n}\n"

char *checkpoint_manifest(
    const struct schedule *s, const struct checkpoint_info *info, const struct file_entry *files)
{
    char hex[HASH128_HEX];
    struct json *root = manifest_json(s, info, files);
    char *text = json_print(root, true), *end = strrchr(text, '}');
    while (end > text && end[-1] == '\n')
        end--;
    *end = '\0';
    hash128_hex(hash128(text, strlen(text)), hex);
    char *sealed = base_printf("%s" SEAL "%s" SEAL_END, text, hex);
    free(text);
    json_free(root);
    return sealed;
}

bool checkpoint_manifest_is_sealed(const char *text, size_t n)
{
    enum { TAIL = sizeof(SEAL) - 1 + HASH128_HEX - 1 + sizeof(SEAL_END) - 1 };
    char hex[HASH128_HEX];
    if (n < TAIL || strlen(text) != n)
        return false;
    size_t body = n - TAIL;
    char *want = base_alloc(TAIL + 1);
    hash128_hex(hash128(text, body), hex);
    snprintf(want, TAIL + 1, SEAL "%s" SEAL_END, hex);
    bool is_same = strcmp(text + body, want) == 0;
    free(want);
    return is_same;
}

/* --- what a manifest says --- */

const struct json *checkpoint_file(const struct json *manifest, int f)
{
    return json_at(json_get(manifest, "files"), (size_t)f);
}

/* Names come from a file: only the form we write is followed. */
static bool is_our_name(const char *name, int f)
{
    char want[40];
    return strcmp(name, checkpoint_file_name(want, f)) == 0;
}

static bool hash_agrees(const char *path, const char *want)
{
    char hex[HASH128_HEX];
    struct err ignored = ERR_INIT;
    return hash128_file(path, hex, &ignored) == RC_OK && strcmp(hex, want) == 0;
}

bool checkpoint_file_is_sound(const char *dir, const struct json *manifest, int f)
{
    const struct json *file = checkpoint_file(manifest, f);
    const char *name = json_str(file, "name", "");
    if (!is_our_name(name, f))
        return false;
    char *path = path_join(dir, name);
    bool is_good = file_size(path) == json_int(file, "bytes", -2) &&
                   hash_agrees(path, json_str(file, "xxh128", ""));
    free(path);
    return is_good;
}

enum rc checkpoint_each_extent(
    const struct json *manifest, const struct piece *p, extent_fn *fn, void *arg, struct err *e)
{
    const struct json *extents =
        json_get(json_get(json_get(manifest, "tensors"), p->name), "extents");
    int64_t n_files = (int64_t)json_len(json_get(manifest, "files"));
    int64_t covered = 0;
    enum rc rc = RC_OK;
    for (size_t i = 0; i < json_len(extents) && !rc; i++) {
        const struct json *x = json_at(extents, i);
        int64_t file = json_as_int(json_at(x, 0), -1), first = json_as_int(json_at(x, 1), -1);
        int64_t count = json_as_int(json_at(x, 2), -1);
        if (file < 0 || file >= n_files || first < 0 || count < 1 || first > INT64_MAX - count)
            return err_set(e, RC_INVALID, "the manifest has an absurd extent for '%s'", p->name);
        int64_t from = first > p->first ? first : p->first;
        int64_t end = first + count < p->first + p->count ? first + count : p->first + p->count;
        if (from >= end)
            continue;
        covered += end - from;
        rc = fn(arg, p, (int)file, from - first, from - p->first, end - from, e);
    }
    if (!rc && covered != p->count)
        rc = err_set(e, RC_INVALID,
            "the checkpoint holds %" PRId64 " of %" PRId64 " elements needed of '%s'", covered,
            p->count, p->name);
    return rc;
}

enum rc checkpoint_read_extent(const char *dir, struct st_reader **reader, const char *name,
    const struct extent *x, float *out, struct err *e)
{
    if (!*reader) {
        char file[40];
        char *path = path_join(dir, checkpoint_file_name(file, x->file));
        enum rc rc = st_open(reader, path, e);
        free(path);
        if (rc)
            return rc;
    }
    const struct st_tensor *t = st_find(*reader, name);
    if (!t || strcmp(t->dtype, "F32") != 0)
        return err_set(e, RC_INVALID, "checkpoint file %d lacks '%s' in F32", x->file, name);
    return st_read(
        *reader, t, (uint64_t)x->first * sizeof(float), out, (size_t)x->count * sizeof(float), e);
}

/* --- hosts --- */

int checkpoint_hosts(const struct executor *x, const struct checkpoint_options *o)
{
    return o->host_of[comm_ranks(executor_comm(x)) - 1] + 1;
}

int checkpoint_first_rank(const struct checkpoint_options *o, int host)
{
    int r = 0;
    while (o->host_of[r] != host)
        r++;
    return r;
}

int checkpoint_ranks_on(const struct executor *x, const struct checkpoint_options *o, int host)
{
    int n = 0;
    for (int r = 0; r < comm_ranks(executor_comm(x)); r++)
        n += o->host_of[r] == host;
    return n;
}

bool checkpoint_is_host_first(const struct executor *x, const struct checkpoint_options *o)
{
    int rank = comm_rank(executor_comm(x));
    return rank == 0 || o->host_of[rank - 1] != o->host_of[rank];
}

enum rc checkpoint_agree(struct executor *x, const char *what, enum rc mine, struct err *e)
{
    struct comm *c = executor_comm(x);
    /* sum of flags, and of failing ranks where there is only one */
    double failed[2] = {mine ? 1 : 0, mine ? comm_rank(c) : 0};
    struct err lost = ERR_INIT;
    enum rc rc = comm_sum(c, CHANNEL_CHECKPOINT, GROUP_WORLD, failed, 2, &lost);
    if (mine)
        return mine;
    if (rc) {
        *e = lost;
        return rc;
    }
    if (failed[0] < 0.5)
        return RC_OK;
    if (failed[0] < 1.5)
        return err_set(e, RC_PEER, "%s failed on rank %.0f", what, failed[1]);
    return err_set(e, RC_PEER, "%s failed on %.0f ranks", what, failed[0]);
}
