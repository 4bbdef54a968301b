/* Loading: agree on a step, see which files are sound where, bring the missing ones, read. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/checkpoint_files.h"
#include "engine/comm.h"
#include "engine/file_transfer.h"
#include "engine/safetensors.h"
#include "run/names.h"

struct load {
    struct executor *x;
    const struct checkpoint_options *o;
    struct comm *c;
    void *buffer; /* for what arrives */
    int64_t step;
    char *dir; /* of the step, on this host */
    struct json *manifest;
    int n_files;
    unsigned char *has; /* [rank * n_files + file]: on the rank's host, sound */
};

/* --- which step --- */

/* What a host has below a bound. */
struct newest {
    int64_t sound;    /* step of the newest folder with a sound manifest, -1 for none */
    int64_t manifest; /* of the newest with any */
};

/* A copy on another host may be better than a damaged one. */
static bool is_sound_manifest(const char *path)
{
    struct str text = STR_INIT;
    struct err ignored;
    bool is_good = file_read(&text, path, CKPT_MANIFEST_MAX, &ignored) == RC_OK &&
                   checkpoint_manifest_is_sealed(str_text(&text), text.len);
    str_release(&text);
    return is_good;
}

static struct newest newest_below(const char *dir, int64_t bound)
{
    struct newest n = {-1, -1};
    DIR *d = opendir(dir);
    const struct dirent *entry;
    while (d && (entry = readdir(d))) {
        int64_t step = run_step_of(entry->d_name);
        if (step < 0 || step >= bound || step <= n.sound)
            continue;
        char *manifest = base_printf("%s/%s/" RUN_FILE_MANIFEST, dir, entry->d_name);
        if (step > n.manifest && file_exists(manifest))
            n.manifest = step;
        if (is_sound_manifest(manifest))
            n.sound = step;
        free(manifest);
    }
    if (d)
        closedir(d);
    return n;
}

static enum rc largest(struct comm *c, int64_t mine, int64_t *out, int *owner, struct err *e)
{
    int n = comm_ranks(c);
    int64_t *all = base_alloc(sizeof(*all) * (size_t)n);
    enum rc rc = comm_all_gather(c, CHANNEL_CHECKPOINT, GROUP_WORLD, &mine, all, sizeof(mine), e);
    *out = -1;
    for (int r = 0; r < n && !rc; r++)
        if (all[r] > *out) {
            *out = all[r];
            *owner = r;
        }
    free(all);
    return rc;
}

/* --- the manifest --- */

static enum rc read_manifest(struct load *l, struct str *text, struct err *e)
{
    char *path = path_join(l->dir, RUN_FILE_MANIFEST);
    enum rc rc = file_read(text, path, CKPT_MANIFEST_MAX, e);
    free(path);
    return rc;
}

/* The owner's manifest to everybody. */
static enum rc share_manifest(struct load *l, int owner, struct str *text, struct err *e)
{
    int me = comm_rank(l->c);
    enum rc rc = checkpoint_agree(
        l->x, "reading the manifest", me == owner ? read_manifest(l, text, e) : RC_OK, e);
    int64_t len = me == owner ? (int64_t)text->len : -1;
    int whose = owner;
    if (!rc)
        rc = largest(l->c, len, &len, &whose, e);
    char *buf = base_alloc((size_t)(rc ? 0 : len) + 1);
    for (int r = 0; r < comm_ranks(l->c) && !rc; r++) {
        if (r == owner)
            continue;
        if (me == owner)
            rc = comm_exchange(l->c, CHANNEL_CHECKPOINT,
                &(struct comm_exchange){r, text->p, (size_t)len, -1, NULL, 0}, e);
        else if (me == r)
            rc = comm_exchange(l->c, CHANNEL_CHECKPOINT,
                &(struct comm_exchange){-1, NULL, 0, owner, buf, (size_t)len}, e);
    }
    if (!rc && me != owner)
        str_addn(text, buf, (size_t)len);
    free(buf);
    return rc;
}

/* What another optimizer keeps is of no use to this one. */
static enum rc check_optimizer(const struct load *l, struct err *e)
{
    enum optimizer planned = executor_schedule(l->x)->strategy.optimizer;
    const char *word =
        json_str(json_get(l->manifest, "strategy"), "optimizer", optimizer_name(OPTIMIZER_ADAMW));
    if (strcmp(word, optimizer_name(planned)) == 0)
        return RC_OK;
    return err_set(e, RC_INVALID,
        "it holds the states of optimizer %s, the plan's is %s; start a run from its weights "
        "instead (berth export-weights, then --weights)",
        word, optimizer_name(planned));
}

