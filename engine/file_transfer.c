#include "engine/file_transfer.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/comm.h"
#include "engine/durable_file.h"

static uint64_t chunk_at(uint64_t total, uint64_t at)
{
    uint64_t left = at < total ? total - at : 0;
    return left < TRANSFER_CHUNK ? left : TRANSFER_CHUNK;
}

const void *transfer_from_file(void *arg, uint64_t at, size_t n, struct err *e)
{
    const struct transfer_file *f = arg;
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(f->fd, (char *)f->buffer + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            err_sys(e, RC_IO, "cannot read '%s'", f->path);
            return NULL;
        }
        done += (size_t)got;
    }
    return f->buffer;
}

static void keep_first(enum rc *rc, struct err *e, enum rc new_rc, const struct err *new_e)
{
    if (*rc || !new_rc)
        return;
    *rc = new_rc;
    *e = *new_e;
}

/* The file that arrives. */
struct arrival {
    struct durable_file file;
    struct hash_stream *hash;
    bool is_open;
};

static enum rc arrive(struct arrival *a, const void *data, size_t n, struct err *e)
{
    hash_stream_add(a->hash, data, n);
    return durable_write(&a->file, data, n, e);
}

static enum rc end_arrival(struct arrival *a, const struct transfer *t, struct err *e)
{
    struct hash128 h = hash_stream_end(a->hash);
    if (h.hi != t->recv_hash.hi || h.lo != t->recv_hash.lo)
        return err_set(e, RC_IO, "'%s' was changed on its way from rank %d", t->recv_path, t->from);
    a->is_open = false;
    return durable_finish(&a->file, e);
}

/* One round: a chunk each way; what cannot be read is sent as what the buffer holds, and the
 * receiver's hash tells. */
static enum rc move_chunk(struct comm *c, const struct transfer *t, struct arrival *a, uint64_t at,
    enum rc *rc, struct err *e)
{
    struct err x = ERR_INIT;
    uint64_t n_out = t->to >= 0 ? chunk_at(t->send, at) : 0;
    uint64_t n_in = t->from >= 0 ? chunk_at(t->recv, at) : 0;
    const void *out = n_out ? t->source(t->source_arg, at, n_out, &x) : NULL;
    if (n_out && !out)
        keep_first(rc, e, RC_IO, &x);
    struct comm_exchange both = {
        n_out ? t->to : -1, out ? out : t->buffer, n_out, n_in ? t->from : -1, t->buffer, n_in};
    enum rc moved = comm_exchange(c, CHANNEL_CHECKPOINT, &both, &x);
    keep_first(rc, e, moved, &x);
    if (!moved && !*rc && n_in)
        keep_first(rc, e, arrive(a, t->buffer, n_in, &x), &x);
    return moved;
}

enum rc transfer_files(struct comm *c, const struct transfer *t, struct err *e)
{
    struct arrival a = {.is_open = false};
    struct err x = ERR_INIT;
    enum rc rc = RC_OK;
    if (t->from >= 0) {
        keep_first(&rc, e, durable_create(&a.file, t->recv_path, t->recv, &x), &x);
        a.is_open = rc == RC_OK;
        a.hash = hash_stream_new();
    }
    uint64_t send = t->to >= 0 ? t->send : 0, recv = t->from >= 0 ? t->recv : 0;
    enum rc moved = RC_OK;
    for (uint64_t at = 0; !moved && (at < send || at < recv); at += TRANSFER_CHUNK)
        moved = move_chunk(c, t, &a, at, &rc, e);
    if (a.is_open && !rc)
        keep_first(&rc, e, end_arrival(&a, t, &x), &x);
    if (a.is_open)
        durable_abandon(&a.file);
    hash_stream_free(a.hash);
    return rc;
}
