/* Saving: write, copy to partners, agree, rename; nothing half-written stays. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "engine/checkpoint_files.h"
#include "engine/comm.h"
#include "engine/file_transfer.h"
#include "engine/safetensors.h"
#include "run/names.h"

struct save {
    struct executor *x;
    const struct checkpoint_options *o;
    const struct checkpoint_info *info;
    char *tmp, *final;
    struct file_entry *files; /* by shard rank */
};

/* --- the own file --- */

static void describe(const struct piece *p, size_t n, struct st_tensor *out)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (struct st_tensor){
            .name = (char *)(uintptr_t)p[i].name, .dtype = "F32", .dims = 1, .shape = {p[i].count}};
    }
}

static enum rc write_pieces(
    struct save *s, struct st_writer *w, const struct piece *p, size_t n, struct err *e)
{
    enum rc rc = RC_OK;
    for (size_t i = 0; i < n && !rc; i++) {
        struct state_view v = executor_state(s->x, p[i].unit, p[i].kind);
        rc = st_write(
            w, v.data + (p[i].unit_first - v.first), (size_t)p[i].count * sizeof(float), e);
    }
    return rc;
}

static enum rc write_own_file(struct save *s, struct file_entry *out, struct err *e)
{
    int shard = comm_group_rank(executor_comm(s->x), GROUP_SHARD);
    if (!executor_is_first_replica(s->x))
        return RC_OK;
    char name[40];
    char *path = path_join(s->tmp, checkpoint_file_name(name, shard));
    struct piece *pieces;
    size_t n = checkpoint_pieces(executor_schedule(s->x), shard, &pieces);
    struct st_tensor *tensors = base_calloc(n, sizeof(*tensors));
    describe(pieces, n, tensors);
    struct st_writer *w;
    enum rc rc = st_create(&w, path, tensors, n, e);
    if (!rc) {
        rc = write_pieces(s, w, pieces, n, e);
        if (rc)
            st_abandon(w);
        else
            rc = st_finish(w, &out->bytes, &out->hash, e);
    }
    free(tensors);
    free(pieces);
    free(path);
    return rc;
}

/* --- partner copies --- */

/* In round k the k-th rank of every host sends its file to a rank of the next host; each rank sends
 * and receives at most one file a round. */
static enum rc copy_to_partners(struct save *s, struct err *e)
{
    struct comm *c = executor_comm(s->x);
    int hosts = checkpoint_hosts(s->x, s->o), me = comm_rank(c);
    int host = s->o->host_of[me], next = (host + 1) % hosts, before = (host + hosts - 1) % hosts;
    int local = me - checkpoint_first_rank(s->o, host);
    int mine = checkpoint_ranks_on(s->x, s->o, host);
    int rounds = 0;
    for (int h = 0; h < hosts; h++) {
        int n = checkpoint_ranks_on(s->x, s->o, h);
        rounds = n > rounds ? n : rounds;
    }
    int shards = (int)executor_schedule(s->x)->shards;
    enum rc rc = RC_OK;
    for (int k = 0; k < rounds && !rc; k++) {
        struct transfer t = {.to = -1, .from = -1, .dir = s->tmp};
        int theirs = checkpoint_ranks_on(s->x, s->o, next);
        if (local == k && me < shards) {
            t.to = checkpoint_first_rank(s->o, next) + k % theirs;
            t.send = s->files[me].bytes;
            checkpoint_file_name(t.send_name, me);
        }
        int sender = checkpoint_first_rank(s->o, before) + k;
        if (k < checkpoint_ranks_on(s->x, s->o, before) && k % mine == local && sender < shards) {
            t.from = sender;
            t.recv = s->files[sender].bytes;
            checkpoint_file_name(t.recv_name, sender);
        }
        rc = transfer_files(c, &t, e);
    }
    return rc;
}

/* --- phases --- */

static enum rc make_tmp(struct save *s, struct err *e)
{
    if (!checkpoint_is_host_first(s->x, s->o))
        return RC_OK;
    enum rc rc = dir_remove(s->tmp, e);
    return rc ? rc : dir_make(s->tmp, 0755, e);
}

