#include "cli/interrupt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static int pipe_fds[2] = {-1, -1};
static volatile sig_atomic_t count;

static void on_signal(int number)
{
    int saved = errno;
    (void)number;
    if (count++)
        _exit(130);
    if (write(pipe_fds[1], "!", 1) < 0)
        _exit(130);
    errno = saved;
}

int interrupt_watch(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    if (pipe_fds[0] >= 0)
        return pipe_fds[0];
    if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0)
        return -1;
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return pipe_fds[0];
}
