/* Saving: write, copy to partners, agree, rename; nothing half-written stays. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/str.h"
#include "engine/checkpoint_files.h"
#include "engine/checkpoint_image.h"
#include "engine/comm.h"
#include "engine/durable_file.h"
#include "engine/file_transfer.h"
#include "run/names.h"

struct save {
    struct checkpoint_job *j;
    struct executor *x;
    const struct checkpoint_options *o;
    char *tmp, *final, *old;
    struct file_entry *files; /* by rank, of those that write */
};

/* --- the own file --- */

static enum rc write_image(struct checkpoint_job *j, struct durable_file *f, struct err *e)
{
    enum rc rc = RC_OK;
    for (uint64_t at = 0; at < f->bytes && !rc; at += DURABLE_PIECE_BYTES) {
        uint64_t left = f->bytes - at;
        size_t n = left < DURABLE_PIECE_BYTES ? left : DURABLE_PIECE_BYTES;
        const void *bytes = image_at(j->image, at, n, e);
        if (!bytes)
            return RC_IO;
        if (atomic_load(&j->is_given_up))
            return err_set(e, RC_INTERRUPTED, "writing '%s' was given up", f->path);
        rc = durable_write(f, bytes, n, e);
    }
    return rc;
}

static enum rc write_own_file(struct save *s, struct file_entry *out, struct err *e)
{
    struct checkpoint_job *j = s->j;
    if (!j->image)
        return RC_OK;
    char name[40];
    char *path = path_join(s->tmp, checkpoint_file_name(name, comm_rank(executor_comm(s->x))));
    struct durable_file f;
    enum rc rc = durable_create(&f, path, image_bytes(j->image), e);
    free(path);
    if (rc)
        return rc;
    rc = write_image(j, &f, e);
    if (rc)
        durable_abandon(&f);
    else
        rc = durable_finish(&f, e);
    *out = (struct file_entry){image_bytes(j->image), image_hash(j->image)};
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
    int writers = (int)executor_schedule(s->x)->parts;
    enum rc rc = RC_OK;
    for (int k = 0; k < rounds && !rc; k++) {
        struct transfer t = {.to = -1,
            .from = -1,
            .source = image_at,
            .source_arg = s->j->image,
            .buffer = s->j->buffer};
        int theirs = checkpoint_ranks_on(s->x, s->o, next);
        if (local == k && me < writers) {
            t.to = checkpoint_first_rank(s->o, next) + k % theirs;
            t.send = s->files[me].bytes;
        }
        int sender = checkpoint_first_rank(s->o, before) + k;
        char name[40];
        char *path = path_join(s->tmp, checkpoint_file_name(name, sender));
        if (k < checkpoint_ranks_on(s->x, s->o, before) && k % mine == local && sender < writers) {
            t.from = sender;
            t.recv = s->files[sender].bytes;
            t.recv_hash = s->files[sender].hash;
            t.recv_path = path;
        }
        rc = transfer_files(c, &t, e);
        free(path);
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
    char *text = checkpoint_manifest(executor_schedule(s->x), &s->j->info, s->files);
    char *path = path_join(s->tmp, RUN_FILE_MANIFEST);
    enum rc rc = file_write(path, text, strlen(text), 0644, e);
    if (!rc)
        rc = dir_sync(s->tmp, e);
    free(path);
    free(text);
    return rc;
}

/* Another machine's file system may say that there is nothing to rename when it is renamed already.
 */
static enum rc move_folder(const char *from, const char *to, struct err *e)
{
    if (rename(from, to) == 0 || (errno == ENOENT && !file_exists(from) && file_exists(to)))
        return RC_OK;
    return err_sys(e, RC_IO, "cannot rename '%s'", from);
}

/* A checkpoint of the same step makes room first: both names are never the new one. */
static enum rc put_in_place(struct save *s, struct err *e)
{
    if (!checkpoint_is_host_first(s->x, s->o))
        return RC_OK;
    enum rc rc = RC_OK;
    if (file_exists(s->final)) {
        rc = dir_remove(s->old, e);
        if (!rc)
            rc = move_folder(s->final, s->old, e);
    }
    if (!rc)
        rc = move_folder(s->tmp, s->final, e);
    return rc ? rc : dir_sync(s->o->dir, e);
}

/* --- what stays --- */

static int newest_first(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static void remove_entry(const struct save *s, const char *name)
{
    struct err ignored;
    char *path = path_join(s->o->dir, name);
    dir_remove(path, &ignored);
    free(path);
}

static bool has_manifest(const struct save *s, const char *name)
{
    char *path = base_printf("%s/%s/" RUN_FILE_MANIFEST, s->o->dir, name);
    bool is_there = file_exists(path);
    free(path);
    return is_there;
}

/* Keep the newest up to the step just saved. The rest goes: older ones, what interrupted saves and
 * loads left, and later steps, of a course that was abandoned when the run went back behind them.
 */
static void remove_old(const struct save *s)
{
    int64_t *steps = NULL;
    size_t n = 0, cap = 0;
    char name[RUN_STEP_TEXT];
    DIR *d = opendir(s->o->dir);
    const struct dirent *entry;
    while (d && (entry = readdir(d))) {
        int64_t step = run_step_of(entry->d_name);
        if (step >= 0 && step <= s->j->info.step && has_manifest(s, entry->d_name)) {
            BASE_GROW(steps, cap, n + 1);
            steps[n++] = step;
        } else if (str_starts(entry->d_name, RUN_STEP_PREFIX)) {
            remove_entry(s, entry->d_name);
        }
    }
    if (d)
        closedir(d);
    if (n)
        qsort(steps, n, sizeof(*steps), newest_first);
    for (size_t i = (size_t)s->o->keep; i < n; i++)
        remove_entry(s, run_step_name(name, steps[i]));
    free(steps);
}

/* --- all of it --- */

static enum rc share_files(struct save *s, const struct file_entry *own, struct err *e)
{
    struct comm *c = executor_comm(s->x);
    struct file_entry *all = base_calloc((size_t)comm_ranks(c), sizeof(*all));
    enum rc rc = comm_all_gather(c, CHANNEL_CHECKPOINT, GROUP_WORLD, own, all, sizeof(*own), e);
    memcpy(s->files, all, sizeof(*all) * (size_t)executor_schedule(s->x)->parts);
    free(all);
    return rc;
}

static int64_t all_bytes(const struct save *s)
{
    int64_t sum = 0;
    for (int r = 0; r < (int)executor_schedule(s->x)->parts; r++)
        sum += (int64_t)s->files[r].bytes;
    return sum;
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

enum rc checkpoint_write(struct checkpoint_job *j, struct err *e)
{
    struct save s = {.j = j, .x = j->x, .o = j->o};
    bool is_first = checkpoint_is_host_first(s.x, s.o);
    s.tmp = checkpoint_step_dir(s.o->dir, j->info.step, ".tmp");
    s.old = checkpoint_step_dir(s.o->dir, j->info.step, ".old");
    s.final = checkpoint_step_dir(s.o->dir, j->info.step, "");
    s.files = base_calloc((size_t)executor_schedule(s.x)->parts, sizeof(*s.files));
    enum rc rc = run_phases(&s, e);
    struct err ignored;
    j->durable_s = clock_now_s();
    if (is_first && rc)
        dir_remove(s.tmp, &ignored);
    else if (is_first)
        remove_old(&s);
    if (!rc) /* when this is over, no rank is at it any more */
        rc = checkpoint_agree(s.x, "removing old checkpoints", RC_OK, e);
    if (rc)
        err_in(e, "checkpoint of step %lld", (long long)j->info.step);
    j->bytes = all_bytes(&s);
    free(s.files);
    free(s.tmp);
    free(s.old);
    free(s.final);
    return rc;
}
