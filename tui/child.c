#include "tui/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "tui/mailbox.h"

extern char **environ;

enum { STREAM_MS = 100, ERROR_MAX_BYTES = 64 << 10, CHUNK = 64 << 10 };
static const double KILL_AFTER_S = 0.3;

/* --- starting and ending --- */

static bool program_path(char *path, size_t cap)
{
    ssize_t n = readlink("/proc/self/exe", path, cap - 1);
    if (n <= 0)
        return false;
    path[n] = '\0';
    return true;
}

/* Start berth with the words; out and err become its output. -1 when it cannot be started. */
static pid_t start(const struct argv *argv, int out, int err)
{
    char path[4096];
    char *words[ARGV_MAX + 2] = {(char[]){"berth"}};
    for (size_t i = 0; i < argv->n; i++)
        words[i + 1] = argv->word[i];
    if (!program_path(path, sizeof(path)))
        return -1;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, err, STDERR_FILENO);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(
        &attr, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    pid_t pid;
    int failed = posix_spawn(&pid, path, &files, &attr, words, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    return failed ? -1 : pid;
}

static int exit_status(int wait_status)
{
    return WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
}

/* End a command that nobody listens to any more. */
static void end(pid_t pid)
{
    double begin_s = clock_now_s();
    int status;
    kill(pid, SIGTERM);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (clock_now_s() - begin_s > KILL_AFTER_S)
            kill(pid, SIGKILL);
        clock_sleep_s(0.005);
    }
}

/* The last line somebody wrote to standard error, without the program's name. */
static void last_sentence(const struct str *s, char out[CHILD_ERROR])
{
    const char *text = str_text(s);
    size_t end_at = strlen(text), from;
    while (end_at > 0 && (text[end_at - 1] == '\n' || text[end_at - 1] == '\r'))
        end_at--;
    for (from = end_at; from > 0 && text[from - 1] != '\n'; from--)
        ;
    if (str_starts(text + from, "berth: "))
        from += strlen("berth: ");
    size_t n = end_at > from ? end_at - from : 0;
    n = n < CHILD_ERROR - 1 ? n : CHILD_ERROR - 1;
    memcpy(out, text + from, n);
    out[n] = '\0';
}

/* Move what is there from fd to s; false at the end of the stream. */
static bool drain(int fd, struct str *s)
{
    char *chunk = base_alloc(CHUNK);
    ssize_t n;
    while ((n = read(fd, chunk, CHUNK)) > 0)
        str_addn(s, chunk, (size_t)n);
    free(chunk);
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

static bool open_pipe(int fd[2])
{
    if (pipe2(fd, O_CLOEXEC) != 0)
        return false;
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    return true;
}

struct child_stream {
    unsigned long thread;
    pid_t pid;
    int fd;       /* where its output is read */
    bool is_kept; /* it outlives the screens */
    atomic_bool is_stopping;
    int kind;
    uint64_t serial;
    struct mailbox *mb;
};

void child_lines_free(void *lines)
{
    struct child_lines *l = lines;
    free(l->text);
    free(l);
}

static void post_lines(const struct child_stream *s, struct str *text, bool is_all)
{
    size_t n = text->len;
    while (!is_all && n > 0 && text->p[n - 1] != '\n')
        n--;
    if (n == 0)
        return;
    struct child_lines *l = base_calloc(1, sizeof(*l));
    l->serial = s->serial;
    l->text = base_strndup(text->p, n);
    str_drop(text, n);
    mailbox_post(s->mb, (struct message){s->kind, l, child_lines_free});
}

static void post_end(const struct child_stream *s, int status, const struct str *all)
{
    struct child_lines *l = base_calloc(1, sizeof(*l));
    l->serial = s->serial;
    l->text = base_strdup("");
    l->is_ended = true;
    l->status = status;
    if (status != 0)
        last_sentence(all, l->error);
    mailbox_post(s->mb, (struct message){s->kind, l, child_lines_free});
}

/* Keep the end of what was said, for the sentence of a failure. */
static void remember(struct str *tail, const struct str *piece)
{
    str_addn(tail, str_text(piece), piece->len);
    if (tail->len > ERROR_MAX_BYTES / 2)
        str_drop(tail, tail->len - ERROR_MAX_BYTES / 4);
}

static void *follow(void *argument)
{
    struct child_stream *s = argument;
    struct str text = STR_INIT, tail = STR_INIT;
    str_init(&text, CHILD_MAX_BYTES);
    str_init(&tail, CHILD_MAX_BYTES);
    int status = 0;
    bool has_ended = false;
    while (!has_ended && !atomic_load(&s->is_stopping)) {
        has_ended = waitpid(s->pid, &status, WNOHANG) == s->pid;
        size_t before = text.len;
        bool is_open = drain(s->fd, &text);
        struct str fresh = {.p = text.p ? text.p + before : NULL, .len = text.len - before};
        if (fresh.len > 0)
            remember(&tail, &fresh);
        post_lines(s, &text, has_ended);
        struct pollfd p = {s->fd, is_open && !s->is_kept ? POLLIN : 0, 0};
        if (!has_ended)
            poll(&p, p.events ? 1 : 0, STREAM_MS);
    }
    if (has_ended)
        post_end(s, exit_status(status), &tail);
    else if (!s->is_kept)
        end(s->pid);
    str_release(&text);
    str_release(&tail);
    return NULL;
}

/* The two ends of a stream's output: fd[0] to read, fd[1] for the command. */
static bool open_output(int fd[2], const char *log_path)
{
    if (!log_path)
        return open_pipe(fd);
    fd[1] = open(log_path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    fd[0] = open(log_path, O_RDONLY | O_CLOEXEC);
    return fd[0] >= 0 && fd[1] >= 0;
}

struct child_stream *child_stream_start(
    const struct argv *argv, int kind, uint64_t serial, const char *log_path, struct mailbox *mb)
{
    int fd[2] = {-1, -1};
    struct child_stream *s = base_calloc(1, sizeof(*s));
    s->kind = kind;
    s->serial = serial;
    s->mb = mb;
    s->is_kept = log_path != NULL;
    s->pid = open_output(fd, log_path) ? start(argv, fd[1], fd[1]) : -1;
    s->fd = fd[0];
    close(fd[1]);
    if (s->pid > 0 && worker_thread(follow, s, &s->thread))
        return s;
    if (s->pid > 0)
        end(s->pid);
    close(fd[0]);
    free(s);
    return NULL;
}

bool child_stream_free(struct child_stream *s)
{
    if (!s)
        return true;
    atomic_store(&s->is_stopping, true);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    if (pthread_timedjoin_np(s->thread, NULL, &until) != 0) {
        pthread_detach(s->thread);
        return false;
    }
    close(s->fd);
    free(s);
    return true;
}
