#include "engine/safetensors.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

/* Every tensor of a file that was accepted can be read whole. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char path[64], byte;
    struct st_reader *r;
    struct err e = ERR_INIT;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || file_write_fd(fd, data, len, "memfd", &e))
        abort();
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (st_open(&r, path, &e) == RC_OK) {
        for (size_t i = 0; i < st_count(r); i++) {
            const struct st_tensor *t = st_at(r, i);
            if (t->end > t->begin && (st_read(r, t, 0, &byte, 1, &e) ||
                                         st_read(r, t, t->end - t->begin - 1, &byte, 1, &e)))
                abort();
            if (st_read(r, t, t->end - t->begin, &byte, 1, &e) == RC_OK)
                abort();
        }
        st_close(r);
    } else if (!e.msg[0]) {
        abort();
    }
    close(fd);
    return 0;
}