static enum rc parse_manifest(
    struct load *l, const struct str *text, struct checkpoint_info *info, struct err *e)
{
    struct model m;
    char how[MODEL_DIFFERENCE];
    const struct json *files, *tensors;
    int64_t seed;
    enum rc rc = json_parse(&l->manifest, str_text(text), text->len, e);
    if (!rc && strcmp(json_str(l->manifest, "schema", ""), "checkpoint/1") != 0)
        rc = err_set(e, RC_INVALID, "not a checkpoint/1 manifest");
    if (!rc)
        rc = json_need_int(l->manifest, "step", 0, INT64_MAX, &info->step, e);
    if (!rc)
        rc = json_need_int(l->manifest, "samples", 0, INT64_MAX, &info->samples, e);
    if (!rc)
        rc = json_need_int(l->manifest, "seed", INT64_MIN + 1, INT64_MAX, &seed, e);
    if (!rc)
        rc = guard_from_json(&info->guard, json_get(l->manifest, "guard"), e);
    if (!rc)
        rc = json_need_arr(l->manifest, "files", &files, e);
    if (!rc)
        rc = json_need_obj(l->manifest, "tensors", &tensors, e);
    if (!rc)
        rc = model_from_json(&m, json_get(l->manifest, "model"), e);
    if (!rc && model_differs(&m, &executor_schedule(l->x)->model, how))
        rc = err_set(
            e, RC_INVALID, "it holds model '%s', not the one of the plan: its %s", m.name, how);
    if (!rc)
        rc = check_optimizer(l, e);
    if (!rc && (json_len(files) == 0 || json_len(files) > CKPT_MAX_FILES))
        rc = err_set(e, RC_INVALID, "the manifest lists %zu files", json_len(files));
    if (rc)
        return err_in(e, "checkpoint of step %" PRId64, l->step);
    info->seed = (uint64_t)seed;
    l->n_files = (int)json_len(files);
    return RC_OK;
}

/* --- which files are where --- */

static enum rc take_stock(struct load *l, struct err *e)
{
    size_t n = (size_t)l->n_files;
    l->has = base_calloc((size_t)comm_ranks(l->c), n);
    unsigned char *mine = base_calloc(1, n);
    for (int f = 0; f < l->n_files && checkpoint_is_host_first(l->x, l->o); f++)
        mine[f] = checkpoint_file_is_sound(l->dir, l->manifest, f);
    enum rc rc = comm_all_gather(l->c, CHANNEL_CHECKPOINT, GROUP_WORLD, mine, l->has, n, e);
    free(mine);
    return rc;
}

static int holder_of(const struct load *l, int f)
{
    for (int r = 0; r < comm_ranks(l->c); r++)
        if (l->has[r * l->n_files + f])
            return r;
    return -1;
}

static int missing_file(const struct load *l)
{
    for (int f = 0; f < l->n_files; f++)
        if (holder_of(l, f) < 0)
            return f;
    return -1;
}

/* --- what a rank needs --- */

static enum rc mark(void *arg, const struct piece *p, int file, int64_t entry_offset,
    int64_t piece_offset, int64_t count, struct err *e)
{
    unsigned char *needed = arg;
    needed[file] = 1;
    return RC_OK;
}

/* needed[f] for all ranks of a host together. */
static enum rc host_needs(const struct load *l, int host, unsigned char *needed, struct err *e)
{
    const struct schedule *s = executor_schedule(l->x);
    enum rc rc = RC_OK;
    memset(needed, 0, (size_t)l->n_files);
    for (int r = 0; r < comm_ranks(l->c) && !rc; r++) {
        if (l->o->host_of[r] != host)
            continue;
        struct piece *pieces;
        size_t n = checkpoint_pieces(s, r, &pieces);
        for (size_t i = 0; i < n && !rc; i++)
            rc = checkpoint_each_extent(l->manifest, &pieces[i], mark, needed, e);
        free(pieces);
    }
    return rc;
}

static enum rc send_file(struct load *l, struct transfer *t, const char *path, struct err *e)
{
    struct transfer_file from = {.fd = open(path, O_RDONLY | O_CLOEXEC), .path = path};
    from.buffer = base_alloc(TRANSFER_CHUNK);
    t->source = transfer_from_file;
    t->source_arg = &from;
    enum rc rc = transfer_files(l->c, t, e);
    if (from.fd >= 0)
        close(from.fd);
    free(from.buffer);
    return rc;
}

