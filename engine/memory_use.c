#include "engine/memory_use.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

static bool meets(const struct memory_range *r, int n, uintptr_t start, uintptr_t end)
{
    for (int i = 0; i < n; i++) {
        uintptr_t base = (uintptr_t)r[i].base;
        if (r[i].bytes > 0 && base < end && start < base + (uintptr_t)r[i].bytes)
            return true;
    }
    return false;
}

/* /proc/self/smaps: a line "START-END ..." opens a mapping, "Anonymous: N kB" belongs to it. */
int64_t memory_resident_bytes(const struct memory_range *ranges, int n)
{
    FILE *f = fopen("/proc/self/smaps", "re");
    char *line = NULL;
    size_t cap = 0;
    int64_t total = 0;
    bool is_ours = false;
    if (!f)
        return -1;
    while (getline(&line, &cap, f) > 0) {
        unsigned long start, end;
        long long kib;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            is_ours = meets(ranges, n, start, end);
        else if (is_ours && sscanf(line, "Anonymous: %lld kB", &kib) == 1)
            total += kib * 1024;
    }
    free(line);
    fclose(f);
    return total;
}
