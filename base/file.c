#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"

static enum rc read_fd(struct str *out, int fd, const char *path, size_t max_bytes, struct err *e)
{
    char buf[1 << 16];
    size_t total = 0;
    for (;;) {
        ssize_t n = read(fd, buf, sizeof(buf));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, RC_IO, "cannot read '%s'", path);
        if (n == 0)
            return RC_OK;
        total += (size_t)n;
        if (total > max_bytes)
            return err_set(e, RC_LIMIT, "'%s' is larger than %zu bytes", path, max_bytes);
        str_addn(out, buf, (size_t)n);
    }
}

enum rc file_read(struct str *out, const char *path, size_t max_bytes, struct err *e)
{
    if (strcmp(path, "-") == 0)
        return read_fd(out, 0, "standard input", max_bytes, e);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, RC_NOT_FOUND, "cannot open '%s'", path);
    enum rc rc = read_fd(out, fd, path, max_bytes, e);
    close(fd);
    return rc;
}

enum rc file_write_fd(int fd, const void *data, size_t len, const char *what, struct err *e)
{
    const char *p = data;
    while (len) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, RC_IO, "cannot write '%s'", what);
        p += n;
        len -= (size_t)n;
    }
    return RC_OK;
}

/* A device, a pipe or a socket cannot be replaced by renaming, and must not be. */
static enum rc write_special(const char *path, const void *data, size_t len, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, RC_IO, "cannot open '%s'", path);
    enum rc rc = file_write_fd(fd, data, len, path, e);
    if (close(fd) != 0 && !rc)
        rc = err_sys(e, RC_IO, "cannot write '%s'", path);
    return rc;
}

static enum rc write_and_rename(
    const char *target, const void *data, size_t len, unsigned mode, struct err *e)
{
    char *tmp = base_printf("%s.tmp-%ld", target, (long)getpid());
    unlink(tmp); /* left by a process of that number that was killed */
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        enum rc rc = err_sys(e, RC_IO, "cannot create '%s'", tmp);
        free(tmp);
        return rc;
    }
    enum rc rc = file_write_fd(fd, data, len, target, e);
    if (!rc && fsync(fd) != 0)
        rc = err_sys(e, RC_IO, "cannot write '%s'", target);
    if (close(fd) != 0 && !rc)
        rc = err_sys(e, RC_IO, "cannot write '%s'", target);
    if (!rc && rename(tmp, target) != 0)
        rc = err_sys(e, RC_IO, "cannot rename '%s' to '%s'", tmp, target);
    if (rc)
        unlink(tmp);
    free(tmp);
    return rc;
}

enum rc file_write(const char *path, const void *data, size_t len, unsigned mode, struct err *e)
{
    char *resolved = realpath(path, NULL);
    const char *target = resolved ? resolved : path;
    struct stat st;
    enum rc rc;
    if (stat(target, &st) == 0 && S_ISDIR(st.st_mode))
        rc = err_set(e, RC_IO, "'%s' is a folder, not a file", path);
    else if (stat(target, &st) == 0 && !S_ISREG(st.st_mode))
        rc = write_special(target, data, len, e);
    else
        rc = write_and_rename(
            target, data, len, stat(target, &st) == 0 ? st.st_mode & 07777 : mode, e);
    free(resolved);
    return rc;
}

enum rc file_append(const char *path, const void *data, size_t len, unsigned mode, struct err *e)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, mode);
    if (fd < 0)
        return err_sys(e, RC_IO, "cannot open '%s'", path);
    off_t before = lseek(fd, 0, SEEK_END);
    enum rc rc = file_write_fd(fd, data, len, path, e);
    if (rc && before >= 0 && ftruncate(fd, before) != 0) /* no half line for the next to follow */
        err_in(e, "and cannot cut what was written");
    close(fd);
    return rc;
}

enum rc dir_make(const char *path, unsigned mode, struct err *e)
{
    char *copy = base_strdup(path);
    enum rc rc = RC_OK;
    for (char *p = copy + 1; !rc; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        char saved = *p;
        *p = '\0';
        if (mkdir(copy, mode) != 0 && errno != EEXIST)
            rc = err_sys(e, RC_IO, "cannot create folder '%s'", copy);
        *p = saved;
        if (!saved)
            break;
    }
    struct stat st;
    if (!rc && (stat(path, &st) != 0 || !S_ISDIR(st.st_mode)))
        rc = err_set(e, RC_IO, "'%s' is not a folder", path);
    free(copy);
    return rc;
}

enum rc dir_sync(const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, RC_IO, "cannot open folder '%s'", path);
    enum rc rc = RC_OK;
    if (fsync(fd) != 0 && errno != EINVAL)
        rc = err_sys(e, RC_IO, "cannot sync folder '%s'", path);
    close(fd);
    return rc;
}

static enum rc remove_at(int parent, const char *name, int depth, struct err *e)
{
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return RC_OK;
    if (errno != EISDIR && errno != EPERM)
        return err_sys(e, RC_IO, "cannot remove '%s'", name);
    if (depth > 64)
        return err_set(e, RC_LIMIT, "folder '%s' is nested too deeply to remove", name);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        if (fd >= 0)
            close(fd);
        return err_sys(e, RC_IO, "cannot open folder '%s'", name);
    }
    enum rc rc = RC_OK;
    const struct dirent *entry;
    while (!rc && (entry = readdir(d)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            rc = remove_at(dirfd(d), entry->d_name, depth + 1, e);
    closedir(d);
    if (!rc && unlinkat(parent, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        rc = err_sys(e, RC_IO, "cannot remove folder '%s'", name);
    return rc;
}

enum rc dir_remove(const char *path, struct err *e)
{
    return remove_at(AT_FDCWD, path, 0, e);
}

bool file_is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

int64_t file_size(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? (int64_t)st.st_size : -1;
}

char *path_join(const char *a, const char *b)
{
    size_t n = strlen(a);
    while (n > 1 && a[n - 1] == '/')
        n--;
    while (*b == '/')
        b++;
    return base_printf("%.*s%s%s", (int)n, a, n && a[n - 1] == '/' ? "" : "/", b);
}

char *path_user(enum path_kind kind)
{
    static const struct {
        const char *variable, *below_home, *name;
    } KINDS[] = {{"XDG_CONFIG_HOME", ".config", "config"}, {"XDG_CACHE_HOME", ".cache", "cache"},
        {"XDG_STATE_HOME", ".local/state", "state"}, {"XDG_DATA_HOME", ".local/share", "data"}};
    const char *home = getenv("BERTH_HOME");
    if (home && *home)
        return path_join(home, KINDS[kind].name);
    const char *xdg = getenv(KINDS[kind].variable);
    if (xdg && xdg[0] == '/')
        return path_join(xdg, "berth");
    home = getenv("HOME");
    if (!home || home[0] != '/') {
        /* not /tmp, where anybody could put settings for us */
        const struct passwd *user = getpwuid(getuid());
        home = user && user->pw_dir ? user->pw_dir : "/nonexistent";
    }
    char *base = path_join(home, KINDS[kind].below_home);
    char *full = path_join(base, "berth");
    free(base);
    return full;
}