/* To the first rank of a host, unless it is there. */
static enum rc bring_file(struct load *l, int f, int host, struct err *e)
{
    int me = comm_rank(l->c), holder = holder_of(l, f);
    int receiver = checkpoint_first_rank(l->o, host);
    unsigned char *has = &l->has[receiver * l->n_files + f];
    if (*has)
        return RC_OK;
    *has = 1;
    uint64_t bytes = (uint64_t)json_int(checkpoint_file(l->manifest, f), "bytes", 0);
    struct transfer t = {.to = -1, .from = -1, .buffer = l->buffer};
    char name[40];
    char *path = path_join(l->dir, checkpoint_file_name(name, f));
    enum rc rc = RC_OK;
    if (me == holder) {
        t.to = receiver;
        t.send = bytes;
        rc = send_file(l, &t, path, e);
    } else if (me == receiver) {
        t.from = holder;
        t.recv = bytes;
        t.recv_path = path;
        hash128_from_hex(&t.recv_hash, json_str(checkpoint_file(l->manifest, f), "xxh128", ""));
        rc = transfer_files(l->c, &t, e);
    }
    free(path);
    return rc;
}

/* A host that now has what its ranks need, and the manifest, can serve the next load too. */
static enum rc complete_folder(const struct load *l, const struct str *manifest, struct err *e)
{
    char *path = path_join(l->dir, RUN_FILE_MANIFEST);
    enum rc rc = RC_OK;
    if (checkpoint_is_host_first(l->x, l->o) && !is_sound_manifest(path))
        rc = file_write(path, manifest->p, manifest->len, 0644, e);
    free(path);
    return rc;
}

/* A file that lies on one host alone goes to the next one too: whichever is lost then, a checkpoint
 * that had to be put together again survives as a new one does. */
static enum rc bring_copies(struct load *l, struct err *e)
{
    int hosts = checkpoint_hosts(l->x, l->o);
    enum rc rc = RC_OK;
    for (int f = 0; f < l->n_files && l->o->has_partner && hosts > 1 && !rc; f++) {
        int holders = 0;
        for (int h = 0; h < hosts; h++)
            holders += l->has[checkpoint_first_rank(l->o, h) * l->n_files + f];
        if (holders == 1)
            rc = bring_file(l, f, (l->o->host_of[holder_of(l, f)] + 1) % hosts, e);
    }
    return rc;
}

static enum rc bring_missing(struct load *l, const struct str *manifest, struct err *e)
{
    unsigned char *needed = base_alloc((size_t)l->n_files);
    enum rc rc = checkpoint_is_host_first(l->x, l->o) ? dir_make(l->dir, 0755, e) : RC_OK;
    rc = checkpoint_agree(l->x, "loading the checkpoint", rc, e);
    for (int host = 0; host < checkpoint_hosts(l->x, l->o) && !rc; host++) {
        rc = host_needs(l, host, needed, e);
        for (int f = 0; f < l->n_files && !rc; f++)
            if (needed[f])
                rc = bring_file(l, f, host, e);
    }
    free(needed);
    if (!rc)
        rc = bring_copies(l, e);
    if (!rc)
        rc = complete_folder(l, manifest, e);
    return checkpoint_agree(l->x, "loading the checkpoint", rc, e);
}

/* --- reading --- */

struct reading {
    struct load *l;
    struct st_reader **reader; /* by file, opened when first needed */
    float *values;             /* STATE_RANGE, on their way into another form */
};

static enum rc read_extent(void *arg, const struct piece *p, int file, int64_t entry_offset,
    int64_t piece_offset, int64_t count, struct err *e)
{
    struct reading *r = arg;
    struct executor *x = r->l->x;
    struct state_view v = executor_state(x, p->unit, p->kind);
    int64_t at = p->unit_first + piece_offset, end = at + count;
    enum rc rc = RC_OK;
    for (int64_t next; at < end && !rc; at = next) {
        float *to = v.data ? v.data + (at - v.first) : r->values;
        next = v.data ? end : executor_range_end(at, end);
        rc = checkpoint_read_extent(r->l->dir, &r->reader[file], p->name,
            &(struct extent){file, entry_offset + (at - (end - count)), next - at}, to, e);
        if (!rc && !v.data)
            executor_write_state(x, p->unit, p->kind, (struct state_range){at, next - at}, to);
    }
    return rc;
}

static bool is_same_state(const struct piece *a, const struct piece *b)
{
    return a->unit == b->unit && a->kind == b->kind;
}

