#include "engine/memory_use.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* "VmRSS:   1234 kB" of /proc/self/status. */
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

int64_t memory_now_bytes(void)
{
    return status_bytes("VmRSS:");
}

int64_t memory_anonymous_bytes(void)
{
    return status_bytes("RssAnon:");
}

int64_t memory_resident_bytes(void *p, int64_t bytes)
{
    enum { PAGES = 65536 };
    unsigned char present[PAGES];
    int64_t page = sysconf(_SC_PAGESIZE), total = 0;
    for (int64_t at = 0; at < bytes; at += PAGES * page) {
        int64_t n = bytes - at < PAGES * page ? bytes - at : PAGES * page;
        if (mincore((char *)p + at, (size_t)n, present) != 0)
            return -1;
        for (int64_t i = 0; i < (n + page - 1) / page; i++)
            total += present[i] & 1 ? page : 0;
    }
    return total;
}
