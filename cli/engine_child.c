#include "cli/engine_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/str.h"
#include "launcher/stage.h"

extern char **environ;

enum { CHUNK = 16 << 10, MAX_OUTPUT_BYTES = 256 << 20, MAX_ERROR_BYTES = 64 << 10 };

/* What is read from one pipe; fd -1 behind its end. */
struct drain {
    int fd;
    struct str *to;
    size_t max_bytes;
    engine_child_line *on_line; /* takes whole lines out of `to`; NULL: they stay there */
    void *arg;
};

static void hand_on_lines(struct drain *d)
{
    const char *end;
    while (d->on_line && d->to->len && (end = strchr(str_text(d->to), '\n'))) {
        size_t n = (size_t)(end - str_text(d->to));
        char *line = base_strndup(str_text(d->to), n);
        d->on_line(d->arg, line);
        free(line);
        str_drop(d->to, n + 1);
    }
}

static void drain_some(struct drain *d)
{
    char chunk[CHUNK];
    ssize_t n = read(d->fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        close(d->fd);
        d->fd = -1;
        return;
    }
    if (d->to->len + (size_t)n <= d->max_bytes)
        str_addn(d->to, chunk, (size_t)n);
    hand_on_lines(d);
}

static void drain_all(struct drain *d, nfds_t n)
{
    struct pollfd p[2];
    for (;;) {
        bool is_open = false;
        for (nfds_t i = 0; i < n; i++) {
            p[i] = (struct pollfd){d[i].fd, POLLIN, 0};
            is_open |= d[i].fd >= 0;
        }
        if (!is_open)
            return;
        if (poll(p, n, -1) < 0)
            continue;
        for (nfds_t i = 0; i < n; i++)
            if (d[i].fd >= 0 && p[i].revents)
                drain_some(&d[i]);
    }
}

static enum rc start(pid_t *pid, const char *engine, const char *const *words, const int out[2],
    const int err[2], struct err *e)
{
    size_t n = 0;
    while (words[n])
        n++;
    char **argv = base_calloc(n + 2, sizeof(*argv));
    argv[0] = (char *)(uintptr_t)engine;
    for (size_t i = 0; i < n; i++)
        argv[i + 1] = (char *)(uintptr_t)words[i];
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, err[1], STDERR_FILENO);
    int failed = posix_spawn(pid, engine, &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    free(argv);
    errno = failed;
    return failed ? err_sys(e, RC_IO, "cannot start '%s'", engine) : RC_OK;
}

/* Its last line, without its name. */
static enum rc why(int status, const struct str *said, struct err *e)
{
    const char *text = str_text(said), *name = "berth-engine: ";
    size_t end = strlen(text);
    while (end > 0 && text[end - 1] == '\n')
        end--;
    size_t from = end;
    while (from > 0 && text[from - 1] != '\n')
        from--;
    if (strncmp(text + from, name, strlen(name)) == 0)
        from += strlen(name);
    enum rc rc = WIFEXITED(status) ? rc_of_exit_code(WEXITSTATUS(status)) : RC_FAILED;
    if (WIFSIGNALED(status))
        return err_set(e, rc, "berth-engine was ended by signal %d", WTERMSIG(status));
    if (end == from)
        return err_set(e, rc, "berth-engine ended with status %d", WEXITSTATUS(status));
    return err_set(e, rc, "%.*s", (int)(end - from), text + from);
}

static void close_pair(int fd[2])
{
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

static enum rc run(struct drain *out, const char *const *words, struct err *e)
{
    struct str said = STR_INIT;
    char *engine = NULL;
    int from_out[2] = {-1, -1}, from_err[2] = {-1, -1}, status = 0;
    pid_t pid = -1;
    enum rc rc = stage_find_engine(&engine, e);
    if (!rc && (pipe2(from_out, O_CLOEXEC) != 0 || pipe2(from_err, O_CLOEXEC) != 0))
        rc = err_sys(e, RC_IO, "cannot make a pipe");
    if (!rc)
        rc = start(&pid, engine, words, from_out, from_err, e);
    if (!rc) {
        close(from_out[1]);
        close(from_err[1]);
        out->fd = from_out[0];
        struct drain d[] = {*out, {.fd = from_err[0], .to = &said, .max_bytes = MAX_ERROR_BYTES}};
        from_out[0] = from_out[1] = from_err[0] = from_err[1] = -1; /* drain closes them */
        drain_all(d, 2);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        rc = status ? why(status, &said, e) : RC_OK;
    }
    close_pair(from_out);
    close_pair(from_err);
    free(engine);
    str_release(&said);
    return rc;
}

enum rc engine_child_run(struct str *out, const char *const *words, struct err *e)
{
    struct drain d = {.to = out, .max_bytes = MAX_OUTPUT_BYTES};
    return run(&d, words, e);
}

enum rc engine_child_follow(
    engine_child_line *on_line, void *arg, const char *const *words, struct err *e)
{
    struct str rest = STR_INIT;
    struct drain d = {.to = &rest, .max_bytes = MAX_OUTPUT_BYTES, .on_line = on_line, .arg = arg};
    enum rc rc = run(&d, words, e);
    str_release(&rest);
    return rc;
}
