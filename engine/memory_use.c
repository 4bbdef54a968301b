#include "engine/memory_use.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "VmHWM:   1234 kB" of /proc/self/status. */
static int64_t status_bytes(const char *key)
{
    char buf[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, buf, sizeof(buf) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return -1;
    buf[n] = '\0';
    const char *p = strstr(buf, key);
    return p ? (int64_t)strtoll(p + strlen(key), NULL, 10) * 1024 : -1;
}

int64_t memory_peak_bytes(void)
{
    return status_bytes("VmHWM:");
}

int64_t memory_now_bytes(void)
{
    return status_bytes("VmRSS:");
}
