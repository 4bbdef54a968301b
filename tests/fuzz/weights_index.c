#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/file.h"
#include "engine/safetensors.h"
#include "engine/weights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static char dir[] = "/tmp/berth-fuzz-XXXXXX";

static void remove_dir(void)
{
    struct err ignored;
    dir_remove(dir, &ignored);
}

/* A file with one tensor, which the index may place. */
static void make_dir(void)
{
    struct err e = ERR_INIT;
    struct st_writer *w;
    struct st_tensor t = {
        .name = (char *)(uintptr_t) "model.norm.weight", .dtype = "F32", .dims = 1};
    uint64_t bytes;
    struct hash128 hash;
    const float one[64] = {1};
    t.shape[0] = 64;
    if (!mkdtemp(dir))
        abort();
    atexit(remove_dir);
    char *path = path_join(dir, "a.safetensors");
    if (st_create(&w, path, &t, 1, &e) || st_write(w, one, sizeof(one), &e) ||
        st_finish(w, &bytes, &hash, &e))
        abort();
    free(path);
}

/* No index makes a whole model of one tensor: all are refused, with a sentence. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct model m;
    struct weights *w;
    struct err e = ERR_INIT;
    if (m.layers == 0) {
        make_dir();
        if (model_find(&m, "tiny-llama", &e))
            abort();
    }
    char *index = path_join(dir, "model.safetensors.index.json");
    FILE *f = fopen(index, "w"); /* not file_write: that waits for the disk */
    if (!f || fwrite(data, 1, len, f) != len || fclose(f) != 0)
        abort();
    if (weights_open(&w, dir, &m, &e) == RC_OK || !e.msg[0])
        abort();
    free(index);
    return 0;
}