/* The i-th of n. */
static enum rc read_piece(
    struct reading *r, const struct piece *pieces, size_t i, size_t n, struct err *e)
{
    struct executor *x = r->l->x;
    const struct piece *p = &pieces[i];
    bool is_first = i == 0 || !is_same_state(p - 1, p),
         is_last = i + 1 == n || !is_same_state(p, p + 1);
    enum rc rc = is_first ? executor_begin_state(x, p->unit, p->kind, e) : RC_OK;
    if (!rc)
        rc = checkpoint_each_extent(r->l->manifest, p, read_extent, r, e);
    return rc || !is_last ? rc : executor_store_state(x, p->unit, p->kind, e);
}

static enum rc read_state(struct load *l, struct err *e)
{
    const struct schedule *s = executor_schedule(l->x);
    struct reading r = {.l = l, .values = base_alloc(STATE_RANGE * sizeof(*r.values))};
    r.reader = base_calloc((size_t)l->n_files, sizeof(struct st_reader *));
    struct piece *pieces;
    size_t n = checkpoint_pieces(s, comm_rank(l->c), &pieces);
    enum rc rc = RC_OK;
    for (size_t i = 0; i < n && !rc; i++)
        rc = read_piece(&r, pieces, i, n, e);
    for (int f = 0; f < l->n_files; f++)
        st_close(r.reader[f]);
    free(r.reader);
    free(r.values);
    free(pieces);
    return checkpoint_agree(l->x, "loading the checkpoint", rc, e);
}

/* --- all of it --- */

/* RC_NOT_FOUND: a file of this step is nowhere sound; an older step may do. */
static enum rc load_step(struct load *l, int owner, struct checkpoint_info *info, struct err *e)
{
    struct str text = STR_INIT;
    enum rc rc = share_manifest(l, owner, &text, e);
    if (!rc)
        rc = parse_manifest(l, &text, info, e);
    if (!rc)
        rc = take_stock(l, e);
    int missing = rc ? -1 : missing_file(l);
    if (!rc && missing >= 0)
        rc = err_set(e, RC_NOT_FOUND,
            "checkpoint of step %" PRId64 ": file '%s' is missing or damaged on every host",
            l->step, json_str(checkpoint_file(l->manifest, missing), "name", "?"));
    if (!rc)
        rc = bring_missing(l, &text, e);
    if (!rc)
        rc = read_state(l, e);
    if (!rc)
        rc = executor_publish(l->x, e);
    str_release(&text);
    return rc;
}

static enum rc try_step(struct load *l, int owner, struct checkpoint_info *info, struct err *e)
{
    l->dir = checkpoint_step_dir(l->o->dir, l->step, "");
    enum rc rc = load_step(l, owner, info, e);
    free(l->dir);
    free(l->has);
    json_free(l->manifest);
    l->dir = NULL;
    l->has = NULL;
    l->manifest = NULL;
    return rc;
}

/* The newest step below the bound that some host has a sound manifest of, and which. What the user
 * hears of newer ones goes to passed_over. */
static enum rc choose_step(
    struct load *l, int64_t bound, int *owner, struct err *passed_over, struct err *e)
{
    struct newest mine = {-1, -1};
    int64_t seen;
    int whose;
    if (checkpoint_is_host_first(l->x, l->o))
        mine = newest_below(l->o->dir, bound);
    enum rc rc = largest(l->c, mine.sound, &l->step, owner, e);
    if (!rc)
        rc = largest(l->c, mine.manifest, &seen, &whose, e);
    if (!rc && seen > l->step && !passed_over->code)
        err_set(passed_over, RC_NOT_FOUND,
            "checkpoint of step %" PRId64 ": its manifest is damaged on every host", seen);
    return rc;
}

enum rc checkpoint_read(const struct checkpoint_job *j, int64_t step, struct checkpoint_info *info,
    struct err *passed_over, struct err *e)
{
    struct load l = {.x = j->x, .o = j->o, .c = executor_comm(j->x), .buffer = j->buffer};
    int64_t bound = step >= 0 ? step + 1 : INT64_MAX;
    *passed_over = (struct err)ERR_INIT;
    info->step = -1;
    for (;;) {
        int owner = 0;
        struct err why = ERR_INIT;
        enum rc rc = choose_step(&l, bound, &owner, passed_over, e);
        if (rc)
            return rc;
        if (l.step < 0 || (step >= 0 && l.step != step))
            break;
        rc = try_step(&l, owner, info, &why);
        if (rc == RC_OK)
            return RC_OK;
        if (rc != RC_NOT_FOUND || step >= 0) {
            *e = why;
            return rc;
        }
        if (!passed_over->code)
            *passed_over = why;
        info->step = -1;
        bound = l.step;
    }
    if (step >= 0)
        return err_set(e, RC_NOT_FOUND, "no host has a sound checkpoint of step %" PRId64, step);
    if (passed_over->code)
        *e = *passed_over;
    return passed_over->code;
}