static enum rc write_manifest(struct save *s, struct err *e)
{
    if (!checkpoint_is_host_first(s->x, s->o))
        return RC_OK;
    struct json *m = checkpoint_manifest(executor_schedule(s->x), s->info, s->files);
    char *text = json_print(m, true), *path = path_join(s->tmp, RUN_FILE_MANIFEST);
    enum rc rc = file_write(path, text, strlen(text), 0644, e);
    if (!rc)
        rc = dir_sync(s->tmp, e);
    free(path);
    free(text);
    json_free(m);
    return rc;
}

static enum rc put_in_place(struct save *s, struct err *e)
{
    if (!checkpoint_is_host_first(s->x, s->o))
        return RC_OK;
    enum rc rc = dir_remove(s->final, e);
    if (!rc && rename(s->tmp, s->final) != 0)
        rc = err_sys(e, RC_IO, "cannot rename '%s'", s->tmp);
    return rc ? rc : dir_sync(s->o->dir, e);
}

static int newest_first(const void *a, const void *b)
{
    return strcmp(*(char *const *)b, *(char *const *)a);
}

/* Keep the newest; what an interrupted save or removal left goes as well. */
static void remove_old(const struct save *s)
{
    char **names = NULL;
    size_t n = 0, cap = 0;
    DIR *d = opendir(s->o->dir);
    const struct dirent *entry;
    while (d && (entry = readdir(d))) {
        if (!str_starts(entry->d_name, RUN_STEP_PREFIX))
            continue;
        BASE_GROW(names, cap, n + 1);
        names[n++] = base_strdup(entry->d_name);
    }
    if (d)
        closedir(d);
    if (n)
        qsort(names, n, sizeof(*names), newest_first);
    int64_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_tmp = strstr(names[i], ".tmp") != NULL;
        if (is_tmp || ++kept > s->o->keep) {
            struct err ignored;
            char *path = path_join(s->o->dir, names[i]);
            dir_remove(path, &ignored);
            free(path);
        }
        free(names[i]);
    }
    free(names);
}

static enum rc share_files(struct save *s, const struct file_entry *own, struct err *e)
{
    struct comm *c = executor_comm(s->x);
    struct file_entry *all = base_calloc((size_t)comm_ranks(c), sizeof(*all));
    enum rc rc = comm_all_gather(c, CHANNEL_CHECKPOINT, GROUP_WORLD, own, all, sizeof(*own), e);
    /* the first replica is ranks 0 .. shards - 1 */
    memcpy(s->files, all, sizeof(*all) * (size_t)executor_schedule(s->x)->shards);
    free(all);
    return rc;
}

static enum rc run_phases(struct save *s, struct err *e)
{
    static const char *const WHAT = "saving the checkpoint";
    struct file_entry own = {0};
    enum rc rc = checkpoint_agree(s->x, WHAT, make_tmp(s, e), e);
    if (!rc)
        rc = checkpoint_agree(s->x, WHAT, write_own_file(s, &own, e), e);
    if (!rc)
        rc = share_files(s, &own, e);
    if (!rc && s->o->has_partner && checkpoint_hosts(s->x, s->o) > 1)
        rc = checkpoint_agree(s->x, WHAT, copy_to_partners(s, e), e);
    if (!rc)
        rc = checkpoint_agree(s->x, WHAT, write_manifest(s, e), e);
    if (!rc)
        rc = checkpoint_agree(s->x, WHAT, put_in_place(s, e), e);
    return rc;
}

enum rc checkpoint_save(struct executor *x, const struct checkpoint_options *o,
    const struct checkpoint_info *info, struct err *e)
{
    struct save s = {.x = x, .o = o, .info = info};
    s.tmp = checkpoint_step_dir(o->dir, info->step, ".tmp");
    s.final = checkpoint_step_dir(o->dir, info->step, "");
    s.files = base_calloc((size_t)executor_schedule(x)->shards, sizeof(*s.files));
    enum rc rc = run_phases(&s, e);
    if (checkpoint_is_host_first(x, o)) {
        struct err ignored;
        if (rc)
            dir_remove(s.tmp, &ignored);
        else
            remove_old(&s);
    }
    if (rc)
        err_in(e, "checkpoint of step %lld", (long long)info->step);
    free(s.files);
    free(s.tmp);
    free(s.final);
    return rc;
}
