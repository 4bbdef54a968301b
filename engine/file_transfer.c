#include "engine/file_transfer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/file.h"
#include "engine/comm.h"

static uint64_t chunk_at(uint64_t total, uint64_t at)
{
    uint64_t left = at < total ? total - at : 0;
    return left < TRANSFER_CHUNK ? left : TRANSFER_CHUNK;
}

static enum rc open_file(const char *dir, const char *name, int flags, int *fd, struct err *e)
{
    char *path = path_join(dir, name);
    *fd = open(path, flags | O_CLOEXEC, 0644);
    enum rc rc = *fd < 0 ? err_sys(e, RC_IO, "cannot open '%s'", path) : RC_OK;
    free(path);
    return rc;
}

static enum rc read_chunk(
    int fd, uint64_t at, char *buf, uint64_t n, const char *name, struct err *e)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t got = pread(fd, buf + done, n - done, (off_t)(at + done));
        if (got <= 0)
            return err_sys(e, RC_IO, "cannot read '%s'", name);
        done += (uint64_t)got;
    }
    return RC_OK;
}

static void keep_first(enum rc *rc, struct err *e, enum rc new_rc, const struct err *new_e)
{
    if (*rc || !new_rc)
        return;
    *rc = new_rc;
    *e = *new_e;
}

enum rc transfer_files(struct comm *c, const struct transfer *t, struct err *e)
{
    if (t->to < 0 && t->from < 0)
        return RC_OK;
    char *out = base_calloc(1, TRANSFER_CHUNK), *in = base_alloc(TRANSFER_CHUNK);
    int out_fd = -1, in_fd = -1;
    enum rc rc = RC_OK;
    struct err x = ERR_INIT;
    if (t->to >= 0)
        keep_first(&rc, e, open_file(t->dir, t->send_name, O_RDONLY, &out_fd, &x), &x);
    if (t->from >= 0)
        keep_first(
            &rc, e, open_file(t->dir, t->recv_name, O_WRONLY | O_CREAT | O_TRUNC, &in_fd, &x), &x);
    uint64_t send = t->to >= 0 ? t->send : 0, recv = t->from >= 0 ? t->recv : 0;
    for (uint64_t at = 0; at < send || at < recv; at += TRANSFER_CHUNK) {
        uint64_t n_out = chunk_at(send, at), n_in = chunk_at(recv, at);
        if (!rc && n_out)
            keep_first(&rc, e, read_chunk(out_fd, at, out, n_out, t->send_name, &x), &x);
        enum rc moved = comm_exchange(c, CHANNEL_CHECKPOINT,
            &(struct comm_exchange){n_out ? t->to : -1, out, n_out, n_in ? t->from : -1, in, n_in},
            &x);
        keep_first(&rc, e, moved, &x);
        if (moved)
            break;
        if (!rc && n_in)
            keep_first(&rc, e, file_write_fd(in_fd, in, n_in, t->recv_name, &x), &x);
    }
    if (!rc && in_fd >= 0 && fsync(in_fd) != 0)
        rc = err_sys(e, RC_IO, "cannot write '%s'", t->recv_name);
    if (out_fd >= 0)
        close(out_fd);
    if (in_fd >= 0)
        close(in_fd);
    free(out);
    free(in);
    return rc;
}
