#include "engine/durable_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/alloc.h"

/* So much may be waiting in the page cache: an error is seen soon, and memory stays free. */
enum { SYNC_EVERY_BYTES = 256 << 20 };

bool durable_is_remote(long file_system_type)
{
    /* f_type of statfs(2): NFS, SMB, CIFS, SMB2, FUSE, 9P, Ceph, AFS, Lustre */
    static const unsigned long REMOTE[] = {0x6969, 0x517b, 0xff534d42, 0xfe534d42, 0x65735546,
        0x01021997, 0x00c36400, 0x5346414f, 0x0bd00bd0};
    for (size_t i = 0; i < BASE_COUNT(REMOTE); i++)
        if ((unsigned long)file_system_type == REMOTE[i])
            return true;
    return false;
}

static enum rc failed(const struct durable_file *f, struct err *e)
{
    return err_sys(e, RC_IO, "cannot write '%s'", f->path);
}

/* What the file system cannot promise it may still be able to hold. */
static enum rc reserve(const struct durable_file *f, struct err *e)
{
    if (f->bytes == 0 || fallocate(f->fd, 0, 0, (off_t)f->bytes) == 0)
        return RC_OK;
    return errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO ? failed(f, e)
                                                                                : RC_OK;
}

enum rc durable_create(struct durable_file *f, const char *path, uint64_t bytes, struct err *e)
{
    enum { FLAGS = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC };
    struct statfs fs;
    *f = (struct durable_file){.path = base_strdup(path), .bytes = bytes};
    f->fd = open(path, FLAGS, 0644);
    if (f->fd < 0) {
        enum rc rc = err_sys(e, RC_IO, "cannot create '%s'", path);
        durable_abandon(f);
        return rc;
    }
    bool is_remote = fstatfs(f->fd, &fs) == 0 && durable_is_remote((long)fs.f_type);
    f->is_direct = !is_remote && fcntl(f->fd, F_SETFL, O_DIRECT) == 0;
    enum rc rc = reserve(f, e);
    if (rc)
        durable_abandon(f);
    return rc;
}

static enum rc sync_some(struct durable_file *f, struct err *e)
{
    if (f->is_direct || f->written - f->synced < SYNC_EVERY_BYTES)
        return RC_OK;
    if (fdatasync(f->fd) != 0)
        return failed(f, e);
    f->synced = f->written;
    return RC_OK;
}

/* A file system may take the flag and refuse the write; and what follows a short write would have
 * to be aligned again. */
static bool gives_up_direct(struct durable_file *f)
{
    if (!f->is_direct || fcntl(f->fd, F_SETFL, 0) != 0)
        return false;
    f->is_direct = false;
    return true;
}

enum rc durable_write(struct durable_file *f, const void *data, size_t n, struct err *e)
{
    for (size_t done = 0; done < n;) {
        size_t left = n - done;
        if (f->is_direct)
            left = base_align_up(left, DURABLE_ALIGN);
        ssize_t put = pwrite(f->fd, (const char *)data + done, left, (off_t)(f->written + done));
        if (put < 0 && (errno == EINTR || (errno == EINVAL && gives_up_direct(f))))
            continue;
        if (put < 0)
            return failed(f, e);
        if ((size_t)put < left)
            gives_up_direct(f);
        done += (size_t)put;
    }
    f->written += n;
    return sync_some(f, e);
}

enum rc durable_finish(struct durable_file *f, struct err *e)
{
    enum rc rc = RC_OK;
    if (f->written != f->bytes)
        rc = err_set(e, RC_FAILED, "'%s' got %llu of %llu bytes", f->path,
            (unsigned long long)f->written, (unsigned long long)f->bytes);
    /* the last block was written whole */
    if (!rc && f->is_direct && f->bytes % DURABLE_ALIGN && ftruncate(f->fd, (off_t)f->bytes) != 0)
        rc = failed(f, e);
    if (!rc && fsync(f->fd) != 0)
        rc = failed(f, e);
    /* file systems of other machines may tell only now */
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) != 0 && !rc)
        rc = failed(f, e);
    if (rc)
        durable_abandon(f);
    free(f->path);
    f->path = NULL;
    return rc;
}

void durable_abandon(struct durable_file *f)
{
    if (!f->path)
        return;
    if (f->fd >= 0)
        close(f->fd);
    unlink(f->path);
    free(f->path);
    f->path = NULL;
    f->fd = -1;
}
